"""The command line, and the picture with memory."""

import re
from pathlib import Path

import pytest

from planner.jsonio import decode_answer
from tests.cli.line import Line, read, without_runtime

LENET = "data/profiles/lenet5.json"
PLAN = f"plan {LENET} --cluster office-4"


def test_plan_says_what_to_wrap_and_draws_memory(line: Line) -> None:
    asked = f"{PLAN} --mode fsdp --memory 73.7MiB --optimiser-ratio 1 --channels two"
    said = line(asked, "-o plan.json --picture plan.svg").out
    assert "on 4 ranks takes" in said
    assert "\nfsdp2 " in said  # beside what a default takes
    assert "reduce-scatters" in said
    answer, timeline = decode_answer(Path("plan.json").read_bytes())
    assert timeline.memory is not None
    assert timeline.memory.peak[1] == answer.peak_bytes <= 73.7 * 2**20
    text = Path("plan.svg").read_text()
    assert "limit 73.7 MiB" in text
    assert "memory (MiB)" in text
    line("draw plan.json -o again.svg")
    line("export fsdp2 plan.json -o units.json")
    assert len(read("units.json")["units"]) == len(read("plan.json")["units"])


def test_plan_without_memory_names_what_would_do(line: Line) -> None:
    asked = f"{PLAN} --mode fsdp --memory 1MiB"
    assert "one_unit, zero_3: memory: no plan fits" in line(asked).out
    answer = line(asked, "--json").json
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
    ],
)
def test_options_that_mean_nothing(options: str, message: str, line: Line) -> None:
    assert message in line.error(PLAN, options)


def test_a_plan_for_fsdp2_is_that_of_the_mode(line: Line) -> None:
    options = f"{PLAN} --optimiser-ratio 2 --memory 75MiB --channels two --recompute --json"
    first, *others = (
        without_runtime(line(options, asked).json)
        for asked in ("--mode fsdp", "--for fsdp2", "--for fsdp2 --mode fsdp")
    )
    assert others == [first, first]
    assert first["problem"] == "fsdp"


@pytest.mark.parametrize(
    ("options", "iteration_ms", "peak_mib"),
    [
        # Each block is gathered twice, which takes 530.1 ms; 457.2 ms would be for once.
        ("--method fsdp2", 530.1, 429.4),
        pytest.param("--memory 500MB", 488.7, 476.8, marks=pytest.mark.slow),
    ],
)
def test_gpt_2_takes_as_long_as_it_did(
    options: str, iteration_ms: float, peak_mib: float, line: Line
) -> None:
    case = "plan data/profiles/gpt2_small.json --cluster a10g-16 --computation 0.05 --for fsdp2"
    answer = line(case, options, "--json").json
    assert round(answer["iteration_ns"] / 1e6, 1) == iteration_ms
    assert round(answer["peak_bytes"] / 2**20, 1) <= peak_mib


def test_a_report_for_fsdp2_names_the_command(line: Line) -> None:
    asked = f"{LENET} --cluster office-4"
    (said,) = line.error(f"report {asked} --for fsdp2 -o page.html").splitlines()
    assert "--for: no page shows plans for FSDP2" in said
    assert said.endswith(f"planner plan {asked} --for fsdp2")


def test_the_table_names_collectives_passes_and_modules(line: Line) -> None:
    text = line(PLAN, "--mode fsdp --json").out
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
    text = line(PLAN, "--mode fsdp").out
    assert "\nall-gather 1, forward: " in text
    assert re.search(r"^reduce-scatter \d+, backward: ", text, re.MULTILINE)
    peaks = re.findall(r"^\w+ .* ([KMG]?i?B)  .*%", text, re.MULTILINE)
    assert len(peaks) >= 5
    assert len(set(peaks)) == 1
