"""The command line, and the picture with memory."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.jsonio import decode_answer

DATA = Path(__file__).parents[2] / "data"
LENET = str(DATA / "profiles/lenet5.json")


def run(arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments.split()) == 0
    return capsys.readouterr().out


def test_plan_says_what_to_wrap_and_draws_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, picture = tmp_path / "plan.json", tmp_path / "plan.svg"
    said = run(
        f"plan {LENET} --cluster office-4 --mode fsdp --memory 73.7MiB --optimiser-ratio 1 "
        f"--channels two -o {file} --picture {picture}",
        capsys,
    )
    assert "on 4 ranks takes" in said
    assert "\nfsdp2 " in said  # beside what a default takes
    assert "reduce-scatters" in said
    answer, timeline = decode_answer(file.read_bytes())
    assert timeline.memory is not None
    assert timeline.memory.peak[1] == answer.peak_bytes <= 73.7 * 2**20
    text = picture.read_text()
    assert "limit 73.7 MiB" in text
    assert "memory (MiB)" in text
    capsys.readouterr()
    assert main(["draw", str(file), "-o", str(tmp_path / "again.svg")]) == 0
    units = tmp_path / "units.json"
    run(f"export fsdp2 {file} -o {units}", capsys)
    assert len(json.loads(units.read_text())["units"]) == len(json.loads(file.read_text())["units"])


def test_plan_without_memory_names_what_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    asked = f"plan {LENET} --cluster office-4 --mode fsdp --memory 1MiB"
    assert "one_unit, zero_3: memory: no plan fits" in run(asked, capsys)
    answer: dict[str, Any] = json.loads(run(f"{asked} --json", capsys))
    assert (answer["status"], answer["binding"]) == ("infeasible", ["memory_bytes"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--mode fsdp --max-transfer 1MiB", "--max-transfer: does not apply to --mode fsdp"),
        ("--mode fsdp --regret", "--regret: does not apply to --mode fsdp"),
        ("--channels two", "--channels: applies to --mode fsdp only"),
        ("--recompute", "--recompute: applies to --mode fsdp only"),
        ("--mode fsdp --shards 3", "--shards[0]: expected a divisor of 4 ranks"),
        ("--mode fsdp --shards x", "--shards: expected a whole number"),
        ("--mode fsdp --memory much", "--memory: "),
        ("--mode fsdp --method caramel", "--method: expected one of"),
        ("--mode fsdp --for ddp", "--for: the plans of --mode fsdp are for fsdp2, got ddp"),
        ("--for fsdp2 --method buckets", "--method: expected one of"),
        ("--for fsdp2 --regret", "--regret: does not apply to --for fsdp2"),
        ("--for fsdp2 --algorithms ring", "--algorithms: does not apply to --for fsdp2"),
        ("--for fsdp2 --mode replicated", "--mode: the plans of FSDP2 are those of --mode fsdp"),
        ("--for fsdp2 --mode sharded", "--mode: the plans of FSDP2 are those of --mode fsdp"),
    ],
)
def test_options_that_mean_nothing(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", LENET, "--cluster", "office-4", *options.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        f"{LENET} --cluster office-4",
        f"{LENET} --cluster office-4 --optimiser-ratio 2 --memory 75MiB --channels two",
        f"{LENET} --cluster h100-32 --method fsdp2 --recompute",
    ],
)
def test_a_plan_for_fsdp2_is_that_of_the_mode(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for asked in ("--mode fsdp", "--for fsdp2", "--for fsdp2 --mode fsdp"):
        answer: dict[str, Any] = json.loads(run(f"plan {arguments} {asked} --json", capsys))
        assert answer.pop("runtime_s") >= 0  # all but the time it took
        found.append(answer)
    assert found[0] == found[1] == found[2]
    assert found[0]["problem"] == "fsdp"


@pytest.mark.parametrize(
    ("options", "iteration_ms", "peak_mib"),
    [
        # Each block is gathered twice, which takes 530.1 ms; 457.2 ms would be for once.
        ("--method fsdp2", 530.1, 429.4),
        pytest.param("--memory 500MB", 488.7, 476.8, marks=pytest.mark.slow),
    ],
)
def test_gpt_2_takes_as_long_as_it_did(
    options: str, iteration_ms: float, peak_mib: float, capsys: pytest.CaptureFixture[str]
) -> None:
    case = f"{DATA / 'profiles/gpt2_small.json'} --cluster a10g-16 --computation 0.05"
    answer = json.loads(run(f"plan {case} --for fsdp2 {options} --json", capsys))
    assert round(answer["iteration_ns"] / 1e6, 1) == iteration_ms
    assert round(answer["peak_bytes"] / 2**20, 1) <= peak_mib


def test_a_report_for_fsdp2_names_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", LENET, "--cluster", "office-4", "--for", "fsdp2", "-o", str(page)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--for: no page shows plans for FSDP2" in line
    assert line.endswith(f"planner plan {LENET} --cluster office-4 --for fsdp2")
    assert not page.exists()


def test_the_table_names_collectives_passes_and_modules(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(f"plan {LENET} --cluster office-4 --mode fsdp --json", capsys)
    answer, shown = decode_answer(text.encode())
    assert shown.resources == ("network", "computation")
    kinds = [window.kind for window in shown.windows]
    assert kinds.count("all_gather") == len(answer.gathers)
    assert kinds.count("reduce_scatter") == len(answer.reduces)
    for window in shown.windows:
        assert window.ready_ns <= window.start_ns < window.end_ns <= window.due_ns
        name = window.names[0].removesuffix(".*")
        passes = ("forward", "backward") if window.kind == "all_gather" else ("backward",)
        kind = window.kind.replace("_", "-")
        assert re.fullmatch(rf"{kind} \d+, ({'|'.join(passes)}): {re.escape(name)}.*", window.label)
    text = run(f"plan {LENET} --cluster office-4 --mode fsdp", capsys)
    assert "\nall-gather 1, forward: " in text
    assert re.search(r"^reduce-scatter \d+, backward: ", text, re.MULTILINE)
    peaks = re.findall(r"^\w+ .* ([KMG]?i?B)  .*%", text, re.MULTILINE)
    assert len(peaks) >= 5
    assert len(set(peaks)) == 1
