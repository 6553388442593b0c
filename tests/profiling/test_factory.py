"""Models from a factory that is named, with inputs of its own or random ones."""

import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from planner.model.errors import InvalidInputError, MeasurementError
from planner.profiling import load_factory, measure

NUMBERS = count()

SOURCE = """
import torch
from torch import nn

def pair():
    return nn.Linear(4, 2), (torch.ones(3, 4),)

def sized(*, batch_size=5):
    return nn.Linear(4, 2), (torch.ones(batch_size, 4),)

def takes_anything(**options):
    assert not options
    return nn.Linear(4, 2)

def bare():
    return nn.Linear(4, 2)

def language():
    return nn.Sequential(nn.Embedding(1000, 4), nn.Embedding(50, 4))

class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)

def lazily():
    import {helper}
    return {helper}.make()

def fails():
    raise KeyError("weights")

def needs(depth):
    return nn.Linear(4, 2)

def nothing():
    pass

def triple():
    return nn.Linear(4, 2), (torch.ones(3, 4),), 3

def swapped():
    return (torch.ones(3, 4),), nn.Linear(4, 2)

def tensor():
    return nn.Linear(4, 2), torch.ones(3, 4)

model = nn.Linear(4, 2)
number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a new module in the current directory."""
    name = f"a_users_models_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(SOURCE.format(helper=f"{name}_helper"))
    helper = "from torch import nn\n\ndef make():\n    return nn.Linear(4, 2)\n"
    (tmp_path / f"{name}_helper.py").write_text(helper)
    (tmp_path / f"{name}_broken.py").write_text("1 / 0\n")
    (tmp_path / f"{name}_incomplete.py").write_text("import surely_not_installed_anywhere\n")
    monkeypatch.chdir(tmp_path)
    return name


def test_a_factory_of_a_model_and_inputs(module: str) -> None:
    before = list(sys.path)
    model, inputs = load_factory(f"{module}:pair")
    assert isinstance(model, nn.Linear)
    assert [tuple(x.shape) for x in inputs] == [(3, 4)]
    assert sys.path == before
    profile = measure(model, inputs, name="it", source="a test", warmup=0, repetitions=1)
    assert profile.parameter_bytes == 40


def test_files_in_the_current_directory_stand_in_for_no_other_module(
    module: str, tmp_path: Path
) -> None:
    for name in ("colorsys", "wave"):  # of the standard library, loaded by nobody yet
        sys.modules.pop(name, None)
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    text = (
        "import colorsys, wave\nfrom torch import nn\n\ndef make():\n    return nn.Linear(4, 2)\n"
    )
    (tmp_path / f"{module}_importer.py").write_text(text)
    model, _ = load_factory(f"{module}_importer:make", "4")
    assert isinstance(model, nn.Linear)
    with pytest.raises(InvalidInputError, match=r"module colorsys \(.*colorsys.py\) has no make"):
        load_factory("colorsys:make")


@pytest.mark.parametrize(("batch_size", "rows"), [(None, 5), (8, 8)])
def test_a_factory_that_takes_the_batch_size(
    module: str, batch_size: int | None, rows: int
) -> None:
    _, inputs = load_factory(f"{module}:sized", batch_size=batch_size)
    assert inputs[0].shape == (rows, 4)


@pytest.mark.parametrize("name", ["bare", "takes_anything", "Net", "lazily"])
def test_a_factory_of_a_model_alone(module: str, name: str) -> None:
    model, inputs = load_factory(f"{module}:{name}", "4", 6)
    assert isinstance(model, nn.Linear)
    assert inputs[0].shape == (6, 4)
    assert inputs[0].dtype == torch.float32
    assert load_factory(f"{module}:{name}", "4")[1][0].shape == (1, 4)


@pytest.mark.parametrize(
    ("shape", "sizes", "kind"),
    [
        ("3x8x8", (2, 3, 8, 8), torch.float32),
        ("16:float64", (2, 16), torch.float64),
        ("16:bfloat16", (2, 16), torch.bfloat16),
        ("16:uint8", (2, 16), torch.uint8),
        ("5x2:bool", (2, 5, 2), torch.bool),
        ("128:int64", (2, 128), torch.int64),
    ],
)
def test_random_inputs(module: str, shape: str, sizes: tuple[int, ...], kind: Any) -> None:
    made = load_factory(f"{module}:bare", shape, 2)[1][0]
    assert tuple(made.shape) == sizes
    assert made.dtype == kind
    assert torch.equal(made, load_factory(f"{module}:bare", shape, 2)[1][0])
    assert len(made.unique()) > 1
    if not kind.is_floating_point:
        assert set(made.unique().tolist()) <= {0, 1}


def test_token_numbers_every_embedding_has(module: str) -> None:
    numbers = load_factory(f"{module}:language", "400:int64", 2)[1][0]
    assert numbers.min() >= 0
    assert 40 < numbers.max() < 50


@pytest.mark.parametrize(
    ("spec", "shape", "batch_size", "message"),
    [
        ("pair", None, None, "spec: expected module:factory"),
        (":pair", None, None, "spec: expected module:factory"),
        ("{m}:", None, None, "spec: expected module:factory"),
        ("{m}:a:b", None, None, "spec: expected module:factory"),
        ("surely_not_a_module:f", None, None, "spec: no module surely_not_a_module, neither"),
        ("{m}.sub:f", None, None, "spec: no module .*sub, neither"),
        ("{m}:absent", None, None, "spec: .*has no absent"),
        ("{m}:number", None, None, "spec: .*type int: expected a function"),
        ("{m}:model", None, None, "spec: .*type Linear: expected a function"),
        ("{m}:bare", None, None, "input_shape: .*such as 3x224x224, or 128:int64"),
        ("{m}:bare", "", None, "input_shape: expected sizes"),
        ("{m}:bare", "3x0", None, "input_shape: expected sizes"),
        ("{m}:bare", "٣", None, "input_shape: expected sizes"),
        ("{m}:bare", "9" * 5000, None, "input_shape: expected sizes"),
        ("{m}:bare", "4:Tensor", None, "input_shape: expected sizes"),
        ("{m}:bare", "4:tensor", None, "input_shape: expected a type among float32"),
        ("{m}:bare", "9999999999x9999999999", None, "input_shape: no input of"),
        ("{m}:bare", "4", 0, "batch_size: expected an integer >= 1"),
        ("{m}:pair", "4", None, "input_shape: .*no effect"),
        ("{m}:pair", None, 4, "batch_size: .*takes no batch_size"),
        ("{m}:fails", None, None, "fails failed: KeyError: 'weights'"),
        ("{m}:needs", None, None, "needs failed: TypeError: .*depth"),
        ("{m}:nothing", None, None, "returned nothing: expected"),
        ("{m}:triple", None, None, "returned an object of type tuple: expected"),
        ("{m}:swapped", None, None, "returned an object of type tuple: expected"),
        ("{m}:tensor", None, None, r"type Tensor as inputs: .*\(model, \(x,\)\)"),
        ("{m}_broken:f", None, None, "importing .*_broken failed: ZeroDivisionError"),
        (
            "{m}_incomplete:f",
            None,
            None,
            "importing .*_incomplete failed: No module named 'surely_not",
        ),
    ],
)
def test_what_makes_no_model_and_inputs(
    module: str, spec: str, shape: str | None, batch_size: int | None, message: str
) -> None:
    before = list(sys.path)
    invalid = message.startswith(("spec: ", "input_shape: ", "batch_size: "))
    error = InvalidInputError if invalid else MeasurementError
    with pytest.raises(error, match=f"^{message}" if invalid else message):
        load_factory(spec.format(m=module), shape, batch_size)
    assert sys.path == before
