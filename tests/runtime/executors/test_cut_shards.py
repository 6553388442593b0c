"""Sharded training by plans that cut parameters, pushes elsewhere than pulls, held against DDP."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import Optimizer

from planner.families import iteration
from planner.families.iteration.memory import Footprint
from planner.model.clusters import Cluster, Nic
from planner.model.topologies import Switch
from planner.programs import Batch, Piece, ShardProgram, program_of
from planner.runtime import join
from planner.runtime.executors.shards import ShardExecutor, cells_of, messages_of, slice_of
from planner.runtime.world.world import World
from tests.runtime.launching import launch, values
from tests.runtime.reference import (
    MODELS,
    away_from_ddp,
    ddp_weights,
    make_model,
    make_optimizer,
    measured,
    take_steps,
    weights_of,
)
from tests.runtime.sharing import Pair, check, compare, pulled_early
from tests.thorough import THOROUGH

RANKS = [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
NAME = "perceptron"
WIDTH = 4
"""Bytes of an element."""


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


def train(_: object = None) -> dict[str, Pair]:
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
def test_weights_are_those_of_ddp(ranks: int) -> None:
    check(values(launch(train, ranks, timeout_s=150)))


def tight(machines: int) -> tuple[iteration.Problem, Any]:
    """Plan where memory leaves room for shards alone, and for little at once."""
    profile = measured(NAME)
    footprint = Footprint.of(profile, Fraction(2))
    memory = footprint.resident_bytes("sharded", machines) + 300
    assert memory < footprint.resident_bytes("replicated", machines)
    nic = Nic(Fraction(10**8), 20_000)
    cluster = Cluster("tried", "a test", machines, Switch(machines), nic, memory_bytes=memory)
    problem = iteration.Problem.from_profile(profile, cluster, optimiser=2, element_bytes=WIDTH)
    return problem, iteration.solve(problem)


def follow(plan: Any) -> list[float]:
    with join() as world:
        return [away_from_ddp(plan, NAME, world, kind) for kind in ("sgd", "adam")]


@pytest.mark.parametrize("ranks", RANKS)
def test_what_is_planned_where_memory_is_tight_runs(ranks: int) -> None:
    plan = tight(ranks)
    program = program_of(plan)
    assert isinstance(program, ShardProgram)
    for batches in (program.pulls, program.pushes):
        assert any(piece != Piece(piece.parameter) for batch in batches for piece in batch.pieces)
    for differences in values(launch(follow, ranks, plan)):
        assert max(differences) < 1e-6


SIZES = {"a": 30, "b": 1, "c": 7}


@st.composite
def partitions(draw: st.DrawFn) -> tuple[Batch, ...]:
    """Draw batches that carry all elements of some parameters once."""
    pieces = []
    for name, size in SIZES.items():
        cuts = sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=4))})
        pieces += [Piece(name, WIDTH * start, WIDTH * stop) for start, stop in pairwise(cuts)]
    shuffled = draw(st.permutations(pieces))
    together = draw(st.integers(1, len(pieces)))
    starts = range(0, len(pieces), together)
    return tuple(Batch(tuple(shuffled[start : start + together])) for start in starts)


def spots(
    batch: Batch, parameters: Mapping[str, nn.Parameter], cells: Any, ranks: int, least: int
) -> Iterator[tuple[int, float]]:
    """Yield the row in which each element of a batch lies, when values are put into messages."""
    for message in messages_of(batch, parameters, cells, ranks, least):
        matrix = torch.full((ranks, message.width), -1.0)
        for columns in message.columns:
            for place, part in columns.parts(matrix, columns.cell.parameter.detach()):
                assert (place == -1).all()
                place.copy_(part)
        for row, numbers in enumerate(matrix.tolist()):
            yield from ((row, number) for number in numbers if number >= 0)


@given(partitions(), partitions(), st.integers(1, 5), st.integers(1, 200))
def test_every_piece_brings_each_rank_its_own_elements(
    pulls: tuple[Batch, ...], pushes: tuple[Batch, ...], ranks: int, least: int
) -> None:
    parameters, first = {}, 0
    for name, size in SIZES.items():
        parameters[name] = nn.Parameter(torch.arange(first, first + size, dtype=torch.float32))
        first += size
    cells = cells_of(pulls + pushes, parameters)
    owner: dict[float, int] = {}
    for several in cells.values():
        for cell in several:
            for rank in range(ranks):
                for value in slice_of(cell, rank, ranks).of(cell.parameter.detach()).tolist():
                    assert owner.setdefault(value, rank) == rank
    assert sorted(owner) == list(range(first))
    for batches in (pulls, pushes):
        for batch in batches:
            carried = [
                element
                for name, start, stop in batch.pieces
                for element in parameters[name].tolist()[start // WIDTH : (stop or 0) // WIDTH]
            ]
            lying = sorted(
                (value, row) for row, value in spots(batch, parameters, cells, ranks, least)
            )
            assert lying == sorted((value, owner[value]) for value in carried)
