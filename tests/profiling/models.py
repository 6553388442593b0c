"""Small models and what is known of them; needs torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from planner.model.graphs import Graph
from planner.model.profiles import Profile
from planner.profiling import measure

LINEAR = 4 * (4 * 4 + 4)
"""Bytes of `linear()`."""


def linear() -> nn.Linear:
    return nn.Linear(4, 4)


class Model(nn.Module):
    """Named modules, and a function that says how they are called."""

    def __init__(self, compute: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.compute = compute
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs: Any) -> Any:
        return self.compute(self, *inputs)


class WithToken(nn.Module):
    """A container that owns a parameter itself."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 4))
        self.embed = linear()
        self.mix = linear()

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.mix(torch.cat([self.token, self.embed(x)]))
        return tokens


def pooled_branch(m: Any, x: Tensor) -> Any:
    x = m.stem(x)
    short = functional.relu(x)
    return m.head(torch.cat([short, m.wide(x)], dim=1))


def view_of_changed(m: Any, x: Tensor) -> Any:
    base = m.stem(x)
    view = base[:, :2]
    base.mul_(2)
    return m.head(m.narrow(view) + base)


def attention() -> Model:
    def compute(m: Any, x: Tensor) -> Any:
        return m.head(x + m.attention(x, x, x)[0])

    return Model(compute, attention=nn.MultiheadAttention(4, 2, batch_first=True), head=linear())


def tied() -> Model:
    model = Model(
        lambda m, ids: m.decode(m.hidden(m.embed(ids))),
        embed=nn.Embedding(9, 4),
        hidden=linear(),
        decode=nn.Linear(4, 9),
    )
    model.decode.weight = model.embed.weight  # type: ignore[union-attr]
    return model


def frozen_front() -> Model:
    def compute(m: Any, x: Tensor) -> Any:
        x = m.stem(x)
        return m.head(x + m.b(m.a(x)))

    return Model(
        compute,
        stem=linear().requires_grad_(requires_grad=False),
        a=linear().requires_grad_(requires_grad=False),
        b=linear().requires_grad_(requires_grad=False),
        head=linear(),
    )


IDS = (torch.tensor([[1, 2, 3]]),)
ROWS = (torch.ones(2, 4),)
SEQUENCE = (torch.ones(2, 3, 4),)


@dataclass
class Case:
    make: Callable[[], nn.Module]
    names: Sequence[str]
    blocks: Sequence[int]
    parameter_bytes: Sequence[int]
    inputs: tuple[Any, ...] = ROWS
    reads: Mapping[str, str] = field(default_factory=dict)  # by some ops, in the forward pass
    gradients: Mapping[str, str] = field(default_factory=dict)  # what backward ops read
    updates: Mapping[str, str] = field(default_factory=dict)  # by some parameters


CASES = {
    "chain": Case(
        lambda: nn.Sequential(linear(), nn.ReLU(inplace=True), linear()),
        ["0", "1", "2"],
        [0, 1, 2],
        [LINEAR, 0, LINEAR],
    ),
    "a single module": Case(linear, ["Linear"], [0], [LINEAR]),
    "residual": Case(
        lambda: Model(
            lambda m, x: m.head((y := m.stem(x)) + m.b(m.act(m.a(y)))),
            stem=linear(),
            a=linear(),
            act=nn.ReLU(),
            b=linear(),
            head=linear(),
        ),
        ["stem", "a", "act", "b", "head"],
        [0, 1, 1, 1, 2],
        [LINEAR, LINEAR, 0, LINEAR, LINEAR],
    ),
    "branches of the input": Case(
        lambda: Model(
            lambda m, x: m.head(m.left(x) + m.right(x)),
            left=linear(),
            right=linear(),
            head=linear(),
        ),
        ["left", "right", "head"],
        [0, 1, 2],
        [LINEAR] * 3,
        # What reads the input follows the op before.
        reads={"left": "", "right": "left", "add": "left right"},
    ),
    "a branch that starts with a function": Case(
        lambda: Model(pooled_branch, stem=linear(), wide=linear(), head=nn.Linear(8, 4)),
        ["stem", "wide", "head"],
        [0, 1, 2],
        [LINEAR, LINEAR, LINEAR + 4 * 16],
    ),
    "a module that computes nothing in a branch": Case(
        lambda: Model(
            lambda m, x: m.head((y := m.stem(x)) + m.b(m.nothing(m.a(y)))),
            stem=linear(),
            a=linear(),
            nothing=nn.Identity(),
            b=linear(),
            head=linear(),
        ),
        ["stem", "a", "nothing", "b", "head"],
        [0, 1, 1, 1, 2],
        [LINEAR, LINEAR, 0, LINEAR, LINEAR],
    ),
    "an auxiliary head in a dict": Case(
        lambda: Model(
            lambda m, x: {"aux": [m.aux(y := m.stem(x))], "out": (m.head(y),), "n": 1},
            stem=linear(),
            aux=linear(),
            head=linear(),
        ),
        ["stem", "aux", "head"],
        [0, 1, 1],
        [LINEAR] * 3,
        reads={"loss": "aux head"},
        gradients={"stem": "aux head"},
    ),
    "called twice": Case(
        lambda: Model(lambda m, x: m.shared(m.act(m.shared(x))), shared=linear(), act=nn.Sigmoid()),
        ["shared", "act", "shared#2"],
        [0, 1, 2],
        [LINEAR, 0, 0],
        gradients={"shared": "act"},
        updates={"shared.weight": "shared shared#2", "shared.bias": "shared shared#2"},
    ),
    "called as a layer and as a container": Case(
        lambda: Model(
            lambda m, x: m.both(m.both(x, False), True),
            both=Model(lambda m, x, deep: m.inner(x) if deep else x * 2, inner=linear()),
        ),
        ["both", "both.inner"],
        [0, 1],
        [0, LINEAR],
    ),
    "tied weights": Case(
        tied,
        ["embed", "hidden", "decode"],
        [0, 1, 2],
        [4 * 9 * 4, LINEAR, 4 * 9],
        IDS,
        updates={"embed.weight": "embed decode", "decode.bias": "decode"},
    ),
    "attention": Case(
        attention, ["attention", "head"], [0, 1], [4 * (16 * 4 + 4 * 4), LINEAR], SEQUENCE
    ),
    "a token of a container": Case(
        lambda: nn.Sequential(linear(), WithToken(), linear()),
        ["0", "1.embed", "1.mix", "2"],
        [0, 1, 2, 3],
        [LINEAR, LINEAR + 16, LINEAR, LINEAR],
        updates={"1.token": "1:cat"},
    ),
    "a frozen front": Case(
        frozen_front,
        ["stem", "a", "b", "head"],
        [0, 1, 2, 3],
        [LINEAR] * 4,
        reads={"stem": "", "a": "stem", "b": "a", "head": "b", "loss": "head"},
        gradients={"loss": "", "head": "loss"},
    ),
    "a recomputed layer": Case(
        lambda: Model(
            lambda m, x: m.head(checkpoint(m.inner, m.stem(x), use_reentrant=True)),
            stem=linear(),
            inner=linear(),
            head=linear(),
        ),
        ["stem", "inner", "head"],
        [0, 1, 2],
        [LINEAR] * 3,
        reads={"head": "inner checkpointfunction"},
        gradients={"inner": "head"},
        updates={"inner.weight": "inner"},
    ),
    "frozen from token numbers on": Case(
        lambda: Model(
            lambda m, ids: m.head((y := m.embed(ids)) + m.b(m.a(y))),
            embed=nn.Embedding(9, 4).requires_grad_(requires_grad=False),
            a=linear().requires_grad_(requires_grad=False),
            b=linear().requires_grad_(requires_grad=False),
            head=linear(),
        ),
        ["embed", "a", "b", "head"],
        [0, 1, 2, 3],
        [4 * 9 * 4, LINEAR, LINEAR, LINEAR],
        IDS,
    ),
    "calls outside the graph": Case(
        lambda: Model(
            lambda m, ids: (m.embed(m.before(ids)), m.after(ids)),
            before=nn.Identity(),
            embed=nn.Embedding(9, 4),
            after=nn.Identity(),
        ),
        ["before", "embed", "after"],
        [0, 1, 2],
        [0, 4 * 9 * 4, 0],
        IDS,
    ),
    "a view read after its base was changed": Case(
        lambda: Model(view_of_changed, stem=linear(), narrow=nn.Linear(2, 4), head=linear()),
        ["stem", "narrow", "head"],
        [0, 1, 2],
        [LINEAR, 4 * 12, LINEAR],
    ),
    "a tuple of outputs": Case(
        lambda: nn.LSTM(4, 4, batch_first=True), ["LSTM"], [0], [4 * (2 * 64 + 2 * 16)], SEQUENCE
    ),
    "parametrised": Case(
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(linear()), nn.ReLU()),
        ["0", "1"],
        [0, 1],
        [LINEAR + 4 * 4, 0],
        updates={
            "0.bias": "0",
            "0.parametrizations.weight.original0": "0",
            "0.parametrizations.weight.original1": "0",
        },
    ),
    "parameters nobody uses": Case(
        lambda: Model(
            lambda m, x: m.used(x), unused=nn.Sequential(linear(), linear()), used=linear()
        ),
        ["used"],
        [0],
        [3 * LINEAR],
    ),
    "made at the first call": Case(
        lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU()), ["0", "1"], [0, 1], [LINEAR, 0]
    ),
}


def measured(model: nn.Module, inputs: tuple[Any, ...] = ROWS, **options: Any) -> Profile:
    chosen = {"warmup": 0, "repetitions": 2, **options}
    return measure(model, inputs, name="model", source="a test", **chosen)


def ticking() -> Callable[[], int]:
    return count().__next__


def reads(graph: Graph, phase: str = "forward") -> dict[str, set[str]]:
    """Return the predecessors of each op in its own pass; names are without the pass."""
    end = f"/{phase}"
    return {
        op.name.removesuffix(end): {
            name.removesuffix(end) for name in op.after if name.endswith(end)
        }
        for op in graph.ops
        if op.phase == phase
    }


def updaters(graph: Graph) -> Mapping[str, tuple[str, ...]]:
    for one in graph.parameters:
        assert one.read_by == tuple(
            f"{name.removesuffix('/backward')}/forward" for name in one.updated_by
        )
    return {
        parameter.name: tuple(name.removesuffix("/backward") for name in parameter.updated_by)
        for parameter in graph.parameters
    }
