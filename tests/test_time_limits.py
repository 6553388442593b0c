"""Every search ends soon after its time limit or a cancel, and what comes back is honest.

Middle instances are asked of all families, methods and options that add a search: scenarios,
spreads, interference, targets, regret, old plans; large ones of the methods that take long.
Processor time counts, since a busy machine stretches every other; an answer that does not come is
interrupted.
"""

import signal
import time
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import planner
from planner.jsonio.bml import answer as bml_answer
from planner.solving.methods import REPLAN
from planner.solving.targets import TARGETS
from tests import large
from tests.large import COST, DISTURBING, NETWORKS, TABLE, Request
from tests.large import spread_caramel as caramel
from tests.large import spread_ibatch as ibatch
from tests.large import spread_iteration as iteration
from tests.thorough import THOROUGH

LATE_S = 2.0
"""Processor time an answer may take beyond its time limit, or a cancel: a second, and as much again
where tests share a core's threads."""

HANGING_S = 60
"""Real time that an answer is waited for beyond its limit."""

MIDDLE = 150
"""Layers."""

REQUESTS: dict[str, Callable[[int], Request]] = {
    **{f"ibatch, {name}": partial(ibatch, network=network) for name, network in NETWORKS.items()},
    "ibatch, pull": partial(ibatch, network=COST, direction="pull", max_batch_bytes=5 * 10**6),
    "ibatch, Eq. 4": partial(ibatch, network=COST, objective="eq4"),
    **{f"caramel, {name}": partial(caramel, network=network) for name, network in NETWORKS.items()},
    "caramel, depths": partial(caramel, network={**COST, "depths": {"2": COST, "8": TABLE}}),
    "iteration, switch": iteration,
    "iteration, BCube": partial(iteration, machines=9, topology={"kind": "bcube", "n": 3, "k": 2}),
    "iteration, interference": partial(iteration, interference=DISTURBING),
    "iteration, memory": lambda layers: iteration(layers, memory_bytes=2_500_000 * layers),
    "yan": lambda layers: large.yan(2 * layers),
    "yan, memory": partial(large.yan, memory_bytes=3 * 10**8),
    "yan, machines that differ": lambda layers: large.yan(
        2 * layers, machine_speeds=[1.0, 0.5] * layers
    ),
    "yan, layers": lambda layers: large.yan_deep(layers // 3),
    "bml": lambda _: large.bml(),
    "bml, failures": lambda _: large.bml(failed={"nics": [[[0, 1, 2], 0]]}),
    "bml, listed": lambda _: large.bml(n=3, schedule="all"),
    "bigdl": lambda layers: {**large.shipped("bigdl/vgg19-16.json"), "nodes": layers},
    "drizzle": lambda _: large.shipped("drizzle/inception64.json"),
    "fsdp": large.fsdp,
    "fsdp, memory": lambda layers: large.fsdp(layers, memory_bytes=6 * 10**7 * layers),
    "fsdp, many meshes": lambda layers: large.fsdp(
        layers, memory_bytes=6 * 10**7 * layers, meshes=100 * large.fsdp(1)["meshes"]
    ),
    "fsdp, two channels": partial(large.fsdp, channels="two"),
    "overlap": large.overlap,
    "overlap, no limit": partial(large.overlap, memory_limit_bytes=10**12),
}
"""Makers of requests, by their family and what is special about them, of a number of layers."""

SCENARIOS = [{"startup": 0}, {"late": 2}, {"computation": 0.5, "bandwidth": 0.3, "weight": 3}]
PLAIN = [{}, {"bandwidth": 0.5}, {"computation": 2, "startup": 3}]

ASKED: dict[str, Request] = {
    "regret": {"regret": True},
    "scenarios, percentile": {"scenarios": SCENARIOS, "percentile": 90, "outlook": ...},
    "many scenarios": {"scenarios": 5 * SCENARIOS, "outlook": ...},
    "mean": {"outlook": "mean"},
    "p90, regret": {"outlook": "p90", "regret": True},
    "kept plan": {"with_plan": True, "progress": True},
}
"""What adds to a search, of families that know scenarios; ``...`` leaves a field out."""

TARGETED: dict[str, Request] = {f"target {name}": {"target": name} for name in TARGETS}

OTHERS: dict[str, Request] = {
    "regret": {"regret": True},
    "scenarios": {"regret": True, "scenarios": PLAIN, "percentile": 90},
}

OPTIONS: dict[str, dict[str, Request]] = {
    "ibatch": ASKED,
    "caramel": {**ASKED, **TARGETED},
    "iteration": {**ASKED, **TARGETED},
    "yan": {**OTHERS, "pareto": {"pareto": True}},
    **dict.fromkeys(("fsdp", "overlap", "bml"), OTHERS),
}

NOT_FOR = {"method", "layer_bytes", "memory_bytes", "workers", "time_limit_s"}
"""What a method may say it does not go with, or that there was no time even for the question."""

REFUSED_AT = NOT_FOR | {"target", "objective", "outlook", "machine_speeds", "pareto"}
"""The same of a method or an option."""


def family_of(name: str) -> str:
    return name.partition(",")[0]


def methods_of(name: str) -> list[str]:
    return sorted(import_module(f"planner.{family_of(name)}").METHODS)


CASES = [
    *(
        (name, method, "")
        for name in REQUESTS
        for method in (*methods_of(name), REPLAN)
        if method != "brute_force"  # on as small networks as it takes
    ),
    *((name, "auto", option) for name in REQUESTS for option in OPTIONS.get(family_of(name), ())),
]
"""Which request, which method, and what else is asked."""

QUICK = [case for case in CASES if case[2] or case[1] in ("auto", REPLAN)]
"""What makes the most of the searches: single methods are asked large instances."""


@cache
def old_plan(name: str) -> Any:
    return planner.solve({**REQUESTS[name](MIDDLE), "with_plan": True, "time_limit_s": 0.1})["plan"]


def asked(name: str, layers: int, method: str, option: str) -> Request:
    request = {**REQUESTS[name](layers), "method": method}
    if method == REPLAN:
        request["start_plan"] = old_plan(name)
    request |= OPTIONS.get(family_of(name), {}).get(option, {})
    return {field: value for field, value in request.items() if value is not ...}


class HangingError(BaseException):
    """Nothing that the library catches."""


def hang(*_: object) -> None:
    raise HangingError


def ended(
    request: Request, seconds: float, *, cancelled: bool = False, late_s: float = LATE_S
) -> Request:
    """Return the answer to a request that has so many seconds, which must come in time."""
    if not cancelled:
        request = {**request, "time_limit_s": seconds}
    end = time.monotonic() + seconds
    cancel = SimpleNamespace(is_set=lambda: time.monotonic() >= end) if cancelled else None
    begin = large.used_s()
    before = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, seconds + HANGING_S)
    try:
        answer = planner.solve(request, cancel=cancel)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert large.used_s() - begin <= seconds + late_s, (seconds, cancelled)
    if "error" in answer:
        assert answer["error"]["code"] == "invalid_request", answer
        assert answer["error"]["path"] in REFUSED_AT, answer
    else:
        assert answer["status"] in {"optimal", "feasible", "time_limit", "infeasible"}
    return answer


@pytest.mark.drawn(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "method", "option"), CASES if THOROUGH else QUICK)
def test_a_search_ends_at_its_limit_and_at_a_cancel(name: str, method: str, option: str) -> None:
    large.warm()
    request = asked(name, MIDDLE, method, option)
    draw = Random(f"{name} {method} {option}")
    ends = [(1e-9, False), (1e-3, False), (0.05, False), (0, True), (draw.uniform(0, 0.1), True)]
    chosen = [*ends, (0.5, False)] if THOROUGH else [ends[0], draw.choice(ends[1:])]
    for seconds, cancelled in chosen:
        ended(request, seconds, cancelled=cancelled)


@pytest.mark.parametrize("mode", ["replicated", "sharded"])
@pytest.mark.parametrize("memory", [1, 4000, 9601, 10_804])
def test_an_old_plan_is_not_cut_into_pieces_without_end(mode: str, memory: int) -> None:
    """The parameters and their gradients alone take 9,600 bytes."""
    request = large.tiny_iteration(4, modes=[mode])
    plan = planner.solve({**request, "with_plan": True})["plan"]
    request["cluster"]["memory_bytes"] = memory
    answer = ended({**request, "method": REPLAN, "start_plan": plan}, 1)
    if memory < 9600:
        assert (answer["status"], answer["binding"]) == ("infeasible", ["memory_bytes"])


def test_there_is_nothing_to_try_with_one_layer() -> None:
    """With interference no plan meets its bound, and yet there is no other."""
    request = asked("ibatch, interference", 1, "auto", "many scenarios")
    assert ended(request, 100)["batches"] == [[0, 1]]


IBATCH, CARAMEL, BIGDL, ITERATION = (
    [method for method in methods_of(family) if method != "auto"]
    for family in ("ibatch", "caramel", "bigdl", "iteration")
)
BASELINES = ["auto", "fsdp2", "no_reshard", "one_unit", "zero_3"]
RESNET, GPT = ("resnet152", "bml-bcube"), ("gpt2_small", "h100-32")
LARGE: list[tuple[str, Callable[[int], Request], int, list[str]]] = [
    *(
        (name, REQUESTS[name], size, methods)
        for name, size, methods in (
            ("yan", 500, large.YAN),
            ("yan, memory", 1000, ["exact", "greedy"]),
            ("yan, machines that differ", 500, ["auto"]),
            ("yan, layers", 300, ["exact", "median"]),
            ("fsdp", 400, BASELINES),
            ("overlap", 1500, ["search", "greedy", "own_order", "auto"]),
            ("caramel, affine", 600, [*CARAMEL, "auto"]),
            ("bml", 4, ["bml", "detour", "trees"]),
            ("bml, failures", 4, ["detour", "trees", "auto"]),
            ("bigdl", 512, BIGDL),
        )
    ),
    ("ibatch, sums", partial(large.ibatch_sums, direction="push"), 390, IBATCH),
    ("ibatch, sums, Eq. 4", partial(large.ibatch_sums, objective="eq4"), 390, IBATCH),
    ("ibatch, sums, Eq. 4", partial(large.ibatch_sums, objective="eq4"), 4096, ["exact"]),
    ("ibatch, a table that falls", large.ibatch_table, 5000, IBATCH),
    ("yan, more memory", partial(large.yan, memory_bytes=3 * 10**9), 1000, large.YAN),
    ("caramel, workers", partial(large.caramel, workers=2**16), 15, [*CARAMEL, "auto"]),
    ("bml, servers", lambda n: large.bml(n=n), 20, ["trees"]),
    ("iteration, ResNet-152", lambda _: large.shipped_iteration(*RESNET), 152, ITERATION),
    ("iteration, workers", large.tiny_iteration, 2**16, ["ddp", "joint"]),
    ("iteration, pieces", partial(large.tiny_iteration, max_transfer_bytes=3), 4, ["joint"]),
    ("iteration, GPT-2", lambda _: large.shipped_iteration(*GPT), 12, ["auto"]),
]
"""Large instances, and the methods that are asked for each. One that does not apply says so."""


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("name", "make", "size", "method"),
    [
        pytest.param(name, make, size, method, marks=[pytest.mark.slow] if place else [])
        for name, make, size, methods in LARGE
        for place, method in enumerate(methods)
    ],
)
def test_large_instances_have_honest_answers_in_time(
    name: str, make: Callable[[int], Request], size: int, method: str
) -> None:
    large.warm()
    request = {**make(size), "method": method}
    answers = []
    for limit in (0.001, 0.1):
        answer = ended(request, limit, late_s=1.5 + 2 * limit)
        if "error" in answer:  # the method does not apply
            assert answer["error"]["path"] in NOT_FOR, answer
            return
        answers.append(answer)
    objectives = [one["objective_ns"] for one in answers if one["objective_ns"] is not None]
    bounds = [one["lower_bound_ns"] or 0 for one in answers]
    if objectives:
        assert max(bounds) <= min(objectives)
    for one in answers:
        proven = one["objective_ns"] is not None and one["objective_ns"] == one["lower_bound_ns"]
        assert (one["status"] == "optimal") == proven
        # Nothing but packing trees takes these too long to find some plan, and each has one; but
        # where something has failed a plan must be checked in time, which a busy machine may miss.
        none = name.endswith("Eq. 4") and method == "layer_by_layer"  # which breaks Eq. 5
        none |= method == "trees" or (one["status"] == "time_limit" and name == "bml, failures")
        # A rule may need more memory than there is, whatever the time.
        none |= name.startswith("fsdp") and one["status"] == "infeasible"
        assert none or one["objective_ns"] is not None, one


@pytest.mark.parametrize("method", ["milp", "cpsat"])
def test_without_time_models_have_a_plan_as_good_as_the_greedy_one(method: str) -> None:
    request = large.ibatch_sums(60, direction="push")
    greedy = planner.solve({**request, "method": "greedy_backward"})["objective_ns"]
    answer = planner.solve({**request, "method": method, "time_limit_s": 1e-9})
    assert answer["status"] == "time_limit"
    assert answer["lower_bound_ns"] <= answer["objective_ns"] <= greedy


def test_fixed_configurations_that_there_is_no_time_to_complete_are_not_made_up() -> None:
    large.warm()
    given = {"parameter_servers": 1, "replicas": 1, "workers_per_replica": 900}
    answer = planner.solve(large.yan(1000, fixed=[given], time_limit_s=0.001))
    assert (answer["status"], answer["binding"]) == ("time_limit", ["time_limit_s"])


def test_what_is_listed_has_as_long_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    left = []

    def answered(*arguments: Any) -> Any:
        left.append(arguments[-1].remaining_s)
        return bml_answer(*arguments)

    monkeypatch.setattr("planner.jsonio.bml.answer", answered)
    planner.solve(large.bml(schedule={"server": [0, 0, 0]}, time_limit_s=100))
    assert left[0] <= 100.5 / 2


DISTURBED = [{"startup": 2}, {"late": 1}]
STEPPED: dict[str, Callable[[], Request]] = {
    "iteration, pieces": lambda: large.tiny_iteration(4, max_transfer_bytes=300),
    "iteration": lambda: large.tiny_iteration(3),
    "iteration, regret": lambda: large.tiny_iteration(3, regret=True),
    "caramel": lambda: large.caramel(4),
    "caramel, regret": lambda: large.caramel(4, regret=True),
    "caramel, scenarios": lambda: large.caramel(4, scenarios=DISTURBED),
    "ibatch, sums": lambda: large.ibatch_sums(6),
    "ibatch, a table": lambda: large.ibatch_table(6),
    "ibatch, regret": lambda: large.ibatch_sums(6, regret=True),
    "ibatch, scenarios": lambda: large.ibatch_sums(6, scenarios=DISTURBED),
    "ibatch, spreads": lambda: {**large.ibatch_table(6), "spread_ns": list(range(6))},
    "yan": lambda: large.yan(3),
}
"""Instances so small that the clock is looked at seldom."""


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPPED)
def test_whenever_time_is_up_there_is_an_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock moves with every look at it, so that the time is up at each of the first ones."""
    request, looks = STEPPED[name](), count()
    clock = SimpleNamespace(monotonic=lambda: float(next(looks)))
    monkeypatch.setattr("planner.solving.deadline.time", clock)
    # The first looks are in different places, later ones often in the same.
    later = range(40, 120 if name.startswith("iteration") else 50, 5)
    for limit in (*range(1, 40), *later):
        answer = planner.solve({**request, "time_limit_s": limit})
        assert answer.get("status") in {"optimal", "feasible", "time_limit"}, (limit, answer)
