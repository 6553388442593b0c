"""The networks of data/networks.py have the published sizes, and run."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

CLASSES = {"vgg19_22k": 21_841, "lenet5": 10}


def load(name: str) -> ModuleType:
    """Import a script of ``data/``, under the name by which its neighbours import it."""
    spec = spec_from_file_location(name, Path(__file__).parents[1] / "data" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


load("networks")
NETWORKS = {network.name: network for network in load("make_profiles").NETWORKS}


def meta_model(name: str) -> Any:
    """Return the model without memory for its tensors."""
    with torch.device("meta"):
        model, _ = NETWORKS[name].factory()
    return model


def sizes(model: Any, *, but: str | None = None) -> list[int]:
    """Return the numbers of elements of the parameters but those whose names end so."""
    named = model.named_parameters()
    return [one.numel() for name, one in named if but is None or not name.endswith(but)]


def mebibytes(parameters: int) -> float:
    return 4 * parameters / 2**20


def test_all_ten_are_listed_under_the_names_of_their_factories() -> None:
    assert len(NETWORKS) == 10
    assert all(name == network.factory.__name__ for name, network in NETWORKS.items())


@pytest.mark.parametrize("name", NETWORKS)
def test_total_is_the_published_one_and_nothing_works_in_place(name: str) -> None:
    model = meta_model(name)
    assert sum(sizes(model)) == NETWORKS[name].parameters
    assert all(module.training for module in model.modules())
    assert not any(getattr(module, "inplace", False) for module in model.modules())


@pytest.mark.parametrize(
    ("name", "without", "tensors", "mib"),
    [
        ("alexnet_v2", None, 16, 191.9),
        ("vgg16", None, 32, 527.8),
        ("inception_v3", "norm.weight", 196, 103.5),
        ("resnet50", "norm.weight", 108, 97.4),
    ],
)
def test_caramel_s_figures_follow(name: str, without: str | None, tensors: int, mib: float) -> None:
    counted = sizes(meta_model(name), but=without)
    assert len(counted) == tensors
    assert round(mebibytes(sum(counted)), 1) == mib


def test_caramel_s_figures_of_resnet_v2_and_bml_s_follow() -> None:
    model = meta_model("resnet152")
    biased = sizes(model, but="norm.weight")
    blocks = [module for module in model.modules() if type(module).__name__ == "Bottleneck"]
    norms = [block.body.conv1.conv.in_channels for block in blocks]
    norms.append(blocks[-1].body.conv3.conv.out_channels)
    assert len(biased) + len(norms) == 363
    assert sum(biased) + sum(norms) == 60_165_032
    assert round(mebibytes(60_165_032), 1) == 229.5
    # Those of BML.
    assert round(sum(sizes(meta_model("vgg19"), but="bias")) / 1e6, 2) == 143.65
    assert round(mebibytes(NETWORKS["vgg19"].parameters)) == 548
    assert round(NETWORKS["lenet5"].parameters / 1e6, 2) == 3.27
    assert round(mebibytes(NETWORKS["lenet5"].parameters), 1) == 12.5


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_runs_forward_and_backward_without_numbers(name: str) -> None:
    """For the least inputs; a backward pass reaches every parameter."""
    batch_size = 2 if name == "inception_v3" else 1
    length = {"length": 64} if name == "gpt2_small" else {}
    with torch.device("meta"):
        model, inputs = NETWORKS[name].factory(batch_size=batch_size, **length)
    outputs = model(*(one.to("meta") for one in inputs))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert len(outputs) == (2 if name == "inception_v3" else 1)
    classes = (64, 50_257) if length else (CLASSES.get(name, 1000),)
    assert all(output.shape == (batch_size, *classes) for output in outputs)
    sum(output.sum() for output in outputs).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
