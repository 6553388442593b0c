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
    owners : mapping of str to int
        The first graph that each parameter is an input of; filled as graphs are compiled.
    """

    def __init__(
        self,
        number: int,
        inputs: Mapping[str, int],
        steps: Steps,
        order: Order,
        owners: Mapping[str, int],
    ) -> None:
        self._owners = owners
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

    def sends(self, batch: int) -> bool:
        """Tell whether a batch leaves in this graph: the first one, whose backward pass is last."""
        names = self.steps.carried[batch]
        return min(self._owners.get(name, self.number) for name in names) == self.number

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

    Of the graphs that have gradients of a batch the one sends it that runs last; the others leave
    theirs to it.

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
        steps = part.steps
        self._part = part
        self._module = module
        self._examples = list(examples)
        self._make = make
        self._context = torch._guards.TracingContext.try_get()
        self._made: dict[str, Callable[..., Any]] = {}
        self._gradients = len(_outputs(module.graph))
        self._batches = [batch for batch in part.batches if part.sends(batch)]
        self._sizes = [arriving(steps.layouts[batch]) for batch in self._batches]
        sent = [name for name, batches in steps.batches_of.items() if {*batches} & {*self._batches}]
        self._own = [name for name in sent if name in part.inputs]
        self._others = [name for name in sent if name not in part.inputs]
        self._left = [
            name for name in part.inputs if not {*steps.batches_of[name]} <= {*self._batches}
        ]

        @uncompiled_boxed
        def run(args: list[Any]) -> Any:
            return self._run(args)

        self.run = run

    def _run(self, args: list[Any]) -> Any:
        part, steps = self._part, self._part.steps
        if not steps.sending:
            return self._of("accumulating")(args)
        steps.begin(self._batches)
        before = {
            name: steps.before(name)
            for name in dict.fromkeys((*self._own, *self._others, *self._left))
        }
        kind = "sending"
        if any(before[name] is not None for name in self._own):
            kind = "sending all"
            for name in self._own:
                earlier = before[name]
                args.append(
                    torch.zeros_like(steps.parameters[name]) if earlier is None else earlier
                )
        for name in self._others:
            earlier = before[name]
            if earlier is None:
                steps.stop(
                    f"{name} got no gradient (does the loss depend on it?), so its batch cannot "
                    "leave",
                    steps.batches_of[name][0],
                )
            args.append(earlier.contiguous())
        with steps.world.transferring(steps.complete):
            outputs = list(self._of(kind)(args))
        arrived = outputs[self._gradients :]
        for batch, size in zip(self._batches, self._sizes, strict=True):
            steps.take(batch, arrived[:size])
            del arrived[:size]
        for name in self._left:
            place = part.inputs[name]
            earlier = None if name in self._own else before[name]
            gradient, outputs[place] = outputs[place], None
            steps.leave(name, gradient if earlier is None else earlier + gradient)
        return tuple(outputs[: self._gradients])

    def _of(self, kind: str) -> Callable[..., Any]:
        """Return the graph for a kind of step, compiled if it is the first one."""
        if kind not in self._made:
            module = _copied(self._module)
            examples = list(self._examples)
            if kind != "accumulating":
                examples += self._add_transfers(module.graph, accumulated=kind == "sending all")
            module.recompile()
            with torch._guards.tracing(self._context):
                self._made[kind] = self._make(module, examples)
        return self._made[kind]

    def _add_transfers(self, graph: Graph, *, accumulated: bool) -> list[Tensor]:
        """Let a graph send its batches; return examples of the inputs that it takes beside."""
        part, steps = self._part, self._part.steps
        inputs = _Inputs(graph)
        outputs = _outputs(graph)
        gradients = {name: outputs[part.inputs[name]] for name in self._own}
        if accumulated:
            for name, gradient in gradients.items():
                gradients[name] = inputs.added(gradient)
        if self._others:
            like = next(node for node in outputs if isinstance(node, Node)).meta["val"]
            for name in self._others:
                parameter = steps.parameters[name]
                value = like.new_empty(tuple(parameter.shape), dtype=parameter.dtype)
                gradients[name] = inputs.taken(value)
        for name in self._own:
            outputs[part.inputs[name]] = gradients[name] if name in self._left else None
        (output,) = graph.find_nodes(op="output")
        output.args = (tuple(outputs),)
        layouts = [steps.layouts[batch] for batch in self._batches]
        group, ranks = steps.group.group_name, steps.world.size
        insert_transfers(graph, gradients, layouts, group, ranks, wait=steps.barrier)
        return inputs.examples


class _Inputs:
    """Adds inputs to a graph, behind those it has."""

    def __init__(self, graph: Graph) -> None:
        self.examples: list[Tensor] = []
        self._graph = graph
        self._last: Node = graph.find_nodes(op="placeholder")[-1]

    def taken(self, value: Tensor) -> Node:
        """Add an input like a value."""
        with self._graph.inserting_after(self._last):
            self._last = self._graph.placeholder(f"beside_{len(self.examples)}")
        self._last.meta["val"] = value
        self.examples.append(value)
        return self._last

    def added(self, gradient: Node) -> Node:
        """Add an input to a gradient."""
        before = self.taken(torch.empty_like(gradient.meta["val"]))
        behind = before if gradient.op == "placeholder" else gradient
        with self._graph.inserting_after(behind):
            add: Any = torch.ops.aten.add.Tensor
            result: Node = self._graph.call_function(add, (before, gradient))
        result.meta["val"] = before.meta["val"]
        return result


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
