"""Requests and answers about whole iterations."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import planner
from planner.families import iteration
from planner.families.iteration.why import explain
from planner.jsonio import PROBLEMS, decode_answer, iteration_making
from planner.jsonio.iteration_answer import RunnerUp
from planner.model.units import format_bytes
from planner.view.drawing import GANTT, plan_chart
from planner.view.wording import runner_up_text
from tests import schemas
from tests.jsonio.test_caramel_answers import broken
from tests.jsonio.test_service import ask, error
from tests.timelines import check_serial

LAYERS = [
    {"name": "a", "forward_ns": 400, "backward_ns": 900, "parameter_bytes": 4000},
    {"name": "b", "forward_ns": 500, "backward_ns": 800, "parameter_bytes": 800},
    {"name": "c", "forward_ns": 300, "backward_ns": 700, "parameter_bytes": 8000},
]
PROFILE: dict[str, Any] = {
    "name": "tiny",
    "provenance": {"kind": "synthetic", "source": "a test"},
    "batch_size": 2,
    "layers": [{**layer, "activation_bytes": 1000} for layer in LAYERS],
}
CLUSTER: dict[str, Any] = {
    "name": "four",
    "source": "a test",
    "machines": 4,
    "topology": {"kind": "switch"},
    "nic": {"bytes_per_s": 1e9, "startup_ns": 100},
}
REQUEST = {"problem": "iteration", "profile": PROFILE, "cluster": CLUSTER}
DATA = Path(__file__).parents[2] / "data"
LAYER_SUMS = 12800, 3000  # bytes of parameters, and of activations


def asked(cluster: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return ask({**REQUEST, "cluster": {**CLUSTER, **(cluster or {})}, **fields})


def test_the_answer_is_that_of_the_typed_call() -> None:
    from planner.jsonio import decode_profile
    from planner.jsonio.clusters import decode_cluster

    profile = decode_profile(json.dumps(PROFILE).encode())
    cluster = decode_cluster(json.dumps(CLUSTER).encode())
    problem = iteration.Problem.from_profile(profile, cluster)
    result = iteration.solve(problem)
    answer = asked()
    assert answer["objective_ns"] == result.objective_ns
    assert answer["lower_bound_ns"] == result.lower_bound_ns
    assert answer["status"] == result.status
    assert answer["network_bound_ns"] <= answer["lower_bound_ns"] <= answer["objective_ns"]
    assert len(answer["alternatives"]) == 2 * len(problem.options)
    assert answer["objective_ns"] == min(
        alternative["objective_ns"] for alternative in answer["alternatives"]
    )
    assert answer["lower_bound_ns"] == min(
        alternative["lower_bound_ns"] for alternative in answer["alternatives"]
    )
    assert set(answer["left_out"]) == {"hierarchical", "bml", "mixed"}


def test_the_parts_of_the_time_add_up() -> None:
    answer = asked()
    why = answer["why"]
    assert why["computation_ns"] == answer["computation_ns"] == 3600
    parts = why["computation_ns"] + why["exposed_bytes_ns"] + why["exposed_startup_ns"]
    assert parts == answer["iteration_ns"] == answer["schedule"][-1]["end_ns"]
    assert answer["stall_ns"] == answer["iteration_ns"] - 3600
    other = why["runner_up"]
    assert other["objective_ns"] >= answer["objective_ns"]
    transfers = answer["transfers"]
    spent = sum(transfer["end_ns"] - transfer["start_ns"] for transfer in transfers)
    assert spent == answer["communication_ns"]


def test_a_runner_up_that_takes_more_than_63_bits_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*given: Any) -> Any:
        explanation = explain(*given)
        assert explanation.runner_up is not None
        second = replace(explanation.runner_up, objective_ns=2**63 - 1)
        return replace(explanation, runner_up=second)

    assert asked()["why"]["runner_up"] is not None
    monkeypatch.setattr(iteration_making, "explain", slow)
    answer = asked()
    schemas.validate(answer, "iteration", "answer")
    assert answer["why"]["runner_up"] is None


def test_what_time_left_out_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*given: Any) -> Any:
        return replace(explain(*given), changes=(), timed_out=True)

    monkeypatch.setattr(iteration_making, "explain", cut)
    answer = asked({"notes": ["startup_ns is assumed"]})
    schemas.validate(answer, "iteration", "answer")
    second = answer["why"]["runner_up"]
    assert (second["wins_if"], second["timed_out"]) == ([], True)
    text = runner_up_text(msgspec.convert(second, RunnerUp), answer["objective_ns"])
    assert text.endswith("time ran out before it was known what makes it win") or "equally" in text


@pytest.mark.parametrize("mode", iteration.MODES)
@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "ps", "shuffle"])
def test_algorithms_and_modes_can_be_chosen(algorithm: str, mode: str) -> None:
    answer = asked(algorithms=[algorithm], modes=[mode])
    chosen = answer["synchronisation"]
    assert (chosen["algorithm"], chosen["mode"]) == (algorithm, mode)
    assert len(answer["alternatives"]) == 1
    kinds = {transfer["kind"] for transfer in answer["transfers"]}
    assert kinds == ({"all_reduce"} if mode == "replicated" else {"push", "pull"})


@pytest.mark.parametrize("method", iteration.METHODS)
def test_no_method_is_better_than_the_joint_plan(method: str) -> None:
    answer = asked(method=method)
    if "error" in answer:
        assert method == "bml"
        return
    assert answer["method"] == (method if method != "auto" else "joint")
    assert answer["objective_ns"] >= asked()["objective_ns"]
    typed, timeline = decode_answer(json.dumps(answer).encode())
    assert timeline.end_ns == typed.iteration_ns


def test_modes_bind_every_method() -> None:
    assert error({**REQUEST, "method": "ddp", "modes": ["sharded"]})[0] == "modes"
    assert error({**REQUEST, "method": "ps", "modes": ["replicated"]})[0] == "modes"


def test_computation_is_scaled_exactly() -> None:
    assert asked(computation_scale=0.1)["computation_ns"] == 360
    assert asked(computation_scale=3)["computation_ns"] == 10800


def test_memory_is_counted_and_binds() -> None:
    parameters, activations = LAYER_SUMS
    answer = asked({"memory_bytes": 10**6}, optimiser_ratio=2, modes=["replicated"])
    largest = max(transfer["bytes"] for transfer in answer["transfers"])
    needed = (2 + 2) * parameters + activations
    assert answer["memory"] == {"needed_bytes": needed + largest, "available_bytes": 10**6}
    # room for transfers of 400 bytes and no more
    answer = asked({"memory_bytes": needed + 400}, optimiser_ratio=2, modes=["replicated"])
    assert max(transfer["bytes"] for transfer in answer["transfers"]) <= 400
    assert answer["memory"]["needed_bytes"] <= needed + 400
    answer = asked({"memory_bytes": needed}, optimiser_ratio=2, modes=["replicated"])
    assert answer["status"] == "infeasible"
    assert answer["binding"] == ["memory_bytes"]
    assert format_bytes(needed) in answer["reason"] or f"{needed + 1:,} B" in answer["reason"]
    assert "reason" not in asked({"memory_bytes": needed}, ignore_memory=True, modes=["replicated"])
    roomy = asked({"memory_bytes": needed}, optimiser_ratio=2, activation_bytes=activations - 400)
    assert roomy["memory"]["needed_bytes"] <= needed
    # shards of the state fit where copies do not
    answer = asked({"memory_bytes": needed}, optimiser_ratio=2)
    assert answer["synchronisation"]["mode"] == "sharded"


def test_a_cap_is_kept_to() -> None:
    answer = asked(max_transfer_bytes=512, element_bytes=4)
    assert max(transfer["bytes"] for transfer in answer["transfers"]) <= 512
    assert asked(max_transfer_bytes=2, element_bytes=4)["binding"] == ["max_transfer_bytes"]


def test_the_number_of_machines_is_chosen() -> None:
    every = {
        machines: asked({"machines": machines})["objective_ns"] * -(-60 // (2 * machines))
        for machines in range(1, 5)
    }
    answer = asked(epoch_samples=60)
    candidates = answer["sizing"]["candidates"]
    assert answer["sizing"]["at_most"] == 4
    planned = {
        candidate["machines"]: candidate["epoch_ns"]
        for candidate in candidates
        if candidate["epoch_ns"]
    }
    assert planned.items() <= every.items()
    assert every[answer["machines"]] == min(planned.values())
    assert answer["objective_ns"] == asked({"machines": answer["machines"]})["objective_ns"]
    assert error({**REQUEST, "epoch_samples": 60, "method": "ddp"})[0] == "epoch_samples"
    bcube = {**CLUSTER, "topology": {"kind": "bcube", "n": 2, "k": 2}}
    bcube["nic"] = {**CLUSTER["nic"], "per_machine": 2}
    assert error({**REQUEST, "cluster": bcube, "epoch_samples": 1})[0] == "cluster.topology"


def test_no_answer_leaves_its_ranges() -> None:
    """Sizes end at 2^62, times at 2^63: what would be above is refused."""
    assert error({**REQUEST, "optimiser_ratio": 2**58})[0] == "profile"
    large = asked(optimiser_ratio=2**47, modes=["replicated"])
    assert large["memory"]["needed_bytes"] > 2**60
    assert error({**REQUEST, "activation_bytes": 2**62})[0] == "profile"
    slow = {**PROFILE, "layers": [{**LAYERS[0], "forward_ns": 2**55}, *LAYERS[1:]]}
    # Four machines would take 2^62 ns, and one takes 2^64.
    path, message = error({**REQUEST, "profile": slow, "epoch_samples": 2**10})
    assert path == "epoch_samples"
    assert "63 bits" in message


@pytest.mark.slow
def test_when_the_time_is_up_there_is_a_plan_and_a_bound() -> None:
    """One algorithm is planned without a search, and the others' bounds count."""
    profile = json.loads((DATA / "profiles/resnet50.json").read_bytes())
    cluster = json.loads((DATA / "clusters/h100-32.json").read_bytes())
    request = {"problem": "iteration", "profile": profile, "cluster": cluster}
    whole = ask(request)
    begin = time.process_time()
    answer = ask({**request, "time_limit_s": 1e-6})
    assert time.process_time() - begin < 3  # it takes a tenth of that
    assert answer["status"] == "time_limit"
    assert whole["lower_bound_ns"] <= answer["objective_ns"]
    assert 0 < answer["lower_bound_ns"] <= whole["objective_ns"]
    planned = [
        alternative
        for alternative in answer["alternatives"]
        if alternative["objective_ns"] is not None
    ]
    late = [
        alternative for alternative in answer["alternatives"] if alternative["objective_ns"] is None
    ]
    assert len({one["objective_ns"] for one in planned}) <= 2
    assert late
    assert all("time limit" in one["reason"] for one in late)


def test_engines_that_schedule_get_a_group_size() -> None:
    scheduling = {"task_ns": 100, "tasks_per_machine": 2}
    answer = asked({"scheduling": scheduling}, max_overhead=0.1)
    iteration_ns, found = answer["objective_ns"], answer["scheduling"]
    # o = 100 · 8 / g, and o / (iteration + o) is at most a tenth
    size = found["group_size"]
    assert iteration_ns * size >= 9 * 800
    assert iteration_ns * (size - 1) < 9 * 800
    assert found["iteration_ns"] == iteration_ns + -(-800 // size)
    refused = asked({"scheduling": scheduling}, max_overhead=0.001, max_group_ns=1)["scheduling"]
    assert refused["group_size"] is None
    assert refused["binding"]
    assert error({**REQUEST, "max_overhead": 0.1})[0] == "max_overhead"


def test_infeasible_answers_hold_no_plan() -> None:
    answer = asked({"memory_bytes": 1})
    assert answer["status"] == "infeasible"
    assert answer["objective_ns"] is None
    assert all(
        alternative["objective_ns"] is None and alternative["reason"]
        for alternative in answer["alternatives"]
    )
    assert error(REQUEST | {"problem": "nothing"})[0] == "problem"
    with pytest.raises(planner.InvalidInputError, match="no plan"):
        decode_answer(json.dumps(answer).encode())


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"profile": {**PROFILE, "layers": []}}, "profile.layers"),
        ({"profile": {**PROFILE, "ops": []}}, "profile.ops"),
        ({"profile": {"name": "x"}}, "profile.provenance"),
        ({"profile": {**PROFILE, "layers": [LAYERS[0] | {"forward_ns": -1}]}},
         "profile.layers[0].forward_ns"),
        ({"profile": {**PROFILE, "layers": [{**LAYERS[0], "parameter_bytes": 0}]}},
         "profile.layers"),
        ({"cluster": {**CLUSTER, "machines": 0}}, "cluster.machines"),
        ({"cluster": {**CLUSTER, "topology": {"kind": "bcube", "n": 3}}}, "cluster.topology.k"),
        ({"cluster": {**CLUSTER, "topology": {"kind": "star"}}}, "cluster.topology.kind"),
        ({"cluster": {**CLUSTER, "nic": {"bytes_per_s": 0, "startup_ns": 1}}},
         "cluster.nic.bytes_per_s"),
        ({"cluster": {**CLUSTER, "nics": 1}}, "cluster.nics"),
        ({"method": "best"}, "method"),
        ({"algorithms": ["bml"]}, "algorithms"),
        ({"algorithms": ["rings"]}, "algorithms[0]"),
        ({"modes": ["both"]}, "modes[0]"),
        ({"modes": []}, "modes"),
        ({"computation_scale": 0}, "computation_scale"),
        ({"computation_scale": 2**62}, "computation_scale"),
        (
            {"cluster": {**CLUSTER, "scheduling": {"task_ns": 2**62}}},
            "cluster.scheduling.task_ns",
        ),
        ({"computation_scale": "1"}, "computation_scale"),
        ({"optimiser_ratio": -1}, "optimiser_ratio"),
        ({"max_transfer_bytes": 0}, "max_transfer_bytes"),
        ({"op_order": ["a"]}, "op_order[0]"),
        ({"time_limit_s": 0}, "time_limit_s"),
        ({"workers": 3}, "workers"),
    ],
)  # fmt: skip
def test_bad_requests_say_where(fields: dict[str, Any], path: str) -> None:
    assert error({**REQUEST, **fields})[0] == path


@pytest.mark.parametrize(
    ("steps", "value", "path"),
    [
        (("transfers",), [], "transfers"),
        (("transfers", 0, "start_ns"), 0, "transfers[0].start_ns"),
        (("transfers", 0, "end_ns"), 10**6, "iteration_ns"),
        (("transfers", 0, "kind"), "send", "transfers[0].kind"),
        (("schedule", 1, "start_ns"), 0, "schedule[1].start_ns"),
        (("schedule", 0, "end_ns"), -1, "schedule[0].end_ns"),
        (("iteration_ns",), 5, "objective_ns"),
        (("objective_ns",), 5, "objective_ns"),
        (("lower_bound_ns",), 10**9, "lower_bound_ns"),
        (("status",), "optimal", "status"),
    ],
)
def test_answers_that_contradict_themselves_are_refused(
    steps: tuple[Any, ...], value: Any, path: str
) -> None:
    answer = asked(method="ddp", algorithms=["ring"])
    answer["lower_bound_ns"] = answer["objective_ns"] - 1
    answer["status"] = "feasible"
    decode_answer(json.dumps(answer).encode())
    with pytest.raises(planner.InvalidInputError) as caught:
        decode_answer(json.dumps(broken(answer, steps, value)).encode())
    assert caught.value.path == path


def test_every_transfer_is_drawn() -> None:
    answer = asked(modes=["sharded"])
    typed, timeline = decode_answer(json.dumps(answer).encode())
    check_serial(timeline)
    labels = [window.label for window in timeline.windows]
    assert [label.split()[0] for label in labels] == [
        transfer["kind"] for transfer in answer["transfers"]
    ]
    text = GANTT.text(plan_chart(typed, PROBLEMS["iteration"].view(typed), "tiny"), 100)
    assert "tiny: an iteration on four takes " in text


@pytest.mark.slow
def test_the_schema_holds_for_requests_and_answers() -> None:
    schemas.validate(REQUEST, "iteration", "request")
    for answer in (asked(), asked({"memory_bytes": 1}), asked(method="horovod")):
        schemas.validate(answer, "iteration", "answer")
    shipped = Path(__file__).parents[2] / "data" / "clusters"
    for path in shipped.glob("*.json"):
        schemas.validate(
            {**REQUEST, "cluster": json.loads(path.read_text())}, "iteration", "request"
        )
    for bad in ({"kind": "ring"}, {"n": 3}, {"kind": "bcube", "n": 0, "k": 1}):
        with pytest.raises(schemas.ValidationError):
            schemas.validate(
                {**REQUEST, "cluster": {**CLUSTER, "topology": bad}}, "iteration", "request"
            )
