"""Lower bounds on the iteration time under the memory limit.

Bounds: for each mesh the largest of (1) the best units with nothing gathered twice
(`planner.families.fsdp.partitions`); on long chains first each pass by itself, with affine costs;
(2) with a memory limit, fluid transfers at the least time per byte; memory limits the bytes that
wait before their use or after their computation; (3) with a memory limit, whole transfers and units
(`planner.families.fsdp.whole_transfers`), up to a known time. The least of all meshes bounds the
problem. Guarantee: no plan is faster. Proofs: docs/fsdp.md, "Why the bounds hold".
Complexity: O(layers · log layers), and that of the best units and of whole transfers. Source: own.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from planner.families.fsdp.channel_bound import Fitting, least_work
from planner.families.fsdp.min_memory import fitting
from planner.families.fsdp.problem import Mesh, Problem
from planner.model.costs import AffineCost, TransferCost, least_rate, piece_ends
from planner.solving.bucketing import earliest_end
from planner.solving.deadline import NEVER, Deadline, TimeUpError

_Bound: TypeAlias = Callable[..., Fraction]

MAX_LAYERS = 400
"""Up to this many layers every mesh is bounded by its best units first."""


def lower_bound(
    problem: Problem, deadline: Deadline = NEVER, *, enough_ns: int | None = None
) -> tuple[Fraction, bool]:
    """Return the bound (ns), and whether the deadline weakened it; stop once it is `enough_ns`."""
    bounds = MeshBounds(problem, deadline)
    if bounds.of:
        bounds.refine(enough_ns)
    return bounds.least, bounds.cut


class MeshBounds:
    """Lower bounds of the meshes on which anything fits: cheap bounds first, more by `refine`."""

    def __init__(self, problem: Problem, deadline: Deadline = NEVER) -> None:
        self._problem, self._deadline = problem, deadline
        self.of: dict[int, Fraction] = {}  # bound (ns) by number of the mesh
        self.cut = False  # whether the deadline left only weaker bounds
        limit, short = problem.memory_bytes, problem.layers <= MAX_LAYERS
        first = _best if short else _passes
        later: list[_Bound] = [] if limit is None else [_whole, _busy] if short else [_whole]
        if not short:
            later.append(_best)
        for place, mesh in enumerate(problem.meshes):
            if deadline.passed and limit is not None:  # whether anything fits is not known
                self.of[place], self.cut = _passes(problem, mesh, NEVER), True
            elif limit is None or fitting(problem, place, limit) is not None:
                bound = Fraction(0) if limit is None else _liquid(problem, mesh)
                self.of[place] = max(bound, self._unless_late(first, mesh, _passes))
        self._left = {place: list(later) for place in self.of}

    def _unless_late(self, bound: _Bound, mesh: Mesh, other: _Bound | None = None) -> Fraction:
        """Return a bound, or the other bound (0 if there is none) if time is up."""
        try:
            return bound(self._problem, mesh, self._deadline)
        except TimeUpError:
            self.cut = True
            return other(self._problem, mesh, NEVER) if other else Fraction(0)

    @property
    def least(self) -> Fraction:
        """The least bound of all meshes, which bounds every plan."""
        if not self.of:  # nothing fits: there is nothing to bound
            return Fraction(self._problem.compute_ns)
        return min(self.of.values())

    def refine(self, enough_ns: int | None = None, *, whole: bool = True) -> None:
        """Tighten the least bound as far as possible, or until it reaches `enough_ns`.

        Unless `whole`, leave out the bound by whole transfers, which takes longest.
        """
        while enough_ns is None or self.least < enough_ns:
            place = min(self.of, key=self.of.__getitem__)
            if self.cut or not self._left[place] or (self._left[place] == [_whole] and not whole):
                return
            bound, mesh = self._left[place].pop(), self._problem.meshes[place]
            if bound is _whole:
                bound = partial(_whole, enough_ns=enough_ns)
            self.of[place] = max(self.of[place], self._unless_late(bound, mesh))


def _busy(problem: Problem, mesh: Mesh, deadline: Deadline) -> Fraction:
    """Return the bound by busy and idle channels."""
    work, made = least_work(problem, mesh, deadline), problem.gradients[0]
    if problem.channels == "two":
        return work + _last(problem, mesh)
    return work + (mesh_costs(problem, mesh).sums.cost_ns(made) if made else 0)


def _whole(
    problem: Problem, mesh: Mesh, deadline: Deadline, enough_ns: int | None = None
) -> Fraction:
    """Return the bound by whole transfers."""
    from planner.families.fsdp.whole_transfers import least_time  # loads numpy

    return Fraction(least_time(problem, mesh, deadline, enough_ns))


def affine_below(cost: TransferCost, total_bytes: int) -> AffineCost:
    """Return an affine lower bound on a cost for 1 to `total_bytes` bytes, with equal start-up."""
    times = [(piece.time(size), size) for piece, size in piece_ends(cost, total_bytes)]
    startup = int(min((time for time, _ in times), default=Fraction(0)))
    startup = min(startup, cost.startup_ns)
    return AffineCost(startup, min((time - startup) / size for time, size in times))


def _best(problem: Problem, mesh: Mesh, deadline: Deadline) -> Fraction:
    """Return the bound by the best units if nothing is gathered twice."""
    from planner.families.fsdp.partitions import best_units  # loads numpy

    fits = None if problem.memory_bytes is None else Fitting(problem, mesh).fits
    kept = 256 if problem.layers <= MAX_LAYERS else 16
    best = best_units(problem, mesh, fits=fits, kept=kept, bounded=True, deadline=deadline)
    return Fraction(best.bound_ns)


def _passes(problem: Problem, mesh: Mesh, _: Deadline) -> Fraction:
    """Return the bound of each pass by itself, added up."""
    costs, made = mesh_costs(problem, mesh), problem.gradients[0]
    forward = _pass(costs.gather, problem.parameter_bytes, problem.forward_ns)
    gradients, computes = problem.gradients, problem.backward_ns
    if problem.apart(mesh):
        # The last sum follows the last reduce-scatter, and the first sum the first reduce-scatter.
        behind, before = (
            (costs.sums.cost_ns(made), costs.reduce.cost_ns(min(filter(None, gradients))))
            if made
            else (0, 0)
        )
        backward = max(
            _pass(costs.reduce, gradients, computes) + behind,
            _pass(costs.sums, gradients, computes) + before,
        )
    else:
        both = AffineCost(
            costs.reduce.startup_ns + costs.sums.startup_ns,
            costs.reduce.ns_per_byte + costs.sums.ns_per_byte,
        )
        backward = _pass(both, gradients, computes)
    return forward + backward


class Costs(NamedTuple):
    """Affine lower bounds on a mesh's costs, by a unit's parameter or gradient bytes."""

    gather: AffineCost
    reduce: AffineCost
    sums: AffineCost


def mesh_costs(problem: Problem, mesh: Mesh) -> Costs:
    """Return affine lower bounds on a mesh's gathers, reduce-scatters and sums over replicas."""
    gather = affine_below(mesh.all_gather, sum(problem.parameter_bytes))
    reduce = affine_below(mesh.reduce_scatter, max(sum(problem.gradients), 1))
    sums = AffineCost(0, Fraction(0))
    if mesh.all_reduce is not None:
        whole = affine_below(mesh.all_reduce, problem.share_sums[mesh.shards][-1] or 1)
        sums = AffineCost(whole.startup_ns, whole.ns_per_byte / mesh.shards)
    return Costs(gather, reduce, sums)


def _last(problem: Problem, mesh: Mesh) -> int:
    """Return the least time of transfers after the last computation (ns)."""
    costs, made = mesh_costs(problem, mesh), problem.gradients[0]
    return costs.reduce.cost_ns(made) + costs.sums.cost_ns(made) if made else 0


def _pass(cost: AffineCost, sizes: Sequence[int], compute_ns: Sequence[int]) -> Fraction:
    """Return the least time of one pass: layers computed after (or before) affine transfers.

    Both passes are time reversals of each other. A layer without bytes needs no transfer.
    """
    whole, scale = sum(compute_ns), cost.ns_per_byte.denominator
    before = accumulate(compute_ns, initial=0)
    tails = [(whole - done) * scale for done, size in zip(before, sizes, strict=False) if size]
    sent = [size * cost.ns_per_byte.numerator for size in accumulate(filter(None, sizes))]
    end = earliest_end(tails, sent, cost.startup_ns * scale) if sent else 0
    return Fraction(max(-(-end // scale), whole))


class _Limits(NamedTuple):
    """Most bytes that memory holds in addition to what must be there, layer by layer."""

    ahead_forward: list[int]
    turn: int
    ahead_backward: list[int]
    behind: list[int]


def _limits(problem: Problem, fitting: Fitting, shards: int) -> _Limits:
    forward, behind = (
        [fitting.for_buffers(layer, layer + 1, forward=which) for layer in range(problem.layers)]
        for which in (True, False)
    )
    sums = problem.share_sums[shards]
    ahead = [
        left - sum(problem.gradients[i + 1 : i + 2]) - (sums[-1] - after)
        for i, (left, after) in enumerate(zip(behind, (*sums[2:], sums[-1]), strict=True))
    ]
    return _Limits(forward, fitting.turn, ahead, behind)


def _liquid(problem: Problem, mesh: Mesh) -> Fraction:
    """Return the bound by fluid transfers: the time of the fullest schedule."""
    fitting, costs = Fitting(problem, mesh), mesh_costs(problem, mesh)
    limits = _limits(problem, fitting, mesh.shards)
    gathering, reducing = _rates(problem, mesh, fitting)
    sizes = problem.parameter_bytes
    work = list(
        accumulate(
            (size * rate for size, rate in zip(sizes, gathering, strict=True)), initial=Fraction(0)
        )
    )
    sums = problem.prefixes["parameter_bytes"]
    gather, reduce = min(gathering), min(reducing)

    def until(position: int) -> Fraction:
        """Return the time to gather this many bytes from the first layer on."""
        if position >= sums[-1]:
            return work[-1] + gather * (position - sums[-1])
        layer = bisect_right(sums, max(position, 0)) - 1
        return work[layer] + gathering[layer] * (max(position, 0) - sums[layer])

    now = done = Fraction(0)
    for layer, computes in enumerate(problem.forward_ns):
        needed = work[layer + 1]
        if not layer:
            needed = max(needed, Fraction(costs.gather.cost_ns(sizes[0])))
        now, done = max(now, now + needed - done), max(done, needed)
        now += computes
        most = until(sums[layer + 1] + limits.ahead_forward[layer])
        done = min(done + computes, max(most, work[layer + 1]))
    last = _last(problem, mesh)
    computed = problem.compute_ns + _recomputing(problem, fitting.room)
    bound = max(
        _apart(problem, limits, gather, reduce, now, last),
        computed + costs.gather.cost_ns(sizes[0]) + last,
    )
    if problem.channels == "two":
        return bound
    summed = Fraction(0) if problem.apart(mesh) else costs.sums.ns_per_byte
    return max(bound, _together(problem, limits, (gather, reduce, summed), now))


def _apart(
    problem: Problem,
    limits: _Limits,
    gather: Fraction,
    reduce: Fraction,
    now: Fraction,
    last: int,
) -> Fraction:
    """Return the time of the fluid backward pass if gathers and reduce-scatters share no links."""
    sizes, gradients = problem.parameter_bytes, problem.gradients
    there = Fraction(limits.turn)  # bytes gathered or kept, counted from the last layer
    used = made = 0
    scattered = Fraction(0)  # bytes
    end = now
    for layer in reversed(range(problem.layers)):
        begun = now
        used += sizes[layer]
        wait = max((used - there) * gather, Fraction(0))
        wait = max(wait, (made - scattered - max(limits.behind[layer], 0)) * reduce)
        now += wait + problem.backward_ns[layer]
        passed = now - begun
        there = there + passed / gather if gather else Fraction(sum(sizes))
        there = min(there, Fraction(used + max(limits.ahead_backward[layer], 0)))
        there = max(there, Fraction(used))
        scattered = min(scattered + passed / reduce, Fraction(made)) if reduce else Fraction(made)
        made += gradients[layer]
        end = max(end, now)
    return max(end + last, now + (made - scattered) * reduce)


def _together(
    problem: Problem,
    limits: _Limits,
    rates: tuple[Fraction, Fraction, Fraction],
    now: Fraction,
) -> Fraction:
    """Return the time of the fluid backward pass on shared links, counted in link time."""
    sizes, gradients = problem.parameter_bytes, problem.gradients
    gather, reduce, summed = rates
    credit = limits.turn * gather
    later = Fraction(0)  # link time of sums still to be sent
    for layer in reversed(range(problem.layers)):
        needed = sizes[layer] * gather - max(limits.behind[layer], 0) * reduce
        wait = max(needed - credit, Fraction(0))
        computes = problem.backward_ns[layer]
        now += wait + computes
        credit += wait + computes - sizes[layer] * gather
        most = max(limits.ahead_backward[layer], 0) * gather
        later = max(later - max(credit - most, Fraction(0)), Fraction(0))
        later += gradients[layer] * summed
        credit = min(credit, most) - gradients[layer] * reduce
    return now + max(later - credit, Fraction(0))


def _rates(problem: Problem, mesh: Mesh, fitting: Fitting) -> tuple[list[Fraction], list[Fraction]]:
    """Return each layer's least time per byte of gathers and reduce-scatters, in units that fit."""
    count, sums = problem.layers, problem.prefixes
    sizes, made = sums["parameter_bytes"], sums["gradients"]
    largest: list[tuple[int, int]] = []  # heaps of units: (-bytes, stop)
    most_made: list[tuple[int, int]] = []
    stop = 0
    gathering: list[Fraction] = []
    reducing: list[Fraction] = []
    costs = mesh.all_gather, mesh_costs(problem, mesh).reduce
    cheap: dict[tuple[int, int], Fraction] = {}

    for layer in range(count):
        stop = max(stop, layer + 1)
        while stop < count and fitting.fits(layer, stop + 1, longer=True):
            stop += 1
        while stop > layer + 1 and not fitting.fits(layer, stop, longer=True):
            stop -= 1
        last = stop
        while last > layer + 1 and not fitting.fits(layer, last):
            last -= 1
        for which, (heap, total, rates) in enumerate(
            ((largest, sizes, gathering), (most_made, made, reducing))
        ):
            heappush(heap, (total[layer] - total[last], last))
            while heap[0][1] <= layer:
                heappop(heap)
            size = max(-heap[0][0], 1)
            if (which, size) not in cheap:
                cheap[which, size] = least_rate(costs[which], size)
            rates.append(cheap[which, size])
    return gathering, reducing


def _recomputing(problem: Problem, room: int) -> Fraction:
    """Return the least recomputation time with which the activations fit (ns)."""
    if problem.checkpoint_bytes is None:
        return Fraction(0)
    missing = sum(problem.activations) - room
    missing += problem.parameter_bytes[-1] + problem.gradients[-1]
    time = Fraction(0)
    saved = sorted(
        (Fraction(computes, whole - checkpoint), whole - checkpoint)
        for computes, whole, checkpoint in zip(
            problem.forward_ns, problem.activations, problem.checkpoints, strict=True
        )
        if whole > checkpoint
    )
    for rate, size in saved:
        part = min(max(missing, 0), size)
        time, missing = time + rate * part, missing - part
    return time
