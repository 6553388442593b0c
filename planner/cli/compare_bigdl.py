"""``planner compare`` for the problem bigdl: synchronisation by slices."""

import argparse

from planner import bigdl
from planner.cli.compare_cluster import MACHINES, workers_of
from planner.cli.family import ComparedProblem, Family, Option, Profiled, about
from planner.jsonio import bigdl as bigdl_json
from planner.network import AnyNetwork, links
from planner.profiles import Profile
from planner.results import Result
from planner.solving.methods import concrete
from planner.units import counted, format_bytes, format_ns
from planner.validation import integer

__all__ = ["FAMILY", "sliced"]

_TASKS = Option(
    "--tasks",
    None,
    {
        "type": int,
        "metavar": "P",
        "help": "tasks of a machine, each with gradients of its own; default: as the cluster says, "
        "or 1",
    },
)


def _requested(request: bigdl_json.BigdlRequest) -> ComparedProblem:
    problem = request.to_problem()
    return ComparedProblem(
        problem,
        lambda result: bigdl_json.answer(problem, result, pull_order=request.pull_order),
        (f"request: {_summary(problem)}",),
    )


def _summary(problem: bigdl.Problem) -> str:
    size = problem.gradient_bytes
    return (
        f"{counted(problem.nodes, 'node')} with "
        f"{counted(problem.partitions_per_node, 'partition')} each, "
        f"{format_bytes(size)} of gradients, T_F "
        f"{format_ns(problem.network.full_transfer_ns(size))}"
    )


def _check(options: argparse.Namespace) -> None:
    options.machines = workers_of(options, MACHINES)
    if options.tasks is not None:
        integer(options.tasks, "--tasks", minimum=1)


def sliced(profile: Profile, network: AnyNetwork, options: argparse.Namespace) -> bigdl.Problem:
    """Return the problem of synchronising a profile's gradients by slices."""
    scheduling = options.at.scheduling if options.at else None
    tasks = getattr(options, "tasks", None) or (scheduling.tasks_per_machine if scheduling else 1)
    size = profile.element_bytes
    gradients = sum(parameter.size_bytes for parameter in profile.dataflow().parameters)
    return bigdl.Problem(
        elements=gradients // size,
        element_bytes=size,
        nodes=options.machines,
        partitions_per_node=tasks,
        network=links(network, 1),
    )


def _part(profile: Profile, _: argparse.Namespace) -> Profile:
    profile.dataflow()  # raises for a model without gradients
    return profile


def _compared(
    profile: Profile, _: Profile, problem: bigdl.Problem, options: argparse.Namespace
) -> ComparedProblem:
    network = f"start-up {options.startup} a step, {options.bandwidth}"
    pulls = "listed" if problem.nodes <= bigdl_json.MAX_LISTED else "rule"
    return ComparedProblem(
        problem,
        lambda result: bigdl_json.answer(problem, result, pull_order=pulls),
        about(profile, f"{profile.name}: {_summary(problem)}", network, options),
        profile.name,
    )


def _cells(result: Result[bigdl.Plan, bigdl.Evaluation]) -> tuple[str, ...]:
    evaluation = result.evaluation
    assert evaluation is not None
    return (
        format_ns(evaluation.objective_ns),
        f"{float(evaluation.times_full_transfer):.4g}",
        format_bytes(evaluation.driver_bytes),
    )


FAMILY = Family(
    methods=concrete(bigdl.METHODS),
    solve=bigdl.solve,
    columns=("method", "time", "× T_F", "through the driver"),
    cells=_cells,
    requested=_requested,
    asks="which slice each node sums on Spark",
    example="planner compare data/bigdl/vgg19-16.json",
    ends=("above bound", "status"),
    profiled=Profiled(
        options=(MACHINES, _TASKS),
        check=_check,
        part=_part,
        problem=sliced,
        compared=_compared,
        collective=lambda _: None,
    ),
)
