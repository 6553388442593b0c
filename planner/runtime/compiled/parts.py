"""One compiled graph of a model: what its two passes run, each rewritten as the plan says.

Problem. A graph that torch.compile makes is compiled once and runs in steps of several kinds: with
transfers, without them while gradients are accumulated, and with them behind what was accumulated.

Method. The forward graph is rewritten once. Of the backward graph a copy is rewritten, and
compiled, for each kind of step when the first one comes.

Guarantee. All ranks have compared the graphs before either runs. A graph that cannot follow the
plan is refused, by an error that its first call raises on every rank.

Complexity. See `reordering` and `transfers`; a call takes O(parameters + batches) beside the graph.

Source. Own, on torch's `aot_autograd`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from planner.errors import InvalidInputError
from planner.profiling.compiled.dependences import operations
from planner.profiling.compiled.naming import op_name
from planner.programs import digest
from planner.programs.orders import PlannedOrder
from planner.runtime.compiled.finishing import Waiting, insert_finishing
from planner.runtime.compiled.reordering import by_gradients, by_operations, impose
from planner.runtime.compiled.steps import Steps
from planner.runtime.compiled.transfers import arriving, insert_transfers
from planner.runtime.model.compiled import uncompiled

__all__ = ["Make", "Order", "Part"]

Make = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
"""Makes of a graph and examples of its inputs a function of a list of inputs."""


@dataclass(frozen=True, slots=True)
class Order:
    """How operations are put in order.

    Attributes
    ----------
    planned : PlannedOrder or None
        The plan's order; None: as the compiler has them.
    exact : bool
        Whether that of operations counts, where the plan names those of the graph.
    """

    planned: PlannedOrder | None
    exact: bool


class Part:
    """A graph, number `number` of the model in the order of the forward pass.

    Parameters
    ----------
    number : int
        Its number.
    inputs : mapping of str to int
        Which input of the forward graph each parameter is.
    steps : Steps
        The steps it is part of.
    order : Order
        How its operations are put in order.
    """

    def __init__(self, number: int, inputs: Mapping[str, int], steps: Steps, order: Order) -> None:
        self.number = number
        self.inputs = inputs
        self.steps = steps
        self.order = order
        self.batches = sorted({batch for name in inputs for batch in steps.batches_of[name]})
        self.waits: list[tuple[str, tuple[int, ...]]] = []
        """Names of the forward graph's operations before which it waits, and for which batches."""
        self.imposed = "none"
        """What of the plan's order the backward graph keeps: of "operations" or "gradients"."""
        self._waiting = Waiting(steps.finish_batches)

    def forward(
        self, make: Make, module: GraphModule, examples: Sequence[Any]
    ) -> Callable[..., Any]:
        """Return what runs the forward graph."""
        with self.steps.world.refusing():
            self._agree("forward", module)
            placeholders = module.graph.find_nodes(op="placeholder")
            reading = {}
            for name, place in self.inputs.items():
                parameter, node = self.steps.parameters[name], placeholders[place]
                if tuple(node.meta["val"].shape) != tuple(parameter.shape):
                    raise InvalidInputError("model", f"{name} is no plain input of the graph")
                reading[node] = self.steps.batches_of[name]
            self._reorder(module.graph, "forward", {})
            if not self.steps.barrier:
                places = insert_finishing(module.graph, reading, self._waiting)
                self.waits = [(node.name, batches) for node, batches in places]
            module.recompile()
        return make(module, examples)

    def inference(
        self, make: Make, module: GraphModule, examples: Sequence[Any]
    ) -> Callable[..., Any]:
        """Return what runs a graph without a backward pass: all parameters are updated before."""
        inner = make(module, examples)

        @uncompiled_boxed
        def run(args: list[Any]) -> Any:
            self.steps.finish()
            return inner(args)

        return run

    def backward(
        self, make: Make, module: GraphModule, examples: Sequence[Any]
    ) -> Callable[..., Any]:
        """Return what runs the backward graph."""
        with self.steps.world.refusing():
            self._agree("backward", module)
            outputs = _outputs(module.graph)
            for name, place in self.inputs.items():
                if place >= len(outputs) or outputs[place] is None:
                    raise InvalidInputError(
                        f"model.{name}",
                        "gets no gradient in the compiled graph (does the loss depend on it?), so "
                        "its batch cannot leave",
                    )
            gradients = {name: outputs[place] for name, place in self.inputs.items()}
            self._reorder(module.graph, "backward", gradients)
            module.recompile()
        return Backward(self, make, module, examples).run

    def _agree(self, phase: str, module: GraphModule) -> None:
        rows = [
            f"{node.name} {node.target} {node.args} {node.kwargs}" for node in module.graph.nodes
        ]
        self.steps.world.agree(f"compiled graph {self.number}, {phase}", digest(*rows))

    def _reorder(self, graph: Graph, phase: str, gradients: Mapping[str, Node]) -> None:
        planned = self.order.planned
        if planned is None:
            return
        called = {node: op_name(self.number, node, phase) for node in operations(graph)}
        if self.order.exact and not set(planned.ops).isdisjoint(called.values()):
            impose(graph, by_operations(graph, planned.ops, called))
            self.imposed = "operations"
        elif phase == "backward":
            impose(graph, by_gradients(graph, gradients, planned.parameters))
            self.imposed = "gradients"


class Backward:
    """A backward graph for each kind of step.

    Parameters
    ----------
    part : Part
        Whose it is.
    make : callable
        What makes a function of a graph.
    module : GraphModule
        In its final order, without transfers.
    examples : sequence
        Inputs to compile it with.
    """

    def __init__(
        self, part: Part, make: Make, module: GraphModule, examples: Sequence[Any]
    ) -> None:
        self._part = part
        self._module = module
        self._examples = list(examples)
        self._make = make
        self._context = torch._guards.TracingContext.try_get()
        self._made: dict[str, Callable[..., Any]] = {}
        self._gradients = len(_outputs(module.graph))
        self._sizes = [arriving(part.steps.layouts[batch]) for batch in part.batches]

        @uncompiled_boxed
        def run(args: list[Any]) -> Any:
            return self._run(args)

        self.run = run

    def _run(self, args: list[Any]) -> Any:
        part, steps = self._part, self._part.steps
        if not steps.sending:
            return self._of("accumulating")(args)
        steps.begin(part.batches)
        parameters = [steps.parameters[name] for name in part.inputs]
        kind = "sending"
        if any(parameter.grad is not None for parameter in parameters):
            kind = "sending all"
            for parameter in parameters:
                before, parameter.grad = parameter.grad, None
                args.append(torch.zeros_like(parameter) if before is None else before)
        with steps.world.transferring(steps.complete):
            outputs = list(self._of(kind)(args))
        left = outputs[self._gradients :]
        for batch, size in zip(part.batches, self._sizes, strict=True):
            steps.take(batch, left[:size])
            del left[:size]
        return tuple(outputs[: self._gradients])

    def _of(self, kind: str) -> Callable[..., Any]:
        """Return the graph for a kind of step, compiled if it is the first one."""
        if kind not in self._made:
            module = _copied(self._module)
            examples = list(self._examples)
            if kind == "sending all":
                examples += _add_accumulated(module.graph, self._part.inputs)
            if kind != "accumulating":
                steps = self._part.steps
                insert_transfers(
                    module.graph,
                    self._part.inputs,
                    [steps.layouts[batch] for batch in self._part.batches],
                    steps.group.group_name,
                    steps.world.size,
                    wait=steps.barrier,
                )
            module.recompile()
            with torch._guards.tracing(self._context):
                self._made[kind] = self._make(module, examples)
        return self._made[kind]


def uncompiled_boxed(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a function as one that takes a list of inputs and may empty it."""
    kept: Any = uncompiled(function)
    kept._boxed_call = True
    return kept  # type: ignore[no-any-return]


def _copied(module: GraphModule) -> GraphModule:
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return GraphModule(module, graph)


def _outputs(graph: Graph) -> list[Any]:
    (output,) = graph.find_nodes(op="output")
    outputs: Any = output.args[0]
    return list(outputs)


def _add_accumulated(graph: Graph, places: Mapping[str, int]) -> list[Tensor]:
    """Let a graph add what was accumulated to gradients, as further inputs; return examples."""
    (output,) = graph.find_nodes(op="output")
    outputs, examples = _outputs(graph), []
    last = graph.find_nodes(op="placeholder")[-1]
    for number, place in enumerate(places.values()):
        gradient = outputs[place]
        with graph.inserting_after(last):
            last = graph.placeholder(f"accumulated_{number}")
        last.meta["val"] = torch.empty_like(gradient.meta["val"])
        examples.append(last.meta["val"])
        behind = last if gradient.op == "placeholder" else gradient
        with graph.inserting_after(behind):
            outputs[place] = graph.call_function(torch.ops.aten.add.Tensor, (last, gradient))
        outputs[place].meta["val"] = last.meta["val"]
    output.args = (tuple(outputs),)
    return examples
