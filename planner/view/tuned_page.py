"""The page of ``planner tune``: what to set, how sure its gain is, and three steps on one axis.

The same proposal gives the same page. There are no scripts and no external resources.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from planner.model.units import format_bytes
from planner.solving.timeline import Timeline
from planner.traces.proposals import Proposal
from planner.view.chart import Chart
from planner.view.html import Html, element, joined, listed, paragraph, table
from planner.view.page import document, gantt, section
from planner.view.tuned_text import (
    PART_COLUMNS,
    check_text,
    gain_text,
    part_rows,
    recorded_text,
    sent,
    settings_texts,
    verdict_of,
)
from planner.view.wording import as_sentence, times


@dataclass(frozen=True, slots=True)
class TunedReport:
    """The content of a page."""

    proposal: Proposal
    settings: Mapping[str, Any] | None  # of the target, if they are worth setting
    steps: Timeline  # as recorded, as predicted, and as planned
    traces: tuple[str, ...]  # names of their files
    warnings: tuple[str, ...]
    command: tuple[str, ...]  # that makes the page again
    version: str  # of planner


def tuned_page(report: TunedReport) -> str:
    """Return the HTML page of a proposal."""
    title, target = "Settings for a recorded job", report.proposal.target
    traces = ", ".join(report.traces)
    about = f"From {traces} for {target.title} ({target.version}), by planner {report.version}."
    return document(title, title, about, _sections(report))


def _sections(report: TunedReport) -> Iterator[Html]:
    proposal, traces = report.proposal, len(report.traces)
    yield section("verdict", "Verdict", *_verdict(report))
    shown = gantt(Chart("", report.steps), "a step as recorded, as predicted, and as planned")
    about = (
        f"{as_sentence(recorded_text(proposal, traces))} Each step begins with its forward pass. "
        "Optimiser and host come in addition to the predicted and the planned one."
    )
    yield section("gantt", "What happens when", paragraph(about), shown)
    parts = table("Parts of a recorded step", PART_COLUMNS, part_rows(proposal))
    yield section("time", "Where the time goes", parts)
    name = f"{sent(proposal).capitalize()}s"
    yield section("buckets", name, *_buckets(proposal))
    yield section("sure", "How sure it is", *_sureness(proposal))
    again = element("pre", element("code", shlex.join(report.command)))
    yield section("origin", "This page again", again)


def _verdict(report: TunedReport) -> Iterator[Html]:
    says, settings, remarks = verdict_of(report.proposal, report.settings)
    yield paragraph(element("strong", as_sentence(says)), class_="verdict")
    yield paragraph(as_sentence(gain_text(report.proposal)))
    if settings:
        yield element("pre", element("code", settings))
    notes = (*remarks, *(f"warning: {text}" for text in report.warnings))
    if notes:
        yield listed(*map(as_sentence, notes), class_="notes")


def _buckets(proposal: Proposal) -> Iterator[Html]:
    before, after = settings_texts(proposal)
    yield paragraph(as_sentence(f"recorded: {before}; planned: {after}"))
    both = (proposal.buckets, proposal.proposed)
    sizes = ([format_bytes(size) for size in each] for each in both)
    rows = [
        (str(number), before, after)
        for number, (before, after) in enumerate(zip_longest(*sizes, fillvalue=""), 1)
    ]
    columns = (sent(proposal), "recorded", "planned")
    every = table("In the order in which they are sent", columns, rows)
    yield joined(element("details", element("summary", "Each of them"), every))


def _sureness(proposal: Proposal) -> Iterator[Html]:
    yield paragraph(
        f"The recorded step under its own buckets: {check_text(proposal)}. That, and what "
        "predicted gains of buckets miss elsewhere, makes the interval of the gain as wide as it "
        f"is, {times(proposal.least_gain)} to {times(proposal.most_gain)}."
    )
    if not proposal.contention:
        yield paragraph(
            "Transfers take processor time from computation here, and traces do not say how much: "
            "the interval reaches from none to all of their time."
        )
