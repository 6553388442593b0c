"""Figs. 5 to 7 of BML: closed forms by counting, iterations by hand, and what is scored."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product

import bml
import bml_times
import pytest
from bml_jobs import SERVERS, Job, Printed, gain, lasting, windows_of

from planner.families.caramel.windows import Windows
from planner.families.collectives import Fabric
from planner.families.collectives.exchange import tensors_on


def busiest_of_servers_on_bcube(n: int, k: int) -> Fraction:
    """Send 1/N of a gradient between all pairs and back, digit by digit; in gradients."""
    servers = list(product(range(n), repeat=k))
    sent: Counter[tuple[tuple[int, ...], int]] = Counter()
    for source, target in product(servers, repeat=2):
        at = list(source)
        for level in range(k):
            if at[level] != target[level]:
                sent[tuple(at), level] += 2  # pushed, and pulled by the way back
                at[level] = target[level]
    return Fraction(max(sent.values()), len(servers))


def busiest_of_bml(n: int, k: int) -> Fraction:
    """Halve, thread by thread and step by step, what is left of N pieces; in gradients."""
    pieces = Fraction(n**k)
    sent, servers = Fraction(0), Fraction(n) ** k
    for _ in range(k):
        pieces /= n
        sent += 2 * (n - 1) * pieces  # to n - 1 neighbours, and the sums back
    return Fraction(sent / (k * servers))


def test_the_bars_of_fig_5_are_what_counting_gives() -> None:
    for bcube, tree in bml_times.NETWORKS:
        ours, servers, flat, single = (curve.volume for curve in bml_times.curves(bcube, tree))
        assert ours == busiest_of_bml(bcube.n, bcube.k)
        assert flat == single == Fraction(2 * (tree.servers - 1), tree.servers)
        if bcube.servers <= 16:
            assert servers == busiest_of_servers_on_bcube(bcube.n, bcube.k)


TWO = Job(
    Windows(sizes=(5, 40), heads=(100, 60), tails=(50, 30), backward_ns=100, forward_ns=50), 1
)
"""Tensor 1 is ready first, and read last."""

# 45 bytes: 9 ns over a link, 16 ns by equal servers, so that a ratio of 150/16 leaves the times as
# they are. Tensors take 16/9 and 128/9 ns by equal servers, half of it by BML; whole, 8 and 64 ns
# to push and as much to pull, each on its own server.
BY_HAND = {
    ("BML", "none"): 158,
    ("BML", "backward"): 100 + Fraction(8, 9) + 50,
    ("BML", "both"): 100 + Fraction(8, 9) + 50,
    ("equal servers", "none"): 166,
    ("equal servers", "backward"): 100 + Fraction(16, 9) + 50,
    ("equal servers", "both"): 100 + Fraction(16, 9) + 50,
    ("whole tensors", "none"): 150 + 128,
    ("whole tensors", "backward"): 60 + 128 + 50,
    ("whole tensors", "both"): 60 + 128 + 30,
}


@pytest.mark.parametrize(("way", "overlap"), BY_HAND)
def test_an_iteration_by_hand(way: str, overlap: str) -> None:
    assert lasting(TWO, Fraction(150, 16), way, overlap) == BY_HAND[way, overlap]


def test_tensors_of_one_server_wait_for_each_other() -> None:
    sizes = (5, *(1,) * (SERVERS - 1), 40)  # the first and the last on server 0
    count = len(sizes)
    job = Job(Windows(sizes, (10,) * count, (0,) * count, 10, 0), 1)
    ratio = 10 / job.communication_ns
    through = Fraction(8 * 45, 5)  # 8 workers, 5 bytes a ns
    assert lasting(job, ratio, "whole tensors", "none") == 10 + 2 * through
    # The last tensor is pulled while the first is pushed, which is the shorter of the two.
    assert lasting(job, ratio, "whole tensors", "backward") == 10 + Fraction(8 * 40, 5) * 2 + 8


@pytest.mark.parametrize("name", ["lenet5", "vgg19"])
def test_without_overlap_times_are_those_of_the_collectives(name: str) -> None:
    job = windows_of(name)
    whole = tensors_on(Fabric(SERVERS, 3), job.windows.sizes).volume
    compute = 3 * job.communication_ns
    found = lasting(job, Fraction(3), "whole tensors", "none")
    assert found == compute + whole * job.full_transfer_ns
    assert gain(job, Fraction(0), "equal servers", "none") == Fraction(1, 2)


@pytest.mark.parametrize("figure", bml.FIGURES.values(), ids=lambda one: one.title)
def test_the_fitted_ratio_gives_the_gain_it_was_fitted_to(figure: Printed) -> None:
    for case in bml.CASES:
        ratio = bml.fitted(figure, figure.least, *case)
        assert ratio is not None
        assert float(gain(figure.job, ratio, *case)) == pytest.approx(figure.least / 100, abs=1e-5)


@pytest.mark.parametrize("number", bml.FIGURES)
def test_what_is_scored_was_not_used_in_the_fit(number: int) -> None:
    figure = bml.FIGURES[number]
    other = bml.FIGURES[13 - number]

    def ours(one: Printed, against: Printed) -> list[list[float | None]]:
        return [
            [row.ours for row in rows]
            for rows in (
                bml.other_end(one),
                bml.highest_bars(one),
                bml.from_the_other(one, against),
            )
        ]

    scored = ours(figure, other)
    assert ours(replace(figure, most=50.0, axis_s=1), other) == scored
    assert ours(replace(figure, least=figure.least + 1), other)[2] == scored[2]
    assert ours(replace(figure, least=figure.least + 1), other)[0] != scored[0]
