"""Batches of whole blocks: batches may end only between blocks, such as Inception modules.

Guarantee: plans are priced and bounded as plans of layers, so the gap includes what the blocks
cost; `optimal` then means that no plan of layers is better. Baselines that decide layer by layer
(`OWN_UNITS`) ignore blocks.
Complexity: that of the method on the blocks, and one exact solution of the layers for the bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from planner.families.ibatch.evaluation import Evaluation
from planner.families.ibatch.family import IBATCH, solve
from planner.families.ibatch.problem import Plan, Problem
from planner.model.units import format_ns, format_share
from planner.solving.methods import Outcome
from planner.solving.result import Infeasibility, Result

OWN_UNITS = frozenset(("one_batch", "layer_by_layer", "mg_wfbp", "ddp"))
"""Baselines whose batches follow from layers, whatever the blocks."""


@dataclass(frozen=True)
class Blocks:
    """A problem of layers whose batches end between blocks only.

    Attributes
    ----------
    problem : Problem
        The problem of layers.
    starts : sequence of int
        The layers that begin a block, from 0, in increasing order.
    time_limit : float, optional
        Seconds for the best plan of layers.
    """

    problem: Problem
    starts: Sequence[int]
    time_limit: float | None = None

    @cached_property
    def best_of_layers(self) -> Result[Plan, Evaluation]:
        """The best plan that may cut between all layers."""
        return solve(self.problem, method="exact", time_limit=self.time_limit)

    @cached_property
    def merged(self) -> Problem:
        """The problem in which each block is one layer."""
        ends = [*self.starts[1:], self.problem.layers]

        def sums(values: Sequence[int] | None) -> tuple[int, ...] | None:
            if values is None:
                return None
            return tuple(sum(values[a:b]) for a, b in zip(self.starts, ends, strict=True))

        compute = sums(self.problem.compute_ns)
        assert compute is not None
        return replace(
            self.problem,
            compute_ns=compute,
            transfer_ns=sums(self.problem.transfer_ns),
            layer_bytes=sums(self.problem.layer_bytes),
            spread_ns=sums(self.problem.spread_ns),
        )

    def solve(self, *, method: str, time_limit: float | None = None) -> Result[Plan, Evaluation]:
        """Solve by one method, as `planner.ibatch.solve` does.

        Raises
        ------
        InvalidInputError
            If the method is unknown or does not apply to the problem.
        """
        target = self.problem.target
        if method in OWN_UNITS or (target is not None and method == target.name):
            return solve(self.problem, method=method, time_limit=time_limit)
        result = solve(self.merged, method=method, time_limit=time_limit)
        if result.plan is None:
            assert result.infeasibility is not None
            return replace(result, infeasibility=self._of_layers(result.infeasibility))
        limits = [*self.starts, self.problem.layers]
        plan = Plan(tuple((limits[a], limits[b]) for a, b in result.plan.batches))
        bound = self.best_of_layers.lower_bound_ns
        outcome = Outcome(plan, bound, result.timed_out, method=result.method)
        return IBATCH.verify(self.problem, outcome, result.runtime_s)

    def cost_in_words(self, rows: Sequence[Result[Plan, Evaluation]]) -> list[str]:
        """Return lines about what whole blocks cost the methods' plans, the best first."""
        count, layers = self.merged.layers, self.problem.layers
        what = f"--granularity block: batches of {count} blocks of {layers} layers in all"
        rules = ", ".join(sorted(OWN_UNITS))
        lines = [f"{what}; {rules} group layers all the same, and bounds are those of layers"]
        least = self.best_of_layers.objective_ns
        best = next((row for row in rows if row.method not in OWN_UNITS), None)
        if least and best and best.objective_ns:
            lines.append(
                f"blocks cost {format_share(best.objective_ns / least - 1)}: "
                f"{format_ns(best.objective_ns)} for the best of them ({best.method}), "
                f"{format_ns(least)} with --granularity layer"
            )
        return lines

    def _of_layers(self, infeasibility: Infeasibility) -> Infeasibility:
        """Return an infeasibility of blocks in terms of layers."""
        spans = list(pairwise([*self.starts, self.problem.layers]))
        layers = tuple(layer for block in infeasibility.layers for layer in range(*spans[block]))
        if not infeasibility.layers or not (sizes := self.merged.layer_bytes):
            return replace(
                infeasibility, reason=f"of whole blocks: {infeasibility.reason}", layers=layers
            )
        block = infeasibility.layers[0]
        first, stop = spans[block]
        return replace(
            infeasibility,
            reason=f"layers {first} to {stop - 1}, one block, have {sizes[block]} bytes "
            f"together, more than max_batch_bytes = {self.problem.max_batch_bytes}; the smallest "
            f"cap that fits every block is {max(sizes)}",
            layers=layers,
        )
