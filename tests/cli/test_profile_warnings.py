"""What a profile warns of is repeated by whatever is made of it."""

import json
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli import main
from planner.cli.compare_tables import warning_lines
from tests.cli.printed import check_answer, check_printed

SAID = "4 threads on 2 processors"
DOUBT = f"profile m, measured on 2026-11-20 (an abacus), may be off: {SAID}; it rained"


@pytest.fixture
def profile(tmp_path: Path) -> dict[str, Any]:
    layers = [
        {"name": f"l{i}", "forward_ns": 10**6, "backward_ns": 2 * 10**6, "parameter_bytes": 10**5}
        for i in range(3)
    ]
    origin: dict[str, Any] = {"kind": "measured", "source": "here", "warnings": [SAID, "it rained"]}
    origin |= {"date": "2026-11-20", "processor": "an abacus", "threads": 2}
    made = {"name": "m", "provenance": origin, "batch_size": 1, "layers": layers}
    check_printed("profile", made)
    (tmp_path / "m.json").write_text(json.dumps(made))
    return made


@pytest.mark.parametrize("problem", ["caramel", "ibatch"])
def test_compare(
    problem: str, profile: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--problem", problem, "--startup", "100us", "--bandwidth", "1Gb/s"]
    options += ["--workers", "2"] if problem == "caramel" else []
    file = str(tmp_path / "m.json")
    assert main(["compare", file, *options, "-o", str(tmp_path / "plan.json")]) == 0
    printed = capsys.readouterr().out
    assert f"warning: {DOUBT}" in printed
    assert printed.count(SAID) == 1
    answer = json.loads((tmp_path / "plan.json").read_text())
    check_answer(answer)
    assert DOUBT in answer["warnings"]
    assert answer["profile_threads"] == 2
    assert main(["compare", file, *options, "--json"]) == 0
    assert all(answer["warnings"] == [DOUBT] for answer in json.loads(capsys.readouterr().out))


def test_export_and_draw(
    profile: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    network = ["--startup", "100us", "--bandwidth", "1Gb/s"]
    assert main(["compare", str(tmp_path / "m.json"), *network, "-o", str(plan)]) == 0
    names = [[f"l{i}.weight"] for i in range(3)]
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "layer_parameters": names}))
    capsys.readouterr()
    assert main(["draw", str(plan)]) == 0
    assert capsys.readouterr().err == f"planner: warning: {DOUBT}\n"
    assert main(["export", "fsdp2", str(plan), "-o", str(tmp_path / "out")]) == 0
    assert f"planner: warning: {DOUBT}" in capsys.readouterr().err


def test_plan(profile: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, plan = str(tmp_path / "m.json"), str(tmp_path / "plan.json")
    assert main(["plan", file, "--cluster", "office-4", "-o", plan]) == 0
    printed = capsys.readouterr().out
    assert f"warning: {DOUBT}" in printed
    assert printed.count(SAID) == 1
    answer = json.loads(Path(plan).read_text())
    check_answer(answer)
    assert DOUBT in answer["warnings"]
    assert answer["profile_threads"] == 2


@pytest.mark.parametrize(
    ("memory", "doubted"), [("memory_bytes", True), ("accelerator_memory_bytes", False)]
)
@pytest.mark.parametrize("mode", [[], ["--mode", "fsdp"]])
def test_what_a_cluster_s_memory_is_understood_as(
    memory: str,
    mode: list[str],
    *,
    doubted: bool,
    profile: object,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = {
        "name": "two",
        "source": "made up",
        "machines": 2,
        memory: 80 * 10**9,
        "topology": {"kind": "rails", "accelerators": 8, "link_bytes_per_s": 1e11},
        "nic": {"bytes_per_s": 1e9, "startup_ns": 1000, "per_machine": 8},
    }
    (tmp_path / "c.json").write_text(json.dumps(cluster))
    files = [str(tmp_path / name) for name in ("m.json", "c.json", "plan.json")]
    assert main(["plan", files[0], "--cluster", files[1], *mode, "-o", files[2]]) == 0
    printed = capsys.readouterr().out
    said = "warning: memory_bytes is that of a machine: 74.51 GiB, 9.313 GiB for each of its 8"
    assert (said in printed) == doubted
    answer = json.loads(Path(files[2]).read_text())
    assert any("accelerator_memory_bytes" in text for text in answer["warnings"]) == doubted


def test_requests(profile: dict[str, Any]) -> None:
    cluster = {
        "name": "two",
        "source": "made up",
        "machines": 2,
        "topology": {"kind": "switch"},
        "nic": {"bytes_per_s": 1e9, "startup_ns": 1000},
    }
    request = {"problem": "iteration", "profile": profile, "cluster": cluster}
    assert planner.solve(request)["warnings"] == [DOUBT]
    del profile["provenance"]["warnings"]
    answer = planner.solve(request)
    assert "warnings" not in answer
    assert answer["profile_threads"] == 2
    del profile["provenance"]["threads"]
    assert "profile_threads" not in planner.solve(request)


def test_each_reason_of_a_long_warning_has_a_line() -> None:
    reasons = [f"{what} kept processors busy meanwhile, for {'long ' * 8}" for what in "ab"]
    assert warning_lines([DOUBT, "; ".join(reasons)]) == [
        f"warning: {DOUBT}",
        f"warning: {reasons[0]}",
        f"  and: {reasons[1]}",
    ]
