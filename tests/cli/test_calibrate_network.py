"""``planner calibrate network``, as a person meets it."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.cli.factories import commanded
from tests.cli.line import Line, read, write
from tests.cli.printed import check_printed

QUICK = "calibrate network --repetitions 1 --seconds 1e-3 -o {rank}.json"


def measured(ranks: int, folder: Path, words: str) -> tuple[Any, list[str]]:
    """Return what rank 0 has written, no other rank, and what each has printed."""
    said = [parts[0] for parts in commanded(ranks, folder, words)]
    assert not (folder / "1.json").exists()
    return json.loads((folder / "0.json").read_bytes()), said


@pytest.mark.slow
def test_rank_0_writes_what_caramel_is_compared_on(line: Line) -> None:
    options = "--depths 1,2 --seconds 0.002 --alone --repetitions 1"
    command = f"calibrate network {options} -o {{rank}}.json --cluster-out pair.json"
    document, (shown, silent) = measured(2, line.folder, command)
    planned = line("plan scaled.json --cluster pair.json --json").json
    assert planned["cluster"] == "pair"
    assert silent == ""
    lines = shown.splitlines()
    assert lines[0].startswith("all_reduce (ring) among 2 ranks: medians of 1 round, ")
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
    assert provenance["source"] == f"planner calibrate network {options}"
    assert provenance["repetitions"] == 1
    assert set(provenance["versions"]) == {"python", "torch", "planner"}
    compared = "compare scaled.json --problem caramel --network 0.json --methods auto,ddp"
    said = "network: all_reduce (ring) among 2 ranks as measured: table of 0.json"
    assert said in line(compared).out


@pytest.mark.slow
def test_what_batches_are_compared_on(line: Line) -> None:
    options = "--collective all_gather --largest 4kB --alone --repetitions 1 --json"
    (shown,), (silent,) = commanded(2, line.folder, f"calibrate network {options}")
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
    document, _ = measured(4, tmp_path, f"{QUICK} --bcube 2,2 --largest 4kB --alone")
    assert document["collective"] == "all_reduce"
    assert document["algorithm"] not in ("ring", "gloo", "")
    assert "--bcube 2,2" in document["provenance"]["source"]


@pytest.mark.slow
def test_interference_is_measured_and_counted_also_beside_a_model(line: Line) -> None:
    model = "--interference tests.cli.factories:counted --input 16 --batch-size 3"
    words = f"{QUICK} --largest 100kB"
    (shown, _), _ = commanded(2, line.folder, words, f"{words.replace('-o ', '-o m')} {model}")
    document, beside = read("0.json"), read("m0.json")
    assert document["interference"].keys() == {"startup_ns", "ns_per_byte", "slowdown", "delay_ns"}
    assert min(one["interference"]["slowdown"] for one in (document, beside)) >= 1
    assert "during computation a transfer takes" in shown
    assert beside["provenance"]["source"].split(" --repetitions")[0].endswith(model)
    for rank in "01":  # before a transfer and beside it, three sizes, in each of six rounds
        passes = Path(f"passes-{rank}").read_text()
        assert set(passes) == {"3"}
        assert len(passes) >= 2 * 3 * 6
    write("network.json", {**document, "interference": {"ns_per_byte": 2, "slowdown": 1.5}})
    command = "compare scaled.json --problem caramel --network network.json --methods ddp,search"
    for row in line(command, "--json").json:
        computed = sum(one["end_ns"] - one["start_ns"] for one in row["schedule"])
        assert row["computation_ns"] == computed == 9 * 10**6 + row["slowed_ns"]


def test_what_is_bad_in_a_job_is_said_by_its_ranks(tmp_path: Path) -> None:
    model = "--interference tests.cli.factories:failing --input 16"
    commands = ("calibrate network --bcube 2,2", f"{QUICK} --largest 100kB {model}")
    (first, failed), (second, too) = commanded(2, tmp_path, *commands, ends=2)
    assert first.removeprefix("rank 0: ") == second.removeprefix("rank 1: ")
    said = "rank 0: planner: error: --bcube: expected 4 ranks for bml(2, 2), got 2"
    assert first.startswith(said)
    assert "the model's forward pass failed: ValueError: no" in failed + too
