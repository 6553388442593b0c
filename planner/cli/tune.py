"""``planner tune``: from the trace of a job to the settings that it should have."""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from planner.cli.common import command, in_file, in_option, write_document
from planner.cli.compare_options import settle_network
from planner.cli.export import settings_for
from planner.cli.recorded import Read, missing_ranks, pattern, read_ranks, write_outputs
from planner.cli.writing import replacing
from planner.formats.importers.kineto import number_bytes, profile_in
from planner.formats.importers.kineto_trace import Trace
from planner.formats.importers.kineto_units import has_units, units_in
from planner.jsonio import caramel, fsdp
from planner.jsonio.tuned import tune_report
from planner.model.clusters import Nic
from planner.model.contention import Interference
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.graphs import Graph
from planner.model.machine import VERSION
from planner.model.network import ring_cost
from planner.model.units import format_ns, parse_bytes
from planner.solving.targets import EVERY, Target
from planner.traces.proposals import Proposal, waited_for
from planner.traces.recorded import Recorded, check_one_each
from planner.traces.stacked import three_steps
from planner.traces.systems import check_sends
from planner.traces.tuning import propose
from planner.traces.units import propose_units
from planner.view.chart import Chart
from planner.view.drawing import GANTT
from planner.view.progress import Progress
from planner.view.tuned_page import TunedReport, tuned_page
from planner.view.tuned_text import tune_lines
from planner.view.wording import times


def add_parser(commands: Any) -> None:
    """Add the command."""
    command(
        commands,
        "tune",
        run,
        "plan the buckets or units of a recorded job, and say how sure their gain is",
        "planner tune rank0.json.gz rank1.json.gz -o plan.json",
        {
            "traces TRACE+": "traces of PyTorch's profiler (.json, .json.gz), one a rank, with "
            "record_shapes=True; '-': standard input",
            f"--for {'|'.join(EVERY)}": "what will follow the plan; default: what was recorded",
            "--network FILE": "what all-reduces take there, and what they take from computation, "
            "as planner calibrate network measured; default: what the recorded ones took",
            "--spare SIZE": "fsdp2: memory of a rank that plans may use beyond what the recorded "
            "settings use, such as 2GiB; default: none",
            "--transfers REGEX": "kernels whose names REGEX is found in are transfers too",
            "--picture FILE": "draw the step as recorded, as predicted, and as planned (.svg)",
            "--report FILE": "write a page about it, one HTML file with that picture",
            "--json": "print all of it as JSON: planner schema tune",
            "-o, --output FILE": "write the plan",
            "--time-limit S": "for planning; default: no limit",
        },
        {"--transfers": {"type": pattern}, "--for": {"dest": "target"}},
        about="The recorded step is predicted under its own settings first, and the plan's gain "
        "only as surely as that.",
    )


def run(options: argparse.Namespace) -> int:
    """Read the traces, plan, and print the result."""
    progress = Progress(quiet=options.quiet)
    with in_option("--picture"):
        draw = GANTT.writer(Path(options.picture)) if options.picture else None
    ranks: list[Recorded] = []
    warnings: list[str] = []
    names: list[str] = []
    chosen: Read | None = None
    for traced in read_ranks(options.traces, options.transfers, progress):
        ranks.append(traced.recorded)
        names.append(traced.name)
        warnings += traced.remarks
        if chosen is None or waited_for([chosen.recorded, traced.recorded]) is traced.recorded:
            chosen = traced
    assert chosen is not None
    check_one_each(ranks)
    warnings += missing_ranks(ranks)
    network, interference = _network(options, max(rank.ranks or 2 for rank in ranks))
    progress("planning")
    with in_file(chosen.path, data=b""):  # which of several files lacks something
        graph, proposal = proposed(
            ranks,
            chosen.trace,
            target=None if options.target is None else EVERY[options.target],
            network=network,
            interference=interference,
            spare_bytes=None if options.spare is None else parse_bytes(options.spare, "--spare"),
            time_limit=options.time_limit,
        )
    progress.done()
    target = proposal.target
    answer = (fsdp if target.sharded else caramel).answer(*proposal.planned)
    settings = None
    if not proposal.keep:
        settings = to_change(proposal, answer, graph, device=chosen.recorded.device)
    steps = three_steps(proposal, chosen.recorded)
    if draw is not None:
        with replacing(options.picture) as place:
            draw(Chart(_title(proposal), steps), place)
    if options.report:
        told = tuple(warnings), _again(options), VERSION
        written = tuned_page(TunedReport(proposal, settings, steps, tuple(names), *told))
        write_document(written, options.report)
    report = tune_report(proposal, settings, warnings)
    return write_outputs(
        options, answer, report, tune_lines(proposal, settings, len(ranks)), warnings
    )


def proposed(
    ranks: Sequence[Recorded],
    trace: Trace,
    *,
    target: Target | None = None,
    network: Any = None,
    interference: Interference | None = None,
    spare_bytes: int | None = None,
    time_limit: float | None = None,
) -> tuple[Graph | None, Proposal]:
    """Return the dataflow of buckets in a trace of `waited_for`, and what is proposed with it.

    By default for the system that was recorded. Buckets are filled in the order in which gradients
    were ready or, if DDP does not rebuild them (``find_unused_parameters``), in the reverse of the
    model's order.
    """
    rank = waited_for(ranks)
    if has_units(trace.ranges):
        if target is not None and not target.sharded:
            what = "FSDP2 shards the parameters of this job, and has no buckets: expected fsdp2"
            raise NotApplicableError("--for", what)
        if network is not None:
            what = "FSDP2's gathers and reduce-scatters cost what the recorded ones took"
            raise NotApplicableError("--network", what)
        spare, units = spare_bytes or 0, units_in(trace.ranges, rank)
        return None, propose_units(ranks, rank, units, spare_bytes=spare, time_limit=time_limit)
    if target is not None and target.sharded:
        what = "this job was not sharded: planner plan PROFILE --for fsdp2 plans how it would be"
        raise NotApplicableError("--for", what)
    if spare_bytes is not None:
        raise InvalidInputError(
            "--spare", "expected traces of FSDP2: others keep all parameters on every rank"
        )
    check_sends(rank)
    refused, element = None, number_bytes(trace)
    for any_order, completed in product((False, True), (True, False)):
        profile, _ = profile_in(trace, name="trace", source="trace", completed=completed)
        graph = profile.dataflow()
        try:
            return graph, propose(
                ranks,
                graph,
                target=target,
                network=network,
                interference=interference,
                element_bytes=element,
                any_order=any_order,
                time_limit=time_limit,
            )
        except NotApplicableError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def to_change(
    proposal: Proposal, answer: Any, graph: Graph | None, *, device: bool
) -> dict[str, Any]:
    """Return the settings of the target to change; of FSDP2 without times, which are of units."""
    target, width = proposal.target, proposal.planned[0].element_bytes
    settings = settings_for(target.name, [answer], graph, width)
    if target is proposal.system is EVERY["deepspeed"]:
        # Its stage stays; on processors it waits for every transfer, whatever is set.
        changed = ("overlap_comm", "reduce_bucket_size") if device else ("reduce_bucket_size",)
        zero = settings["zero_optimization"]
        return {**settings, "zero_optimization": {name: zero[name] for name in changed}}
    if not target.sharded:
        return settings
    kept = {name: settings[name] for name in ("mesh", "mesh_dim_names", "units", "settings")}
    if proposal.likeliest.passes_ns:  # where FSDP2 waits for transfers, when to send is no setting
        kept["settings"] = {}
    return kept


def _title(proposal: Proposal) -> str:
    recorded, predicted = (format_ns(time) for time in (proposal.step_ns, proposal.predicted_ns))
    return (
        f"a step of {recorded} as recorded, predicted {predicted}; planned: "
        f"{times(proposal.gain)} as fast"
    )


def _again(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the command that makes the same page again."""
    given = {
        "--for": options.target,
        "--network": options.network,
        "--spare": options.spare,
        "--transfers": None if options.transfers is None else options.transfers.pattern,
        "--time-limit": options.time_limit,
        "--report": options.report,
    }
    words = (str(word) for pair in given.items() if pair[1] is not None for word in pair)
    return ("planner", "tune", *options.traces, *words)


def _network(options: argparse.Namespace, workers: int) -> tuple[Any, Interference | None]:
    """Return the measured cost of all-reduces and the contention; None for what is not known."""
    if options.network is None:
        return None, None
    place = settle_network(options, None, "all_reduce", {"workers": workers})
    contention = None if place.interference.is_none else place.interference
    if isinstance(place.network, Nic):
        return ring_cost(place.network, workers), contention
    return place.network, contention
