"""Spark's event logs: what is kept of them, whatever they are packed in and wherever they end."""

import json
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from planner.families.drizzle.loops import Application, Job, loops_of
from planner.formats.importers import spark_log
from planner.formats.importers.spark_events import read_spark_log
from planner.model.errors import InvalidInputError, MissingExtraError
from tests.formats.refused import refused
from tests.formats.spark_logs import (
    END,
    START,
    Event,
    head,
    iteration,
    job_end,
    job_start,
    loop,
    stage,
    task,
    text_of,
)

MS = 10**6
LOG = text_of(loop(5)).encode()


def read(data: bytes) -> Application:
    with TemporaryDirectory() as folder:
        (Path(folder) / "app").write_bytes(data)
        return read_spark_log(Path(folder) / "app")


def jobs_of(*events: Event) -> tuple[Job, ...]:
    """Return the jobs of an application of these events."""
    return read(text_of([*head(), *events, END]).encode()).jobs


def test_what_tasks_did_is_added_up_by_job() -> None:
    application = read(LOG)
    assert (application.name, application.version) == ("by hand", "3.5.1")
    assert (application.executors, application.slots) == (1, 2)
    assert application.warnings == ()
    job = application.jobs[2]
    assert (job.start_ns, job.end_ns) == ((START + 240) * MS, (START + 340) * MS)
    # Two cores: four tasks of 20 ms one after the other, then two of 10 ms side by side.
    assert job.compute_ns == (40 + 10) * MS
    assert [(part.tasks, part.after) for part in job.shape] == [(4, ()), (2, (0,))]
    assert job.complete
    # An iteration lasts until the next one begins.
    (found,) = loops_of(application.jobs)
    assert (found.wall_ns, found.compute_ns, found.between_ns) == (120 * MS, 50 * MS, 20 * MS)
    assert (found.tasks, found.iterations) == (6, 4)
    (measured,) = found.measurements()
    assert (measured.tasks, measured.group_size, measured.overhead_ns) == (6, 1, 70 * MS)


def test_a_stage_computes_no_shorter_than_its_longest_task() -> None:
    tasks = [task(0, index, START, run) for index, run in enumerate((10, 10, 50))]
    (job,) = jobs_of(job_start(0, START, (0,)), stage(0, 3), *tasks, job_end(0, START + 60))
    assert job.compute_ns == 50 * MS


def test_pieces_of_a_file_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(LOG)
    monkeypatch.setattr(spark_log, "PIECE", 37)
    assert read(LOG) == whole


def test_packed_logs() -> None:
    zstandard = pytest.importorskip("zstandard")
    data = zstandard.ZstdCompressor().compress(LOG)
    assert read(data) == read(LOG)
    try:  # where the first block is lost, so is all
        application = read(data[: len(data) * 2 // 3])
    except InvalidInputError:
        return
    assert application.warnings
    assert set(application.jobs) < set(read(LOG).jobs)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"zstandard.*spark-events"):
        read(b"\x28\xb5\x2f\xfd" + bytes(10))


def test_a_rolling_log_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    lines = LOG.decode().splitlines(keepends=True)
    folder = tmp_path / "eventlog_v2_app"
    folder.mkdir()
    (folder / "appstatus_app").write_text("")
    for number, part in ((2, lines[20:40]), (10, lines[40:]), (1, lines[:20])):
        (folder / f"events_{number}_app").write_text("".join(part))
    application = read_spark_log(folder)
    assert application.jobs == read(LOG).jobs
    assert application.warnings == (
        "events_3, events_4, events_5, events_6, events_7 … missing: their events are lost",
    )
    (folder / "events_2_app.compact").write_text("".join(lines[:40]))
    assert read_spark_log(folder).jobs == application.jobs
    (folder / "events_2_app.compact").write_text("".join(lines[:20]))
    assert len(read_spark_log(folder).jobs) < len(application.jobs)


def test_a_log_cut_anywhere_is_read_up_to_there() -> None:
    whole = read(LOG)
    randomly = random.Random(23)
    for length in sorted(randomly.sample(range(len(LOG)), 60)):
        try:
            application = read(LOG[:length])
        except InvalidInputError as error:
            assert "nothing to measure" in str(error) or "expected" in str(error)  # noqa: PT017
            continue
        assert application.jobs == whole.jobs[: len(application.jobs)]
        assert application.warnings or length >= len(LOG) - 1


def test_a_line_that_cannot_be_read_costs_its_job() -> None:
    lines = LOG.splitlines()
    place = next(place for place, line in enumerate(lines) if b"TaskEnd" in line and place > 20)
    lines[place] = lines[place][:100]
    application = read(b"\n".join([*lines, b""]))
    assert any(f"line {place + 1}" in text for text in application.warnings)
    kept = [job.number for job in application.jobs if job.complete]
    assert len(kept) == len(read(LOG).jobs) - 1


def lacking(event: str, key: str) -> str:
    """Return a log in which no event of a kind can be read."""
    events = loop(5)
    for known in events:
        if known["Event"] == event:
            del known[key]
    return text_of(events)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "an empty file"),
        ("hello\n", "expected an event of Spark's"),
        ("ZV\x01" + "\0" * 100, r"line 1: expected .* packed by zstd"),
        ("LZ4Block" + "\0" * 100, r"line 1: expected .* packed by zstd"),
        ('{"problem": "drizzle"}\n', "expected an event of Spark's"),
        ('{"Event":"SparkListenerLogStart"}\n', "no SparkListenerJobStart"),
        (json.dumps(job_start(0, START, [0])) + "\n", "no SparkListenerTaskEnd"),
        *(
            (lacking(f"SparkListener{event}", key), rf"{event} .* in 54 events \(line .*`{key}`\)")
            for event, key in [
                ("JobStart", "Job ID"),
                ("TaskEnd", "Task Info"),
                ("JobEnd", "Job ID"),
            ]
        ),
    ],
)
def test_what_is_no_log_or_lacks_events_says_so(text: str, problem: str, tmp_path: Path) -> None:
    with refused(None, "rolling event log"):
        read_spark_log(tmp_path)
    with refused(None, problem):
        read(text.encode())


def test_failed_and_speculative_tasks_disturb_a_job_and_count_once() -> None:
    failed = task(2, 1, START + 121, 5, reason="ExceptionFailure")
    racing = task(4, 0, START + 260, 30, speculative=True)
    late = task(4, 1, START + 300, 70, reason="TaskKilled", speculative=True)
    second, third = iteration(1, START + 120), iteration(2, START + 240)
    jobs = jobs_of(
        *iteration(0, START),
        *(*second[:3], failed, *second[3:]),
        *(*third[:-1], racing, late, third[-1]),
        *iteration(3, START + 360),
    )
    assert [job.disturbed for job in jobs] == [0, 1, 2, 0]
    assert jobs[2].compute_ns == jobs[3].compute_ns  # the slower of two racing attempts is no work
    assert all(job.complete for job in jobs)
    (found,) = loops_of(jobs)
    assert [row.disturbed for row in found.rounds] == [False, True, True]
    assert len(found.counted) == 1


def test_a_stage_that_runs_again_counts_once() -> None:
    body = iteration(0, START)
    again = [stage(0, 1, attempt=1), task(0, 0, START + 40, 20, attempt=1, partition=1)]
    (job,) = jobs_of(*body[:3], *body[4:6], *again, *body[6:])
    assert job.complete
    assert job.disturbed == 1


def test_groups_say_how_many_iterations_they_are() -> None:
    events: list[Event] = []
    time = START
    for number, size in enumerate((1, 2, 4, 4, 2, 1, 1)):
        last = time + 40 + 50 * size
        events += [job_start(number, time, (number,), size), stage(number, 2)]
        events += [task(number, index, time, 20 + 50 * size) for index in range(2)]
        events.append(job_end(number, last))
        time = last + 10
    (found,) = loops_of(jobs_of(*events))
    assert found.grouped
    assert found.compute_ns == 50 * MS  # the slope: 20 ms of every group are no iteration
    overheads = {row.group_size: row.overhead_ns for row in found.measurements()}
    assert overheads == {1: 50 * MS, 2: 25 * MS, 4: 12_500_000}


def test_an_executor_nobody_announced_is_told() -> None:
    application = read(text_of(row for row in loop(3) if "Executor Info" not in row).encode())
    assert any("no SparkListenerExecutorAdded" in text for text in application.warnings)
    assert application.jobs[0].compute_ns == (20 + 10) * MS


def test_starts_without_an_end_and_ends_without_a_start_are_left_out() -> None:
    unknown = [job_end(7, START), task(9, 0, START, 5)]
    unended = iteration(1, START + 120)[:-1]
    application = read(text_of([*head(), *unknown, *iteration(0, START), *unended]).encode())
    assert [job.number for job in application.jobs] == [0]
    assert any("still runs" in text for text in application.warnings)
    with refused(None, "no SparkListenerJobEnd"):
        read(text_of([*head(), *iteration(0, START)[:-1]]).encode())
