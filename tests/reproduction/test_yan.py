"""Table 1 of Yan et al.: whose constants are used, and how orders are compared."""

from fractions import Fraction
from itertools import product

import pytest
import yan
from yan_heldout import Orders, held_out
from yan_ranks import HALVES, everything, given, label, load, order, pairs_right, transferred

Row = tuple[int, int, int]
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
def test_pairs_in_order(found: list[Row], known: list[Row], expected: tuple[int, int]) -> None:
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
    problem = load("mnist-table1")
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
