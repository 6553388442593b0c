"""Shapes and connections in PipeDream's rows, against those of the same network in torch."""

from math import prod
from pathlib import Path

import pytest

from planner.families import yan
from planner.families.yan.from_profile import profiled
from planner.formats import read_pipedream
from planner.jsonio import decode_profile
from planner.jsonio.clusters import decode_cluster
from planner.model.errors import InvalidInputError
from planner.model.layers import Layer

DATA = Path(__file__).parents[2] / "data"
NETWORKS = ("lenet5", "alexnet_v2", "vgg16")


def described(layer: Layer) -> str:
    """How PyTorch describes a layer."""
    assert layer.input_shape is not None
    assert layer.output_shape is not None
    read, made = layer.input_shape, layer.output_shape
    if layer.kind == "conv":
        kernel, stride = map(tuple, (layer.kernel or (), layer.stride or ()))
        return (
            f"Conv2d({read[0]}, {made[0]}, kernel_size={kernel}, stride={stride}, padding=(0, 0))"
        )
    if layer.kind == "pool":
        stride = tuple(layer.stride or ())
        return f"MaxPool2d(kernel_size={(layer.kernel or (0,))[0]}, stride={stride})"
    if layer.kind == "full":
        return f"Linear(in_features={read[0]}, out_features={made[0]}, bias=True)"
    return "ReLU(inplace)"


def graph(layers: tuple[Layer, ...], batch_size: int) -> bytes:
    lines = []
    for place, layer in enumerate(layers):
        assert layer.output_shape is not None
        size = 4 * batch_size * prod(layer.output_shape)
        lines.append(
            f"node{place} -- {described(layer)} -- forward_compute_time={layer.forward_ns / 1e6}, "
            f"backward_compute_time={layer.backward_ns / 1e6}, activation_size={size}, "
            f"parameter_size={layer.parameter_bytes}"
        )
    lines += [f"\tnode{place} -- node{place + 1}" for place in range(len(layers) - 1)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("name", NETWORKS)
def test_shapes_are_those_of_torch(name: str) -> None:
    profile = decode_profile((DATA / f"profiles/{name}.json").read_bytes())
    assert profile.batch_size is not None
    data = graph(profile.layers, profile.batch_size)
    read, _ = read_pipedream(data, name=name, source="", batch_size=profile.batch_size)
    for mine, torchs in zip(read.layers, profile.layers, strict=True):
        assert mine.kind == torchs.kind
        assert mine.output_shape == torchs.output_shape
        assert mine.connections == torchs.connections
        assert mine.weights == torchs.weights
        assert mine.stride == torchs.stride
        assert mine.kernel == torchs.kernel
    cluster = decode_cluster((DATA / "clusters/office-4.json").read_bytes())
    ours, theirs = (profiled(one, cluster, 1000).problem for one in (read, profile))
    assert [layer.cuts for layer in ours.layers] == [layer.cuts for layer in theirs.layers]
    assert yan.solve(ours).status == "optimal"


def test_without_a_batch_size_nothing_is_known() -> None:
    profile = decode_profile((DATA / "profiles/lenet5.json").read_bytes())
    read, _ = read_pipedream(graph(profile.layers, 8), name="n", source="")
    for layer in read.layers:
        assert layer.kind is None
        assert layer.output_shape is None
        assert layer.connections is None


def test_connections_of_recurrent_rows_are_unknown_and_said_to_be() -> None:
    row = (
        b"node1 -- LSTM(8, 8) -- forward_compute_time=1, backward_compute_time=1, "
        b"activation_size=1024, parameter_size=2304"
    )
    read, _ = read_pipedream(row, name="n", source="", batch_size=4)
    assert (read.layers[0].kind, read.layers[0].connections) == ("other", None)
    cluster = decode_cluster((DATA / "clusters/office-4.json").read_bytes())
    with pytest.raises(InvalidInputError) as caught:
        profiled(read, cluster, 1000)
    assert caught.value.path == "layers[0].connections"
    assert "node1 LSTM" in caught.value.message


@pytest.mark.parametrize(
    "operation",
    [
        "Conv2d(3, 0, kernel_size=(3, 3), stride=(1, 1))",
        "Conv2d(3, 4, kernel_size=(3, 3), stride=(0, 1))",
        "Conv2d(999999999, 4, kernel_size=(999999999, 999999999), stride=(1, 1))",
        "Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), groups=0)",
        "Linear(in_features=1, out_features=0)",
        "Linear(in_features=1" + "0" * 5000 + ", out_features=1)",
        "Embedding(3, 0)",
    ],
)
def test_descriptions_that_cannot_be_say_nothing(operation: str) -> None:
    row = (
        f"node1 -- {operation} -- forward_compute_time=1, backward_compute_time=1, "
        "activation_size=1024, parameter_size=2304"
    )
    read, _ = read_pipedream(row.encode(), name="n", source="", batch_size=4)
    assert read.layers[0].connections is None
