"""A backend of torch.compile that runs a plan inside the graphs of a model.

Problem. A plan says in which order gradients are to be complete, and which of them travel together
and when. Autograd runs in an order of its own and is not told; a compiled graph is.

Method. Of each graph the backward pass is put into the planned order (`reordering`), and the
transfers of the plan stand in it where they become ready (`transfers`). The forward graph waits
where parameters are first read (`finishing`). Graphs then run as they are, or go to Inductor.

Guarantee. What runs is what was planned, or is refused before the first transfer. Weights are those
of plain data-parallel training.

Complexity. Compiling takes near-linear time in the nodes, beside the compiler's own.

Source. Hashemi et al., *Caramel* §4 (enforcing an order in the graph); torch's `aot_autograd`.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.optim import Optimizer

from planner.errors import InvalidInputError, PlannerError
from planner.profiling.compiled.naming import GraphNumbers, breaks
from planner.programs import GradientProgram, Plan, program_of, with_pieces
from planner.programs.orders import order_of
from planner.runtime.compiled.compilers import as_it_is, with_inductor
from planner.runtime.compiled.parts import Order, Part
from planner.runtime.compiled.steps import Steps
from planner.runtime.model.parameters import plain_name
from planner.runtime.world.world import World

__all__ = ["PlannedBackend"]


class PlannedBackend:
    """Let a compiled model's training steps communicate as planned.

    A step is the forward pass, the backward pass and `step`::

        world = join()
        backend = PlannedBackend(model, Path("plan.json").read_bytes(), optimizer, world)
        compiled = torch.compile(model, backend=backend, dynamic=False)
        for inputs, targets in batches:
            criterion(compiled(inputs), targets).backward()
            backend.step()
        backend.close()
        world.leave()

    Every rank has to do it. All ranks start from the parameters of rank 0.

    Parameters
    ----------
    model : Module
        On the CPU, the same on all ranks, not compiled yet.
    plan : bytes, mapping, answer or tuple
        A plan of `caramel`, or a replicated one of `iteration`, as for `planner.runtime.attach`. If
        its profile is of the compiled model (``planner profile --compiled``), operations run in
        just its order; else gradients are complete in its order.
    optimizer : Optimizer
        Any of torch that can update some parameters before others.
    world : World
        What `planner.runtime.join` returned.
    inductor : bool
        Whether Inductor makes code of the graphs. It merges operations, so that of the order of
        operations only that of gradients and of transfers is left.
    keep_order : bool
        Whether to leave operations in the compiler's order, and take only the plan's transfers.

    Raises
    ------
    InvalidInputError
        If the plan does not all-reduce, or does not fit the model or the optimiser.
    DisagreementError
        If ranks differ in plan, model or optimiser; on every rank.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        optimizer: Optimizer,
        world: World,
        *,
        inductor: bool = False,
        keep_order: bool = False,
    ) -> None:
        program = with_pieces(
            program_of(plan), lambda piece: piece._replace(parameter=plain_name(piece.parameter))
        )
        if not isinstance(program, GradientProgram):
            raise InvalidInputError(
                "plan", "expected one that all-reduces gradients: of caramel, or replicated"
            )
        for number, batch in enumerate(program.batches):
            if batch.collective is not None and batch.collective.generator != "ring":
                raise InvalidInputError(
                    f"transfers[{number}]",
                    f"is summed up by {batch.collective.generator}: compiled graphs have torch's "
                    "own all-reduce; plan with --algorithms ring",
                )
        planned = None if keep_order else order_of(plan)
        options = f"inductor: {inductor}, {planned}"
        self._steps = Steps(model, program, optimizer, world, options)
        self._order = Order(planned, exact=not inductor)
        self._compile = with_inductor if inductor else as_it_is
        self._numbers = GraphNumbers()
        self._owners: dict[str, int] = {}
        self.parts: list[Part] = []
        """The graphs made so far, in the order in which they were compiled."""

    @property
    def breaks(self) -> tuple[str, ...]:
        """Why Dynamo has cut what it compiled in this process into several graphs."""
        return breaks()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        self._steps.world.report(error)
        self.close()

    def __call__(self, module: GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph; torch.compile calls it."""
        try:
            with self._steps.world.refusing():
                part = self._part(module, examples)
            return self._compile(part, module, examples)
        except PlannerError as error:
            return _raising(error)  # torch would wrap it into an error of its own

    def step(self) -> None:
        """End a training step: what is called in place of the optimiser's `step`.

        Raises
        ------
        CommunicationError
            If this rank cannot go on, or another one has stopped.
        """
        self._steps.step()

    def no_sync(self) -> AbstractContextManager[None]:
        """Let backward passes add to the gradients without sending them, all but the last one."""
        return self._steps.no_sync()

    def synchronise(self) -> None:
        """Wait for all gradients and put their means into ``grad``, as to clip their norm.

        The next `step` then updates at once.
        """
        self._steps.synchronise()

    def finish(self) -> None:
        """Finish all updates: call it before reading parameters other than by the compiled model.

        `state_dict` of the model and of the optimiser call it.
        """
        self._steps.finish()

    def close(self) -> None:
        """Finish, and leave the model as a plain one; what is compiled ends with an error."""
        self._steps.close()

    def _part(self, module: GraphModule, examples: Sequence[Any]) -> Part:
        """Return the part that a graph is.

        Raises
        ------
        InvalidInputError
            If its shapes are not fixed.
        """
        self._steps.check()
        if any(_is_dynamic(example) for example in examples):
            raise InvalidInputError(
                "model",
                "its compiled graph has dynamic shapes, whose times no plan can know: "
                "torch.compile(…, dynamic=False)",
            )
        inputs = {
            self._steps.names[example]: place
            for place, example in enumerate(examples)
            if isinstance(example, nn.Parameter) and example in self._steps.names
        }
        number = self._numbers.number(module, inputs)
        for name in inputs:
            self._owners[name] = min(number, self._owners.get(name, number))
        self.parts.append(Part(number, inputs, self._steps, self._order, self._owners))
        return self.parts[-1]


def _is_dynamic(example: object) -> bool:
    if isinstance(example, torch.SymInt):
        return True
    return isinstance(example, Tensor) and any(
        isinstance(size, torch.SymInt) for size in example.shape
    )


def _raising(error: PlannerError) -> Callable[..., Any]:
    def refused(*_: object) -> Any:
        raise error

    return refused
