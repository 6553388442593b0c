"""Figures of BigDL, BML and Drizzle: by hand, and which number is fitted to for which figure."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import bigdl
import bml
import bml_times
import drizzle
import drizzle_model
import pytest
from bml_jobs import SERVERS, Job, Printed, gain, lasting, windows_of
from drizzle_model import GAINED, NUMBERS, SAVED
from multiply_adds import inception_v1, vgg16_on_cifar10

from planner.families.caramel.windows import Windows
from planner.families.collectives import Fabric
from planner.families.collectives.exchange import tensors_on
from planner.jsonio import decode_profile

# Fig. 3 of BigDL: throughputs, and whose ratio is used for which network.


@pytest.mark.parametrize(
    ("reading", "value", "ratio"),
    [
        # An iteration of 4 T_F of computation takes 5.75 on 8 nodes, 5.875 on 16.
        ("same a node", Fraction(4), 2 * Fraction("5.75") / Fraction("5.875")),
        # 32 T_F in all: 4 + 1.75 on 8 nodes, 2 + 1.875 on 16.
        ("same in all", Fraction(32), Fraction("5.75") / Fraction("3.875")),
        # 1 % for each node: 1.08 on 8 nodes, 1.16 on 16.
        ("tasks", Fraction(1, 100), 2 * Fraction("1.08") / Fraction("1.16")),
    ],
)
def test_throughput_by_hand_and_back(reading: str, value: Fraction, ratio: Fraction) -> None:
    assert bigdl.throughput(reading, value) == ratio
    assert bigdl.fitted(reading, ratio) == value


def test_computation_is_carried_over_by_samples_and_bytes() -> None:
    known, wanted = bigdl.NETWORKS
    first, second = known.measured(), wanted.measured()
    work = 2 * (second.forward_ns + second.backward_ns) / (first.forward_ns + first.backward_ns)
    size = first.parameter_bytes / second.parameter_bytes
    for reading, expected in (("same a node", 3 * work * size), ("tasks", 3 / work)):
        found = float(bigdl.carried(reading, Fraction(3), known, wanted))
        assert found == pytest.approx(expected)


def test_ratios_that_are_scored_were_not_used_in_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    before = bigdl.scored()
    first, second = bigdl.NETWORKS
    monkeypatch.setattr(bigdl, "NETWORKS", (first, replace(second, ratio=Fraction(19, 10))))
    after = bigdl.scored()
    for (name, _, old), (_, _, new) in zip(before, after, strict=True):
        assert (old == new) == name.startswith("ResNet")


# Figs. 5 to 7 of BML: closed forms by counting, iterations by hand, and what is scored.


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


TWO = Job(Windows((5, 40), (100, 60), (50, 30), backward_ns=100, forward_ns=50), 1)
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
def test_gains_that_are_scored_were_not_used_in_the_fit(number: int) -> None:
    figure, other = bml.FIGURES[number], bml.FIGURES[13 - number]

    def ours(one: Printed, against: Printed) -> list[list[float | None]]:
        scored = bml.other_end(one), bml.highest_bars(one), bml.from_the_other(one, against)
        return [[row.ours for row in rows] for rows in scored]

    scored = ours(figure, other)
    assert ours(replace(figure, most=50.0, axis_s=1), other) == scored
    assert ours(replace(figure, least=figure.least + 1), other)[2] == scored[2]
    assert ours(replace(figure, least=figure.least + 1), other)[0] != scored[0]


# Figs. 4 to 6 of Drizzle.


def test_figs_5_and_6_from_fig_4_by_hand() -> None:
    """10 % at 300 partitions: 256 of them cost 256/3000 of the computation.

    VGG's tasks cost as much, and its computation is 0.198 of Inception-v1's.
    """
    (fit,) = (one for one in drizzle_model.fits() if one.figure == 4)
    speedup = (1 + Fraction(256, 3000)) / (1 + Fraction(256, 30000))
    assert float(drizzle_model.predicted(fit, 6, GAINED)) == pytest.approx(float(speedup - 1))
    assert float(drizzle_model.predicted(fit, 6, SAVED)) == pytest.approx(float(1 - 1 / speedup))
    overhead = 128 / 3000 / (313_463_808 / 1_582_671_872)
    found = float(drizzle_model.predicted(fit, 5, GAINED))
    assert found == pytest.approx((1 + overhead) / (1 + overhead / 20) - 1)


def test_a_fit_gives_the_number_it_was_fitted_to() -> None:
    for fit in drizzle_model.fits():
        found = drizzle_model.predicted(fit, fit.figure, fit.reading)
        assert float(found) == pytest.approx(float(NUMBERS[fit.figure].share), abs=1e-9)


@pytest.mark.parametrize("figure", NUMBERS)
def test_what_is_scored_was_not_fitted(figure: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {other: [row.ours for row in drizzle.scored(other)] for other in NUMBERS}
    changed = replace(NUMBERS[figure], share=Fraction(12, 100))
    monkeypatch.setattr(drizzle_model, f"FIG{figure}", changed)
    monkeypatch.setitem(NUMBERS, figure, changed)
    after = {other: [row.ours for row in drizzle.scored(other)] for other in NUMBERS}
    for other in NUMBERS:
        assert (before[other] == after[other]) == (other == figure)


def test_multiply_adds_count_the_networks_that_are_meant() -> None:
    path = Path(__file__).parents[2] / "data" / "profiles" / "googlenet.json"
    measured = decode_profile(path.read_bytes())
    assert inception_v1().parameters * 4 == measured.parameter_bytes
    # 13 convolutions by hand: weights times places, then two full layers.
    stages = ((32, 3 * 64 + 64 * 64), (16, 64 * 128 + 128 * 128), (8, 128 * 256 + 2 * 256 * 256))
    last = ((4, 256 * 512 + 2 * 512 * 512), (2, 3 * 512 * 512))
    work = sum(9 * side**2 * weights for side, weights in (*stages, *last))
    assert vgg16_on_cifar10().multiply_adds == work + 512 * 512 + 512 * 10
