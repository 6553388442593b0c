"""The graphs of a compiled model, captured, and run operation by operation with a clock.

Problem. What torch.compile captures exists only inside a backend, whose functions the model calls.

Method. A backend that keeps the graphs of both passes and returns functions that run them, as they
are or one operation at a time; each call leaves a record of when it began and ended.

Complexity. One pass over the nodes a call.

Source. `torch._dynamo.backends.common.aot_autograd`, `torch.fx.Interpreter`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn
from torch.fx import GraphModule, Interpreter

from planner.errors import MeasurementError
from planner.profiling.compiled.dependences import operations
from planner.profiling.compiled.naming import GraphNumbers
from planner.profiling.timing import Clock

__all__ = ["Call", "Recorder", "Stage"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One pass of one graph.

    Attributes
    ----------
    graph : int
        The number of the graph.
    phase : {"forward", "backward"}
        The pass.
    module : GraphModule
        The graph.
    parameters : mapping of str to int
        Which input of the forward pass, and output of the backward pass, each parameter is.
    """

    graph: int
    phase: Literal["forward", "backward"]
    module: GraphModule
    parameters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a stage: when it began and ended, and how long each operation took."""

    stage: Stage
    start_ns: int
    end_ns: int
    times_ns: Sequence[int]


class _Timed(Interpreter):
    """Runs a graph and notes how long each operation takes."""

    def __init__(self, module: GraphModule, clock: Clock) -> None:
        super().__init__(module)
        self._clock = clock
        self.times: list[int] = []

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        start = self._clock()
        result = super().call_function(target, args, kwargs)
        self.times.append(self._clock() - start)
        return result


@dataclass(slots=True)
class Recorder:
    """A backend of torch.compile that keeps graphs, and can time their operations.

    Attributes
    ----------
    names : mapping of Tensor to str
        The trained parameters of the model.
    clock : callable
        Reads the time.
    timing : bool
        Whether operations are timed one by one.
    calls : list of Call
        What ran since it was cleared.
    """

    names: Mapping[Tensor, str]
    clock: Clock
    timing: bool = False
    calls: list[Call] = field(default_factory=list)
    _numbers: GraphNumbers = field(default_factory=GraphNumbers)

    def __call__(self, module: GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """Keep a graph; torch.compile calls it."""
        from torch._dynamo.backends.common import aot_autograd

        parameters = {
            self.names[example]: place
            for place, example in enumerate(examples)
            if isinstance(example, nn.Parameter) and example in self.names
        }
        graph = self._numbers.number(module, parameters)
        compiled: Any = aot_autograd(
            fw_compiler=partial(self._kept, graph, "forward", parameters),
            bw_compiler=partial(self._kept, graph, "backward", parameters),
        )
        made: Callable[..., Any] = compiled(module, examples)
        return made

    def _kept(
        self,
        graph: int,
        phase: Literal["forward", "backward"],
        parameters: Mapping[str, int],
        module: GraphModule,
        _examples: Sequence[Any],
    ) -> Callable[..., Any]:
        if any(node.op in ("call_module", "call_method") for node in operations(module.graph)):
            raise MeasurementError("the compiled graph calls something else than functions")
        from torch._functorch._aot_autograd.utils import make_boxed_func

        stage = Stage(graph, phase, module, parameters)

        def run(*args: Any) -> Any:
            start = self.clock()
            if not self.timing:
                result, times = module.forward(*args), []
            else:
                timed = _Timed(module, self.clock)
                result, times = timed.run(*args), timed.times
            self.calls.append(Call(stage, start, self.clock(), times))
            return result

        made: Callable[..., Any] = make_boxed_func(run)
        return made
