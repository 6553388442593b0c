"""The text of ``planner plan``: the plan, its bound, and the alternatives."""

from collections.abc import Iterator

from msgspec import UNSET

from planner.cli.compare_tables import lines_below, provenance, warning_lines
from planner.cli.iteration_options import Job
from planner.families.iteration import Problem
from planner.jsonio.iteration_answer import IterationAnswer, WhyAnswer
from planner.model.clusters import Cluster
from planner.model.topologies import BCube, FatTree, Rails
from planner.model.units import (
    counted,
    format_bytes,
    format_ns,
    format_rate,
    format_share,
    printable,
)
from planner.view.alternatives import ALTERNATIVES, alternative_rows
from planner.view.table import format_table
from planner.view.wording import by_reason, runner_up_text, scheduling_text, sent_text


def lines(job: Job, problem: Problem, answer: IterationAnswer, file: str | None) -> Iterator[str]:
    """Yield the lines of the text, from the job to the left-out algorithms."""
    known = job.profile.caveats
    yield from warning_lines([text for text in answer.warnings or () if text not in known])
    yield f"{printable(job.profile.name)}: {workload(job, problem)}"
    yield provenance(job.profile)
    yield from warning_lines(known)
    yield f"cluster: {about_cluster(job.cluster)}"
    if job.cluster.failed.servers:
        yield (
            f"rank r is the r-th of the {job.cluster.working} servers that work, in order "
            "(`ranks` in JSON)"
        )
    yield ""
    if answer.sizing is not UNSET:
        sizing, among = answer.sizing, ", of the numbers that were planned in time"
        yield (
            f"{answer.machines} of {sizing.at_most} machines make the shortest epoch of "
            f"{counted(sizing.epoch_samples, 'sample')}{'' if sizing.proven else among}"
        )
    yield from _plan(answer)
    yield from lines_below(answer, file)
    if answer.scheduling is not UNSET:
        yield scheduling_text(answer.scheduling)
    if answer.alternatives is not UNSET and answer.objective_ns is not None:
        yield ""
        yield format_table(ALTERNATIVES, alternative_rows(answer))
        without = by_reason(
            (f"{choice.algorithm} {choice.mode}", choice.reason)
            for choice in answer.alternatives
            if choice.reason is not UNSET
        )
        for reason, names in without.items():
            yield f"no plan: {', '.join(names)} ({reason})"
    for reason, names in by_reason((answer.left_out or {}).items()).items():
        yield f"left out: {', '.join(names)} ({reason})"


def workload(job: Job, problem: Problem) -> str:
    """Return a line about what is sent and computed."""
    scale = job.options["computation"]
    return (
        f"{counted(len(problem.graph.parameters), 'parameter')}, "
        f"{format_bytes(sum(problem.pushed))} of gradients, "
        f"{format_ns(problem.base.windows.compute_ns)} to compute"
        + ("" if scale == 1 else f" (× {scale} of the profile)")
    )


def about_cluster(cluster: Cluster) -> str:
    """Return a line about a cluster."""
    topology, nic = cluster.topology, cluster.nic
    kind = "one switch"
    if isinstance(topology, BCube):
        kind = f"BCube({topology.n},{topology.k})"
        if cluster.failed:
            kind += f" without {cluster.failed.in_words()}"
    elif isinstance(topology, FatTree):
        kind = f"Fat-Tree of {topology.ports}-port switches"
    elif isinstance(topology, Rails):
        kind = f"{topology.accelerators} accelerators and rails a host"
    shared = cluster.shared_bytes_per_s
    start = "measured tables" if cluster.network else f"start-up {format_ns(nic.startup_ns)}"
    return (
        f"{printable(cluster.name)}: {counted(cluster.workers, 'worker')}, {kind}, "
        f"{nic.per_machine} × {format_rate(nic.bytes_per_s)} a machine, {start}"
        + (f", {format_rate(shared)} shared" if shared else "")
    )


def sentence(answer: IterationAnswer) -> str:
    """Return the algorithm, the mode and the number of transfers."""
    synchronisation = answer.synchronisation
    return f"{synchronisation.named}, {synchronisation.mode}: {sent_text(answer)}"


def _plan(answer: IterationAnswer) -> Iterator[str]:
    if answer.objective_ns is None:
        yield f"{answer.status}: {answer.reason or ''}"
        return
    yield f"plan ({answer.method}): {sentence(answer)}"
    total = format_ns(answer.iteration_ns)
    if answer.why is not UNSET:
        yield f"iteration {total} = {_parts(answer.why)}"
    else:
        yield f"iteration {total}, of which computation waits {format_ns(answer.stall_ns)}"
    if answer.slowed_ns is not UNSET:
        yield f"transfers slow the computation down by {format_ns(answer.slowed_ns)} in all"
    if answer.lower_bound_ns is not None:
        gap = answer.objective_ns / answer.lower_bound_ns - 1 if answer.lower_bound_ns else 0.0
        bound = format_ns(answer.lower_bound_ns)
        text = f"{answer.status}: {format_share(gap)} above the bound {bound}"
        if answer.network_bound_ns:
            least = answer.objective_ns / answer.network_bound_ns - 1
            text += f", {format_share(least)} above what any algorithm needs on this network"
        yield text
    if answer.memory is not UNSET:
        needed, have = answer.memory.needed_bytes, answer.memory.available_bytes
        most = max(needed, have or 0)
        room = "" if have is None else f" of {format_bytes(have, most)}"
        yield f"memory: {format_bytes(needed, most)}{room} a worker"
    if answer.why is not UNSET and answer.why.runner_up is not None:
        yield f"next: {runner_up_text(answer.why.runner_up, answer.objective_ns)}"


def _parts(why: WhyAnswer) -> str:
    return (
        f"{format_ns(why.computation_ns)} computation + "
        f"{format_ns(max(why.exposed_bytes_ns, 0))} waiting for bytes + "
        f"{format_ns(max(why.exposed_startup_ns, 0))} for start-ups"
    )
