"""Answers name the program by which they sum up, in one form, and say nothing else elsewhere."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

import planner
from planner.cli import main
from planner.families.collectives import check
from planner.families.collectives.program import in_parts
from planner.families.collectives.recipes import GENERATORS, Recipe, made, ranks_of
from planner.formats import write_msccl
from planner.formats.exporters.mscclpp import write_mscclpp
from planner.jsonio.programs import MAX_CHECKED, ProgramAnswer, program_answer
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.programs import Batch, Piece, read_plan
from planner.programs.collectives import (
    SummingProgram,
    summing_program,
)
from planner.programs.from_plans import transfers
from planner.solving.transfers import Kind
from tests.jsonio.test_iteration import CLUSTER, REQUEST
from tests.test_programs import BIGDL, BML, CARAMEL, solved

FAILED = {"nics": [[[0, 0], 0]]}
BCUBE = {**CLUSTER, "machines": 9, "topology": {"kind": "bcube", "n": 3, "k": 2}}
BCUBE["nic"] = {**CLUSTER["nic"], "per_machine": 2}


def summed(answer: dict[str, Any]) -> SummingProgram:
    return summing_program(read_plan(json.dumps(answer).encode()))


def stated(answer: dict[str, Any]) -> dict[str, Any]:
    program: dict[str, Any] = answer["synchronisation"]["program"]
    return program


@pytest.mark.parametrize(
    ("cluster", "algorithm", "generator"),
    [
        (CLUSTER, "ring", "ring"),
        (CLUSTER, "halving_doubling", "halving_doubling"),
        (CLUSTER, "ps", "direct"),
        (CLUSTER, "shuffle", "direct"),
        (BCUBE, "ring", "ring_bcube"),
        (BCUBE, "ps", "routed_bcube"),
        (BCUBE, "hierarchical", "hierarchical_bcube"),
        (BCUBE, "bml", "bml"),
    ],
)
def test_plans_of_iterations(cluster: dict[str, Any], algorithm: str, generator: str) -> None:
    answer = solved(REQUEST, cluster=cluster, algorithms=[algorithm])
    program = stated(answer)
    assert program["generator"] == generator
    assert summed(answer).program.ranks == answer["workers"]
    assert list(summed(answer).program.messages()) == list(
        made(Recipe(generator, tuple(program["shape"]))).messages()
    )


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
    with pytest.raises(InvalidInputError) as caught:
        summed(solved(BML, method=method, failed=FAILED, schedule="all"))
    assert caught.value.path == "plan"


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


@pytest.mark.parametrize("method", ["reduce", "tree_aggregate", "tree_aggregate_torrent"])
def test_through_a_driver_there_is_none(method: str) -> None:
    answer = solved(BIGDL, method=method)
    with pytest.raises(InvalidInputError) as caught:
        summed(answer)
    assert caught.value.path == "method"


def test_plans_that_leave_it_open_say_so() -> None:
    with pytest.raises(InvalidInputError, match="leaves open how to sum up"):
        summed(solved(CARAMEL))


def test_programs_too_large_to_check_are_named_all_the_same() -> None:
    large = program_answer(Recipe("bml", (2, 13)))
    assert MAX_CHECKED < 2**13
    assert large == ProgramAnswer(generator="bml", shape=(2, 13))
    assert program_answer(Recipe("bml", (2, 17))) is UNSET


@pytest.mark.parametrize("generator", GENERATORS)
def test_ranks_are_known_without_making_the_program(generator: str) -> None:
    for shape in ((6,), (4, 2), (2, 2, 3)):
        try:
            program = made(Recipe(generator, shape))
        except NotApplicableError:
            continue
        except InvalidInputError:
            continue
        assert ranks_of(Recipe(generator, shape)) == program.ranks


ASKED: dict[str, dict[str, Any]] = {
    "iteration": {**REQUEST, "algorithms": ["ring"]},
    "slices": BIGDL,
    "cube": BML,
    "around": {**BML, "failed": FAILED, "with_plan": True},
}
PROGRAM = {"generator": "ring", "shape": [4]}


@cache
def planned(asked: str) -> dict[str, Any]:
    return planner.solve(ASKED[asked])


@pytest.mark.parametrize(
    ("asked", "change", "path"),
    [
        ("iteration", {"program": {**PROGRAM, "generator": "direct"}}, "program.generator"),
        ("iteration", {"program": {**PROGRAM, "generator": "rings"}}, "program.generator"),
        ("iteration", {"program": {**PROGRAM, "shape": [5]}}, "program.shape"),
        ("iteration", {"program": {**PROGRAM, "shape": [2, 2]}}, "program.shape"),
        ("iteration", {"algorithm": "ps"}, "program.generator"),
    ],
)
def test_another_program_than_the_plan_s_is_refused(
    asked: str, change: dict[str, Any], path: str
) -> None:
    answer = planned(asked)
    changed = {**answer, "synchronisation": {**answer["synchronisation"], **change}}
    with pytest.raises(InvalidInputError) as caught:
        read_plan(json.dumps(changed).encode())
    assert caught.value.path == f"synchronisation.{path}"


MIXED: dict[str, Any] = {
    "problem": "iteration",
    "profile": {
        "name": "one large, one small",
        "provenance": {"kind": "synthetic", "source": "a test"},
        "batch_size": 1,
        "ops": [
            {"name": "f0", "ns": 100_000, "pass": "forward"},
            {"name": "f1", "ns": 100_000, "pass": "forward", "after": ["f0"]},
            {"name": "b1", "ns": 100_000, "pass": "backward", "after": ["f1"]},
            {"name": "b0", "ns": 1_000_000, "pass": "backward", "after": ["b1"]},
        ],
        "parameters": [
            {"name": "small", "bytes": 4_000, "updated_by": "b0", "read_by": "f0"},
            {"name": "large", "bytes": 16_000_000, "updated_by": "b1", "read_by": "f1"},
        ],
    },
    "cluster": {
        "name": "rails",
        "source": "a test",
        "machines": 3,
        "topology": {
            "kind": "rails",
            "accelerators": 4,
            "link_bytes_per_s": 3e10,
            "link_startup_ns": 500,
        },
        "nic": {"bytes_per_s": 1e10, "startup_ns": 2000, "per_machine": 4, "message_ns": 2000},
    },
    "modes": ["replicated"],
    "element_bytes": 4,
}


def test_transfers_by_several_programs_are_written_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = solved(MIXED, algorithms=["ring", "ps", "mixed"])
    named = [answer["synchronisation"], *answer["synchronisation"]["others"]]
    plan_read = read_plan(json.dumps(answer).encode())
    main_one = answer["synchronisation"]["algorithm"]
    programs = set()
    for transfer in answer["transfers"]:
        name = transfer.get("algorithm", main_one)
        [row] = [row for row in named if row["algorithm"] == name]
        recipe = Recipe(row["program"]["generator"], tuple(row["program"]["shape"]))
        programs.add(made(recipe).name)
        assert summing_program(plan_read, name).program.name == made(recipe).name
    assert len(programs) == 2
    for wrong in (None, "halving"):
        with pytest.raises(InvalidInputError, match=main_one) as caught:
            summing_program(plan_read, wrong)
        assert caught.value.path == "algorithm"
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(answer))
    assert main(["export", "mscclpp", str(plan)]) == 2
    assert "--algorithm: expected one by which" in capsys.readouterr().err
    for row in named:
        assert main(["export", "mscclpp", str(plan), "--algorithm", row["algorithm"]]) == 0
        assert json.loads(capsys.readouterr().out)["collective"] == "allreduce"


def test_one_algorithm_has_one_program_at_all_depths() -> None:
    answer = solved(MIXED, algorithms=["hierarchical"])
    assert len({transfer.get("depth", 1) for transfer in answer["transfers"]}) == 2
    assert "others" not in answer["synchronisation"]


def test_shards_wait_for_what_they_read_and_for_nothing_else() -> None:
    rows: list[tuple[Kind, Batch]] = [
        ("push", Batch((Piece("a"),))),
        ("pull", Batch((Piece("a"),))),
    ]
    assert transfers(rows, barrier=False)
    with pytest.raises(InvalidInputError, match="waited for where it is read") as caught:
        transfers(rows, barrier=True)
    assert caught.value.path == "barrier"


def test_depths_are_exported_as_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = solved(MIXED, algorithms=["hierarchical"])
    depths = [transfer.get("depth", 1) for transfer in answer["transfers"]]
    deep = max(depths)
    assert set(depths) == {1, deep} != {1}
    plan_read = read_plan(json.dumps(answer).encode())
    for wrong in (None, 3):
        with pytest.raises(InvalidInputError, match=f"1, {deep}$") as caught:
            summing_program(plan_read, None, wrong)
        assert caught.value.path == "depth"
    program, depth, _ = summing_program(plan_read, None, deep)
    assert depth == deep
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(answer))
    assert main(["export", "mscclpp", str(plan)]) == 2
    assert f"--depth: expected one at which transfers are summed up: 1, {deep}" in (
        capsys.readouterr().err
    )
    for tool, write in (("mscclpp", write_mscclpp), ("msccl", write_msccl)):
        for chosen in {1, deep}:
            assert main(["export", tool, str(plan), "--depth", str(chosen)]) == 0
            cut = in_parts(program, chosen)
            assert cut.chunks == chosen * program.chunks
            assert capsys.readouterr().out == write(cut)
    assert main(["export", "msccl", str(_file(tmp_path, planned("cube"))), "--depth", "2"]) == 2
    assert "--depth: not with a plan of bml" in capsys.readouterr().err


def _file(folder: Path, answer: dict[str, Any]) -> Path:
    path = folder / "bml.json"
    path.write_text(json.dumps(answer))
    return path


def test_rounds_are_exported_as_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {**planned("cube"), "rounds": 3}
    program, depth, _ = summed(answer)
    assert depth == 3
    plan = str(_file(tmp_path, answer))
    assert main(["export", "mscclpp", plan]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["gpus"][0]["input_chunks"] == 3 * program.chunks
    assert main(["export", "msccl", plan]) == 0
    assert f'nchunksperloop="{3 * program.chunks}"' in capsys.readouterr().out
