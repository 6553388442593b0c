"""The whole HTML page, in one file.

The same report gives the same page. There are no scripts and no external resources, and names of
profiles and clusters are escaped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from planner.families.iteration.sensitivity import SweepPoint, Sweeps
from planner.jsonio.iteration_answer import IterationAnswer, timeline
from planner.model.clusters import Cluster
from planner.model.profiles import Profile
from planner.model.units import counted, format_ns, format_rate
from planner.solving.timeline import Timeline
from planner.view.alternatives import Peers, alternative_table, methods
from planner.view.chart import Chart
from planner.view.gantt import draw_gantt
from planner.view.html import Html, drawing, element, paragraph, scrolled, style
from planner.view.origin import applying, origin
from planner.view.sections import memory, regret_table, time_parts, transfer_table, verdict
from planner.view.svg import WIDTH
from planner.view.svg_lines import line_chart, line_legend, winners
from planner.view.wording import advice_text, as_sentence, target_text


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a page."""

    answer: IterationAnswer  # the plan, its alternatives, and why it won
    profile: Profile
    cluster: Cluster
    about: str  # a line about the cluster
    job: str  # a line about sizes and computation time
    peers: Peers  # the plan and the other methods, sorted by time
    sweeps: Sweeps | None  # the results with other networks; None without a plan
    command: tuple[str, ...]  # that makes the page again
    version: str  # of planner


def page(report: Report) -> str:
    """Return the HTML page of a report."""
    title = f"{report.answer.model} on {report.answer.cluster}"
    about = f"Training plan by planner {report.version}. {report.job}. Cluster {report.about}."
    return document(f"{title}: training plan", title, about, _sections(report))


def document(name: str, title: str, about: str, sections: Iterable[Html]) -> str:
    """Return a whole page of a name (of the browser's tab), a title, a line, and sections."""
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        element("title", name),
        element("style", Html(style())),
    )
    header = element("header", element("h1", title), paragraph(about, class_="about"))
    body = element("body", header, element("main", *sections))
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"


def _sections(report: Report) -> Iterator[Html]:
    answer = report.answer
    planned = answer.objective_ns is not None
    advised = target_text(answer)[0] if answer.advice is UNSET else advice_text(answer.advice)
    advice = (paragraph(as_sentence(advised)),) if advised else ()
    conclusion = verdict(answer, report.peers)
    warnings = dict.fromkeys((*report.profile.caveats, *(answer.warnings or ())))
    sureness = [paragraph(as_sentence(text)) for text in warnings]
    steps = applying(answer, report.cluster, report.command)
    yield section("verdict", "Verdict", conclusion, *sureness, *advice, steps)
    if planned:
        yield section("time", "Where the time goes", time_parts(answer))
        yield section("gantt", "What happens when", _gantt(answer), transfer_table(answer))
    others = [element("h3", "Other methods"), *methods(report.peers, answer)]
    if answer.target is UNSET:
        title = element("h3", "Other ways of synchronising")
        others = [title, alternative_table(answer), *others]
    yield section("comparison", "Compared with alternatives", *others)
    if report.sweeps is not None:
        content = _sensitivity(report.sweeps, report.cluster)
        yield section("sensitivity", "If the network were another", *content)
    if answer.regret is not UNSET:
        yield section("regret", "If the numbers were others", regret_table(answer))
    where = origin(report.profile, report.cluster, report.about, report.command)
    yield section("origin", "Where the numbers come from", where)
    if planned:
        yield section("memory", "Memory", memory(answer))


def _gantt(answer: IterationAnswer) -> Html:
    """Return the Gantt chart of an answer with a plan."""
    shown = timeline(answer)
    ops = sum(interval.batch < 0 for interval in shown.intervals)
    what = f"{counted(ops, 'op')} and {counted(len(shown.windows), 'transfer')}"
    return gantt(Chart("", shown, answer.lower_bound_ns), what)


def gantt(chart: Chart[Timeline], what: str) -> Html:
    """Return a Gantt chart for a page; screen readers read `what` it shows."""
    label = f"Gantt chart: {what} in {format_ns(chart.view.end_ns)}"
    parts, bottom = draw_gantt(chart)
    return scrolled(drawing("wide chart", (WIDTH, bottom), *parts, label=label), label)


def section(name: str, title: str, *content: str) -> Html:
    """Return a section with a heading."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *content, id=name, aria_labelledby=f"{name}-title")


def _sensitivity(sweeps: Sweeps, cluster: Cluster) -> Iterator[Html]:
    letters = winners(sweeps)
    speed, startup = cluster.nic.bytes_per_s, cluster.nic.startup_ns
    charts: list[tuple[str, Sequence[SweepPoint], str, list[str]]] = [
        (
            "With another bandwidth",
            sweeps.bandwidth,
            "bandwidth of a NIC",
            [format_rate(speed * point.factor) for point in sweeps.bandwidth],
        ),
        (
            "With another start-up cost",
            sweeps.startup,
            "start-up cost of a step",
            [format_ns(round(startup * point.factor)) for point in sweeps.startup],
        ),
    ]
    yield paragraph(
        "Both charts ask what an iteration takes if only one number of the cluster is other than "
        "its file says. Speeds of links within hosts and of what machines share change with the "
        "bandwidth, the cost of further messages with that of start-ups. A letter says which way "
        f"of synchronising the best plan there takes, of {counted(len(letters), 'way')} in all."
    )
    shown = [
        line_chart(points, letters, title=title, axis=axis, values=row)
        for title, points, axis, row in charts
    ]
    yield element("div", *shown, class_="charts")
    yield line_legend(letters)
