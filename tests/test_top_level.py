"""What ``import planner`` offers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import planner
from planner.model.errors import MissingExtraError, NotApplicableError


def test_only_public_names_are_listed() -> None:
    # Another process: what others have imported since stands in this one's module.
    code = (
        "import planner; print(*dir(planner))\n"
        "import planner.view; assert dir(planner) == sorted(planner.__all__)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = run.stdout.split()
    assert names == sorted(planner.__all__)
    assert [name for name in names if name.startswith("_")] == ["__version__"]
    assert {"Cluster", "read_profile", "read_cluster", "solve", "solve_or_raise"} <= {*names}
    for name in names:
        try:
            assert getattr(planner, name) is not None
        except MissingExtraError:
            assert name == "tune"  # which trains


def test_the_version_is_not_that_of_another_distribution_of_the_name(tmp_path: Path) -> None:
    stranger = tmp_path / "planner-99.dist-info"
    stranger.mkdir()
    (stranger / "METADATA").write_text("Metadata-Version: 2.1\nName: planner\nVersion: 99\n")
    code = (
        "import planner; from importlib.metadata import version; "
        "from planner.model.machine import versions; "
        "print(version('planner'), planner.__version__, versions()['planner'])"
    )
    path = os.pathsep.join((str(tmp_path), str(Path(planner.__file__).parents[1])))
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert run.stdout.split() == ["99", planner.__version__, planner.__version__]


def test_solve_or_raise_answers_as_solve_does() -> None:
    request = {"problem": "bigdl", "elements": 8, "element_bytes": 4, "nodes": 2}
    request |= {"partitions_per_node": 1, "link_bytes_per_s": 1e9}
    answer, same = planner.solve(request), planner.solve_or_raise(request)
    for made in (answer, same):
        del made["runtime_s"]
    assert answer == same


@pytest.mark.parametrize(
    "wrong",
    [
        {"problem": "ibatch", "compute_ns": [1], "startup_ns": 1, "transfer_ns": [-1]},
        {"problem": "ibatches"},
        {"problem": {1}},
        [],
    ],
)
def test_solve_or_raise_raises_what_solve_answers(wrong: object) -> None:
    said = planner.solve(wrong)["error"]  # type: ignore[arg-type]
    with pytest.raises(planner.InvalidInputError) as caught:
        planner.solve_or_raise(wrong)  # type: ignore[arg-type]
    assert (said["path"], said["message"]) == (caught.value.path, caught.value.message)


def test_a_method_that_does_not_apply_says_so_by_its_type() -> None:
    request = {"problem": "ibatch", "compute_ns": [1], "startup_ns": 1, "transfer_ns": [1]}
    with pytest.raises(NotApplicableError):
        planner.solve_or_raise({**request, "method": "ddp"})
