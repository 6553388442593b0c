"""The example package: what it adds is there, and is checked and priced like planner's own."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.metadata import EntryPoint
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest

from planner.model.errors import PluginError
from planner.solving import plugins

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"

BROKEN = '''
from planner import bigdl, ibatch
from planner.solving.methods import Outcome

def liar(problem, deadline):
    """Says that one batch a layer is optimal."""
    return Outcome(problem.plan(range(problem.layers + 1)), 10**6)

def careless(problem, deadline):
    """Forgets all layers but the first."""
    return Outcome(ibatch.Plan(((0, 1),)))

def wordless(problem, deadline):
    return "a plan"
'''


def installed(folder: Path, package: Path, points: dict[str, dict[str, str]]) -> None:
    """Do what pip does with a package without dependencies, but for the copies."""
    info = folder / f"{package.name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.name}\nVersion: 1\n")
    with (info / "entry_points.txt").open("w") as file:
        written = ConfigParser()
        written.read_dict(points)
        written.write(file)
    (folder / package.name).symlink_to(package)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example, and with a package that does what it should not."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    installed(folder, EXAMPLE / "planner_doubling", project["entry-points"])
    broken = tmp_path_factory.mktemp("broken") / "planner_broken"
    broken.mkdir()
    (broken / "__init__.py").write_text(BROKEN)
    methods = {name: f"planner_broken:{name}" for name in ("liar", "careless", "wordless")}
    methods |= {"absent": "planner_broken.nowhere:it", "greedy": "planner_broken:careless"}
    installed(folder, broken, {"planner.methods.ibatch": methods})
    return folder


def run(folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, *words],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )


def requests(*methods: str) -> str:
    times = {"startup_ns": 4, "transfer_ns": [3, 1, 5, 2], "compute_ns": [2, 6, 1, 4]}
    lines = [{"problem": "ibatch", **times, "method": method} for method in methods]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_methods_are_checked_priced_and_bounded_like_planner_s_own(folder: Path) -> None:
    names = ("doubling", "auto", "liar", "careless", "wordless", "absent", "greedy")
    done = run(folder, "-m", "planner", "solve", "--jsonl", stdin=requests(*names))
    answers: dict[str, dict[str, Any]] = {
        name: json.loads(line) for name, line in zip(names, done.stdout.splitlines(), strict=True)
    }
    ours, theirs, liar = answers["auto"], answers["doubling"], answers["liar"]
    assert (theirs["method"], theirs["batches"]) == ("doubling", [[0, 1], [1, 3], [3, 4]])
    assert theirs["lower_bound_ns"] == ours["objective_ns"] == ours["lower_bound_ns"]
    assert theirs["objective_ns"] >= ours["objective_ns"]
    assert liar["lower_bound_ns"] == ours["lower_bound_ns"]
    assert liar["status"] == "feasible"
    said = {name: answers[name]["error"]["message"] for name in ("careless", "wordless", "absent")}
    assert "method careless made no plan: batches" in said["careless"]
    assert "method wordless: expected an Outcome, got 'a plan'" in said["wordless"]
    assert "plug-in absent (planner_broken.nowhere:it) cannot be loaded" in said["absent"]
    assert not [message for message in said.values() if "a fault of planner" in message]
    assert answers["greedy"]["batches"][-1][1] == 4  # planner's own


def test_clusters_formats_and_peers(folder: Path, tmp_path: Path) -> None:
    rows = [f"layer{place},{10**6},{2 * 10**6},{4 * 10**6}" for place in range(4)]
    names = "name,forward_ns,backward_ns,parameter_bytes"
    (tmp_path / "model.csv").write_text("\n".join([names, *rows]))
    words = f"plan {tmp_path}/model.json --method one_bucket -o {tmp_path}/plan.json --cluster"
    imported = f"import layers-csv {tmp_path}/model.csv -o {tmp_path}/model.json"
    mains = "import sys; from planner.cli import main; "
    mains += "print(*(main(words.split()) for words in sys.argv[1:]))"
    done = run(folder, "-c", mains, imported, f"{words} hosts:4x10", f"{words} hosts:four")
    assert done.stdout.splitlines()[-1] == "0 0 2"
    assert re.fullmatch("planner: error: .*expected COUNTxGBITS.*\n", done.stderr)
    assert json.loads((tmp_path / "model.json").read_text())["name"] == "model"
    answer = json.loads((tmp_path / "plan.json").read_text())
    assert (answer["method"], answer["cluster"]) == ("one_bucket", "4 hosts at 10 Gb/s")
    (transfer,) = answer["transfers"]
    assert transfer["bytes"] == 16 * 10**6


@pytest.mark.slow
def test_pip_installs_the_example(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", reason="setuptools is not installed")
    source = copytree(EXAMPLE, tmp_path / "plugin")
    words = ("install", "--quiet", "--no-deps", "--no-build-isolation", "--target")
    done = run(tmp_path, "-m", "pip", *words, str(tmp_path / "site"), str(source))
    assert done.returncode == 0, done.stderr
    done = run(tmp_path / "site", "-m", "planner", "solve", stdin=requests("doubling"))
    assert json.loads(done.stdout)["method"] == "doubling"


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SimpleNamespace]]:
    """The packages that are installed, in the order of the path: those that a test lists here."""
    found: list[SimpleNamespace] = []
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    plugins._entries.cache_clear()
    yield found
    plugins._entries.cache_clear()


def package(group: str, **entries: str) -> SimpleNamespace:
    points = [EntryPoint(name, value, f"planner.{group}") for name, value in entries.items()]
    return SimpleNamespace(entry_points=points)


def test_the_first_package_of_the_path_counts_and_methods_and_peers_make_plans(
    packages: list[SimpleNamespace],
) -> None:
    packages += [package("toys", a="math:ceil"), package("toys", a="math:floor")]
    packages += [package("methods.ibatch", b="m:b"), package("peers", c="m:c")]
    assert plugins.plugged("toys")["a"](1.5) == 2
    assert [plugins.is_plugged(name) for name in "abc"] == [False, True, True]


def test_a_plug_in_that_fails_while_it_is_imported_is_named(
    packages: list[SimpleNamespace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planner_raising.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    packages.append(package("toys", bad="planner_raising:it"))
    with pytest.raises(PluginError, match=r"plug-in bad \(planner_raising:it\) cannot be loaded"):
        plugins.plugged("toys")["bad"]()
