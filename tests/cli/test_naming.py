"""Errors name the option, the argument or the file that was typed."""

import argparse
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.cli.parsing import OPTIONS, as_typed
from planner.model.errors import InvalidInputError
from tests.cli.commands import commands
from tests.cli.test_bml import DAMAGED, REQUESTS
from tests.cli.test_cli import LAYERS, NETWORK, PROFILE, REQUEST
from tests.jsonio.test_iteration import CLUSTER
from tests.jsonio.test_iteration import PROFILE as GRAPH
from tests.jsonio.test_yan import SMALL

PLAN = ["plan", "profile.json", "--cluster", "cluster.json"]
REPORT = ["report", *PLAN[1:]]
NETWORKED = ["compare", "profile.json", "--network"]
_NET = "name: unknown field; known are bytes_per_s"
COMPARE = ["compare", "profile.json", *NETWORK]


DOCUMENTS = {
    "profile": GRAPH,
    "tiny": PROFILE,
    "cluster": CLUSTER,
    "request": REQUEST,
    "yan": SMALL,
    "damaged": DAMAGED,
    **REQUESTS,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("naming")
    for name, document in DOCUMENTS.items():
        (made / f"{name}.json").write_text(json.dumps(document))
    assert main(["solve", str(made / "request.json"), "-o", str(made / "answer.json")]) == 0
    return made


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def refused(line: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a command says what is wrong, and writes nothing."""
    files = sorted(Path().iterdir())
    with suppress(SystemExit):  # argparse's own
        assert main(line) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""
    assert sorted(Path().iterdir()) == files


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([*PLAN, "--computation", "9" * 30], "--computation: expected a number <="),
        ([*PLAN, "--optimiser-ratio", "9" * 30], "--optimiser-ratio: expected a number from 0"),
        ([*PLAN, "--method", "ddpp"], "--method: expected one of"),
        ([*PLAN, "--method", "ddpp"], "did you mean 'ddp'"),
        ([*PLAN, "--computation", "0"], "--computation"),
        ([*PLAN, "--computation", "1e3"], "--computation"),
        ([*PLAN, "--computation", "1/0"], "--computation"),
        ([*PLAN, "--optimiser-ratio", "-1"], "--optimiser-ratio"),
        ([*PLAN, "--max-transfer", "25"], "--max-transfer"),
        ([*PLAN, "--max-transfer", "0B"], "--max-transfer"),
        ([*PLAN, "--algorithms", "ring,star"], "--algorithms"),
        ([*PLAN, "--epoch-samples", "0"], "--epoch-samples"),
        ([*PLAN, "--max-overhead", "2"], "--max-overhead"),
        ([*PLAN, "--max-group", "1"], "--max-group"),
        ([*PLAN, "--time-limit", "0"], "--time-limit"),
        ([*PLAN, "-o", "/no/such/folder/plan.json"], "--output"),
        ([*REPORT, "-o", "no/such/folder/page.html"], "--output: no such folder"),
        ([*REPORT, "-o", "."], "--output: is a folder"),
        ([*REPORT, "--time-limit", "0"], "--time-limit"),
        ([*REPORT, "--computation", "0"], "--computation"),
        ([*REPORT, "--algorithms", "star"], "--algorithms"),
        (["report", "cluster.json", "--cluster", "cluster.json"], "cluster.json: "),
        (["report", "profile.json", "--cluster", "none.json"], "none.json"),
        (["compare", "damaged.json", "--methods", "ps_bcube"], "one of auto, bml, detour, trees"),
        (["draw", "request.json"], "status: missing"),
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
    refused(line, said, capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--startup 5", "--startup: expected a time"),
        ("--bandwidth 10", "--bandwidth: expected a rate"),
        ("--methods exakt", "did you mean 'exact'"),
        ("--max-batch x", "--max-batch"),
        ("--picture nowhere/plan.svg", "--picture: no such folder: nowhere"),
        ("-o nowhere/plan.json", "--output: no such folder: nowhere"),
        ("-o .", "--output: is a folder: ."),
        ("--workers 8", "--workers: does not apply to --problem ibatch, only to caramel"),
        ("--servers 8", "--servers: does not apply to --problem ibatch, only to caramel"),
        ("--seed 8", "--seed: does not apply to --problem ibatch, only to caramel"),
        ("--bcube 3,2", "--bcube: does not apply to --problem ibatch, only to bml"),
        ("--problem caramel --workers 1", "--workers: expected an integer >= 2, got 1"),
        ("--problem caramel --workers 65537", "--workers: expected an integer <= 65536"),
        ("--problem caramel --servers 9", "--servers: expected an integer <= 8, got 9"),
        ("--problem caramel --servers 0", "--servers: expected an integer >= 1"),
        ("--problem caramel --seed -1", "--seed"),
        ("--problem caramel --direction pull", "--direction: does not apply to --problem caramel"),
        ("--problem caramel --objective eq4", "--objective: does not apply"),
        ("--problem caramel --max-batch 1MB", "--max-batch: does not apply"),
        ("--problem caramel --methods greedy", "--methods: expected one of auto"),
        ("--problem caramel --methods horovd", "did you mean 'horovod'"),
        ("--problem caramel --startup 4000000000s", "--startup, --bandwidth: "),
        ("--problem bml", "--bcube: missing: it says how many servers there are: 3,2"),
        ("--problem bml --bcube 3,-2", "--bcube: expected n,k such as 3,2, got '3,-2'"),
        ("--problem bml --bcube 1,2", "--bcube: n: expected an integer >= 2, got 1"),
        ("--problem bml --bcube 3,0", "--bcube: k: expected an integer >= 1, got 0"),
        ("--problem bml --bcube 3,64", "--bcube: k: expected at most 2^62 NICs"),
        (f"--problem bml --bcube {'9' * 20},1", "--bcube: n: expected an integer <= "),
        ("--problem bml --bcube 3,2 --methods detour", "--methods: expected one of bml_bcube"),
        ("--problem bml --bcube 3,2 --methods ring_bcub", "did you mean 'ring_bcube'?"),
        ("--problem bml --bcube 3,2 --workers 4", "--workers: does not apply to --problem bml"),
        ("--problem bml --bcube 3,2 --direction pull", "--direction: does not apply to --problem"),
        ("--problem bml --bcube 3,2 --picture p.bmp", "expected a name ending in .svg"),
        ("--problem bml --bcube 3,2 --picture p.json", "expected a name ending in .svg (a chart)"),
    ],
)
def test_options_of_a_compared_profile_are_named(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(["compare", "tiny.json", *NETWORK, *words.split()], said, capsys)


@pytest.mark.parametrize("name", [*REQUESTS, "yan"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--startup 1us", "--startup: does not apply to a request, and {} holds one, not a pro"),
        ("--bandwidth 1Gb/s", "--bandwidth: does not apply to a request"),
        ("--bcube 3,2", "--bcube: does not apply to a request"),
        ("--workers 2", "--workers: does not apply to a request"),
        ("--direction pull", "--direction: does not apply to a request"),
        ("--max-batch 1MB", "--max-batch: does not apply to a request"),
        ("--problem ibatch", "--problem: {} holds a request of "),
        ("--methods mlip", "--methods: expected one of "),
        ("--picture p.bmp", "expected a name ending in .svg"),
        ("--picture p.json", "expected a name ending in .svg (a chart)"),
        ("--time-limit -1", "--time-limit"),
    ],
)
def test_options_of_a_compared_request_are_named(
    name: str, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = f"{name}.json"
    refused(["compare", file, *words.split()], said.format(file), capsys)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("tiny", {"batch_size": -3}, "batch_size: expected an integer >= 1, got -3"),
        ("yan", {"machines": 0}, "machines: expected an integer >= 1, got 0"),
        ("yan", {"problem": "yam"}, "problem: expected one of"),
        ("yan", {"constants": {}}, "constants.muladd_ns: missing"),
        ("bml", {"n": 1}, "n: expected an integer >= 2, got 1"),
        ("bml", {"schedule": {"server": [3, 0]}}, "schedule.server[0]: expected an integer"),
        ("bml", {"failed": {"nics": [[[0], 0]]}}, "failed.nics[0][0]: expected 2 digits"),
        ("damaged", {"schedule": {"server": [2, 2]}}, "schedule.server: expected one that has not"),
        ("bigdl", {"nodes": 0}, "nodes: expected an integer >= 1, got 0"),
        ("bigdl", {"nodes": 5000}, "nodes: expected an integer <= 4096, got 5000"),
        ("bigdl", {"link_bytes_per_s": 0}, "link_bytes_per_s: expected a number > 0, got 0"),
        ("drizzle", {"task_ns": -1}, "task_ns: expected a number"),
        ("drizzle", {"max_overhead": 1}, "max_overhead: "),
    ],
)
def test_the_file_and_the_field_are_named(
    name: str, change: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**DOCUMENTS[name], **change}))
    network = NETWORK if name == "tiny" else []
    refused(["compare", str(path), *network], f"{path}: {said}", capsys)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("{", [], "not JSON"),
        ("[]", NETWORK, "expected an object"),
        (
            json.dumps({**PROFILE, "layers": [{**LAYERS[0], "parameter_bytes": 0}]}),
            [*NETWORK, "--problem", "caramel"],
            "layers: expected at least one layer with",
        ),
    ],
)
def test_a_file_that_holds_something_else_is_named(
    text: str,
    options: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    refused(["compare", str(path), *options], f"{path}: {said}", capsys)


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
