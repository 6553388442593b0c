"""Small models and what is known of them; needs torch."""

from collections.abc import Callable, Mapping
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

IDS = (torch.tensor([[1, 2, 3]]),)
ROWS = (torch.ones(2, 4),)
SEQUENCE = (torch.ones(2, 3, 4),)


def linear() -> nn.Linear:
    return nn.Linear(4, 4)


class Model(nn.Module):
    """Linear layers, other modules, and a function that says how they are called."""

    def __init__(self, compute: Callable[..., Any], layers: str = "", **modules: nn.Module) -> None:
        super().__init__()
        self.compute = compute
        for name, module in {**{name: linear() for name in layers.split()}, **modules}.items():
            setattr(self, name, module)

    def forward(self, *inputs: Any) -> Any:
        return self.compute(self, *inputs)


def frozen(model: nn.Module, parts: str = "") -> nn.Module:
    """Freeze some parts, or the whole."""
    for part in parts.split() or [""]:
        model.get_submodule(part).requires_grad_(requires_grad=False)
    return model


class WithToken(nn.Module):
    """A container that owns a parameter itself."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 4))
        self.embed, self.mix = linear(), linear()

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


def tied() -> Model:
    model = Model(
        lambda m, ids: m.decode(m.hidden(m.embed(ids))),
        "hidden",
        embed=nn.Embedding(9, 4),
        decode=nn.Linear(4, 9),
    )
    model.decode.weight = model.embed.weight  # type: ignore[union-attr]
    return model


@dataclass
class Case:
    make: Callable[[], nn.Module]
    layers: str
    """Names in order; a bar where a block begins."""
    inputs: tuple[Any, ...] = ROWS
    reads: Mapping[str, str] = field(default_factory=dict)  # by some ops, in the forward pass
    gradients: Mapping[str, str] = field(default_factory=dict)  # what backward ops read
    updates: Mapping[str, str] = field(default_factory=dict)  # by some parameters
    owners: Mapping[str, str] = field(default_factory=dict)  # of parameters that are not named so

    @property
    def names(self) -> list[str]:
        return self.layers.replace("|", " ").split()

    @property
    def blocks(self) -> list[int]:
        blocks = self.layers.split("|")
        return [number for number, names in enumerate(blocks) for _ in names.split()]

    def owner(self, parameter: str) -> str:
        """Return the layer that a parameter belongs to: its name begins so, or it is the first."""
        named = (name for name in self.names if parameter.startswith(f"{name}."))
        return self.owners.get(parameter) or max(named, key=len, default=self.names[0])


def flow(
    compute: Callable[..., Any],
    layers: str,
    modules: Mapping[str, Callable[[], nn.Module]] = {},
    *,
    freeze: str = "",
    **known: Any,
) -> Case:
    """Return a case whose layers are linear, but for the modules that are given."""

    def make() -> nn.Module:
        names = [name for name in layers.replace("|", " ").split() if name not in modules]
        model = Model(
            compute,
            " ".join(name for name in names if "#" not in name),
            **{name: module() for name, module in modules.items()},
        )
        return frozen(model, freeze) if freeze else model

    return Case(make, layers, **known)


def embedding() -> nn.Module:
    return nn.Embedding(9, 4)


CASES = {
    "chain": Case(lambda: nn.Sequential(linear(), nn.ReLU(inplace=True), linear()), "0 | 1 | 2"),
    "a single module": Case(linear, "Linear"),
    "residual": flow(
        lambda m, x: m.head((y := m.stem(x)) + m.b(m.act(m.a(y)))),
        "stem | a act b | head",
        {"act": nn.ReLU},
    ),
    "branches of the input": flow(
        lambda m, x: m.head(m.left(x) + m.right(x)),
        "left | right | head",
        # What reads the input follows the op before.
        reads={"left": "", "right": "left", "add": "left right"},
    ),
    "a branch that starts with a function": flow(
        pooled_branch, "stem | wide | head", {"head": lambda: nn.Linear(8, 4)}
    ),
    "a module that computes nothing in a branch": flow(
        lambda m, x: m.head((y := m.stem(x)) + m.b(m.nothing(m.a(y)))),
        "stem | a nothing b | head",
        {"nothing": nn.Identity},
    ),
    "an auxiliary head in a dict": flow(
        lambda m, x: {"aux": [m.aux(y := m.stem(x))], "out": (m.head(y),), "n": 1},
        "stem | aux head",
        reads={"loss": "aux head"},
        gradients={"stem": "aux head"},
    ),
    "called twice": flow(
        lambda m, x: m.shared(m.act(m.shared(x))),
        "shared | act | shared#2",
        {"act": nn.Sigmoid},
        gradients={"shared": "act"},
        updates={"shared.weight": "shared shared#2", "shared.bias": "shared shared#2"},
    ),
    "called as a layer and as a container": Case(
        lambda: Model(
            lambda m, x: m.both(m.both(x, False), True),
            both=Model(lambda m, x, deep: m.inner(x) if deep else x * 2, "inner"),
        ),
        "both | both.inner",
    ),
    "tied weights": Case(
        tied,
        "embed | hidden | decode",
        IDS,
        updates={"embed.weight": "embed decode", "decode.bias": "decode"},
    ),
    "attention": flow(
        lambda m, x: m.head(x + m.attention(x, x, x)[0]),
        "attention | head",
        {"attention": lambda: nn.MultiheadAttention(4, 2, batch_first=True)},
        inputs=SEQUENCE,
    ),
    "a token of a container": Case(
        lambda: nn.Sequential(linear(), WithToken(), linear()),
        "0 | 1.embed | 1.mix | 2",
        updates={"1.token": "1:cat"},
        owners={"1.token": "1.embed"},
    ),
    "a frozen front": flow(
        lambda m, x: m.head((y := m.stem(x)) + m.b(m.a(y))),
        "stem | a | b | head",
        freeze="stem a b",
        reads={"stem": "", "a": "stem", "b": "a", "head": "b", "loss": "head"},
        gradients={"loss": "", "head": "loss"},
    ),
    "a recomputed layer": flow(
        lambda m, x: m.head(checkpoint(m.inner, m.stem(x), use_reentrant=True)),
        "stem | inner | head",
        reads={"head": "inner checkpointfunction"},
        gradients={"inner": "head"},
        updates={"inner.weight": "inner"},
    ),
    "frozen from token numbers on": flow(
        lambda m, ids: m.head((y := m.embed(ids)) + m.b(m.a(y))),
        "embed | a | b | head",
        {"embed": embedding},
        freeze="embed a b",
        inputs=IDS,
    ),
    "calls outside the graph": flow(
        lambda m, ids: (m.embed(m.before(ids)), m.after(ids)),
        "before | embed | after",
        {"before": nn.Identity, "embed": embedding, "after": nn.Identity},
        inputs=IDS,
    ),
    "a view read after its base was changed": flow(
        view_of_changed, "stem | narrow | head", {"narrow": lambda: nn.Linear(2, 4)}
    ),
    "a mask that every layer reads": flow(
        lambda m, x, mask: m.b(m.a(x) * mask) * mask, "a | b", inputs=(*ROWS, *ROWS)
    ),
    "a tuple of outputs": Case(lambda: nn.LSTM(4, 4, batch_first=True), "LSTM", SEQUENCE),
    "parametrised": Case(
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(linear()), nn.ReLU()),
        "0 | 1",
        updates={
            "0.bias": "0",
            "0.parametrizations.weight.original0": "0",
            "0.parametrizations.weight.original1": "0",
        },
    ),
    "parameters nobody uses": flow(
        lambda m, x: m.used(x), "used", {"unused": lambda: nn.Sequential(linear(), linear())}
    ),
    "made at the first call": Case(lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU()), "0 | 1"),
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
