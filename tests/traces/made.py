"""Recordings of jobs whose costs are known: simulators that share nothing with planner's.

Of DDP; of ZeRO and Megatron, which gather the parameters behind the backward pass; and of both if
computation waits for each transfer.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from planner.model.costs import AffineCost
from planner.model.errors import NotApplicableError
from planner.model.graphs import Graph, Op, Parameter, Phase
from planner.traces.proposals import Proposal
from planner.traces.recorded import Recorded, Step, Transfer, merged

Span = tuple[int, int]


def layers(least: int, most: int) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """Draw layers or units: forward ns, backward ns, and a size."""
    times = st.integers(0, 10**6), st.integers(1, 2 * 10**6)
    return st.lists(st.tuples(*times, st.integers(1, 10**4)), min_size=least, max_size=most)


@dataclass(frozen=True)
class Job:
    """Layers, as forward ns, backward ns and bytes, and what all-reduces cost."""

    layers: tuple[tuple[int, int, int], ...]
    startup_ns: int
    ns_per_byte: float
    other_ns: int = 0  # of a step, behind the passes
    system: str = "ddp"  # or ``deepspeed``, ``megatron``
    turns: bool = False  # whether computation waits for each transfer
    gather_ns: int = 0  # of all parameters, behind the passes

    @property
    def cost(self) -> AffineCost:
        """What an all-reduce costs."""
        return AffineCost(self.startup_ns, Fraction(self.ns_per_byte))

    @property
    def sizes(self) -> list[int]:
        """Bytes of the gradients, in the order in which they become ready."""
        return [size for *_, size in reversed(self.layers)]

    @property
    def graph(self) -> Graph:
        """The dataflow."""
        ops: list[Op] = []
        passes: list[tuple[Phase, int]] = [("forward", j) for j in range(len(self.layers))]
        passes += [("backward", j) for j in reversed(range(len(self.layers)))]
        for phase, place in passes:
            lasts = self.layers[place][phase == "backward"]
            ops.append(Op(f"{phase} {place}", lasts, phase, tuple(op.name for op in ops[-1:])))
        parameters = [
            Parameter(f"w{place}", size, (f"backward {place}",), (f"forward {place}",))
            for place, (*_, size) in enumerate(self.layers)
        ]
        return Graph(tuple(ops), tuple(parameters))

    def passes(self, counts: Sequence[int]) -> tuple[list[Span], list[tuple[int, int, int]]]:
        """Return when a step computes, and start, end and bytes of each transfer of gradients."""
        now = sum(forward for forward, _, _ in self.layers)
        computed: list[Span] = [(0, now)]
        sent: list[tuple[int, int, int]] = []
        late = self.system == "deepspeed"

        def leave(now: int, size: int) -> int:
            """Send a bucket, and return when computation goes on."""
            start = max(now, sent[-1][1] if sent else 0)
            end = start + self.startup_ns + round(self.ns_per_byte * size)
            sent.append((start, end, size))
            return end if self.turns else start if late else now

        place, full = len(self.layers), 0
        for count in counts:
            bucket = self.layers[place - count : place]
            for number, (_, back, _) in enumerate(reversed(bucket)):
                computed.append((now, now + back))
                now += back
                if late and full and not number:  # the bucket before: this gradient is too much
                    now = leave(now, full)
            place, full = place - count, sum(size for *_, size in bucket)
            if not late:
                now = leave(now, full)
        if late:
            leave(now, full)
        return computed, sent

    def step_ns(self, counts: Sequence[int]) -> int:
        """Return how long a step lasts."""
        return self._passed_ns(counts) + self.gather_ns + self.other_ns

    def _passed_ns(self, counts: Sequence[int]) -> int:
        computed, sent = self.passes(counts)
        return max(computed[-1][1], *(end for _, end, _ in sent))

    def recorded(
        self, counts: Sequence[int], steps: int = 2, *, rank: int = 0, device: bool = True
    ) -> Recorded:
        """Return the recording of a job of two ranks."""
        lasts, passed = self.step_ns(counts), self._passed_ns(counts)
        computed, sent = self.passes(counts)
        kind = "reduce_scatter" if self.system == "megatron" else "all_reduce"
        spans, transfers, marks = [], [], []
        for step in range(steps):
            begin = step * lasts
            spans += [(begin + start, begin + end) for start, end in computed]
            spans.append((begin + lasts - self.other_ns, begin + lasts))
            marks.append(Step(f"ProfilerStep#{step}", begin, begin + lasts))
            transfers += [
                Transfer(kind, begin + start, begin + end, step, size, behind=sum(counts[:number]))
                for number, (start, end, size) in enumerate(sent, 1)
            ]
            if self.system != "ddp":
                gathered = begin + passed, begin + passed + self.gather_ns
                transfers.append(Transfer("all_gather", *gathered, step, sum(self.sizes)))
        return recording(rank, spans, transfers, marks, device=device)


def recording(
    rank: int,
    spans: Sequence[Span],
    transfers: Sequence[Transfer],
    marks: Sequence[Step],
    **more: Any,
) -> Recorded:
    """Return the recording of one of two ranks, whose steps last as they are marked."""
    known: dict[str, Any] = {
        "device": True,
        "memory": (),
        "periods": tuple((mark.start_ns, mark.end_ns) for mark in marks),
        "several": True,
    }
    return Recorded(
        rank=rank,
        ranks=2,
        computation=merged(spans),
        transfers=tuple(transfers),
        steps=tuple(marks),
        **known | more,
    )


def moved(recorded: Recorded, at: Callable[[int], int]) -> Recorded:
    """Return the same, where each moment is another one."""
    spans = ("computation", "memory", "launched", "input", "synchronised", "periods")
    changes: dict[str, Any] = {
        name: tuple((at(start), at(end)) for start, end in getattr(recorded, name))
        for name in spans
    }
    for name in ("steps", "transfers"):
        rows = []
        for row in getattr(recorded, name):
            known = {key: it for key, it in asdict(row).items() if key.endswith("_ns")}
            times = {key: at(it) for key, it in known.items() if it is not None}
            rows.append(replace(row, **times))
        changes[name] = tuple(rows)
    return replace(recorded, **changes)


def check_a_proposal_or_a_reason(
    recorded: Recorded, until_ns: int, data: st.DataObject, propose: Callable[[Recorded], Proposal]
) -> None:
    """Check what is proposed for a recording whose moments need not fit together."""
    moment = st.integers(0, until_ns)
    span = st.tuples(moment, moment).map(lambda pair: (min(pair), max(pair)))

    def elsewhere(transfer: Transfer) -> Transfer:
        start, end = data.draw(span)
        return replace(transfer, start_ns=start, end_ns=end)

    odd = replace(
        recorded,
        transfers=tuple(map(elsewhere, recorded.transfers)),
        computation=merged(data.draw(st.lists(span, max_size=3))),
        launched=tuple(sorted(data.draw(st.lists(st.tuples(moment, moment))))),
        periods=tuple(data.draw(span) for _ in recorded.steps),
        device=data.draw(st.booleans()),
    )
    try:
        found = propose(odd)
    except NotApplicableError:
        return
    assert found.step_ns == sum(found.parts.values())
    assert found.keep or found.least_gain >= 1
    assert found.least_gain <= found.gain <= found.most_gain
