"""Ways of training that an executor has to repeat exactly, told to it and to DDP alike."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.checkpoint import checkpoint

from planner.runtime.executors.base import Executor
from tests.runtime.reference import (
    CLASSES,
    MODELS,
    OPTIMIZERS,
    STEPS,
    Perceptron,
    Weights,
    loss_of,
    make_inputs,
    make_optimizer,
    weights_of,
)


class Shared(nn.Module):
    """Calls a module twice, and reads a weight of another one's by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.second = nn.Linear(12, 12, bias=False)
        self.last = nn.Linear(12, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.second(torch.tanh(self.second(torch.tanh(self.first(inputs))))))
        outputs: Tensor = self.last(functional.linear(hidden, self.first.weight.T))
        return outputs


class Checkpointed(Perceptron):
    """Computes its parts again in the backward pass."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = checkpoint(lambda rows: self.norm(self.first(rows)), inputs, use_reentrant=False)
        outputs: Tensor = self.last(checkpoint(self.second, hidden, use_reentrant=True))
        return outputs


class Mixed(Perceptron):
    """Has numbers of several types, and frozen parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.second.double()
        self.last.bfloat16()
        self.norm.requires_grad_(requires_grad=False)
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("turn", torch.tensor(1j))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.second(self.norm(self.first(inputs)).double())
        outputs: Tensor = self.last(hidden.bfloat16()).float()
        return outputs


class Autocast(Perceptron):
    """Computes with fewer digits."""

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(inputs).float()


class Introspective(Perceptron):
    """Saves itself in the middle of a forward pass."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        self.state_dict()
        outputs: Tensor = self.last(torch.relu(self.second(self.norm(hidden))))
        return outputs


class Failing(Perceptron):
    """Fails now and then, in the middle of a forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        if self.calls % 2:
            self.first(inputs)
            raise ArithmeticError
        return super().forward(inputs)


class Tiny(nn.Module):
    """Has parameters smaller than the number of ranks, one of them without any dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.first = nn.Linear(12, 5)
        self.second = nn.Linear(5, 2)
        self.shift = nn.Parameter(torch.tensor([0.5]))
        self.last = nn.Linear(2, CLASSES, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.second(torch.tanh(self.first(inputs * self.scale))))
        outputs: Tensor = self.last(hidden + self.shift)
        return outputs


def changed(change: Callable[[Perceptron], object]) -> Callable[[], nn.Module]:
    """Return what makes a model and changes it."""

    def make() -> nn.Module:
        model = Perceptron()
        change(model)
        return model

    return make


def script_part(model: Perceptron) -> None:
    model.add_module("second", torch.jit.script(model.second))


def transpose(model: Perceptron) -> None:
    """Let elements of parameters lie in memory in another order than theirs."""
    for layer in (model.first, model.second):
        layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)


def freeze(model: Perceptron) -> None:
    """Freeze layers that the optimiser knows of."""
    for layer in (model.first, model.second):
        layer.requires_grad_(requires_grad=False)


def two_groups(model: nn.Module) -> Optimizer:
    first, *others = model.parameters()
    groups: list[dict[str, Any]] = [{"params": others, "lr": 0.02}, {"params": [first]}]
    return torch.optim.AdamW(groups, lr=0.01, eps=1e-6)


def named(model: nn.Module) -> Optimizer:
    """Return an optimiser that knows names, in two groups."""
    rows = list(model.named_parameters())
    groups: list[dict[str, Any]] = [
        {"params": [row for row in rows if "weight" in row[0]], "weight_decay": 0.01},
        {"params": [row for row in rows if "bias" in row[0]], "lr": 0.03, "momentum": 0.5},
    ]
    return SGD(groups, lr=0.1, momentum=0.9)


def tensor_rate(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9)


def of(kind: Callable[..., Optimizer], **options: Any) -> Callable[[nn.Module], Optimizer]:
    return lambda model: kind(model.parameters(), **{"lr": 0.01, **options})


momentum = of(SGD, lr=0.1, momentum=0.9)
halved = partial(lr_scheduler.StepLR, step_size=1, gamma=0.5)
one_cycle = partial(lr_scheduler.OneCycleLR, max_lr=0.3, total_steps=STEPS)


def evaluate(model: nn.Module, step: int) -> None:
    """Call the model as one does between steps, each time otherwise."""
    inputs = make_inputs("perceptron", 7, 7)
    modes = torch.inference_mode, torch.no_grad, torch.enable_grad
    model.eval()
    with modes[step % 3]():
        model(inputs)
    model.train()


def fail(model: nn.Module, step: int) -> None:
    """See that nothing is left behind of a forward pass that failed."""
    try:
        model(make_inputs("perceptron", 7, 7))
    except ArithmeticError:
        assert not torch.overrides._get_current_function_mode_stack()


def save(model: nn.Module, step: int) -> None:
    """Save on rank 0 alone."""
    if distributed.get_rank() == 0:
        model.state_dict()


def move(model: nn.Module, step: int) -> None:
    """Load other values, in whole and in part."""
    part = next(model.children())
    part.load_state_dict({name: value / 2 for name, value in part.state_dict().items()})
    model.load_state_dict({name: value + 0.01 for name, value in model.state_dict().items()})


def clamp(model: nn.Module, step: int) -> None:
    """Write into parameters that are complete."""
    model.state_dict()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-0.2, 0.2)


def clamp_in_silence(model: nn.Module, step: int) -> None:
    """Do the same in a way that leaves no trace."""
    model.state_dict()
    for parameter in model.parameters():
        parameter.data.clamp_(-0.1, 0.1)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way of training; the data are those of a model of `reference`."""

    model: Callable[[], nn.Module] = Perceptron
    optimizer: Callable[[nn.Module], Optimizer] = momentum
    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    passes: int = 1
    clip: float | None = None
    between: Callable[[nn.Module, int], None] | None = None
    data: str = "perceptron"


OF_MODELS = {
    name: Recipe(model, partial(make_optimizer, updates), data=name)
    for (name, model), updates in zip(MODELS.items(), cycle(OPTIMIZERS), strict=False)
}

RECIPES = {
    "accumulated": Recipe(passes=3),
    "clipped": Recipe(clip=0.1),
    "clipped and accumulated": Recipe(passes=2, clip=0.1, scheduler=halved),
    "scheduled": Recipe(scheduler=halved),
    "scheduled, rate in a tensor": Recipe(optimizer=tensor_rate, scheduler=halved),
    "one cycle": Recipe(scheduler=one_cycle),
    "two groups": Recipe(optimizer=two_groups, scheduler=halved),
    "Adagrad": Recipe(optimizer=of(torch.optim.Adagrad)),
    "RMSprop": Recipe(optimizer=of(torch.optim.RMSprop, momentum=0.9)),
    "NAdam": Recipe(optimizer=of(torch.optim.NAdam)),
    "ASGD": Recipe(optimizer=of(torch.optim.ASGD)),
    "AdamW foreach": Recipe(optimizer=of(torch.optim.AdamW, foreach=True, amsgrad=True)),
    "AdamW fused": Recipe(optimizer=of(torch.optim.AdamW, fused=True)),
    "Adafactor": Recipe(optimizer=of(torch.optim.Adafactor)),
    "Adafactor, autocast": Recipe(Autocast, of(torch.optim.Adafactor)),
    "evaluated": Recipe(between=evaluate),
    "failing": Recipe(Failing, between=fail),
    "saved": Recipe(between=save),
    "saved inside": Recipe(Introspective),
    "loaded": Recipe(between=move),
    "shared": Recipe(Shared),
    "checkpointed": Recipe(Checkpointed),
    "mixed": Recipe(Mixed, of(SGD, lr=0.1)),
    "clamped in silence": Recipe(between=clamp_in_silence),
    "scripted": Recipe(changed(script_part)),
}
"""Of whole gradients, and most of them of shards as well."""

OWN = {
    "tiny": Recipe(Tiny),
    "tiny, Adam": Recipe(Tiny, of(torch.optim.Adam, lr=0.001, eps=1e-4)),
    "transposed": Recipe(changed(transpose)),
    "frozen": Recipe(changed(freeze)),
    "named, scheduled": Recipe(optimizer=named, scheduler=halved),
    "clamped": Recipe(between=clamp),
    "SGD fused": Recipe(optimizer=of(SGD, fused=True, momentum=0.9, nesterov=True)),
    "SGD foreach": Recipe(optimizer=of(SGD, foreach=True, momentum=0.9, maximize=True)),
    "Adadelta": Recipe(optimizer=of(torch.optim.Adadelta)),
    "Adagrad, begun at 1": Recipe(optimizer=of(torch.optim.Adagrad, initial_accumulator_value=1.0)),
    "Adamax": Recipe(optimizer=of(torch.optim.Adamax, eps=1e-4)),
    "RAdam": Recipe(optimizer=of(torch.optim.RAdam, eps=1e-4)),
    "Rprop": Recipe(optimizer=of(torch.optim.Rprop)),
}
"""Of shards and slices alone."""

ALL = OF_MODELS | RECIPES | OWN


class Plain:
    """DDP, by what differs between it and executors: `forward`, `no_sync`, `clip` and `step`."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self.forward = DistributedDataParallel(model)
        self.no_sync = self.forward.no_sync
        self.model = model
        self.optimizer = optimizer

    def clip(self, norm: float) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), norm)

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


class Ours:
    """An executor's loop."""

    def __init__(self, executor: Executor, model: nn.Module) -> None:
        self.forward = self.model = model
        self.no_sync = executor.no_sync
        self.synchronise = executor.synchronise
        self.step = executor.step

    def clip(self, norm: float) -> None:
        self.synchronise()
        self.synchronise()  # changes nothing
        nn.utils.clip_grad_norm_(self.model.parameters(), norm)


def made(recipe: Recipe) -> tuple[nn.Module, Optimizer]:
    """Return a recipe's model and optimiser; all weights have to become those of rank 0."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = recipe.model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(distributed.get_rank())
    return model, recipe.optimizer(model)


def follow(recipe: Recipe, model: nn.Module, optimizer: Optimizer, loop: Any) -> Weights:
    """Train; return the weights."""
    scheduler = recipe.scheduler(optimizer) if recipe.scheduler else None
    rank = distributed.get_rank()

    def passed(step: int) -> None:
        loss_of(loop.forward(make_inputs(recipe.data, rank, step)), rank, step).backward()

    for step in range(STEPS):
        if recipe.between is not None:
            recipe.between(model, step)
        for number in range(recipe.passes - 1):
            with loop.no_sync():
                passed(step + 100 * number + 100)
        passed(step)
        if recipe.clip is not None:
            loop.clip(recipe.clip)
        loop.step()
        if scheduler is not None:
            scheduler.step()
    model.eval().state_dict()  # which finishes everything
    return weights_of(model)
