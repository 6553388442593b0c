"""What training on the real Spark comes to, whichever way it runs and whatever fails meanwhile."""

from fractions import Fraction

import numpy as np
import pytest

from planner.drizzle import Band, State, adjusted
from tests.spark.conftest import SparkRun
from tests.spark.reference import plain

pytestmark = [pytest.mark.slow, pytest.mark.spark]

JOBS = ("reduce", "tree_aggregate", "slices_broadcast", "slices")
GROUPS = ("groups", "allGather", "ring", "controlled")
FAILING = (
    *("raised by a job", "killed under slices"),
    *("raised in a group", "killed in a group"),
)


@pytest.mark.parametrize("way", [*JOBS, *GROUPS, *FAILING])
def test_weights_are_those_of_plain_training(way: str, spark_run: SparkRun) -> None:
    assert np.abs(plain(7)).max() > 0.1
    np.testing.assert_allclose(spark_run.weights[way], plain(7), rtol=0, atol=1e-6)


@pytest.mark.parametrize("way", [*GROUPS, *FAILING[2:]])
def test_every_iteration_is_in_one_group(way: str, spark_run: SparkRun) -> None:
    records = spark_run.facts[way]
    places = [place for row in records for place in range(row["start"], row["start"] + row["size"])]
    assert places == list(range(7))
    for row in records:
        assert Fraction(*row["overhead"]) == Fraction(
            row["wall_ns"] - row["loop_ns"], row["wall_ns"]
        )


def test_the_rule_decides_by_what_was_measured(spark_run: SparkRun) -> None:
    band = Band(Fraction(1, 100), Fraction(1, 50), max_group_size=4)
    records = spark_run.facts["controlled"]
    assert records[0]["size"] == 1
    sizes = [row["size"] for row in records]
    for row, size in zip(records, [*sizes[1:], None], strict=True):
        decided = adjusted(band, State(row["size"]), Fraction(*row["overhead"])).group_size
        assert row["next"] == decided or size is None
        assert size is None or size == min(decided, 7 - row["start"] - row["size"])
    assert max(sizes) > 1


@pytest.mark.parametrize("way", FAILING[2:])
def test_a_group_that_fails_runs_again_as_a_whole(way: str, spark_run: SparkRun) -> None:
    failures = [row["failures"] for row in spark_run.facts[way]]
    assert [len(texts) for texts in failures] == [0, 1, 0]
    if way == "raised in a group":
        assert "once raised in a group" in failures[1][0]


def test_what_always_fails_ends_with_its_reason(spark_run: SparkRun) -> None:
    refused = spark_run.facts["never"]
    assert refused["error"] == "EngineError"
    assert refused["message"] == (
        "iterations 0 to 0 failed 4 times: ZeroDivisionError: no gradient of this data"
    )


def test_too_few_slots_are_told_at_once(spark_run: SparkRun) -> None:
    refused = spark_run.facts["wide"]
    assert refused["error"] == "EngineError"
    assert "100 tasks at once need as many slots" in refused["message"]
    assert f"{spark_run.facts['slots']} slots" in refused["message"]
    assert refused["seconds"] < 30  # Spark would try for ten minutes


def test_a_cluster_is_not_started_twice(spark_run: SparkRun) -> None:
    assert "runs in" in spark_run.facts["again"]["message"]


def test_one_partition_needs_no_exchange(spark_run: SparkRun) -> None:
    assert np.isfinite(spark_run.weights["alone"]).all()
    assert np.abs(spark_run.weights["alone"]).max() > 0
