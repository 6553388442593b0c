"""Networks that were measured or imported: what takes them, and what is said of them."""

from typing import Any

import pytest

from tests.cli.documents import FILES, TABLE
from tests.cli.line import Line, read, without_runtime, write
from tests.formats.nccl_output import ROWS, run

LENET = "compare data/profiles/lenet5.json"
PULLED = {"pull": "all_gather", "push": "reduce_scatter"}
BATCHES = [("pull", 3), ("push", 6)]


def measured(**changes: Any) -> str:
    """Write what was measured among 3 ranks; return the options that name it."""
    return f"--network {write('measured.json', {**FILES['network.json'], **changes})}"


@pytest.fixture
def imported(line: Line) -> dict[str, Any]:
    """Return tables of each collective among 2 and 4 ranks, which `imported.json` holds."""
    logs = []
    for test in ("all_reduce", "all_gather", "reduce_scatter"):
        for hosts in (2, 4):
            text = run(ROWS, test=test, hosts=hosts, each=1)
            logs.append(write(f"{test}-{hosts}.log", text))
    line("import nccl-tests -o imported.json", *logs)
    document: dict[str, Any] = read("imported.json")
    return document


@pytest.mark.parametrize(("direction", "computed_ms"), BATCHES)
def test_batches_take_the_times_measured(direction: str, computed_ms: int, line: Line) -> None:
    collective = PULLED[direction]
    command = f"compare scaled.json --direction {direction} --json"
    options = measured(collective=collective)
    (answer,) = line(command, options, "--methods layer_by_layer").json
    spans = [one["transfer_end_ns"] - one["transfer_start_ns"] for one in answer["schedule"]]
    assert sorted(spans) == [257_576, 348_485, 1_000_000]  # between the points, rounded up

    beside = {"interference": {"ns_per_byte": 2, "slowdown": 1.5}}
    options = measured(collective=collective, **beside)
    rows = line(command, options).json
    best = next(row for row in rows if row["method"] == "exact")
    for row in rows:
        assert row["objective_ns"] == row["makespan_ns"] >= best["objective_ns"]
        spans = [one["compute_end_ns"] - one["compute_start_ns"] for one in row["schedule"]]
        assert sum(spans) == row["slowed_ns"] + computed_ms * 10**6
    error = line.error(command, options, "--objective eq4")
    assert "Eq. 4 knows no interference" in error


def test_gradients_take_the_times_measured(line: Line) -> None:
    def times(options: str) -> list[tuple[int, int]]:
        (answer,) = line("compare scaled.json --problem caramel --json", options).json
        return [(one["bytes"], one["end_ns"] - one["start_ns"]) for one in answer["groups"]]

    found = times(f"{measured()} --methods layer_by_layer")
    assert dict(found) == {4000: 257_576, 40_000: 348_485, 400_000: 1_000_000}
    depths = {"1": {"table": TABLE}, "2": {"startup_ns": 100_000, "ns_per_byte": 1}}
    found = times(f"{measured(network={'depths': depths})} --methods auto")
    assert all(time == 100_000 + size for size, time in found)  # always the cheaper one


def test_as_many_workers_as_were_measured(line: Line) -> None:
    command = f"compare scaled.json --problem caramel --methods caramel {measured()}"
    line(command)
    line(command, "--workers 3 --servers 3")


def test_models_of_messages_take_the_nics_of_a_measured_ring(line: Line) -> None:
    command = "compare scaled.json --problem bml --bcube 2,2"
    said = line(command, measured()).out
    assert "those on which a ring's all_reduce among 4 ranks costs" in said
    said = line.error(command, measured(algorithm="bml(2,2)"))
    assert "expected NICs or links, got a measured collective" in said


def test_several_files_become_one_document(imported: dict[str, Any], line: Line) -> None:
    for collective in ("all_reduce", "all_gather", "reduce_scatter"):
        tables = imported["collectives"].pop(collective)
        assert [table["ranks"] for table in tables] == [2, 4]
    assert not imported["collectives"]
    assert imported["provenance"]["kind"] == "imported"
    said = line("export nccl-tuner ring/simple=imported.json tree/ll=imported.json")
    assert "allreduce,1024,16777216,ring,simple,-1,2,2,-1,-1" in said.out
    assert "row" in said.err


def test_links_of_a_host_are_said_and_kept(imported: object, line: Line) -> None:
    line("import network imported.json --link 4=32GB/s --link 2=300GB/s -o links.json")
    line("import network links.json -o again.json")
    assert read("again.json")["links"] == [
        {"ranks": 2, "bytes_per_s": 300_000_000_000},
        {"ranks": 4, "bytes_per_s": 32_000_000_000},
    ]
    for wrong in ("2", "x=3GB/s", "2=3", "1=3GB/s"):
        assert "--link" in line.error("import network imported.json --link", wrong)


def test_plan_takes_tables_and_says_what_was_not_measured(imported: object, line: Line) -> None:
    command = "plan tiny.json --cluster caramel-8 --network imported.json"
    answer = line(command, "--json").json
    assert answer["synchronisation"]["algorithm"] == "measured"
    assert any("among 8 ranks extrapolated from 2, 4" in text for text in answer["warnings"])
    assert "measured tables" in line(command).out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--problem caramel --workers 3",
            "all_reduce among 3 ranks interpolated between 2 and 4",
        ),
        ("--problem ibatch", "all_gather among 4 ranks as measured"),
        (
            "--problem iteration --cluster caramel-8",
            "all_reduce among 8 ranks extrapolated from 2, 4",
        ),
    ],
)
def test_compare_takes_tables(options: str, said: str, imported: object, line: Line) -> None:
    assert said in line("compare tiny.json --network imported.json", options).out


@pytest.mark.parametrize(
    "options",
    [
        "--problem bml --bcube 2,2",
        "--problem bigdl --machines 4",
        "--problem yan --machines 4 --methods data_parallel",
        "--problem drizzle --cluster drizzle-32",
    ],
)
def test_models_of_messages_take_the_nics_of_a_ring(
    options: str, imported: object, line: Line
) -> None:
    best = line(LENET, "--network imported.json --json", options).json[0]
    assert best["status"] in ("optimal", "feasible")
    assert any("those on which a ring's all_gather" in text for text in best["warnings"])


def test_requests_take_tables(imported: dict[str, Any], line: Line) -> None:
    slices = {"elements": 4096, "element_bytes": 4, "nodes": 4, "partitions_per_node": 1}
    for request in (
        {"problem": "ibatch", "layer_bytes": [2048, 4096], "compute_ns": [10, 20]},
        {"problem": "bml", "n": 2, "k": 2, "gradient_bytes": 4096},
        {"problem": "bigdl", **slices},
    ):
        network = {"collectives": imported["collectives"]}
        answer = line("solve", given={**request, "network": network}).json
        if request["problem"] == "ibatch":
            assert answer["status"] == "optimal"
            assert "warnings" not in answer
        else:
            assert "a ring's all_gather" in answer["warnings"][-1]


@pytest.mark.parametrize(
    ("problem", "method", "collective"),
    [
        ("caramel", "caramel", "all_reduce"),
        ("ibatch", "greedy", "all_gather"),
        ("iteration", "ddp", "all_reduce"),
    ],
)
def test_compare_takes_a_clusters_own_tables(
    problem: str, method: str, collective: str, line: Line
) -> None:
    said = line(LENET, f"--problem {problem} --methods {method} --cluster h100ib-10").out
    assert f"{collective} by measured tables" in said
    assert f"beyond the table of {collective}" in said
    assert "assumed" not in said


@pytest.mark.parametrize("problem", ["caramel", "ibatch", "iteration", "bigdl", "yan", None])
def test_what_is_assumed_is_said_first(problem: str | None, line: Line) -> None:
    command = f"{LENET} --problem {problem}" if problem else LENET.replace("compare", "plan")
    first = line(command, "--cluster caramel-8").out.splitlines()[0]
    assert first.startswith("warning: start-ups are assumed, not measured")


@pytest.mark.slow
def test_interference_beside_measured_tables_is_as_if_the_cluster_said_it(line: Line) -> None:
    beside = {"startup_ns": 30, "ns_per_byte": 0.5, "slowdown": 1.25, "delay_ns": 7}
    network: dict[str, Any] = {"collective": "all_reduce", "ranks": 4}
    network["network"] = {"table": [[64, 3000], [4096, 9000], [10**6, 10**6]]}
    write("slowed.json", {**FILES["cluster.json"], "interference": beside})
    answers = []
    for own, cluster in (({"interference": beside}, "cluster.json"), ({}, "slowed.json")):
        write("network.json", {**network, **own})
        command = f"plan model.json --cluster {cluster} --network network.json"
        answers.append(without_runtime(line(command, "--json").json))
        assert "transfers slow the computation down by " in line(command).out
    assert answers[0] == answers[1]
