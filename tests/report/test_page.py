"""The page: whole, self-contained, and as the answer says."""

import re
from collections import Counter
from fractions import Fraction

import pytest
from msgspec import UNSET

from planner.families.iteration.sensitivity import SweepPoint
from planner.model.clusters import Cluster, Nic
from planner.model.topologies import Switch
from planner.model.units import format_bytes, format_ns
from planner.view.page import Report, page
from planner.view.wording import about_ns
from tests.report.making import cluster, model, report
from tests.report.reading import Node, read

SECTIONS = [
    *("verdict", "time", "gantt", "comparison", "sensitivity", "regret", "origin", "memory"),
]
EVIL = '<script>alert("1")</script>&amp;\'"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def given() -> Report:
    return report()


@pytest.fixture(scope="module")
def tree(given: Report) -> Node:
    return read(page(given))


def alone(text: str) -> None:
    """Check that nothing is fetched and nothing runs."""
    root = read(text)
    names = Counter(one.name for one in root.all())
    for name in ("script", "link", "img", "iframe", "object", "embed", "image", "use", "base"):
        assert not names[name], name
    for one in root.all():
        for key, value in one.attributes.items():
            assert key not in ("src", "href", "srcset", "action", "data", "style", "xlink:href")
            assert not key.startswith("on"), key
            assert "http" not in (value or ""), (one.name, key)
            assert "url(" not in (value or "")
    (style,) = root.all("style")
    assert "@import" not in style.text
    assert "http" not in style.text
    assert set(re.findall(r"url\([^)]*\)", style.text)) <= {"url(#gantt-hatch)"}
    assert "@font-face" not in style.text


def test_it_is_whole_and_needs_nothing_else(given: Report, tree: Node) -> None:
    alone(page(given))
    assert tree.one("html").attributes["lang"] == "en"
    assert tree.one("head").one("title").text == "tiny on four: training plan"
    assert "planner 1.2.3" in tree.one("header").text
    assert [one.attributes["id"] for one in tree.all("section")] == SECTIONS
    assert "prefers-color-scheme:dark" in tree.one("style").text
    assert "@media print" in tree.one("style").text


def test_the_same_report_is_the_same_page(given: Report) -> None:
    assert page(given) == page(report())


def test_names_are_distinct_and_labels_lead_somewhere(tree: Node) -> None:
    names = [one.attributes["id"] for one in tree.all() if "id" in one.attributes]
    assert len(set(names)) == len(names)
    for one in tree.all():
        assert one.attributes.get("aria-labelledby", names[0]) in names


def test_pictures_and_tables_speak(tree: Node) -> None:
    for picture in tree.all("svg"):
        if picture.attributes.get("aria-hidden") != "true":
            assert picture.attributes["role"] == "img"
            assert picture.attributes["aria-label"]
        assert not picture.all("svg")
    tables = tree.all("table")
    assert len(tables) == 4
    for table in tables:
        assert table.one("caption").text
        header = table.one("thead").all("th")
        assert all(one.attributes["scope"] == "col" for one in header)
        for row in table.one("tbody").all("tr"):
            first, *others = row.all("th", "td")
            assert first.attributes["scope"] == "row"
            assert len(others) == len(header) - 1


def test_the_verdict_has_the_numbers_of_the_answer(given: Report, tree: Node) -> None:
    answer, text = given.answer, tree.one("section", id="verdict").text
    assert answer.objective_ns is not None
    assert answer.lower_bound_ns is not None
    about = about_ns(answer.objective_ns)
    assert f"is predicted to take about {about} if " in text
    assert f"travel by {answer.synchronisation.algorithm} (" in text
    assert answer.synchronisation.mode in text
    ddp = next(row.objective_ns for row in given.peers.rows if row.method == "ddp")
    assert ddp is not None
    assert f"{ddp / answer.objective_ns:.2f}× as fast as PyTorch DDP" in text
    assert f"({about_ns(ddp)})" in text
    if answer.objective_ns == answer.lower_bound_ns:
        assert "optimal" in text
    else:
        assert f"lower bound ({about_ns(answer.lower_bound_ns)})" in text
        assert f"{answer.objective_ns / answer.lower_bound_ns - 1:.2%}" in text


def test_regrets_and_advice_are_those_of_the_answer(given: Report, tree: Node) -> None:
    answer = given.answer
    assert answer.regret is not UNSET
    assert answer.advice is not UNSET
    rows = tree.one("section", id="regret").one("table").rows()
    assert len(rows) == len(answer.regret) == 7
    for row, one in zip(rows, answer.regret, strict=True):
        assert one.ddp_ns is not None
        assert one.layers_ns is not None
        assert row[1:3] == [format_ns(one.plan_ns), format_ns(one.best_ns)]
        assert row[4:] == [format_ns(one.ddp_ns), format_ns(one.layers_ns)]
    assert [row[0] for row in rows[:2]] == ["computation × 0.8", "computation × 1.2"]
    said = tree.one("section", id="verdict").text
    assert ("Keep DDP" if answer.advice.keep_ddp else "Worth trying") in said
    assert format_ns(answer.advice.ddp_ns) in said


def test_the_stacked_bar_is_the_time(given: Report, tree: Node) -> None:
    why = given.answer.why
    assert why is not UNSET
    section = tree.one("section", id="time")
    widths = [one.number("width") for one in section.one("svg", class_="stacked").all("rect")]
    whole = given.answer.iteration_ns
    parts = [why.computation_ns, why.exposed_bytes_ns, why.exposed_startup_ns]
    assert sum(parts) == whole
    assert widths == pytest.approx([1000 * part / whole for part in parts], abs=0.01)
    for one in parts:
        assert format_ns(one) in section.text
    assert why.runner_up is not None
    assert why.runner_up.algorithm in section.text


def test_transfers_are_listed_and_drawn_when_they_happen(given: Report, tree: Node) -> None:
    answer, section = given.answer, tree.one("section", id="gantt")
    table = section.one("table").rows()
    assert len(table) == len(answer.transfers)
    for row, one in zip(table, answer.transfers, strict=True):
        assert row[1] == one.kind.replace("_", "-")
        assert row[3] == format_bytes(one.bytes)
        moments = [one.ready_ns, one.start_ns, one.end_ns, one.due_ns]
        assert row[4:8] == [f"{moment / 1000:,.3f}" for moment in moments]
        assert one.parameters[0] in row[2]
        assert one.parameters[-1] in row[2]
    chart = section.one("svg", role="img")
    end = answer.schedule[-1].end_ns
    bars = [one for one in chart.all("rect") if one.number("height") == 11 and one.all("title")]
    assert len(bars) == len(answer.transfers)
    for bar, one in zip(bars, answer.transfers, strict=True):
        assert bar.number("x") == pytest.approx(250 + 838 * one.start_ns / end, abs=0.01)
        width = 838 * (one.end_ns - one.start_ns) / end
        assert bar.number("width") == pytest.approx(width, abs=0.01)
    assert "time (µs)" in chart.text


def test_alternatives_and_methods_come_by_time(given: Report, tree: Node) -> None:
    section = tree.one("section", id="comparison")
    ways, methods = section.all("table")
    alternatives = given.answer.alternatives
    assert alternatives is not UNSET
    wanted = sorted(
        (alternative.objective_ns or 0, alternative.algorithm, alternative.mode)
        for alternative in alternatives
    )
    rows = ways.rows()
    assert sorted((row[0], row[1]) for row in rows) == sorted((a, m) for _, a, m in wanted)
    assert [row[3] for row in rows] == [format_ns(time) for time, _, _ in wanted]
    (marked,) = [row for row in ways.all("tr") if row.attributes.get("class") == "marked"]
    chosen = given.answer.synchronisation
    cells = [cell.text for cell in marked.all("th", "td")]
    assert cells[:2] == [chosen.algorithm, chosen.mode]
    planned = [row for row in given.peers.rows if row.objective_ns is not None]
    assert [row[0] for row in methods.rows()] == [one.method for one in planned]
    lengths = [one.objective_ns or 0 for one in planned]
    assert [row[3] for row in methods.rows()] == [format_ns(length) for length in lengths]
    base = next(one.objective_ns for one in planned if one.method == "ddp") or 0
    gains = [base / length for length in lengths]
    assert [row[4] for row in methods.rows()] == [f"{gain:.2f}×" for gain in gains]
    assert "bml is for servers with a NIC at each level: a bcube" in section.text
    assert "hierarchical: a single switch has no levels" in section.text


def test_sweeps_are_drawn_in_proportion(given: Report, tree: Node) -> None:
    assert given.sweeps is not None
    section = tree.one("section", id="sensitivity")
    values = (("4 Gb/s", "8 Gb/s", "16 Gb/s"), ("450 ns", "900 ns", "1.8 µs"))
    names = ("bandwidth", "startup")
    for name, chart, row in zip(names, section.all("svg", role="img"), values, strict=True):
        points: tuple[SweepPoint, ...] = getattr(given.sweeps, name)
        times = [
            (point.best_ns, point.plan_ns, point.ddp_ns or 0, point.bound_ns or 0)
            for point in points
        ]
        marks = chart.all("circle")
        for mark, (anew, kept, ddp, least) in zip(marks, times, strict=True):
            told = f"DDP with its default buckets {format_ns(ddp)}, "
            told += f"this plan, kept as it is {format_ns(kept)}, planned anew {format_ns(anew)}, "
            assert f"{told}lower bound {format_ns(least)}" in mark.text
        assert all(value in chart.text for value in row)
        assert {one.attributes["class"] for one in chart.all("path")} >= {
            f"line {kind}" for kind in ("best", "kept", "ddp", "least")
        }
        # Logarithmic: from the slowest DDP down, equal ratios are equal distances.
        line = chart.one("path", class_="line ddp").attributes["d"]
        heights = [float(place.split()[1]) for place in re.split("[ML]", line or "")[1:]]
        best = [mark.number("cy") for mark in marks]
        assert sorted(best, reverse=True) == [
            height for _, height in sorted(zip([t[0] for t in times], best, strict=True))
        ]
        for (b, _, d, _), low, high in zip(times, best, heights, strict=True):
            assert (low >= high) == (d >= b)
        assert "iteration (µs)" in chart.text


def test_sources_notes_and_the_command_are_there(tree: Node) -> None:
    origin = tree.one("section", id="origin")
    text = origin.text
    for wanted in ("made up, not measured", "a test", "a note", "assumed", "batch size"):
        assert wanted in text
    assert origin.one("code").text == "planner report 'a model.json'"


def test_memory_is_that_of_the_answer(given: Report, tree: Node) -> None:
    assert given.answer.memory is not UNSET
    needed = given.answer.memory.needed_bytes
    text = tree.one("section", id="memory").text
    assert f"needs {format_bytes(needed)}" in text
    assert "does not say how much" in text
    roomy = report(where=cluster(memory_bytes=4 * needed))
    assert "25.0% are taken" in read(page(roomy)).one("section", id="memory").text


def test_names_stay_text() -> None:
    text = page(report(model(EVIL, EVIL, EVIL), cluster(EVIL, EVIL)))
    alone(text)
    root = read(text)
    assert root.one("h1").text == f"{EVIL} on {EVIL}"
    assert EVIL in root.one("head").one("title").text
    assert root.one("section", id="origin").text.count(EVIL) >= 4
    assert EVIL in root.one("section", id="gantt").text


def test_what_no_page_may_contain_is_marked() -> None:
    text = page(report(model("a\x00b\ud800c\x1b[0m")))
    assert "a�b�c�[0m" in read(text).one("h1").text
    text.encode()


def test_without_a_plan_the_page_says_why() -> None:
    given = report(where=cluster(memory_bytes=5))
    text = page(given)
    alone(text)
    root = read(text)
    assert [one.attributes["id"] for one in root.all("section")] == [
        "verdict",
        "comparison",
        "origin",
    ]
    said = root.one("section", id="verdict").text
    assert "There is no plan" in said
    assert "What binds: memory_bytes." in said
    assert "memory: a worker needs" in said
    assert root.one("main").text.count("a worker needs") == 2  # and once of all other systems


def test_one_worker_sends_nothing() -> None:
    given = report(where=Cluster("one", "", 1, Switch(1), Nic(Fraction(1), 0)))
    root = read(page(given))
    assert "1 worker)" in root.one("section", id="verdict").text
    assert "optimal" in root.one("section", id="verdict").text


@pytest.mark.slow
def test_many_transfers_become_few_bars() -> None:
    given = report(options={"max_transfer_bytes": 100, "modes": ("replicated",)})
    transfers = given.answer.transfers
    assert len(transfers) >= 400
    root = read(page(given))
    section = root.one("section", id="gantt")
    chart = section.one("svg", role="img")
    assert len(chart.all("rect")) < 200
    titles = " ".join(one.text for one in chart.all("title"))
    pattern = r"(\d+) transfers, all-reduce (\d+) to all-reduce (\d+)"
    runs = re.findall(pattern, titles.replace(",", ","))
    assert runs
    assert all(int(count) == int(last) - int(first) + 1 for count, first, last in runs)
    assert len(section.one("table").rows()) == len(transfers)
