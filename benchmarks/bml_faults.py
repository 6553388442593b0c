"""How close to the bound gradients are synchronised on a BCube of which parts have failed.

    python benchmarks/bml_faults.py [--quick]

For each network and failure: the bound (the best one proved, by the closed form or by packing
trees), and what the plans of `detour` and `trees` take, as multiples of it; with one round, in
which step follows step, and pipelined, in as many rounds as take least time. First a gradient so
large that bandwidth is all that counts, then two real ones. Every plan went through the checker.
Times come from the model: nothing is measured.
"""

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from math import isqrt
from typing import NamedTuple

from tables import rows_below

from planner.families.bml import Failures, Plan, Problem, evaluate, solve
from planner.families.bml.evaluation import Evaluation
from planner.families.bml.methods import TREES_MAX_NICS
from planner.model.errors import NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.result import Result

SIZES = ((3, 2), (4, 2), (2, 3), (3, 3), (8, 2), (8, 3), (16, 4))
QUICK_SIZES = SIZES[:3]

ALL_SINGLE = 64
"""Servers up to which every single failure is tried, and the worst one shown."""

LINK = 5 * 10**9
"""Bytes a second of the real links."""

Case = tuple[BCube, str, Failures]
Demand = Callable[[BCube, Failures], Problem]


def large(bcube: BCube, failed: Failures) -> Problem:
    """Return a gradient of 16 TiB, without a start-up cost."""
    return Problem(bcube, Network(Fraction(10**9)), 2**44, failed=failed)


def real(size: int, bcube: BCube, failed: Failures) -> Problem:
    """Return one of `size` bytes, in elements of 4, over 5 GB/s with 5 µs before each step."""
    network = Network(Fraction(LINK), startup_ns=5000)
    return Problem(bcube, network, size, element_bytes=4, failed=failed)


def single(bcube: BCube) -> Iterator[tuple[str, list[Failures]]]:
    """Yield each kind of single failure: all of them, or one a level of a large network."""
    servers = range(bcube.servers if bcube.servers <= ALL_SINGLE else 1)
    switches = range(bcube.switches // bcube.k if bcube.servers <= ALL_SINGLE else 1)
    levels = range(bcube.k)
    yield "NIC", [Failures(nics=frozenset({pair})) for pair in product(servers, levels)]
    yield "switch", [Failures(switches=frozenset({pair})) for pair in product(levels, switches)]
    yield "server", [Failures(servers=frozenset({server})) for server in servers]


def several(bcube: BCube) -> Iterator[tuple[str, Failures]]:
    """Yield failures of several things, none of which cuts the network."""
    n, k, last = bcube.n, bcube.k, bcube.servers - 1
    top = range(bcube.switches // k - 1)
    yield "2 NICs, far apart", Failures(nics=frozenset({(0, 0), (last, k - 1)}))
    if n > 3:  # else the third NIC is alone, as if the switch had failed
        yield "2 NICs on one switch", Failures(nics=frozenset({(0, 0), (1, 0)}))
    if k > 2:
        yield "2 NICs of one server", Failures(nics=frozenset({(0, 0), (0, 1)}))
    yield "2 servers", Failures(servers=frozenset({0, last}))
    yield (
        "NIC, switch, server",
        Failures(frozenset({0}), frozenset({(last, 0)}), frozenset({(1, 0)})),
    )
    if bcube.servers <= ALL_SINGLE:
        all_but_one = Failures(switches=frozenset((k - 1, one) for one in top))
        yield f"{len(top)} of {len(top) + 1} switches of a level", all_but_one
    else:
        draw = random.Random(0)
        nics = draw.sample(range(bcube.nics), isqrt(bcube.nics) // 2)
        pairs = frozenset(divmod(nic, k) for nic in nics)
        yield f"{len(nics)} NICs at random", Failures(nics=pairs)


def planned(problem: Problem, method: str) -> Result[Plan, Evaluation] | None:
    """Return a plan that has been checked, or None if the method does not apply."""
    try:
        result = solve(problem, method=method)
    except NotApplicableError:
        return None
    assert result.plan is not None, f"cut: {problem}"
    return result


def worst(bcube: BCube, failures: Sequence[Failures]) -> Failures:
    """Return the failure around which detours take longest."""
    if len(failures) == 1:
        return failures[0]

    def took(failed: Failures) -> int:
        result = planned(large(bcube, failed), "detour")
        return result.objective_ns or 0 if result else 0

    return max(failures, key=took)


def cases(sizes: Sequence[tuple[int, int]]) -> Iterator[Case]:
    for size in sizes:
        bcube = BCube(*size)
        for name, failures in single(bcube):
            yield bcube, name, worst(bcube, failures)
        for name, failed in several(bcube):
            yield bcube, name, failed


class Row(NamedTuple):
    """A network, what has failed, the bound, and how many times that each plan takes."""

    problem: Problem
    failed: str
    bound: int
    ratios: list[tuple[float, float, int] | None]

    def cells(self, *, absolute: bool) -> list[str]:
        """Return the row of the table, the bound in ms or in T_F."""
        bcube = self.problem.bcube
        share = self.bound / self.problem.network.full_transfer_ns(self.problem.size_bytes)
        cells = [
            f"({bcube.n},{bcube.k})",
            self.failed,
            f"{self.bound / 1e6:.2f} ms" if absolute else f"{share:.4f}",
        ]
        for ratio in self.ratios:
            cells += (
                ["–"] * 3
                if ratio is None
                else [f"{ratio[0]:.3f}", f"{ratio[1]:.3f}", str(ratio[2])]
            )
        return cells


def row(problem: Problem, failed: str) -> Row:
    """Return what both methods make of a problem."""
    small = problem.bcube.nics <= TREES_MAX_NICS
    found = [planned(problem, "detour"), planned(problem, "trees") if small else None]
    bound = max(one.lower_bound_ns or 0 for one in found if one)
    ratios: list[tuple[float, float, int] | None] = []
    for one in found:
        if one is None or one.plan is None or one.objective_ns is None:
            ratios.append(None)
            continue
        once = evaluate(problem, replace(one.plan, rounds=1)).time_ns
        ratios.append((once / bound, one.objective_ns / bound, one.plan.rounds))
    return Row(problem, failed, bound, ratios)


def show(title: str, demand: Demand, what: Sequence[Case], *, absolute: bool) -> None:
    print(f"## {title}\n")
    rows = []
    for bcube, name, failed in what:
        rows.append(row(demand(bcube, failed), name).cells(absolute=absolute))
        print(f"{bcube}, {name}", file=sys.stderr)
    header = ["network", "failed", "bound" if absolute else "bound (×T_F)"]
    for method in ("detour", "trees"):
        header += [f"{method}, one round", f"{method}, pipelined", "rounds"]
    rows_below(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small networks only")
    what = list(cases(QUICK_SIZES if parser.parse_args().quick else SIZES))
    show("A large gradient, no start-up cost", large, what, absolute=False)
    for title, size in (("1 GB", 10**9), ("100 MB", 10**8)):
        full = f"{title} over links of 5 GB/s, 5 µs a step"
        show(full, partial(real, size), what, absolute=True)


if __name__ == "__main__":
    main()
