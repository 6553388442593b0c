"""What is read off the log that the real Spark wrote of the same run."""

import gzip
import json
from pathlib import Path

import pytest

from planner.cli import main
from planner.drizzle.loops import loops_of
from planner.formats.spark_events import read_spark_log
from planner.formats.spark_log import lines_of, parts_of
from tests.formats.spark_logs import run_times
from tests.spark.conftest import SparkRun

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def text(spark_run: SparkRun) -> str:
    lines: list[str] = []
    damaged: list[str] = []
    for part in parts_of(spark_run.log)[0]:
        with part.open("rb") as source:
            lines += [line.text.decode() for line in lines_of(source, "", damaged.append)]
    assert not damaged
    return "\n".join(lines) + "\n"


def test_it_is_a_rolling_log_of_spark_4_packed_by_zstd(spark_run: SparkRun) -> None:
    (part,) = parts_of(spark_run.log)[0]
    assert part.read_bytes().startswith(b"\x28\xb5\x2f\xfd")
    application = read_spark_log(spark_run.log)
    assert (application.name, application.version[:2]) == ("tests", "4.")
    assert application.warnings == ()


def test_sums_are_those_of_all_events_at_once(spark_run: SparkRun, text: str) -> None:
    expected = run_times(text)
    jobs = read_spark_log(spark_run.log).jobs
    calm = {job.number: job.spent.run_ns // 10**6 for job in jobs if not job.disturbed}
    assert len(calm) > 50
    assert calm == {number: expected[number] for number in calm}


def test_plain_gzipped_and_cut_it_says_the_same(
    spark_run: SparkRun, text: str, tmp_path: Path
) -> None:
    whole = read_spark_log(spark_run.log)
    plain, packed, cut = (tmp_path / name for name in ("plain", "packed", "cut"))
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_spark_log(plain) == read_spark_log(packed) == whole
    cut.write_bytes(text.encode()[: len(text) * 2 // 3])
    seen = read_spark_log(cut)
    assert seen.jobs == whole.jobs[: len(seen.jobs)]
    assert any("is cut" in warning for warning in seen.warnings)


def test_failed_tasks_and_a_lost_executor_disturb_jobs(spark_run: SparkRun) -> None:
    application = read_spark_log(spark_run.log)
    assert sum(job.disturbed > 0 for job in application.jobs) >= 4
    assert application.executors >= 3  # two, and those in the place of the killed ones


def test_loops_and_groups_are_those_that_ran(spark_run: SparkRun) -> None:
    loops = loops_of(read_spark_log(spark_run.log).jobs)
    plain = [loop for loop in loops if not loop.grouped]
    assert {tuple(job.tasks for job in loop.jobs) for loop in plain} >= {
        (4,),
        (4 + 3,),
        (3 + 4 + 3,),
    }
    groups = [row.iterations for loop in loops if loop.grouped for row in loop.rounds]
    ran = [
        row["size"]
        for way in ("groups", "allGather", "ring", "controlled")
        for row in spark_run.facts[way]
    ]
    assert groups[: len(ran)] == ran


def test_the_iterations_of_mllib_are_found(spark_run: SparkRun) -> None:
    loops = loops_of(read_spark_log(spark_run.log).jobs)
    names = [{stage.name for job in loop.jobs for stage in job.shape} for loop in loops]
    (found,) = (
        loop
        for loop, called in zip(loops, names, strict=True)
        if any("treeAggregate at GradientDescent.scala" in name for name in called)
    )
    assert found.iterations >= 7
    assert found.jobs[0].shape[0].tasks == 3  # of the data's partitions; adding up may have more


def test_decisions_are_in_the_log(spark_run: SparkRun, text: str) -> None:
    told = [
        (json.loads(line)["Properties"] or {}).get("spark.job.description", "")
        for line in text.splitlines()
        if line.startswith('{"Event":"SparkListenerJobStart"')
    ]
    assert any("groups of 2, as of 1" in words and "above 2 %" in words for words in told)


def test_commands_take_it(spark_run: SparkRun, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(spark_run.log)
    assert main(["import", "spark-events", log]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["provenance"]["versions"][0].startswith("4.")
    assert document["bigdl"]["nodes"] >= 2
    assert main(["calibrate", "drizzle", log]) == 0
    assert "held out, one at a time" in capsys.readouterr().out
    assert main(["compare", "--problem", "drizzle", "--events", log]) == 0
    assert "your driver spends" in capsys.readouterr().out
