"""Answers name the program by which they sum up, in one form, and say nothing else elsewhere."""

import json
from typing import Any

import pytest
from msgspec import UNSET

from planner.families.collectives import check
from planner.families.collectives.program import in_parts
from planner.families.collectives.recipes import GENERATORS, Recipe, made, ranks_of
from planner.formats import write_msccl
from planner.formats.exporters.mscclpp import write_mscclpp
from planner.jsonio.programs import MAX_CHECKED, ProgramAnswer, program_answer
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.programs import Batch, Piece, read_plan
from planner.programs.collectives import SummingProgram, summing_program
from planner.programs.from_plans import transfers
from planner.solving.transfers import Kind
from tests.cli.conftest import line
from tests.cli.line import Line, write
from tests.formats.refused import refused
from tests.jsonio.requests import CARAMEL
from tests.jsonio.test_iteration import BCUBE, CLUSTER, REQUEST
from tests.large import synthetic_iteration
from tests.test_programs import BIGDL, BML, solved

__all__ = ["line"]

THROUGH_A_DRIVER = ("reduce", "tree_aggregate", "tree_aggregate_torrent")
FAILED = {"nics": [[[0, 0], 0]]}
NINE = {**CLUSTER, **BCUBE}


def summed(answer: dict[str, Any]) -> SummingProgram:
    return summing_program(read_plan(json.dumps(answer).encode()))


def recipe(row: dict[str, Any]) -> Recipe:
    return Recipe(row["program"]["generator"], tuple(row["program"]["shape"]))


@pytest.mark.parametrize(
    ("cluster", "algorithm", "generator"),
    [
        (CLUSTER, "ring", "ring"),
        (CLUSTER, "halving_doubling", "halving_doubling"),
        (CLUSTER, "ps", "direct"),
        (CLUSTER, "shuffle", "direct"),
        (NINE, "ring", "ring_bcube"),
        (NINE, "ps", "routed_bcube"),
        (NINE, "hierarchical", "hierarchical_bcube"),
        (NINE, "bml", "bml"),
    ],
)
def test_plans_of_iterations(cluster: dict[str, Any], algorithm: str, generator: str) -> None:
    answer = solved(REQUEST, cluster=cluster, algorithms=[algorithm])
    named = recipe(answer["synchronisation"])
    assert named.generator == generator
    assert summed(answer).program.ranks == answer["workers"]
    assert list(summed(answer).program.messages()) == list(made(named).messages())


@pytest.mark.parametrize("method", ["bml", "detour"])
def test_a_plan_of_bml_is_algorithm_1(method: str) -> None:
    assert summed(solved(BML, method=method)).program.name == "bml(3, 2)"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["detour", "trees"])
def test_around_failures_the_program_is_that_of_the_plan(method: str) -> None:
    answer = solved(BML, method=method, failed=FAILED, with_plan=True)
    program, depth, size = summed(answer)
    assert (program.ranks, depth, size) == (9, answer["rounds"], None)
    assert check(program) == "replay"
    with refused("plan", ""):
        summed(solved(BML, method=method, failed=FAILED, schedule="all"))


def test_slices_are_the_chunks_of_a_direct_exchange() -> None:
    for elements in (1000, 1003, 3):
        answer = solved(BIGDL, elements=elements)
        program, depth, size = summed(answer)
        assert (depth, size) == (1, 4 * elements)
        check(program)
        layout = program.layout(elements, 4)
        for node, (start, stop) in enumerate(answer["slices"]):
            assert program.owner(node) == node
            assert layout.start(node) == 4 * start
            assert layout.span(node, 1) == 4 * (stop - start)
        assert program.even == (elements == 1000)


@pytest.mark.parametrize(
    ("request_", "path", "said"),
    [
        *(({**BIGDL, "method": name}, "method", "a driver") for name in THROUGH_A_DRIVER),
        (CARAMEL, "problem", "leaves open how to sum up"),
    ],
)
def test_plans_that_leave_it_open_say_so(request_: dict[str, Any], path: str, said: str) -> None:
    with refused(path, said):
        summed(solved(request_))


@pytest.mark.parametrize("generator", GENERATORS)
def test_ranks_are_known_without_making_the_program(generator: str) -> None:
    for shape in ((6,), (4, 2), (2, 2, 3)):
        try:
            program = made(Recipe(generator, shape))
        except (InvalidInputError, NotApplicableError):
            continue
        assert ranks_of(Recipe(generator, shape)) == program.ranks


def test_programs_too_large_to_check_are_named_all_the_same() -> None:
    assert MAX_CHECKED < 2**13
    large = ProgramAnswer(generator="bml", shape=(2, 13))
    assert program_answer(Recipe("bml", (2, 13))) == large
    assert program_answer(Recipe("bml", (2, 17))) is UNSET


LAYERS: list[dict[str, Any]] = [
    {"name": name, "forward_ns": 100_000, "backward_ns": backward_ns, "parameter_bytes": size}
    for name, backward_ns, size in (("small", 10**6, 4_000), ("large", 10**5, 16_000_000))
]
RAILS = {"kind": "rails", "accelerators": 4, "link_bytes_per_s": 3e10, "link_startup_ns": 500}
NIC = {"bytes_per_s": 1e10, "startup_ns": 2000, "per_machine": 4, "message_ns": 2000}
MIXED: dict[str, Any] = {
    **synthetic_iteration(LAYERS, 3, topology=RAILS, nic=NIC),
    "modes": ["replicated"],
    "element_bytes": 4,
}


def test_transfers_by_several_programs_are_written_one_by_one(line: Line) -> None:
    answer = solved(MIXED, algorithms=["ring", "ps", "mixed"])
    main_one = answer["synchronisation"]["algorithm"]
    named = [answer["synchronisation"], *answer["synchronisation"]["others"]]
    recipes = {row["algorithm"]: recipe(row) for row in named}
    used = {transfer.get("algorithm", main_one) for transfer in answer["transfers"]}
    plan = read_plan(answer)
    for name in used:
        assert summing_program(plan, name).program.name == made(recipes[name]).name
    assert len({made(recipes[name]).name for name in used}) == 2
    for wrong in (None, "halving"):
        with refused("algorithm", main_one):
            summing_program(plan, wrong)
    command = f"export mscclpp {write('plan.json', answer)}"
    assert "--algorithm: expected one by which" in line.error(command)
    for name in recipes:
        document = line(command, "--algorithm", name).json
        assert document["collective"] == "allreduce"


def test_shards_wait_for_what_they_read_and_for_nothing_else() -> None:
    kinds: tuple[Kind, Kind] = ("push", "pull")
    rows = [(kind, Batch((Piece("a"),))) for kind in kinds]
    assert transfers(rows, barrier=False)
    with refused("barrier", "waited for where it is read"):
        transfers(rows, barrier=True)


def test_one_algorithm_has_one_program_and_its_depths_are_parts(line: Line) -> None:
    answer = solved(MIXED, algorithms=["hierarchical"])
    assert "others" not in answer["synchronisation"]
    depths = {transfer.get("depth", 1) for transfer in answer["transfers"]}
    deep = max(depths)
    assert depths == {1, deep} != {1}
    plan = read_plan(answer)
    for wrong in (None, 3):
        with refused("depth", f"1, {deep}$"):
            summing_program(plan, None, wrong)
    program, depth, _ = summing_program(plan, None, deep)
    assert depth == deep
    said = f"--depth: expected one at which transfers are summed up: 1, {deep}"
    assert said in line.error("export mscclpp", write("plan.json", answer))
    for tool, written in (("mscclpp", write_mscclpp), ("msccl", write_msccl)):
        for chosen in depths:
            cut = in_parts(program, chosen)
            assert cut.chunks == chosen * program.chunks
            assert line(f"export {tool} plan.json --depth {chosen}").out == written(cut)
    write("plan.json", solved(BML))
    assert "--depth: not with a plan of bml" in line.error("export msccl plan.json --depth 2")


def test_rounds_are_exported_as_parts(line: Line) -> None:
    answer = {**solved(BML), "rounds": 3}
    program, depth, _ = summed(answer)
    assert depth == 3
    document = line("export mscclpp", write("plan.json", answer)).json
    assert document["gpus"][0]["input_chunks"] == 3 * program.chunks
    assert f'nchunksperloop="{3 * program.chunks}"' in line("export msccl plan.json").out
