"""Predictions for models of public size: what their FSDP jobs should wrap, and what that is worth.

    python benchmarks/sharded_models.py [MODEL ...] [--clusters A,B,…] [--channels KIND] [--quick]

Layers are derived by formula from published configurations, computation from published throughput
(``data/make_derived.py``); collectives cost what was measured on the clusters, or what rings do. So
these are predictions: nothing was trained. A rank has the cluster's memory; it stores four bytes of
each of its parameters and eight of the optimiser's state (Adam), and may recompute activations.

For each model and cluster the best plan: its mesh, units (kept after the forward pass, recomputed),
memory, time, how long communication is exposed, and how far above the bound it is at most; then
what FSDP2's default (every block a unit, freed and gathered again), the same with lists of two, and
DeepSpeed's stage 3 take, each on its best mesh, and with everything recomputed where nothing else
fits. Where there is no plan, the least memory that would do. No clock counts.
"""

import argparse
import sys
from fractions import Fraction
from pathlib import Path

from tables import rows_below

from planner.families import fsdp
from planner.families.fsdp.evaluation import peak_of
from planner.families.fsdp.min_memory import least_memory
from planner.families.fsdp.problem import CHANNELS
from planner.families.iteration.fsdp_from_profile import sharded_problem
from planner.jsonio import decode_profile, read_cluster
from planner.model.units import format_bytes, format_ns

DATA = Path(__file__).parent.parent / "data" / "derived"
CLUSTERS = "h100ib-10,a100dgx-2,h100-32"
OPTIMISER = Fraction(5)
"""Beside two bytes of each parameter as it is gathered, ten more."""

BASELINES = ("fsdp2", "fsdp2_ahead_2", "zero_3")
COLUMNS = (
    "model",
    "cluster",
    "mesh",
    "units",
    "kept",
    "recomputed",
    "memory",
    "iteration",
    "exposed",
    "above the bound",
    *BASELINES,
)


def row(path: Path, cluster: str, channels: fsdp.problem.Channels) -> tuple[str, ...]:
    """Return what is found for a model on a cluster."""
    profile = decode_profile(path.read_bytes())
    problem = sharded_problem(
        profile, read_cluster(cluster), optimiser=OPTIMISER, recompute=True, channels=channels
    )
    result = fsdp.solve(problem)
    if result.plan is None:
        assert result.infeasibility is not None
        print(f"{path.stem} on {cluster}: {result.infeasibility.reason}", file=sys.stderr)
        least = min(
            peak_of(problem, least_memory(problem, mesh)) for mesh in range(len(problem.meshes))
        )
        missing = ("–" for _ in COLUMNS[7:])
        return (path.stem, cluster, *("–",) * 4, f"needs {format_bytes(least)}", *missing)
    assert result.evaluation is not None
    assert result.objective_ns is not None
    assert result.gap is not None
    mesh, units = problem.meshes[result.plan.mesh], result.plan.units
    times = [fsdp.solve(problem, method=name).objective_ns for name in BASELINES]
    return (
        path.stem,
        cluster,
        f"{mesh.replicas} x {mesh.shards}",
        str(len(units)),
        str(sum(unit.keep for unit in units)),
        str(sum(unit.recompute for unit in units)),
        format_bytes(result.evaluation.peak_bytes),
        format_ns(result.objective_ns),
        f"{result.evaluation.exposed_ns / result.objective_ns:.1%}",
        f"{result.gap:.1%}",
        *("–" if time is None else f"{time / result.objective_ns:.2f} x" for time in times),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all of data/derived")
    parser.add_argument("--clusters", default=CLUSTERS)
    parser.add_argument("--quick", action="store_true", help="one model on one cluster")
    parser.add_argument("--channels", choices=CHANNELS, default="one")
    options = parser.parse_args()
    if options.quick:
        options.models, options.clusters = ["llama3-8b"], "a100dgx-2"
    names = options.models or [path.stem for path in sorted(DATA.glob("*.json"))]
    rows_below(
        COLUMNS,
        (
            row(DATA / f"{name}.json", cluster, options.channels)
            for name in names
            for cluster in options.clusters.split(",")
        ),
    )


if __name__ == "__main__":
    main()
