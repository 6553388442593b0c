"""The networks of data/networks.py have the published sizes, and run."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

CLASSES = {"vgg19_22k": 21_841, "lenet5": 10}


sys.path.append(str(Path(__file__).parents[1] / "data"))
NETWORKS = {network.name: network for network in import_module("make_profiles").NETWORKS}


def made(name: str, **options: int) -> Any:
    """Return the model without memory for its tensors, and its inputs."""
    with torch.device("meta"):
        return NETWORKS[name].factory(**options)


def sizes(model: Any, *, but: str = "-") -> list[int]:
    """Return the numbers of elements of the parameters but those whose names end so."""
    return [one.numel() for name, one in model.named_parameters() if not name.endswith(but)]


def mebibytes(parameters: int) -> float:
    return round(4 * parameters / 2**20, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_total_is_the_published_one_and_a_backward_pass_reaches_every_parameter(name: str) -> None:
    """Of the least inputs; nothing works in place."""
    assert len(NETWORKS) == 10
    assert NETWORKS[name].factory.__name__ == name
    batch_size = 2 if name == "inception_v3" else 1
    length = {"length": 64} if name == "gpt2_small" else {}
    model, inputs = made(name, batch_size=batch_size, **length)
    assert sum(sizes(model)) == NETWORKS[name].parameters
    assert all(module.training for module in model.modules())
    assert not any(getattr(module, "inplace", False) for module in model.modules())
    outputs = model(*(one.to("meta") for one in inputs))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert len(outputs) == (2 if name == "inception_v3" else 1)
    classes = (64, 50_257) if length else (CLASSES.get(name, 1000),)
    assert all(output.shape == (batch_size, *classes) for output in outputs)
    sum(output.sum() for output in outputs).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_caramel_s_and_bml_s_figures_follow() -> None:
    for name, without, tensors, mib in (
        ("alexnet_v2", "-", 16, 191.9),
        ("vgg16", "-", 32, 527.8),
        ("inception_v3", "norm.weight", 196, 103.5),
        ("resnet50", "norm.weight", 108, 97.4),
    ):
        counted = sizes(made(name)[0], but=without)
        assert (len(counted), mebibytes(sum(counted))) == (tensors, mib)
    # Of ResNet v2.
    model, _ = made("resnet152")
    biased = sizes(model, but="norm.weight")
    blocks = [module for module in model.modules() if type(module).__name__ == "Bottleneck"]
    norms = [block.body.conv1.conv.in_channels for block in blocks]
    norms.append(blocks[-1].body.conv3.conv.out_channels)
    assert len(biased) + len(norms) == 363
    assert sum(biased) + sum(norms) == 60_165_032
    assert mebibytes(60_165_032) == 229.5
    assert round(sum(sizes(made("vgg19")[0], but="bias")) / 1e6, 2) == 143.65
    assert mebibytes(NETWORKS["vgg19"].parameters) == 548.0
    assert round(NETWORKS["lenet5"].parameters / 1e6, 2) == 3.27
    assert mebibytes(NETWORKS["lenet5"].parameters) == 12.5
