"""Synchronisation on the command line: pictures."""

from pathlib import Path

import pytest

from planner.cli import main
from tests.cli.test_bml import NETWORK, REQUESTS
from tests.cli.test_yan import written


@pytest.mark.parametrize("name", list(REQUESTS))
def test_what_compare_writes_is_drawn_as_it_was_shown(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, plan = written(tmp_path, REQUESTS[name]), str(tmp_path / "plan.json")
    assert main(["compare", path, "-o", plan]) == 0
    shown = capsys.readouterr().out
    assert main(["draw", plan]) == 0
    drawn = capsys.readouterr().out
    assert drawn.startswith("A ")
    assert f"({name.split(maxsplit=1)[0]}" in drawn.splitlines()[0]
    assert drawn in shown
    assert main(["draw", plan, "-o", str(tmp_path / "p.json")]) == 2
    assert "expected a name ending in .svg (a chart)" in capsys.readouterr().err
    assert main(["draw", plan, "-o", str(tmp_path / "p.bmp")]) == 2
    assert "expected a name ending in .svg" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", list(REQUESTS))
def test_pictures_are_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, plan = written(tmp_path, REQUESTS[name]), str(tmp_path / "plan.json")
    compared, drawn = tmp_path / "compared.svg", tmp_path / "drawn.svg"
    assert main(["compare", path, "-o", plan, "--picture", str(compared)]) == 0
    assert main(["draw", plan, "-o", str(drawn)]) == 0
    assert "<svg" in drawn.read_text()
    assert compared.read_text() == drawn.read_text()


def test_a_profile_gives_the_picture_its_name(profile: str, tmp_path: Path) -> None:
    picture = tmp_path / "p.svg"
    command = ["compare", profile, *NETWORK, "--bcube", "3,2", "--picture", str(picture)]
    assert main(command) == 0
    text = picture.read_text(encoding="utf-8")
    assert "tiny: a synchronisation of 9 servers on BCube(3, 2)" in text
    assert "this plan" in text
