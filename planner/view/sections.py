"""Sections of the page: the verdict, where the time goes, transfers, memory."""

from collections.abc import Iterable

from msgspec import UNSET

from planner.jsonio.iteration_answer import VERBS, IterationAnswer, SynchronisationAnswer
from planner.model.units import counted, format_bytes, format_ns, format_share, unit_of
from planner.view.alternatives import Peers, baseline_of, described, time_of
from planner.view.html import Html, drawing, element, joined, listed, paragraph, table
from planner.view.wording import (
    ALGORITHMS,
    MODES,
    REGRET_COLUMNS,
    abbreviated,
    about_ns,
    as_sentence,
    prospect_text,
    regret_cells,
    runner_up_text,
    scenario_text,
    scheduling_text,
    sent_text,
    target_of,
    times,
)


def verdict(answer: IterationAnswer, peers: Peers) -> Html:
    """Return the result in three sentences, or the reason why there is no plan."""
    on = f"{answer.model} on {answer.cluster} ({counted(answer.workers, 'worker')})"
    if answer.objective_ns is None:
        what = f" What binds: {', '.join(answer.binding)}." if answer.binding else ""
        return paragraph(
            element("strong", "There is no plan"),
            f" for a training iteration of {on}: {answer.reason or ''}.{what}",
            class_="verdict",
        )
    synchronisation = answer.synchronisation
    rules = ""
    if answer.target is not UNSET:
        rules = f"The plan keeps to the rules of {answer.target.version}. "
    return paragraph(
        f"A training iteration of {on} is predicted to take about ",
        element("strong", about_ns(answer.iteration_ns)),
        f" if {assumption(answer)}. ",
        "Gradients travel by ",
        *_algorithms(synchronisation),
        ", ",
        element("strong", synchronisation.mode),
        f" ({MODES[synchronisation.mode]}), in {sent_text(answer, ' and ')}. ",
        rules,
        _standing(answer, peers),
        class_="verdict",
    )


def _algorithms(synchronisation: SynchronisationAnswer) -> Iterable[Html | str]:
    """Yield the algorithms with their descriptions."""
    for place, used in enumerate(synchronisation.algorithms):
        yield " and, where that suits a transfer better, " if place else ""
        yield element("strong", used.algorithm)
        yield f" ({ALGORITHMS.get(used.algorithm, '')})"


def _standing(answer: IterationAnswer, peers: Peers) -> Html:
    """Return the distance to the bound and the speed-up over the baseline."""
    time, bound = answer.objective_ns or 0, answer.lower_bound_ns
    target = target_of(answer)
    keeping = "" if target is None else f" that keeps to the rules of {target.title}"
    how_good = ""
    if bound and answer.status == "optimal":
        how_good = joined(
            "The time is ",
            element("strong", "optimal"),
            f": no plan with this order of the computation{keeping} is shorter, whichever of the "
            "algorithms considered it takes. ",
        )
    elif bound:
        how_good = joined(
            "The time is ",
            element("strong", format_share(time / bound - 1)),
            f" above the lower bound ({about_ns(bound)}) for this order of the computation "
            "and all algorithms considered. ",
        )
    if answer.prospect is not UNSET:
        how_good = joined(how_good, as_sentence(prospect_text(answer.prospect)), " ")
    baseline = baseline_of(answer)
    base, name = time_of(peers, baseline), described(baseline, answer)
    if not base or not time:
        return joined(how_good, f"{name} has no plan here.")
    ratio = element("strong", times(base / time))
    return joined(
        how_good,
        "By the same numbers it is ",
        ratio,
        f" as fast as {name} ({about_ns(base)}).",
    )


def time_parts(answer: IterationAnswer) -> Html:
    """Return the parts of the iteration time, and what would make another plan win."""
    if answer.objective_ns is None:
        return Html("")
    if answer.why is UNSET:
        stall = answer.stall_ns
        return paragraph(
            "Of an iteration of ",
            element("strong", format_ns(answer.iteration_ns)),
            ", computation waits ",
            element("strong", format_ns(stall)),
            f" for transfers ({format_share(stall / max(answer.iteration_ns, 1))}).",
        )
    why, whole = answer.why, max(answer.iteration_ns, 1)
    parts = [
        ("backward", "computation", why.computation_ns),
        ("bytes", "waiting for bytes", max(why.exposed_bytes_ns, 0)),
        ("startups", "waiting for start-ups", max(why.exposed_startup_ns, 0)),
    ]
    rects, start = [], 0.0
    for kind, text, time in parts:
        width = 1000 * time / whole
        title = element("title", f"{text}: {format_ns(time)}")
        rect = {"x": start, "y": 0.0, "width": width, "height": 30.0}
        rects.append(element("rect", title, class_=f"{kind} apart", **rect))
        start += width
    spoken = "; ".join(f"{text} {format_ns(time)}" for _, text, time in parts)
    label = f"An iteration of {format_ns(answer.iteration_ns)}: {spoken}"
    bar = drawing("stacked", (1000, 30), *rects, label=label, preserveAspectRatio="none")
    keys = [
        joined(
            element("span", "", class_=f"key {kind}"),
            f" {text}: ",
            element("strong", format_ns(time)),
            f" ({format_share(time / whole)})",
        )
        for kind, text, time in parts
    ]
    costs = "costs no time"
    if answer.slowed_ns is not UNSET:
        costs = f"slows it down by {format_ns(answer.slowed_ns)} in all"
    sent = (
        f"The network is busy for {format_ns(answer.communication_ns)} of the "
        f"{format_ns(answer.iteration_ns)}, {format_ns(answer.startup_ns)} of that with "
        f"start-ups; what happens during the computation {costs}."
    )
    runner_up = "there is no other way of synchronising here that costs something else"
    if why.runner_up is not None:
        runner_up = runner_up_text(why.runner_up, answer.objective_ns or 0)
    scheduled = []
    if answer.scheduling is not UNSET:
        scheduled = [paragraph(as_sentence(scheduling_text(answer.scheduling)))]
    return joined(
        bar,
        listed(*keys, class_="legend"),
        paragraph(sent),
        paragraph(f"The runner-up: {runner_up}."),
        *scheduled,
    )


def assumption(answer: IterationAnswer) -> str:
    """Return the assumption of the prediction, to follow "if", and what changes it most.

    The change is the scenario of the plan's regrets whose time differs most from the planned time.
    """
    planned, given = answer.objective_ns or 0, "the profile and the cluster's file are right"
    decisive = max(answer.regret or (), key=lambda row: abs(row.plan_ns - planned), default=None)
    if decisive is None or decisive.plan_ns == planned:
        return given
    return f"{given} (if {scenario_text(decisive)}: about {about_ns(decisive.plan_ns)})"


def transfer_table(answer: IterationAnswer) -> Html:
    """Return the table of all transfers, collapsed at first."""
    transfers = answer.transfers or ()
    unit, length = unit_of(max(transfer.end_ns for transfer in transfers) // 2)
    largest = max(transfer.bytes for transfer in transfers)
    rows = []
    for number, transfer in enumerate(transfers, start=1):
        part = transfer.part or {}
        cut = ""
        if part:
            some = f"{len(part)} of them " if len(transfer.parameters) > 1 else ""
            cut = f", {some}in part"
        late = max(transfer.end_ns - transfer.due_ns, 0)
        when = (transfer.ready_ns, transfer.start_ns, transfer.end_ns, transfer.due_ns)
        rows.append(
            (
                str(number),
                VERBS[transfer.kind],
                abbreviated(transfer.parameters) + cut,
                format_bytes(transfer.bytes, largest),
                *(f"{time / length:,.3f}" for time in when),
                f"{late / length:,.3f}" if late else "–",
            )
        )
    moments = (f"{name} ({unit})" for name in ("ready", "start", "end", "due", "past due"))
    header = ("no.", "kind", "parameters", "size", *moments)
    return element(
        "details",
        element("summary", f"All {counted(len(rows), 'transfer')}, with their times"),
        table(
            "Transfers in the order in which they leave", header, rows, words=3, class_="transfers"
        ),
        paragraph(
            "Times count from the start of the backward pass. A transfer is ready when its last "
            "gradient is (a pull, when the backward pass and the pushes of its parameters have "
            "ended), and due when the next forward pass needs it.",
            class_="note",
        ),
    )


def regret_table(answer: IterationAnswer) -> Html:
    """Return the table of regrets with an explanation."""
    return joined(
        paragraph(
            "The unchanged plan, and the best plan found for these numbers. The regret is how "
            "much longer it takes than the best plan there is: at least by what it takes longer "
            "than the best one found, at most by what it exceeds the lower bound."
        ),
        table(
            "The plan if the numbers are others",
            REGRET_COLUMNS,
            list(map(regret_cells, answer.regret or ())),
        ),
    )


def memory(answer: IterationAnswer) -> Html:
    """Return the memory that a worker needs and has."""
    if answer.memory is UNSET:
        return paragraph("The profile has no sizes to say it by.")
    needed, have = answer.memory.needed_bytes, answer.memory.available_bytes
    most = max(needed, have or 0)
    if have is None:
        room = "The cluster file does not say how much there is."
    else:
        room = f"It has {format_bytes(have, most)}: {needed / have:.1%} are taken."
    return joined(
        paragraph(f"A worker needs {format_bytes(needed, most)}. {room}"),
        paragraph(
            "Counted are parameters, gradients, the optimiser's state, the activations of one "
            "iteration and the largest transfer; an allocator takes more.",
            class_="note",
        ),
    )
