"""Figures of Caramel and iBatch, Table 1 of Yan et al.: what is fitted and compared; all tables."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import product

import bigdl
import bml
import bml_times
import caramel
import caramel_model
import caramel_motivation
import caramel_network
import drizzle
import drizzle_online
import ibatch
import pytest
import yan
from caramel_model import DEPTHS, FITTED, STARTUP_US, Setting
from caramel_networks import PRINTED, as_printed
from ibatch_model import DEFAULT, NETWORKS, Constants, fit, iteration, profile
from ibatch_printed import PRINTED as CURVES
from results import load, sections
from table import Claim, Row, claims, difference, numbers
from yan_heldout import Orders, held_out
from yan_ranks import HALVES, everything, given, label, order, pairs_right, transferred
from yan_ranks import load as load_problem

# Caramel's: two numbers are fitted, and what is quick is what the page shows.


def test_horovod_has_the_one_utilisation_that_is_fitted() -> None:
    name, workers, target = FITTED
    problem = caramel_model.problem_of(name, Setting(workers))
    made = caramel_model.by_horovod(problem)
    computed = sum(op.duration_ns for op in problem.graph.ops)
    assert computed / made.iteration_ns == pytest.approx(float(target), abs=1e-3)


@pytest.mark.parametrize("name", PRINTED)
def test_networks_have_the_papers_tensors(name: str) -> None:
    tensors, mebibytes = PRINTED[name]
    graph = as_printed(name, caramel_model.profile(name).dataflow())
    assert len(graph.parameters) == tensors
    size = sum(parameter.size_bytes for parameter in graph.parameters) / 2**20
    assert size == pytest.approx(mebibytes, abs=0.05)
    assert graph.ops == caramel_model.profile(name).dataflow().ops


def test_no_other_start_up_is_closer_to_the_second_bar() -> None:
    name, workers, _ = FITTED
    factor = caramel_model.fit()

    def distance(startup_us: int) -> float:
        problem = caramel_model.problem_with(name, Setting(workers, startup_us=startup_us), factor)
        step = caramel_model.ladder(problem)[0]
        return abs(100 * step.utilisation - caramel.PRINTED_STEPS[1])

    assert distance(STARTUP_US) < min(distance(STARTUP_US - 50), distance(STARTUP_US + 50))


@pytest.mark.slow
def test_other_printed_steps_change_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caramel, "STARTUPS_US", ())
    before = caramel.figure_11()
    monkeypatch.setattr(caramel, "PRINTED_STEPS", (10, 20, 30, 40))
    after = caramel.figure_11()
    assert after != before
    columns = [
        [line.split("|")[3] for line in text.splitlines() if line.count("|") == 5]
        for text in (before, after)
    ]
    assert len(columns[0]) >= 5
    assert columns[0] == columns[1]


def test_costs_by_depth_have_the_two_printed_factors() -> None:
    """Depth 8: 3 times the start-up, 40 % of the time per byte: 14/8 of it at 10 Gb/s."""
    cost = caramel_model.network(8)
    first, last = cost.at_depth(DEPTHS[0]), cost.at_depth(DEPTHS[-1])
    assert last.cost_ns(0) == 3 * first.cost_ns(0)
    sent = [one.cost_ns(10**9) - one.cost_ns(0) for one in (first, last)]
    assert sent[1] == pytest.approx(0.4 * sent[0])
    assert sent[1] == pytest.approx(10**9 * 14 / 8 * 8 / 10)


# iBatch's: constants from the default curve alone, and times by hand.


@pytest.fixture(scope="module")
def constants() -> Constants:
    return fit(DEFAULT)


def ours(text: str) -> list[str]:
    """The third column of each row that has a paper's number."""
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    return [cells[3] for cells in rows if len(cells) == 6]


def test_what_is_fitted_goes_through_the_default_curve(constants: Constants) -> None:
    """T(N) = C/N + 2·startup + 2·bytes·(N-1)/N·N/(80 Gb/s), written out."""
    for (network, nodes), speedup in DEFAULT.items():
        size = sum(layer.parameter_bytes for layer in profile(network).layers)
        bytes_pulled = size * (nodes - 1) / nodes
        one = constants.compute_s[network]
        many = one / nodes + 2 * constants.startup_s + 2 * bytes_pulled * 8 / (80e9 / nodes)
        assert one / many == pytest.approx(speedup)
        assert iteration(constants, network, nodes, "one_batch").speedup == pytest.approx(speedup)


def test_other_curves_change_nothing(constants: Constants, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ibatch.figure_5(constants)
    nonsense = {point: dict.fromkeys(printed, 7.0) for point, printed in CURVES.items()}
    monkeypatch.setattr(ibatch, "PRINTED", nonsense)
    after = ibatch.figure_5(fit(DEFAULT))
    assert after != before
    assert len(ours(before)) > 20
    assert ours(after) == ours(before)


def test_another_default_curve_does(constants: Constants) -> None:
    other = fit({**DEFAULT, ("vgg19", 30): 24.0})
    assert other.startup_s == constants.startup_s
    assert {
        network for network in NETWORKS if other.compute_s[network] != constants.compute_s[network]
    } == {"vgg19"}


@pytest.mark.parametrize("method", ["one_batch", "layer_by_layer", "greedy", "exact"])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_parts_add_up(constants: Constants, method: str, share: float) -> None:
    """Everything sent and everything computed is in the parts; overlap is in both."""
    network, nodes, pushed = "googlenet", 30, 0.5
    made = iteration(constants, network, nodes, method, pushed=pushed, startup_share=share)
    size = profile(network).parameter_bytes
    sent = (1 + pushed) * size * (nodes - 1) / nodes * 8 / (80e9 / nodes)
    started = share * (made.batches + 1) + 2 * (1 - share)
    assert made.overlap_s + made.exposed_communication_s == pytest.approx(
        sent + started * constants.startup_s
    )
    assert made.overlap_s + made.exposed_computation_s == pytest.approx(
        constants.compute_s[network] / nodes
    )
    if method == "one_batch":
        assert made.overlap_s == 0


def test_what_the_default_leaves_room_for() -> None:
    """72 nodes at 24×: 1 of computation, 2 of communication, 1 of them the pull."""
    assert ibatch.most(72, 24, forward=0.25) == pytest.approx((72 / 2.75, 36, 36))
    assert ibatch.most(30, 20, forward=0.5) == pytest.approx((30 / 1.25, 24, 30))


def test_no_batches_exceed_what_the_forward_pass_can_hide(constants: Constants) -> None:
    for (network, nodes), printed in DEFAULT.items():
        measured = profile(network)
        share = measured.forward_ns / (measured.forward_ns + measured.backward_ns)
        limit, without_pull, _ = ibatch.most(nodes, printed, share)
        assert limit <= without_pull
        for startup_share in (0.0, 1.0):
            made = iteration(constants, network, nodes, "exact", startup_share=startup_share)
            assert made.speedup <= limit * (1 + 1e-9)


# Table 1 of Yan et al.: whose constants are used, and how orders are compared.

Setup = tuple[int, int, int]
PAPER = [(2, 9, 2), (2, 8, 4), (4, 4, 4), (1, 19, 1)]


@pytest.mark.parametrize(
    ("found", "known", "expected"),
    [
        (PAPER, [], (6, 6)),
        (PAPER[::-1], [], (0, 6)),
        ([PAPER[1], PAPER[0], *PAPER[2:]], [], (5, 6)),
        ([PAPER[1], PAPER[0], *PAPER[2:]], PAPER[:2], (5, 5)),
        (PAPER[::-1], PAPER[1:3], (0, 5)),
        (PAPER[::-1], PAPER, (0, 0)),
    ],
)
def test_pairs_in_order(found: list[Setup], known: list[Setup], expected: tuple[int, int]) -> None:
    assert pairs_right(found, PAPER, known) == expected


@pytest.mark.parametrize("name", HALVES)
def test_the_scored_constants_are_those_of_the_other_half(name: str) -> None:
    problem, other = yan.halves()[name]
    scored = transferred(problem, other)
    for one in (scored, everything(problem, other)):
        assert one.constants.muladd_ns == other.constants.muladd_ns != problem.constants.muladd_ns
        assert one.read_every == other.read_every != problem.read_every
        assert (one.layers, one.fixed) == (problem.layers, problem.fixed)
    assert scored.constants.interference == problem.constants.interference
    assert everything(problem, other).constants == other.constants


def test_constants_of_mnist_rank_imagenet_as_the_paper_does() -> None:
    problem, other = yan.halves()["imagenet22k"]
    ranks = "4/4/4 4/4/2 2/9/2 4/3/6 4/3/4 2/8/4 2/6/6 2/6/4"
    assert " ".join(map(label, order(transferred(problem, other)))) == ranks


def test_a_point_that_orders_the_four_known_rows_is_scored_on_the_others() -> None:
    problem = load_problem("mnist-table1")
    paper = given(problem)
    # Only the rows on places 0 to 3 are in the paper's order, and so are those on 4 to 7.
    swapped = (*paper[4:], *paper[:4])
    found: Orders = {(Fraction(1), 1): swapped, (Fraction(1), 2): tuple(reversed(paper))}
    score = held_out(problem, found)
    assert (score.sets, score.fitting, score.pairs) == (70, 2, 22)
    # Of the 22 pairs 16 are across, all wrong; 6 are among the other four, all right.
    assert score.mean == score.worst == score.best == 6 / 22
    found = {point: tuple(paper) for point in product((Fraction(1),), range(3))}
    assert held_out(problem, found).worst == 1


def test_shares_of_an_epoch_add_up() -> None:
    rows = [line for line in yan.figure11().splitlines() if "/" in line.split(" | ")[0]]
    assert len(rows) == 9  # and the header
    for row in rows[1:]:
        shares = [float(cell.removesuffix(" %")) for cell in row.strip("| ").split(" | ")[2:]]
        assert sum(shares[:6]) == pytest.approx(100, abs=0.3)
        assert shares[0] + shares[2] + shares[4] == pytest.approx(shares[6], abs=0.2)


# Tables: those printed are those kept, and their arithmetic by hand.

REPORTS: dict[str, Sequence[Callable[[], str]]] = {
    "bigdl": [bigdl.report],
    "bml": [bml_times.report, partial(bml.jobs, 6), partial(bml.jobs, 7)],
    "caramel": [
        *(caramel_motivation.figure_3, caramel_motivation.figure_4),
        *(caramel_network.figure_13, caramel_network.figure_14),
    ],
    "drizzle": [*(partial(drizzle.report, number) for number in (4, 5, 6)), drizzle_online.report],
    "ibatch": [partial(figure, fit(DEFAULT)) for figure in ibatch.FIGURES.values()],
    "yan": [partial(yan.scalability, "mnist"), yan.table1, yan.figure11],
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] if one == "yan" else []) for one in REPORTS]
)
def test_the_results_file_holds_what_is_printed(name: str) -> None:
    kept = [table for section in load(f"reproduction/{name}").sections for table in section.tables]
    for report in REPORTS[name]:
        found = [table for section in sections(report()) for table in section.tables]
        assert found
        assert all(table in kept for table in found)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Row("slower", paper=20, ours=25, unit="s"), 25.0),
        (Row("below", paper=8, ours=6, unit="×"), -25.0),
        (Row("points, not per cent of 50", paper=50, ours=60, unit="%"), 10.0),
        (Row("limit met exactly", paper=70, ours=70, unit="%", limit="≥"), 0.0),
        (Row("limit missed", paper=70, ours=48, unit="%", limit="≥"), -22.0),
        (Row("upper limit kept", paper=25, ours=11, unit="%", limit="≤"), 0.0),
        (Row("upper limit missed", paper=25, ours=31, unit="%", limit="≤"), 6.0),
        (Row("no result", paper=1, ours=None), None),
        (Row("no per cent of nothing", paper=0, ours=1, unit="s"), None),
        (Row("points from nothing", paper=0, ours=1, unit="%"), 1.0),
    ],
)
def test_differences_are_points_or_per_cent_of_the_papers(row: Row, expected: float | None) -> None:
    assert difference(row) == expected


def test_numbers_and_claims_by_hand() -> None:
    rows = (
        Row("speed-up", paper=1234, ours=1000.04, unit="×"),
        Row("share", paper=68.5, ours=68.0, unit="%", fitted=True),
        Row("time", paper=None, ours=2.375, unit="s", decimals=2),
        Row("least", paper=70, ours=95.0, unit="%", limit="≥"),
        Row("missing", paper=3, ours=None, unit="×"),
    )
    assert numbers(rows).splitlines() == [
        "|  | paper | ours | difference |",
        "| --- | --- | --- | --- |",
        "| speed-up | 1,234× | 1,000.0× | -19.0 % |",
        "| share | 68.5 % | 68.0 % | fitted |",
        "| time | not printed | 2.38 s |  |",
        "| least | ≥ 70 % | 95.0 % | kept |",
        "| missing | 3× | none |  |",
    ]
    table = claims((Claim("a", "b", holds=True), Claim("c", "d", holds=False)))
    assert table.splitlines()[2:] == ["| a | b | holds |", "| c | d | does not hold |"]
