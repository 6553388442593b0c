"""Every read of a pending parameter in a forward pass comes after it was finished."""

import copy
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import handle_torch_function
from torch.utils.checkpoint import checkpoint

from planner.runtime.model.parameter_guard import ParameterGuard
from tests.profiling.models import Model
from tests.runtime.jobs import in_each_process
from tests.runtime.reference import MODELS, make_inputs, make_model


@pytest.fixture(autouse=True)
def nothing_is_compiled_yet() -> None:
    """Have what other tests compiled in this process forgotten: gates would wait for everything."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()


def watched(model: nn.Module) -> int:
    """Return how many parameters have a class of the guard's."""
    return sum(type(each) is not nn.Parameter for each in model.parameters())


class Gated:
    """A model whose parameters stay behind by one until they are finished."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.order: list[str] = []
        self.calls: list[str] = []
        self.names = {parameter: name for name, parameter in model.named_parameters()}
        self.gate = ParameterGuard(
            model,
            self.finish,
            self.finish_all,
            lambda: self.calls.append("entered"),
            lambda: self.calls.append("left"),
        )

    def hold(self, *held: str) -> None:
        """Take some parameters back, all if none are named."""
        self.order = []
        for parameter, name in self.names.items():
            if name in held or not held:
                parameter.data -= 1
                self.gate.pending.add(parameter)

    def finish(self, parameter: nn.Parameter) -> None:
        self.order.append(self.names[parameter])
        self.gate.pending.remove(parameter)
        with torch.no_grad():
            parameter.add_(1)

    def finish_all(self) -> None:
        for parameter in list(self.gate.pending):
            self.finish(parameter)


class Odd(nn.Module):
    """Reads parameters in as many ways as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(12, 12)) for _ in range(12))
        self.bias = nn.Parameter(torch.randn(12))
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(12, 12))

    def forward(self, inputs: Tensor) -> Tensor:
        w = self.weights
        hidden = inputs @ w[0] + (2 - w[1][:4]) + w[2].T[:4]
        hidden = torch.cat([hidden, w[3]])[:4] + torch.stack((w[4], w[4])).sum(0)[:4]
        hidden = torch.einsum("ij,jk->ik", hidden, w[5]) + sum(row for row in w[6])
        hidden = hidden + torch.tensor(w[7].tolist())[:4] + functional.linear(hidden, weight=w[8])
        hidden += torch.zeros(4, 12).copy_(w[9][:4]) + torch.from_numpy(w[10].detach().numpy())[:4]
        hidden[0] = self.bias
        outputs: Tensor = self.normed(checkpoint(torch.matmul, hidden, w[11], use_reentrant=False))
        return outputs


def encoder() -> nn.Module:
    """Return a model that has a shorter way when nobody looks."""
    layer = nn.TransformerEncoderLayer(12, 2, 16, dropout=0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


ALL: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    **{name: (lambda name=name: make_model(name), make_inputs(name, 0, 0)) for name in MODELS},  # type: ignore[misc]
    "odd": (Odd, torch.randn(4, 12)),
    "encoder": (encoder, torch.randn(2, 3, 12)),
}


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=8)
@given(st.data(), st.booleans())
def test_no_read_comes_before_the_parameter_is_finished(
    name: str, data: st.DataObject, mode: bool
) -> None:
    """All parameters or some are held back; the outputs are those of the model as it is."""
    make, inputs = ALL[name]
    model = make()
    expected = model(inputs)
    gated = Gated(model)
    names = set(gated.names.values())
    held = data.draw(st.just(names) | st.sets(st.sampled_from(sorted(names))), "held")
    if held:
        gated.hold(*held)
    with torch.inference_mode(mode=mode):
        # Not equal bit by bit: where torch calls are noticed, torch has no shorter ways.
        torch.testing.assert_close(model(inputs), expected.detach(), rtol=1e-4, atol=1e-4)
    assert sorted(gated.order) == sorted(held)
    assert gated.calls == ["entered", "left"]
    assert not watched(model)


def test_parameters_are_finished_in_the_order_of_reads_and_no_earlier() -> None:
    """Nothing is watched while nothing is pending."""
    gated = Gated(make_model("perceptron"))
    seen: list[tuple[int, int]] = []
    for part in gated.model.children():
        part.register_forward_pre_hook(
            lambda *_: seen.append((len(gated.order), watched(gated.model)))
        )
    gated.model(make_inputs("perceptron", 0, 0))
    gated.hold()
    gated.model(make_inputs("perceptron", 0, 0))
    layers = [name.partition(".")[0] for name in gated.order]
    assert layers == ["first"] * 2 + ["norm"] * 2 + ["second"] * 2 + ["last"] * 2
    assert seen == [(0, 0)] * 4 + [(0, 8), (2, 6), (4, 4), (6, 2)]


def test_a_parameter_keeps_its_class_and_copies_made_in_the_pass_are_the_new_ones() -> None:
    class Named(nn.Parameter):
        """A parameter of a class of its own."""

    model = Model(lambda m, inputs: inputs @ copy.deepcopy(m.plain) + inputs @ m.named)
    model.plain = nn.Parameter(torch.randn(3, 3))
    model.named = Named(torch.randn(3, 3))
    inputs = torch.randn(2, 3)
    expected = model(inputs)
    gated = Gated(model)
    gated.hold()
    torch.testing.assert_close(model(inputs), expected)
    assert gated.order == ["plain", "named"]
    assert [type(each) for each in model.parameters()] == [nn.Parameter, Named]


def test_an_argument_that_hides_a_parameter_is_no_visible_read() -> None:
    """The call is made all the same, and the parameter counts as unread."""
    model = Model(
        lambda m, inputs: handle_torch_function(lambda box: inputs @ box.value, (m.one,), m.box)
    )
    model.one = nn.Parameter(torch.randn(3, 3))
    model.box = SimpleNamespace(value=model.one)  # type: ignore[assignment]
    gated = Gated(model)
    gated.hold()
    model(torch.randn(2, 3))
    assert gated.gate.unread == {model.one}
    assert not watched(model)


def test_an_update_is_no_read() -> None:
    """The first read updates all parameters; the others still count as unread."""
    gated = Gated(make_model("perceptron"))
    gated.gate._finish = lambda _: gated.finish_all()
    seen: list[int] = []
    part = gated.model.get_submodule("second")
    part.register_forward_pre_hook(lambda *_: seen.append(watched(gated.model)))
    gated.hold()
    gated.model(make_inputs("perceptron", 0, 0))
    assert seen == [4]


def test_parts_wait_too_and_what_is_pending_comes_before_saving_and_loading() -> None:
    model = make_model("perceptron")
    state = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    gated = Gated(model)
    gated.hold()
    model.get_submodule("second")(torch.randn(4, 24))
    assert sorted(gated.order) == ["second.bias", "second.weight"]
    model.get_submodule("first").state_dict()
    assert not gated.gate.pending
    gated.hold()
    model.load_state_dict(state)
    assert not gated.gate.pending
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, state[name])


def test_parts_that_were_called_by_the_whole_wait_again_when_called_alone() -> None:
    """Their hooks rest meanwhile, and come back around those of others, whatever happens."""
    gated = Gated(recursive())
    part, inputs = gated.model.get_submodule("one"), torch.randn(2, 3)
    own = len(part._forward_hooks), len(part._forward_pre_hooks)
    seen: list[int] = []
    part.register_forward_pre_hook(lambda *_: None)
    part.register_forward_hook(lambda *_: seen.append(len(part._forward_hooks)))
    for fail in (False, True):
        with suppress(ArithmeticError):
            gated.model(inputs, 0, fail)
        assert (len(part._forward_hooks) - 1, len(part._forward_pre_hooks) - 1) == own
        assert next(iter(part._forward_pre_hooks.values())) == gated.gate._enter
        assert list(part._forward_hooks.values())[-1] == gated.gate._leave
        gated.hold()
        part(inputs)
        assert sorted(gated.order) == ["one.bias", "one.weight"]
        gated.finish_all()
    assert seen == [1, own[0] + 1] * 2


def recursive() -> nn.Module:
    """Return a model that calls itself, and fails where it is told to."""

    def compute(m: Any, inputs: Tensor, depth: int, fail: bool) -> Any:
        hidden = m.one(inputs)
        if depth:
            return m(hidden, depth - 1, fail)
        if fail:
            raise ArithmeticError
        return m.other(hidden)

    return Model(compute, one=nn.Linear(3, 3), other=nn.Linear(3, 3))


def test_a_failed_pass_leaves_nothing_behind() -> None:
    gated = Gated(recursive())
    gated.hold()
    inputs = torch.randn(2, 3)
    with pytest.raises(ArithmeticError):
        gated.model(inputs, 2, True)
    assert not watched(gated.model)
    assert sorted(gated.order) == ["one.bias", "one.weight"]
    gated.model(inputs, 2, False)
    assert not gated.gate.pending
    assert gated.calls == ["entered", "left"] * 2


@pytest.mark.parametrize("end", [ParameterGuard.close, ParameterGuard.reset])
def test_a_pass_that_was_interrupted_can_be_ended(end: Callable[[ParameterGuard], None]) -> None:
    gated = Gated(recursive())
    gated.hold()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt  # of which torch tells no hook

    gated.model.get_submodule("other").register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        gated.model(torch.randn(2, 3), 0, False)
    assert watched(gated.model)
    end(gated.gate)
    assert not watched(gated.model)


def test_a_refusal_to_enter_is_no_pass() -> None:
    model = make_model("perceptron")
    entered = Mock(side_effect=[ArithmeticError, None])
    gate = ParameterGuard(model, lambda _: None, lambda: None, entered, lambda: None)
    gate.pending = set(model.parameters())
    inputs = make_inputs("perceptron", 0, 0)
    with pytest.raises(ArithmeticError):
        model(inputs)
    assert not watched(model)
    model(inputs)
    assert entered.call_count == 2


@pytest.mark.parametrize("how", ["scripted", pytest.param("compiled", marks=pytest.mark.slow)])
@in_each_process(1)
def test_parts_that_hide_their_reads_wait_for_everything(how: str) -> None:
    # In a process of its own: where anything was compiled, all gates wait for everything.
    warnings.simplefilter("ignore")
    model = make_model("perceptron")
    part = model.get_submodule("second")
    hidden = torch.jit.script(part) if how == "scripted" else torch.compile(part, backend="eager")
    model.second = hidden  # type: ignore[assignment]
    inputs = make_inputs("perceptron", 0, 0)
    expected = model(inputs)
    gated = Gated(model)
    gated.hold()
    torch.testing.assert_close(model(inputs), expected, rtol=1e-4, atol=1e-4)
    assert len(gated.order) == len(gated.names)
    gated.gate.close()
