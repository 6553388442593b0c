"""Waits for parameters at the moment a model reads them, wherever it reads them.

Problem. Parameters are updated while the next forward pass already runs. Every read of one, by its
own module or by any other (tied weights, `nn.MultiheadAttention`, functional code), has to wait for
it, and should wait no earlier.

Method. While any module of the model runs, a torch function mode sees each call of torch with its
arguments; parameters among them that are still pending are finished first. Where calls of torch
cannot be seen (scripted or compiled code) nothing may be pending: `hidden` says that such code may
exist, and executors then finish everything at the end of each step; everything is finished, too,
before torch.compile translates something for the first time. Parts of the model have hooks, too, in
case they are called alone; while the whole runs these are taken off, as many small layers would
feel them.

Guarantee. No call of torch in the model's forward pass sees a pending parameter. Reads that are not
seen (a view of a parameter that was made in an earlier step and kept; what a scripted function
reads that is no module's own) leave the parameter in `unread`, so that its gradient can be refused.
Not noticed is such a read of a parameter that the same forward pass reads visibly afterwards.

Complexity. O(arguments) a call of torch in a forward pass that begins while something is pending;
two entries of dictionaries a part and pass. Source. Own.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from planner.errors import PlannerError
from planner.runtime.model.compiled import Compilations, hides_its_reads

__all__ = ["Gate"]


class Gate:
    """Watches a model's forward passes.

    Parameters
    ----------
    model : Module
        The model.
    finish : callable
        Finishes one pending parameter.
    finish_all : callable
        Finishes all of them.
    entered, left : callable
        Called when a forward pass begins and has ended.
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
        """Parameters that are not what they should be yet."""
        self.unread: set[nn.Parameter] = set()
        """Those that were pending when a forward pass began, and that none has visibly read."""
        self._finish = finish
        self._finish_all = finish_all
        self._entered = entered
        self._left = left
        self._depth = 0
        self._mode = _Reads(self)
        self._watching = False
        self._late = False
        self._lock = threading.RLock()  # whoever compiles may do so in another thread
        self._compilations = Compilations(self._compiling)
        self._hides = any(map(hides_its_reads, model.modules()))
        self._handles: list[Any] = []
        self._model = model
        self._inner: list[tuple[dict[int, Any], int, bool]] = []
        self._bare = False
        for module in [model] if self._hides else model.modules():
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
        """Whether there may be code whose reads cannot be seen."""
        return self._hides or self._compilations.used

    @property
    def overtaken(self) -> bool:
        """Whether code was compiled since `begin`, and may have read what was pending then."""
        return self._late and self._compilations.unnoticed

    @property
    def outside(self) -> bool:
        """Whether no forward pass runs."""
        return not self._depth

    def begin(self) -> None:
        """Begin a step: what is pending now is to be seen when it is read."""
        self.reset()
        self.unread = set()
        self._late = bool(self.pending)
        self._compilations.begin()

    def reset(self) -> None:
        """Forget forward passes that were interrupted, of which torch does not tell hooks."""
        self._depth = 0
        self._unwatch()
        self._dress()

    def __deepcopy__(self, _memo: dict[int, Any]) -> "Gate":
        return self._for_a_copy()

    def __reduce__(self) -> tuple[Callable[[], "Gate"], tuple[()]]:
        self._for_a_copy()
        return _idle_gate, ()

    def _for_a_copy(self) -> "Gate":
        """Return what a copy of the model has in this one's place: a gate that does nothing.

        Raises
        ------
        PlannerError
            If parameters are pending: some may have been copied already.
        """
        if self.pending:
            raise PlannerError("the model is being updated: call finish() before it is copied")
        return _idle_gate()

    def close(self) -> None:
        """Leave the model as it was."""
        self.reset()
        self._compilations.close()
        for handle in self._handles:
            handle.remove()

    def reading(self, value: Any) -> None:
        """Finish the pending parameters in arguments."""
        if isinstance(value, torch.Tensor):
            if value in self.unread and isinstance(value, nn.Parameter):
                with self._lock:
                    if value in self.pending:
                        self._finish(value)
                    self.unread.discard(value)
        elif isinstance(value, list | tuple):
            for item in value:
                self.reading(item)
        elif isinstance(value, dict):
            for item in value.values():
                self.reading(item)

    def _compiling(self) -> None:
        """Finish everything: what is compiled now is the first compiled code, and reads it."""
        with self._lock, suppress(PlannerError):  # the job knows; here Dynamo would wrap it
            if self.pending:
                self._finish_all()
            self.unread = set()

    def _enter(self, module: nn.Module, _inputs: Any) -> None:
        if torch.compiler.is_compiling() or self.idle:  # compiled code has no hooks to wait in
            return
        self._depth += 1  # first: if what follows fails, `_leave` is called all the same
        if self._depth > 1:
            return
        self._entered()
        if self.pending and self.hidden:
            self._finish_all()
        self.unread |= self.pending
        if self.unread:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
            self._watching = True
        if module is self._model:
            self._bare = True
            for hooks, number, _ in self._inner:
                hooks.pop(number, None)

    def _leave(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        if torch.compiler.is_compiling() or self.idle:
            return
        self._depth -= 1
        if self._depth == 0:
            self._unwatch()
            self._dress()
            self._left()

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _dress(self) -> None:
        """Give the modules inside the model their hooks back, ahead of or behind all others."""
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
            self._finish_all()


class _Reads(TorchFunctionMode):
    """Shows every call of torch to the gate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # While a function is being compiled there is nothing to read yet.
        if self._gate.unread and not torch.compiler.is_compiling():
            self._gate.reading(args)
            if kwargs:
                self._gate.reading(kwargs)
        return func(*args, **(kwargs or {}))


def _idle_gate() -> Gate:
    gate = Gate.__new__(Gate)
    gate.idle, gate.pending, gate.unread = True, set(), set()
    return gate
