"""Scripts of servers, played in one process: any order of threads gives every sum exactly once."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from planner import bml
from planner.bml.rows import Row, check_rows
from planner.errors import InvalidInputError, InvalidPlanError
from planner.jsonio import solve
from planner.network import Network
from planner.runtime.collectives.routes import routes_of
from planner.runtime.collectives.scripts import NeighbourHop, Routes, Script
from planner.topologies import BCube

NETWORKS = [(2, 1), (2, 2), (3, 1), (3, 2), (2, 3), (4, 1), (4, 2)]
NIC = {"nics": [[[0, 0], 0]]}
SWITCH = {"switches": [[1, [0]]]}
SERVER = {"servers": [[1, 0]]}


def answer(n: int, k: int, *, method: str = "auto", **fields: Any) -> dict[str, Any]:
    request = {
        "problem": "bml",
        "n": n,
        "k": k,
        "link_bytes_per_s": 1_000_000,
        "latency_ns": 100_000,
        "element_bytes": 4,
        "schedule": "all",
        "method": method,
    }
    if "layer_bytes" not in fields:
        request["gradient_bytes"] = 4000
    return solve(request | fields)


class Player:
    """A thread of a server, which begins and completes steps one at a time."""

    def __init__(self, server: int, number: int, script: Script, counts: np.ndarray) -> None:
        self.server = server
        self.number = number
        self.steps = script[number]
        self.counts = counts
        self.begun = self.complete = 0

    def act(self, links: dict[tuple[int, int, int, int], deque[np.ndarray]]) -> bool:
        """Begin the next step, or complete the oldest; tell whether that was possible."""
        if self.begun < len(self.steps) and self.complete > self.steps[self.begun].after:
            for hop in self.steps[self.begun].sends:
                copy = self.counts[hop.start : hop.stop].copy()
                links[self.server, hop.peer, hop.level, self.number].append(copy)
            self.begun += 1
            return True
        if self.complete == self.begun:
            return False
        receives = self.steps[self.complete].receives
        needed = Counter((hop.peer, self.server, hop.level, self.number) for hop in receives)
        if any(len(links[link]) < count for link, count in needed.items()):
            return False
        for hop in receives:
            came = links[hop.peer, self.server, hop.level, self.number].popleft()
            assert len(came) == hop.stop - hop.start
            self.counts[hop.start : hop.stop] *= hop.adds
            self.counts[hop.start : hop.stop] += came
        self.complete += 1
        return True


def play(scripts: Mapping[int, Script], elements: int, draw: Random) -> None:
    """Go through all threads' scripts in random order; a link keeps the order of a thread."""
    counts = {server: np.zeros((elements, len(scripts)), dtype=int) for server in scripts}
    for number, count in enumerate(counts.values()):
        count[:, number] = 1
    links: dict[tuple[int, int, int, int], deque[np.ndarray]] = defaultdict(deque)
    players = [
        Player(server, number, script, counts[server])
        for server, script in scripts.items()
        for number in range(len(script))
    ]
    while players:
        draw.shuffle(players)
        players = [player for player in players if player.complete < len(player.steps)]
        acted = [player.act(links) for player in players]
        assert any(acted) or not players, "every thread waits"
    assert not any(links.values())
    for count in counts.values():
        assert (count == 1).all()


def play_all(routes: Routes, elements: int, element_bytes: int = 4, rounds: int = 1) -> None:
    scripts = {
        server: routes.script(server, elements, element_bytes, rounds) for server in routes.servers
    }
    for seed in range(2):
        play(scripts, elements, Random(seed))


@pytest.mark.parametrize(("n", "k"), NETWORKS)
@pytest.mark.parametrize("rounds", [1, 3])
def test_without_failures_every_size_is_summed_up(n: int, k: int, rounds: int) -> None:
    routes = routes_of(BCube(n, k), None)
    for elements in (0, 1, 2, 3, 7, n**k, k * n**k, k * n**k + 1, 101):
        play_all(routes, elements, rounds=rounds)


def test_a_step_has_as_many_messages_as_the_algorithm() -> None:
    script = routes_of(BCube(3, 2), None).script(4, 1800)
    assert [[(len(step.sends), len(step.receives)) for step in thread] for thread in script] == [
        [(2, 2)] * 4
    ] * 2


def test_what_a_server_sends_over_each_nic_is_the_least_possible() -> None:
    n, k = 3, 2
    servers, elements = n**k, 1800
    routes = routes_of(BCube(n, k), None)
    for server in routes.servers:
        sent = [0] * k
        for thread in routes.script(server, elements):
            for step in thread:
                for hop in step.sends:
                    sent[hop.level] += hop.stop - hop.start
        assert sent == [2 * (servers - 1) * elements // (k * servers)] * k


@pytest.mark.parametrize("method", ["detour", "trees"])
@pytest.mark.parametrize("failed", [NIC, SWITCH, SERVER])
@pytest.mark.parametrize(("n", "k"), [(2, 2), (3, 2)])
def test_answers_around_failures(n: int, k: int, failed: dict[str, Any], method: str) -> None:
    plan = answer(n, k, failed=failed, method=method)
    routes = routes_of(BCube(n, k), plan)
    assert len(routes.servers) == n**k - len(failed.get("servers", []))
    play_all(routes, 1000)
    play_all(routes, 2000, element_bytes=2)


def test_rounds_are_followed() -> None:
    plan = answer(3, 2, failed=NIC, latency_ns=1000)
    assert plan["rounds"] > 1
    play_all(routes_of(BCube(3, 2), msgspec.json.encode(plan)), 1000)


def test_layers_are_followed() -> None:
    play_all(routes_of(BCube(2, 2), answer(2, 2, layer_bytes=[400, 0, 36, 4])), 110)


@pytest.mark.parametrize("method", ["detour", "trees"])
def test_typed_plans_fit_every_size(method: str) -> None:
    bcube = BCube(3, 2)
    problem = bml.Problem(
        bcube,
        Network(10**6, startup_ns=1000),  # type: ignore[arg-type]
        40_000,
        failed=bml.Failures(nics=frozenset({(0, 1)}), servers=frozenset({5})),
    )
    plan = bml.solve(problem, method=method).plan
    assert plan is not None
    assert plan.rounds > 1
    routes = routes_of(bcube, plan)
    assert routes.servers == (0, 1, 2, 3, 4, 6, 7, 8)
    for elements in (0, 1, 5, 333):
        play_all(routes, elements)


@pytest.mark.parametrize("method", ["detour", "trees"])
def test_groups_are_without_what_failed(method: str) -> None:
    routes = routes_of(BCube(3, 2), answer(3, 2, failed=NIC, method=method))
    groups = list(routes.groups())
    assert (0, 0, (1, 2)) in groups  # server 0 has lost its NIC at level 0
    assert len(groups) == 6
    all_groups = list(routes_of(BCube(3, 2), None).groups())
    assert (0, 0, (0, 1, 2)) in all_groups
    assert (1, 2, (2, 5, 8)) in all_groups
    assert len(all_groups) == 6


def test_names_tell_plans_apart() -> None:
    bcube = BCube(2, 2)
    plans = [
        None,
        answer(2, 2),
        answer(2, 2, gradient_bytes=4004),
        answer(2, 2, failed=NIC),
        bml.Schedule(bcube),
        bml.Schedule(bcube, rounds=2),
    ]
    assert len({routes_of(bcube, plan).name for plan in plans}) == len(plans)
    assert routes_of(bcube, answer(2, 2)).name == routes_of(bcube, answer(2, 2)).name


def replaced(plan: Mapping[str, Any], number: int, **fields: Any) -> dict[str, Any]:
    rows = [dict(row) for row in plan["transfers"]]
    rows[number].update(fields)
    return {**plan, "transfers": rows}


@pytest.mark.parametrize("method", ["bml", "trees"])
def test_a_plan_without_one_of_its_transfers_is_refused(method: str) -> None:
    plan = answer(2, 2, method=method)
    for number in range(len(plan["transfers"])):
        rows = [row for place, row in enumerate(plan["transfers"]) if place != number]
        with pytest.raises(InvalidPlanError):
            routes_of(BCube(2, 2), {**plan, "transfers": rows})


def test_a_plan_with_one_transfer_too_many_is_refused() -> None:
    plan = answer(2, 2)
    for row in plan["transfers"]:
        with pytest.raises(InvalidPlanError):
            routes_of(BCube(2, 2), {**plan, "transfers": [*plan["transfers"], row]})


def test_a_plan_whose_steps_are_exchanged_is_refused() -> None:
    plan = answer(2, 2)
    rows = [{**row, "step": 1 - row["step"]} for row in plan["transfers"]]
    with pytest.raises(InvalidPlanError):
        routes_of(BCube(2, 2), {**plan, "transfers": rows})


def test_a_range_of_two_threads_is_refused() -> None:
    plan = answer(2, 2)
    for number, row in enumerate(plan["transfers"]):
        with pytest.raises(InvalidPlanError):
            routes_of(BCube(2, 2), replaced(plan, number, thread=1 - row["thread"]))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"peer": [1, 1]}, "transfers[0]"),
        ({"level": 2}, "transfers[0]"),
        ({"server": [0, 2]}, "transfers[0].server[1]"),
        ({"peer": [0]}, "transfers[0].peer"),
    ],
)
def test_a_transfer_without_a_link_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        routes_of(BCube(2, 2), replaced(answer(2, 2), 0, **change))
    assert refused.value.path == path


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (lambda: answer(3, 2), "n"),
        (lambda: answer(2, 1), "k"),
        (lambda: solve({**_request(), "schedule": {"server": [0, 0]}}), "transfers"),
        (lambda: solve(_request()), "transfers"),
        (lambda: answer(2, 2, failed={"nics": [[[0, 0], 0], [[0, 0], 1]]}), "steps"),
        (lambda: bml.Schedule(BCube(2, 1)), "plan"),
        (lambda: {"problem": "caramel"}, None),
    ],
)
def test_other_plans_are_refused(plan: Any, path: str | None) -> None:
    with pytest.raises(InvalidInputError) as refused:
        routes_of(BCube(2, 2), plan())
    assert path is None or refused.value.path == path


def _request() -> dict[str, Any]:
    return {
        "problem": "bml",
        "n": 2,
        "k": 2,
        "gradient_bytes": 400,
        "link_bytes_per_s": 10**6,
        "latency_ns": 1000,
    }


def test_tensors_of_another_size_are_refused() -> None:
    routes = routes_of(BCube(2, 2), answer(2, 2, gradient_bytes=404))
    with pytest.raises(InvalidInputError, match="a plan for 404 bytes, got a tensor of 400"):
        routes.script(0, 100, 4)
    routes = routes_of(BCube(2, 2), answer(2, 2, gradient_bytes=408))
    with pytest.raises(InvalidInputError, match="cut inside an element of 8 bytes"):
        routes.script(0, 51, 8)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        # Both send to each other: nobody keeps the range.
        ([(0, 0, 1, True), (0, 1, 0, True)], "arrives in the same step"),
        ([(0, 0, 1, True), (1, 1, 0, True)], "has passed it on already"),
        ([(0, 0, 1, True), (0, 1, 0, False)], "not the sum yet"),
        ([(0, 0, 1, True), (1, 0, 1, True)], "was sent before"),
        ([(0, 0, 1, True), (1, 0, 1, False)], "not the sum yet"),
        ([(0, 0, 1, True)], "never gets the sum"),
        ([(0, 0, 1, False)], "has the sum already"),
        ([], "on 2 servers"),
    ],
)
def test_what_the_check_says(rows: Iterable[Sequence[Any]], message: str) -> None:
    made = [
        Row((0, step), 0, 0, server, 0, other, 0, 4, adds) for step, server, other, adds in rows
    ]
    with pytest.raises(InvalidPlanError, match=message):
        check_rows(made, (0, 1), 4)


def test_hops_are_immutable() -> None:
    with pytest.raises(AttributeError):
        NeighbourHop(0, 0, 0, 1, adds=True).start = 1  # type: ignore[misc]
