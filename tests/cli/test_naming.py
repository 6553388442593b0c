"""Errors name the option, the argument or the file that was typed."""

import argparse
import json
from contextlib import suppress
from pathlib import Path

import pytest

from planner.cli import main
from planner.cli.parsing import OPTIONS, as_typed
from planner.model.errors import InvalidInputError
from tests.cli.commands import commands
from tests.cli.test_cli import NETWORK, REQUEST
from tests.jsonio.test_iteration import CLUSTER
from tests.jsonio.test_iteration import PROFILE as GRAPH

PLAN = ["plan", "profile.json", "--cluster", "cluster.json"]
NETWORKED = ["compare", "profile.json", "--network"]
_NET = "name: unknown field; known are bytes_per_s"
COMPARE = ["compare", "profile.json", *NETWORK]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, document in (("profile", GRAPH), ("cluster", CLUSTER), ("request", REQUEST)):
        Path(f"{name}.json").write_text(json.dumps(document))
    assert main(["solve", "request.json", "-o", "answer.json"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([*PLAN, "--computation", "9" * 30], "--computation: expected a number <="),
        ([*PLAN, "--optimiser-ratio", "9" * 30], "--optimiser-ratio: expected a number from 0"),
        ([*PLAN, "--method", "ddpp"], "--method: expected one of"),
        ([*PLAN, "--method", "ps", "--mode", "replicated"], "--mode: the plans of ps"),
        ([*PLAN, "--for", "ddp", "--mode", "sharded"], "--mode: the plans of Distributed"),
        ([*PLAN, "--for", "ddp", "--epoch-samples", "9"], "--epoch-samples: not with target ddp"),
        ([*PLAN, "--max-overhead", "0.1"], "--max-overhead: missing beside it"),
        ([*PLAN, "--picture", "a.bmp"], "--picture: expected a name ending in"),
        (["plan", "none.json", "--cluster", "cluster.json"], "error: none.json: No such file"),
        (["plan", ".", "--cluster", "cluster.json"], "error: .: Is a directory"),
        ([*PLAN, "--for", "fsdp2", "--mode", "sharded"], "--mode: the plans of FSDP2"),
        ([*COMPARE, "--methods", "nobody"], "--methods: expected one of auto, exact"),
        ([*COMPARE, "--time-limit", "0"], "--time-limit: expected a number > 0"),
        ([*COMPARE, "--picture", "a.bmp"], "--picture: expected a name ending in"),
        (["compare", "answer.json"], "answer.json: holds an answer: expected a request"),
        (["draw", "answer.json", "-o", "a.bmp"], "--output: expected a name ending in"),
        (
            ["compare", "profile.json", "--network", "cluster.json"],
            f"cluster.json: {_NET}",
        ),
        ([*NETWORKED, "caramel-16"], "--network: caramel-16 is a cluster: "),
        (["compare", "cluster.json", *NETWORK], "cluster.json: source: unknown field; known are"),
        (["compare", "profile.json", *NETWORK, "--for", "ddp"], "--for: DistributedDataParallel p"),
        ([*PLAN, "--interference", "cluster.json"], f"error: cluster.json: {_NET}"),
        (["plan", "cluster.json", "--cluster", "cluster.json"], "cluster.json: source: unknown"),
        (["plan", "request.json", "--cluster", "cluster.json"], "request.json: problem: unknown"),
        (["plan", "profile.json", "--cluster", "profile.json"], "profile.json: provenance: unkn"),
        (["plan", "profile.json", "--cluster", "answer.json"], "answer.json: problem: unknown"),
        (["draw", "profile.json"], "status: missing: expected an answer of planner solve"),
        (["export", "ddp", "cluster.json"], "status: missing: expected an answer"),
        (["schema", "nobody"], "PROBLEM: expected one of"),
        (["solve", "--max-seconds", "-1"], "--max-seconds: expected seconds from 0 to 10^9"),
        (["solve", "--max-memory-bytes", "-1"], "--max-memory-bytes: expected a whole number >= 0"),
        (["calibrate", "compute", "--cores", "0"], "--cores: expected an integer >= 1, got 0"),
    ],
)
def test_what_was_typed_is_named(
    line: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):  # argparse's own
        assert main(line) == 2
    assert said in capsys.readouterr().err


def test_a_factory_is_named_as_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert main(["profile", "nobody_s_module:make"]) == 2
    assert "error: MODULE:FACTORY: no module nobody_s_module" in capsys.readouterr().err


def test_every_name_is_that_of_an_option() -> None:
    known = {name for command in commands() for name in command.options}
    for names in OPTIONS.values():
        assert {name for name in names if name.startswith("--")} <= known


def test_paths_below_an_argument_keep_their_end() -> None:
    error = InvalidInputError("depths[2]", "expected more")
    assert as_typed(error, argparse.Namespace(depths="1")).path == "--depths[2]"
    assert as_typed(error, argparse.Namespace()) is error
    other = InvalidInputError("--depths", "expected more")
    assert as_typed(other, argparse.Namespace(depths="1")) is other
