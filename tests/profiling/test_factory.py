"""Models from a factory that is named, with inputs of its own or random ones.

And kinds, shapes and multiply-adds of layers, against torch's own counter and by hand.
"""

import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from planner.jsonio import decode_profile
from planner.model.errors import InvalidInputError, MeasurementError
from planner.profiling import load_factory
from planner.profiling.shapes import Description, describe
from tests.cli.documents import ROOT
from tests.profiling.models import Model, measured
from tests.test_networks import NETWORKS

NUMBERS = count()

FILES = {
    "": """
import torch
from torch import nn

def takes_anything(**options):
    assert not options
    return nn.Linear(4, 2)

class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)

def lazily():
    import NAME_helper
    return NAME_helper.make()

def fails():
    raise KeyError("weights")

def needs(depth): ...
def nothing(): ...

ones = torch.ones(3, 4)
model = nn.Linear(4, 2)
number = 3
bare = lambda: nn.Linear(4, 2)
pair = lambda: (model, (ones,))
sized = lambda *, batch_size=5: (model, (torch.ones(batch_size, 4),))
language = lambda: nn.Sequential(nn.Embedding(1000, 4), nn.Embedding(50, 4))
triple = lambda: (model, (ones,), 3)
swapped = lambda: ((ones,), model)
tensor = lambda: (model, ones)
""",
    "_helper": "from torch import nn\n\ndef make():\n    return nn.Linear(4, 2)\n",
    "_importer": "import colorsys, wave\nfrom NAME_helper import make\n",
    "_broken": "1 / 0\n",
    "_incomplete": "import surely_not_installed_anywhere\n",
}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a new module in the current directory."""
    name = f"a_users_models_{next(NUMBERS)}"
    for end, text in FILES.items():
        (tmp_path / f"{name}{end}.py").write_text(text.replace("NAME", name))
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize(
    ("name", "given", "rows"),
    [
        ("pair", (), 3),
        ("sized", (), 5),
        ("sized", (None, 8), 8),
        *((name, ("4", 6), 6) for name in ("bare", "takes_anything", "Net", "lazily")),
        *((name, ("4",), 1) for name in ("bare", "takes_anything", "Net", "lazily")),
    ],
)
def test_models_and_inputs(module: str, name: str, given: tuple[Any, ...], rows: int) -> None:
    before = list(sys.path)
    model, inputs = load_factory(f"{module}:{name}", *given)
    assert isinstance(model, nn.Linear)
    assert [(tuple(x.shape), x.dtype) for x in inputs] == [((rows, 4), torch.float32)]
    assert sys.path == before
    assert measured(model, inputs).parameter_bytes == 40


def test_files_here_stand_in_for_no_other_module(module: str, tmp_path: Path) -> None:
    for name in ("colorsys", "wave"):  # of the standard library, loaded by nobody yet
        sys.modules.pop(name, None)
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    model, _ = load_factory(f"{module}_importer:make", "4")
    assert isinstance(model, nn.Linear)
    with pytest.raises(InvalidInputError, match=r"module colorsys \(.*colorsys.py\) has no make"):
        load_factory("colorsys:make")


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


FAILING: dict[str, list[str | tuple[Any, ...]]] = {
    "^spec: expected module:factory": ["pair", ":pair", "NAME:", "NAME:a:b"],
    "^spec: no module surely_not_a_module, neither": ["surely_not_a_module:f"],
    "^spec: no module .*sub, neither": ["NAME.sub:f"],
    "^spec: .*has no absent": ["NAME:absent"],
    "^spec: .*type int: expected a function": ["NAME:number"],
    "^spec: .*type Linear: expected a function": ["NAME:model"],
    "^input_shape: .*such as 3x224x224, or 128:int64": ["NAME:bare"],
    "^input_shape: expected sizes": [
        ("NAME:bare", shape) for shape in ("", "3x0", "٣", "9" * 5000, "4:Tensor")
    ],
    "^input_shape: expected a type among float32": [("NAME:bare", "4:tensor")],
    "^input_shape: no input of": [("NAME:bare", "9999999999x9999999999")],
    "^input_shape: .*no effect": [("NAME:pair", "4")],
    "^batch_size: expected an integer >= 1": [("NAME:bare", "4", 0)],
    "^batch_size: .*takes no batch_size": [("NAME:pair", None, 4)],
    "fails failed: KeyError: 'weights'": ["NAME:fails"],
    "needs failed: TypeError: .*depth": ["NAME:needs"],
    "returned nothing: expected": ["NAME:nothing"],
    "returned an object of type tuple: expected": ["NAME:triple", "NAME:swapped"],
    r"type Tensor as inputs: .*\(model, \(x,\)\)": ["NAME:tensor"],
    "importing .*_broken failed: ZeroDivisionError": ["NAME_broken:f"],
    "importing .*_incomplete failed: No module named 'surely_not": ["NAME_incomplete:f"],
}


@pytest.mark.parametrize("message", FAILING)
def test_what_makes_no_model_and_inputs(module: str, message: str) -> None:
    before = list(sys.path)
    error = InvalidInputError if message.startswith("^") else MeasurementError
    for case in FAILING[message]:
        spec, *others = (case,) if isinstance(case, str) else case
        with pytest.raises(error, match=message):
            load_factory(spec.replace("NAME", module), *others)
        assert sys.path == before


# ---
# What layers are.


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


def test_products_between_layers_belong_to_the_one_before() -> None:
    def mixed(m: Any, tokens: Tensor) -> Any:
        made = m.one(tokens)
        return m.two(torch.bmm(made, made.transpose(1, 2)).softmax(-1) @ made)

    model = Model(mixed, one=nn.Linear(6, 6), two=nn.Linear(6, 4))
    first, second = described(model, torch.randn(2, 7, 6))
    assert (first.kind, second.kind) == ("attention", "full")
    assert first.connections == 7 * 6 * 6 + 2 * 7 * 7 * 6
    assert second.connections == 7 * 6 * 4


class Own(nn.Module):
    """A layer nobody knows: a matrix, or a scale."""

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
    profile = decode_profile((ROOT / f"data/profiles/{name}.json").read_bytes())
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
