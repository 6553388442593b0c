"""Waits for parameters at the moment a model reads them, wherever it reads them.

Problem. Parameters are updated while the next forward pass already runs. Every read of one, by its
own module or by any other (tied weights, `nn.MultiheadAttention`, functional code), has to wait for
it, and should wait no earlier.

Method. While any module of the model runs, a torch function mode sees each call of torch with its
arguments; parameters among them that are still pending are finished first. Modules whose calls of
torch cannot be seen (scripted or compiled ones) wait for everything when the model is entered.

Guarantee. No call of torch in the model's forward pass sees a pending parameter. What is not seen:
a view of a parameter that was made in an earlier step and kept, and what a scripted or compiled
function reads that is no module's own. (Executors notice it when the parameter gets a gradient.)

Complexity. O(arguments) a call of torch in a forward pass that begins while something is pending;
nothing in others.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from planner.errors import PlannerError

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
        self._finish = finish
        self._finish_all = finish_all
        self._entered = entered
        self._left = left
        self._depth = 0
        self._mode = _Reads(self)
        self._watching = False
        self._hidden = any(map(_hides_its_calls, model.modules()))
        self._handles: list[Any] = []
        enter, leave = self._enter, self._leave
        if _is_compiled(model):  # its hooks too
            enter = torch.compiler.disable(enter)  # type: ignore[no-untyped-call]
            leave = torch.compiler.disable(leave)  # type: ignore[no-untyped-call]
        for module in [model] if self._hidden else model.modules():
            self._handles += [
                module.register_forward_pre_hook(enter, prepend=True),
                module.register_forward_hook(leave, always_call=True),
            ]
        for module in model.modules():
            if not isinstance(module, torch.jit.ScriptModule):
                self._handles += [
                    module.register_state_dict_pre_hook(self._copying),  # type: ignore[no-untyped-call]
                    module.register_load_state_dict_pre_hook(self._copying),  # type: ignore[no-untyped-call]
                ]

    def reset(self) -> None:
        """Forget forward passes that were interrupted, of which torch does not tell hooks."""
        self._depth = 0
        self._unwatch()

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
        for handle in self._handles:
            handle.remove()

    def reading(self, value: Any) -> None:
        """Finish the pending parameters in arguments."""
        if isinstance(value, torch.Tensor):
            if value in self.pending and isinstance(value, nn.Parameter):
                self._finish(value)
        elif isinstance(value, list | tuple):
            for item in value:
                self.reading(item)
        elif isinstance(value, dict):
            for item in value.values():
                self.reading(item)

    def _enter(self, _module: nn.Module, _inputs: Any) -> None:
        if self.idle:
            return
        self._depth += 1  # first: if what follows fails, `_leave` is called all the same
        if self._depth > 1:
            return
        self._entered()
        if self.pending and self._hidden:
            self._finish_all()
        elif self.pending:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
            self._watching = True

    def _leave(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        if self.idle:
            return
        self._depth -= 1
        if self._depth == 0:
            self._unwatch()
            self._left()

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

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
        if not torch.compiler.is_compiling() and self._gate.pending:
            self._gate.reading(args)
            if kwargs:
                self._gate.reading(kwargs)
        return func(*args, **(kwargs or {}))


def _idle_gate() -> Gate:
    gate = Gate.__new__(Gate)
    gate.idle, gate.pending = True, set()
    return gate


def _hides_its_calls(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule) or _is_compiled(module)


def _is_compiled(module: nn.Module) -> bool:
    """Tell whether torch.compile made the module, was called on it, or decorates its `forward`."""
    return (
        hasattr(module, "_orig_mod")
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(module.forward, "_torchdynamo_orig_callable")
    )
