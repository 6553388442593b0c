"""The page: whole, self-contained, and as the answer says."""

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from planner.model.clusters import Cluster, Nic
from planner.model.topologies import Switch
from planner.model.units import format_bytes, format_ns
from planner.view.origin import steps
from planner.view.page import Report, page
from planner.view.sections import assumption
from planner.view.wording import about_ns, scenario_text
from tests.report.making import cluster, model, report
from tests.report.reading import Node, read

EVIL = '<script>alert("1")</script>&amp;\'"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def given() -> Report:
    return report()


@pytest.fixture(scope="module")
def answer(given: Report) -> Any:
    return given.answer


@pytest.fixture(scope="module")
def tree(given: Report) -> Node:
    return read_alone(given)


def read_alone(given: Report) -> Node:
    """Return the page as a tree; fail if anything is fetched or anything runs."""
    root = read(page(given))
    fetching = ("script", "link", "img", "iframe", "object", "embed", "image", "use", "base")
    assert not root.all(*fetching)
    for one in root.all():
        for key, value in one.attributes.items():
            assert key not in ("src", "href", "srcset", "action", "data", "style", "xlink:href")
            assert not key.startswith("on"), key
            assert "http" not in (value or ""), (one.name, key)
            assert "url(" not in (value or "")
    (style,) = root.all("style")
    for fetched in ("@import", "http", "@font-face"):
        assert fetched not in style.text
    assert set(re.findall(r"url\([^)]*\)", style.text)) <= {"url(#gantt-hatch)"}
    return root


def test_it_is_whole_and_the_same_again(given: Report, tree: Node) -> None:
    assert page(given) == page(report())
    assert tree.one("html").attributes["lang"] == "en"
    assert tree.one("head").one("title").text == "tiny on four: training plan"
    assert "planner 1.2.3" in tree.one("header").text
    sections = [one.attributes["id"] for one in tree.all("section")]
    shown = ["verdict", "time", "gantt", "comparison", "sensitivity", "regret", "origin", "memory"]
    assert sections == shown
    assert "prefers-color-scheme:dark" in tree.one("style").text
    assert "@media print" in tree.one("style").text


def test_names_pictures_and_tables_speak(tree: Node) -> None:
    names = [one.attributes["id"] for one in tree.all() if "id" in one.attributes]
    assert len(set(names)) == len(names)
    for one in tree.all():
        assert one.attributes.get("aria-labelledby", names[0]) in names
    for picture in tree.all("svg"):
        if picture.attributes.get("aria-hidden") != "true":
            assert picture.attributes["role"] == "img"
            assert picture.attributes["aria-label"]
        assert not picture.all("svg")
    assert len(tree.all("table")) == 4
    for table in tree.all("table"):
        assert table.one("caption").text
        header = table.one("thead").all("th")
        assert all(one.attributes["scope"] == "col" for one in header)
        for row in table.one("tbody").all("tr"):
            first, *others = row.all("th", "td")
            assert first.attributes["scope"] == "row"
            assert len(others) == len(header) - 1


def test_the_verdict_has_the_numbers_of_the_answer(given: Report, answer: Any, tree: Node) -> None:
    text, cost, bound = tree.section("verdict").text, answer.objective_ns, answer.lower_bound_ns
    assert f"is predicted to take about {about_ns(cost)} if " in text
    assert f"travel by {answer.synchronisation.algorithm} (" in text
    assert answer.synchronisation.mode in text
    ddp: Any = next(row.objective_ns for row in given.peers.rows if row.method == "ddp")
    assert f"{ddp / cost:.2f}× as fast as PyTorch DDP" in text
    assert f"({about_ns(ddp)})" in text
    assert cost == bound
    assert "The time is optimal" in text
    assert not answer.advice.keep_ddp
    assert f"Worth trying: {ddp / cost:.2f} times as fast as DDP" in text
    assert format_ns(answer.advice.ddp_ns) in text


def test_regrets_are_those_of_the_answer(answer: Any, tree: Node) -> None:
    rows = tree.section("regret").one("table").rows()
    assert len(rows) == len(answer.regret) == 7
    for row, one in zip(rows, answer.regret, strict=True):
        assert row[1:3] == [format_ns(one.plan_ns), format_ns(one.best_ns)]
        assert row[4:] == [format_ns(one.ddp_ns), format_ns(one.layers_ns)]
    assert [row[0] for row in rows[:2]] == ["computation × 0.8", "computation × 1.2"]


def test_the_stacked_bar_is_the_time(answer: Any, tree: Node) -> None:
    why, section = answer.why, tree.section("time")
    widths = [one.number("width") for one in section.one("svg", class_="stacked").all("rect")]
    parts = [why.computation_ns, why.exposed_bytes_ns, why.exposed_startup_ns]
    assert sum(parts) == answer.iteration_ns
    assert widths == pytest.approx([1000 * part / sum(parts) for part in parts], abs=0.01)
    for one in parts:
        assert format_ns(one) in section.text
    assert why.runner_up.algorithm in section.text


def test_transfers_are_listed_and_drawn_when_they_happen(answer: Any, tree: Node) -> None:
    section = tree.section("gantt")
    for row, one in zip(section.one("table").rows(), answer.transfers, strict=True):
        assert row[1] == one.kind.replace("_", "-")
        assert row[3] == format_bytes(one.bytes)
        moments = [one.ready_ns, one.start_ns, one.end_ns, one.due_ns]
        assert row[4:8] == [f"{moment / 1000:,.3f}" for moment in moments]
        assert one.parameters[0] in row[2]
        assert one.parameters[-1] in row[2]
    chart = section.one("svg", role="img")
    end = answer.schedule[-1].end_ns
    bars = [one for one in chart.all("rect") if one.number("height") == 11 and one.all("title")]
    for bar, one in zip(bars, answer.transfers, strict=True):
        assert bar.number("x") == pytest.approx(250 + 838 * one.start_ns / end, abs=0.01)
        width = 838 * (one.end_ns - one.start_ns) / end
        assert bar.number("width") == pytest.approx(width, abs=0.01)
    assert "time (µs)" in chart.text


def test_alternatives_and_methods_come_by_time(given: Report, answer: Any, tree: Node) -> None:
    section = tree.section("comparison")
    ways, methods = section.all("table")
    wanted = sorted((one.objective_ns or 0, one.algorithm, one.mode) for one in answer.alternatives)
    rows = ways.rows()
    assert sorted((row[0], row[1]) for row in rows) == sorted((a, m) for _, a, m in wanted)
    assert [row[3] for row in rows] == [format_ns(time) for time, _, _ in wanted]
    marked = ways.one("tr", class_="marked").all("th", "td")
    chosen = answer.synchronisation
    assert [cell.text for cell in marked[:2]] == [chosen.algorithm, chosen.mode]
    planned: list[Any] = [row for row in given.peers.rows if row.objective_ns is not None]
    base = next(one.objective_ns for one in planned if one.method == "ddp")
    assert [[row[0], row[3], row[4]] for row in methods.rows()] == [
        [one.method, format_ns(one.objective_ns), f"{base / one.objective_ns:.2f}×"]
        for one in planned
    ]
    assert "bml is for servers with a NIC at each level: a bcube" in section.text
    assert "hierarchical: a single switch has no levels" in section.text


@pytest.mark.parametrize(
    ("place", "name", "values"),
    [
        (0, "bandwidth", ("4 Gb/s", "8 Gb/s", "16 Gb/s")),
        (1, "startup", ("450 ns", "900 ns", "1.8 µs")),
    ],
)
def test_sweeps_are_drawn_in_proportion(
    place: int, name: str, values: tuple[str, ...], given: Report, tree: Node
) -> None:
    chart = tree.section("sensitivity").all("svg", role="img")[place]
    points = getattr(given.sweeps, name)
    marks = chart.all("circle")
    told = ("DDP with its default buckets", "this plan, kept as it is", "planned anew")
    for mark, point in zip(marks, points, strict=True):
        times = map(format_ns, (point.ddp_ns, point.plan_ns, point.best_ns, point.bound_ns))
        assert (
            ", ".join(map(" ".join, zip((*told, "lower bound"), times, strict=True))) in mark.text
        )
    assert all(value in chart.text for value in (*values, "iteration (µs)"))
    kinds = {one.attributes["class"] for one in chart.all("path")}
    assert kinds >= {"line best", "line kept", "line ddp", "line least"}
    # Logarithmic: from the slowest DDP down, equal ratios are equal distances.
    drawn = chart.one("path", class_="line ddp").attributes["d"]
    heights = [float(point.split()[1]) for point in re.split("[ML]", drawn)[1:]]
    best = [mark.number("cy") for mark in marks]
    by_time = sorted(zip([point.best_ns for point in points], best, strict=True))
    assert sorted(best, reverse=True) == [height for _, height in by_time]
    for point, low, high in zip(points, best, heights, strict=True):
        assert (low >= high) == (point.ddp_ns >= point.best_ns)


def test_sources_notes_and_memory_are_those_given(answer: Any, tree: Node) -> None:
    origin = tree.section("origin")
    for wanted in ("made up, not measured", "a test", "a note", "assumed", "batch size"):
        assert wanted in origin.text
    assert origin.one("code").text == "planner report 'a model.json'"
    needed = answer.memory.needed_bytes
    assert f"needs {format_bytes(needed)}" in tree.section("memory").text
    assert "does not say how much" in tree.section("memory").text
    roomy = report(where=cluster(memory_bytes=4 * needed))
    assert "25.0% are taken" in read(page(roomy)).section("memory").text
    alone = report(where=Cluster("one", "", 1, Switch(1), Nic(Fraction(1), 0)))
    assert "one (1 worker) is predicted" in read(page(alone)).section("verdict").text


def test_names_stay_text() -> None:
    root = read_alone(report(model(EVIL, EVIL, EVIL), cluster(EVIL, EVIL)))
    assert root.one("h1").text == f"{EVIL} on {EVIL}"
    assert EVIL in root.one("head").one("title").text
    assert root.section("origin").text.count(EVIL) >= 4
    assert EVIL in root.section("gantt").text
    odd = page(report(model("a\x00b\ud800c\x1b[0m")))
    assert "a�b�c�[0m" in read(odd).one("h1").text
    odd.encode()


def test_without_a_plan_the_page_says_why_and_has_no_steps() -> None:
    given = report(where=cluster(memory_bytes=5))
    root = read_alone(given)
    sections = [one.attributes["id"] for one in root.all("section")]
    assert sections == ["verdict", "comparison", "origin"]
    said = root.section("verdict").text
    assert "There is no plan" in said
    assert "What binds: memory_bytes." in said
    assert "memory: a worker needs" in said
    assert root.one("main").text.count("a worker needs") == 2  # and once of all other systems
    assert not list(steps(given.answer, given.cluster, given.command))
    assert "How to apply" not in root.text


@drawn(st.integers(1, 10**12))
def test_rounding_is_off_by_half_a_unit_at_most(time: int) -> None:
    value, unit = about_ns(time).split()
    scale = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9}[unit]
    assert abs(float(value) * scale - time) <= 0.5000001 * 10 ** max(len(str(time)) - 2, 0)
    assert len(value.replace(".", "").strip("0")) <= 2


def test_the_assumption_is_the_scenario_that_changes_most(answer: Any) -> None:
    planned = answer.objective_ns
    same = [with_fields(row, plan_ns=planned) for row in answer.regret]
    for place, decisive in enumerate(answer.regret):
        rows = [*same]
        rows[place] = with_fields(decisive, plan_ns=10 * planned)
        text = assumption(with_fields(answer, regret=tuple(rows)))
        assert f"(if {scenario_text(decisive)}: about {about_ns(10 * planned)})" in text
    assert assumption(with_fields(answer, regret=tuple(same))).endswith("file are right")


def test_warnings_of_the_profile_stand_in_the_verdict() -> None:
    origin = replace(model().provenance, warnings=("it was busy",))
    noisy = report(replace(model(), provenance=origin))
    repeated = with_fields(noisy.answer, warnings=noisy.profile.caveats)
    for given in (noisy, replace(noisy, answer=repeated)):
        tree = read(page(given))
        assert tree.section("verdict").text.count("may be off: it was busy.") == 1
    assert "Warning: it was busy" in tree.section("origin").text


def test_ddp_is_kept_where_that_is_the_advice(given: Report, answer: Any) -> None:
    advice = with_fields(answer.advice, keep_ddp=True, bucket_cap_mb=5)
    told = steps(with_fields(answer, advice=advice), given.cluster, given.command)
    assert [how for _, how in told] == ["model = DistributedDataParallel(model, bucket_cap_mb=5)"]
    first, *others = (how for _, how in steps(answer, given.cluster, given.command))
    assert first == "planner plan 'a model.json' -o plan.json"
    assert not any("DistributedDataParallel" in how for how in others)
