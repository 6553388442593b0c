"""``planner calibrate network``, as a person meets it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from tests.cli.line import Line, write
from tests.cli.printed import check_printed

pytest.importorskip("torch")

from tests.runtime.launching import launch

QUICK = "--repetitions 1 --seconds 1e-3"


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
    ranks: int, folder: Path, options: str, worker: Callable[..., str | None] = command
) -> tuple[list[Any], list[str]]:
    """Return what each rank has written, and what it has printed."""
    outcomes = launch(worker, ranks, str(folder), *options.split())
    assert [outcome.error for outcome in outcomes] == [None] * ranks
    told = "planner: network: "  # progress, on a machine that is slow
    shown = [
        "".join(line for line in outcome.output.splitlines(keepends=True) if told not in line)
        for outcome in outcomes
    ]
    return [outcome.value for outcome in outcomes], shown


@pytest.mark.slow
def test_rank_0_writes_what_caramel_is_compared_on(line: Line) -> None:
    options = "--repetitions 1 --depths 1,2 --seconds 2e-3 --alone -o network.json"
    options += " --cluster-out pair.json"
    (text, other), (shown, silent) = as_ranks(2, line.folder, options)
    planned = line("plan scaled.json --cluster 0/pair.json --json").json
    assert planned["cluster"] == "pair"
    assert other is None
    assert silent == ""
    lines = shown.splitlines()
    assert lines[0].startswith("all_reduce (ring) among 2 ranks: medians of 1 round, ")
    document = json.loads(text)
    check_printed("network", document)
    about = (document["collective"], document["algorithm"], document["ranks"])
    assert about == ("all_reduce", "ring", 2)
    assert [row.split()[:2] for row in lines[4 : 4 + len(document["timings"])]] == [
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
    compared = "compare scaled.json --problem caramel --network 0/network.json --methods auto,ddp"
    said = "network: all_reduce (ring) among 2 ranks as measured: table of network.json"
    assert said in line(compared).out


@pytest.mark.slow
def test_what_batches_are_compared_on(line: Line) -> None:
    options = "--collective all_gather --largest 4kB --alone --repetitions 1 --json"
    written, (shown, silent) = as_ranks(2, line.folder, options)
    assert written == [None, None]
    assert silent == ""
    document = json.loads(shown)
    assert "two_point" not in document
    check_printed("network", document)
    write("pull.json", document)
    compared = "compare scaled.json --network pull.json --methods exact"
    line(compared)
    wrong = line.error(compared, "--direction push")
    assert "pull.json: collective: expected reduce_scatter" in wrong


@pytest.mark.slow
def test_bml_is_an_all_reduce_too(tmp_path: Path) -> None:
    options = f"{QUICK} --bcube 2,2 --largest 4kB -o network.json --alone"
    (text, *_), _ = as_ranks(4, tmp_path, options)
    document = json.loads(text)
    assert document["collective"] == "all_reduce"
    assert document["algorithm"] not in ("ring", "gloo", "")
    assert "--bcube 2,2" in document["provenance"]["source"]


@pytest.mark.slow
def test_interference_is_measured_and_counted(line: Line) -> None:
    options = f"{QUICK} --largest 100kB -o network.json"
    (text, other), outputs = as_ranks(2, line.folder, options, worker=beside_briefly)
    assert other is None
    document = json.loads(text)
    assert document["interference"].keys() == {"startup_ns", "ns_per_byte", "slowdown", "delay_ns"}
    assert document["interference"]["slowdown"] >= 1
    assert "beside computation a transfer takes" in outputs[0]
    write("network.json", {**document, "interference": {"ns_per_byte": 2, "slowdown": 1.5}})
    command = "compare scaled.json --problem caramel --network network.json --methods ddp,search"
    for row in line(command, "--json").json:
        computed = sum(one["end_ns"] - one["start_ns"] for one in row["schedule"])
        assert row["computation_ns"] == computed == 9 * 10**6 + row["slowed_ns"]


@pytest.mark.slow
def test_interference_beside_a_model(tmp_path: Path) -> None:
    model = "--interference tests.cli.factories:counted --input 16 --batch-size 3"
    options = f"{QUICK} --largest 100kB -o network.json {model}"
    (text, _), _ = as_ranks(2, tmp_path, options, worker=beside_briefly)
    document = json.loads(text)
    assert document["interference"]["slowdown"] >= 1
    assert document["provenance"]["source"].split(" --repetitions")[0].endswith(model)
    for rank in ("0", "1"):  # before a transfer and beside it, three sizes, in each of six rounds
        passes = (tmp_path / rank / "passes").read_text()
        assert set(passes) == {"3"}
        assert len(passes) >= 2 * 3 * 6


def test_a_model_that_fails_is_named(tmp_path: Path) -> None:
    options = f"{QUICK} --interference tests.cli.factories:failing --largest 100kB --input 16"
    statuses, outputs = as_ranks(2, tmp_path, options, worker=beside_briefly)
    assert all(status and status.startswith("exit") for status in statuses)
    assert any("the model's forward pass failed: ValueError: no" in output for output in outputs)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--bcube 2,2", "--bcube: expected 4 ranks for bml(2, 2), got 2"),
        ("--timeout 0", "--timeout: expected seconds > 0"),
        ("--depths 2,4", "--depths: expected increasing depths from 1"),
        ("--depths 1,2 --collective reduce_scatter", "--depths: only an all-reduce"),
    ],
)
def test_options_that_are_bad_in_a_job(tmp_path: Path, options: str, expected: str) -> None:
    statuses, (first, second) = as_ranks(2, tmp_path, options)
    assert statuses == ["exit 2"] * 2
    assert first.removeprefix("rank 0: ") == second.removeprefix("rank 1: ")
    assert first.startswith(f"rank 0: planner: error: {expected}")
