"""Training by every kind of executor gives the weights of plain DDP, whatever the plan."""

import random
import warnings
from collections.abc import Collection, Sequence
from functools import cache, partial
from itertools import islice, pairwise
from math import inf
from typing import get_args

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from planner.programs import Batch, GradientProgram, Piece, ShardProgram
from planner.programs.forms import Direction
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.slices import SliceExecutor
from planner.runtime.model.parameters import trainable
from planner.runtime.world.world import World
from tests.runtime.jobs import in_each_rank
from tests.runtime.recipes import ALL, OWN, RECIPES, SLOW, Ours, Plain, follow, made
from tests.runtime.reference import (
    MODELS,
    OPTIMIZERS,
    STEPS,
    Weights,
    ddp_weights,
    largest_difference,
    make_model,
    make_optimizer,
    take_steps,
    weights_of,
)
from tests.runtime.sharing import Attach, Order, slices
from tests.thorough import THOROUGH

# ---
# Plans: any, in batches of some sizes, in slices, and those that cut parameters.


def by_any_program(
    seed: int, world: World, model: nn.Module, optimizer: Optimizer, barrier: bool | None = None
) -> Executor:
    """Cut parameters anywhere, group them anyhow, and send them in any order."""
    draw = random.Random(seed)
    pieces = []
    for name, parameter in trainable(model).items():
        width = parameter.element_size()
        cuts = {0, parameter.numel(), *(draw.randrange(parameter.numel()) for _ in range(2))}
        marks = sorted(cuts) if draw.random() < 0.5 else [0, parameter.numel()]
        pieces += [Piece(name, width * start, width * stop) for start, stop in pairwise(marks)]
    draw.shuffle(pieces)
    marks = sorted({0, len(pieces), *(draw.randrange(len(pieces)) for _ in range(4))})
    batches = tuple(
        Batch(tuple(pieces[start:stop]), depth=draw.randint(1, 8))
        for start, stop in pairwise(marks)
    )
    held = draw.random() < 0.3 if barrier is None else barrier
    return GradientExecutor(model, GradientProgram(batches, barrier=held), optimizer, world)


def pulled_early(program: ShardProgram) -> ShardProgram:
    """Return a program that pulls each batch as soon as all of it was pushed."""
    spans = [
        (name, start, stop or inf, number)
        for number, push in enumerate(program.pushes)
        for name, start, stop in push.pieces
    ]

    def pushed(pull: Batch) -> int:
        return max(
            number
            for name, start, stop in pull.pieces
            for other, first, last, number in spans
            if name == other and start < last and first < (stop or inf)
        )

    transfers: list[tuple[Direction, Batch]] = []
    for number, push in enumerate(program.pushes):
        transfers.append(("push", push))
        transfers += [("pull", pull) for pull in program.pulls if pushed(pull) == number]
    return ShardProgram(tuple(transfers))


SIZES = {"one": (100,), "each": (1,) * 100, "uneven": (1, 3, 2, 100)}
"""Of batches."""


def batches(model: nn.Module, how: str) -> tuple[Batch, ...]:
    pieces = iter([Piece(name) for name, _ in model.named_parameters()])
    some = (tuple(islice(pieces, size)) for size in SIZES[how])
    return tuple(Batch(each) for each in some if each)


def by_shards(
    pull: str, push: str, world: World, model: nn.Module, optimizer: Optimizer
) -> Executor:
    program = ShardProgram.pushes_first(batches(model, pull), batches(model, push)[::-1])
    return ShardExecutor(model, pulled_early(program), optimizer, world)


def by_slices(order: Order, world: World, model: nn.Module, optimizer: Optimizer) -> Executor:
    return SliceExecutor(model, slices(model, world.size, order), optimizer, world)


def cut(model: nn.Module, most: int, together: int) -> tuple[Batch, ...]:
    """Cut all parameters into pieces of this number of elements, and batch them crosswise."""
    pieces = []
    for name, parameter in model.named_parameters():
        size = parameter.numel() * parameter.element_size()
        step = most * parameter.element_size()
        pieces += [Piece(name, start, min(start + step, size)) for start in range(0, size, step)]
    crossed = pieces[::2] + pieces[1::2]
    starts = range(0, len(crossed), together)
    return tuple(Batch(tuple(crossed[start : start + together])) for start in starts)


Sizes = tuple[int, int]
"""Elements of a piece, and pieces of a batch."""


def by_cut_shards(
    early: bool, pull: Sizes, push: Sizes, world: World, model: nn.Module, optimizer: Optimizer
) -> Executor:
    """Push elsewhere than is pulled."""
    program = ShardProgram.pushes_first(cut(model, *pull), cut(model, *push)[::-1])
    if early:
        program = pulled_early(program)
        first = [direction for direction, _ in program.transfers].index("pull")
        assert "push" in {direction for direction, _ in program.transfers[first:]}
    return ShardExecutor(model, program, optimizer, world)


CUTS = [((41, 3), (61, 2)), ((1000, 1), (41, 4)), ((87, 20), (187, 1))]

FOR_MODELS: dict[str, list[Attach]] = {
    "gradients": [partial(by_any_program, seed) for seed in range(5 if THOROUGH else 2)],
    "shards": [partial(by_shards, how, how) for how in SIZES],
    "slices": [partial(by_slices, order) for order in get_args(Order)],
    "cut shards": [
        partial(by_cut_shards, early, *sizes) for early in (True, False) for sizes in CUTS
    ],
}
MIXED = (("uneven", "each"), ("one", "uneven"), ("each", "one"))
FOR_RECIPES: dict[str, list[Attach]] = {
    "gradients": [partial(by_any_program, 3, barrier=False)],
    "shards": [partial(by_shards, *way) for way in MIXED],
    "shards, each": FOR_MODELS["shards"][1:2],
    "slices": FOR_MODELS["slices"],
    "cut shards": FOR_MODELS["cut shards"][:1],
}

# ---
# What is trained, and how it is compared.

ROUNDED = {"SGD fused": 1e-6, "AdamW fused": 1e-6, "mixed": 0.02}
"""Torch's fused optimisers, and all in bfloat16 (of 8 bits), round the last elements of a tensor in
another way than those before, so that the place of a cut shows."""

UNSTABLE = {"RMSprop": 1e-4, "Rprop": 0.1}
"""These divide by the size of a gradient, or look at its sign alone."""


def check(world: World, kind: str, name: str, ours: Weights, expected: Weights) -> None:
    """Check that all ranks end with the same weights, and with those expected."""
    few = world.size <= 2  # two numbers have the same sum in either order
    limits = {} if kind == "gradients" else ROUNDED if few else ROUNDED | UNSTABLE
    assert largest_difference(ours, expected) <= limits.get(name, 0 if few else 1e-6), name
    world.agree(f"the weights of {name}", repr([weight.tolist() for weight in ours.values()]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ranks", "models"),
    [
        *(("gradients", ranks, list(MODELS)) for ranks in (2, 3)),
        ("gradients", 9, ["transformer"]),  # nine ranks change the ring alone
        *((kind, 2, list(MODELS)) for kind in ("shards", "slices")),
        *(("cut shards", ranks, list(MODELS)) for ranks in ([2, 3, 4] if THOROUGH else [2, 3])),
    ],
)
@in_each_rank("ranks", timeout_s=300)
def test_every_model_trains_as_under_ddp(
    world: World, kind: str, ranks: int, models: Sequence[str]
) -> None:
    """By default optimisers, and but for the first model ways, are tried by turns."""
    expected, optimizers, ways = cache(ddp_weights), list(OPTIMIZERS), FOR_MODELS[kind]
    for number, name in enumerate(models):
        # Models are cut so that something is pushed behind the first pull.
        all_ways = kind == "gradients" or ((THOROUGH or not number) and kind != "cut shards")
        turns = (ranks, ranks + 1) if THOROUGH else (ranks,)
        places = [(number + 3 * turn) % len(ways) for turn in turns]
        for place in range(len(ways)) if all_ways else places:
            for optimizer in optimizers if THOROUGH else [optimizers[(number + place + ranks) % 2]]:
                model = make_model(name)
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.add_(world.rank)  # which has to become what rank 0 has
                updates = make_optimizer(optimizer, model)
                with ways[place](world, model, updates) as executor:
                    take_steps(executor, name=name)
                    share = sum(own.numel() for own in updates.param_groups[0]["params"])
                # Of each cell, some elements here, a rank has one too many at most.
                whole = sum(parameter.numel() for parameter in model.parameters())
                assert share == whole if kind == "gradients" else share < 2 * whole / ranks
                check(world, kind, name, weights_of(model), expected(name, optimizer))


LEFT_OUT = {"clipped", "clipped and accumulated", "Adafactor", "Adafactor, autocast"}
"""Recipes that need more than the gradient of one element."""

OF_SHARDS = [name for name in RECIPES | OWN if name not in LEFT_OUT]
OF_SLICES = [name for name in OF_SHARDS if name != "mixed"]  # which has numbers of several types

MANY = ["frozen", "tiny", "tiny, Adam"]
"""What more ranks than some parameters have elements can go wrong with."""

CUT = ["mixed", "frozen", "tiny, Adam", "named, scheduled", "Adagrad, begun at 1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ranks", "recipes"),
    [
        *(("gradients", 2, list(recipes)) for recipes in (RECIPES, SLOW)),
        *(("shards", ranks, OF_SHARDS) for ranks in (1, 2, 3)),
        ("shards", 6, [*MANY, "mixed"]),
        ("shards, each", 2, ["tiny", "mixed", "frozen"]),
        *(("slices", ranks, OF_SLICES) for ranks in (1, 2, 3)),
        ("slices", 6, MANY),
        *(("cut shards", ranks, CUT) for ranks in ([2, 3, 4] if THOROUGH else [2, 3])),
    ],
)
@in_each_rank("ranks", timeout_s=150)
def test_any_way_of_training_gives_what_ddp_gives(
    world: World, kind: str, ranks: int, recipes: Collection[str]
) -> None:
    ways = FOR_RECIPES[kind]
    for place, name in enumerate(recipes):
        recipe = ALL[name]
        model, optimizer = made(recipe)
        expected = follow(recipe, model, optimizer, Plain(model, optimizer))
        model, optimizer = made(recipe)
        executor = ways[place % len(ways)](world, model, optimizer)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            ours = follow(recipe, model, optimizer, Ours(executor, model))
        executor.close()
        check(world, kind, name, ours, expected)
        if recipe.between is None:
            kinds = [event.kind for event in executor.trace.events]
            assert kinds.count("forward") == STEPS * recipe.passes
        assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize("kind", ["shards", "slices"])
@in_each_rank()
def test_training_goes_on_from_what_was_saved(world: World, kind: str) -> None:
    """It stops after two steps, and ends with a plain step on each rank."""
    attach = FOR_MODELS[kind][-1]
    model = make_model("perceptron")
    optimizer = make_optimizer("adam", model)
    executor = attach(world, model, optimizer)
    take_steps(executor, range(2))
    saved = model.state_dict(), executor.optimizer.state_dict()
    again = make_model("perceptron")
    again.load_state_dict(saved[0])
    executor.close()
    assert optimizer.param_groups[0]["params"] == list(model.parameters())
    assert not optimizer.state
    optimizer = make_optimizer("adam", again)
    executor = attach(world, again, optimizer)
    optimizer.load_state_dict(saved[1])
    take_steps(executor, range(2, STEPS))
    executor.close()
    check(world, kind, "perceptron", weights_of(again), ddp_weights("perceptron", "adam"))
