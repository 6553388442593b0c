"""Pictures of gradient plans: both passes, the boundary between them, the windows below."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from planner.solving.timeline import Interval, Kind, Mark, Timeline, Window
from planner.view import Chart, save_gantt, save_trace, text_gantt
from planner.view.gantt import PEN, draw_bar, draw_rows
from planner.view.scene import pass_blocks, scene_of


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


def test_traces_have_windows_and_the_boundary(tmp_path: Path) -> None:
    drawn = timeline()
    save_trace(Chart("t", drawn), tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    begins = {e["id"]: e["ts"] for e in events if e["ph"] == "b"}
    ends = {e["id"]: e["ts"] for e in events if e["ph"] == "e"}
    for number, window in enumerate(drawn.windows, start=1):
        assert begins[number] == window.ready_ns / 1000
        assert ends[number] == window.due_ns / 1000
    (instant,) = (e for e in events if e["ph"] == "i")
    assert (instant["ts"], instant["name"]) == (0.2, "end of the backward pass")
    ops = [e for e in events if e["ph"] == "X" and e["cat"] in ("backward", "forward")]
    assert [op["name"] for op in ops] == ["op0", "op100", "op300", "op400", "op500"]
    assert all("batch" not in op["args"] for op in ops)


def test_a_window_that_is_due_before_it_is_ready_is_empty(tmp_path: Path) -> None:
    drawn = replace(timeline(), windows=(Window(0, 60, 60, 70, 20, "w"),))
    save_trace(Chart("t", drawn), tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert [e["ts"] for e in events if e["ph"] in "be"] == [0.06, 0.06]


def test_ops_that_follow_each_other_are_one_block() -> None:
    drawn = timeline()
    lane = [Interval("computation", 0, 0, "backward", -1, "nothing"), *drawn.on("computation")]
    blocks = pass_blocks(lane)
    spans = [(block[0].kind, block[0].start_ns, block[-1].end_ns) for block in blocks]
    assert spans == [("backward", 0, 200), ("forward", 300, 600)]
    assert all(a.end_ns == b.start_ns for block in blocks for a, b in pairwise(block))
    assert pass_blocks(timeline(backward=3).on("network")) != []


def test_every_op_or_its_block_is_labelled() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    def texts(drawn: Timeline) -> list[str]:
        axes = Figure().add_subplot()
        axes.set_xlim(0, drawn.end_ns)
        for bar in scene_of(drawn, PEN, drawn.end_ns).lanes[0]:
            draw_bar(axes, bar, 0, 1.0)
        return [text.get_text() for text in axes.texts]

    assert texts(timeline()) == ["op0", "op100", "op300", "op400", "op500", "idle"]
    assert texts(many(300)) == ["backward", "forward"]


@pytest.mark.parametrize("count", [1, 40, 41, 400, 3000])
def test_every_transfer_is_in_a_bar_of_its_row(count: int) -> None:
    """However many there are: in at most 40 rows, no bar narrower than can be seen."""
    pytest.importorskip("matplotlib")
    from matplotlib.colors import to_rgba
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from planner.view.style import LATE

    axes = Figure().add_subplot()
    drawn = many(count)
    each = -(-count // 40)
    rows = [drawn.windows[start : start + each] for start in range(0, count, each)]
    axes.set_xlim(0, drawn.end_ns)
    draw_rows(axes, scene_of(drawn, PEN, drawn.end_ns).rows, 1.0)
    bars: dict[bool, list[tuple[int, float, float]]] = {True: [], False: []}
    for patch in axes.patches:
        assert isinstance(patch, Rectangle)
        (x, _), middle = patch.get_xy(), patch.get_center()[1]
        assert patch.get_linewidth() > 0
        late = patch.get_facecolor() == to_rgba(LATE)
        bars[late].append((round(middle), x, x + patch.get_width()))
    for place, row in enumerate(rows):
        for window in row:
            spans = {False: (window.start_ns, window.end_ns)}
            if window.end_ns > window.due_ns:
                spans[True] = max(window.due_ns, window.start_ns), window.end_ns
            for late, (start, end) in spans.items():
                assert any(
                    at == place and low <= start and end <= high + 1e-6
                    for at, low, high in bars[late]
                )
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == len(rows)
    carried = ", ".join(f"w{i}" for i in range(each)) if each <= 3 else f"w0 – w{each - 1}"
    assert names[0] == (f"1 · {carried}" if each == 1 else f"1–{each} · {carried}")


@pytest.mark.slow
@pytest.mark.parametrize(("count", "panels"), [(0, 1), (3, 2), (1000, 2)])
def test_windows_stand_below_the_lanes(count: int, panels: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = Chart("t", timeline(max(count, 2), max(count, 2), count), 7)
    save_gantt(drawn, tmp_path / "1.svg")
    text = (tmp_path / "1.svg").read_text()
    if count == 3:
        save_gantt(drawn, tmp_path / "2.svg")
        assert text == (tmp_path / "2.svg").read_text()
    assert text.count('id="axes_') == panels
    assert ("ready to due" in text) == (count == 3)
    assert ("first ready to last due" in text) == (count == 1000)
    assert "end of the backward pass" in text
    assert "lower bound" in text


def test_nothing_to_compute_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ops = [Interval("computation", 0, 0, kind, -1, kind) for kind in ("backward", "forward")]
    link = Interval("network", 0, 0, "all_reduce", 0, "transfer 1: w")
    window = Window(0, 0, 0, 0, 0, "transfer 1: w")
    drawn = Timeline(("computation", "network"), (*ops, link), (window,), (Mark(0, "m"),))
    for name in ("a.png", "a.json"):
        (save_gantt if name.endswith("png") else save_trace)(Chart("t", drawn), tmp_path / name)
    assert "transfer 1: w" in text_gantt(Chart("t", drawn))


def test_long_lists_of_transfers_are_cut_in_the_middle() -> None:
    text = text_gantt(Chart("t", many(100)))
    assert "… 60 more …" in text
    assert "transfer 100: w99" in text
