"""Every search ends within a second of its time limit or of a cancel, whatever is asked.

All families, methods and options that add a search: scenarios, spreads, interference, targets,
regret, old plans. `tests.test_time_limits` asks large instances, and what their answers are worth.

A second of processor time is what counts, since a busy machine stretches every other; an answer
that takes `HANGING_S` more, or never comes, is interrupted.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from random import Random
from typing import Any

import pytest

import planner
from planner.solving.methods import REPLAN
from planner.solving.targets import TARGETS
from tests.large import (
    EXTRAS,
    SWITCH,
    bml_request,
    caramel_request,
    fsdp_request,
    overlap_request,
    shipped,
    synthetic_iteration,
    tiny_iteration,
    used_s,
    warm,
    yan_deep,
    yan_request,
)
from tests.thorough import THOROUGH

Request = dict[str, Any]

NOISE = 2
"""How much more processor time the same work takes where tests share a core's threads."""

LATE_S = 1.0
"""Processor time an answer may take beyond its time limit, or a cancel."""

HANGING_S = 4.0
"""Processor time after which an answer, late already, is not waited for any more."""

WAITING_S = 120.0
"""The same of real time, for what waits and computes nothing."""

LIMITS = (1e-9, 1e-3, 0.05, 0.5)

SMALL, MIDDLE = 19, 150
"""Layers."""

COST = {"startup_ns": 30_000, "ns_per_byte": 0.7}
TABLE = {"table": [[0, 1000], [100, 5000], [10**5, 90_000], [10**6, 500_000], [10**7, 8 * 10**6]]}
DISTURBING = {"startup_ns": 20_000, "ns_per_byte": 0.1, "slowdown": 1.3, "delay_ns": 5000}
NETWORKS = {
    "affine": COST,
    "table": TABLE,
    "interference": {**COST, "interference": DISTURBING},
    "table, interference": {**TABLE, "interference": DISTURBING},
}


def ibatch(layers: int, **more: Any) -> Request:
    draw = Random(layers)

    def drawn(most: int) -> list[int]:
        return [draw.randrange(1, most) for _ in range(layers)]

    return {
        "problem": "ibatch",
        "direction": "push",
        "compute_ns": drawn(10**6),
        "spread_ns": drawn(10**5),
        "layer_bytes": drawn(10**6),
        "outlook": "nominal",
        **more,
    }


def caramel(layers: int, **more: Any) -> Request:
    request, draw = caramel_request(layers), Random(layers)
    for op in request["ops"]:
        op["spread_ns"] = draw.randrange(10**5)
    return {**request, "outlook": "nominal", **more}


def iteration(layers: int, machines: int, topology: Request, **cluster: Any) -> Request:
    draw = Random(layers)
    rows = [
        {
            "name": f"l{place}",
            "forward_ns": draw.randrange(10**6),
            "backward_ns": draw.randrange(10**6),
            "forward_spread_ns": draw.randrange(10**5),
            "backward_spread_ns": draw.randrange(10**5),
            "parameter_bytes": 4 * draw.randrange(1, 10**6),
            "activation_bytes": draw.randrange(10**6),
        }
        for place in range(layers)
    ]
    request = synthetic_iteration(rows, machines, topology=topology, **cluster)
    return {**request, "outlook": "nominal"}


REQUESTS: dict[str, Callable[[int], Request]] = {
    **{f"ibatch, {name}": partial(ibatch, network=network) for name, network in NETWORKS.items()},
    "ibatch, pull": lambda layers: ibatch(
        layers, network=COST, direction="pull", max_batch_bytes=5 * 10**6
    ),
    "ibatch, Eq. 4": lambda layers: ibatch(layers, network=COST, objective="eq4"),
    **{f"caramel, {name}": partial(caramel, network=network) for name, network in NETWORKS.items()},
    "caramel, depths": lambda layers: caramel(
        layers, network={**COST, "depths": {"2": COST, "8": TABLE}}
    ),
    "iteration, switch": lambda layers: iteration(layers // 2, 8, SWITCH),
    "iteration, BCube": lambda layers: iteration(layers // 2, 9, {"kind": "bcube", "n": 3, "k": 2}),
    "iteration, interference": lambda layers: iteration(
        layers // 2, 8, SWITCH, interference=DISTURBING
    ),
    "iteration, memory": lambda layers: iteration(
        layers // 2, 8, SWITCH, memory_bytes=int(2.5 * 10**6 * layers)
    ),
    "yan": lambda layers: yan_request(2 * layers),
    "yan, memory": lambda layers: yan_request(layers, memory_bytes=3 * 10**8),
    "yan, machines that differ": lambda layers: yan_request(
        2 * layers, machine_speeds=[1.0, 0.5] * layers
    ),
    "yan, layers": lambda layers: yan_deep(layers // 3),
    "bml": lambda _: bml_request(),
    "bml, failures": lambda _: bml_request(failed={"nics": [[[0, 1, 2], 0]]}),
    "bml, listed": lambda _: bml_request(n=3, schedule="all"),
    "bigdl": lambda layers: {**shipped("bigdl/vgg19-16.json"), "nodes": layers},
    "drizzle": lambda _: shipped("drizzle/inception64.json"),
    "fsdp": fsdp_request,
    "fsdp, memory": lambda layers: fsdp_request(layers, memory_bytes=6 * 10**7 * layers),
    "fsdp, many meshes": lambda layers: fsdp_request(
        layers, memory_bytes=6 * 10**7 * layers, meshes=100 * fsdp_request(1)["meshes"]
    ),
    "fsdp, two channels": lambda layers: fsdp_request(layers, channels="two"),
    "overlap": overlap_request,
    "overlap, no limit": lambda layers: overlap_request(layers, memory_limit_bytes=10**12),
}
"""Makers of requests, by their family and what is special about them, of a number of layers."""

SCENARIOS = [{"startup": 0}, {"late": 2}, {"computation": 0.5, "bandwidth": 0.3, "weight": 3}]

ASKED: dict[str, Request] = {
    "regret": {"regret": True},
    "scenarios": {"scenarios": SCENARIOS, "outlook": ...},
    "scenarios, percentile": {"scenarios": SCENARIOS, "percentile": 90, "outlook": ...},
    "many scenarios": {"scenarios": 10 * SCENARIOS, "outlook": ...},
    "mean": {"outlook": "mean"},
    "p90, regret": {"outlook": "p90", "regret": True},
    "kept plan": {"with_plan": True, "progress": True},
}
"""What adds to a search, of families that know scenarios; ``...`` leaves a field out."""

TARGETED: dict[str, Request] = {f"target {name}": {"target": name} for name in TARGETS}

OTHERS: dict[str, Request] = {
    "regret": {"regret": True},
    "scenarios": {
        "regret": True,
        "scenarios": [{}, {"bandwidth": 0.5}, {"computation": 2, "startup": 3}],
        "percentile": 90,
    },
}

OPTIONS: dict[str, dict[str, Request]] = {
    "ibatch": ASKED,
    "caramel": {**ASKED, **TARGETED},
    "iteration": {**ASKED, **TARGETED},
    "yan": {**OTHERS, **{name: {name: True} for name in EXTRAS}},
    **dict.fromkeys(("fsdp", "overlap", "bml"), OTHERS),
}

REFUSED_AT = {
    *("method", "target", "objective", "outlook", "machine_speeds"),
    *("layer_bytes", "memory_bytes", "workers", "time_limit_s", "pareto"),
}
"""What a method or an option may say it does not go with."""


def family_of(name: str) -> str:
    return name.partition(",")[0]


def methods_of(name: str) -> list[str]:
    return [*import_module(f"planner.{family_of(name)}").METHODS, REPLAN]


CASES = [
    *(
        (name, method, "")
        for name in REQUESTS
        for method in methods_of(name)
        if method != "brute_force"  # on as small networks as it takes
    ),
    *((name, "auto", option) for name in REQUESTS for option in OPTIONS.get(family_of(name), ())),
]
"""Which request, which method, and what else is asked."""


@cache
def old_plan(name: str, layers: int) -> Any:
    """Return a plan of the same request."""
    return planner.solve({**REQUESTS[name](layers), "with_plan": True, "time_limit_s": 0.5})["plan"]


def asked(name: str, layers: int, method: str, option: str) -> Request:
    request = {**REQUESTS[name](layers), "method": method}
    if method == REPLAN:
        request["start_plan"] = old_plan(name, layers)
    request |= OPTIONS.get(family_of(name), {}).get(option, {})
    return {field: value for field, value in request.items() if value is not ...}


class At:
    """Cancels from a moment on, some seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._moment = time.monotonic() + seconds

    def is_set(self) -> bool:
        return time.monotonic() >= self._moment


class HangingError(BaseException):
    """Nothing that the library catches."""


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Interrupt what takes so much processor time, or waits far longer."""

    def hang(*_: object) -> None:
        raise HangingError

    timers = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
    before = {number: signal.signal(number, hang) for number in timers}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds + WAITING_S)
    try:
        yield
    finally:
        for number, timer in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def ended(request: Request, seconds: float, *, cancelled: bool = False) -> Request:
    """Return the answer to a request that has so many seconds, which must come in time."""
    if not cancelled:
        request = {**request, "time_limit_s": seconds}
    begin = used_s()
    with interrupted(seconds + HANGING_S):
        answer = planner.solve(request, cancel=At(seconds) if cancelled else None)
    assert used_s() - begin <= seconds + NOISE * LATE_S, (seconds, cancelled)
    if "error" in answer:
        assert answer["error"]["code"] == "invalid_request", answer
        assert answer["error"]["path"] in REFUSED_AT, answer
    else:
        assert answer["status"] in {"optimal", "feasible", "time_limit", "infeasible"}
    return answer


QUICK = [
    (name, method, option) for name, method, option in CASES if option or method in ("auto", REPLAN)
]
"""What makes the most of the searches: single methods are asked large instances elsewhere."""


@pytest.mark.parametrize(("name", "method", "option"), QUICK)
def test_a_search_without_time_ends_at_once(name: str, method: str, option: str) -> None:
    warm()
    request = asked(name, SMALL, method, option)
    ended(request, 1e-9)
    ended(request, 0.0, cancelled=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method", "option"), CASES if THOROUGH else QUICK)
def test_a_search_ends_at_its_limit_and_at_a_cancel(name: str, method: str, option: str) -> None:
    warm()
    request = asked(name, MIDDLE, method, option)
    draw = Random(f"{name} {method} {option}")
    for limit in LIMITS if THOROUGH else [draw.choice(LIMITS[:-1])]:
        if "error" in ended(request, limit):
            return
    ended(request, draw.uniform(0, 0.1), cancelled=True)


@pytest.mark.parametrize("mode", ["replicated", "sharded"])
@pytest.mark.parametrize("memory", [1, 4000, 9601, 10_804])
def test_an_old_plan_is_not_cut_into_pieces_without_end(mode: str, memory: int) -> None:
    """The parameters and their gradients alone take 9,600 bytes."""
    request = tiny_iteration(4, modes=[mode])
    plan = planner.solve({**request, "with_plan": True})["plan"]
    request["cluster"]["memory_bytes"] = memory
    answer = ended({**request, "method": REPLAN, "start_plan": plan}, 1)
    if memory < 9600:
        assert answer["status"] == "infeasible"
        assert answer["binding"] == ["memory_bytes"]


def test_there_is_nothing_to_try_with_one_layer() -> None:
    """With interference no plan meets its bound, and yet there is no other."""
    request = asked("ibatch, interference", 1, "auto", "scenarios")
    assert ended(request, 100)["batches"] == [[0, 1]]
