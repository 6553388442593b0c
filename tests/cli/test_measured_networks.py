"""Networks that were measured or imported: what takes them, and what is said of them."""

from typing import Any

import pytest

from tests.cli.documents import FILES, MEASURED
from tests.cli.line import Line, read, without_runtime, write
from tests.formats.test_nccl_tests import ROWS, run

LENET = "compare data/profiles/lenet5.json"


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


@pytest.mark.parametrize(
    ("direction", "collective", "computed_ms"),
    [("pull", "all_gather", 3), ("push", "reduce_scatter", 6)],
)
def test_batches_take_the_times_measured(
    direction: str, collective: str, computed_ms: int, line: Line
) -> None:
    command = f"compare scaled.json --direction {direction} --network measured.json --json"
    write("measured.json", {**MEASURED, "collective": collective})
    (answer,) = line(command, "--methods layer_by_layer").json
    spans = [one["transfer_end_ns"] - one["transfer_start_ns"] for one in answer["schedule"]]
    assert sorted(spans) == [257_576, 348_485, 1_000_000]  # between the points, rounded up

    beside = {"interference": {"ns_per_byte": 2, "slowdown": 1.5}}
    write("measured.json", {**MEASURED, "collective": collective, **beside})
    rows = line(command).json
    best = next(row for row in rows if row["method"] == "exact")
    for row in rows:
        assert row["objective_ns"] == row["makespan_ns"] >= best["objective_ns"]
        spans = [one["compute_end_ns"] - one["compute_start_ns"] for one in row["schedule"]]
        assert sum(spans) == row["slowed_ns"] + computed_ms * 10**6
    assert "Eq. 4 knows no interference" in line.error(command, "--objective eq4")


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


TINY = "compare tiny.json --network imported.json --problem"
MESSAGES = f"{LENET} --network imported.json --problem"
SCALED = "compare scaled.json --problem caramel --methods caramel --network network.json"
ASSUMED = "warning: start-ups are assumed, not measured"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{TINY} caramel --workers 3", "all_reduce among 3 ranks interpolated between 2 and 4"),
        (f"{TINY} ibatch", "all_gather among 4 ranks as measured"),
        (f"{TINY} iteration --cluster caramel-8", "all_reduce among 8 ranks extrapolated from 2, "),
        ("plan tiny.json --cluster caramel-8 --network imported.json", "measured tables"),
        (f"{MESSAGES} bml --bcube 2,2", "those on which a ring's all_gather"),
        (f"{MESSAGES} bigdl --machines 4", "those on which a ring's all_gather"),
        (f"{MESSAGES} yan --machines 4 --methods data_parallel", "on which a ring's all_gather"),
        (f"{MESSAGES} drizzle --cluster drizzle-32", "those on which a ring's all_gather"),
        (
            "compare scaled.json --problem bml --bcube 2,2 --network network.json",
            "those on which a ring's all_reduce among 4 ranks costs",
        ),
        (f"{SCALED} --workers 3 --servers 3", "all_reduce (ring) among 3 ranks as measured"),
        *(
            (f"{LENET} --problem {problem} --cluster caramel-8", ASSUMED)
            for problem in ("caramel", "ibatch", "iteration", "bigdl", "yan")
        ),
        ("plan data/profiles/lenet5.json --cluster caramel-8", ASSUMED),
    ],
)
def test_commands_say_what_they_take_for_the_network(
    words: str, said: str, imported: object, line: Line
) -> None:
    out, err = line(words)
    assert said in out
    assert out.startswith(ASSUMED) == (said == ASSUMED)
    assert "no method found a plan" not in err


def test_plan_takes_tables(imported: object, line: Line) -> None:
    answer = line("plan tiny.json --cluster caramel-8 --network imported.json --json").json
    assert answer["synchronisation"]["algorithm"] == "measured"
    assert any("among 8 ranks extrapolated from 2, 4" in text for text in answer["warnings"])


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
