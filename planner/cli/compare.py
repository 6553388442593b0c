"""``planner compare``: every method on one problem, side by side.

The problem is that of a request, or made of a profile and a network, or of event logs. Each family
declares its options and columns (`planner.solving.compare`); this module knows JSON and event logs.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace as changed

from planner.cli.common import in_file, read, warn
from planner.cli.compare_options import (
    COMPOSED,
    DEFAULT_SECONDS,
    NETWORK,
    OPTIONS,
    PROFILED,
    add_compare,
    settle,
    settle_network,
)
from planner.cli.compare_tables import lines
from planner.cli.interrupting import ended, interruptible
from planner.cli.iteration_options import cluster_in, scale_in
from planner.cli.outputs import Outputs
from planner.cli.parsing import as_typed, parse_names, refuse
from planner.cli.spark_logs import read_logs
from planner.families.collectives.prediction import range_note
from planner.families.drizzle import DRIZZLE
from planner.families.drizzle.family import limits_text
from planner.jsonio import PROBLEMS, decode_profile
from planner.jsonio.answer_base import AnswerBase, of_profile, warned
from planner.jsonio.clusters import cluster_of
from planner.jsonio.decoding import decode
from planner.jsonio.profiles import profile_of
from planner.jsonio.service import decode_request
from planner.jsonio.types import unset_to_none
from planner.jsonio.what_if import answer_request, caveats, regret_answers
from planner.model.costs import TableCost
from planner.model.errors import InvalidInputError, PlannerError
from planner.model.units import escaped
from planner.solving.compare import IGNORE_MEMORY, Case, Place, compare
from planner.solving.deadline import Cancel, Deadline
from planner.solving.family import Family
from planner.solving.result import Result
from planner.solving.what_if import regrets
from planner.view.progress import Progress


def add_parser(commands: Any) -> None:
    """Add the command."""
    add_compare(commands, run)


def run(options: argparse.Namespace) -> int:
    """Compare; for ``planner plan`` (`alone`) only the best answer is printed as JSON."""
    name, case = _of_events(options) if options.events else _of_file(options)
    family, outputs = PROBLEMS[name].family, Outputs.of(options, name)
    progress, limit = Progress(quiet=options.quiet), case.options["time_limit"]
    methods = family.compared(case)
    if options.methods:
        methods = parse_names(options.methods, "--methods")
    with interruptible() as cancel:
        comparison = compare(
            case,
            methods,
            solve=partial(family.solve_case, cancel=cancel),
            time_limit=limit,
            progress=lambda method: progress(f"running {method}, at most {limit:g} s"),
            cancel=cancel,
        )
        rows, best, alone = comparison.rows, None, "alone" in options
        if rows and (rows[0].plan is not None or alone):
            progress(f"looking around the plan of {rows[0].method}")
            best, apart = _best(family, case, rows[0], cancel)
            rows = rows if apart else rows[1:]
    progress.done()

    def answers() -> list[AnswerBase]:
        tell = PROBLEMS[name].to_answer
        others = [_with_warnings(family, case, tell(case, row, None), row) for row in rows]
        return others if best is None else [best, *others]

    def text() -> Iterator[str]:
        return lines(family, case, comparison, best, options.output)

    outputs.write(best, case.title, text, None if alone else answers)
    if best is None:
        warn(["no method found a plan"])
    return ended(cancel)


def _limit(options: argparse.Namespace, request: Any = None) -> dict[str, float]:
    """Return the time limit (s) of a method: the option's, else the request's, else the default."""
    asked = None if request is None else unset_to_none(request.time_limit_s)
    typed = options.time_limit
    return {"time_limit": typed if typed is not None else asked or DEFAULT_SECONDS}


def _of_events(options: argparse.Namespace) -> tuple[str, Case[Any]]:
    """Return the problem that is made of event logs."""
    problem = options.problem or DRIZZLE.name
    if options.file:
        raise InvalidInputError("FILE", "not together with --events, which say it all")
    refuse(options, (*NETWORK, *OPTIONS), "does not apply to --events")
    settled = settle(options, problem)
    logs = read_logs(
        options.events,
        max_overhead=settled["max_overhead"],
        # Without the option no limit: the log does not say how long its users can wait.
        max_group_ns=settled["max_group"] if options.max_group else None,
        quiet=options.quiet,
    )
    return problem, Case(
        logs.problem,
        options=_limit(options),
        title=logs.applications[0].name,
        warnings=logs.warnings,
        lines=(f"events: {logs.about()}", f"limits: {limits_text(logs.problem)}"),
        sentence=lambda plan: logs.sentence(None if plan is None else plan.group_size),
    )


def _of_file(options: argparse.Namespace) -> tuple[str, Case[Any]]:
    """Return the problem of a request, or of a profile."""
    if not options.file:
        raise InvalidInputError("FILE", "missing: a profile, or a request of planner solve")
    for name in ("cluster", "network"):
        if getattr(options, name) == options.file == "-":
            raise InvalidInputError(f"--{name}", "standard input is the profile already")
    data = read(options.file)
    with in_file(options.file):
        value = decode(data)
    of_request = isinstance(value, dict) and "problem" in value
    if isinstance(value, dict) and of_request and "status" in value:
        raise PlannerError(f"{options.file}: holds an answer: expected a request or a profile")
    return (_requested if of_request else _profiled)(data, options)


def _requested(data: bytes, options: argparse.Namespace) -> tuple[str, Case[Any]]:
    """Return the options of a request, and its problem."""
    own = [option.name for family in PROFILED.values() for option in family.options]
    why = f"does not apply to a request, and {options.file} holds one, not a profile"
    refuse(options, (*NETWORK, *own, *OPTIONS), why)
    with in_file(options.file):
        request = decode_request(data)
        problem: str = request.problem
        made = request.to_problem()
        document, cluster = (getattr(request, name, UNSET) for name in ("profile", "cluster"))
        profile = None if document is UNSET else profile_of(document)
        notes = () if cluster is UNSET else cluster_of(cluster, "cluster").memory_caveats
    if options.problem not in (None, problem):
        raise InvalidInputError("--problem", f"{options.file} holds a request of {problem}")
    asked = {"method": request.method, **_limit(options, request)}
    asked["regret"] = getattr(request, "regret", False)
    title = "" if profile is None else profile.name
    return problem, Case(made, "request", asked, profile, None, request, title, notes)


def _profiled(data: bytes, options: argparse.Namespace) -> tuple[str, Case[Any]]:
    """Return the options of the command line, and the problem of the profile on the network."""
    problem: str = options.problem or next(iter(PROFILED))
    if problem not in PROFILED:
        raise InvalidInputError(
            "--problem", f"{problem} needs a request; {options.file} holds a profile"
        )
    family, settled = PROFILED[problem], settle(options, problem)
    settled |= _limit(options)
    cluster = cluster_in(options) if options.cluster else None
    if family.on_cluster and cluster is None:
        raise InvalidInputError("--cluster", "missing: where the profile shall run")
    place = settle_network(options, cluster, family.collective(settled), settled)
    settled = {**settled, **family.resolved_options(settled, place)}
    with in_file(options.file):
        profile = decode_profile(data).scaled(scale_in(options))
        family.check_profile(profile)
    make = COMPOSED.get(problem, family.from_profile)
    try:
        made = make(profile, place, settled)
    except InvalidInputError as error:
        raise _of_network(error, place, options) from None
    notes = place.notes
    if place.cluster is not None and IGNORE_MEMORY in family.options:
        notes = (*place.cluster.memory_caveats, *notes)
    name = profile.name
    return problem, Case(made, name, settled, profile, place, None, name, notes)


def _of_network(
    error: InvalidInputError, place: Place, options: argparse.Namespace
) -> PlannerError:
    """Return the error of a profile's problem, in terms of the options or file of the network."""
    if error.path.startswith("--") or as_typed(error, options) is not error:
        return error
    if not place.path:
        return InvalidInputError("--startup, --bandwidth", error.message)
    return PlannerError(escaped(f"{place.path}: {error}"))


def _best(
    family: Family[Any, Any, Any], case: Case[Any], row: Result[Any, Any], cancel: Cancel
) -> tuple[AnswerBase, bool]:
    """Return the answer to draw and write, and whether it differs from the first row's answer."""
    request, interface = case.request, PROBLEMS[family.name]
    if hasattr(request, "outlook") and request.to_scenario_set(case.problem) is not None:
        return _with_warnings(
            family, case, answer_request(interface, request, cancel=cancel), row
        ), True
    result, deadline = family.chosen(case, row), Deadline.of(case.options["time_limit"], cancel)
    made: Any = interface.to_answer(case, result, deadline)
    if case.options.get("regret") and result.plan is not None:
        table = regrets(family, case.problem, result.plan, deadline)
        made = changed(made, regret=regret_answers(table))
    return _with_warnings(family, case, made, result), result is not row


def _with_warnings(
    family: Family[Any, Any, Any], case: Case[Any], answer: AnswerBase, result: Result[Any, Any]
) -> AnswerBase:
    """Return an answer that says why its numbers may be off, each reason once."""
    known = [*case.warnings]
    if result.plan is not None:
        known += family.caveats(case.problem, result.plan)
        known += _beyond(family, case, result)
    new = [text for text in dict.fromkeys(known) if text not in (answer.warnings or ())]
    if case.profile is not None:
        return of_profile(answer, case.profile, new)
    return warned(answer, new)


def _beyond(family: Family[Any, Any, Any], case: Case[Any], result: Result[Any, Any]) -> Any:
    """Return the caveats about costs of a plan's transfers that were not measured."""
    place = case.place
    if case.request is not None:
        return caveats(family, case, result)
    if place is None or place.collective is None or not isinstance(place.network, TableCost):
        return ()
    sizes = family.sent_bytes(case.problem, result.plan)
    note = range_note(place.network, place.collective, sizes)
    return () if note is None else (note,)
