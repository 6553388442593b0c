"""Networks of servers and switches, computed by arithmetic, without an object per part.

A server is an integer; in BCube(n, k) its base-n digits ``[v_{k-1}, …, v_0]`` tell to which
switches it is connected. Every property takes O(1), and every list linear time.

Source: Guo et al., "BCube: A High Performance, Server-centric Network Architecture for Modular Data
Centers", SIGCOMM'09; Al-Fares et al., "A Scalable, Commodity Data Center Network Architecture",
SIGCOMM'08; compared in Wang et al., "BML", NeurIPS 2018, section 3.1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import index
from typing import Any

from planner.model.errors import InvalidInputError
from planner.model.units import counted
from planner.model.validation import MAX_VALUE, integer, set_exact, set_integer, shown


@dataclass(frozen=True, slots=True)
class BCube:
    """BCube(n, k): k levels of n-port switches; every server has one NIC at each level.

    The servers on one switch of level l have all digits but digit l in common.
    """

    n: int  # ports of a switch, at least 2
    k: int  # levels, and NICs per server; at least 1, and at most 2^62 NICs in all

    def __post_init__(self) -> None:
        set_integer(self, "n", minimum=2)
        set_integer(self, "k", minimum=1)
        # Check the size of the power before it is computed.
        if self.k > MAX_VALUE.bit_length() or self.k * self.n**self.k > MAX_VALUE:
            raise InvalidInputError(
                "k", f"expected at most 2^62 NICs, k·n^k, got BCube({self.n}, {self.k})"
            )

    @property
    def servers(self) -> int:
        """Number of servers N = n^k."""
        return int(self.n**self.k)

    @property
    def switches(self) -> int:
        """Number of switches, k·n^(k-1) = k·N/n."""
        return self.k * int(self.n ** (self.k - 1))

    @property
    def nics(self) -> int:
        """Number of NICs of all servers, k·N; equals the number of links."""
        return self.k * self.servers

    def digit(self, server: int, level: int) -> int:
        """Return the digit v_level of a server."""
        return server // int(self.n**level) % self.n

    def digits(self, server: int) -> tuple[int, ...]:
        """Return the digits [v_{k-1}, …, v_0] of a server."""
        return tuple(self.digit(server, level) for level in reversed(range(self.k)))

    def with_digit(self, server: int, level: int, value: int) -> int:
        """Return the server that equals `server` except for one digit."""
        stride: int = self.n**level
        return server + (value - server // stride % self.n) * stride

    def neighbours(self, server: int, level: int) -> tuple[int, ...]:
        """Return the n - 1 other servers on a server's switch at one level, in rotated order.

        The neighbour with the next digit comes first. If all servers send in this order, no two
        send to the same server at once.
        """
        own = self.digit(server, level)
        return tuple(
            self.with_digit(server, level, (own + turn) % self.n) for turn in range(1, self.n)
        )

    def on_switch(self, level: int, switch: int) -> tuple[int, ...]:
        """Return the n servers on a switch of one level."""
        stride: int = self.n**level
        first = switch // stride * stride * self.n + switch % stride
        return tuple(first + value * stride for value in range(self.n))

    def wire(self, sender: int, receiver: int, lane: int = 0) -> int:  # as all wirings
        """Return the highest level at which two servers differ; neighbours differ at one."""
        level = 0
        while sender // self.n ** (level + 1) != receiver // self.n ** (level + 1):
            level += 1
        return level

    def switch(self, server: int, level: int) -> int:
        """Return a server's switch at one level: the number formed by the other digits."""
        stride: int = self.n**level
        return server // (stride * self.n) * stride + server % stride

    def server(self, digits: Sequence[Any], path: str = "server") -> int:
        """Return the server with the digits [v_{k-1}, …, v_0].

        If they are not k integers from 0 to n - 1: an InvalidInputError at `path`.
        """
        return self._number(digits, self.k, path)

    def switch_of(self, digits: Sequence[Any], path: str = "switch") -> int:
        """Return the switch of a level with the k - 1 digits that all its servers have in common.

        If they are not k - 1 integers from 0 to n - 1: an InvalidInputError at `path`.
        """
        return self._number(digits, self.k - 1, path)

    def _number(self, digits: Sequence[Any], count: int, path: str) -> int:
        if not isinstance(digits, Sequence) or isinstance(digits, str):
            raise InvalidInputError(path, f"expected an array of digits, got {shown(digits)}")
        if len(digits) != count:
            raise InvalidInputError(path, f"expected {count} digits, got {len(digits)}")
        number = 0
        for place, digit in enumerate(digits):
            number = number * self.n + integer(digit, f"{path}[{place}]", maximum=self.n - 1)
        return number


def _plain(part: Any) -> Any:
    """Return a failed part with Python's integers in place of NumPy's; anything else unchanged."""
    if isinstance(part, tuple):
        return tuple(map(_plain, part))
    return part if isinstance(part, bool) or not hasattr(part, "__index__") else index(part)


@dataclass(frozen=True, slots=True, repr=False)
class Failures:
    """Failed parts of a BCube.

    Parameters
    ----------
    servers : frozenset of int
        Failed servers.
    nics : frozenset of (int, int)
        Failed NICs, each a server and a level; a failed link counts as its NIC.
    switches : frozenset of (int, int)
        Failed switches, each a level and a number (see `BCube.switch`).
    """

    servers: frozenset[int] = frozenset()
    nics: frozenset[tuple[int, int]] = frozenset()
    switches: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        for name in ("servers", "nics", "switches"):
            value: Any = getattr(self, name)
            if not isinstance(value, Iterable) or isinstance(value, str):
                raise InvalidInputError(name, f"expected a set, got {shown(value)}")
            try:
                object.__setattr__(self, name, frozenset(map(_plain, value)))
            except TypeError:
                raise InvalidInputError(name, "expected a set of integers or of pairs") from None

    def __repr__(self) -> str:  # equal failures have equal texts: ranks compare them
        parts = (f"{name}={sorted(getattr(self, name))}" for name in self.__slots__)
        return f"Failures({', '.join(parts)})"

    def __bool__(self) -> bool:
        """Return whether anything has failed."""
        return bool(self.servers or self.nics or self.switches)

    def in_words(self) -> str:
        """Return how many servers, NICs and switches have failed."""
        parts = (
            (self.servers, "server", "servers"),
            (self.nics, "NIC", "NICs"),
            (self.switches, "switch", "switches"),
        )
        return " and ".join(counted(len(failed), *names) for failed, *names in parts if failed)

    def check(self, bcube: BCube) -> None:
        """Raise an error, at the first wrong set, if a failed part is not in `bcube`."""
        per_level = bcube.servers // bcube.n - 1
        for server in self.servers:
            integer(server, "failed.servers", maximum=bcube.servers - 1)
        for place, pairs, limits in (
            ("failed.nics", self.nics, (bcube.servers - 1, bcube.k - 1)),
            ("failed.switches", self.switches, (bcube.k - 1, per_level)),
        ):
            for pair in pairs:
                if not isinstance(pair, tuple) or len(pair) != 2:
                    raise InvalidInputError(place, f"expected pairs, got {shown(pair)}")
                for value, limit in zip(pair, limits, strict=True):
                    integer(value, place, maximum=limit)


@dataclass(frozen=True, slots=True)
class FatTree:
    """Three-layer Fat-Tree of p-port switches: p pods, full bisection bandwidth."""

    ports: int  # p, even, at most 2^22

    def __post_init__(self) -> None:
        set_integer(self, "ports", minimum=2, maximum=2**22)
        if self.ports % 2:
            raise InvalidInputError("ports", f"expected an even number, got {self.ports}")

    @classmethod
    def smallest_for(cls, servers: int) -> "FatTree":
        """Return the Fat-Tree with the fewest ports that holds `servers` servers."""
        integer(servers, "servers", minimum=1)
        low, high = 1, 2**21  # half the ports; 2^22 ports hold 2^64 servers
        while low < high:
            middle = (low + high) // 2
            if 2 * middle**3 < servers:
                low = middle + 1
            else:
                high = middle
        return cls(2 * low)

    @property
    def servers(self) -> int:
        """Largest number of servers, p³/4."""
        return self.ports**3 // 4

    @property
    def switches(self) -> int:
        """Number of switches, 5p²/4 = 5·N/p: p²/2 edge, p²/2 aggregation and p²/4 core switches."""
        return 5 * self.ports**2 // 4

    @property
    def groups(self) -> tuple[int, int, int]:
        """Group sizes of the hierarchy: servers per edge switch, edge switches per pod, pods."""
        return self.ports // 2, self.ports // 2, self.ports


@dataclass(frozen=True, slots=True)
class Switch:
    """One non-blocking switch that connects all servers."""

    servers: int

    def __post_init__(self) -> None:
        set_integer(self, "servers", minimum=1)


@dataclass(frozen=True, slots=True)
class Rails:
    """Hosts with several accelerators, each with its own NIC; NIC i of all hosts form rail i.

    A rail is a network of full bisection bandwidth. Within a host, accelerators communicate over
    links of their own, such as NVLink.
    """

    hosts: int
    accelerators: int  # per host; equals the number of rails
    link_bytes_per_s: Fraction  # that an accelerator sends, and receives, within its host
    link_startup_ns: int = 0  # of a step within hosts

    def __post_init__(self) -> None:
        set_integer(self, "hosts", minimum=1)
        set_integer(self, "accelerators", minimum=1)
        set_integer(self, "link_startup_ns")
        set_exact(self, "link_bytes_per_s", positive=True)

    @property
    def servers(self) -> int:
        """Number of accelerators of all hosts: the workers of a job."""
        return self.hosts * self.accelerators


Topology = BCube | FatTree | Rails | Switch
