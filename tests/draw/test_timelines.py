"""Pictures, texts and traces of timelines show every interval where it belongs."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.ibatch import Problem, solve
from planner.families.ibatch import timeline as timeline_of
from planner.solving.timeline import Interval, Kind, Mark, Memory, Timeline, Window
from planner.view import save_gantt, save_trace, text_gantt
from planner.view.chart import Chart
from planner.view.scene import runs, scene_of
from tests.draw.reading import Picture, saved
from tests.strategies import problems


def chart(
    transfer_ns: Sequence[int] = (300, 100, 500),
    startup_ns: int = 400,
    compute_ns: Sequence[int] = (200, 600, 100),
) -> Chart[Timeline]:
    """Return the chart of a batch a layer."""
    return chart_of(Problem(startup_ns=startup_ns, transfer_ns=transfer_ns, compute_ns=compute_ns))


def chart_of(problem: Problem) -> Chart[Timeline]:
    result = solve(problem, method="layer_by_layer")
    assert result.plan is not None
    return Chart("a title", timeline_of(problem, result.plan), result.lower_bound_ns)


def timeline(backward: int = 2, forward: int = 3, transfers: int = 2) -> Timeline:
    """Ops of 100 ns; transfers of 50 ns one after the other from 50 ns on; a stall of 100 ns."""
    ops: list[tuple[Kind, int]] = [("backward", 100 * i) for i in range(backward)]
    begin = 100 * backward + 100
    ops += [("forward", begin + 100 * i) for i in range(forward)]
    intervals = [Interval("computation", s, s + 100, kind, -1, f"op{s}") for kind, s in ops]
    windows = []
    for number in range(transfers):
        start = 50 + 50 * number
        label = f"transfer {number + 1}: w{number}"
        intervals += [
            Interval("network", start, start + 20, "startup", number, label),
            Interval("network", start + 20, start + 50, "all_reduce", number, label),
        ]
        due = begin - 100 if number % 2 else start + 30
        windows.append(Window(number, max(start - 10, 0), start, start + 50, due, label))
    marks = (Mark(100 * backward, "end of the backward pass"),)
    return Timeline(("computation", "network"), tuple(intervals), tuple(windows), marks)


def gradients(drawn: Timeline | None = None, bound: int | None = None) -> Chart[Timeline]:
    return Chart("t", drawn or timeline(), bound)


@pytest.mark.parametrize(("drawn", "name"), [(chart(), "plan.json"), (gradients(), "plan.json.gz")])
def test_traces_have_a_thread_a_resource_and_all_intervals(
    drawn: Chart[Timeline], name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    save_trace(drawn, path)
    data = path.read_bytes()
    events = json.loads(gzip.decompress(data) if name.endswith("gz") else data)["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert tuple(threads.values()) == drawn.view.resources
    shown = [e for e in events if e["ph"] == "X"]
    assert {
        (threads[e["tid"]], round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000), e["cat"])
        for e in shown
    } == {(i.resource, i.start_ns, i.end_ns, i.kind) for i in drawn.view.intervals}
    instants = [(e["ts"], e["name"]) for e in events if e["ph"] == "i"]
    if drawn.title == "t":
        assert instants == [(0.2, "end of the backward pass")]
        ops = [e for e in shown if e["cat"] in ("backward", "forward")]
        assert [op["name"] for op in ops] == ["op0", "op100", "op300", "op400", "op500"]
        assert all("batch" not in op["args"] for op in ops)


@pytest.mark.parametrize(
    ("transfers", "lane"),
    [((70, 30, 100), "1" * 7 + "2" * 3 + "3" * 10), ((79, 1, 120), "1" * 8 + "3" * 12)],
)
def test_a_stretch_shows_what_fills_most_of_it(transfers: tuple[int, ...], lane: str) -> None:
    text = text_gantt(chart(transfers, 0, (0, 0, 0)), width=15 + 20)
    assert text.splitlines()[2][15:] == lane


def test_text_shows_passes_stalls_and_the_boundary() -> None:
    text = text_gantt(gradients(), width=13 + 60)
    computation, network, mark, _ = text.splitlines()[2:6]
    assert computation[13:] == "b" * 20 + "·" * 10 + "f" * 30
    assert network[13:] == "·" * 5 + "░░111░░222" + "·" * 45
    assert mark == " " * (13 + 20) + "| end of the backward pass (200 ns)"
    table = text.split("\n\n")[-1].splitlines()
    assert table[0].split() == ["transfer", "ready", "(ns)", "start", "end", "due", "past", "due"]
    assert table[2].split()[-5:] == ["40", "50", "100", "80", "20"]
    assert table[3].split()[-1] == "–"
    late = text_gantt(gradients(timeline(backward=8)), width=13 + 60).splitlines()[4]
    assert late.endswith("end of the backward pass (800 ns) |")
    assert late.index("|") == 13 + 800 * 60 // 1200


@pytest.mark.parametrize(
    ("drawn", "last"),
    [
        (chart([1] * 100, 1, [1] * 100), "batch 100: layer 99"),
        (gradients(timeline(100, 100, 100)), "transfer 100: w99"),
    ],
)
def test_long_lists_are_cut_in_the_middle(drawn: Chart[Timeline], last: str) -> None:
    text = text_gantt(drawn)
    assert "… 60 more …" in text
    assert last in text


def test_no_batch_looks_as_if_it_took_no_time() -> None:
    table = text_gantt(chart([10**9, 5, 5], 1, [1, 1, 1])).split("\n\n")[-1]
    for row in table.splitlines()[2:]:
        cells = row.split()[-4:]
        assert cells[0] != cells[1]
        assert cells[2] != cells[3]


def test_a_picture_has_a_bar_for_every_interval_which_says_what_it_is(tmp_path: Path) -> None:
    drawn = chart()
    picture = saved("ibatch", drawn, tmp_path)
    scale = drawn.view.end_ns / (1088 - 250)
    found = [
        (rect.look.split()[0], (rect.x - 250) * scale, rect.width * scale)
        for rect in picture.rects
        if rect.tooltip
    ]
    for one in drawn.view.on("communication"):
        wanted = pytest.approx((one.start_ns, one.end_ns - one.start_ns), abs=5)
        assert any(look == one.kind and place == wanted for look, *place in found)
    assert {"1", "2", "3", "a title", "communication"} <= set(picture.words)
    assert "var(" not in picture.source  # not all programs know variables
    for number, what in product((1, 2, 3), ("batch", "start-up of batch")):
        assert any(title.startswith(f"{what} {number}: layer") for title in picture.titles)
    assert any(title.startswith("nothing computed, ") for title in picture.titles)
    for bound, text in ((drawn, True), (replace(drawn, lower_bound_ns=None), False)):
        words = saved("ibatch", bound, tmp_path).words
        assert any("lower bound" in word for word in words) == text


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
    places = [place for first, last in found for place in range(first, last + 1)]
    assert places == list(range(len(spans)))
    for first, last in found:
        members = spans[first : last + 1]
        assert len({kind for kind, _, _ in members}) == 1
        if first < last:
            assert all(end - start < 3 * pixel for _, start, end in members)
            assert all(b[1] - a[2] < pixel for a, b in pairwise(members))


def test_thousands_of_transfers_are_few_bars() -> None:
    spans = [("pull", 5 * place + 3, 5 * place + 5) for place in range(20_000)]
    assert len(list(runs(spans, 5 * 20_000 / 660))) < 700


def test_titles_are_shortened_and_made_printable(tmp_path: Path) -> None:
    long = Chart("m" * 300 + "\x1b[31m\n · makespan 5 s", timeline())
    assert len(long.title) <= 236
    assert long.title.isprintable()
    assert long.title.endswith("makespan 5 s")
    assert "<a&b>" in saved("ibatch", Chart("<a&b>", timeline()), tmp_path).words


@pytest.mark.parametrize("earliest", [0, 1300])  # on either side of the middle
@given(st.sets(st.integers(0, 1200), min_size=2, max_size=5))
def test_lines_of_moments_do_not_cross_the_texts_of_others(
    tmp_path_factory: pytest.TempPathFactory, earliest: int, times: set[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "moments.svg"
    marks = tuple(Mark(earliest + time, "a labelled moment") for time in times)
    save_gantt(Chart("t", replace(chart([0], 0, [2500]).view, marks=marks)), path)
    picture = Picture(path)
    lines = [re.split("[MV ]", line)[1:3] for look, line in picture.paths if look == "moment"]
    texts = [text for text in picture.texts if "labelled" in text.text]
    assert len(lines) == len(texts) == len(times)
    for x, top in lines:
        for text in texts:
            assert float(top) > text.y or not text.left < float(x) < text.right


def test_every_op_or_its_block_is_labelled() -> None:
    at_once = [
        Interval("computation", at, at + 1, "backward" if at < 300 else "forward", -1, "")
        for at in range(600)
    ]
    for drawn, texts in (
        (timeline(), ["idle", "op0", "op100", "op300", "op400", "op500"]),
        (Timeline(("computation",), tuple(at_once)), ["backward", "forward"]),
    ):
        lane = scene_of(drawn, 838, drawn.end_ns).lanes[0]
        assert sorted(bar.text for bar in lane if bar.text) == texts


@pytest.mark.parametrize("count", [1, 60, 61, 400, 3000])
def test_every_transfer_is_in_a_bar_of_its_row(count: int) -> None:
    """However many there are: in at most 60 rows, the past due part in red."""
    drawn, each = timeline(count, count, count), -(-count // 60)
    rows = scene_of(drawn, 838, drawn.end_ns).rows
    assert len(rows) == -(-count // each)
    for place, row in enumerate(rows):
        for window in drawn.windows[place * each : (place + 1) * each]:
            spans = {False: (window.start_ns, window.end_ns)}
            if window.end_ns > window.due_ns:
                spans[True] = max(window.due_ns, window.start_ns), window.end_ns
            for late, (start, end) in spans.items():
                assert any(
                    (bar.look == "late") == late and bar.start_ns <= start and end <= bar.end_ns
                    for bar in row.bars
                )
    carried = ", ".join(f"w{i}" for i in range(each)) if each <= 3 else f"w0 – w{each - 1}"
    assert rows[0].name == (f"1 · {carried}" if each == 1 else f"1–{each} · {carried}")


LEGENDS = ("ready to due", "first ready to last due")


@pytest.mark.parametrize(("count", "legend"), [(0, ()), (3, LEGENDS[:1]), (1000, LEGENDS[1:])])
def test_windows_stand_below_the_lanes(count: int, legend: tuple[str, ...], tmp_path: Path) -> None:
    ops = max(count, 2)
    picture = saved("caramel", gradients(timeline(ops, ops, count), 7), tmp_path)
    assert {*LEGENDS} & {*picture.words} == {*legend}
    for said in ("end of the backward pass", "lower bound"):
        assert any(text.startswith(said) for text in picture.words)
    assert all(rect.width >= 0.75 for rect in picture.rects)
    assert all(text.y < picture.height for text in picture.texts)


@pytest.mark.parametrize("limit", [None, 3 * 2**20, 2**30])
def test_memory_stands_below_with_its_peak_and_a_limit_that_is_near(
    limit: int | None, tmp_path: Path
) -> None:
    memory = Memory(((0, 2**20), (300, 2 * 2**20)), limit)
    words = saved("fsdp", gradients(replace(timeline(), memory=memory)), tmp_path).words
    assert {"memory (MiB)", "peak 2 MiB"} <= set(words)
    assert ("limit 3 MiB" in words) == (limit == 3 * 2**20)


AT_ONCE = tuple(replace(one, start_ns=0, end_ns=0) for one in timeline().intervals)
WINDOWS = (Window(0, 0, 0, 0, 0, "transfer 1: w"),)
NOTHING = replace(timeline(), intervals=AT_ONCE, windows=WINDOWS, marks=(Mark(0, "m"),))


@pytest.mark.parametrize(
    ("drawn", "said"),
    [(chart([0], 0, [0]), "batch 1: layer 0"), (gradients(NOTHING), "transfer 1: w")],
)
def test_an_empty_schedule_can_be_drawn(drawn: Chart[Any], said: str, tmp_path: Path) -> None:
    save_gantt(drawn, tmp_path / "a.svg")
    save_trace(drawn, tmp_path / "a.json")
    assert said in text_gantt(drawn)


@given(problems(objective="makespan", max_layers=12, capped=False))
def test_text_has_one_character_a_stretch(problem: Problem) -> None:
    drawn = chart_of(problem)
    lines = text_gantt(drawn, width=60).splitlines()
    assert lines[0] == "a title"
    lanes = {line.split()[0]: line[15:] for line in lines[2:4]}
    for resource, lane in lanes.items():
        assert len(lane) == 60 - 15
        marks = set(lane) - {"·", "░"}
        assert all(mark.isdigit() for mark in marks)
        if not any(i.end_ns > i.start_ns for i in drawn.view.on(resource)):
            assert set(lane) <= {"·"}
    assert sum(line.startswith("batch ") for line in lines) == 1 + problem.layers
