"""FSDP units by the model of PyTorch's integer program ("ILP for auto FSDP wrapping").

Problem: which modules shall FSDP gather, and scatter, as one unit each? Larger units have fewer
start-ups; a unit's transfer hides behind the computation of one neighbour only.

Model: a binary variable for each module of the tree. The root is always a unit and holds what is in
no other; no other unit contains another. While one unit computes forward the parameters of the next
are gathered, while it computes backward the gradients of the one behind it are scattered, and the
objective is what stays exposed. With transfer times P (gather) and G (scatter) and computation
times F (forward) and B (backward) of the root, 0, and the units 1..k in forward order:

    P_0 + G_0 + P_1 + G_1 + sum over 0 < i < k of max(0, P_{i+1} - F_i) + max(0, G_{i+1} - B_i).

Ours differs from PyTorch's in this:

- PyTorch's frees parameters after the forward pass and gathers them again in the backward pass,
  which adds to what must hide behind B; here, as in `planner.iteration.rules`, they are kept.
- So what a worker remembers does not depend on the units, but for the buffer of one transfer: each
  unit, the root's share too, must fit into `Problem.room`. PyTorch's counts activations and
  gathered units at every module, and the largest unit twice for what is fetched ahead.
- PyTorch's charges a start-up for what the last unit fetches, though no unit follows.
- Modules without parameters are no units here.

The objective chooses the units; the plan is priced as any other. It pushes a unit when its last
gradient is ready and pulls in order of first use. FSDP gathers the root's share first; on our
channel the order of use is never slower. The tree is that of `planner.iteration.module_tree`.

Method (ours, in place of CBC, which PyTorch runs to a gap of 5 %): modules stand in pre-order. Each
is a unit, and the next to decide on is the first that is not in it; or it is none, and its own
parameters are the root's. Of partial choices up to one module only the undominated are kept: by
exposed time, number of units, and the last unit's F and B. If the root's share of the best does not
fit, its bytes are penalised, by secants, as little as makes it fit; then all choices that expose no
more than that are searched with the root's bytes as further criteria, as long as few are kept.

Guarantee: least exposed time, of equals fewest units; if memory binds the root's share and that
search is given up, least of all choices with as small a share.
Complexity: O(modules · kept²) a search; some ten are kept for the networks of ``data/profiles``.
Source: PyTorch, ``torch/distributed/_tools/fsdp_ilp.py`` of pull request 138635, 2024, reverted
since; Zhao et al., "PyTorch FSDP", VLDB 2023.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from planner.costs import AffineCost
from planner.deadline import NEVER, Deadline
from planner.errors import NotApplicableError
from planner.iteration.evaluation import lasting
from planner.iteration.mixing import settled
from planner.iteration.module_tree import Module, module_tree, parameters_in
from planner.iteration.plan import Kind, Plan, Transfer
from planner.iteration.problem import Part, Problem
from planner.iteration.ways import Way, affine

__all__ = ["choose_units", "fsdp_milp"]

MAX_KEPT = 128
"""With more partial choices of one module, the search for the best that fits is given up."""


def fsdp_milp(problem: Problem, synchronisation: Way, _: Deadline = NEVER) -> Plan:
    """Push every unit when it is ready, then pull every unit in order of use.

    Parameters
    ----------
    problem : Problem
        The problem.
    synchronisation : Way
        The algorithm; for each depth units are chosen, and the best plan counts.

    Raises
    ------
    NotApplicableError
        If there is no tree of modules, or no choice of units fits into memory.
    """
    tree = module_tree(problem)
    room = problem.room("sharded")
    choices = {choose_units(tree, affine(option.half), room) for option in synchronisation.options}
    plans = [
        settled(_plan_of(problem, tree, chosen, synchronisation.algorithm), synchronisation)
        for chosen in sorted(chosen for chosen in choices if chosen is not None)
    ]
    if not plans:
        raise _too_little(problem, room)
    return min(plans, key=lambda plan: lasting(problem, plan)(problem.costs))


def _plan_of(
    problem: Problem, tree: Sequence[Module], chosen: Iterable[int], algorithm: str
) -> Plan:
    known = problem.base.windows
    units = [parameters_in(tree, index) for index in chosen]
    inside = {j for unit in units for j in unit}
    rest = tuple(j for j in range(len(known.sizes)) if j not in inside)
    units += [rest] if rest else []
    by_readiness = sorted(units, key=lambda unit: max(known.heads[j] for j in unit))
    by_use = sorted(units, key=lambda unit: -max(known.tails[j] for j in unit))
    transfers = (
        *(_whole("push", unit, problem.pushed) for unit in by_readiness),
        *(_whole("pull", unit, problem.pulled) for unit in by_use),
    )
    order = problem.base.order
    return Plan(algorithm, transfers, (order.backward,), order.forward)


def _whole(kind: Kind, unit: Sequence[int], sizes: Sequence[int]) -> Transfer:
    return Transfer(kind, tuple(Part(j, 0, sizes[j]) for j in unit))


def _too_little(problem: Problem, room: int | None) -> NotApplicableError:
    binding = "max_transfer_bytes" if room == problem.max_transfer_bytes else "memory_bytes"
    return NotApplicableError(
        "method",
        f"fsdp_milp cuts no module: {binding} leaves room for units of {max(room or 0, 0)} bytes, "
        f"and every choice of units has a larger one",
    )


def choose_units(
    tree: Sequence[Module], half: AffineCost, room: int | None = None
) -> tuple[int, ...] | None:
    """Return the units beside the root that leave the least time exposed, in forward order.

    Parameters
    ----------
    tree : sequence of Module
        All modules in pre-order.
    half : AffineCost
        What gathering, or scattering, so many bytes takes.
    room : int, optional
        Bytes no unit may exceed, nor the root's share.

    Returns
    -------
    tuple of int or None
        Their places in the tree; None if nothing fits.
    """
    best = _Search(tree, half, room).best()
    if best is None:
        return None
    chosen, trail = [], best.trail
    while trail:
        index, trail = trail
        chosen.append(index)
    return tuple(reversed(chosen))


class _Label(NamedTuple):
    """A choice among the modules up to one, all times in whole ns/scale."""

    cost: int  # weight · exposed + penalty · bytes of the root's share
    units: int
    ahead: int  # minus the last unit's F: less is better
    behind: int  # minus its B
    pushed: int  # the root's share
    pulled: int
    exposed: int
    trail: Any  # last unit, and the trail before it

    @property
    def share(self) -> int:
        return self.pushed + self.pulled


@dataclass(frozen=True, slots=True)
class _Search:
    tree: Sequence[Module]
    half: AffineCost
    room: int | None

    def best(self) -> _Label | None:
        """Return the best choice whose root's share fits, or None if there is none."""
        free = self._run()
        assert free is not None  # nothing limits it
        if self._fits(free.pushed, free.pulled):
            return free
        fitting = self._run(weight=0, penalty=1)
        assert fitting is not None
        if not self._fits(fitting.pushed, fitting.pulled):
            return None  # no choice leaves the root less
        while True:
            weight, penalty = free.share - fitting.share, fitting.exposed - free.exposed
            middle = self._run(weight=weight, penalty=penalty)
            assert middle is not None
            if middle.cost == weight * fitting.exposed + penalty * fitting.share:
                break
            if self._fits(middle.pushed, middle.pulled):
                fitting = middle
            else:
                free = middle
        return self._run(most=fitting.exposed) or fitting

    def _fits(self, pushed: int, pulled: int) -> bool:
        """Return whether a unit of so many bytes may be."""
        return self.room is None or max(pushed, pulled) <= self.room

    def _run(self, weight: int = 1, penalty: int = 0, most: int | None = None) -> _Label | None:
        """Return the choice of least cost, whether or not the root's share fits.

        With `most`, only choices that expose no more and whose root's share fits; None if too many
        partial ones are kept.
        """
        # All times in units of 1 / scale ns, so that everything is a whole number.
        tree, scale = self.tree, self.half.ns_per_byte.denominator
        rate, startup = self.half.ns_per_byte.numerator, self.half.startup_ns * scale
        root = (tree[0].own_pushed, tree[0].own_pulled)
        exposed = rate * sum(root)
        cost = weight * exposed + penalty * sum(root)
        # Partial choices by the first module, in pre-order, on which they have not decided.
        partial: list[list[_Label]] = [[] for _ in range(len(tree) + 1)]
        partial[1].append(_Label(cost, 0, 0, 0, *root, exposed, None))
        for index in range(1, len(tree)):
            module = tree[index]
            labels = _undominated(partial[index], bounded=most is not None)
            partial[index] = []
            if most is not None and len(labels) > MAX_KEPT:
                return None
            if not module.pushed:
                partial[module.stop] += labels
                continue
            left = rate * (module.own_pushed + module.own_pulled)
            gather, scatter = startup + rate * module.pulled, startup + rate * module.pushed
            last = (-module.forward_ns * scale, -module.backward_ns * scale)
            unit_fits = self._fits(module.pushed, module.pulled)
            for _, units, ahead, behind, pushed, pulled, exposed, trail in labels:
                # It is no unit: its own parameters are the root's, which nothing hides. Or it is
                # one: max(0, P_{i+1} - F_i) + max(0, G_{i+1} - B_i) more, and all in it is decided.
                share = (pushed + module.own_pushed, pulled + module.own_pulled)
                extended = [(index + 1, (units, ahead, behind), share, exposed + left, trail)]
                if unit_fits:
                    now = exposed + max(0, gather + ahead) + max(0, scatter + behind)
                    longer = (index, trail)
                    extended.append(
                        (module.stop, (units + 1, *last), (pushed, pulled), now, longer)
                    )
                for place, state, share, now, way in extended:
                    if most is None or (now <= most and self._fits(*share)):
                        cost = weight * now + penalty * sum(share)
                        partial[place].append(_Label(cost, *state, *share, now, way))
        return min(partial[-1], key=lambda label: label[:2], default=None)


def _undominated(labels: list[_Label], *, bounded: bool) -> list[_Label]:
    """Return those that no other is as good as in every respect."""
    kept: list[_Label] = []
    for label in sorted(labels, key=lambda label: label[:6]):
        for better in kept:  # costs no more
            if (
                better.ahead <= label.ahead
                and better.behind <= label.behind
                and (
                    not bounded or (better.pushed <= label.pushed and better.pulled <= label.pulled)
                )
            ):
                break
        else:
            kept.append(label)
    return kept
