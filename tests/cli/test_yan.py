"""Scaling on the command line, and requests of every family compared."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.families.yan.family import METHODS
from tests.cli.test_cli import NETWORK, PROFILE, REQUEST
from tests.jsonio.test_yan import SMALL, fixed

COLUMNS = [
    "method",
    "workers",
    "replicas",
    "servers",
    "machines",
    "epoch",
    "above bound",
    "status",
    "run time",
]


def written(folder: Path, request: dict[str, Any]) -> str:
    path = folder / "request.json"
    path.write_text(json.dumps(request))
    return str(path)


@pytest.fixture
def request_file(tmp_path: Path) -> str:
    return written(tmp_path, SMALL)


def rows_of(block: str) -> list[dict[str, str]]:
    """Read a table; what is said below it is left out."""
    header, _, *lines = block.splitlines()
    names = re.split(r"\s{2,}", header.strip())
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines]
    return [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]


def left_out(out: str) -> set[str]:
    """Return the methods that did not run."""
    return {
        name for names in re.findall(r"left out: ([\w, ]+) \(", out) for name in names.split(", ")
    }


def blocks(out: str) -> list[str]:
    return [block.strip("\n") for block in out.split("\n\n")]


def bars_of(parts: list[str]) -> list[str]:
    """Return the rows of the ranking."""
    ranking = next(part for part in parts if part.startswith("workers × replicas + servers"))
    return ranking.splitlines()[1:]


def test_compare_ranks_the_methods_and_then_the_triples(
    request_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", request_file]) == 0
    out = capsys.readouterr().out
    parts = blocks(out)
    assert parts[0].startswith("request: 2 layers, 20 connections, 22 weights, 60,000 samples")
    assert "3 machines of 2 cores" in parts[0]
    rows = rows_of(parts[1])
    assert list(rows[0]) == COLUMNS
    shown = {row["method"] for row in rows} | left_out(out)
    assert shown == set(METHODS) - {"auto"}
    exact = next(row for row in rows if row["method"] == "exact")
    assert (exact["above bound"], exact["status"]) == ("0.00%", "optimal")
    assert parts[2].startswith("An epoch takes ")
    ranking = bars_of(parts)
    first = "{workers}×{replicas}+{servers}".format(**rows[0])
    assert ranking[0].split()[0] == first
    assert ranking[0].endswith(rows[0]["epoch"])
    assert all("%)" in row or "×)" in row for row in ranking[1:])


def test_compare_ranks_given_configurations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, fixed())
    assert main(["compare", path, "--methods", "exact"]) == 0
    parts = blocks(capsys.readouterr().out)
    assert "2 given configurations" in parts[0]
    assert parts[0].endswith("above bound and status: of the given ones only")
    assert len(bars_of(parts)) == 2


def test_one_of_a_thing_is_no_plural(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = {**SMALL, "cores": 1, "samples": 1, "read_every": 1, "layers": SMALL["layers"][:1]}
    request["fixed"] = [{"parameter_servers": 1, "replicas": 1, "workers_per_replica": 1}]
    assert main(["compare", written(tmp_path, request)]) == 0
    head = blocks(capsys.readouterr().out)[0]
    assert "request: 1 layer, 12 connections, 12 weights, 1 sample an epoch" in head
    assert "1 given configuration on 3 machines of 1 core, up to 1 thread, weights" in head
    assert "every 1 sample (mean)" in head


def test_only_the_best_has_the_extra_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, {**SMALL, "pareto": True})
    assert main(["compare", path, "--methods", "exact,model_parallel", "--json"]) == 0
    best, worst = json.loads(capsys.readouterr().out)
    assert "pareto" in best
    assert "pareto" not in worst


def test_names_of_a_request_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {**REQUEST, "layer_names": ["a", "b", "c"]})
    assert main(["compare", path, "--methods", "exact", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["layer_names"] == ["a", "b", "c"]


def test_the_right_problem_may_be_said_too(
    request_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", request_file, "--problem", "yan", "--methods", "exact"]) == 0
    assert "(yan, exact: " in capsys.readouterr().out


def test_a_profile_needs_a_network_and_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(PROFILE))
    assert main(["compare", str(path), "--problem", "yan", *NETWORK]) == 2
    assert "--machines: missing, or --cluster" in capsys.readouterr().err
    for missing in ("--startup", "--bandwidth"):
        place = NETWORK.index(missing)
        rest = NETWORK[:place] + NETWORK[place + 2 :]
        assert main(["compare", str(path), *rest]) == 2
        assert f"{missing}: missing" in capsys.readouterr().err
