"""What a synchronous step of a communication algorithm costs on links that are all alike.

In a step every NIC sends and receives at once (full duplex) at the full link speed, and what
arrives is added up. The step ends when the busiest NIC and the busiest server have: ``latency +
sent/rate + reduced·γ``. A step in which nothing is sent takes no time. Times are exact fractions:
the steps of an algorithm are added up, and the sum is rounded up once, as bounds are.
"""

from dataclasses import dataclass
from fractions import Fraction

from planner.validation import set_exact, set_integer

__all__ = ["Network"]


@dataclass(frozen=True, slots=True)
class Network:
    """Links of one speed, the start-up cost of a step, and the time of adding.

    Parameters
    ----------
    link_bytes_per_s : Fraction or int
        Bytes a NIC sends, and receives, in a second.
    latency_ns : int
        Start-up cost of a step.
    reduce_ns_per_byte : Fraction or int
        Time a server takes to add one received byte (γ), all its NICs together.
    """

    link_bytes_per_s: Fraction
    latency_ns: int = 0
    reduce_ns_per_byte: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        set_integer(self, "latency_ns")
        set_exact(self, "link_bytes_per_s", positive=True)
        set_exact(self, "reduce_ns_per_byte")

    def time(
        self, sent_bytes: Fraction | int, reduced_bytes: Fraction | int = 0, steps: int = 0
    ) -> Fraction:
        """Return the unrounded time of `steps` starts, of sending and of adding so many bytes."""
        sent = Fraction(10**9) * sent_bytes / self.link_bytes_per_s
        return steps * self.latency_ns + sent + reduced_bytes * self.reduce_ns_per_byte

    def step(self, sent_bytes: Fraction | int, reduced_bytes: Fraction | int = 0) -> Fraction:
        """Return the unrounded time of one step.

        Parameters
        ----------
        sent_bytes : Fraction or int
            What the busiest NIC sends or receives.
        reduced_bytes : Fraction or int
            What the busiest server adds to what it has.
        """
        return self.time(sent_bytes, reduced_bytes, 1) if sent_bytes else Fraction(0)

    def full_transfer_ns(self, size: int) -> int:
        """Return the time T_F that `size` bytes take over one link, without a start-up cost."""
        return -int(-self.time(size) // 1)
