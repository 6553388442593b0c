"""Models are measured layer by layer: times, sizes, blocks; what fails, and what is put back."""

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from planner.model import machine
from planner.model.errors import InvalidInputError
from planner.model.layers import Layer
from planner.profiling import measure, measuring
from planner.profiling.samples import loss_of
from planner.profiling.structure import observe
from planner.profiling.timing import Run, time_bare, time_layers
from tests.profiling.models import (
    CASES,
    IDS,
    LINEAR,
    ROWS,
    Case,
    Model,
    frozen_front,
    linear,
    measured,
    reads,
    ticking,
    tied,
    updaters,
)


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


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_architecture(case: Case) -> None:
    model = case.make()
    profile = measured(model, case.inputs, repetitions=1)
    layers, parameters = profile.layers, dict(model.named_parameters())
    assert [layer.name for layer in layers] == list(case.names)
    assert [layer.block for layer in layers] == list(case.blocks)
    assert [layer.parameter_bytes for layer in layers] == list(case.parameter_bytes)
    names = profile.layer_parameters()
    assert names == tuple(layer.parameters for layer in layers)
    assert sorted(sum(names, ())) == sorted(parameters)
    for layer, own in zip(layers, names, strict=True):
        assert sum(parameters[name].nbytes for name in own) == layer.parameter_bytes
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
    assert {parameter.name: parameter.size_bytes for parameter in graph.parameters} == {
        name: parameter.nbytes
        for name, parameter in parameters.items()
        if parameter.requires_grad and not name.startswith("unused")
    }


def test_a_tied_parameter_has_its_first_name_in_its_first_layer() -> None:
    names = [layer.parameters for layer in measured(tied(), IDS).layers]
    assert names == [("embed.weight",), ("hidden.weight", "hidden.bias"), ("decode.bias",)]


def test_what_is_kept_is_counted_once_and_without_the_model_s_own_tensors() -> None:
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Sigmoid(), nn.Linear(3, 2, bias=False))
    # The input; the sigmoid's result, which the last layer keeps, too, beside its own weight.
    assert observe(model, (torch.ones(5, 4),)).kept_bytes == (80, 60, 0)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_moment_belongs_to_a_layer(case: Case) -> None:
    """With a clock that ticks at each reading, times are counts and exact."""
    model = case.make()
    structure = observe(model, case.inputs)
    run = time_layers(model, case.inputs, structure, ticking())
    assert len(structure.by_layer(run.forward_ns)) == len(case.names)
    assert sum(run.forward_ns) == run.whole_ns[0] == len(structure.marks) + 1
    trained = [
        layer for parameter, layer in structure.parameters.items() if parameter.grad is not None
    ]
    node_layers = [structure.ops[op].layer for op in structure.node_ops]
    moments = [
        node_layers.count(layer) + trained.count(layer) for layer in range(len(structure.names))
    ]
    assert structure.by_layer(run.backward_ns) == moments
    assert [moment is not None for moment in run.ready_ns] == [
        layer in trained for layer in range(len(structure.names))
    ]
    last = max(moment for moment in run.ready_ns if moment is not None)
    assert last <= sum(run.backward_ns) < run.whole_ns[1]
    assert time_bare(model, case.inputs, ticking()) == (1, 1)


def test_backward_times_go_to_the_layers_in_reverse() -> None:
    model = nn.Sequential(linear(), nn.ReLU(), linear(), nn.ReLU(), linear())
    structure = observe(model, ROWS)
    run = time_layers(model, ROWS, structure, ticking())
    ready = [moment for moment in run.ready_ns if moment is not None]
    assert run.ready_ns[1] is None
    assert run.ready_ns[3] is None
    assert ready == sorted(ready, reverse=True)
    backward_ns = structure.by_layer(run.backward_ns)
    assert sum(backward_ns[2:]) >= ready[1] > sum(backward_ns[3:])
    assert ready[0] == sum(backward_ns)


def test_tied_gradient_is_ready_when_its_last_part_is() -> None:
    model = tied()
    run = time_layers(model, IDS, observe(model, IDS), ticking())
    assert run.ready_ns[0] == max(moment for moment in run.ready_ns if moment is not None)
    assert run.ready_ns[2] == min(moment for moment in run.ready_ns if moment is not None)


def test_frozen_layers_have_no_gradient() -> None:
    model = frozen_front()
    profile = measured(model)
    assert profile.graph is not None
    assert set(reads(profile.graph, "backward")) == {"loss", "head"}
    layers = profile.layers
    assert [p.requires_grad for p in model.parameters()] == [False] * 6 + [True] * 2
    assert [layer.gradient_bytes for layer in layers] == [0, 0, 0, LINEAR]
    assert [layer.gradient_ready_ns is None for layer in layers] == [True, True, True, False]
    assert [layer.backward_ns for layer in layers[:3]] == [0, 0, 0]


def test_statistics_over_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([80, 10, 40, 20])

    def one_run(*_: Any) -> Run:
        time = next(times)
        ready = [None if time == 80 else 3 * time]
        return Run((time, time), [time, 0], [time, time], ready)

    monkeypatch.setattr(measuring, "time_layers", one_run)
    layer = measured(linear(), repetitions=4).layers[0]
    assert (layer.forward_ns, layer.backward_ns, layer.gradient_ready_ns) == (30, 60, 60)
    assert (layer.forward_spread_ns, layer.backward_spread_ns) == (32, 65)
    times = iter([10])
    layer = measured(linear(), repetitions=1).layers[0]
    assert (layer.forward_spread_ns, layer.backward_spread_ns) == (None, None)


def test_a_mask_every_layer_reads_is_no_branch() -> None:
    model = Model(lambda m, x, mask: m.b(m.a(x) * mask) * mask, a=linear(), b=linear())
    assert observe(model, (torch.ones(2, 4), torch.ones(2, 4))).blocks == (0, 1)


@dataclass
class Output:
    loss: Tensor | None
    logits: Any


class HalfAndWhole(nn.Linear):
    """Returns two precisions."""

    def __init__(self) -> None:
        super().__init__(4, 4)

    def forward(self, x: Tensor) -> Any:
        y = super().forward(x)
        return Output(y, y.double())


def test_the_models_own_loss_is_used() -> None:
    model = Model(lambda m, x: Output(m.used(x).sum(), m.extra(x)), used=linear(), extra=linear())
    profile = measured(model)
    assert [layer.gradient_ready_ns is None for layer in profile.layers] == [False, True]
    assert f"2 trainable parameters ({LINEAR} bytes) get no gradient" in profile.provenance.notes


def test_outputs_in_a_dataclass() -> None:
    model = Model(lambda m, x: Output(None, m.both(x)), both=HalfAndWhole())
    layer = measured(model).layers[0]
    assert layer.activation_bytes == 32 + 64
    assert layer.gradient_ready_ns is not None


def test_activations_are_what_a_call_returns() -> None:
    model = Model(
        lambda m, x: m.narrow(m.pair(x)[0]),
        pair=Model(lambda _m, x: (x, x, {"more": x[:1].double()})),
        narrow=nn.Linear(4, 2),
    )
    assert [layer.activation_bytes for layer in measured(model).layers] == [32 + 32, 16]


def test_provenance() -> None:
    seen = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        assert not gc.isenabled()

    profile = measure(
        linear(),
        ROWS,
        name="tiny",
        source="planner profile",
        warmup=1,
        repetitions=2,
        batch_size=2,
        progress=progress,
    )
    provenance = profile.provenance
    assert (profile.name, profile.batch_size) == ("tiny", 2)
    assert (provenance.kind, provenance.source) == ("measured", "planner profile")
    assert (provenance.warmup, provenance.repetitions) == (1, 2)
    assert provenance.threads == torch.get_num_threads()
    assert provenance.statistic == "median"
    assert len(provenance.date.split("-")) == 3
    assert provenance.processor
    assert set(provenance.versions) == {"python", "torch", "planner"}
    assert provenance.versions["torch"] == torch.__version__
    assert provenance.notes == ()
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_processor_names(tmp_path: Path) -> None:
    described = tmp_path / "cpuinfo"
    described.write_text("processor\t: 0\nmodel name\t: Abacus 9\n")
    assert machine.processor(described).startswith("Abacus 9, ")
    described.write_text("processor\t: 0\n")
    unnamed = machine.processor(described)
    assert unnamed == machine.processor(tmp_path / "nothing")
    assert not unnamed.startswith(",")


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"warmup": -1}, "warmup"),
        ({"repetitions": 0}, "repetitions"),
        ({"batch_size": 0}, "batch_size"),
        ({"inputs": torch.ones(2, 4)}, "inputs"),
        ({"model": "resnet"}, "model"),
    ],
)
def test_arguments_that_mean_nothing(options: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        measured(**{"model": linear(), **options})
    assert caught.value.path == path


def test_a_measured_profile_is_a_chain() -> None:
    profile = measured(CASES["residual"].make())
    assert [unit.name for unit in profile.chain().layers] == ["stem", "a", "b", "head"]
    assert all(isinstance(layer, Layer) for layer in profile.layers)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_gradients_are_complete_in_the_order_of_the_profile(case: Case) -> None:
    model = case.make()
    profile = measured(model, case.inputs, repetitions=1)
    graph, order = profile.dataflow(), profile.op_order
    assert order is not None
    last = [max(order.index(graph.ops[op].name) for op in row) for row in graph.updaters]
    planned = {tensor.name: place for tensor, place in zip(graph.parameters, last, strict=True)}
    completed: list[str] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(
                lambda _, name=name: completed.append(name)
            )
    loss_of(model(*case.inputs)).backward()
    places = [planned[name] for name in completed]
    assert places == sorted(places)
