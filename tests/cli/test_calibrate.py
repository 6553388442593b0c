"""What is read off other tools and measured: `planner import`, `planner calibrate`."""

import copy
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from planner.families.yan.configuration import canonical_mapping
from planner.families.yan.model import estimate
from planner.jsonio import decode_profile
from planner.jsonio.measurements import decode_measurements
from tests.cli.documents import FILES, MEASURED
from tests.cli.line import Line, read, without_runtime, write
from tests.cli.printed import check_printed
from tests.formats.spark_logs import END, START, head, iteration, loop, written
from tests.formats.test_nccl_tests import ROWS, run
from tests.formats.test_pipedream import GOOD
from tests.jsonio.requests import patched
from tests.jsonio.test_yan import SMALL

LENET = "compare data/profiles/lenet5.json"
TABLES = ("all_reduce", "all_gather", "reduce_scatter")


@pytest.fixture
def imported(line: Line) -> dict[str, Any]:
    """Return tables of each collective among 2 and 4 ranks, which `imported.json` holds."""
    logs = [
        write(f"{test}-{hosts}.log", run(ROWS, test=test, hosts=hosts, each=1))
        for test in TABLES
        for hosts in (2, 4)
    ]
    line("import nccl-tests -o imported.json", *logs)
    document: dict[str, Any] = read("imported.json")
    return document


def test_batches_take_the_times_measured(line: Line) -> None:
    for direction, collective in (("pull", "all_gather"), ("push", "reduce_scatter")):
        command = f"compare scaled.json --direction {direction} --network measured.json --json"
        document = {**MEASURED, "collective": collective}
        write("measured.json", document)
        (answer,) = line(command, "--methods layer_by_layer").json
        spans = [one["transfer_end_ns"] - one["transfer_start_ns"] for one in answer["schedule"]]
        assert sorted(spans) == [257_576, 348_485, 1_000_000]  # between the points, rounded up
        write("measured.json", {**document, "interference": {"ns_per_byte": 2, "slowdown": 1.5}})
        assert "Eq. 4 knows no interference" in line.error(command, "--objective eq4")


def test_several_files_become_one_document(imported: dict[str, Any], line: Line) -> None:
    for collective in TABLES:
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
SCALED = "compare scaled.json --problem caramel --methods caramel --network network.json"
LENET_BY_TABLES = f"{LENET} --network imported.json --problem"
COSTS = "those on which a ring's all_g"
ASSUMED = "warning: start-ups are assumed, not measured"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{TINY} caramel --workers 3", "all_reduce among 3 ranks interpolated between 2 and 4"),
        (f"{TINY} ibatch", "all_gather among 4 ranks as measured"),
        (f"{TINY} iteration --cluster caramel-8", "all_reduce among 8 ranks extrapolated from 2, "),
        ("plan tiny.json --cluster caramel-8 --network imported.json", "plan (joint): measured, "),
        (f"{LENET_BY_TABLES} bml --bcube 2,2", COSTS),
        (f"{LENET_BY_TABLES} bigdl --machines 4", COSTS),
        (f"{LENET_BY_TABLES} yan --machines 4 --methods data_parallel", COSTS),
        (f"{LENET_BY_TABLES} drizzle --cluster drizzle-32", COSTS),
        (
            "compare scaled.json --problem bml --bcube 2,2 --network network.json",
            "those on which a ring's all_reduce among 4 ranks costs",
        ),
        (f"{SCALED} --workers 3 --servers 3", "all_reduce (ring) among 3 ranks as measured"),
        (f"{LENET} --problem iteration --cluster caramel-8", ASSUMED),
        (f"{LENET} --problem bigdl --cluster caramel-8", ASSUMED),
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


def test_requests_take_tables(imported: dict[str, Any], line: Line) -> None:
    network = {"network": {"collectives": imported["collectives"]}}
    batches = {"problem": "ibatch", "layer_bytes": [2048, 4096], "compute_ns": [10, 20]}
    answer = line("solve", given=batches | network).json
    assert (answer["status"], "warnings" in answer) == ("optimal", False)
    bcube = {"problem": "bml", "n": 2, "k": 2, "gradient_bytes": 4096}
    assert "a ring's all_gather" in line("solve", given=bcube | network).json["warnings"][-1]


@pytest.mark.parametrize(
    "words", ["caramel --methods caramel", "ibatch --methods greedy", "iteration --methods ddp"]
)
def test_compare_takes_a_clusters_own_tables(words: str, line: Line) -> None:
    said = line(LENET, "--cluster h100ib-10 --problem", words).out
    collective = "all_gather" if words.startswith("ibatch") else "all_reduce"
    assert f"{collective} by measured tables" in said
    assert f"beyond the table of {collective}" in said
    assert "assumed" not in said


def test_interference_beside_measured_tables_is_as_if_the_cluster_said_it(line: Line) -> None:
    beside = {"startup_ns": 30, "ns_per_byte": 0.5, "slowdown": 1.25, "delay_ns": 7}
    network: dict[str, Any] = {"collective": "all_reduce", "ranks": 4}
    network["network"] = {"table": [[64, 3000], [4096, 9000], [10**6, 10**6]]}
    write("slowed.json", {**FILES["cluster.json"], "interference": beside})
    answers = []
    for own, cluster in (({"interference": beside}, "cluster.json"), ({}, "slowed.json")):
        write("network.json", {**network, **own})
        command = f"plan model.json --cluster {cluster} --network network.json --method caramel"
        assert "transfers slow the computation down by 567 ns" in line(command, "-o plan.json").out
        answers.append(without_runtime(read("plan.json")))
    assert answers[0] == answers[1]


@pytest.fixture(autouse=True)
def _log(line: Line) -> None:
    written(Path("app"), loop(6))


def test_import_warns_on_standard_error(line: Line) -> None:
    write("graph.txt", GOOD)
    out, err = line("import pipedream graph.txt --batch-size 4")
    check_printed("profile", json.loads(out))
    assert decode_profile(out.encode()).name == "graph"
    assert "data loading" in err
    Path("graph.txt").write_bytes(b"\xff")
    assert "not UTF-8" in line.error("import pipedream graph.txt")


def test_an_import_is_what_a_request_takes_and_is_compared(line: Line) -> None:
    imported, compared = line("import spark-events app"), line("compare --events app").out
    check_printed("spark", imported.json)
    drizzle = imported.json["drizzle"]
    assert (drizzle["compute_ns"], drizzle["tasks"]) == (50_000_000, 4 + 2)
    asked = {name: drizzle[name] for name in ("compute_ns", "tasks")} | drizzle["constants"]
    answer = line("solve", given={"problem": "drizzle", **asked, "max_overhead": 0.05}).json
    assert answer["status"] == "optimal"
    for text in (imported.err, compared):
        assert f"groups of {answer['group_size']} iterations bring it below 5 %" in text
        assert "your driver spends 58 % of each iteration scheduling" in text
    assert "5 iterations, 6 tasks each: 120 ms an iteration, 50 ms of it to compute" in compared
    options = "--problem drizzle --max-overhead 0.5 --max-group 100ms --json"
    (limited,) = line("compare --events app", options).json
    assert limited["status"] == "infeasible"
    out = line("compare --events app --max-overhead 0.6").out
    assert "single iterations keep it below 60 %" in out


def test_constants_of_several_logs(line: Line) -> None:
    bodies = (iteration(number, START + 150 * number, tasks=8) for number in range(5))
    written(Path("wide"), [*head(), *(event for body in bodies for event in body), END])
    written(Path("narrow"), loop(4, every=110))
    drizzle = line("import spark-events narrow wide").json["drizzle"]
    assert len(drizzle["measurements"]) == 2
    assert drizzle["constants"]["task_ns"] == 10_000_000
    assert "cannot be told apart" in line("import spark-events app").err


TRUE = {**SMALL["constants"], "latency_ns": [100_000, 120_000]}
GUESS = {**TRUE, "muladd_ns": 0.2, "nic_bits_per_s": 4e9, "latency_ns": [300_000, 360_000]}
REQUEST: dict[str, Any] = {
    **SMALL,
    "machines": 12,
    "layers": [
        {"name": "a", "kind": "full", "neurons": 300, "connections": 235200, "weights": 235200},
        {"name": "b", "kind": "full", "neurons": 70, "connections": 21000, "weights": 21070},
    ],
    "constants": GUESS,
}
CHOICE = ("partitions", "threads", "copies")
# Servers, replicas, workers; partitions, threads and copies of both layers.
RUNS = [
    ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
    ((1, 2, 2), (2, 1, 1), (2, 2, 1)),
    ((2, 2, 3), (3, 1, 1), (1, 2, 3)),
    ((1, 5, 1), (1, 2, 1), (1, 1, 1)),
    ((4, 2, 4), (4, 1, 1), (1, 1, 1)),
    ((2, 3, 3), (1, 2, 3), (2, 1, 1)),
    ((3, 1, 8), (7, 1, 1), (3, 2, 2)),
    ((1, 1, 4), (2, 2, 2), (4, 1, 1)),
]


def decoded(document: dict[str, Any]) -> Any:
    return decode_measurements(json.dumps(document).encode())


def epochs(constants: dict[str, Any] = TRUE) -> dict[str, Any]:
    """Return measurements as they come out if these are the constants."""
    names = ("parameter_servers", "replicas", "workers_per_replica")
    rows = [
        dict(zip(names, triple, strict=True))
        | {"layers": [dict(zip(CHOICE, one, strict=True)) for one in layers]}
        for triple, *layers in RUNS
    ]
    document = {**REQUEST, "measurements": [{**row, "epoch_ns": 1} for row in rows]}
    problem, measurements = decoded({**document, "constants": constants})
    for row, measured in zip(document["measurements"], measurements, strict=True):
        row["epoch_ns"] = estimate(problem, measured.configuration).epoch_ns
    return copy.deepcopy(document)


def test_fit_finds_constants_that_a_request_takes(line: Line) -> None:
    write("epochs.json", epochs())
    assert line("calibrate fit epochs.json -o constants.json") == ("", "")
    written = read("constants.json")
    check_printed("fit", written)
    found, provenance = written["constants"], written["provenance"]
    assert found["muladd_ns"] == pytest.approx(0.5)
    assert found["nic_bits_per_s"] == pytest.approx(1e10)
    assert found["latency_ns"][1] == pytest.approx(120_000)
    assert {"activation_ns", "error_ns"} & {*provenance["held"]}
    assert (provenance["measurements"], provenance["at_floor"]) == (8, [])
    assert (provenance["kind"], provenance["source"]) == ("fitted", "epochs.json")
    assert provenance["mean_error"] < 1e-6
    held_out = provenance["held_out"]
    assert (held_out["folds"], len(held_out["predictions_ns"])) == (5, len(RUNS))
    assert held_out["kendall_tau_b"] == pytest.approx(1)
    decoded({**epochs(), "constants": found})


def test_fit_says_what_fits_best_at_0(line: Line) -> None:
    """Epochs as if a start-up took a little less than no time."""
    document = epochs({**TRUE, "latency_ns": [1000, 1000]})
    more = epochs({**TRUE, "latency_ns": [3000, 3000]})
    for row, other in zip(document["measurements"], more["measurements"], strict=True):
        row["epoch_ns"] -= other["epoch_ns"] - row["epoch_ns"]
    out, err = line("calibrate fit -", given=document)
    assert err == ""
    provenance = json.loads(out)["provenance"]
    assert (provenance["at_floor"], provenance["source"]) == (["latency_ns"], "standard input")


def test_a_mapping_left_out_is_the_canonical_one() -> None:
    document = epochs()
    _, plain = decoded(document)
    for row in document["measurements"]:
        shape = [(layer["partitions"], layer["copies"]) for layer in row["layers"]]
        mappings = canonical_mapping(shape, row["workers_per_replica"])
        for layer, mapping in zip(row["layers"], mappings, strict=True):
            layer["mapping"] = mapping
    assert decoded(document)[1] == plain
    document["measurements"][2]["layers"][0]["mapping"] = [[2], [0], [1]]
    assert decoded(document)[1][2].configuration.layers[0].mapping == ((2,), (0,), (1,))


def test_machines_that_differ_are_named(line: Line) -> None:
    document = {**epochs(), "machine_speeds": [1.0] * 6 + [0.5] * 6}
    said = line("calibrate fit -", given=document, status=2).err
    assert "standard input: measurements[0].machines: missing" in said
    for row in document["measurements"]:
        used = row["parameter_servers"] + row["replicas"] * row["workers_per_replica"]
        row["machines"] = [*reversed(range(used))]
    assert decoded(document)[1][0].configuration.machines == (1, 0)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "measurements[3].layers",
            [dict.fromkeys(CHOICE, 1)],
            ": expected as many as the network has (2),",
        ),
        ("measurements[0].epoch", 5, ": unknown field"),
        ("measurements[1].layers[1].threads", 3, ": expected at most 2"),
        ("measurements[2].layers[1].mapping", [[0, 1, 2]], ": expected a mapping for every layer"),
        ("measurements[2].layers[0].mapping", [[0], [1], [1]], "[2][0]: worker 1 given twice"),
    ],
)
def test_fit_says_what_is_wrong_and_where(path: str, value: Any, said: str, line: Line) -> None:
    write("epochs.json", patched(epochs(), {path: value}))
    assert f"epochs.json: {path}{said}" in line.error("calibrate fit epochs.json")


def test_compute_writes_constants_and_where_they_come_from(line: Line) -> None:
    command = "calibrate compute --cores 1 --repetitions 2"
    assert line(command, "-o constants.json") == ("", "")
    written = read("constants.json")
    check_printed("compute", written)
    constants, provenance = written["constants"], written["provenance"]
    assert set(constants) == {"muladd_ns", "activation_ns", "error_ns", "interference"}
    assert constants["interference"] == [1]
    assert provenance["kind"] == "measured"
    assert provenance["source"] == f"planner {command}"
    assert any("not measured" in note for note in provenance["notes"])
    document = {**epochs(), "cores": 1, "measurements": []}
    problem, _ = decoded({**document, "constants": {**GUESS, **constants}})
    assert problem.constants.muladd_ns == Fraction(repr(constants["muladd_ns"]))
