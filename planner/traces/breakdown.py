"""Where the time of a rank went: computing, communicating, both, neither.

Definitions are those of HolisticTraceAnalysis, so that numbers can be compared: the time is that
from the first to the last thing that ran on the device; `compute` is when any kernel computed,
`idle` when nothing ran, `non_compute` the rest; `overlap` is the share of communication during
which something was computed.

Complexity: O(events · log events).
Source: HolisticTraceAnalysis, "Temporal breakdown" and "Communication computation overlap".
"""

from dataclasses import dataclass

from planner.traces.recorded import Recorded
from planner.traces.spans import both, length, merged, without

__all__ = ["Breakdown", "breakdown_of"]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Times of one rank over the whole trace, in ns.

    Attributes
    ----------
    whole_ns, idle_ns, compute_ns, non_compute_ns : int
        As above; the last three sum to the first.
    communication_ns, overlapped_ns, exposed_ns : int
        When something was sent; of that, while computing, and while not.
    input_ns : int
        Of the idle time, while the host waited for data.
    """

    whole_ns: int
    idle_ns: int
    compute_ns: int
    non_compute_ns: int
    communication_ns: int
    overlapped_ns: int
    exposed_ns: int
    input_ns: int

    @property
    def overlap(self) -> float | None:
        """Share of communication that computation hides; None if nothing was sent."""
        return self.overlapped_ns / self.communication_ns if self.communication_ns else None


def breakdown_of(recorded: Recorded) -> Breakdown:
    """Return where the time of a rank went."""
    sent = merged((transfer.start_ns, transfer.end_ns) for transfer in recorded.transfers)
    busy = merged([*recorded.computation, *recorded.memory, *sent])
    whole = ((busy[0][0], busy[-1][1]),) if busy else ()
    idle = without(whole, busy)
    compute = length(recorded.computation)
    overlapped = length(both(sent, recorded.computation))
    return Breakdown(
        whole_ns=length(whole),
        idle_ns=length(idle),
        compute_ns=compute,
        non_compute_ns=length(busy) - compute,
        communication_ns=length(sent),
        overlapped_ns=overlapped,
        exposed_ns=length(sent) - overlapped,
        input_ns=length(both(idle, recorded.input)),
    )
