"""Kinds, shapes and multiply-adds of layers, against torch's own counter and by hand."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from planner.jsonio import decode_profile
from planner.profiling.shapes import Description, describe
from tests.profiling.models import Model, measured
from tests.test_networks import NETWORKS

PROFILES = Path(__file__).parents[2] / "data/profiles"


def described(model: nn.Module, *inputs: Any, batch_size: int = 2) -> tuple[Description, ...]:
    found = describe(model, inputs, batch_size)
    assert found is not None
    return found


def test_layers_by_hand() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, (3, 5), stride=2, padding=1, dilation=2, groups=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    conv, norm, relu, pool, mean, flat, full = described(model, torch.randn(2, 3, 21, 21))
    rows, columns = (21 + 2 - 5) // 2 + 1, (21 + 2 - 9) // 2 + 1
    area, made = 8 * rows * columns, (8, rows, columns)
    assert (conv.kind, conv.output_shape) == ("conv", made)
    assert (conv.kernel, conv.stride) == ((5, 9), (2, 2))  # dilated
    assert (conv.connections, conv.weights) == (area * 3 * 15, 8 * 3 * 15 + 8)
    assert norm == Description("norm", made, made, None, None, area, 16)
    assert (relu.kind, relu.connections, relu.weights) == ("activation", 0, 0)
    assert (pool.kind, pool.kernel, pool.stride) == ("pool", (2, 2), (2, 2))
    assert (mean.kind, mean.kernel) == ("pool", (rows // 2, columns // 2))
    assert (flat.kind, flat.output_shape) == ("view", (8,))
    assert full == Description("full", (8,), (5,), None, None, 40, 45)


def mixed(m: Any, tokens: Tensor) -> Any:
    """Multiply positions with each other between two layers."""
    made = m.one(tokens)
    return m.two(torch.bmm(made, made.transpose(1, 2)).softmax(-1) @ made)


def test_products_between_layers_belong_to_the_one_before() -> None:
    model = Model(mixed, one=nn.Linear(6, 6), two=nn.Linear(6, 4))
    first, second = described(model, torch.randn(2, 7, 6))
    assert (first.kind, second.kind) == ("attention", "full")
    assert first.connections == 7 * 6 * 6 + 2 * 7 * 7 * 6
    assert second.connections == 7 * 6 * 4


class Own(nn.Module):
    """A layer nobody knows: `power` matrices, and a scale."""

    def __init__(self, shape: tuple[int, ...], *, multiply: bool) -> None:
        super().__init__()
        self.weight, self.multiply = nn.Parameter(torch.ones(shape)), multiply

    def forward(self, values: Tensor) -> Tensor:
        return values @ self.weight if self.multiply else values * self.weight.sum()


def test_modules_of_ones_own() -> None:
    for shape, multiply, connections in (
        ((4, 4), True, 16),
        ((4,), False, 4),
        ((4, 4), False, None),
    ):
        (found,) = described(Own(shape, multiply=multiply), torch.randn(2, 4))
        assert (found.kind, found.connections) == ("other", connections)


def test_recurrent_layers_use_each_weight_once_a_step() -> None:
    (found,) = described(nn.LSTM(3, 5, batch_first=True), torch.randn(2, 7, 3))
    assert found.output_shape == (7, 5)
    assert found.connections == 7 * 4 * 5 * (3 + 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_shipped_profiles_have_what_follows_from_their_networks(name: str) -> None:
    """Their products are those of torch's own counter."""
    profile = decode_profile((PROFILES / f"{name}.json").read_bytes())
    size = profile.batch_size
    assert size is not None
    with torch.device("meta"):
        model, inputs = NETWORKS[name].factory(batch_size=size)
    found = described(model, *inputs, batch_size=size)
    for layer, known in zip(profile.layers, found, strict=True):
        for field, value in known._asdict().items():
            assert getattr(layer, field) == value
    assert "were not measured" in profile.provenance.notes[-1]
    if name in ("resnet50", "googlenet"):
        counter = FlopCounterMode(display=False)
        with counter:
            model(*inputs)
        counted = sum(layer.connections or 0 for layer in found if layer.kind in ("conv", "full"))
        assert 2 * size * counted == counter.get_total_flops()


def test_what_is_measured_is_also_described() -> None:
    model, inputs = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (torch.randn(5, 4),)
    first = measured(model, inputs, batch_size=5).layers[0]
    assert (first.kind, first.connections, first.weights) == ("full", 12, 15)
    assert measured(model, inputs).layers[0].kind is None
