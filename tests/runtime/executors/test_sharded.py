"""Training by executors that update a part of the weights on each rank, held against plain DDP."""

import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import Any, Literal, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed, nn
from torch.optim import Optimizer

from planner.families import iteration
from planner.families.bigdl.problem import Exchange
from planner.families.iteration.memory import Footprint
from planner.model.clusters import Cluster, Nic
from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.topologies import Switch
from planner.programs import Batch, Piece, ShardProgram, SliceProgram, program_of
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.shards import ShardExecutor, cells_of, messages_of, slice_of
from planner.runtime.executors.sliced import ELEMENTWISE, check_elementwise
from planner.runtime.executors.slices import SliceExecutor, check_slices
from planner.runtime.model.parameters import trainable
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.executors.test_gradients import cut_batches
from tests.runtime.jobs import in_each_rank
from tests.runtime.launching import errors, launch, values
from tests.runtime.reference import (
    MODELS,
    away_from_ddp,
    backward,
    ddp_weights,
    largest_difference,
    make_model,
    make_optimizer,
    measured,
    take_steps,
    weights_of,
)
from tests.runtime.sharing import (
    DIVIDED,
    Attach,
    Pair,
    check,
    compare,
    compare_models,
    jobs,
    pulled_early,
    resume,
)
from tests.thorough import THOROUGH

NAME = "perceptron"
WIDTH = 4
"""Bytes of an element."""

SIZES = {"one": [100], "each": [1] * 100, "uneven": [1, 3, 2, 100]}
"""Of batches."""


def batches(model: nn.Module, how: str) -> tuple[Batch, ...]:
    pieces = iter([Piece(name) for name, _ in model.named_parameters()])
    some = (tuple(islice(pieces, size)) for size in SIZES[how])
    return tuple(Batch(each) for each in some if each)


def shards(model: nn.Module, pull: str, push: str) -> ShardProgram:
    return pulled_early(ShardProgram.pushes_first(batches(model, pull), batches(model, push)[::-1]))


def attach_shards(
    world: World, pull: str, push: str, model: nn.Module, optimizer: Optimizer
) -> ShardExecutor:
    return ShardExecutor(model, shards(model, pull, push), optimizer, world)


Order = Literal["rotated", "same", "backwards"]


def slices(model: nn.Module, size: int, order: Order) -> SliceProgram:
    elements = sum(parameter.numel() for parameter in trainable(model).values())
    plan = Exchange(elements, size, "same" if order == "same" else "rotated")
    pulls = tuple(plan.pull_order(node) for node in range(size))
    if order == "backwards":  # and nobody begins with itself
        pulls = tuple(order_of_rank[:0:-1] + order_of_rank[:1] for order_of_rank in pulls)
    return SliceProgram(tuple(plan.slice(node) for node in range(size)), pulls)


def attach_slices(
    world: World, order: Order, model: nn.Module, optimizer: Optimizer
) -> SliceExecutor:
    return SliceExecutor(model, slices(model, world.size, order), optimizer, world)


def train(kind: str, recipes: list[str]) -> dict[str, Pair]:
    """Train in several ways; if there is time for it, all models, too."""
    with join() as world:
        by_shards, by_slices = partial(attach_shards, world), partial(attach_slices, world)
        if kind == "shards":
            mixed = (("uneven", "each"), ("one", "uneven"), ("each", "one"))
            ways: list[Attach] = [partial(by_shards, *way) for way in mixed]
            same: dict[str, Attach] = {how: partial(by_shards, how, how) for how in SIZES}
        else:
            recipes = [name for name in recipes if name != "mixed"]
            same = {order: partial(by_slices, order) for order in get_args(Order)}
            ways = list(same.values())
        pairs: dict[str, Pair] = {}
        for start, attach in enumerate(ways):
            pairs |= compare(attach, recipes[start::3])
        if recipes == DIVIDED[kind]:
            pairs |= compare_models(same, world.rank)
            pairs["resumed"] = resume(same["uneven" if kind == "shards" else "rotated"], world.rank)
            for name in ("tiny", "mixed", "frozen") if kind == "shards" else ():
                pairs[f"{name}, each"] = compare(same["each"], [name])[name]
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize(("size", "recipes"), jobs("shards"))
def test_weights_by_shards_are_those_of_ddp(size: int, recipes: list[str]) -> None:
    check(values(launch(train, size, "shards", recipes, timeout_s=150)))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "recipes"), jobs("slices"))
def test_weights_by_slices_are_those_of_ddp(size: int, recipes: list[str]) -> None:
    check(values(launch(train, size, "slices", recipes, timeout_s=150)))


# ---
# Plans that cut parameters, and push elsewhere than they pull.


def cut(model: nn.Module, most: int, together: int) -> tuple[Batch, ...]:
    """Cut all parameters into pieces of so many elements, and batch them crosswise."""
    pieces = []
    for name, parameter in model.named_parameters():
        size = parameter.numel() * parameter.element_size()
        step = most * parameter.element_size()
        pieces += [Piece(name, start, min(start + step, size)) for start in range(0, size, step)]
    crossed = pieces[::2] + pieces[1::2]
    starts = range(0, len(crossed), together)
    return tuple(Batch(tuple(crossed[start : start + together])) for start in starts)


def attach_cut(
    world: World,
    pull: tuple[int, int],
    push: tuple[int, int],
    model: nn.Module,
    updates: Optimizer,
    early: bool = True,
) -> ShardExecutor:
    program = ShardProgram.pushes_first(cut(model, *pull), cut(model, *push)[::-1])
    if early:
        program = pulled_early(program)
        first = [direction for direction, _ in program.transfers].index("pull")
        assert "push" in {direction for direction, _ in program.transfers[first:]}
    return ShardExecutor(model, program, updates, world)


WAYS = [((41, 3), (61, 2)), ((1000, 1), (41, 4)), ((87, 20), (187, 1))]
"""Elements of a piece, and pieces of a batch, of pulls and of pushes."""


def train_cut() -> dict[str, Pair]:
    """Train all models; by default each by one optimiser, with two ranks by another than three."""
    pairs: dict[str, Pair] = {}
    with join() as world:
        for place, kind in enumerate(("sgd", "adam")):
            for number, ((pull, push), name) in enumerate(zip(WAYS * 2, MODELS, strict=False)):
                if not THOROUGH and (number + world.size) % 2 != place:
                    continue
                model = make_model(name)
                updates = make_optimizer(kind, model)
                early = kind == "adam"
                with attach_cut(world, pull, push, model, updates, early) as executor:
                    take_steps(executor, name, world.rank)
                    share = sum(own.numel() for own in updates.param_groups[0]["params"])
                whole = sum(parameter.numel() for parameter in model.parameters())
                # Of each cell, some elements here, a rank has one too many at most.
                assert share < 2 * whole / world.size
                pairs[f"{name}, {kind}"] = weights_of(model), ddp_weights(name, kind)
        recipes = ["mixed", "frozen", "tiny, Adam", "named, scheduled", "Adagrad, begun at 1"]
        pairs |= compare(partial(attach_cut, world, *WAYS[0]), recipes)
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4] if THOROUGH else [2, 3])  # four run a plan below
def test_weights_by_cut_shards_are_those_of_ddp(ranks: int) -> None:
    check(values(launch(train_cut, ranks, timeout_s=150)))


def follow(plan: Any) -> list[float]:
    with join() as world:
        return [away_from_ddp(plan, NAME, world, kind) for kind in ("sgd", "adam")]


@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))])
def test_what_is_planned_where_memory_is_tight_runs(ranks: int) -> None:
    """There is room for shards alone, and for little at once."""
    profile = measured(NAME)
    footprint = Footprint.of(profile, Fraction(2))
    memory = footprint.static_bytes("sharded", ranks) + 300
    assert memory < footprint.static_bytes("replicated", ranks)
    nic = Nic(Fraction(10**8), 20_000)
    cluster = Cluster("tried", "a test", ranks, Switch(ranks), nic, memory_bytes=memory)
    problem = iteration.Problem.from_profile(profile, cluster, optimiser=2, element_bytes=WIDTH)
    plan = problem, iteration.solve(problem)
    program = program_of(plan)
    assert isinstance(program, ShardProgram)
    for batches in (program.pulls, program.pushes):
        assert any(piece != Piece(piece.parameter) for batch in batches for piece in batch.pieces)
    for differences in values(launch(follow, ranks, plan)):
        assert max(differences) < 1e-6


NUMBERS = {
    name: nn.Parameter(torch.arange(first, stop, dtype=torch.float32))
    for name, first, stop in (("a", 0, 30), ("b", 30, 31), ("c", 31, 38))
}
"""Parameters in which each number occurs once."""


def spots(batch: Batch, cells: Any, ranks: int, least: int) -> Iterator[tuple[int, float]]:
    """Yield the row in which each element of a batch lies, when values are put into messages."""
    for message in messages_of(batch, NUMBERS, cells, ranks, least):
        matrix = torch.full((ranks, message.width), -1.0)
        for columns in message.columns:
            for place, part in columns.parts(matrix, columns.cell.parameter.detach()):
                assert (place == -1).all()
                place.copy_(part)
        for row, numbers in enumerate(matrix.tolist()):
            yield from ((row, number) for number in numbers if number >= 0)


@given(cut_batches(NUMBERS), cut_batches(NUMBERS), st.integers(1, 5), st.integers(1, 200))
def test_every_piece_brings_each_rank_its_own_elements(
    pulls: tuple[Batch, ...], pushes: tuple[Batch, ...], ranks: int, least: int
) -> None:
    cells = cells_of(pulls + pushes, NUMBERS)
    owner: dict[float, int] = {}
    for several in cells.values():
        for cell in several:
            for rank in range(ranks):
                for value in slice_of(cell, rank, ranks).of(cell.parameter.detach()).tolist():
                    assert owner.setdefault(value, rank) == rank
    assert sorted(owner) == list(range(38))
    for batches in (pulls, pushes):
        for batch in batches:
            carried = [
                element
                for name, start, stop in batch.pieces
                for element in NUMBERS[name].tolist()[start // WIDTH : (stop or 0) // WIDTH]
            ]
            lying = sorted((value, row) for row, value in spots(batch, cells, ranks, least))
            assert lying == sorted((value, owner[value]) for value in carried)


# ---
# In which order transfers happen, and who is to blame.


def hold_pulls(executor: ShardExecutor) -> None:
    """Let each pull of the first step begin when the training loop waits for it or a later one."""
    begun: list[threading.Event] = []

    def held(work: Callable[[], object]) -> Callable[[], object]:
        begun.append(threading.Event())
        permit = begun[-1]
        return lambda: permit.wait(30) and work()

    for ticket in executor._tickets:
        if ticket.direction == "pull":
            ticket.work = held(ticket.work)
    wait = executor.channel.wait

    def let_go(ticket: Ticket) -> None:
        for permit in begun[: ticket.batch + 1]:
            permit.set()
        wait(ticket)

    executor.channel.wait = let_go  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("early", "updates", "finished"), [(False, 1, (1, 2, 3, 4)), (True, 4, (2, 2, 3, 4))]
)
@in_each_rank(3)
def test_order_and_place_of_what_travels(
    world: World, early: bool, updates: int, finished: tuple[int, ...]
) -> None:
    """Reading a layer finishes what has arrived: early, the second one comes before the first."""
    model = make_model(NAME)
    optimizer = make_optimizer("adam", model)
    parts = ("weight", "bias")
    layers = {name: [f"{name}.{part}" for part in parts] for name, _ in model.named_children()}
    pulls = tuple(Batch(tuple(map(Piece, names))) for names in layers.values())
    plan = ShardProgram.pushes_first(pulls, (*pulls[1::-1], *pulls[2:]))
    plan = pulled_early(plan) if early else plan
    executor = ShardExecutor(model, plan, optimizer, world)
    hold_pulls(executor)
    pending: list[set[str]] = []
    for name in layers:
        model.get_submodule(name).register_forward_hook(
            lambda *_: pending.append({executor.names[one] for one in executor.gate.pending})
        )
    take_steps(executor, NAME, world.rank, range(2))
    moments = sum(state["exp_avg"].numel() for state in optimizer.state.values())
    executor.close()

    planned = []
    for step in range(2):
        counted, last = Counter[str](), ""
        for direction, _ in plan.transfers:
            if (last, direction) == ("push", "pull"):
                planned.append(("update", "", step, counted["pull"]))
            planned.append(("transfer", direction, step, counted[direction]))
            counted[direction] += 1
            last = direction
    happened = [
        (event.kind, event.direction, event.step, event.batch)
        for event in executor.trace.events
        if event.kind in ("transfer", "update")
    ]
    assert happened == planned
    assert [kind for kind, *_ in happened].count("update") == 2 * updates
    left = [{name for names in list(layers.values())[done:] for name in names} for done in finished]
    assert pending == [set()] * 4 + left
    elements = sum(parameter.numel() for parameter in model.parameters())
    assert sum(map(int, world.gather("elements", str(moments)))) == elements
    assert moments < elements / 2


def die_between_pulls() -> None:
    with join(3) as world:
        model = make_model(NAME)
        executor = attach_shards(world, "each", "each", model, make_optimizer("sgd", model))
        for step in range(3):
            backward(model, NAME, world.rank, step)
            executor.step()
            if (step, world.rank) == (1, 1):
                executor.channel.wait(executor.awaited[2])
                os.kill(os.getpid(), signal.SIGKILL)
        executor.close()


@pytest.mark.slow
def test_who_dies_between_pulls_is_named() -> None:
    first, killed, last = launch(die_between_pulls, 3, timeout_s=30)
    assert killed.exit_code == -signal.SIGKILL
    for outcome in (first, last):
        assert outcome.error is not None
        assert re.match(r"step [12], batch \d+: rank 1 does not answer", outcome.error.text)


def watch(name: str, before: Callable[[int, torch.Tensor], object]) -> None:
    """Do something before each send or receive of gloo's, given the peer and the message."""
    gloo: Any = distributed.ProcessGroupGloo
    call = getattr(gloo, name)

    def watched(group: Any, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        before(peer, tensors[0])
        return call(group, tensors, peer, tag)

    setattr(gloo, name, watched)


@pytest.mark.parametrize("order", ["rotated", "same"])
@in_each_rank(4)
def test_order_of_pulls(world: World, order: Order) -> None:
    rank, size, asked = world.rank, world.size, list[tuple[int, int]]()
    watch("recv", lambda peer, message: asked.append((peer, message.numel())))
    model = make_model(NAME)
    optimizer = make_optimizer("adam", model)
    executor = attach_slices(world, order, model, optimizer)
    take_steps(executor, NAME, rank, [0])
    moments = sum(state["exp_avg"].numel() for state in optimizer.state.values())
    executor.close()
    plan = slices(model, size, order)
    sizes = [stop - start for start, stop in plan.slices]
    others = [other for other in plan.pull_order[rank] if other != rank]
    if order == "rotated":
        assert others == [(rank + turn) % size for turn in range(1, size)]
    gradients = [(other, sizes[rank]) for other in others]
    assert asked == gradients + [(other, sizes[other]) for other in others]
    transfers = [event for event in executor.trace.events if event.kind == "transfer"]
    turns = [(way, turn) for way in ("push", "pull") for turn in range(size)]
    assert [(event.direction, event.batch) for event in transfers] == turns
    assert moments == sizes[rank]
    assert sum(sizes) == sum(parameter.numel() for parameter in model.parameters())


def lose_a_connection() -> None:
    def broken(peer: int, _: torch.Tensor) -> None:
        if (os.environ["RANK"], peer) == ("0", 2):
            raise RuntimeError("the cable is cut")

    watch("recv", broken)
    with join(timeout_s=8) as world:
        model = make_model(NAME)
        executor = attach_slices(world, "rotated", model, make_optimizer("sgd", model))
        take_steps(executor, NAME, world.rank, [0])


def test_the_other_end_of_a_broken_transfer_is_named() -> None:
    for error in errors(launch(lose_a_connection, 4)):
        assert "the cable is cut" in error.text
        attributes = error.attributes
        assert (attributes["step"], attributes["batch"], attributes["peers"]) == (0, 2, (2,))


@pytest.mark.slow
@in_each_rank(3)
def test_a_rank_serves_the_others_to_the_end(world: World) -> None:
    """One owns everything, and still has to send when it needs nothing more itself."""
    watch("send", lambda *_: time.sleep(0.3))
    model = make_model(NAME)
    elements = sum(parameter.numel() for parameter in model.parameters())
    plan = SliceProgram(((0, 0), (0, 0), (0, elements)), ((0, 2, 1), (1, 0, 2), (0, 1, 2)))
    with SliceExecutor(model, plan, make_optimizer("sgd", model), world) as executor:
        take_steps(executor, NAME, world.rank, [0])
    weights = weights_of(model)
    assert largest_difference(weights, ddp_weights(NAME, steps=1)) <= 1e-6
    world.agree("the weights", repr([weight.tolist() for weight in weights.values()]))


# ---
# What is refused.


def test_plans_that_do_not_fit() -> None:
    check_slices(SliceProgram(((0, 10), (10, 10)), ((1, 0), (1, 0))), 2, 10)
    for slices, last, path in (
        (((0, 5),), (1, 0), "slices"),
        (((0, 5), (5, 9)), (1, 0), "slices"),
        (((0, 11), (11, 10)), (1, 0), "slices[1]"),
        (((0, 5), (5, 10)), (1, 1), "pull_order[1]"),
    ):
        with pytest.raises(InvalidPlanError) as error:
            check_slices(SliceProgram(slices, ((0, 1), last)), 2, 10)
        assert error.value.path == path


class Doubled(torch.optim.SGD):
    """Somebody's own."""


def an_optimizer(kind: Any, **options: Any) -> Optimizer:
    return kind([nn.Parameter(torch.zeros(2, 2))], lr=0.1, **options)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "kind", [torch.optim.Adafactor, torch.optim.Muon, torch.optim.SparseAdam, Doubled]
)
def test_optimisers_that_need_whole_parameters_are_refused(kind: type[Optimizer]) -> None:
    with pytest.raises(InvalidInputError, match=f"SGD, Adam, .* ASGD.*got {kind.__name__}$"):
        check_elementwise(an_optimizer(kind))


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_optimisers_that_have_begun_on_slices_are_refused(kind: type[Optimizer]) -> None:
    optimizer = an_optimizer(kind, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
    check_elementwise(optimizer)
    (parameter,) = optimizer.param_groups[0]["params"]
    parameter.grad = torch.ones(2, 2)
    optimizer.step()
    check_elementwise(optimizer)
    state = optimizer.state[parameter]
    key = next(key for key, value in state.items() if value.dim())
    state[key] = state[key].view(-1)
    with pytest.raises(InvalidInputError, match="the state of whole parameters"):
        check_elementwise(optimizer)
