"""The verdict predicts: with two digits, on one assumption."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from planner.view.origin import steps
from planner.view.page import page
from planner.view.sections import assumption
from planner.view.wording import about_ns, scenario_text
from tests.report.making import cluster, model, report
from tests.report.reading import read


@given(st.integers(1, 10**12))
def test_rounding_is_off_by_half_a_unit_at_most(time: int) -> None:
    value, unit = about_ns(time).split()
    scale = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9}[unit]
    assert abs(float(value) * scale - time) <= 0.5000001 * 10 ** max(len(str(time)) - 2, 0)
    assert len(value.replace(".", "").strip("0")) <= 2


def test_the_assumption_is_the_scenario_that_changes_most() -> None:
    given = report()
    answer = given.answer
    assert answer.regret
    planned = answer.objective_ns
    assert planned is not None
    for place, decisive in enumerate(answer.regret):
        rows = [
            with_fields(row, plan_ns=10 * planned if at == place else planned)
            for at, row in enumerate(answer.regret)
        ]
        text = assumption(with_fields(answer, regret=tuple(rows)))
        assert f"(if {scenario_text(decisive)}: about {about_ns(10 * planned)})" in text
    same = tuple(with_fields(row, plan_ns=planned) for row in answer.regret)
    assert assumption(with_fields(answer, regret=same)).endswith("file are right")


def test_warnings_of_the_profile_stand_in_the_verdict() -> None:
    profile = model()
    noisy = replace(profile, provenance=replace(profile.provenance, warnings=("it was busy",)))
    given = report(noisy)
    for answer in (given.answer, with_fields(given.answer, warnings=noisy.doubts)):
        tree = read(page(replace(given, answer=answer)))
        assert tree.one("section", id="verdict").text.count("may be off: it was busy.") == 1
    assert "Warning: it was busy" in tree.one("section", id="origin").text


def test_ddp_is_kept_where_that_is_the_advice() -> None:
    given = report()
    advice = given.answer.advice
    assert advice
    keep = with_fields(given.answer, advice=with_fields(advice, keep_ddp=True, bucket_cap_mb=5))
    (first,) = steps(keep, given.cluster, given.command)
    assert first[1] == "model = DistributedDataParallel(model, bucket_cap_mb=5)"
    run = with_fields(given.answer, advice=with_fields(advice, keep_ddp=False))
    found = [how for _, how in steps(run, given.cluster, given.command)]
    assert found[0] == "planner plan 'a model.json' -o plan.json"
    assert not any("DistributedDataParallel" in how for how in found)


def test_without_a_plan_there_are_no_steps() -> None:
    given = report(where=cluster(memory_bytes=5))
    assert not list(steps(given.answer, given.cluster, given.command))
    assert "How to apply" not in page(given)
