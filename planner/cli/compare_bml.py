"""``planner compare`` for the problem bml: collective algorithms, or plans around failures."""

import argparse
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Unpack

from planner import bml
from planner.bml.family import AnyPlan
from planner.cli.family import ComparedProblem, Family, Option, Profiled, about, lost
from planner.cli.parsing import parse_bcube
from planner.collectives import COLLECTIVES, Collective, collective, lower_bound
from planner.deadline import Control
from planner.errors import InvalidInputError, NotApplicableError
from planner.jsonio import bml as bml_json
from planner.jsonio.bml_answer import BmlAnswer, algorithm_answer, answer
from planner.jsonio.types import or_none
from planner.network import AnyNetwork
from planner.profiles import Profile
from planner.results import Result
from planner.solving.methods import known_method
from planner.topologies import BCube, Failures
from planner.units import format_bytes, format_ns

__all__ = ["FAMILY"]

_REPLANS = ("detour", "trees")
"""Methods for topologies with failures."""

_OPTIONS = (
    Option(
        "--bcube",
        None,
        {
            "metavar": "N,K",
            "help": "as many servers and switches as BCube(n, k): 3,2 (needed); other topologies "
            "connect as many servers by switches with as many ports",
        },
    ),
    Option(
        "--topology",
        "any",
        {
            "choices": ["any", "bcube", "fattree"],
            "help": "compare on one topology; default: any. What is drawn and written is "
            "BML's plan",
        },
    ),
)


@dataclass(frozen=True, slots=True)
class _OnTopologies:
    """A problem, its tensors (bytes of each), and the topology on which to compare."""

    problem: bml.Problem
    tensors: tuple[int, ...]
    topology: str = "any"


class _Figures(NamedTuple):
    """The numbers of a table row."""

    nics: int
    switches: int
    steps: int
    times_full_transfer: Fraction


def _solve(
    compared: _OnTopologies,
    *,
    method: str,
    time_limit: float | None,
    **control: Unpack[Control[Any]],
) -> Result[Any, Any]:
    if compared.problem.failed:
        return bml.solve(compared.problem, method=method, time_limit=time_limit, **control)
    name = known_method(method, COLLECTIVES)
    if compared.topology not in ("any", name.rpartition("_")[2]):
        raise NotApplicableError("--topology", f"it does not run on {compared.topology}")
    return _priced(compared, name)


def _figures(result: Result[AnyPlan | Collective, Any]) -> _Figures | None:
    plan = result.plan
    if plan is None:
        return None
    if isinstance(plan, Collective):
        return _Figures(plan.nics, plan.switches, plan.steps, plan.volume)
    assert result.evaluation is not None
    steps = 2 * plan.steps + plan.rounds - 1
    return _Figures(plan.bcube.k, plan.bcube.switches, steps, result.evaluation.load)


def _priced(compared: _OnTopologies, name: str) -> Result[Collective, None]:
    """Return an algorithm with its time and the lower bound for its number of NICs."""
    problem = compared.problem
    tensors = compared.tensors if problem.size_bytes else ()
    algorithm = collective(name, problem.bcube, tensors=tensors or None)
    diameter = problem.bcube.k if algorithm.topology == "bcube" else 1
    bound = lower_bound(algorithm.servers, algorithm.nics, diameter)
    try:
        time = algorithm.time_ns(problem.network, problem.size_bytes)
    except InvalidInputError as error:
        raise NotApplicableError(error.path, error.message) from None
    return Result(name, algorithm, time, bound.time_ns(problem.network, problem.size_bytes), 0.0)


def _compared(
    compared: _OnTopologies,
    lines: tuple[str, ...],
    name: str,
    method: str = "auto",
    limit: float | None = None,
) -> ComparedProblem:
    problem = compared.problem

    def of_row(result: Result[Any, Any]) -> BmlAnswer:
        algorithm = isinstance(result.plan, Collective)
        return (algorithm_answer if algorithm else answer)(problem, result)

    def planned(result: Result[Any, Any]) -> BmlAnswer:
        if isinstance(result.plan, Collective):
            result = bml.solve(problem, method=method, time_limit=limit)
        return answer(problem, result)

    topologies = ("bcube", "fattree") if compared.topology == "any" else (compared.topology,)
    algorithms = [
        algorithm for algorithm in COLLECTIVES if algorithm.rpartition("_")[2] in topologies
    ]
    return ComparedProblem(
        compared,
        of_row,
        lines,
        name,
        time_limit=limit,
        best=planned,
        methods=_REPLANS if problem.failed else algorithms,
        best_apart=not problem.failed,
    )


def _summary(problem: bml.Problem) -> str:
    bcube = problem.bcube
    without = f", without {lost(problem.failed)}" if problem.failed else ""
    return (
        f"{bcube.servers:,} servers of BCube({bcube.n}, {bcube.k}){without}: "
        f"{format_bytes(problem.size_bytes)} of gradients, T_F "
        f"{format_ns(problem.network.full_transfer_ns(problem.size_bytes))}"
    )


def _requested(request: bml_json.BmlRequest) -> ComparedProblem:
    problem = bml_json.problem_of(request)
    bml_json.wanted_of(request, problem)
    compared = _OnTopologies(problem, problem.layer_bytes)
    lines = (f"request: {_summary(problem)}",)
    return _compared(compared, lines, "", request.method, or_none(request.time_limit_s))


def _check(options: argparse.Namespace) -> None:
    if options.at is not None:
        if options.bcube is not None:
            raise InvalidInputError("--bcube", "not together with --cluster")
        options.bcube = options.at.topology
        if not isinstance(options.bcube, BCube):
            raise InvalidInputError(
                "--cluster", f"expected a bcube such as bml-bcube, and {options.at.name} is none"
            )
        return
    if options.bcube is None:
        raise InvalidInputError("--bcube", "missing: it says how many servers there are: 3,2")
    options.bcube = parse_bcube(options.bcube)


def _problem(profile: Profile, network: AnyNetwork, options: argparse.Namespace) -> _OnTopologies:
    failed = options.at.failed if options.at else Failures()
    problem = bml.Problem.from_profile(profile, network, options.bcube, failed=failed)
    tensors = tuple(layer.pushed_bytes for layer in profile.layers)
    return _OnTopologies(problem, tensors, options.topology)


def _profiled(
    profile: Profile, _: Profile, compared: _OnTopologies, options: argparse.Namespace
) -> ComparedProblem:
    network = f"start-up {options.startup} a step, {options.bandwidth} a NIC"
    summary = f"{profile.name}: {_summary(compared.problem)}"
    return _compared(compared, about(profile, summary, network, options), profile.name)


def _cells(result: Result[Any, Any]) -> tuple[str, ...]:
    figures = _figures(result)
    assert figures is not None
    assert result.objective_ns is not None
    return (
        str(figures.nics),
        f"{figures.switches:,}",
        f"{figures.steps:,}",
        f"{float(figures.times_full_transfer):.4f}",
        format_ns(result.objective_ns),
    )


FAMILY = Family(
    methods=[*COLLECTIVES, *_REPLANS],
    solve=_solve,
    columns=("algorithm", "NICs", "switches", "steps", "× T_F", "time"),
    cells=_cells,
    requested=_requested,
    asks="who sums up which piece of the gradient over which link; of a profile",
    example="planner compare data/profiles/vgg19.json --problem bml --bcube 3,2 --startup 5us "
    "--bandwidth 40Gb/s",
    ends=("above bound", "status"),
    profiled=Profiled(
        options=_OPTIONS,
        check=_check,
        part=lambda profile, _: profile,
        problem=_problem,
        compared=_profiled,
        collective=lambda _: None,
    ),
)
