"""Recordings of jobs whose costs are known: a simulator of DDP, sharing nothing with planner's."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from planner.model.graphs import Graph, Op, Parameter, Phase
from planner.traces.recorded import Recorded, Step, Transfer


@dataclass(frozen=True)
class Job:
    """Layers, as forward ns, backward ns and bytes, and what all-reduces cost."""

    layers: tuple[tuple[int, int, int], ...]
    startup_ns: int
    ns_per_byte: float
    other_ns: int = 0  # of a step, behind the passes

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

    def sent(self, counts: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return start, end and bytes of each all-reduce of a step under these buckets."""
        at = sum(forward for forward, _, _ in self.layers)
        ready = list(accumulate((back for _, back, _ in reversed(self.layers)), initial=at))[1:]
        sent, free, place = [], 0, 0
        for count in counts:
            place += count
            size = sum(self.sizes[place - count : place])
            start = max(free, ready[place - 1])
            free = start + self.startup_ns + round(self.ns_per_byte * size)
            sent.append((start, free, size))
        return sent

    def step_ns(self, counts: Sequence[int]) -> int:
        """Return how long a step lasts."""
        computed = sum(forward + backward for forward, backward, _ in self.layers)
        return max(computed, *(end for _, end, _ in self.sent(counts))) + self.other_ns

    def recorded(
        self, counts: Sequence[int], steps: int = 2, *, rank: int = 0, device: bool = True
    ) -> Recorded:
        """Return the recording of a job of two ranks."""
        lasts = self.step_ns(counts)
        computed = sum(forward + backward for forward, backward, _ in self.layers)
        spans, transfers, marks = [], [], []
        for step in range(steps):
            begin = step * lasts
            spans += [(begin, begin + computed), (begin + lasts - self.other_ns, begin + lasts)]
            marks.append(Step(f"ProfilerStep#{step}", begin, begin + lasts))
            transfers += [
                Transfer("all_reduce", begin + start, begin + end, step, size)
                for start, end, size in self.sent(counts)
            ]
        return Recorded(
            rank=rank,
            ranks=2,
            device=device,
            computation=tuple(span for span in spans if span[0] < span[1]),
            memory=(),
            transfers=tuple(transfers),
            steps=tuple(marks),
            periods=tuple((mark.start_ns, mark.end_ns) for mark in marks),
            several=True,
        )
