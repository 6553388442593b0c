"""Whole iterations on the command line: methods compared case by case, and over all cases."""

import json
import re
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.cli.compare_peers import chart_of, planned
from planner.cli.peers_text import markdown
from planner.draw.peers import PeersChart
from planner.iteration import METHODS, Problem, solve
from planner.iteration.peers import PeerCase, Ratios, compare_peers, standings
from planner.jsonio import decode_profile
from planner.jsonio.clusters import decode_cluster

DATA = Path(__file__).parents[2] / "data"
PROFILES = [str(DATA / "profiles" / f"{name}.json") for name in ("lenet5", "alexnet_v2")]
CLUSTERS = [str(DATA / "clusters" / f"{name}.json") for name in ("office-4", "bml-bcube")]
PEERS = ["compare", "--peers", *PROFILES, "--cluster", *CLUSTERS]
FEW = ["--methods", "ddp,caramel,ibatch,bml"]


def tables(out: str) -> list[list[list[str]]]:
    """Read the tables in a text: each a list of rows of cells, the header first."""
    found: list[list[list[str]]] = [[]]
    for line in out.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if set("".join(cells)) - set("-:"):
                found[-1].append(cells)
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def typed(profile: str, cluster: str, scale: Fraction) -> Problem:
    return Problem.from_profile(
        decode_profile(Path(profile).read_bytes()),
        decode_cluster(Path(cluster).read_bytes()),
        computation=scale,
        element_bytes=4,
    )


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*arguments, "--quiet"]) == 0
    given = capsys.readouterr()
    assert given.err == ""
    return given.out


def test_assumed_startups_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    profile, clusters = PROFILES[0], [CLUSTERS[0], "h100dgx-1"]
    asked = ["compare", "--peers", profile, "--cluster", *clusters, "--methods", "ddp"]
    text = printed(asked, capsys)
    assert "start-ups are assumed, not measured (1 of 2 cases: office-4)" in text
    cases = json.loads(printed([*asked, "--json"], capsys))["cases"]
    assert [case["assumed_startups"] for case in cases] == [True, False]


def test_there_is_a_row_a_case_and_a_row_a_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them in a file; on the terminal those of the methods only, however many cases."""
    path = tmp_path / "peers.md"
    short = printed([*PEERS, *FEW, "--computation", "1,1/50", "-o", str(path)], capsys)
    assert str(path) in short.splitlines()[-1]
    out = path.read_text(encoding="utf-8")
    assert tables(short) == tables(out)[1::2]
    whole, summary, faster, _ = tables(out)
    assert "## computation × 1\n" in out
    assert "## computation × 0.02\n" in out
    assert whole[0][:2] == ["profile", "cluster"]
    assert whole[0][6:] == ["joint", "caramel", "ibatch", "bml"]
    cases = [[profile, cluster] for profile in ("lenet5", "alexnet_v2") for cluster in NAMES]
    assert [row[:2] for row in whole[1:]] == cases == [row[:2] for row in faster[1:]]
    assert [row[0] for row in summary[1:]] == ["joint", "ddp", "caramel", "ibatch", "bml"]
    assert [row[1] for row in summary[1:]] == ["4", "4", "4", "4", "2"]
    missing = [row[-1] == "–" for row in whole[1:]]
    assert missing == [True, False, True, False]  # bml needs a BCube
    assert "– bml: " in out
    assert re.search(r"^ddp by ps \(\d of 8 cases: ", out, re.MULTILINE)
    assert "(4 of 8 cases: office-4)" in out


NAMES = ("office-4", "bml-bcube")


def test_numbers_are_those_of_the_methods_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "peers.json"
    arguments = [*PEERS, *FEW, "--computation", "0.02", "--json", "-o", str(path)]
    out = printed(arguments, capsys)
    assert path.read_text(encoding="utf-8") == out
    given = json.loads(out)
    assert len(given["cases"]) == 4
    gains: dict[str, list[float]] = {}
    for case in given["cases"]:
        files = zip((PROFILES, CLUSTERS), (case["profile"], case["cluster"]), strict=True)
        profile, cluster = (next(one for one in some if name in one) for some, name in files)
        problem = typed(profile, cluster, Fraction(1, 50))
        slow = solve(problem, method="ddp").objective_ns
        joint = solve(problem)
        assert case["lower_bound_ns"] == joint.lower_bound_ns
        assert slow is not None
        for method, one in case["methods"].items():
            alone = solve(problem, method=method)
            assert one["objective_ns"] == alone.objective_ns
            assert alone.plan is not None
            assert (one["algorithm"], one["mode"]) == (alone.plan.algorithm, alone.plan.mode)
            assert one["speedup_over_ddp"] == slow / one["objective_ns"]
            assert one["over_joint_bound"] == one["objective_ns"] / case["lower_bound_ns"] >= 1
            gains.setdefault(method, []).append(one["speedup_over_ddp"])
        assert set(case["methods"]) | set(case["without_plan"]) == {"joint", *FEW[1].split(",")}
    for row in given["summary"]:
        values, spread = gains[row["method"]], row["speedup_over_ddp"]
        assert row["cases"] == len(values)
        assert spread["geometric_mean"] == pytest.approx(prod(values) ** (1 / len(values)))
        assert (spread["least"], spread["most"]) == (min(values), max(values))


def test_the_picture_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "peers.svg"
    printed([*PEERS[:3], *PEERS[4:], *FEW, "--picture", str(path)], capsys)
    assert path.read_text(encoding="utf-8").count("<svg") == 1


def test_a_method_nobody_can_compare_with_has_no_speedup() -> None:
    problem = typed(PROFILES[0], CLUSTERS[0], Fraction(1))
    comparison = compare_peers(problem, ["bml"])
    case = PeerCase("lenet5", "office-4", Fraction(1), comparison)
    assert case.time_ns("bml") is None
    assert case.speedup("bml") is None
    assert case.reason("bml")
    assert case.reason("ddp") == ""
    assert case.speedup("ddp") == 1
    (standing,) = standings([case], ["bml"])
    assert (standing.cases, standing.speedup, standing.over_bound) == (0, None, None)
    assert PeersChart("x", ((1.0, standings([case], ["bml", "joint"])),)).methods == [
        "joint",
        "bml",
    ]


def test_ratios_are_averaged_geometrically() -> None:
    spread = Ratios((0.5, 2.0, 8.0))
    assert spread.mean == pytest.approx(2.0)
    assert (spread.least, spread.most) == (0.5, 8.0)


def test_tables_are_aligned() -> None:
    assert markdown(["a", "bb"], [["ccc", "1"], ["d", "100"]]).splitlines() == [
        "| a   |  bb |",
        "| --- | --: |",
        "| ccc |   1 |",
        "| d   | 100 |",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (PEERS[:3], "--cluster: missing"),
        ([*PEERS, "--computation", "0"], "--computation: expected a number > 0"),
        ([*PEERS, "--computation", "1,x"], "--computation: expected a number > 0"),
        ([*PEERS, "--computation", "1,2,3,4,5"], "--computation: expected at most 4 scales"),
        ([*PEERS, "--methods", "dpd"], "--methods: expected one of auto, "),
        ([*PEERS, "--time-limit", "-1"], "--time-limit: expected a number > 0"),
        ([*PEERS, "--picture", "p.json"], "--picture: a trace shows when"),
        ([*PEERS, "--startup", "1us"], "--startup: does not apply to --peers"),
        ([*PEERS, "--problem", "bml"], "--problem: does not apply to --peers"),
        ([*PEERS, "--workers", "3"], "--workers: does not apply to --peers"),
        (["compare", *PROFILES], "FILE: expected one file"),
        (["compare", PROFILES[0], "--cluster", *CLUSTERS], "--cluster: expected one; only"),
        (["compare", PROFILES[0], "--computation", "1"], "--startup: missing"),
        (["compare", PROFILES[0], "--failed", "{}"], "--failed: only together with --cluster"),
        (["compare", PROFILES[0], "--ignore-memory"], "--ignore-memory: does not apply to"),
        (["compare", "--peers", CLUSTERS[0], "--cluster", CLUSTERS[0]], "office-4.json: "),
        (["compare", "--peers", PROFILES[0], "--cluster", PROFILES[1]], "alexnet_v2.json: "),
        (["compare", "--peers", "none.json", "--cluster", CLUSTERS[0]], "none.json"),
    ],
)
def test_bad_input_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    given = capsys.readouterr()
    assert given.out == ""
    assert message in given.err
    assert "Traceback" not in given.err


@pytest.fixture
def request_file(tmp_path: Path) -> str:
    request: dict[str, Any] = {
        "problem": "iteration",
        "profile": json.loads(Path(PROFILES[0]).read_bytes()),
        "cluster": json.loads(Path(CLUSTERS[1]).read_bytes()),
        "computation_scale": 0.02,
    }
    path = tmp_path / "request.json"
    path.write_text(json.dumps(request))
    return str(path)


def test_a_request_is_compared(
    request_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = tmp_path / "best.json"
    out = printed(["compare", request_file, "-o", str(best)], capsys)
    assert out.startswith("request: lenet5 on bml-bcube: 9 workers, ")
    assert "computation × 0.02" in out
    lines = out.split("\n\n")[1].splitlines()
    assert lines[0].split()[:3] == ["method", "algorithm", "mode"]
    shown = [line.split()[0] for line in lines[2:]]
    assert shown[0] == "joint"
    assert set(METHODS) - {"auto"} == {name.removeprefix("left out: ") for name in shown} - {"left"}
    written = json.loads(best.read_text(encoding="utf-8"))
    problem = Problem.from_profile(
        decode_profile(Path(PROFILES[0]).read_bytes()),
        decode_cluster(Path(CLUSTERS[1]).read_bytes()),
        computation=Fraction(1, 50),
        element_bytes=1,  # as requests have it that say nothing else
    )
    assert written["problem"] == "iteration"
    assert written["objective_ns"] == solve(problem).objective_ns


def test_the_title_of_the_picture_says_how_much_is_gained() -> None:
    profile = planner.read_profile(PROFILES[0])
    clusters = [planner.read_cluster(name) for name in NAMES]
    cases = [planned(profile, cluster, Fraction(1), ("joint", "ddp")) for cluster in clusters]
    for some, where in ((cases, f"lenet5 on {len(NAMES)} clusters"), (cases[:1], "lenet5 on ")):
        gain = Ratios(tuple(case.speedup("joint") or 0 for case in some)).mean
        said = f"in the mean {gain:.2f} times as fast as those of DDP: {where}"
        assert said in chart_of(some, [Fraction(1)], ("joint", "ddp")).title
