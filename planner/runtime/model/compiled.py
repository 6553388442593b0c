"""Notices that torch.compile makes code, whose reads of parameters nothing shows.

Problem. What torch.compile has made of a function reads parameters in kernels of its own: no hook
and no function mode of Python sees them. A function that was compiled before looks like any other
from outside, whatever it calls.

Method. Every such function was once a frame that Dynamo translated, in this process; Dynamo counts
those, and tells of the next one before it translates it.

Guarantee. `used` is true if code may exist that was compiled, from anything. `before` is called
ahead of each compilation. If one comes that was not told of (another thread was compiling, or
Dynamo has been reset), `unnoticed` says so.

Complexity. O(1) a look, and a call a compilation.

Source. `torch._dynamo.callback` and the count of frames, neither of which is a public interface.
Where a torch has none of them, all code is taken for compiled.
"""

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch
from torch import nn
from torch._compile import _disable_dynamo

__all__ = ["Compilations", "hides_its_reads", "is_compiled", "uncompiled"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Compilations:
    """The compilations of this process, from now on and until `close`.

    Parameters
    ----------
    before : callable
        Called ahead of each, by whichever thread compiles; a bound method, kept weakly.
    """

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = weakref.WeakMethod(before)
        self._known = True
        self._frames: int | None = None
        self.begin()

    @property
    def used(self) -> bool:
        """Whether there may be compiled code."""
        return _frames() != 0

    @property
    def unnoticed(self) -> bool:
        """Whether code was compiled since `begin` without a call of `before`."""
        return not self._known and _frames() != self._frames

    def begin(self) -> None:
        """Begin anew to look out for compilations."""
        self._known, self._frames = False, _frames()
        starts = _starts()
        if starts is None:
            self._frames = None
        elif self._told not in starts:  # a reset of Dynamo forgets it
            starts.append(self._told)

    def close(self) -> None:
        """Be told no more."""
        if (starts := _starts()) is not None:
            with suppress(ValueError):
                starts.remove(self._told)

    @_disable_dynamo  # a lock of Dynamo is held: it would wait for ever if this were compiled
    def _told(self, _args: object) -> None:
        before = self._before()
        if before is None:
            return
        self._known = True
        # What is done now is not part of what is compiled: optimisers compute otherwise there.
        flag = getattr(torch.compiler, "_is_compiling_flag", False)
        torch.compiler._is_compiling_flag = False
        try:
            before()
        finally:
            torch.compiler._is_compiling_flag = flag


def hides_its_reads(module: nn.Module) -> bool:
    """Tell whether a module is scripted or compiled."""
    return isinstance(module, torch.jit.ScriptModule) or is_compiled(module)


def is_compiled(module: nn.Module) -> bool:
    """Tell whether torch.compile made the module, was called on it, or decorates its `forward`."""
    return (
        hasattr(module, "_orig_mod")
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(module.forward, "_torchdynamo_orig_callable")
    )


def uncompiled(method: _Method) -> _Method:
    """Keep torch.compile out of a method, and of all that it calls."""
    # As torch's optimisers do it: `torch.compiler.disable` takes seconds to import.
    return _disable_dynamo(method)  # type: ignore[return-value]


def _frames() -> int | None:
    """Return how many frames Dynamo has begun to compile since its last reset; None: unknown."""
    with suppress(ImportError, AttributeError):
        from torch._dynamo import convert_frame

        return int(convert_frame.FRAME_COUNTER)
    return None


def _starts() -> list[Callable[[Any], None]] | None:
    """Return what Dynamo calls ahead of compilations."""
    with suppress(ImportError, AttributeError):
        from torch._dynamo.callback import callback_handler

        starts: list[Callable[[Any], None]] = callback_handler.start_callbacks
        return starts
    return None
