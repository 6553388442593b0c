"""The wheel and the source archive can be built and installed, and hold what is needed."""

import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

import planner
from tests.test_borders import BATCHES, printed

ROOT = Path(__file__).parents[1]
FOLDERS = (".ci", "benchmarks", "data", "docs", "examples", "planner", "tests")
SUFFIXES = {"", ".md", ".py", ".sh", ".toml", ".txt"}
BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2]))
"""


def built(source: Path, kind: str, target: Path) -> Path:
    """Build a wheel or a source archive as pip does, with the setuptools there is."""
    words = ("-c", BUILD, kind, str(target))
    return target / printed(*words, path="", folder=source).splitlines()[-1]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Return the wheel that is built from the source archive of a clean copy."""
    pytest.importorskip("setuptools", minversion="77", reason="setuptools is too old")
    source, archives = tmp_path / "source", tmp_path / "archives"
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = listed.stdout.splitlines()
    if listed.returncode or not names:  # an archive of the repository, without its history
        # Other tests write to the folders that begin with a dot while this one copies.
        ignored = shutil.ignore_patterns(".hypothesis", ".*_cache", ".venv", "build", "__pycache__")
        shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    for name in names:
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name, follow_symlinks=False)
    archives.mkdir()
    archive = built(source, "sdist", archives)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    return built(tmp_path / archive.name.removesuffix(".tar.gz"), "wheel", archives)


@pytest.mark.slow
def test_the_wheel_of_the_source_archive_holds_the_package_and_plans(
    wheel: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
        (named,) = (name for name in packed.namelist() if name.endswith("/entry_points.txt"))
        assert "planner = planner.__main__:entry_point" in packed.read(named).decode()
        packed.extractall(site)  # as pip does; CI installs it by pip
    expected = {str(path.relative_to(ROOT)) for path in (ROOT / "planner").rglob("*.py")}
    expected |= {"planner/py.typed", "planner/view/page.css", "planner/view/picture.css"}
    clusters = (ROOT / "data" / "clusters").glob("*.json")
    assert names == {*expected, *(f"planner/data/clusters/{path.name}" for path in clusters)}
    assert wheel.name.split("-")[:2] == ["dl_comm_planner", planner.__version__]
    code = (
        f"import planner; print(planner.__file__, planner.read_cluster('caramel-16').name, "
        f"planner.solve({BATCHES})['status'])"
    )
    said = printed("-c", code, path=str(site), folder=tmp_path)
    assert said.split() == [f"{site}/planner/__init__.py", "caramel-16", "optimal"]


def test_no_command_installs_another_project_of_the_name() -> None:
    paths = {*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))}
    texts = {path for path in paths if path.suffix in SUFFIXES and path.is_file()}
    texts -= {ROOT / "CHANGELOG.md", Path(__file__)}
    some = ("README.md", "planner/model/errors.py", "docs/spark.md")
    assert {ROOT / name for name in some} < texts
    wrong = re.compile(
        r"\b(?:pip|uv|pipx)\b[^\n`]*\binstall(?:\s+-\S+)*\s+['\"]?planner\b(?!/)"
        r"|(?<![-\w])planner\[(?:torch|plot|spark|spark-events|sweep|dev|integrations)\b"
        r"|dependencies\s*=\s*\[[^]]*['\"]planner\b"
    )
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts
        for match in wrong.finditer(path.read_text("utf-8", "replace"))
    ]
    assert found == []
