"""Requests about clusters of which something has failed, from the request to the program."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.families.bml.program import made, ranks_of
from planner.jsonio.service import decode_answer
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, Failures
from planner.programs import GradientProgram, program_of
from tests.jsonio.test_iteration import CLUSTER, PROFILE, asked

BCUBE: dict[str, Any] = {
    **CLUSTER,
    "machines": 9,
    "topology": {"kind": "bcube", "n": 3, "k": 2},
    "nic": {**CLUSTER["nic"], "per_machine": 2},
}
FAILED: dict[str, Any] = {"servers": [[0, 1]], "links": [[[2, 2], 0]], "switches": [[1, [0]]]}


def test_the_answer_names_the_program() -> None:
    whole = asked({**BCUBE, "failed": {}})
    assert "failed" not in whole["synchronisation"]["program"]
    answer = asked({**BCUBE, "failed": FAILED})
    assert answer["objective_ns"] >= whole["objective_ns"]
    assert (answer["machines"], answer["workers"]) == (9, 8)
    program = answer["synchronisation"]["program"]
    assert (program["generator"], program["shape"][:2]) == ("bml_replan", [3, 2])
    assert program["checked"] == "replay"
    said = {"servers": [[0, 1]], "nics": [[[2, 2], 0]], "links": [], "switches": [[1, [0]]]}
    assert program["failed"] == said
    broken = {"server [0, 1] has failed"}
    left_out = answer["left_out"]
    assert set(left_out) == {"ring", "halving_doubling", "hierarchical", "ps", "shuffle"}
    assert set(left_out.values()) == broken


def test_a_plan_that_is_read_names_the_same_program() -> None:
    answer = asked({**BCUBE, "failed": FAILED}, modes=["replicated"])
    followed = program_of(json.dumps(answer).encode())
    assert isinstance(followed, GradientProgram)
    recipes = {batch.collective for batch in followed.batches}
    failed = Failures(
        servers=frozenset({1}), nics=frozenset({(8, 0)}), switches=frozenset({(1, 0)})
    )
    for recipe in recipes:
        assert recipe is not None
        assert recipe.failed == failed
        assert made(recipe).ranks == ranks_of(recipe) == 8
    assert BCube(3, 2).server([0, 1]) in failed.servers
    decode_answer(json.dumps(answer).encode())


@pytest.mark.slow
def test_a_program_whose_failures_are_none_of_its_network_is_refused() -> None:
    answer = asked({**BCUBE, "failed": FAILED}, modes=["replicated"])
    answer["synchronisation"]["program"]["failed"]["servers"] = [[0, 3]]
    with pytest.raises(InvalidInputError, match=r"failed.servers\[0\]\[1\]"):
        program_of(json.dumps(answer).encode())
    answer["synchronisation"]["program"]["shape"] = [9]
    with pytest.raises(InvalidInputError, match="shape"):
        program_of(json.dumps(answer).encode())


def test_a_network_that_is_cut_is_infeasible() -> None:
    answer = asked({**BCUBE, "failed": {"links": [[[1, 1], 0], [[1, 1], 1]]}})
    assert answer["status"] == "infeasible"
    assert "cut off server [1, 1] from the other 8" in answer["reason"]
    assert answer["binding"] == ["cluster.failed.nics"]
    assert "cut off server [1, 1]" in answer["left_out"]["bml"]


@pytest.mark.slow
def test_failures_are_told_in_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.json").write_text(json.dumps(PROFILE))
    (tmp_path / "nine.json").write_text(json.dumps({**BCUBE, "failed": FAILED}))
    files = [str(tmp_path / "tiny.json"), "--cluster", str(tmp_path / "nine.json")]
    assert main(["plan", *files]) == 0
    said = capsys.readouterr().out
    assert "8 workers, BCube(3,2) without 1 server and 1 NIC and 1 switch" in said
    assert "rank r is the r-th of the 8 servers that work" in said
    assert re.search(r"left out: [a-z_, ]*\bring\b[a-z_, ]* \(server \[0, 1\] has failed\)", said)
    assert main(["compare", *files, "--problem", "iteration"]) == 0
