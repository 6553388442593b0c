"""``planner calibrate network`` and ``planner compare --network``, as a person meets them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from tests.cli.printed import check_printed

PROFILE = {
    "name": "tiny",
    "provenance": {"kind": "synthetic", "source": "a test"},
    "layers": [
        {
            "name": f"l{place}",
            "forward_ns": 10**6,
            "backward_ns": 2 * 10**6,
            "parameter_bytes": size,
        }
        for place, size in enumerate((4000, 400_000, 40_000), 1)
    ],
}
TABLE = [[64, 200_000], [1000, 250_000], [100_000, 500_000], [1_000_000, 2_000_000]]
NETWORK: dict[str, Any] = {
    "collective": "all_reduce",
    "algorithm": "ring",
    "ranks": 3,
    "network": {"table": TABLE},
    "affine": {"startup_ns": 220_000, "ns_per_byte": 1.8},
}
LINK = ["--startup", "1us", "--bandwidth", "10Gb/s"]


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)


@pytest.fixture
def profile(tmp_path: Path) -> str:
    return written(tmp_path / "tiny.json", PROFILE)


def written(path: Path, document: Any) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def measured(folder: Path, **changes: Any) -> str:
    return written(folder / "network.json", {**NETWORK, **changes})


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


def compare(profile: str, *options: str) -> int:
    return main(["compare", profile, *options])


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


def test_batches_count_interference(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = {"interference": {"ns_per_byte": 2, "slowdown": 1.5}}
    for direction, collective in (("pull", "all_gather"), ("push", "reduce_scatter")):
        network = measured(tmp_path, collective=collective, **beside)
        asked = ["--problem", "ibatch", "--direction", direction, "--network", network, "--json"]
        assert compare(profile, *asked) == 0
        rows = json.loads(capsys.readouterr().out)
        best = next(row for row in rows if row["method"] == "exact")
        for row in rows:
            assert row["objective_ns"] == row["makespan_ns"] >= best["objective_ns"]
            computed = sum(
                one["compute_end_ns"] - one["compute_start_ns"] for one in row["schedule"]
            )
            assert computed == row["slowed_ns"] + (3 if direction == "pull" else 6) * 10**6
    asked += ["--objective", "eq4"]
    assert compare(profile, *asked) == 2
    assert "Eq. 4 knows no interference" in capsys.readouterr().err


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


def times(capsys: pytest.CaptureFixture[str]) -> list[tuple[int, int]]:
    """Return the sizes of the groups of the one answer that was printed, with their times."""
    (answer,) = json.loads(capsys.readouterr().out)
    return [(group["bytes"], group["end_ns"] - group["start_ns"]) for group in answer["groups"]]


def test_measured_times_are_those_of_the_plan(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--problem", "caramel", "--methods", "layer_by_layer", "--json"]
    path = measured(tmp_path)
    assert compare(profile, *options, "--network", path) == 0
    table = {4000: 257_576, 40_000: 348_485, 400_000: 1_000_000}  # between the points, rounded up
    assert dict(times(capsys)) == table
    depths = {"1": {"table": TABLE}, "2": {"startup_ns": 100_000, "ns_per_byte": 1}}
    path = measured(tmp_path, network={"depths": depths})
    options[3] = "auto"
    assert compare(profile, *options, "--network", path) == 0
    assert all(time == 100_000 + size for size, time in times(capsys))  # always the cheaper one


def test_measured_times_are_those_of_batches(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for direction, collective in (("pull", "all_gather"), ("push", "reduce_scatter")):
        path = measured(tmp_path, collective=collective)
        options = ["--direction", direction, "--methods", "layer_by_layer", "--json"]
        assert compare(profile, "--network", path, *options) == 0
        (answer,) = json.loads(capsys.readouterr().out)
        spans = sorted(
            one["transfer_end_ns"] - one["transfer_start_ns"] for one in answer["schedule"]
        )
        assert spans == [257_576, 348_485, 1_000_000]


def test_as_many_workers_as_were_measured(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--problem", "caramel", "--network", measured(tmp_path), "--methods", "caramel"]
    assert compare(profile, *options) == 0
    assert compare(profile, *options, "--workers", "3", "--servers", "3") == 0
    assert compare(profile, *options, "--servers", "4") == 2
    assert "--servers: expected an integer <= 3" in capsys.readouterr().err
    assert compare(profile, *options, "--workers", "8") == 2
    assert "--workers: expected 3, among whom --network was measured" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            [],
            "--startup: missing: it comes with a profile, or --network or --cluster",
        ),
        (["--startup", "1us"], "--bandwidth: missing"),
        (["--network", "NETWORK", "--startup", "1us"], "--startup: not together with --network"),
        (["--network", "NETWORK", *LINK[2:]], "--bandwidth: not together with --network"),
        (["--network", "nowhere.json"], "nowhere.json"),
    ],
)
def test_the_network_is_given_once(
    tmp_path: Path,
    profile: str,
    options: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = measured(tmp_path)
    given = [path if option == "NETWORK" else option for option in options]
    problem = [] if "--problem" in given else ["--problem", "caramel"]
    assert compare(profile, *problem, *given, "--methods", "auto") == 2
    assert expected in capsys.readouterr().err


def test_models_of_messages_take_the_nics_of_its_ring(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--problem", "bml", "--bcube", "2,2", "--network"]
    assert compare(profile, *options, measured(tmp_path)) == 0
    assert "those on which a ring's all_reduce among 4 ranks costs" in capsys.readouterr().out
    assert compare(profile, *options, measured(tmp_path, algorithm="bml(2,2)")) == 2
    assert "expected NICs or links, got a measured collective" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"collective": "all_gather"}, "collective: expected all_reduce, which is what these"),
        ({"network": {"table": [[1, 2], [3, "4"]]}}, "network.table[1][1]: expected an integer"),
        ({"network": {"table": [[5, 2], [3, 4]]}}, "network.table[1][0]: expected an integer > 5"),
        ({"network": {}}, "network.startup_ns: missing; or give a table"),
        ({"ranks": 0}, "ranks: expected an integer >= 2, got 0"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(
    tmp_path: Path,
    profile: str,
    changes: dict[str, Any],
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = measured(tmp_path, **changes)
    assert compare(profile, "--problem", "caramel", "--network", path) == 2
    assert f"planner: error: {path}: {expected}" in capsys.readouterr().err


def test_batches_are_not_cut(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    depths = {"1": {"table": TABLE}, "2": {"table": TABLE}}
    path = measured(tmp_path, collective="all_gather", network={"depths": depths})
    assert compare(profile, "--network", path) == 2
    assert f"{path}: network.depths: only transfers of an all-reduce" in capsys.readouterr().err


def test_times_that_do_not_fit(
    tmp_path: Path, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = measured(tmp_path, network={"startup_ns": 2**62, "ns_per_byte": 1})
    assert compare(profile, "--problem", "caramel", "--network", path) == 2
    assert f"{path}: network: " in capsys.readouterr().err


def test_a_request_has_its_own_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = {"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3, 1], "compute_ns": [2, 6]}
    path = written(tmp_path / "request.json", request)
    assert compare(path, "--network", measured(tmp_path)) == 2
    assert "--network: does not apply to a request" in capsys.readouterr().err
