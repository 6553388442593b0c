"""Small models with data, and the weights that plain data-parallel training gives them.

Every model is made from the same seed everywhere, and a batch of data depends on rank and step
alone, so that training can be repeated with any executor and compared with torch's own DDP. No
parameter has a gradient that is zero in theory: Adam would blow up its rounding errors.
"""

from collections.abc import Callable, Iterable
from functools import cache

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from planner.model.profiles import Profile
from planner.profiling import measure
from planner.runtime.executors.base import Executor

STEPS = 3
CLASSES = 7

Weights = dict[str, Tensor]


class Perceptron(nn.Module):
    """Linear layers with a normalisation: what most tests need."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 24)
        self.norm = nn.LayerNorm(24)
        self.second = nn.Linear(24, 16)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.first(inputs)))
        outputs: Tensor = self.last(torch.relu(self.second(hidden)))
        return outputs


class Convolutions(nn.Module):
    """A residual block between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.block = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, 8)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(self.stem(images))
        hidden = hidden + torch.relu(self.norm(self.block(hidden)))
        outputs: Tensor = self.last(hidden.mean((2, 3)))
        return outputs


class Transformer(nn.Module):
    """One block whose embedding is its classifier too, and whose attention hides a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, 16)
        # A bias of the keys has no effect, so its gradient would be zero.
        self.attention = nn.MultiheadAttention(16, 2, bias=False, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.inner = nn.Linear(16, 32)
        self.outer = nn.Linear(32, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        hidden = hidden + self.attention(hidden, hidden, hidden, need_weights=False)[0]
        hidden = hidden + self.outer(torch.relu(self.inner(self.norm(hidden))))
        return functional.linear(hidden, self.embedding.weight).flatten(0, 1)


class Recurrent(nn.Module):
    """An LSTM and a plain recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.long = nn.LSTM(6, 10, batch_first=True)
        self.plain = nn.RNN(10, 9, batch_first=True)
        self.last = nn.Linear(9, CLASSES)

    def forward(self, rows: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.plain(self.long(rows)[0])[0][:, -1])
        return outputs


MODELS: dict[str, type[nn.Module]] = {
    "perceptron": Perceptron,
    "convolutions": Convolutions,
    "transformer": Transformer,
    "recurrent": Recurrent,
}

OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, eps=1e-6),
}


def make_model(name: str) -> nn.Module:
    """Return a model, with the same weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(len(name))
        return MODELS[name]()


def make_optimizer(name: str, model: nn.Module) -> Optimizer:
    """Return an optimiser of the parameters of a model that are not frozen."""
    return OPTIMIZERS[name](
        parameter for parameter in model.parameters() if parameter.requires_grad
    )


def make_inputs(name: str, rank: int, step: int, size: int = 4) -> Tensor:
    """Return what a model is called with."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    if name == "transformer":
        return torch.randint(CLASSES, (size, 5), generator=random)
    shape = {"perceptron": (12,), "convolutions": (3, 6, 6), "recurrent": (5, 6)}[name]
    return torch.randn(size, *shape, generator=random)


@cache
def measured(name: str) -> Profile:
    """Return what a model's layers take here, measured once."""
    inputs = (make_inputs(name, 0, 0),)
    return measure(make_model(name), inputs, name=name, source="", warmup=0, repetitions=1)


def loss_of(outputs: Tensor, rank: int, step: int) -> Tensor:
    """Return the loss of a model's outputs."""
    random = torch.Generator().manual_seed(500_000 + 1000 * step + rank)
    return functional.cross_entropy(
        outputs, torch.randint(CLASSES, (len(outputs),), generator=random)
    )


def backward(model: nn.Module, name: str, rank: int, step: int) -> None:
    """Compute the gradients of a step."""
    loss_of(model(make_inputs(name, rank, step)), rank, step).backward()


def take_steps(
    executor: Executor, steps: Iterable[int] = range(STEPS), name: str = "perceptron"
) -> None:
    """Train the model of an executor."""
    for step in steps:
        backward(executor.model, name, executor.world.rank, step)
        executor.step()


def weights_of(model: nn.Module) -> Weights:
    """Return a copy of the parameters."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def trained(
    parallel: DistributedDataParallel, name: str, optimizer: str = "sgd", steps: int = STEPS
) -> Weights:
    """Train a model under DDP; return its weights."""
    updates = make_optimizer(optimizer, parallel.module)
    for step in range(steps):
        backward(parallel, name, distributed.get_rank(), step)
        updates.step()
        updates.zero_grad()
    return weights_of(parallel.module)


def ddp_weights(name: str, optimizer: str = "sgd", steps: int = STEPS) -> Weights:
    """Train as DDP does, in a job that has its process group; return the weights."""
    return trained(DistributedDataParallel(make_model(name)), name, optimizer, steps)


def away_from_ddp(
    model: nn.Module, name: str = "perceptron", optimizer: str = "sgd", steps: int = STEPS
) -> float:
    """Return by how much the weights of a trained model differ at most from those of DDP."""
    return largest_difference(weights_of(model), ddp_weights(name, optimizer, steps))


def largest_difference(weights: Weights, others: Weights) -> float:
    """Return by how much two sets of weights differ at most."""
    assert weights.keys() == others.keys()
    return max(float((weight - others[name]).abs().max()) for name, weight in weights.items())
