"""Profiles and clusters by name."""

import tomllib
from pathlib import Path

import pytest

import planner
from planner import InvalidInputError
from planner.cli import main
from planner.jsonio import decode_profile, encode_profile, shipped_clusters
from planner.jsonio.clusters import decode_cluster

DATA = Path(__file__).parents[2] / "data"
PROFILES = sorted((DATA / "profiles").glob("*.json"))


def test_shipped_clusters_are_found_by_name_and_are_those_of_data() -> None:
    files = sorted((DATA / "clusters").glob("*.json"))
    assert [path.stem for path in files] == list(shipped_clusters())
    for path in files:
        found = planner.read_cluster(path.stem)
        assert found == planner.read_cluster(path) == decode_cluster(path.read_text("utf-8"))
        assert found.name == path.stem


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "caramel-16").write_bytes((DATA / "clusters/office-4.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert planner.read_cluster("caramel-16").name == "office-4"
    assert planner.read_cluster("caramel-8").name == "caramel-8"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("caramel-61", "did you mean caramel-16"),
        ("Caramel16", "did you mean caramel-16"),
        ("H100-9.json", "did you mean h100-8"),
        ("xyz", "shipped are a100dgx-2, "),
        ("", "shipped are"),
        (".", "shipped are"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(wrong: str, named: str) -> None:
    with pytest.raises(InvalidInputError, match=named) as caught:
        planner.read_cluster(wrong)
    assert caught.value.path == "cluster"


@pytest.mark.parametrize("path", ["clusters/caramel-61.json", "/none/caramel-16"])
def test_a_missing_file_in_a_folder_is_one(path: str) -> None:
    with pytest.raises(FileNotFoundError, match=path):
        planner.read_cluster(path)


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_shipped_profiles_come_back(path: Path) -> None:
    profile = planner.read_profile(path)
    assert profile == planner.read_profile(str(path)) == decode_profile(path.read_bytes())
    assert decode_profile(encode_profile(profile)) == profile
    assert decode_profile(encode_profile(profile).encode()) == profile


def test_wheels_hold_every_shipped_cluster() -> None:
    root = DATA.parent
    config = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    patterns = config["tool"]["setuptools"]["package-data"]["planner"]
    held = {path for pattern in patterns for path in (root / "planner").glob(pattern)}
    assert {path.resolve() for path in (DATA / "clusters").glob("*.json")} <= held


def test_commands_take_names_of_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    profile, file = str(DATA / "profiles/lenet5.json"), str(DATA / "clusters/office-4.json")
    for command in (["plan", profile], ["plan", profile, "--mode", "replicated"]):
        printed = []
        for cluster in ("office-4", file):
            assert main([*command, "--cluster", cluster]) == 0
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1]
        assert main([*command, "--cluster", "ofice-4"]) == 2
        error = capsys.readouterr().err
        assert "--cluster: " in error
        assert "did you mean office-4?" in error
