"""``planner calibrate network``, as a person meets it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from tests.cli.networks import PROFILE, compare, written
from tests.cli.printed import check_printed


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)


def command(folder: str, *arguments: str) -> str | None:
    """Run a command as one rank, in a folder of its own; return what it has written there."""
    here = Path(folder) / os.environ["RANK"]
    here.mkdir()
    os.chdir(here)
    status = main(["calibrate", "network", *arguments])
    output = here / "network.json"
    return f"exit {status}" if status else output.read_text() if output.exists() else None


def beside_briefly(folder: str, *arguments: str) -> str | None:
    """Do the same, timing transfers beside computation for a moment each."""
    from planner.runtime.measuring import beside

    beside.SAMPLE_S = 0.02
    return command(folder, *arguments)


def as_ranks(
    ranks: int, folder: Path, *arguments: str, worker: Callable[..., str | None] = command
) -> tuple[list[Any], list[str]]:
    pytest.importorskip("torch")
    from tests.runtime.launching import launch

    outcomes = launch(worker, ranks, str(folder), *arguments)
    assert [outcome.error for outcome in outcomes] == [None] * ranks
    told = "planner: network: "  # progress, on a machine that is slow
    shown = [
        "".join(line for line in outcome.output.splitlines(keepends=True) if told not in line)
        for outcome in outcomes
    ]
    return [outcome.value for outcome in outcomes], shown


@pytest.fixture
def profile(tmp_path: Path) -> str:
    return written(tmp_path / "tiny.json", PROFILE)


@pytest.mark.slow
def test_rank_0_writes_what_caramel_is_compared_on(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--repetitions", "1", "--depths", "1,2", "--seconds", "2e-3", "-o", "network.json"]
    options += ["--cluster-out", "pair.json", "--alone"]
    (text, other), (shown, silent) = as_ranks(2, tmp_path, *options)
    pair = str(tmp_path / "0" / "pair.json")
    assert main(["plan", profile, "--cluster", pair, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cluster"] == "pair"
    assert other is None
    assert silent == ""
    lines = shown.splitlines()
    assert lines[0].startswith("all_reduce (ring) among 2 ranks: medians of 1 round, ")
    document = json.loads(text)
    check_printed("network", document)
    assert (document["collective"], document["algorithm"], document["ranks"]) == (
        "all_reduce",
        "ring",
        2,
    )
    assert [line.split()[:2] for line in lines[4 : 4 + len(document["timings"])]] == [
        [f"{one['bytes']:,}", str(one["depth"])] for one in document["timings"]
    ]
    assert {64, 4_000_000} <= {one["bytes"] for one in document["timings"]}
    assert list(document["network"]["depths"]) == ["1", "2"]
    assert list(document["affine"]["depths"]) == ["1", "2"]
    provenance = document["provenance"]
    assert provenance["source"] == (
        "planner calibrate network --depths 1,2 --seconds 0.002 --alone --repetitions 1"
    )
    assert provenance["repetitions"] == 1
    assert set(provenance["versions"]) == {"python", "torch", "planner"}

    path = str(tmp_path / "0" / "network.json")
    assert compare(profile, "--problem", "caramel", "--network", path, "--methods", "auto,ddp") == 0
    out = capsys.readouterr().out
    assert "network: all_reduce (ring) among 2 ranks as measured: table of network.json" in out


@pytest.mark.slow
def test_what_batches_are_compared_on(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--collective",
        "all_gather",
        "--largest",
        "4kB",
        "--alone",
        "--repetitions",
        "1",
        "--json",
    ]
    written_files, (shown, silent) = as_ranks(2, tmp_path, *options)
    assert written_files == [None, None]
    assert silent == ""
    document = json.loads(shown)
    assert "two_point" not in document
    check_printed("network", document)
    path = written(tmp_path / "pull.json", document)
    assert compare(profile, "--network", path, "--methods", "exact") == 0
    capsys.readouterr()
    assert compare(profile, "--network", path, "--methods", "exact", "--direction", "push") == 2
    assert f"{path}: collective: expected reduce_scatter" in capsys.readouterr().err


@pytest.mark.slow
def test_bml_is_an_all_reduce_too(tmp_path: Path) -> None:
    options = ["--bcube", "2,2", "--largest", "4kB", "--repetitions", "1", "-o", "network.json"]
    options += ["--seconds", "1e-3", "--alone"]
    (text, *_), _ = as_ranks(4, tmp_path, *options)
    document = json.loads(text)
    assert document["collective"] == "all_reduce"
    assert document["algorithm"] not in ("ring", "gloo", "")
    assert "--bcube 2,2" in document["provenance"]["source"]


def test_a_bcube_needs_its_servers(tmp_path: Path) -> None:
    statuses, outputs = as_ranks(2, tmp_path, "--bcube", "2,2")
    assert statuses == ["exit 2"] * 2
    assert all("--bcube: expected 4 ranks for bml(2, 2), got 2" in output for output in outputs)


def test_without_a_launcher(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert main(["calibrate", "network"]) == 2
    assert "RANK is not set: start the program with a launcher, such as torchrun" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_interference_is_measured_and_counted(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--repetitions", "1", "--largest", "100kB", "-o", "network.json"]
    options += ["--seconds", "1e-3"]
    (text, other), outputs = as_ranks(2, tmp_path, *options, worker=beside_briefly)
    assert other is None
    document = json.loads(text)
    assert document["interference"].keys() == {"startup_ns", "ns_per_byte", "slowdown", "delay_ns"}
    assert document["interference"]["slowdown"] >= 1
    assert "beside computation a transfer takes" in outputs[0]
    document["interference"] = {"ns_per_byte": 2, "slowdown": 1.5}
    network = written(tmp_path / "network.json", document)
    asked = ["--problem", "caramel", "--network", network, "--json"]
    assert compare(profile, *asked, "--methods", "ddp,search") == 0
    for row in json.loads(capsys.readouterr().out):
        computed = sum(one["end_ns"] - one["start_ns"] for one in row["schedule"])
        assert row["computation_ns"] == computed == 9 * 10**6 + row["slowed_ns"]


@pytest.mark.slow
def test_interference_beside_a_model(tmp_path: Path) -> None:
    options = ["--repetitions", "1", "--largest", "100kB", "-o", "network.json"]
    options += ["--seconds", "1e-3", "--input", "16", "--batch-size", "3"]
    options += ["--interference", "tests.cli.factories:counted"]
    (text, _), _ = as_ranks(2, tmp_path, *options, worker=beside_briefly)
    document = json.loads(text)
    assert document["interference"]["slowdown"] >= 1
    assert (
        document["provenance"]["source"]
        .split(" --repetitions")[0]
        .endswith("--interference tests.cli.factories:counted --input 16 --batch-size 3")
    )
    for rank in ("0", "1"):  # before a transfer and beside it, three sizes, in each of six rounds
        passes = (tmp_path / rank / "passes").read_text()
        assert set(passes) == {"3"}
        assert len(passes) >= 2 * 3 * 6


def test_a_model_that_fails_is_named(tmp_path: Path) -> None:
    options = ["--interference", "tests.cli.factories:failing", "--largest", "100kB"]
    options += ["--seconds", "1e-3", "--repetitions", "1", "--input", "16"]
    statuses, outputs = as_ranks(2, tmp_path, *options, worker=beside_briefly)
    assert all(status and status.startswith("exit") for status in statuses)
    assert any("the model's forward pass failed: ValueError: no" in output for output in outputs)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--largest", "4"], "--largest: expected a size"),
        (["--largest", "64B"], "--largest: expected an integer >= 128, got 64"),
        (["--largest", "1001B"], "--largest: expected a multiple of 4 bytes, got 1001"),
        (["--repetitions", "0"], "--repetitions: expected an integer >= 1, got 0"),
        (["--seconds", "0"], "--seconds: expected more than 0 and at most 3600, got 0.0"),
        (["--seconds", "nan"], "--seconds: expected more than 0 and at most 3600, got nan"),
        (["--depths", "1,x"], "--depths: expected a whole number such as 4, got 'x'"),
        (["--bcube", "2"], "--bcube: expected n,k such as 3,2"),
        (["--bcube", "2,2", "--collective", "all_gather"], "--bcube: BML is an all-reduce"),
        (["--interfaces", "lo"], "--interfaces: only with --bcube"),
        (["-o", "nowhere/network.json"], "--output: no such folder: nowhere"),
        (["--cluster-out", "-"], "--cluster-out: expected a file"),
        (["--cluster-out", "nowhere/c.json"], "--cluster-out: no such folder: nowhere"),
        (["--interference", "torch.nn"], "--interference: expected module:factory, got 'torch.nn'"),
        (["--input", "3"], "--input: only with --interference MODULE:FACTORY"),
        (["--batch-size", "2"], "--batch-size: only with --interference MODULE"),
        (["--alone", "--interference", "a:b"], "--interference: not with --alone"),
        (["--largest", "4kB"], "--largest: expected above 4096 B without --alone"),
        (["--interference", "a:b", "--batch-size", "0"], "--batch-size: expected an integer >= 1"),
        (["--cluster-out", "c", "--collective", "all_gather"], "--cluster-out: a cluster follows"),
    ],
)
def test_bad_options(
    options: list[str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("RANK", "0")
    assert main(["calibrate", "network", *options]) == 2
    assert f"planner: error: {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--timeout", "0"], "--timeout: expected seconds > 0"),
        (["--depths", "2,4"], "--depths: expected increasing depths from 1"),
        (["--depths", "1,2", "--collective", "reduce_scatter"], "--depths: only an all-reduce"),
    ],
)
def test_options_that_are_bad_in_a_job(tmp_path: Path, options: list[str], expected: str) -> None:
    statuses, (first, second) = as_ranks(2, tmp_path, *options)
    assert statuses == ["exit 2"] * 2
    assert first.removeprefix("rank 0: ") == second.removeprefix("rank 1: ")
    assert first.startswith(f"rank 0: planner: error: {expected}")
