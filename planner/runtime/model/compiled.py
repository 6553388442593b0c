"""Detect compilations by torch.compile, whose code reads parameters unobserved.

Problem: Compiled code reads parameters in kernels that no hook or function mode of Python observes,
and a compiled function looks like any other from outside.
Method: Dynamo counts the frames it translates in this process, and calls back before each.
Guarantee: `used` is true if compiled code may exist. `before` is called ahead of each compilation;
`unnoticed` reports one without a call (another thread compiled, or Dynamo was reset).
Complexity: O(1) per query; one call per compilation.
Source: `torch._dynamo.callback` and its count of frames, both private. Without them all code counts
as compiled.
"""

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch
from torch import nn
from torch._compile import _disable_dynamo

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Compilations:
    """The compilations of this process until `close`.

    `before` is called ahead of each one by the compiling thread; it is a bound method, kept weakly.
    """

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = weakref.WeakMethod(before)
        self._known = True
        self._frames: int | None = None
        self.begin()

    @property
    def used(self) -> bool:
        """Whether compiled code may exist."""
        return _frames() != 0

    @property
    def unnoticed(self) -> bool:
        """Whether code was compiled since `begin` without a call of `before`."""
        return not self._known and _frames() != self._frames

    def begin(self) -> None:
        """Start to watch for compilations."""
        self._known, self._frames = False, _frames()
        starts = _starts()
        if starts is None:
            self._frames = None
        elif self._told not in starts:  # a reset of Dynamo removes it
            starts.append(self._told)

    def close(self) -> None:
        """Stop watching."""
        if (starts := _starts()) is not None:
            with suppress(ValueError):
                starts.remove(self._told)

    @_disable_dynamo  # Dynamo holds a lock here: compiling this method would deadlock
    def _told(self, _args: object) -> None:
        before = self._before()
        if before is None:
            return
        self._known = True
        # Optimisers compute differently while compiling, and this call is not compiled.
        flag = getattr(torch.compiler, "_is_compiling_flag", False)
        torch.compiler._is_compiling_flag = False
        try:
            before()
        finally:
            torch.compiler._is_compiling_flag = flag


def hides_its_reads(module: nn.Module) -> bool:
    """Return whether a module is scripted or compiled."""
    return isinstance(module, torch.jit.ScriptModule) or is_compiled(module)


def is_compiled(module: nn.Module) -> bool:
    """Return whether torch.compile made the module, was called on it, or wraps its `forward`."""
    return (
        hasattr(module, "_orig_mod")
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(module.forward, "_torchdynamo_orig_callable")
    )


def uncompiled(method: _Method) -> _Method:
    """Exclude a method, and all that it calls, from torch.compile."""
    # As in torch's optimisers: `torch.compiler.disable` takes seconds to import.
    return _disable_dynamo(method)  # type: ignore[return-value]


def _frames() -> int | None:
    """Return how many frames Dynamo has begun to compile since its last reset; None if unknown."""
    with suppress(ImportError, AttributeError):
        from torch._dynamo import convert_frame

        return int(convert_frame.FRAME_COUNTER)
    return None


def _starts() -> list[Callable[[Any], None]] | None:
    """Return the callbacks that Dynamo calls ahead of compilations; None if unknown."""
    with suppress(ImportError, AttributeError):
        from torch._dynamo.callback import callback_handler

        starts: list[Callable[[Any], None]] = callback_handler.start_callbacks
        return starts
    return None
