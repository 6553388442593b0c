"""Make the executor of a plan."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch import nn
from torch.optim import Optimizer

from planner.families.bml.program import made
from planner.families.collectives.recipes import Recipe
from planner.model.errors import InvalidInputError
from planner.programs import (
    GradientProgram,
    Plan,
    Program,
    ShardProgram,
    SliceProgram,
    UnitProgram,
    program_of,
    with_pieces,
)
from planner.runtime.collectives.interpreter import Interpreter
from planner.runtime.collectives.ring import AllReduce
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.executors.slices import SliceExecutor
from planner.runtime.model.parameters import plain_name
from planner.runtime.world.world import World


def attach(
    model: nn.Module,
    plan: Plan | list[Plan] | tuple[Plan, ...],
    optimizer: Optimizer,
    world: World,
    *,
    all_reduce: AllReduce | None = None,
    strict_order: bool | None = None,
) -> Executor:
    """Let a model's training steps communicate as planned.

    A training step becomes the forward pass, the backward pass and `Executor.step`::

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
        On the CPU, the same on all ranks. It may be compiled, in whole or in part; its parameters
        keep the names they have without compilation.
    plan : bytes, mapping, answer or tuple
        A plan of `caramel`, `iteration` or `bigdl`, or a list of two plans of `ibatch`, one for the
        pull and one for the push. Either an answer of ``planner solve``, as JSON text or plain
        values; or a problem with its `Result`, or with a plan of your own, which is checked::

            attach(model, (problem, caramel.solve(problem)), optimizer, world)

        Problems of `ibatch` do not name parameters. Give the names of each layer's parameters as
        the third item::

            names = profile.layer_parameters()
            plans = [(pull, ibatch.solve(pull), names), (push, ibatch.solve(push), names)]
    optimizer : Optimizer
        Any optimiser of torch that can update some parameters before others; for `ibatch` and
        `bigdl` an elementwise one.
    world : World
        The job, from `join`.
    all_reduce : AllReduce, optional
        The all-reduce of gradients for plans that do not name one, as those of `caramel`; by
        default gloo's ring. Plans of `iteration` name a collective program, which is used.
    strict_order : bool, optional
        True: a batch of gradients always waits for the batches before it. False: a batch that is
        ready on all ranks may overtake one that is not, unless the plan lets the network wait for
        that one. Default: overtake where the ranks measure that the order costs time. Shards and
        slices always keep the order.

    Raises
    ------
    InvalidInputError
        If the plan is incomplete, does not solve its problem, or does not fit the model or the
        optimiser.
    DisagreementError
        If ranks differ in plan, model or optimiser; on every rank.
    CommunicationError
        If a rank does not take part in time.
    """
    program = reads_as(plan)
    if isinstance(program, UnitProgram):
        raise InvalidInputError(
            "problem", "a plan of fsdp is carried out by FSDP2: planner.runtime.fsdp2.as_fsdp2"
        )
    if all_reduce is not None and not isinstance(program, GradientProgram):
        raise InvalidInputError("all_reduce", "the plan does not all-reduce")
    if isinstance(program, SliceProgram):
        return SliceExecutor(model, program, optimizer, world)
    with ExitStack() as if_refused:
        interpreters = _interpreters(world, program, all_reduce, if_refused.callback)
        executor: Executor
        if isinstance(program, ShardProgram):
            executor = ShardExecutor(model, program, optimizer, world, interpreters)
        else:
            executor = GradientExecutor(
                model,
                program,
                optimizer,
                world,
                all_reduce,
                interpreters,
                strict_order=strict_order,
            )
        executor.closing(if_refused.pop_all().close)
    return executor


def reads_as(plan: Any) -> Program:
    """Return the program of a plan, with parameters by their plain names."""
    return with_pieces(
        program_of(plan), lambda piece: piece._replace(parameter=plain_name(piece.parameter))
    )


def _interpreters(
    world: World,
    program: GradientProgram | ShardProgram,
    all_reduce: AllReduce | None,
    closing: Callable[[Callable[[], None]], object],
) -> dict[Recipe | None, Interpreter]:
    """Return an interpreter for each collective program that the plan names."""
    made: dict[Recipe | None, Interpreter] = {}
    for recipe in dict.fromkeys(batch.collective for batch in program.batches):
        own = _planned(world, program, recipe, all_reduce)
        if own is not None:
            made[recipe] = own
            closing(own.close)
    return made


def _planned(
    world: World,
    planned: GradientProgram | ShardProgram,
    recipe: Recipe | None,
    all_reduce: AllReduce | None,
) -> Interpreter | None:
    """Return the interpreter of a collective program; None if gloo's own all-reduce is used.

    A program for another number of ranks, or another given `all_reduce`, is an `InvalidInputError`.
    """
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
    if all_reduce is not None or (is_ring and isinstance(planned, GradientProgram)):
        return None
    return Interpreter(world, program)
