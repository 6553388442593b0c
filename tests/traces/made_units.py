"""Recordings of FSDP2's jobs whose costs are known: a simulator that shares nothing with planner's.

One device computes, one channel sends, in the order in which the host asks; FSDP2 prefetches as it
does by itself (docs/fsdp.md, "What the rules do").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.formats.importers.kineto_events import Event
from planner.traces.recorded import Recorded, Step, Transfer
from tests.traces.made import recording


class Sent(NamedTuple):
    """One transfer of a step."""

    collective: str
    start_ns: int
    end_ns: int
    size_bytes: int


@dataclass(frozen=True)
class UnitJob:
    """Units, as forward ns, backward ns and bytes, and what their transfers cost."""

    units: tuple[tuple[int, int, int], ...]
    startup_ns: int
    ns_per_byte: float
    kept: frozenset[int] = frozenset()
    own_bytes: int = 0  # of the model itself
    other_ns: int = 0  # of a step, behind everything

    def cost_ns(self, size: int) -> int:
        """Return how long a transfer lasts."""
        return self.startup_ns + round(self.ns_per_byte * size)

    def followed(self) -> tuple[list[tuple[int, int]], list[Sent]]:
        """Return when each unit computes in either pass, and what is sent, in its order."""
        sent: list[Sent] = []

        def send(collective: str, issued: int, size: int) -> int:
            start = max(issued, sent[-1].end_ns if sent else 0)
            sent.append(Sent(collective, start, start + self.cost_ns(size), size))
            return sent[-1].end_ns

        begin = send("all_gather", 0, self.own_bytes) if self.own_bytes else 0
        steps: list[tuple[int, int]] = []
        for place, (forward, _, size) in enumerate(self.units):
            issued = steps[max(place - 2, 0)][0] if place else begin
            arrived = send("all_gather", issued, size)
            start = max(arrived, steps[-1][1] if steps else begin)
            steps.append((start, start + forward))
        last = len(self.units) - 1
        arrived = reduced = 0
        if last not in self.kept:
            arrived = send("all_gather", steps[-1][0], self.units[-1][2])
        left = steps[-1][1]
        for place in reversed(range(last + 1)):
            start = max(left, arrived)
            if place and place - 1 not in self.kept:
                # The streams wait for the latest copy out: of a kept unit, in the forward pass.
                issued = steps[last][0] if place == last and last in self.kept else start
                arrived = send("all_gather", issued, self.units[place - 1][2])
            steps.append((start, start + self.units[place][1]))
            left = max(steps[-1][1], reduced)
            reduced = send("reduce_scatter", left, self.units[place][2])
        if self.own_bytes:
            send("reduce_scatter", left, self.own_bytes)
        return steps, sent

    def step_ns(self) -> int:
        """Return how long a step lasts."""
        steps, sent = self.followed()
        return max(steps[-1][1], sent[-1].end_ns) + self.other_ns

    def marked(self) -> Iterator[tuple[str, bool]]:
        """Yield the hooks in the order of the host, and whether a kernel is launched behind each.

        A hook that asks for a gather launches a kernel within, which copies its input.
        """
        names = [f"layers.{place}" for place in range(len(self.units))]
        if self.own_bytes:
            yield "pre_forward", False
            yield "all_gather", False
        for name in names:
            yield f"pre_forward ({name})", False
            yield f"all_gather ({name})", True
        if self.own_bytes:
            yield "pre_backward", False
        last = len(names) - 1
        for place in reversed(range(len(names))):
            if place == last and last not in self.kept:
                yield f"all_gather ({names[last]})", False
            before = place and place - 1 not in self.kept
            yield f"pre_backward ({names[place]})", not before
            if before:
                yield f"all_gather ({names[place - 1]})", True
            yield f"post_backward_reshard ({names[place]})", False
            yield f"post_backward_reduce ({names[place]})", False
        if self.own_bytes:
            yield "post_backward_reduce", False

    def recorded(self, steps: int = 2, *, rank: int = 0) -> tuple[list[Event], Recorded]:
        """Return the ranges and the recording of a job of two ranks; the host is ahead."""
        computed, sent = self.followed()
        lasts = self.step_ns()
        ranges, transfers, marks, launched, spans = [], [], [], [], []
        for step in range(steps):
            begin = step * lasts
            marks.append(Step(f"ProfilerStep#{step}", begin, begin + lasts))
            transfers += [
                Transfer(kind, begin + start, begin + end, step, size)
                for kind, start, end, size in sent
            ]
            spans += [(begin + start, begin + end) for start, end in computed if start < end]
            kernels, clock = iter(computed), begin
            for name, launches in self.marked():
                ranges.append(_range(f"FSDP::{name}", clock, clock + 2))
                if name.startswith("all_gather"):
                    launched.append((begin, clock + 1))
                if launches:
                    launched.append((begin + next(kernels)[0], clock + 3))
                clock += 4
            launched.append((begin + lasts - self.other_ns, clock + 1))  # the optimiser's
        more = {"launched": tuple(sorted(launched))}
        return ranges, recording(rank, spans, transfers, marks, **more)


def _range(name: str, start: int, end: int) -> Event:
    return Event(name, start, end, (0, 0), 0, None, 0, None, None, None)


def both(job: UnitJob) -> tuple[Sequence[Event], list[Recorded]]:
    """Return the ranges of rank 0, and the recordings of both ranks."""
    ranges, first = job.recorded()
    return ranges, [first, job.recorded(rank=1)[1]]
