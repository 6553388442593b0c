"""Scripts of ranks, played in one process: any order of threads gives every sum exactly once."""

from collections import defaultdict, deque
from itertools import product
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families import bml
from planner.families.collectives.checker import check
from planner.families.collectives.exchange import bml_program, direct_program
from planner.families.collectives.program import KINDS, ListedProgram, Message, Program
from planner.families.collectives.script import Script, ScriptHop, scripts, talking
from planner.jsonio import solve
from planner.model.errors import InvalidPlanError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.programs.collectives import bcube_program
from tests.collectives.programs import PROGRAMS
from tests.formats.refused import refused


class Transfer(NamedTuple):
    """What was asked for or sent: where it lies, so that it may still change before it moves."""

    memory: np.ndarray
    hop: ScriptHop

    @property
    def part(self) -> np.ndarray:
        return self.memory[self.hop.start : self.hop.stop]


class Player:
    """A thread of a rank, as `Lane`, but that it acts when it is told to.

    What it sends is read, and what it asked for is written, at any time until it has waited.
    """

    def __init__(self, rank: int, number: int, script: Script, counts: np.ndarray) -> None:
        self.rank = rank
        self.number = number
        self.steps = script.steps
        self.rooms = np.zeros((script.passing, counts.shape[1]), dtype=int), counts
        self.asked = self.begun = self.complete = 0
        self.sent: list[list[Transfer]] = []
        self.arriving: deque[list[tuple[list[Transfer], Transfer, ScriptHop]]] = deque()

    @property
    def done(self) -> bool:
        return self.complete == len(self.steps) and not any(self.sent)

    def act(self, links: "Links") -> bool:
        """Begin the next step, or complete the oldest; tell whether that was possible."""
        if self.asked > self.begun:
            step = self.steps[self.begun]
            if self.complete > step.after:
                for hop in step.sends:
                    self.sent.append([Transfer(self.rooms[hop.own], hop)])
                    links.sent[self.rank, hop.peer, hop.link, self.number].append(self.sent[-1])
                self.begun += 1
                return True
        elif self.asked < len(self.steps) and self.complete > self.steps[self.asked].before:
            step = self.steps[self.asked]
            if any(self.sent[number] for number in step.clear):
                return False
            asked = []
            for hop in step.receives:
                aside = hop.adds or hop.aside
                place = np.empty((hop.stop, self.rooms[0].shape[1]), dtype=int)
                memory = place if aside else self.rooms[hop.own]
                waiting = [Transfer(memory, hop)]
                links.asked[hop.peer, self.rank, hop.link, self.number].append(waiting)
                asked.append((waiting, waiting[0], hop))
            self.arriving.append(asked)
            self.asked += 1
            return True
        if self.complete == self.begun:
            return False
        if any(self.sent[number] for number in self.steps[self.complete].held):
            return False
        asked = self.arriving[0]
        while asked and not asked[0][0]:
            _, came, hop = asked.pop(0)
            part = self.rooms[hop.own][hop.start : hop.stop]
            if hop.adds:
                part += came.part
            elif hop.aside:
                part[:] = came.part
        if asked:
            return False
        self.arriving.popleft()
        self.complete += 1
        return True


class Links:
    """What was asked for and sent: transfers are emptied when they have moved."""

    def __init__(self) -> None:
        self.asked: dict[tuple[int, int, int, int], deque[list[Transfer]]] = defaultdict(deque)
        self.sent: dict[tuple[int, int, int, int], deque[list[Transfer]]] = defaultdict(deque)

    def move(self, draw: Random) -> bool:
        """Move what is sent and asked for, on some of the links."""
        ready = [link for link, sent in self.sent.items() if sent and self.asked[link]]
        for link in draw.sample(ready, draw.randint(min(1, len(ready)), len(ready))):
            sent, asked = self.sent[link].popleft(), self.asked[link].popleft()
            assert sent[0].part.shape == asked[0].part.shape
            asked[0].part[:] = sent[0].part
            sent.clear()
            asked.clear()
        return bool(ready)


def play(program: Program, elements: int, draw: Random, width: int = 1, parts: int = 1) -> None:
    """Go through all threads' scripts in random order, and look at every sum."""
    ranks = range(program.ranks)
    counts = {rank: np.zeros((elements, program.ranks), dtype=int) for rank in ranks}
    mine = {rank: owned(program, rank, elements, width, parts) for rank in ranks}
    for rank, count in counts.items():
        count[:, rank] = 1
        if program.kind == "all_gather":
            count[:] = 7
            count[mine[rank]] = 1
    links = Links()
    players = [
        Player(rank, number, script, counts[rank])
        for rank in ranks
        for number, script in enumerate(scripts(program, rank, elements, width, parts))
    ]
    while players:
        quick = draw.sample(players, draw.randint(1, len(players)))
        acted = sum(player.act(links) for player in quick) + links.move(draw)
        if not acted:
            acted = sum(player.act(links) for player in players)
        players = [player for player in players if not player.done]
        assert acted or not players, "every thread waits"
    assert not any(links.sent.values())
    assert not any(links.asked.values())
    for rank, count in counts.items():
        assert (count[mine[rank] if program.kind == "reduce_scatter" else slice(None)] == 1).all()


def owned(program: Program, rank: int, elements: int, width: int, parts: int) -> np.ndarray:
    """Return whether each element is in a chunk of a rank."""
    found = np.zeros(elements, dtype=bool)
    begin = 0
    for part in range(min(parts, elements)):
        size = elements // parts + (part < elements % parts)
        layout = program.layout(size, width)
        for chunk in range(program.chunks):
            start = begin + layout.start(chunk) // width
            found[start : start + layout.span(chunk, 1) // width] = program.owner(chunk) == rank
        begin += size
    return found


@pytest.mark.slow
@given(
    st.sampled_from([one for one in PROGRAMS if one.ranks <= 9]),
    st.sampled_from(KINDS),
    st.data(),
)
def test_every_algorithm_in_any_order(program: Program, kind: Any, data: st.DataObject) -> None:
    chunks = program.chunks
    sizes = st.sampled_from([0, 1, 7, chunks - 1, chunks, chunks + 1, 3 * chunks + 2])
    elements, parts = data.draw(sizes), data.draw(st.integers(1, 4))
    play(program.half(kind), elements, data.draw(st.randoms(use_true_random=False)), 4, parts)


@st.composite
def trees(draw: st.DrawFn) -> ListedProgram:
    """Draw a program in which each chunk goes up a tree of its own and down another, at any step.

    What a rank adds up it may send on in any later step, over any link, and while others go on.
    """
    ranks, chunks, links = (draw(st.integers(*bounds)) for bounds in ((2, 5), (1, 6), (1, 3)))
    lanes = draw(st.integers(1, chunks))
    listed, owners, deep = [], [], 3 * ranks
    for chunk in range(chunks):
        places = draw(st.permutations(range(ranks)))
        owners.append(places[0])
        up, down = {places[0]: deep}, {places[0]: deep - 1}
        for place in range(1, ranks):
            one = places[place]
            parent = draw(st.sampled_from([other for other in places[:place] if up[other]]))
            up[one] = draw(st.integers(0, up[parent] - 1))
            link, lane = draw(st.integers(0, links - 1)), chunk * lanes // chunks
            ends = chunk, chunk + 1
            listed.append(Message(up[one], lane, one, parent, link, *ends, adds=True))
            parent = draw(st.sampled_from(places[:place]))
            down[one] = down[parent] + draw(st.integers(1, 3))
            listed.append(Message(down[one], lane, parent, one, link, *ends, adds=False))
    return ListedProgram("drawn", ranks, lanes, links, chunks, tuple(listed), owners, deep)


@pytest.mark.slow
@given(trees(), st.sampled_from(KINDS), st.integers(0, 20), st.integers(1, 3), st.randoms())
def test_random_programs_in_any_order(
    program: ListedProgram, kind: Any, elements: int, parts: int, draw: Random
) -> None:
    check(program.half(kind))
    play(program.half(kind), elements, draw, 4, parts)


DOUBLING = [
    Message(step, 0, rank, rank ^ 1 << step, 0, 0, 1, adds=True)
    for step, rank in product(range(2), range(4))
]
"""Pairs exchange all they have, and both add: what arrives is put over what is sent."""

ONCE_MORE = [Message(2, 0, rank, rank ^ 1, 0, 0, 1, adds=False) for rank in (1, 3)]
"""Sums that were there already: they may only be put in place once those are added up."""

SWAPPED = [
    Message(0, 0, 0, 2, 0, 0, 1, adds=False, target=0),
    Message(0, 0, 2, 0, 0, 0, 1, adds=False),
    Message(1, 0, 2, 1, 0, 0, 1, adds=True, source=0),
    Message(2, 0, 1, 0, 0, 0, 1, adds=True),
    Message(3, 0, 0, 1, 0, 0, 1, adds=False),
    Message(3, 0, 0, 2, 0, 0, 1, adds=False),
]
"""In the first step one rank keeps what another has in place of what it sends there."""


@pytest.mark.parametrize(
    ("listed", "ranks"), [(DOUBLING, 4), ([*DOUBLING, *ONCE_MORE], 4), (SWAPPED, 3)]
)
@given(elements=st.integers(0, 9), parts=st.integers(1, 3), draw=st.randoms())
def test_what_is_on_its_way_is_not_overwritten(
    listed: list[Message], ranks: int, elements: int, parts: int, draw: Random
) -> None:
    program = ListedProgram("unusual", ranks, 1, 1, 1, tuple(listed), [0], 3)
    check(program)
    play(program, elements, draw, 4, parts)


def test_sums_are_not_added_to_what_is_not_there() -> None:
    listed = (Message(0, 0, 1, 0, 0, 0, 1, adds=True), Message(1, 0, 0, 1, 0, 0, 1, adds=True))
    program = ListedProgram("added", 2, 1, 1, 1, listed, [0], 1).half("all_gather")
    with pytest.raises(InvalidPlanError, match="adds to no sum"):
        scripts(program, 1, 4)


def test_steps_have_as_many_messages_as_the_algorithm_and_parts_do_not_wait_for_each_other() -> (
    None
):
    for one in scripts(bml_program(BCube(3, 2)), 4, 1800):
        assert [(len(step.sends), len(step.receives)) for step in one.steps] == [(2, 2)] * 4
    (one,) = scripts(direct_program(3), 1, 300, parts=2)
    assert [(step.after, len(step.sends), step.clear) for step in one.steps] == [
        (-1, 2, ()),
        (0, 2, (0, 1)),  # handed out once it is summed up, and what comes is not being sent
        (-1, 2, ()),  # the second part does not wait for the first
        (2, 2, (4, 5)),
    ]


# --- answers around failures: followed, or refused

NIC = {"nics": [[[0, 0], 0]]}
OTHERS = {"servers": [], "nics": [[[0, 1], 1]], "links": [], "switches": []}


def answer(n: int, k: int, **fields: Any) -> dict[str, Any]:
    request = {"problem": "bml", "n": n, "k": k, "link_bytes_per_s": 10**6, "latency_ns": 10**5}
    if "layer_bytes" not in fields:
        request["gradient_bytes"] = 4000
    return solve({**request, "element_bytes": 4, "with_plan": True} | fields)


def play_all(routes: tuple[Program, int, int | None], *sizes: int, width: int = 4) -> None:
    program, depth, _ = routes
    for elements, seed in product(sizes, range(2)):
        play(program, elements, Random(seed), width, depth)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["detour", "trees"])
@pytest.mark.parametrize("failed", [NIC, {"switches": [[1, [0]]]}, {"servers": [[1, 0]]}])
def test_answers_around_failures(failed: dict[str, Any], method: str) -> None:
    routes = bcube_program(BCube(3, 2), answer(3, 2, failed=failed, method=method))
    assert routes[0].ranks == 9 - len(failed.get("servers", []))
    play_all(routes, 1000)
    play_all(routes, 2000, width=2)


def test_layers_are_followed() -> None:
    play_all(bcube_program(BCube(2, 2), answer(2, 2, layer_bytes=[400, 0, 36, 4])), 110)


@pytest.mark.parametrize("method", ["detour", "trees"])
def test_typed_plans_fit_every_size(method: str) -> None:
    bcube = BCube(3, 2)
    failed = bml.Failures(nics=frozenset({(0, 1)}), servers=frozenset({5}))
    network = Network(10**6, startup_ns=100_000)  # type: ignore[arg-type]
    plan = bml.solve(bml.Problem(bcube, network, 40_000, failed=failed), method=method).plan
    assert plan is not None
    assert 5 < plan.rounds < 64
    routes = bcube_program(bcube, plan)
    assert routes.depth == plan.rounds
    assert routes.program.ranks == 8
    play_all(routes, 0, 5, 64)


@pytest.mark.parametrize("method", ["detour", "trees"])
def test_groups_are_without_what_failed(method: str) -> None:
    program = bcube_program(BCube(3, 2), answer(3, 2, failed=NIC, method=method)).program
    groups = list(talking(list(program.messages())))
    assert (0, [1, 2]) in groups  # server 0 has lost its NIC at level 0
    all_groups = list(talking(list(bml_program(BCube(3, 2)).messages())))
    assert (0, [0, 1, 2]) in all_groups
    assert (1, [2, 5, 8]) in all_groups
    assert len(groups) == len(all_groups) == 6


def test_a_changed_plan_is_refused() -> None:
    plan = answer(2, 2, method="trees", failed=NIC)
    kind, whole = plan["plan"]["kind"], plan["plan"]["plan"]
    tree, *others = whole["trees"]
    for changed, said in (
        ({"kind": kind, "plan": {**whole, "trees": [[tree[0], tree[1][1:]], *others]}}, ""),
        ({"kind": kind, "plan": {**whole, "trees": others}}, ""),
        ({"kind": "drizzle.Plan", "plan": {}}, r"^plan\."),
    ):
        with refused(None, said):
            bcube_program(BCube(2, 2), {**plan, "plan": changed})


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (lambda: answer(3, 2), "n"),
        (lambda: answer(2, 1), "k"),
        (lambda: answer(2, 2, with_plan=False, failed=NIC), "plan"),
        (lambda: answer(2, 2, failed={"nics": [[[0, 0], 0], [[0, 0], 1]]}), "steps"),
        (lambda: bml.Schedule(BCube(2, 1)), "plan"),
        (lambda: {"problem": "caramel"}, None),
        (lambda: {**answer(2, 2, failed=NIC), "failed": OTHERS}, None),  # it does not go around
    ],
)
def test_other_plans_are_refused(plan: Any, path: str | None) -> None:
    with refused(path, ""):
        bcube_program(BCube(2, 2), plan())


def test_a_plan_that_names_its_program_needs_no_list() -> None:
    for schedule in ("none", {"server": [0, 0]}):
        plan = answer(2, 2, with_plan=False, schedule=schedule)
        named = bcube_program(BCube(2, 2), plan)
        assert (named.program.name, named.depth, named.size_bytes) == ("bml(2, 2)", 1, None)
        assert list(named.program.messages()) == list(bml_program(BCube(2, 2)).messages())
