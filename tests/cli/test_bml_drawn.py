"""Synchronisation on the command line: pictures."""

from pathlib import Path

import pytest

from planner.cli import main
from tests.cli.test_bml import NETWORK, REQUESTS
from tests.cli.test_cli import REQUEST
from tests.cli.test_yan import written
from tests.jsonio.test_caramel import CONTRACT
from tests.jsonio.test_yan import SMALL

TIMELINES = {"ibatch": REQUEST, "caramel": CONTRACT}
STARTS = {
    "ibatch": "A pull in ",
    "caramel": "An iteration takes ",
    "yan": "An epoch takes ",
}
ALL = {**REQUESTS, **TIMELINES, "yan": SMALL}


@pytest.mark.parametrize("name", ALL)
def test_what_compare_writes_is_drawn_as_it_was_shown(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, plan = written(tmp_path, ALL[name]), str(tmp_path / "plan.json")
    compared, drawn = tmp_path / "compared.svg", tmp_path / "drawn.svg"
    assert main(["compare", path, "-o", plan, "--picture", str(compared)]) == 0
    shown = capsys.readouterr().out
    assert main(["draw", plan]) == 0
    text = capsys.readouterr().out
    assert text.startswith(STARTS.get(name, "A "))
    assert f"({name.split(maxsplit=1)[0]}" in text.splitlines()[0]
    assert text in shown
    assert main(["draw", plan, "-o", str(drawn)]) == 0
    assert "<svg" in drawn.read_text()
    assert compared.read_text() == drawn.read_text()
    assert main(["draw", plan, "-o", str(tmp_path / "p.bmp")]) == 2
    assert "expected a name ending in .svg" in capsys.readouterr().err
    for trace in ("p.json", "p.json.gz"):
        timeline = name in TIMELINES
        assert main(["draw", plan, "-o", str(tmp_path / trace)]) == (0 if timeline else 2)
        assert (tmp_path / trace).exists() == timeline
        refused = "expected a name ending in .svg (a chart)" in capsys.readouterr().err
        assert refused != timeline


def test_a_profile_gives_the_picture_its_name(profile: str, tmp_path: Path) -> None:
    picture = tmp_path / "p.svg"
    command = ["compare", profile, *NETWORK, "--bcube", "3,2", "--picture", str(picture)]
    assert main(command) == 0
    text = picture.read_text(encoding="utf-8")
    assert "tiny: a synchronisation of 9 servers on BCube(3, 2)" in text
    assert "this plan" in text
