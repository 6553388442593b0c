"""Parameter guard: it finishes a pending parameter at the moment the model reads it.

Problem: Parameters are updated while the next forward pass runs. Every read, by any module (tied
weights, `nn.MultiheadAttention`, functional code), must wait for its parameter, and no longer.
Method: In a forward pass pending parameters have a class whose `__torch_function__` finishes those
among the arguments of a torch call, and gives them their own class again. If scripted or compiled
code may exist, which hides its reads (`hidden`), all are finished earlier. Hooks on inner modules
serve calls outside the model's forward pass.
Guarantee: No visible torch call reads a pending parameter. A hidden read leaves its parameter in
`unread`, whose gradients are refused. The exception is in docs/runtime.md.
Complexity: O(arguments) per torch call that reads pending parameters, nothing for other calls (a
function mode would see them all), and O(pending parameters) per pass.
"""

import copyreg
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch._compile import _disable_dynamo

from planner.model.errors import PlannerError


class ParameterGuard:
    """Watches a model's forward passes.

    `finish` finishes one pending parameter, `finish_all` all of them. `entered` and `left` are
    called at the start and end of a forward pass.
    """

    def __init__(
        self,
        model: nn.Module,
        finish: Callable[[nn.Parameter], None],
        finish_all: Callable[[], None],
        entered: Callable[[], None],
        left: Callable[[], None],
    ) -> None:
        self.idle = False
        self.pending: set[nn.Parameter] = set()
        """Parameters whose update is not complete."""
        self.unread: set[nn.Parameter] = set()
        """Parameters pending at the start of a forward pass and not visibly read since."""
        self._finish = finish
        self._finish_all = finish_all
        self._entered = entered
        self._left = left
        self.depth = 0
        """The number of modules with hooks that the current forward pass is inside of."""
        self._watched: dict[type, type] = {}
        """The class in which the reads of a parameter are noticed, by its own class."""
        self._own: dict[type, type] = {}
        """The reverse."""
        self._late = False
        self._frames = _frames()
        self._hides: bool | None = None  # looked up at the end of the first step
        opaque = any(map(hides_its_reads, model.modules()))
        self._handles: list[Any] = []
        self._model = model
        self._inner: list[tuple[dict[int, Any], int, bool]] = []
        self._bare = False
        for module in [model] if opaque else model.modules():
            before = module.register_forward_pre_hook(self._enter, prepend=True)
            behind = module.register_forward_hook(self._leave, always_call=True)
            self._handles += [before, behind]
            if module is not model:
                self._inner.append((module._forward_pre_hooks, before.id, True))
                self._inner.append((module._forward_hooks, behind.id, False))
        for module in model.modules():
            if not isinstance(module, torch.jit.ScriptModule):
                self._handles += [
                    module.register_state_dict_pre_hook(self._copying),
                    module.register_load_state_dict_pre_hook(self._copying),
                ]

    @property
    def hidden(self) -> bool:
        """Whether code with hidden reads may exist."""
        if self._hides is None:
            self._hides = any(map(hides_its_reads, self._model.modules()))
        return self._hides or _frames() != 0

    @property
    def overtaken(self) -> bool:
        """Whether code was compiled since `begin` that may have read pending parameters."""
        return self._late and _frames() != self._frames

    def begin(self) -> None:
        """Begin a step: parameters pending now must be read visibly."""
        self.reset()
        self.forget()
        self._late = bool(self.pending)
        self._frames = _frames()

    def forget(self) -> None:
        """Let parameters be read anywhere."""
        self._unwatch()
        self.unread = set()

    def reset(self) -> None:
        """Discard interrupted forward passes, which torch does not report to hooks."""
        self.depth = 0
        self._unwatch()
        self._dress()

    def __reduce__(self) -> tuple[Any, ...]:
        """Give copies of the model, also those of `copy.deepcopy`, an inactive guard.

        Raises a `PlannerError` while parameters are pending, because some may have been copied
        already.
        """
        if self.pending:
            raise PlannerError("the model is being updated: call finish() before it is copied")
        state = {"idle": True, "pending": set(), "unread": set()}
        return copyreg.__newobj__, (ParameterGuard,), state  # type: ignore[attr-defined]

    def close(self) -> None:
        """Remove the hooks from the model."""
        self.reset()
        for handle in self._handles:
            handle.remove()

    def reading(self, values: Iterable[Any]) -> bool:
        """Finish the pending parameters among arguments; return whether some were watched."""
        found = False
        for value in values:
            own = self._own.get(type(value))
            if own is not None:
                found = True
                value.__class__ = own
                if value in self.pending:
                    with torch._C.DisableTorchFunctionSubclass():  # an update is no read
                        self._finish(value)
                self.unread.discard(value)
            elif isinstance(value, list | tuple):
                found |= self.reading(value)
            elif isinstance(value, dict):
                found |= self.reading(value.values())
        return found

    def _enter(self, module: nn.Module, _inputs: Any) -> None:
        if torch.compiler.is_compiling() or self.idle:  # compiled code runs no hooks
            return
        self.depth += 1  # first, because `_leave` is called even if an error follows
        if self.depth > 1:
            return
        self._entered()
        if self.pending and self.hidden:
            self._finish_all()
        self.unread |= self.pending
        self._watch()
        if module is self._model:
            self._bare = True
            for hooks, number, _ in self._inner:
                hooks.pop(number, None)

    def _leave(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        if torch.compiler.is_compiling() or self.idle:
            return
        self.depth -= 1
        if self.depth == 0:
            self._unwatch()
            self._dress()
            self._left()

    def _watch(self) -> None:
        """Notice the next read of each unread parameter."""
        for parameter in self.unread:
            own = self._own.get(type(parameter), type(parameter))
            if own not in self._watched:
                self._watched[own] = _noticed(own, self)
                self._own[self._watched[own]] = own
            parameter.__class__ = self._watched[own]

    def _unwatch(self) -> None:
        for parameter in self.unread:
            parameter.__class__ = self._own.get(type(parameter), type(parameter))

    def _dress(self) -> None:
        """Restore the hooks of inner modules, before or after all others."""
        if self._bare:
            self._bare = False
            for hooks, number, first in self._inner:
                others = dict(hooks) if first else {}
                if others:
                    hooks.clear()
                hooks[number] = self._enter if first else self._leave
                hooks.update(others)

    def _copying(self, *_: Any) -> None:
        if not self.idle:
            with torch._C.DisableTorchFunctionSubclass():
                self._finish_all()


def _noticed(own: type, guard: ParameterGuard) -> type:
    """Return a subclass of a parameter's class that reports torch calls to the guard."""

    def called(_class: type, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = guard.reading(args)
        if kwargs:
            found |= guard.reading(kwargs.values())
        with nullcontext() if found else torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    return type(own.__name__, (own,), {"__torch_function__": classmethod(called)})


# ---
# Compilation by torch.compile, whose code reads parameters in kernels, where neither a hook nor a
# class of Python sees it. A compiled function looks like any other from outside. Dynamo counts the
# frames that it translates in this process (private; without the count all code counts as
# compiled).


_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncompiled(function: _Function) -> _Function:
    """Exclude a function, and all that it calls, from torch.compile.

    As `torch.compiler.disable` does, which takes seconds to import, and whose wrapper takes 10 µs a
    call where a layer's computation has emptied the caches.
    """
    try:
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(skip, skip)
        eval_frame.set_code_exec_strategy(function.__code__, strategy)
    except (ImportError, AttributeError, TypeError):  # private: other versions may differ
        return cast(_Function, _disable_dynamo(function))
    # Else Dynamo inlines the function into its caller.
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def hides_its_reads(module: nn.Module) -> bool:
    """Return whether a module is scripted or compiled: itself, when called, or its `forward`."""
    return (
        isinstance(module, torch.jit.ScriptModule)
        or hasattr(module, "_orig_mod")
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(module.forward, "_torchdynamo_orig_callable")
    )


def _frames() -> int | None:
    """Return how many frames Dynamo has begun to compile since its last reset; None if unknown."""
    with suppress(ImportError, AttributeError):
        from torch._dynamo import convert_frame

        return int(convert_frame.FRAME_COUNTER)
    return None


def in_backward() -> bool:
    """Return whether a backward pass runs, which calls modules again at activation checkpoints."""
    return torch._C._current_graph_task_id() != -1  # as torch's checkpoints do
