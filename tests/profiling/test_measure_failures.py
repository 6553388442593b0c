"""Models that change, fail or hide something while they are measured."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from planner.model.errors import MeasurementError
from tests.profiling.models import (
    Model,
    linear,
    measured,
)
from tests.profiling.test_measure import assert_untouched


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    torch.manual_seed(0)


class Alternating(nn.Module):
    def __init__(self, *ways: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.a = linear()
        self.b = linear()
        self.ways = ways
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return self.ways[self.runs // 4 % 2](self, x)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (lambda m, x: m.b(m.a(x)), lambda m, x: m.a(m.b(x)), "another order"),
        (lambda m, x: m.b(m.a(x)), lambda m, x: m.a(x), "another order"),
        (lambda m, x: m.a(x), lambda m, x: m.a(x) + x, "other operations"),
        (lambda m, x: m.a(x).sin(), lambda m, x: m.a(x).cos(), "other operations"),
    ],
)
def test_a_model_that_changes(
    one: Callable[[Any, Tensor], Tensor], other: Callable[[Any, Tensor], Tensor], message: str
) -> None:
    model = Alternating(one, other)
    with pytest.raises(MeasurementError, match=f"changes from run to run: .*{message}"):
        measured(model, repetitions=4)
    assert_untouched(model)


@pytest.mark.parametrize("failing_run", range(1, 6))
def test_a_model_that_fails(failing_run: int) -> None:
    runs = 0

    def compute(m: Any, x: Tensor) -> Any:
        nonlocal runs
        runs += 1
        if runs == failing_run:
            raise KeyError("no such thing")
        return m.b(m.a(x))

    model = Model(compute, a=linear(), b=linear())
    with pytest.raises(MeasurementError, match="forward pass failed: KeyError: 'no such"):
        measured(model, warmup=1)
    assert_untouched(model)


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise ValueError("no derivative")


def test_a_backward_pass_that_fails() -> None:
    model = Model(lambda m, x: Broken.apply(m.a(x)), a=linear())  # type: ignore[no-untyped-call]
    with pytest.raises(MeasurementError, match="backward pass failed: ValueError: no derivative"):
        measured(model)
    assert_untouched(model)


def test_an_error_the_model_handles_itself() -> None:
    def compute(m: Any, x: Tensor) -> Any:
        with pytest.raises(RuntimeError):
            m.a(x[:, :1])
        return m.b(x)

    profile = measured(Model(compute, a=linear(), b=linear()))
    assert [layer.name for layer in profile.layers] == ["a", "b"]


def test_nothing_to_train() -> None:
    with pytest.raises(MeasurementError, match="depends on no trainable parameter"):
        measured(linear().requires_grad_(requires_grad=False))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_model_hides_its_layers() -> None:
    with pytest.raises(MeasurementError, match="0 is scripted"):
        measured(nn.Sequential(torch.jit.script(linear())))


def test_gradients_and_mode_are_put_back() -> None:
    model = nn.Sequential(linear(), nn.Dropout()).eval()
    model[1].train()
    x = torch.ones(2, 4, requires_grad=True)
    gradient = torch.ones(4, 4)
    model[0].weight.grad = gradient
    profile = measured(model, (x,))
    assert model[0].weight.grad is gradient
    assert torch.equal(gradient, torch.ones(4, 4))
    assert model[0].bias.grad is None
    assert x.grad is None
    assert [model.training, model[0].training, model[1].training] == [False, False, True]
    assert "the model is in evaluation mode" in profile.provenance.notes


def test_gradients_can_be_turned_off_around_it() -> None:
    with torch.no_grad():
        assert measured(linear()).backward_ns > 0
        assert not torch.is_grad_enabled()
