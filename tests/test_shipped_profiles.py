"""The profiles in ``data/profiles/``: measured, complete, and of the published sizes."""

import json
from pathlib import Path

import pytest

from planner import Profile
from planner.cli import main
from planner.jsonio import decode_profile

FOLDER = Path(__file__).parents[1] / "data" / "profiles"
PUBLISHED = {
    "googlenet": 6_998_552,
    "inception_v3": 27_161_264,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vgg19_22k": 229_052_817,
    "alexnet_v2": 50_303_912,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "lenet5": 3_274_634,
    "gpt2_small": 124_439_808,
}


def load(name: str) -> Profile:
    return decode_profile((FOLDER / f"{name}.json").read_bytes())


def test_all_networks_are_there() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str) -> None:
    profile = load(name)
    assert profile.name == name
    assert profile.parameter_bytes == 4 * PUBLISHED[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_profiles_say_where_their_numbers_come_from(name: str) -> None:
    profile = load(name)
    origin = profile.provenance
    assert origin.kind == "measured"
    assert name in origin.source
    assert origin.date
    assert origin.processor
    assert origin.threads
    assert origin.repetitions
    assert origin.repetitions >= 5
    assert origin.versions["torch"]
    assert any("published" in note for note in origin.notes)
    assert profile.batch_size
    for layer in profile.layers:
        assert layer.forward_spread_ns is not None
        assert layer.backward_spread_ns is not None
        if layer.parameter_bytes:
            assert layer.gradient_ready_ns is not None


@pytest.mark.parametrize("name", PUBLISHED)
def test_listed_parameters_have_the_bytes_of_their_layers(name: str) -> None:
    profile = load(name)
    assert profile.graph is not None
    sizes = {parameter.name: parameter.size_bytes for parameter in profile.graph.parameters}
    for one in (profile, profile.chain()):
        names = one.layer_parameters()
        assert names is not None
        assert sorted(sum(names, ())) == sorted(sizes)
        for layer, found in zip(one.layers, names, strict=True):
            assert sum(map(sizes.__getitem__, found)) == layer.parameter_bytes
    names = profile.layer_parameters()
    assert names is not None
    for layer, found in zip(profile.layers, names, strict=True):
        assert {one.rpartition(".")[0] for one in found} <= {layer.name}


def test_a_tied_parameter_counts_where_it_is_read_first() -> None:
    profile = load("gpt2_small")
    assert profile.graph is not None
    (tied,) = (parameter for parameter in profile.graph.parameters if len(parameter.read_by) > 1)
    names = profile.layer_parameters()
    assert names is not None
    (owner,) = (at for at, found in enumerate(names) if tied.name in found)
    users = [layer.name for layer in profile.layers if f"{layer.name}/forward" in tied.read_by]
    assert profile.layers[owner].name == users[0]
    assert len(users) == 2


@pytest.mark.parametrize("direction", ["pull", "push"])
def test_a_plan_of_a_profile_names_the_parameters_it_moves(direction: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    command = ["compare", str(FOLDER / "gpt2_small.json"), "--startup", "1ms", "--bandwidth"]
    command += ["1Gb/s", "--methods", "exact", "--direction", direction, "-o", str(plan)]
    assert main(command) == 0
    answer = json.loads(plan.read_text())
    chain = load("gpt2_small").chain()
    assert answer["layer_names"] == [unit.name for unit in chain.layers]
    assert answer["layer_parameters"] == [list(unit.parameters) for unit in chain.layers]
    assert answer["layer_bytes"] == [unit.parameter_bytes for unit in chain.layers]


@pytest.mark.parametrize("name", PUBLISHED)
def test_gradients_of_a_chain_become_ready_from_the_last_layer_to_the_first(name: str) -> None:
    ready = [layer.gradient_ready_ns for layer in load(name).chain().layers]
    assert all(time is not None for time in ready)
    assert ready == sorted(ready, key=lambda time: -(time or 0))
