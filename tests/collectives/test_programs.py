"""Programs: every algorithm sums up once and costs what was planned, and damage is noticed."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.bml import Schedule
from planner.families.bml.evaluation import time_ns
from planner.families.bml.program import listed, program_of
from planner.families.collectives import COLLECTIVES, collective, program
from planner.families.collectives.checker import check, replay
from planner.families.collectives.exchange import direct_program, staged
from planner.families.collectives.program import KINDS, Kind, ListedProgram, Program, in_parts
from planner.families.collectives.recipes import MAX_RANKS, Recipe, made
from planner.families.collectives.ring import bruck_cost, bruck_program, ring_program
from planner.families.collectives.symmetric import SymmetricProgram
from planner.model.errors import InvalidPlanError, NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline, TimeUpError
from tests.bml.plans import Planned, planned
from tests.collectives.pricing import time_of
from tests.collectives.programs import (
    PROGRAMS,
    TENSORS,
    as_listed,
    damaged,
    right,
    small,
    tensors_program,
)
from tests.formats.refused import refused

LINKS = Network(10**9, 700, Fraction(1, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_only_all_reduces_in_equal_chunks_are_cut_into_parts(kind: Kind) -> None:
    ring, uneven = (one.half(kind) for one in (ring_program(3), tensors_program((1, 2), 3)))
    if kind == "all_reduce":
        assert in_parts(ring, 2).chunks == 2 * ring.chunks
    else:
        with refused("program", "an all_reduce"):
            in_parts(ring, 2)
    with refused("program", "chunks of one size"):
        in_parts(uneven, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_algorithm_sums_up_every_contribution_once(kind: Kind) -> None:
    """What is sent is received, and the halves are the whole."""
    for whole in PROGRAMS:
        one = whole.half(kind)
        how = check(one)
        assert how == ("symmetry" if isinstance(one, SymmetricProgram) else "replay")
        replay(one)
        sent, ranks = sorted(one.messages()), range(one.ranks)
        if one.ranks <= 9 and one.chunks <= 36:
            assert right(one, sent)
        assert sorted(message for rank in ranks for message in one.receives(rank)) == sent
        assert all(message.sender == rank for rank in ranks for message in one.sends(rank))
        if kind == KINDS[0]:
            halves = [message for kind in KINDS[1:] for message in whole.half(kind).messages()]
            assert sorted(halves) == sent


@pytest.mark.slow
@pytest.mark.parametrize("name", COLLECTIVES)
def test_programs_cost_what_the_formula_says(name: str) -> None:
    among = (*range(10, 19), 32, 33, 54, 64)  # some of which fill a tree, or are powers of two
    for n, k in (*product(range(2, 10), range(1, 5)), *((ranks, 1) for ranks in among)):
        bcube = BCube(n, k)
        if bcube.servers > (30 if "bcube" in name and name[:2] in ("ps", "sh") else 130):
            continue
        try:
            formula = collective(name, bcube, tensors=TENSORS)
        except NotApplicableError:
            continue
        if name == "halving_doubling_fattree" and bcube.servers & (bcube.servers - 1):
            continue
        whole = "tensors" in name
        one = tensors_program(TENSORS, bcube.servers) if whole else program(name, bcube)
        elements = sum(TENSORS) if whole else one.chunks
        for times in (0, 1, 3):
            expected = formula.time_ns(LINKS, times * elements)
            assert time_of(one, [LINKS], times * elements) == expected


@pytest.mark.parametrize("ranks", range(1, 21))
def test_bruck_costs_what_its_formula_says(ranks: int) -> None:
    one = bruck_program(ranks)
    for network, times in product((LINKS, Network(LINKS.link_bytes_per_s)), (1, 3)):
        size = times * one.chunks
        assert time_of(one, [network], size) == bruck_cost(ranks).time_ns(network, size)


@settings(max_examples=300)
@given(planned)
def test_plans_around_failures_are_programs_of_the_same_price(case: Planned) -> None:
    problem, plan = case
    one = program_of(plan)
    check(one)
    if len(problem.chunks) == 1:  # else the sum is rounded once
        width = problem.element_bytes
        elements, network = problem.chunks[0] // width, [problem.network]
        assert time_of(one, network, elements, width, plan.rounds) == time_ns(problem, plan)


def test_algorithm_1_is_the_same_listed_and_symmetric() -> None:
    for bcube in (BCube(2, 1), BCube(3, 2), BCube(2, 3), BCube(4, 2)):
        plan = Schedule(bcube)
        one, other = program_of(plan), listed(plan)
        assert isinstance(one, SymmetricProgram)
        assert sorted(one.messages()) == sorted(other.messages())
        assert [one.owner(chunk) for chunk in range(one.chunks)] == list(other.owners)


@given(damaged())
def test_damage_is_noticed_if_it_matters(one: ListedProgram) -> None:
    """The checker and a simulator that counts one by one agree, whatever was changed."""
    if right(one, one.messages()):
        check(one)
    else:
        with pytest.raises(InvalidPlanError, match=r"chunk|rank|range"):
            check(one)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_half_a_program_with_a_message_of_the_other_half_is_refused(kind: Kind) -> None:
    """A copy overwrites what is summed up; a sum counts what has been gathered twice."""
    half = ring_program(3).half(kind)
    *_, last = half.messages()
    other = 3 - last.sender - last.receiver
    stray = last._replace(sender=other, adds=not last.adds)
    check(as_listed(half, half.messages()))
    with pytest.raises(InvalidPlanError, match=r"twice"):
        check(as_listed(half, [*half.messages(), stray]))


@given(small, st.data())
def test_a_damaged_hop_is_noticed_by_symmetry(whole: Program, data: st.DataObject) -> None:
    if not isinstance(whole, SymmetricProgram) or not whole.hops:
        return
    place = data.draw(st.integers(0, len(whole.hops) - 1))
    hop = whole.hops[place]
    digit = data.draw(st.integers(0, len(whole.radices) - 1))
    shift, anchor = [*hop.shift], [*hop.anchor]
    shift[digit] = anchor[digit] = data.draw(st.integers(0, whole.radices[digit] - 1))
    ways = [
        hop._replace(shift=tuple(shift)),
        hop._replace(anchor=tuple(anchor)),
        hop._replace(step=data.draw(st.integers(0, whole.steps - 1))),
        hop._replace(depth=data.draw(st.integers(0, len(whole.radices)))),
        hop._replace(adds=not hop.adds),
    ]
    changed = data.draw(st.sampled_from(ways))
    hops = (*whole.hops[:place], changed, *whole.hops[place + 1 :])
    one = replace(whole, hops=tuple(sorted(hops, key=lambda each: each.step)))
    try:
        check(one)
    except InvalidPlanError:
        # It may be right in an unusual way, or only use a link twice; what passes is right.
        return
    assert right(one, one.messages())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"receiver": 0}, "expected two of 4 ranks"),
        ({"link": 1}, "no link 1"),
        ({"stop": 0}, "expected a range of 4 chunks"),
        ({"lane": 1}, "no lane 1"),
    ],
)
def test_what_is_no_message_is_refused(change: dict[str, int], words: str) -> None:
    whole = ring_program(4)
    first, *rest = whole.messages()
    assert first.sender == 0
    with pytest.raises(InvalidPlanError, match=f"^step 0, rank 0 to rank.*{words}"):
        check(as_listed(whole, [first._replace(**change), *rest]))  # type: ignore[arg-type]


def test_large_programs_are_certified_by_symmetry_and_a_check_looks_at_the_clock() -> None:
    bml, halving = (
        program("bml_bcube", BCube(16, 4)),
        program("halving_doubling_fattree", BCube(2, 16)),
    )
    for one in (bml, halving, direct_program(2**14)):
        assert check(one) == "symmetry"
    for one in (ring_program(4), program("ps_bcube", BCube(3, 1))):
        with pytest.raises(TimeUpError):
            check(one, Deadline(0))


@pytest.mark.parametrize("whole", [ring_program(4), staged("three", (2, 2, 2), [[0, 1, 2]])])
def test_nothing_is_passed_on_in_the_step_in_which_it_arrives(whole: SymmetricProgram) -> None:
    messages = list(whole.messages())
    tried = 0
    for place, message in enumerate(messages):
        needed = message.sender, message.adds, message.step - 1
        if any(
            (before.receiver, before.adds, before.step) == needed
            and before.first <= message.first < before.stop
            for before in messages
        ):
            tried += 1
            early = [message._replace(step=message.step - 1)]
            with pytest.raises(InvalidPlanError):
                check(as_listed(whole, [*messages[:place], *early, *messages[place + 1 :]]))
    assert tried >= 8


# --- recipes: what a plan says of its program is enough to make it


@pytest.mark.parametrize(
    ("generator", "shape", "path"),
    [
        (None, (4,), "generator"),
        ("ring", (), "shape"),
        ("ring", (4, 4), "shape"),
        ("ring", (0,), "shape[0]"),
        ("ring", (2.5,), "shape[0]"),
        ("ring", (MAX_RANKS + 1,), "shape[0]"),
        ("bml", (3,), "shape"),
        ("bml", (1, 2), "n"),
        ("bml", (2, 17), "shape"),
        ("hierarchical", (300, 300), "shape"),
        ("ring_rails", (300, 300), "shape[0]"),
        ("halving_doubling_bcube", (3, 2), "n"),
        ("halving_doubling_rails", (3, 2), "hosts"),
    ],
)
def test_what_is_no_recipe_is_refused(generator: Any, shape: Any, path: str) -> None:
    with refused(path, ""):
        made(Recipe(generator, shape))
