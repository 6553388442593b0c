"""Models are measured layer by layer: times and sizes; what fails, and what is put back."""

import gc
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from planner.model import machine
from planner.model.errors import MeasurementError
from planner.model.layers import Layer
from planner.model.profiles import Profile
from planner.profiling import measuring
from planner.profiling.samples import loss_of
from planner.profiling.structure import observe
from planner.profiling.timing import Run, spread_of, time_bare, time_layers, warnings_of
from planner.solving.diagnostics import Spread
from tests.formats.refused import refused
from tests.profiling.models import (
    CASES,
    IDS,
    LINEAR,
    ROWS,
    Case,
    Model,
    frozen,
    linear,
    measured,
    reads,
    ticking,
    tied,
    updaters,
)

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def assert_untouched(model: nn.Module) -> None:
    for module in model.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
    for parameter in model.parameters():
        assert not getattr(parameter, "_post_accumulate_grad_hooks", None)
        assert parameter.grad is None
    assert gc.isenabled()


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    torch.manual_seed(0)


@every_case
def test_an_architecture(case: Case) -> None:
    model = case.make()
    profile = measured(model, case.inputs, repetitions=1)
    layers, parameters = profile.layers, dict(model.named_parameters())
    assert [layer.name for layer in layers] == case.names
    assert [layer.block for layer in layers] == case.blocks
    names = profile.layer_parameters()
    assert names == tuple(layer.parameters for layer in layers)
    assert {name: layer.name for layer in layers for name in layer.parameters} == {
        name: case.owner(name) for name in parameters
    }
    for layer in layers:
        own = [parameters[name] for name in layer.parameters]
        assert sum(one.nbytes for one in own) == layer.parameter_bytes
        assert sum(one.nbytes for one in own if one.requires_grad) == layer.pushed_bytes
    chain = profile.chain().layers
    assert [unit.name for unit in chain] == [layer.name for layer in layers if layer.parameters]
    assert sum(unit.kept_bytes or 0 for unit in chain) == sum(
        each.kept_bytes or 0 for each in layers
    )
    assert profile.forward_ns > 0
    assert profile.backward_ns > 0
    assert model.training
    assert_untouched(model)

    graph = profile.graph
    assert graph is not None
    ops = [op.name for op in graph.ops]
    assert [name for name in ops if name.removesuffix("/forward") in case.names] == [
        f"{name}/forward" for name in case.names
    ]
    for op in graph.ops:
        assert op.name.endswith(f"/{op.phase}")
        if op.phase == "backward":
            assert op.name.replace("/backward", "/forward") in op.after
    for phase, total in (("forward", profile.forward_ns), ("backward", profile.backward_ns)):
        assert sum(op.duration_ns for op in graph.ops if op.phase == phase) == total
    forward = graph.pass_order("forward")
    assert graph.topological[: len(forward)] == forward
    for phase, expected in (("forward", case.reads), ("backward", case.gradients)):
        found = reads(graph, phase)
        assert {name: found[name] for name in expected} == {
            name: set(others.split()) for name, others in expected.items()
        }
    for name, users in case.updates.items():
        assert updaters(graph)[name] == tuple(users.split())
    sizes = {parameter.name: parameter.size_bytes for parameter in graph.parameters}
    unused = {name for name in parameters if name.startswith("unused")}
    assert sizes == {
        name: parameter.nbytes
        for name, parameter in parameters.items()
        if parameter.requires_grad and name not in unused
    }
    assert_complete_in_order(model, case, profile)


def assert_complete_in_order(model: nn.Module, case: Case, profile: Profile) -> None:
    """Check that gradients are complete in the order of the profile."""
    graph, order = profile.dataflow(), profile.op_order
    assert order is not None
    last = [max(order.index(graph.ops[op].name) for op in row) for row in graph.updaters]
    planned = {tensor.name: place for tensor, place in zip(graph.parameters, last, strict=True)}
    places: list[int] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(
                lambda _, name=name: places.append(planned[name])
            )
    loss_of(model(*case.inputs)).backward()
    assert len(places) == len(planned)
    assert places == sorted(places)


def test_what_is_kept_is_counted_once_and_without_the_model_s_own_tensors() -> None:
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Sigmoid(), nn.Linear(3, 2, bias=False))
    # The input; the sigmoid's result, which the last layer keeps, too, beside its own weight.
    assert observe(model, (torch.ones(5, 4),)).kept_bytes == (80, 60, 0)


@every_case
def test_every_moment_belongs_to_a_layer(case: Case) -> None:
    """With a clock that ticks at each reading, times are counts and exact."""
    model = case.make()
    structure = observe(model, case.inputs)
    run = time_layers(model, case.inputs, structure, ticking())
    layers = range(len(structure.names))
    assert len(structure.by_layer(run.forward_ns)) == len(case.names)
    assert sum(run.forward_ns) == run.whole_ns[0] == len(structure.marks) + 1
    trained = [
        layer for parameter, layer in structure.parameters.items() if parameter.grad is not None
    ]
    node_layers = [structure.ops[op].layer for op in structure.node_ops]
    moments = [node_layers.count(layer) + trained.count(layer) for layer in layers]
    assert structure.by_layer(run.backward_ns) == moments
    assert [moment is not None for moment in run.ready_ns] == [layer in trained for layer in layers]
    last = max(moment for moment in run.ready_ns if moment is not None)
    assert last <= sum(run.backward_ns) < run.whole_ns[1]
    assert time_bare(model, case.inputs, ticking()) == (1, 1)


def test_backward_times_go_to_the_layers_in_reverse() -> None:
    model = nn.Sequential(linear(), nn.ReLU(), linear(), nn.ReLU(), linear())
    structure = observe(model, ROWS)
    run = time_layers(model, ROWS, structure, ticking())
    assert run.ready_ns[1::2] == [None, None]
    ready = [moment for moment in run.ready_ns if moment is not None]
    assert ready == sorted(ready, reverse=True)
    backward_ns = structure.by_layer(run.backward_ns)
    assert sum(backward_ns[2:]) >= ready[1] > sum(backward_ns[3:])
    assert ready[0] == sum(backward_ns)


def test_tied_gradient_is_ready_when_its_last_part_is() -> None:
    model = tied()
    ready = time_layers(model, IDS, observe(model, IDS), ticking()).ready_ns
    moments = [moment for moment in ready if moment is not None]
    assert (ready[0], ready[2]) == (max(moments), min(moments))


def test_statistics_over_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([80, 10, 40, 20, 10])

    def one_run(*_: Any) -> Run:
        time = next(times)
        ready = [None if time == 80 else 3 * time]
        return Run((time, time), [time, 0], [time, time], ready, {})

    monkeypatch.setattr(measuring, "time_layers", one_run)
    (layer,), (once,) = (measured(linear(), repetitions=number).layers for number in (4, 1))
    assert (layer.forward_ns, layer.backward_ns, layer.gradient_ready_ns) == (30, 60, 60)
    assert (layer.forward_spread_ns, layer.backward_spread_ns) == (32, 65)
    assert once.forward_spread_ns is once.backward_spread_ns is None


@dataclass
class Output:
    loss: Tensor | None
    logits: Any


def test_the_models_own_loss_is_used() -> None:
    profile = measured(Model(lambda m, x: Output(m.used(x).sum(), m.extra(x)), "used extra"))
    assert [layer.gradient_ready_ns is None for layer in profile.layers] == [False, True]
    assert f"2 trainable parameters ({LINEAR} bytes) get no gradient" in profile.provenance.notes


def test_activations_are_what_a_call_returns() -> None:
    halves = Model(lambda _m, x: Output(x, x.double()))  # of two precisions
    layer, _ = measured(Model(lambda m, x: Output(None, m.both(m.a(x))), "a", both=halves)).layers
    assert layer.gradient_ready_ns is not None
    model = Model(
        lambda m, x: m.narrow(m.pair(m.both(x).loss)[0]),
        both=halves,
        pair=Model(lambda _m, x: (x, x, {"more": x[:1].double()})),
        narrow=nn.Linear(4, 2),
    )
    assert [layer.activation_bytes for layer in measured(model).layers] == [32 + 64, 32 + 32, 16]


def test_provenance() -> None:
    seen = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        assert not gc.isenabled()

    profile = measured(linear(), warmup=1, repetitions=2, batch_size=2, progress=progress)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    origin, threads = profile.provenance, torch.get_num_threads()
    assert (profile.name, profile.batch_size, origin.notes) == ("model", 2, ())
    assert (origin.kind, origin.source, origin.threads) == ("measured", "a test", threads)
    assert (origin.warmup, origin.repetitions, origin.statistic) == (1, 2, "median")
    assert re.fullmatch(r"\d+-\d+-\d+", origin.date)
    assert origin.processor
    assert origin.versions.keys() == {"python", "torch", "planner"}
    assert origin.versions["torch"] == torch.__version__


def test_processor_names(tmp_path: Path) -> None:
    described = tmp_path / "cpuinfo"
    described.write_text("processor\t: 0\nmodel name\t: Abacus 9\n")
    assert machine.processor(described).startswith("Abacus 9, ")
    described.write_text("processor\t: 0\n")
    unnamed = machine.processor(described)
    assert unnamed == machine.processor(tmp_path / "nothing")
    assert not unnamed.startswith(",")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("warmup", -1),
        ("repetitions", 0),
        ("batch_size", 0),
        ("inputs", torch.ones(2, 4)),
        ("model", "resnet"),
    ],
)
def test_arguments_that_mean_nothing(path: str, value: Any) -> None:
    with refused(path, ""):
        measured(**{"model": linear(), path: value})


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise ValueError("no derivative")


def changing(one: Callable[..., Any], other: Callable[..., Any]) -> nn.Module:
    """Return a model that computes something else in every second four runs."""
    turns = cycle([*[one] * 3, *[other] * 4, one])

    def compute(m: Any, x: Tensor) -> Any:
        return next(turns)(m, x)

    return Model(compute, "a b")


def failing(run: int) -> nn.Module:
    """Return a model whose forward pass fails in one run."""
    runs = count(1)

    def compute(m: Any, x: Tensor) -> Any:
        if next(runs) == run:
            raise KeyError("no such thing")
        return both(m, x)

    return Model(compute, "a b")


def both(m: Any, x: Tensor) -> Any:
    return m.b(m.a(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: changing(both, lambda m, x: m.a(m.b(x))), "run: .*another order"),
        (lambda: changing(both, lambda m, x: m.a(x)), "run: .*another order"),
        (lambda: changing(lambda m, x: m.a(x), lambda m, x: m.a(x) + x), "other operations"),
        (
            lambda: changing(lambda m, x: m.a(x).sin(), lambda m, x: m.a(x).cos()),
            "changes from run to run: .*other operations",
        ),
        *((partial(failing, n), "forward pass failed: KeyError: 'no such") for n in range(1, 6)),
        (
            lambda: Model(lambda m, x: Broken.apply(m.a(x)), "a"),  # type: ignore[no-untyped-call]
            "backward pass failed: ValueError: no derivative",
        ),
        (lambda: frozen(linear()), "depends on no trainable parameter"),
        (lambda: nn.Sequential(torch.jit.script(linear())), "0 is scripted"),
    ],
)
def test_models_that_fail_or_change(make: Callable[[], nn.Module], message: str) -> None:
    model = make()
    with pytest.raises(MeasurementError, match=message):
        measured(model, warmup=1, repetitions=4)
    assert_untouched(model)


def test_an_error_the_model_handles_itself() -> None:
    def compute(m: Any, x: Tensor) -> Any:
        with pytest.raises(RuntimeError):
            m.a(x[:, :1])
        return m.b(x)

    profile = measured(Model(compute, "a b"))
    assert [layer.name for layer in profile.layers] == ["a", "b"]


def test_gradients_and_modes_are_put_back() -> None:
    model = nn.Sequential(linear(), nn.Dropout()).eval()
    model[1].train()
    x = torch.ones(2, 4, requires_grad=True)
    gradient = torch.ones(4, 4)
    model[0].weight.grad = gradient
    with torch.no_grad():
        profile = measured(model, (x,))
        assert not torch.is_grad_enabled()
    assert profile.backward_ns > 0
    assert model[0].weight.grad is gradient
    assert torch.equal(gradient, torch.ones(4, 4))
    assert model[0].bias.grad is None
    assert x.grad is None
    assert [model.training, model[0].training, model[1].training] == [False, False, True]
    assert "the model is in evaluation mode" in profile.provenance.notes


def run_of(forward: int, backward: int) -> Run:
    return Run((forward, backward), [forward], [backward], [None], {})


def test_one_repetition_tells_no_spread() -> None:
    assert spread_of([run_of(1, 1)], ()) is None
    assert spread_of([run_of(0, 0)] * 3, ()) == Spread(0, 0)
    layers = [Layer("a", 30, 60, 0, forward_spread_ns=12, backward_spread_ns=15)] * 2
    assert spread_of([run_of(8, 2), run_of(9, 1), run_of(9, 5)], layers) == Spread(0.2, 0.3)


def test_layers_that_are_not_the_whole_pass_are_warned_about() -> None:
    """Ten short layers, each held up in one of ten repetitions: medians know of none of them."""
    bare = [(10_100_000, 10_000_000)] * 10
    runs = [run_of(10_100_000, 10_000_000)] * 10
    said = warnings_of(linear(), bare, runs, None, [Layer("all", 1_900_000, 9_500_000, 0)], [0])
    (text,) = (one for one in said if "sum to" in one)
    assert "forward pass sum to 1.9 ms, the whole pass took 10.1 ms" in text


def test_a_profile_is_marked_and_page_faults_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.model.machine.page_faults", count(step=9_000_001).__next__)
    monkeypatch.setattr("planner.model.machine.processors", lambda: 1)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    said = measured(linear()).provenance.warnings
    assert "2 threads on 1 processor" in said[0]
    assert any("took 9,000,001 page faults" in each for each in said)
