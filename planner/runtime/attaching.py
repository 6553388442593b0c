"""From a plan to the executor that follows it."""

from collections import Counter
from dataclasses import replace

from torch import nn
from torch.optim import Optimizer

from planner.collectives.recipes import made
from planner.errors import InvalidInputError
from planner.programs import (
    Batch,
    GradientProgram,
    Plan,
    Program,
    ShardProgram,
    SliceProgram,
    program_of,
)
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.collectives.ring import AllReduce
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.slices import SliceExecutor
from planner.runtime.model.parameters import plain_name
from planner.runtime.world.world import World

__all__ = ["attach"]


def attach(
    model: nn.Module,
    plan: Plan | list[Plan] | tuple[Plan, ...],
    optimizer: Optimizer,
    world: World,
    *,
    all_reduce: AllReduce | None = None,
) -> Executor:
    """Let a model's training steps communicate as planned.

    From now on a step is the forward pass, the backward pass and `Executor.step`::

        world = join()
        executor = attach(model, Path("plan.json").read_bytes(), optimizer, world)
        for inputs, targets in batches:
            criterion(model(inputs), targets).backward()
            executor.step()
        executor.close()
        world.leave()

    Every rank has to call it. All ranks start from the parameters of rank 0.

    Parameters
    ----------
    model : Module
        On the CPU, the same on all ranks. It may be compiled, in whole or in part: parameters have
        the same names as without.
    plan : bytes, mapping, answer or tuple
        A plan of `caramel`, `iteration` or `bigdl`, or a list with plans of `ibatch` for pull and
        for push. Either what ``planner solve`` answers, as JSON text or plain values; or a problem
        with what its `solve` returned, or with a plan of your own, which is checked::

            attach(model, (problem, caramel.solve(problem)), optimizer, world)

        Problems of `ibatch` do not name parameters: the names of each layer's come third::

            names = profile.layer_parameters()
            plans = [(pull, ibatch.solve(pull), names), (push, ibatch.solve(push), names)]
    optimizer : Optimizer
        Any of torch that can update some parameters before others; for `ibatch` and `bigdl` one
        that updates each element by itself.
    world : World
        What `join` returned.
    all_reduce : AllReduce, optional
        How gradients are summed up, for plans that leave it open, as those of `caramel` do; by
        default gloo's ring. Plans of `iteration` say by which program: that one is run.

    Raises
    ------
    InvalidInputError
        If the plan leaves open what has to be known, is none of its problem, or does not fit the
        model or the optimiser.
    DisagreementError
        If ranks differ in plan, model or optimiser; on every rank.
    CommunicationError
        If a rank does not take part in time.
    """
    program = _plain(program_of(plan))
    if all_reduce is not None and not isinstance(program, GradientProgram):
        raise InvalidInputError("all_reduce", "the plan does not all-reduce")
    if isinstance(program, SliceProgram):
        return SliceExecutor(model, program, optimizer, world)
    own = _planned(world, program, all_reduce)
    try:
        executor: Executor
        if isinstance(program, ShardProgram):
            executor = ShardExecutor(model, program, optimizer, world, own)
        else:
            executor = GradientExecutor(model, program, optimizer, world, own or all_reduce)
    except BaseException:
        if own is not None:
            own.close()
        raise
    if own is not None:
        executor.closing(own.close)
    return executor


def _planned(
    world: World, planned: GradientProgram | ShardProgram, all_reduce: AllReduce | None
) -> Interpreter | None:
    """Return what follows the program that a plan names; None if that is gloo's own all-reduce.

    Raises
    ------
    InvalidInputError
        If the program is for other ranks, or another one was given.
    """
    recipe = planned.collective
    if recipe is None or world.size == 1:
        return None
    program = made(recipe)
    if program.ranks != world.size:
        raise InvalidInputError(
            "plan",
            f"sums up by {program.name}: it is for {program.ranks} ranks, the job has "
            f"{world.size}; plan for {world.size}",
        )
    is_ring = recipe.generator == "ring"
    if all_reduce is not None and all_reduce.name not in (program.name, "ring" if is_ring else ""):
        raise InvalidInputError(
            "all_reduce", f"the plan sums up by {program.name}, got {all_reduce.name}"
        )
    owned = Counter(map(program.owner, range(program.chunks)))
    if isinstance(planned, ShardProgram) and len(set(map(owned.get, range(program.ranks)))) > 1:
        raise InvalidInputError(
            "plan",
            f"shards by {program.name}, which leaves some ranks without any: plan with another "
            "algorithm, or replicated",
        )
    if all_reduce is not None or (is_ring and isinstance(planned, GradientProgram)):
        return None
    return Interpreter(world, program)


def _plain(program: Program) -> Program:
    """Return a program with the names that parameters have where nothing is compiled."""

    def plain(batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        return tuple(
            replace(
                batch,
                pieces=tuple(
                    piece._replace(parameter=plain_name(piece.parameter)) for piece in batch.pieces
                ),
            )
            for batch in batches
        )

    if isinstance(program, GradientProgram):
        return replace(program, batches=plain(program.batches))
    if isinstance(program, ShardProgram):
        return replace(program, pulls=plain(program.pulls), pushes=plain(program.pushes))
    return program
