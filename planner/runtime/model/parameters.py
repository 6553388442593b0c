"""The parameters of a model, checks of plans against them, and updates of some of them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.model.units import counted
from planner.model.validation import closest, shown
from planner.programs import Batch, Piece, digest
from planner.runtime.world.world import World


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """Elements [start, stop) of a flattened parameter: a piece of a plan in a model."""

    parameter: nn.Parameter
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def span(self) -> tuple[int, int]:
        """The range (start, stop)."""
        return self.start, self.stop

    def of(self, tensor: Tensor) -> Tensor:
        """Return these elements of a tensor as large as the parameter."""
        return tensor.reshape(-1)[self.start : self.stop]


def plain_name(name: str) -> str:
    """Return a parameter's name without the parts that torch.compile adds."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def named(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield a model's parameters by their plain names, shared ones once."""
    for name, parameter in model.named_parameters():
        yield plain_name(name), parameter


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that get gradients, by name, shared ones once.

    Raises an `InvalidInputError` if there are none, or one is lazy, complex or not on the CPU.
    """
    parameters = {}
    for name, parameter in named(model):
        if is_lazy(parameter):
            raise InvalidInputError(
                f"model.{name}", "has no shape yet: call the model before attaching to it"
            )
        if not parameter.requires_grad or not parameter.numel():
            continue
        if parameter.device.type != "cpu":
            raise InvalidInputError(
                f"model.{name}", f"expected a parameter on the CPU, got one on {parameter.device}"
            )
        if not parameter.is_floating_point():
            raise InvalidInputError(
                f"model.{name}", f"expected real numbers, got {parameter.dtype}"
            )
        parameters[name] = parameter
    if not parameters:
        raise InvalidInputError("model", "expected at least one trainable parameter")
    return parameters


def parameters_of(optimizer: Optimizer) -> list[list[int]]:
    """Return the parameters of each group, by `id`."""
    return [list(map(id, group["params"])) for group in optimizer.param_groups]


def check_cover(
    batches: Sequence[Batch], parameters: Mapping[str, nn.Parameter], path: str
) -> None:
    """Check that batches carry every element of every parameter once.

    The first batch or parameter that does not fit raises an `InvalidPlanError`.
    """
    carried: dict[str, list[Elements]] = {name: [] for name in parameters}
    for number, batch in enumerate(batches):
        size = 0
        for piece in batch.pieces:
            where = f"{path}[{number}]"
            if piece.parameter not in parameters:
                close = closest(piece.parameter, parameters)
                hint = f" (the closest is {close})" if close else ""
                raise InvalidPlanError(
                    where, f"the model has no trainable parameter {piece.parameter}{hint}"
                )
            elements = elements_of(piece, parameters)
            carried[piece.parameter].append(elements)
            size += len(elements) * elements.parameter.element_size()
        if batch.size_bytes is not None and batch.size_bytes != size:
            names = ", ".join(piece.parameter for piece in batch.pieces[:3])
            raise InvalidPlanError(
                f"{path}[{number}]",
                f"{batch.size_bytes} bytes are planned for {shown(names)}, the model has {size}",
            )
    for name, parameter in parameters.items():
        reached = 0
        for start, stop in sorted(elements.span for elements in carried[name]):
            if start != reached:
                what = "sent twice" if start < reached else "not sent"
                raise InvalidPlanError(path, f"some bytes of {name} are {what}")
            reached = stop
        if reached != parameter.numel():
            raise InvalidPlanError(path, f"the model's {name} is not in the plan, or not wholly")


def elements_of(piece: Piece, parameters: Mapping[str, nn.Parameter]) -> Elements:
    """Return the elements of a piece.

    An `InvalidPlanError` is raised if the parameter has no such bytes, or an element is cut.
    """
    parameter = parameters[piece.parameter]
    width = parameter.element_size()
    size = parameter.numel() * width
    stop = size if piece.stop is None else piece.stop
    if not 0 <= piece.start < stop <= size:
        raise InvalidPlanError(
            piece.parameter, f"no bytes [{piece.start}, {stop}) in a parameter of {size}"
        )
    if piece.start % width or stop % width:
        raise InvalidPlanError(
            piece.parameter,
            f"cut inside an element of {width} bytes: plan with element_bytes",
        )
    return Elements(parameter, piece.start // width, stop // width)


def by_dtype(
    pieces: Iterable[Piece], parameters: Mapping[str, nn.Parameter]
) -> dict[torch.dtype, list[Piece]]:
    """Return the pieces of each data type, in order; a message has one type."""
    pieces_of: dict[torch.dtype, list[Piece]] = {}
    for piece in pieces:
        pieces_of.setdefault(parameters[piece.parameter].dtype, []).append(piece)
    return pieces_of


# ---
# Check whether an executor can take over a model and an optimiser.


def check_model(model: nn.Module) -> None:
    """Check that hooks observe the model and that no other wrapper communicates for it.

    Raises an `InvalidInputError` that says what to do instead.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidInputError(
            "model", "expected a module of Python, which may call scripted ones"
        )
    for name, module in model.named_modules():
        path = f"model.{name}" if name else "model"
        kinds = {kind.__name__ for kind in type(module).__mro__}  # by name: importing FSDP is slow
        if isinstance(module, DistributedDataParallel | DataParallel):
            raise InvalidInputError(
                path,
                f"{type(module).__name__} sends gradients itself: attach to the module inside "
                "(.module), and call that; for DDP to follow a plan, see planner.runtime.ddp",
            )
        if kinds & {"FSDPModule", "FullyShardedDataParallel"}:
            raise InvalidInputError(
                path,
                "FSDP has sharded it and sends its parameters itself: attach to the model as it "
                "was before (a plan of ibatch shards it, too); for FSDP2 to follow a plan, see "
                "planner.runtime.fsdp2",
            )
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "placements"):
            raise InvalidInputError(
                f"model.{name}",
                "expected a plain parameter, got a DTensor: attach before it is distributed",
            )


def check_optimizer(optimizer: Optimizer, names: Mapping[nn.Parameter, str]) -> None:
    """Check that an optimiser updates exactly the named parameters, and can update some at a time.

    Raises an `InvalidInputError` that says what to do instead.
    """
    if not isinstance(optimizer, Optimizer):
        raise InvalidInputError(
            "optimizer", f"expected a torch.optim.Optimizer, got {shown(optimizer)}"
        )
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise InvalidInputError(
            "optimizer",
            f"{type(optimizer).__name__} wraps another one, as trainers' do: pass the one inside",
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidInputError("optimizer", "LBFGS needs all gradients at once, several times")
    updated = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    for parameter, name in names.items():
        if parameter not in updated:
            raise InvalidInputError("optimizer", f"does not update the model's {name}")
    if extra := [
        parameter
        for parameter in updated - names.keys()
        if parameter.requires_grad and parameter.numel()
    ]:
        raise InvalidInputError(
            "optimizer", f"updates {counted(len(extra), 'parameter')} that the model does not have"
        )


# ---
# Updates of some parameters of an optimiser at a time, with remembered settings.
#
# Problem: Gradients arrive in batches while learning-rate schedulers set up the next step. An
# optimiser's `step` looks at all parameters.
# Method: During a step the groups hold only the parameters to update, with the remembered settings.
# Empty groups are left out for torch's own optimisers. Others may rely on group positions.
# Guarantee: The groups are restored after a step. An optimiser that counts in its groups is
# detected.
# Complexity: O(n log n) for n parameters and O(settings) per group concerned; for optimisers that
# are not torch's, per group.


class SomeParameters:
    """The parameters of an optimiser, some of which are updated at a time, by their number."""

    def __init__(self, optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self._optimizer = optimizer
        self._leaves_out = type(optimizer).__module__.startswith(f"{torch.optim.__name__}.")
        self._parameters = parameters
        place = {
            parameter: (number, place)
            for number, group in enumerate(optimizer.param_groups)
            for place, parameter in enumerate(group["params"])
        }
        self._place = [place[parameter] for parameter in parameters]
        self._settings: list[dict[str, Any]] = []

    def remember(self, groups: Iterable[Mapping[str, Any]] | None = None) -> None:
        """Remember the current settings of the optimiser's groups, or of the given groups."""
        self._settings = [
            {key: copied(value) for key, value in group.items() if key != "params"}
            for group in (self._optimizer.param_groups if groups is None else groups)
        ]

    def step(self, numbers: Iterable[int]) -> str | None:
        """Update parameters by their gradients; return a setting the optimiser changed, or None."""
        groups = self._optimizer.param_groups
        every = list(groups)
        chosen: dict[int, list[nn.Parameter]] = {}
        if not self._leaves_out:
            chosen = {number: [] for number in range(len(self._settings))}
        for index in sorted(numbers, key=self._place.__getitem__):
            chosen.setdefault(self._place[index][0], []).append(self._parameters[index])
        kept = {number: dict(every[number]) for number in chosen}
        try:
            for number, parameters in chosen.items():
                every[number].update(self._settings[number], params=parameters)
            groups[:] = [every[number] for number in chosen]
            self._optimizer.step()
            changed = (_changed(every[number], self._settings[number]) for number in chosen)
            return next(filter(None, changed), None)
        finally:
            groups[:] = every
            for number, before in kept.items():
                every[number].update(before)


def _changed(group: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """Return the first setting of a group that differs from the remembered one."""
    for key, value in group.items():
        if key != "params" and not (key in settings and _same(value, settings[key])):
            return key
    return None


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return torch.equal(value, other)
    return bool(value is other or value == other)


def copied(value: Any) -> Any:
    """Return a copy that later changes of a setting or state do not affect."""
    return value.clone() if isinstance(value, Tensor) else value


# ---
# All ranks begin with the same plan, model and optimiser, and with the parameters of rank 0.
#
# Optimiser states are each rank's own. If only some ranks have loaded a checkpoint, or have another
# learning rate, weights would drift apart unnoticed.


def _plain(value: object) -> str:
    """Return a text that is equal in all processes: a tensor's hash, or an object's type."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return f"{value.dtype} {tuple(value.shape)} {sha256(data.numpy().data).hexdigest()}"


def agree(
    world: World, plan: str, parameters: Mapping[str, nn.Parameter], optimizer: Optimizer
) -> None:
    """Compare plan, parameters and optimiser of all ranks; raise a `DisagreementError` on each.

    Any difference stops every rank before the first transfer. The optimiser's state is read once.
    """
    packed, as_text = optimizer.state_dict(), partial(json.dumps, default=_plain)
    settings = type(optimizer).__name__, as_text(packed["param_groups"])
    shapes = [(name, str(tuple(each.shape)), str(each.dtype)) for name, each in parameters.items()]
    world.agree("the plan", plan)
    world.agree("the model's parameters", digest(shapes))
    world.agree("the optimiser and its settings", digest(settings))
    # Sorted, because a checkpoint may have brought another order.
    state = sorted(packed["state"].items(), key=lambda entry: str(entry[0]))
    world.agree("the optimiser's state", digest(as_text(state)))


def spread(model: nn.Module, world: World, group: Any) -> None:
    """Broadcast the parameters and buffers of rank 0 in one message."""
    every = {id(tensor): tensor.detach() for tensor in (*model.parameters(), *model.buffers())}
    # As bytes, since gloo does not support all types; large elements first, so all are aligned.
    tensors = sorted(every.values(), key=lambda tensor: -tensor.element_size())
    with torch.no_grad(), world.transferring():
        flat = torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors])
        group.broadcast(flat, 0).wait()
        for tensor, part in zip(
            tensors, flat.split([each.nbytes for each in tensors]), strict=True
        ):
            tensor.copy_(part.view(tensor.dtype).view_as(tensor))
