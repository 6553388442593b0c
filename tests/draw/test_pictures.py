"""Pictures show every interval where it belongs."""

import gzip
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.ibatch import Problem, solve, timeline
from planner.solving.timeline import Mark, Timeline
from planner.view import save_gantt, save_trace, text_gantt
from planner.view.chart import Chart
from planner.view.scene import runs
from planner.view.table import format_table
from tests.draw.reading import Picture
from tests.strategies import problems

PROBLEM = Problem(startup_ns=400, transfer_ns=[300, 100, 500], compute_ns=[200, 600, 100])


def chart(problem: Problem = PROBLEM) -> Chart[Timeline]:
    result = solve(problem, method="layer_by_layer")
    assert result.plan is not None
    return Chart("a title", timeline(problem, result.plan), result.lower_bound_ns)


@pytest.mark.parametrize("name", ["plan.json", "plan.json.gz"])
def test_traces_have_a_thread_a_resource_and_all_intervals(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    drawn = chart()
    save_trace(drawn, path)
    data = path.read_bytes()
    events = json.loads(gzip.decompress(data) if name.endswith("gz") else data)["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(threads.values()) == ["communication", "computation"]
    found = {
        (threads[e["tid"]], round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000), e["cat"])
        for e in events
        if e["ph"] == "X"
    }
    assert found == {(i.resource, i.start_ns, i.end_ns, i.kind) for i in drawn.view.intervals}


@given(problems(objective="makespan", max_layers=12, capped=False))
def test_text_has_one_character_a_stretch(problem: Problem) -> None:
    drawn = chart(problem)
    text = text_gantt(drawn, width=60)
    lines = text.splitlines()
    assert lines[0] == "a title"
    lanes = {line.split()[0]: line[15:] for line in lines[2:4]}
    for resource, lane in lanes.items():
        assert len(lane) == 60 - 15
        marks = set(lane) - {"·", "░"}
        assert all(mark.isdigit() for mark in marks)
        if not any(i.end_ns > i.start_ns for i in drawn.view.on(resource)):
            assert set(lane) <= {"·"}
    assert sum(line.startswith("batch ") for line in lines) == 1 + problem.layers


def test_the_text_lane_shows_what_fills_most_of_a_stretch() -> None:
    communication, computation = text_gantt(chart(), width=15 + 27).splitlines()[2:4]
    # 22 stretches of 100 ns: start-up 4, transfer 3, start-up 4, transfer 1, …
    assert communication[15:].startswith("░░░░")
    assert set(communication[15:]) == {"░", "1", "2", "3", "·"}
    assert communication.endswith("3·")  # the last layer's computation hides no communication
    assert computation[15:].startswith("·")


def test_long_lists_are_cut_in_the_middle() -> None:
    problem = Problem(startup_ns=1, transfer_ns=[1] * 100, compute_ns=[1] * 100)
    text = text_gantt(chart(problem))
    assert "… 60 more …" in text
    assert "batch 100: layer 99" in text


def test_gantt_is_the_same_every_time_and_a_bar_for_every_interval(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        save_gantt(chart(), tmp_path / name)
    first, again = (Picture(tmp_path / name) for name in ("a.svg", "b.svg"))
    assert first.source == again.source
    left, right = 250, 1088
    wanted = {
        (interval.kind, interval.start_ns, interval.end_ns)
        for interval in chart().view.on("communication")
    }
    scale = chart().view.end_ns / (right - left)
    found = {
        (rect.look.split()[0], (rect.x - left) * scale, rect.width * scale)
        for rect in first.rects
        if rect.tooltip
    }
    for kind, start, end in wanted:
        assert any(
            look == kind and abs(at - start) < 5 and abs(width - end + start) < 5
            for look, at, width in found
        )
    assert {"1", "2", "3", "a title", "communication"} <= set(first.words)
    assert "var(" not in first.source  # not all programs know variables


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 9)), max_size=60),
    st.integers(1, 5),
)
def test_runs_are_of_a_kind_and_leave_out_nothing(
    parts: list[tuple[str, int, int]], pixel: int
) -> None:
    spans, now = [], 0
    for kind, gap, length in parts:
        spans.append((kind, now + gap, now + gap + length))
        now += gap + length
    found = list(runs(spans, pixel))
    assert [place for first, last in found for place in range(first, last + 1)] == list(
        range(len(spans))
    )
    for first, last in found:
        members = spans[first : last + 1]
        assert len({kind for kind, _, _ in members}) == 1
        if first < last:
            assert all(end - start < 3 * pixel for _, start, end in members)
            assert all(b[1] - a[2] < pixel for a, b in pairwise(members))


def test_thousands_of_transfers_are_few_bars() -> None:
    count = 20_000
    problem = Problem(startup_ns=3, transfer_ns=[2] * count, compute_ns=[5] * count)
    lane = chart(problem).view.on("communication")
    spans = [(one.kind, one.start_ns, one.end_ns) for one in lane if one.kind != "startup"]
    assert len(list(runs(spans, lane[-1].end_ns / 660))) < 700


def test_bars_say_what_they_are_when_pointed_at(tmp_path: Path) -> None:
    save_gantt(chart(), tmp_path / "a.svg")
    texts = Picture(tmp_path / "a.svg").titles
    for number in (1, 2, 3):
        assert any(text.startswith(f"batch {number}: layer") for text in texts)
        assert any(text.startswith(f"start-up of batch {number}: layer") for text in texts)
    assert any(text.startswith("nothing computed, ") for text in texts)


def test_titles_are_shortened_and_made_printable(tmp_path: Path) -> None:
    timeline = chart().view
    long = Chart("m" * 300 + "\x1b[31m\n · makespan 5 s", timeline)
    assert len(long.title) <= 236
    assert long.title.isprintable()
    assert long.title.endswith("makespan 5 s")
    save_gantt(Chart("<a&b>", timeline), tmp_path / "a.svg")
    assert "<a&b>" in Picture(tmp_path / "a.svg").words


def test_the_lower_bound_is_drawn(tmp_path: Path) -> None:
    drawn = chart()
    save_gantt(drawn, tmp_path / "with.svg")
    save_gantt(Chart(drawn.title, drawn.view), tmp_path / "without.svg")
    with_bound, without = (Picture(tmp_path / f"{n}.svg") for n in ("with", "without"))
    assert any("lower bound" in text for text in with_bound.words)
    assert not any("lower bound" in text for text in without.words)


def test_no_batch_looks_as_if_it_took_no_time() -> None:
    problem = Problem(startup_ns=1, transfer_ns=[10**9, 5, 5], compute_ns=[1, 1, 1])
    table = text_gantt(chart(problem)).split("\n\n")[-1]
    for row in table.splitlines()[2:]:
        cells = row.split()[-4:]
        assert cells[0] != cells[1]
        assert cells[2] != cells[3]


@pytest.mark.parametrize(
    ("transfers", "lane"),
    [([70, 30, 100], "1" * 7 + "2" * 3 + "3" * 10), ([79, 1, 120], "1" * 8 + "3" * 12)],
)
def test_a_stretch_shows_what_fills_most_of_it(transfers: list[int], lane: str) -> None:
    problem = Problem(startup_ns=0, transfer_ns=transfers, compute_ns=[0, 0, 0])
    assert text_gantt(chart(problem), width=15 + 20).splitlines()[2][15:] == lane


@pytest.mark.parametrize("earliest", [0, 1300])  # on either side of the middle
@given(st.sets(st.integers(0, 1200), min_size=2, max_size=5))
def test_lines_of_moments_do_not_cross_the_texts_of_others(
    tmp_path_factory: pytest.TempPathFactory, earliest: int, times: set[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "moments.svg"
    drawn = chart(Problem(startup_ns=0, transfer_ns=[0], compute_ns=[2500]))
    marks = tuple(Mark(earliest + time, "a labelled moment") for time in times)
    save_gantt(replace(drawn, view=replace(drawn.view, marks=marks), lower_bound_ns=None), path)
    picture = Picture(path)
    lines = [re.split("[MV ]", line)[1:3] for look, line in picture.paths if look == "moment"]
    texts = [text for text in picture.texts if "labelled" in text.text]
    assert len(lines) == len(texts) == len(times)
    for x, top in lines:
        for text in texts:
            assert float(top) > text.y or not text.left < float(x) < text.right


def test_an_empty_schedule_can_be_drawn(tmp_path: Path) -> None:
    nothing = chart(Problem(startup_ns=0, transfer_ns=[0], compute_ns=[0]))
    save_gantt(nothing, tmp_path / "a.svg")
    save_trace(nothing, tmp_path / "a.json")
    assert "batch 1: layer 0" in text_gantt(nothing)


def test_tables_are_aligned() -> None:
    assert format_table(("a", "b"), [("xx", "1"), ("y", "23")]) == (
        "a    b\n--  --\nxx   1\ny   23"
    )
