"""What graphs are handed to once the plan is in them: torch's interpreter, or Inductor.

Inductor merges operations and moves what it likes. Here it is told to leave the order alone where
it can be (`reorder_for_locality`, `reorder_for_peak_memory`), to draw the random numbers that torch
would, and not to take graphs from a cache that knows no plan.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from planner.errors import InvalidInputError
from planner.runtime.compiled.parts import Part

__all__ = ["as_it_is", "with_inductor"]

_INDUCTOR = {
    "fallback_random": True,
    "reorder_for_locality": False,
    "reorder_for_peak_memory": False,
    "reorder_for_compute_comm_overlap": False,
}


def as_it_is(part: Part, module: GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """Return what runs a graph operation by operation."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func

    def make(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        made: Callable[..., Any] = make_boxed_func(graph.forward)
        return made

    compiled: Any = aot_autograd(
        fw_compiler=partial(part.forward, make),
        bw_compiler=partial(part.backward, make),
        inference_compiler=partial(part.inference, make),
    )
    made: Callable[..., Any] = compiled(module, examples)
    return made


def with_inductor(part: Part, module: GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """Return what runs the code that Inductor makes of a graph.

    Raises
    ------
    InvalidInputError
        If it finds no C++ compiler.
    """
    from torch._inductor import config, cpp_builder, exc
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler as error:
        raise InvalidInputError(
            "inductor", "needs a C++ compiler, such as g++: install one, or leave inductor out"
        ) from error

    def inner(graph: GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        def make(graph: GraphModule, inputs: Sequence[Any]) -> Any:
            with config.patch(_INDUCTOR):
                return compile_fx_inner(graph, inputs, **options)

        if options.get("is_backward"):
            return part.backward(make, graph, inputs)
        if options.get("is_inference"):
            return part.inference(make, graph, inputs)
        return part.forward(make, graph, inputs)

    with (
        config.patch(_INDUCTOR),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        compiled: Any = compile_fx(module, examples, inner_compile=inner)
    made: Callable[..., Any] = compiled
    return made
