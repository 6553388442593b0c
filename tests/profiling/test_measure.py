"""Models are measured layer by layer: times, sizes, dataflow; what fails, and what is put back."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD

from planner.model import machine
from planner.model.errors import InvalidInputError, MeasurementError
from planner.model.graphs import Graph
from planner.model.layers import Layer
from planner.model.profiles import Profile
from planner.profiling import measure, measuring
from planner.profiling.measuring import with_updates
from planner.profiling.samples import loss_of
from planner.profiling.structure import observe
from planner.profiling.timing import Run, spread_of, time_bare, time_layers, warnings_of
from planner.solving.diagnostics import Spread
from tests.caramel.graph_strategies import graphs
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
        own = [parameters[name].nbytes for name in layer.parameters]
        assert sum(own) == layer.parameter_bytes
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
    unsent = sum(parameters[name].nbytes for name in unused)
    assert sum(layer.pushed_bytes for layer in layers) == sum(sizes.values()) + unsent
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


def test_frozen_layers_have_no_gradient() -> None:
    model = CASES["a frozen front"].make()
    profile = measured(model)
    assert profile.graph is not None
    assert set(reads(profile.graph, "backward")) == {"loss", "head"}
    assert {name for name, own in model.named_parameters() if own.requires_grad} == {
        "head.weight",
        "head.bias",
    }
    *fixed, head = profile.layers
    for layer in fixed:
        assert (layer.gradient_bytes, layer.gradient_ready_ns, layer.backward_ns) == (0, None, 0)
    assert head.gradient_bytes == LINEAR
    assert head.gradient_ready_ns is not None


def test_statistics_over_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([80, 10, 40, 20, 10])

    def one_run(*_: Any) -> Run:
        time = next(times)
        ready = [None if time == 80 else 3 * time]
        return Run((time, time), [time, 0], [time, time], ready)

    monkeypatch.setattr(measuring, "time_layers", one_run)
    layer = measured(linear(), repetitions=4).layers[0]
    assert (layer.forward_ns, layer.backward_ns, layer.gradient_ready_ns) == (30, 60, 60)
    assert (layer.forward_spread_ns, layer.backward_spread_ns) == (32, 65)
    layer = measured(linear(), repetitions=1).layers[0]
    assert (layer.forward_spread_ns, layer.backward_spread_ns) == (None, None)


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
    with pytest.raises(InvalidInputError) as caught:
        measured(**{"model": linear(), path: value})
    assert caught.value.path == path


@given(graphs(), st.integers(0, 10**6))
def test_updates_come_before_what_reads_them_and_take_their_time(
    graph: Graph, step_ns: int
) -> None:
    updated, end = with_updates(graph, step_ns), ":update/forward"
    assert [op for op in updated.ops if not op.name.endswith(end)] == [
        op if op.phase == "backward" else updated.ops[updated.position[op.name]] for op in graph.ops
    ]
    before, after = (sum(op.duration_ns for op in one.ops) for one in (graph, updated))
    assert after - before == step_ns
    old, order = (
        [one.ops[index].name for index in one.pass_order("forward")] for one in (graph, updated)
    )
    assert [name for name in order if not name.endswith(end)] == old
    for parameter in updated.parameters:
        first, *readers = parameter.read_by
        assert first.endswith(end)
        assert all(order.index(first) < order.index(reader) for reader in readers)


def test_a_profile_has_the_updates_and_the_model_has_not() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    graph = measured(model, optimizer=lambda parameters: SGD(parameters, lr=1.0)).graph
    assert graph is not None
    names = [op.name for op in graph.ops if op.phase == "forward"]
    assert [name for name in names if "update" in name] == ["0:update/forward", "1:update/forward"]
    assert names.index("0:update/forward") < names.index("0/forward")
    assert all(map(torch.equal, weights, model.parameters()))
    assert all(parameter.grad is None for parameter in model.parameters())


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
    runs = count(1)

    def compute(m: Any, x: Tensor) -> Tensor:
        return (one, other)[next(runs) // 4 % 2](m, x)

    model = Model(compute, "a b")
    with pytest.raises(MeasurementError, match=f"changes from run to run: .*{message}"):
        measured(model, repetitions=4)
    assert_untouched(model)


@pytest.mark.parametrize("failing_run", range(1, 6))
def test_a_model_that_fails(failing_run: int) -> None:
    runs = count(1)

    def compute(m: Any, x: Tensor) -> Any:
        if next(runs) == failing_run:
            raise KeyError("no such thing")
        return m.b(m.a(x))

    model = Model(compute, "a b")
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
    model = Model(lambda m, x: Broken.apply(m.a(x)), "a")  # type: ignore[no-untyped-call]
    with pytest.raises(MeasurementError, match="backward pass failed: ValueError: no derivative"):
        measured(model)
    assert_untouched(model)


def test_an_error_the_model_handles_itself() -> None:
    def compute(m: Any, x: Tensor) -> Any:
        with pytest.raises(RuntimeError):
            m.a(x[:, :1])
        return m.b(x)

    profile = measured(Model(compute, "a b"))
    assert [layer.name for layer in profile.layers] == ["a", "b"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: frozen(linear()), "depends on no trainable parameter"),
        (lambda: nn.Sequential(torch.jit.script(linear())), "0 is scripted"),
    ],
)
def test_nothing_to_train_or_to_see(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        measured(make())


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


def run_of(forward: int, backward: int) -> Run:
    return Run((forward, backward), [forward], [backward], [None])


def test_one_repetition_tells_no_spread() -> None:
    assert spread_of([run_of(1, 1)], ()) is None
    assert spread_of([run_of(0, 0)] * 3, ()) == Spread(0, 0)
    layers = [Layer("a", 30, 60, 0, forward_spread_ns=12, backward_spread_ns=15)] * 2
    assert spread_of([run_of(8, 2), run_of(9, 1), run_of(9, 5)], layers) == Spread(0.2, 0.3)


def test_layers_that_are_not_the_whole_pass_are_warned_about() -> None:
    """Ten short layers, each held up in one of ten repetitions: medians know of none of them."""
    bare = [(10_100_000, 10_000_000)] * 10
    runs = [run_of(10_100_000, 10_000_000)] * 10
    said = warnings_of(linear(), bare, runs, None, [Layer("all", 1_900_000, 9_500_000, 0)])
    (text,) = (one for one in said if "sum to" in one)
    assert "forward pass sum to 1.9 ms, the whole pass took 10.1 ms" in text


def test_a_profile_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.model.machine.processors", lambda: 1)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    marked = measured(linear())
    assert "2 threads on 1 processor" in marked.provenance.warnings[0]


def dataflow(model: nn.Module, inputs: tuple[Any, ...] = ROWS) -> Graph:
    graph = measured(model, inputs, repetitions=1).graph
    assert graph is not None
    return graph


def test_times_of_the_ops_sum_to_those_of_the_layers() -> None:
    profile = measured(CASES["residual"].make(), repetitions=1)
    assert profile.graph is not None
    ops = {op.name: op.duration_ns for op in profile.graph.ops}
    layer = {layer.name: layer for layer in profile.layers}
    assert ops["b/forward"] + ops["add/forward"] == layer["b"].forward_ns
    assert ops["b/backward"] + ops["add/backward"] == layer["b"].backward_ns
    assert ops["loss/forward"] == 0
    assert ops["head/backward"] + ops["loss/backward"] == layer["head"].backward_ns


def test_an_op_between_layers_is_named_after_its_module_and_what_it_does() -> None:
    def block() -> Model:
        return Model(lambda m, x: functional.relu(x + m.inner(x)).sin().cos(), "inner")

    graph = dataflow(nn.Sequential(linear(), block(), block(), linear()))
    assert [name for name in reads(graph) if ":" in name] == [
        "1:add+relu+sin+...",
        "2:add+relu+sin+...",
    ]
    twice = Model(lambda m, x: m.b(m.a(x) * 2) * 3, "a b")
    assert list(reads(dataflow(twice))) == ["a", "mul", "b", "mul#2", "loss"]
    named_alike = Model(lambda m, x: m.loss(m.add(m.a(x) + x)), "a add loss")
    assert list(reads(dataflow(named_alike))) == ["a", "add#2", "add", "loss", "loss#2"]


@pytest.mark.slow
def test_a_parameter_used_by_a_function_belongs_to_what_uses_it() -> None:
    found = dataflow(Model(lambda m, x: m.b(x * m.a.weight), "a b"), (torch.ones(4, 4),))
    assert updaters(found)["a.weight"] == ("mul",)
    assert reads(found) == {"mul": set(), "b": {"mul"}, "loss": {"b"}}


def test_what_autograd_does_not_see_stays_in_its_place() -> None:
    def compute(m: Any, x: Tensor) -> Any:
        return m.head(m.drop(y := m.stem(x)) + m.a(y))

    graph = dataflow(Model(compute, "stem a head", drop=nn.Dropout()).eval())
    assert reads(graph)["drop"] == {"stem"}
    assert reads(graph)["a"] == {"stem", "drop"}
    assert "drop" not in reads(graph, "backward")
    assert reads(graph, "backward")["stem"] == {"a", "add"}


def test_what_reads_nothing_recorded_follows_the_op_before() -> None:
    def compute(m: Any, ids: Tensor) -> Any:
        return m.decode(m.again(m.embed(ids).argmax(-1)))

    model = Model(compute, "decode", embed=nn.Embedding(9, 4), again=nn.Embedding(9, 4))
    graph = dataflow(model, IDS)
    assert reads(graph)["again"] == {"embed"}
    assert list(reads(graph, "backward")) == ["loss", "decode", "again"]
    assert "embed.weight" not in updaters(graph)


def test_a_gradient_of_the_input_alone_makes_no_graph() -> None:
    profile = measured(frozen(linear()), (torch.ones(2, 4, requires_grad=True),))
    assert profile.graph is None
    assert profile.backward_ns > 0


def test_an_input_with_a_history_of_its_own() -> None:
    grown = torch.ones(2, 4, requires_grad=True) * 2
    model_graph = observe(Model(lambda m, x: m.a(x) + m.b(x), "a b"), (grown,))
    assert [op.reads for op in model_graph.ops] == [(), (0,), (0, 1), (2,)]
    assert model_graph.node_ops[0] == 0


@st.composite
def _sources(draw: st.DrawFn) -> list[list[int]]:
    """Draw what each layer reads: outputs of earlier layers, the first the input (number 0)."""
    return [
        sorted(draw(st.sets(st.integers(min(layer, 1), layer), min_size=1, max_size=3)))
        for layer in range(draw(st.integers(1, 7)))
    ]


@settings(max_examples=60, deadline=None)
@given(_sources())
def test_any_dataflow_is_found_and_cut_where_one_value_is_alive(sources: list[list[int]]) -> None:
    """Values flow as drawn; sums of several values are ops."""
    size = len(sources)
    read = {source for chosen in sources for source in chosen}
    unread = [value for value in range(1, size + 1) if value not in read]
    names = [f"l{layer}" for layer in range(size)]

    def summed(values: list[Tensor], chosen: list[int]) -> Tensor:
        return sum((values[i] for i in chosen[1:]), start=values[chosen[0]])

    def compute(m: Any, x: Tensor) -> Tensor:
        values = [x]
        for name, chosen in zip(names, sources, strict=True):
            values.append(getattr(m, name)(summed(values, chosen)))
        return summed(values, unread)

    model = Model(compute, " ".join(names))
    graph = dataflow(model)
    forward, backward = reads(graph), reads(graph, "backward")
    sums = iter([name for name in forward if name.startswith("add")])
    for name, chosen in zip([*names, "loss"], [*sources, unread], strict=True):
        needed = {names[i - 1] for i in chosen if i}
        if len(chosen) > 1:
            join = next(sums)
            assert forward[join] == needed
            needed = {join}
        assert forward[name] == needed
        assert name in backward
    for name, needed in backward.items():
        assert needed == {other for other, used in forward.items() if name in used}
    assert updaters(graph) == {
        f"{name}.{what}": (name,) for name in names for what in ("weight", "bias")
    }

    def last_reader(value: int) -> int:
        readers = [layer + 1 for layer, chosen in enumerate(sources) if value in chosen]
        return size + 1 if value in unread else max(readers, default=0)

    expected = [0]
    for value in range(1, size):
        # Behind the layer only its output is read, or behind the sum that the next layer reads.
        behind_layer = all(last_reader(i) <= value for i in range(value))
        behind_sum = len(sources[value]) > 1 and all(
            last_reader(i) <= value + 1 for i in range(value + 1)
        )
        expected.append(expected[-1] + (behind_layer or behind_sum))
    assert list(observe(model, ROWS).blocks) == expected
