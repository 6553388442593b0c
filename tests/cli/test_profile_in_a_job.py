"""``planner profile`` started once a rank: all measure at the same time, one writes."""

import os
from pathlib import Path

import pytest

from planner.cli import main
from planner.jsonio import decode_profile


def measured(folder: str) -> str | None:
    """Run the command as one rank; return the profile if this rank has written one."""
    os.chdir(folder)  # the model counts its passes there
    output = Path(f"{os.environ['RANK']}.json")
    told = ["--input", "16", "--batch-size", "3", "--warmup", "0", "--repetitions", "2"]
    status = main(["profile", "tests.cli.factories:counted", *told, "-o", str(output)])
    assert status == 0
    return output.read_text() if output.exists() else None


def refused(_: str) -> int:
    return main(["profile", "tests.cli.factories:failing_on_rank_1", "--input", "16"])


def test_all_ranks_measure_and_the_first_writes_the_slowest(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.runtime.launching import launch

    first, second = launch(measured, 2, str(tmp_path))
    assert [first.error, second.error] == [None, None]
    assert second.value is None
    profile = decode_profile(first.value.encode())
    assert any("measured by 2 ranks at the same time" in note for note in profile.provenance.notes)
    assert profile.graph is not None
    assert any("update" in op.name for op in profile.graph.ops)  # those of SGD, as in the job
    assert second.output.replace("a model that talks\n", "") == ""


def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.runtime.launching import launch

    first, second = launch(refused, 2, str(tmp_path))
    assert first.value != 0
    assert second.value != 0
    assert "only here" in first.output
    assert "only here" in second.output
