"""The command line, the typed interface and a JSON request plan the same for one profile."""

import json
from fractions import Fraction
from typing import Any

import pytest
from msgspec import to_builtins

import planner
from planner.families import bml, caramel, ibatch, iteration
from planner.jsonio import decode_profile
from planner.jsonio.clusters import decode_cluster
from planner.jsonio.graphs import documents_of
from planner.jsonio.service import decode_request
from planner.model.clusters import Nic
from planner.model.costs import AffineCost, TableCost
from planner.model.profiles import Profile
from planner.model.topologies import BCube
from tests.cli.conftest import line
from tests.cli.documents import PROVENANCE
from tests.cli.line import Line, write
from tests.jsonio.requests import ITERATION, error, told

__all__ = ["line"]

LAYERS = [
    {"name": "a", "forward_ns": 5000, "backward_ns": 9000, "parameter_bytes": 40960},
    {"name": "b", "forward_ns": 7000, "backward_ns": 8000, "parameter_bytes": 81920},
    {"name": "c", "forward_ns": 6000, "backward_ns": 7000, "parameter_bytes": 4096},
]
ODD = [{**layer, "parameter_bytes": int(str(layer["parameter_bytes"])) + 1} for layer in LAYERS]
NIC = {"startup_ns": 5000, "bytes_per_s": 1.25e9}
OPTIONS = "--startup 5us --bandwidth 10Gb/s"
TABLE = {"table": [[1000, 6000], [100_000, 90_000]]}
AFFINE = {"startup_ns": 5000, "ns_per_byte": 0.8}
NETWORKS: dict[str, tuple[dict[str, Any], Any]] = {
    "nic": (NIC, Nic(Fraction(125 * 10**7), 5000)),
    "two nics": ({**NIC, "per_machine": 2}, Nic(Fraction(125 * 10**7), 5000, 2)),
    "affine": (AFFINE, AffineCost(5000, Fraction(4, 5))),
    "table": (TABLE, TableCost(((1000, 6000), (100_000, 90_000)))),
}


def document(layers: list[dict[str, Any]] = LAYERS) -> dict[str, Any]:
    return {"name": "tiny", "provenance": PROVENANCE, "layers": layers}


def typed(layers: list[dict[str, Any]] = LAYERS) -> Profile:
    return decode_profile(json.dumps(document(layers)).encode())


def plan_of(answer: dict[str, Any]) -> dict[str, Any]:
    return told(answer, "layer_names", "layer_parameters")


def compared(
    line: Line, problem: str, network: Any, words: str, layers: list[dict[str, Any]] = LAYERS
) -> dict[str, Any]:
    """Return the best plan of `planner compare`, on a file and on options if they say it."""
    write("profile.json", document(layers))
    given = [f"--network {write('network.json', network)}"]
    given += [OPTIONS] if network is NIC else []
    command = f"compare profile.json --problem {problem} --json"
    best, *others = (plan_of(line(command, one, words).json[0]) for one in given)
    assert others in ([], [best])
    return best


@pytest.mark.parametrize("direction", ["pull", "push"])
@pytest.mark.parametrize(("network", "described"), NETWORKS.values(), ids=NETWORKS)
def test_ibatch(line: Line, network: Any, described: Any, direction: Any) -> None:
    problem = ibatch.Problem.from_profile(typed(), described, direction=direction)
    sizes = {"layer_bytes": problem.layer_bytes, "compute_ns": problem.compute_ns}
    request = {"problem": "ibatch", "direction": direction, **sizes, "network": network}
    assert decode_request(json.dumps(request).encode()).to_problem() == problem
    answer = planner.solve({**request, "method": "exact"})
    assert answer["objective_ns"] == ibatch.solve(problem, method="exact").objective_ns
    words = f"--direction {direction} --methods exact"
    assert compared(line, "ibatch", network, words) == plan_of(answer)


def caramel_request(layers: list[dict[str, Any]], network: Any, **more: Any) -> dict[str, Any]:
    ops, parameters = to_builtins(documents_of(typed(layers).dataflow()))
    graph = {"problem": "caramel", "ops": ops, "parameters": parameters}
    return {**graph, "network": network, "method": "exact_split", **more}


@pytest.mark.parametrize(("layers", "element"), [(LAYERS, 4), (ODD, 1)], ids=["whole", "odd"])
@pytest.mark.parametrize(("network", "described"), NETWORKS.values(), ids=NETWORKS)
def test_caramel(
    line: Line, network: Any, described: Any, layers: list[dict[str, Any]], element: int
) -> None:
    problem = caramel.Problem.from_profile(typed(layers), described, workers=4)
    assert problem.element_bytes == element
    request = caramel_request(layers, network, workers=4, element_bytes=element)
    assert decode_request(json.dumps(request).encode()).to_problem() == problem
    answer = planner.solve(request)
    assert answer["objective_ns"] == caramel.solve(problem, method="exact_split").objective_ns
    best = compared(line, "caramel", network, "--workers 4 --methods exact_split", layers)
    assert best == {**plan_of(answer), "ranks": 4}


def test_nics_cost_what_their_bytes_take() -> None:
    """A batch passes each NIC of a machine once; of four workers each sends 6/4 of a gradient."""
    rate = Fraction(4, 5)  # ns for a byte
    for nics in (1, 2):
        nic = Nic(Fraction(125 * 10**7), 5000, nics)
        batches = ibatch.Problem.from_profile(typed(), nic)
        assert batches.cost == AffineCost(5000, rate / nics)
        ring = caramel.Problem.from_profile(typed(), nic, workers=4)
        assert ring.cost == AffineCost(5000, Fraction(6, 4) * rate / nics)


@pytest.mark.parametrize("network", [NIC, {**NIC, "per_machine": 2}, AFFINE])
def test_bml(line: Line, network: dict[str, Any]) -> None:
    described = next(typed for given, typed in NETWORKS.values() if given == network)
    problem = bml.Problem.from_profile(typed(), described, BCube(2, 2))
    size = problem.size_bytes
    request = {"problem": "bml", "n": 2, "k": 2, "gradient_bytes": size, "network": network}
    answer = planner.solve(request)
    assert answer["objective_ns"] == bml.solve(problem).objective_ns
    for adding in ({}, {"reduce_ns_per_byte": 0.5}):
        contract = {**request, **adding, "link_bytes_per_s": 1.25e9, "latency_ns": 5000}
        del contract["network"]
        assert plan_of(planner.solve(contract)) == plan_of(planner.solve({**request, **adding}))
    assert compared(line, "bml", network, "--bcube 2x2") == plan_of(answer)
    slices = {"problem": "bigdl", "elements": 1000, "element_bytes": 4, "nodes": 4}
    slices["partitions_per_node"] = 2
    if network != {**NIC, "per_machine": 2}:
        old = planner.solve({**slices, "link_bytes_per_s": 1.25e9, "latency_ns": 5000})
        assert plan_of(planner.solve({**slices, "network": network})) == plan_of(old)


@pytest.mark.parametrize(("layers", "element"), [(LAYERS, 4), (ODD, 1)], ids=["whole", "odd"])
def test_iteration(line: Line, layers: list[dict[str, Any]], element: int) -> None:
    cluster = {**ITERATION["cluster"], "nic": NIC}
    decoded = decode_cluster(json.dumps(cluster).encode())
    problem = iteration.Problem.from_profile(typed(layers), decoded)
    assert problem.element_bytes == element
    request = {"problem": "iteration", "profile": document(layers), "cluster": cluster}
    answer = planner.solve({**request, "element_bytes": element})
    assert answer["objective_ns"] == iteration.solve(problem).objective_ns
    write("profile.json", document(layers))
    planned = line("plan profile.json --json --cluster", write("c.json", cluster)).json
    assert planned["transfers"] == answer["transfers"]
    assert planned["objective_ns"] == answer["objective_ns"]


def measured(collective: str, **network: Any) -> dict[str, Any]:
    return {"network": network, "collective": collective, "ranks": 4}


def test_a_measured_network_says_among_how_many(line: Line) -> None:
    network = measured("all_reduce", depths={"1": AFFINE, "2": {**AFFINE, "ns_per_byte": 0.5}})
    answer = planner.solve(caramel_request(LAYERS, network, element_bytes=4))
    best = compared(line, "caramel", network, "--methods exact_split")
    assert best == {**plan_of(answer), "ranks": 4}
    request = caramel_request(LAYERS, network, method="layer_by_layer")
    assert planner.solve(request)["workers"] == 4
    assert planner.solve(caramel_request(LAYERS, AFFINE, method="layer_by_layer"))["workers"] == 8
    said = "expected 4, among whom network was measured"
    assert error({**request, "workers": 5}) == ("workers", said)


BASES: dict[str, dict[str, Any]] = {
    "ibatch": {"layer_bytes": [4, 8], "compute_ns": [1, 2]},
    "bml": {"n": 2, "k": 2, "gradient_bytes": 64},
}
SUMMED = measured("all_reduce", **AFFINE)
HALF = measured("all_gather", startup_ns=1)
RATE = "bytes_per_s"
CHUNKS = {**AFFINE, "depths": {"2": AFFINE}}
TWICE = "not together with network"
LINK = "expected startup_ns and bytes_per_s of a NIC, or ns_per_byte > 0 of a link"
GATHER = "expected all_gather, which is what these plans do, got all_reduce: measure with"
FREE = "expected 0: further messages of a step cost nothing here"

REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("ibatch", {"network": NIC, "cost_table": TABLE["table"]}, "cost_table", TWICE),
    ("ibatch", {"network": NIC, "startup_ns": 1}, "startup_ns", TWICE),
    ("ibatch", {"network": NIC, "layer_bytes": ...}, "layer_bytes", "missing: network needs it"),
    ("ibatch", {"network": CHUNKS}, "network.depths", "only transfers of an all-reduce are cut"),
    ("ibatch", {"network": SUMMED}, "network.collective", f"{GATHER} --collective all_gather"),
    ("bml", {"network": NIC, "link_bytes_per_s": 1}, "link_bytes_per_s", TWICE),
    ("bml", {"network": NIC, "latency_ns": 0}, "latency_ns", TWICE),
    ("bml", {}, "link_bytes_per_s", "missing (or network)"),
    ("bml", {"network": TABLE}, "network", LINK),
    ("bml", {"network": {"startup_ns": 1, "ns_per_byte": 0}}, "network", LINK),
    ("bml", {"network": SUMMED}, "network", "expected NICs or links, got a measured collective"),
]
WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("bml", {**NIC, "per_machine": 3}, "per_machine", "expected 2 of a server, got 3"),
    ("bml", {**NIC, "message_ns": 1}, "message_ns", FREE),
    ("ibatch", {**NIC, "ns_per_byte": 1}, "ns_per_byte", "not together with bytes_per_s"),
    ("ibatch", {"bytes_per_s": 1}, "startup_ns", "missing: it comes with bytes_per_s"),
    ("ibatch", {"startup_ns": 1, "per_machine": 2}, "per_machine", f"needs {RATE} too"),
    ("ibatch", {"network": AFFINE, "ranks": 2}, "collective", "missing: it comes with network"),
    ("ibatch", HALF, "network.ns_per_byte", "missing: it comes with startup_ns"),
    ("ibatch", {"startup_ns": 1, RATE: 0}, RATE, "expected a number > 0, got 0"),
]
REFUSED += [(it, {"network": one}, f"network.{path}", said) for it, one, path, said in WRONG]


@pytest.mark.parametrize(("problem", "fields", "path", "message"), REFUSED)
def test_networks_refused(problem: str, fields: dict[str, Any], path: str, message: str) -> None:
    request = {"problem": problem, **BASES[problem], **fields}
    asked = {name: value for name, value in request.items() if value is not ...}
    assert error(asked) == (path, message)
