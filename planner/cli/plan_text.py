"""What ``planner plan`` says of a plan: what was chosen, why, and what else there is."""

from collections.abc import Iterator

from msgspec import UNSET

from planner.cli.family import percent, provenance
from planner.cli.iteration_options import Subject
from planner.clusters import Cluster
from planner.draw import format_table
from planner.iteration import Problem
from planner.jsonio.iteration_answer import (
    AlternativeAnswer,
    CandidateAnswer,
    IterationAnswer,
    SchedulingAnswer,
    SizingAnswer,
    TransferAnswer,
    Why,
)
from planner.printing import printable
from planner.report.words import CHANGES, VERBS
from planner.topologies import BCube, FatTree, Rails
from planner.units import counted, format_bytes, format_factor, format_ns

__all__ = ["about_cluster", "lines", "sentence"]


def lines(subject: Subject, problem: Problem, given: IterationAnswer) -> Iterator[str]:
    """Yield the lines, from what was planned for to what was left out."""
    graph, scale = problem.graph, subject.options["computation"]
    computes = problem.base.windows.compute_ns
    yield (
        f"{printable(subject.profile.name)}: {counted(len(graph.parameters), 'parameter')}, "
        f"{format_bytes(sum(problem.pushed))} of gradients, {format_ns(computes)} to compute"
        + ("" if scale == 1 else f" (× {scale} of the profile)")
    )
    yield provenance(subject.profile)
    yield f"cluster: {about_cluster(subject.cluster)}"
    yield ""
    if given.sizing is not UNSET:
        yield from _sizes(given, given.sizing)
        yield ""
    yield from _plan(given)
    if given.scheduling is not UNSET:
        yield _scheduled(given.scheduling)
    if given.alternatives is not UNSET and given.objective_ns is not None:
        yield ""
        yield format_table(*_table(given, given.alternatives))
        yield from _without(given.alternatives)
    if given.left_out is not UNSET:
        for name, reason in given.left_out.items():
            yield f"left out: {name} ({reason})"


def about_cluster(cluster: Cluster) -> str:
    """Return one line about a cluster."""
    topology, nic = cluster.topology, cluster.nic
    kind = "one switch"
    if isinstance(topology, BCube):
        kind = f"BCube({topology.n},{topology.k})"
    elif isinstance(topology, FatTree):
        kind = f"Fat-Tree of {topology.ports}-port switches"
    elif isinstance(topology, Rails):
        kind = f"{topology.accelerators} accelerators and rails a host"
    shared = cluster.shared_bytes_per_s
    return (
        f"{printable(cluster.name)}: {counted(cluster.workers, 'worker')}, {kind}, "
        f"{nic.per_machine} × {_rate(float(nic.bytes_per_s))} a machine, start-up "
        f"{format_ns(nic.startup_ns)}" + (f", {_rate(float(shared))} shared" if shared else "")
    )


def _rate(bytes_per_s: float) -> str:
    bits = 8 * bytes_per_s
    for scale, unit in ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")):
        if bits >= scale:
            return f"{bits / scale:.4g} {unit}"
    return f"{bits:.4g} b/s"


def sentence(given: IterationAnswer) -> str:
    """Return how transfers travel: what is sent, how often, by which algorithm."""
    assert given.synchronisation is not UNSET
    assert given.transfers is not UNSET
    one = given.synchronisation
    return f"{one.algorithm}, {one.mode}: {_counted(given.transfers)}"


def _counted(transfers: tuple[TransferAnswer, ...]) -> str:
    counts = {
        kind: sum(one.kind == kind for one in transfers) for kind in ("all_reduce", "push", "pull")
    }
    return ", ".join(
        f"{count} {VERBS[kind]}{'' if count == 1 else 'es' if kind == 'push' else 's'}"
        for kind, count in counts.items()
        if count
    )


def _plan(given: IterationAnswer) -> Iterator[str]:
    if given.objective_ns is None or given.iteration_ns is UNSET:
        reason = "" if given.reason is UNSET else given.reason
        yield f"{given.status}: {reason}"
        return
    yield f"plan ({given.method}): {sentence(given)}"
    total = format_ns(given.iteration_ns)
    if given.why is not UNSET:
        yield f"iteration {total} = {_parts(given.why)}"
    else:
        assert given.stall_ns is not UNSET
        yield f"iteration {total}, of which computation waits {format_ns(given.stall_ns)}"
    if given.lower_bound_ns is not None:
        gap = given.objective_ns / given.lower_bound_ns - 1 if given.lower_bound_ns else 0.0
        text = f"{given.status}: {percent(gap)} above the bound {format_ns(given.lower_bound_ns)}"
        if given.network_bound_ns is not UNSET and given.network_bound_ns:
            least = given.objective_ns / given.network_bound_ns - 1
            text += f", {percent(least)} above what any algorithm needs on this network"
        yield text
    if given.memory is not UNSET:
        have = given.memory.available_bytes
        room = "" if have is None else f" of {format_bytes(have)}"
        yield f"memory: {format_bytes(given.memory.needed_bytes)}{room} a worker"
    if given.why is not UNSET and given.why.runner_up is not None:
        yield _runner_up(given.why, given.objective_ns)


def _sizes(given: IterationAnswer, sizing: SizingAnswer) -> Iterator[str]:
    among = "" if sizing.proven else ", of the numbers that were planned in time"
    yield (
        f"{given.machines} of {sizing.at_most} machines make the shortest epoch of "
        f"{counted(sizing.epoch_samples, 'sample')}{among}"
    )
    header = ("machines", "iterations", "epoch by Yan's model", "bound", "epoch as planned")
    rows = [
        (
            str(one.machines),
            f"{one.iterations:,}",
            format_ns(one.yan_epoch_ns),
            "–" if one.bound_epoch_ns is None else format_ns(one.bound_epoch_ns),
            _epoch(one),
        )
        for one in sizing.candidates
    ]
    yield format_table(header, rows)


def _epoch(one: CandidateAnswer) -> str:
    if one.epoch_ns is not None:
        return format_ns(one.epoch_ns)
    return "no plan" if one.bound_epoch_ns is None else "not needed"


def _scheduled(given: SchedulingAnswer) -> str:
    if given.group_size is None or given.iteration_ns is None or given.overhead is None:
        return f"scheduling: no group size, {'' if given.reason is UNSET else given.reason}"
    return (
        f"scheduling: groups of {counted(given.group_size, 'iteration')}, "
        f"{percent(given.overhead)} overhead, "
        f"{format_ns(given.iteration_ns)} an iteration with it, {given.speedup:.2f}x groups of one"
    )


def _parts(why: Why) -> str:
    return (
        f"{format_ns(why.computation_ns)} computation + "
        f"{format_ns(max(why.exposed_bytes_ns, 0))} waiting for bytes + "
        f"{format_ns(max(why.exposed_startup_ns, 0))} for start-ups"
    )


def _runner_up(why: Why, objective_ns: int) -> str:
    other = why.runner_up
    assert other is not None
    longer = other.objective_ns / objective_ns - 1 if objective_ns else 0.0
    if not longer:
        return f"next: {other.algorithm}, {other.mode}, equally long"
    text = f"next: {other.algorithm}, {other.mode}, {percent(longer)} longer; "
    if other.dominated_by is not None:
        return f"{text}{other.dominated_by} costs no more for any size, so it can never win"
    if not other.wins_if:
        return (
            text + "no cost of start-ups or messages, no bandwidth makes it win (× 1/1024 … 1024)"
        )
    ways = " or ".join(f"{CHANGES[one.what]} {format_factor(one.factor)}" for one in other.wins_if)
    return f"{text}it would win if {ways}"


def _table(
    given: IterationAnswer, alternatives: tuple[AlternativeAnswer, ...]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    header = ("algorithm", "mode", "transfers", "iteration", "longer", "above its bound")
    rows: list[tuple[str, ...]] = []
    for one in sorted(
        alternatives, key=lambda one: (one.objective_ns is None, one.objective_ns or 0)
    ):
        if one.objective_ns is None or not given.objective_ns:
            rows.append((one.algorithm, one.mode, "–", "–", "–", "–"))
            continue
        bound = one.lower_bound_ns
        rows.append(
            (
                one.algorithm,
                one.mode,
                str(one.transfers),
                format_ns(one.objective_ns),
                percent(one.objective_ns / given.objective_ns - 1),
                percent(one.objective_ns / bound - 1) if bound else "?",
            )
        )
    return header, rows


def _without(alternatives: tuple[AlternativeAnswer, ...]) -> Iterator[str]:
    """Yield why some have no plan, each reason once."""
    reasons: dict[str, list[str]] = {}
    for one in alternatives:
        if one.reason is not UNSET:
            reasons.setdefault(one.reason, []).append(f"{one.algorithm} {one.mode}")
    for reason, names in reasons.items():
        yield f"no plan: {', '.join(names)} ({reason})"
