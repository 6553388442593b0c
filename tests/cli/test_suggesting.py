"""What is mistyped is answered with what may have been meant."""

import pytest

from planner.cli import main


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("compar x", "compar: did you mean compare?"),
        ("calibrate netwrk", "netwrk: did you mean network?"),
        ("draw x --outptu=3", "--outptu: did you mean --output?"),
        ("plan x --clustr caramel-16", "--clustr: did you mean --cluster?"),
        ("compare x --problem ibach", "ibach: did you mean ibatch?"),
    ],
)
def test_the_closest_name_is_said(
    line: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.endswith(f"; {meant}\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "line", ["zzz", "draw x --qqqqqqq", "draw x -- --outptu", "plan x --clust", "plan x --method"]
)
def test_nothing_is_said_where_nothing_is_close(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(line.split())
    assert "did you mean" not in capsys.readouterr().err
