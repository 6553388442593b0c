"""What the page says of the plan: the verdict, where the time goes, the transfers, alternatives."""

from collections.abc import Sequence

from msgspec import UNSET

from planner.jsonio.iteration_answer import AlternativeAnswer, IterationAnswer, Why
from planner.report.html import Html, element, joined, listed, paragraph, table
from planner.report.peers import BASELINE, Peer, time_of
from planner.report.words import (
    ALGORITHMS,
    CHANGES,
    METHODS,
    MODES,
    VERBS,
    abbreviated,
    counted,
    percent,
    times,
)
from planner.units import format_bytes, format_factor, format_ns, unit_of

__all__ = ["alternative_table", "reasons", "time_parts", "transfer_table", "verdict"]


def verdict(given: IterationAnswer, peers: tuple[Peer, ...]) -> Html:
    """Return what was found, in three sentences; of no plan, why there is none."""
    on = f"{given.model} on {given.cluster} ({counted(given.workers, 'worker')})"
    if given.synchronisation is UNSET or given.iteration_ns is UNSET:
        reason = "" if given.reason is UNSET else given.reason
        binding = () if given.binding is UNSET else given.binding
        what = f" What binds: {', '.join(binding)}." if binding else ""
        return paragraph(
            element("strong", "There is no plan"),
            f" for a training iteration of {on}: {reason}.{what}",
            class_="verdict",
        )
    one, transfers = given.synchronisation, () if given.transfers is UNSET else given.transfers
    kinds = [
        counted(count, name, f"{name}es" if kind == "push" else None)
        for kind, name in VERBS.items()
        if (count := sum(each.kind == kind for each in transfers))
    ]
    return paragraph(
        f"A training iteration of {on} takes ",
        element("strong", format_ns(given.iteration_ns)),
        ". ",
        "Gradients travel by ",
        element("strong", one.algorithm),
        f" ({ALGORITHMS.get(one.algorithm, '')}), ",
        element("strong", one.mode),
        f" ({MODES[one.mode]}), in {' and '.join(kinds)}. ",
        _standing(given, peers),
        class_="verdict",
    )


def _standing(given: IterationAnswer, peers: tuple[Peer, ...]) -> Html:
    """Return how good that is: the distance to the bound, and the speed-up."""
    time, bound = given.objective_ns or 0, given.lower_bound_ns
    how_good = ""
    if bound and given.status == "optimal":
        how_good = joined(
            "The time is ",
            element("strong", "optimal"),
            ": no plan with this order of the computation is shorter, whichever of the algorithms "
            "considered it takes. ",
        )
    elif bound:
        how_good = joined(
            "The time is ",
            element("strong", percent(time / bound - 1)),
            f" above {format_ns(bound)}, the lower bound for this order of the computation and all "
            "algorithms considered. ",
        )
    base, name = time_of(peers, BASELINE), METHODS[BASELINE]
    if not base or not time:
        return joined(how_good, f"{name} has no plan here.")
    ratio = element("strong", times(base / time))
    return joined(how_good, "It is ", ratio, f" as fast as {name} ({format_ns(base)}).")


def time_parts(given: IterationAnswer) -> Html:
    """Return where the time goes, as a bar and in numbers, and what would make another plan win."""
    if given.why is UNSET or given.iteration_ns is UNSET:
        return Html("")
    why, whole = given.why, max(given.iteration_ns, 1)
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
    said = "; ".join(f"{text} {format_ns(time)}" for _, text, time in parts)
    bar = element(
        "svg",
        *rects,
        viewBox="0 0 1000 30",
        preserveAspectRatio="none",
        class_="stacked",
        role="img",
        aria_label=f"An iteration of {format_ns(given.iteration_ns)}: {said}",
    )
    keys = [
        joined(
            element("span", "", class_=f"key {kind}"),
            f" {text}: ",
            element("strong", format_ns(time)),
            f" ({_share(time / whole)})",
        )
        for kind, text, time in parts
    ]
    sent = ""
    if given.communication_ns is not UNSET and given.startup_ns is not UNSET:
        sent = (
            f"The network is busy for {format_ns(given.communication_ns)} of the "
            f"{format_ns(given.iteration_ns)}, {format_ns(given.startup_ns)} of that with "
            "start-ups; what happens beside the computation costs no time."
        )
    return joined(
        bar,
        listed(*keys, class_="legend"),
        paragraph(sent),
        _change(why, given),
        _scheduled(given),
    )


def _change(why: Why, given: IterationAnswer) -> Html:
    other, time = why.runner_up, given.objective_ns
    if other is None or not time:
        return paragraph("There is no other way of synchronising here that costs something else.")
    about = f"The runner-up is {other.algorithm}, {other.mode}: {format_ns(other.objective_ns)}, "
    if other.objective_ns == time:
        return paragraph(f"{about}equally long.")
    about += f"{percent(other.objective_ns / time - 1)} longer. "
    if other.dominated_by is not None:
        return paragraph(
            about,
            f"Transfers by {other.dominated_by} cost no more for any size, so it can never win.",
        )
    if not other.wins_if:
        return paragraph(
            about,
            "No other start-up cost, cost of further messages or bandwidth, from 1/1024 to 1024 "
            "times today's, makes it win while both plans stay as they are.",
        )
    if_text = ", or if ".join(
        f"{CHANGES[one.what]} {format_factor(one.factor)}" for one in other.wins_if
    )
    return paragraph(about, f"It would win if {if_text}, both plans staying as they are.")


def _scheduled(given: IterationAnswer) -> Html:
    """Return how the engine's driver schedules iterations, if it does."""
    if given.scheduling is UNSET:
        return Html("")
    one = given.scheduling
    if one.group_size is None or one.iteration_ns is None:
        why_not = "" if one.reason is UNSET else one.reason
        return paragraph(f"The engine's driver can schedule no group of iterations: {why_not}.")
    return paragraph(
        "The engine's driver schedules iterations too: in groups of "
        f"{one.group_size:,} an iteration takes {format_ns(one.iteration_ns)}, "
        f"{percent(one.overhead or 0)} of that for scheduling."
    )


def transfer_table(given: IterationAnswer) -> Html:
    """Return the table of all transfers, folded up."""
    transfers = () if given.transfers is UNSET else given.transfers
    unit, length = unit_of(max(one.end_ns for one in transfers) // 2)
    rows = []
    for number, one in enumerate(transfers, start=1):
        part = {} if one.part is UNSET else one.part
        cut = f", {counted(len(part), 'of them', 'of them')} in part" if len(part) > 1 else ""
        cut = ", in part" if part and len(one.parameters) == 1 else cut
        cut = ", one of them in part" if len(part) == 1 < len(one.parameters) else cut
        late = max(one.end_ns - one.due_ns, 0)
        when = (one.ready_ns, one.start_ns, one.end_ns, one.due_ns)
        rows.append(
            (
                str(number),
                VERBS[one.kind],
                abbreviated(one.parameters) + cut,
                format_bytes(one.bytes),
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
            "gradient is (a pull, when its parameters were pushed), and due when the next forward "
            "pass needs it.",
            class_="note",
        ),
    )


def alternative_table(given: IterationAnswer) -> Html:
    """Return all ways of synchronising, the fastest first, and those the cluster does not allow."""
    listed_ones = () if given.alternatives is UNSET else given.alternatives
    ordered = sorted(listed_ones, key=lambda one: (one.objective_ns is None, one.objective_ns or 0))
    rows = [_alternative(one, given.objective_ns) for one in ordered]
    place = None
    if given.synchronisation is not UNSET:
        chosen = (given.synchronisation.algorithm, given.synchronisation.mode)
        keys = [(one.algorithm, one.mode) for one in ordered]
        place = keys.index(chosen) if chosen in keys else None
    header = ("algorithm", "mode", "transfers", "iteration", "longer", "above its bound")
    shown = table("Ways of synchronising", header, rows, words=2, marked=place)
    if given.objective_ns is None:
        shown = Html("")
    why = [
        (one.algorithm, one.reason)
        for one in ordered
        if one.reason is not UNSET and one.reason != given.reason  # the verdict has said that
    ]
    left = {} if given.left_out is UNSET else given.left_out
    return joined(shown, reasons("Left out:", [*why, *left.items()]))


def reasons(title: str, pairs: Sequence[tuple[str, str]]) -> Html:
    """Return who has no plan and why, what has one reason together; nothing if all have one."""
    known: dict[str, dict[str, None]] = {}
    for name, reason in pairs:
        known.setdefault(reason, {})[name] = None
    if not known:
        return Html("")
    items = [
        joined(element("b", ", ".join(names)), f": {reason}") for reason, names in known.items()
    ]
    return joined(paragraph(title, class_="note"), listed(*items, class_="note"))


def _alternative(one: AlternativeAnswer, chosen_ns: int | None) -> tuple[str, ...]:
    if one.objective_ns is None:
        return (one.algorithm, one.mode, "–", "–", "–", "–")
    longer = percent(one.objective_ns / chosen_ns - 1) if chosen_ns else "–"
    bound = one.lower_bound_ns
    above = percent(one.objective_ns / bound - 1) if bound else "–"
    return (
        one.algorithm,
        one.mode,
        f"{one.transfers:,}" if one.transfers is not None else "–",
        format_ns(one.objective_ns),
        longer,
        above,
    )


def _share(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
