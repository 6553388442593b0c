"""Pictures of gradient plans: both passes, the boundary between them, the windows below."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from planner.solving.timeline import Interval, Kind, Mark, Memory, Timeline, Window
from planner.view import save_gantt, save_trace, text_gantt
from planner.view.chart import Chart
from planner.view.scene import pass_blocks, scene_of
from tests.draw.reading import Picture


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


def many(transfers: int) -> Timeline:
    return timeline(backward=transfers, forward=transfers, transfers=transfers)


def test_text_shows_passes_stalls_and_the_boundary() -> None:
    text = text_gantt(Chart("t", timeline()), width=13 + 60)
    computation, network, mark, _ = text.splitlines()[2:6]
    assert computation[13:] == "b" * 20 + "·" * 10 + "f" * 30
    assert network[13:] == "·" * 5 + "░░111░░222" + "·" * 45
    assert mark == " " * (13 + 20) + "| end of the backward pass (200 ns)"
    table = text.split("\n\n")[-1].splitlines()
    assert table[0].split() == ["transfer", "ready", "(ns)", "start", "end", "due", "past", "due"]
    assert table[2].split()[-5:] == ["40", "50", "100", "80", "20"]
    assert table[3].split()[-1] == "–"


def test_text_writes_late_marks_to_their_left() -> None:
    text = text_gantt(Chart("t", timeline(backward=8)), width=13 + 60)
    mark = text.splitlines()[4]
    assert mark.endswith("end of the backward pass (800 ns) |")
    assert mark.index("|") == 13 + 800 * 60 // 1200


def test_traces_have_ops_and_the_boundary(tmp_path: Path) -> None:
    drawn = timeline()
    save_trace(Chart("t", drawn), tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    (instant,) = (e for e in events if e["ph"] == "i")
    assert (instant["ts"], instant["name"]) == (0.2, "end of the backward pass")
    ops = [e for e in events if e["ph"] == "X" and e["cat"] in ("backward", "forward")]
    assert [op["name"] for op in ops] == ["op0", "op100", "op300", "op400", "op500"]
    assert all("batch" not in op["args"] for op in ops)


def test_ops_that_follow_each_other_are_one_block() -> None:
    drawn = timeline()
    lane = [Interval("computation", 0, 0, "backward", -1, "nothing"), *drawn.on("computation")]
    blocks = pass_blocks(lane)
    spans = [(block[0].kind, block[0].start_ns, block[-1].end_ns) for block in blocks]
    assert spans == [("backward", 0, 200), ("forward", 300, 600)]
    assert all(a.end_ns == b.start_ns for block in blocks for a, b in pairwise(block))
    assert pass_blocks(timeline(backward=3).on("network")) != []


def test_every_op_or_its_block_is_labelled() -> None:
    def texts(drawn: Timeline) -> list[str]:
        lane = scene_of(drawn, 838, drawn.end_ns).lanes[0]
        return sorted(bar.text for bar in lane if bar.text)

    assert texts(timeline()) == ["idle", "op0", "op100", "op300", "op400", "op500"]
    assert texts(many(300)) == ["backward", "forward"]


@pytest.mark.parametrize("count", [1, 60, 61, 400, 3000])
def test_every_transfer_is_in_a_bar_of_its_row(count: int) -> None:
    """However many there are: in at most 60 rows, the past due part in red."""
    drawn, each = many(count), -(-count // 60)
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


@pytest.mark.parametrize("count", [0, 3, 1000])
def test_windows_stand_below_the_lanes(count: int, tmp_path: Path) -> None:
    drawn = Chart("t", timeline(max(count, 2), max(count, 2), count), 7)
    save_gantt(drawn, tmp_path / "1.svg")
    picture = Picture(tmp_path / "1.svg")
    rows = [text for text in picture.words if " · w" in text]
    assert len(rows) == min(count, -(-count // -(-count // 60 or -1)))
    assert ("ready to due" in picture.words) == (count == 3)
    assert ("first ready to last due" in picture.words) == (count == 1000)
    assert any(text.startswith("end of the backward pass") for text in picture.words)
    assert any(text.startswith("lower bound") for text in picture.words)
    assert all(rect.width >= 0.75 for rect in picture.rects)
    assert all(text.y < picture.height for text in picture.texts)


@pytest.mark.parametrize("limit", [None, 3 * 2**20, 2**30])
def test_memory_stands_below_with_its_peak_and_a_limit_that_is_near(
    limit: int | None, tmp_path: Path
) -> None:
    memory = Memory(((0, 2**20), (300, 2 * 2**20)), limit)
    save_gantt(Chart("t", replace(timeline(), memory=memory)), tmp_path / "1.svg")
    words = Picture(tmp_path / "1.svg").words
    assert {"memory (MiB)", "peak 2 MiB"} <= set(words)
    assert ("limit 3 MiB" in words) == (limit == 3 * 2**20)


def test_nothing_to_compute_can_be_drawn(tmp_path: Path) -> None:
    ops = [Interval("computation", 0, 0, kind, -1, kind) for kind in ("backward", "forward")]
    link = Interval("network", 0, 0, "all_reduce", 0, "transfer 1: w")
    window = Window(0, 0, 0, 0, 0, "transfer 1: w")
    drawn = Timeline(("computation", "network"), (*ops, link), (window,), (Mark(0, "m"),))
    for name in ("a.svg", "a.json"):
        (save_gantt if name.endswith("svg") else save_trace)(Chart("t", drawn), tmp_path / name)
    assert "transfer 1: w" in text_gantt(Chart("t", drawn))


def test_long_lists_of_transfers_are_cut_in_the_middle() -> None:
    text = text_gantt(Chart("t", many(100)))
    assert "… 60 more …" in text
    assert "transfer 100: w99" in text
