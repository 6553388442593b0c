"""Clusters: machines, topology, NICs, memory, and the source of the numbers.

A cluster describes where a job runs. It knows no algorithms;
`planner.families.iteration.synchronisation` computes their costs on a cluster.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from planner.model.contention import NO_CONTENTION, Interference, check_interference
from planner.model.costs import TableCost, scaled_cost
from planner.model.errors import InvalidInputError
from planner.model.measured import MeasuredNetwork
from planner.model.topologies import BCube, Failures, FatTree, Rails, Switch, Topology
from planner.model.units import format_bytes
from planner.model.validation import MAX_VALUE, set_exact, set_integer, shown

MAX_MACHINES = 2**16

ONE_ACCELERATOR_BYTES = 300 * 10**9
"""No accelerator has more memory; a smaller `memory_bytes` may be meant per accelerator."""


@dataclass(frozen=True, slots=True)
class Nic:
    """The network interfaces of a machine, identical and full duplex."""

    bytes_per_s: Fraction  # that one NIC sends, and receives
    startup_ns: int  # of one step of a collective: the time of the smallest message
    per_machine: int = 1
    # Cost of each further message that a NIC sends in the same step: the gap g of LogP. With 0, a
    # simultaneous exchange with all others costs no more than with one.
    message_ns: int = 0

    def __post_init__(self) -> None:
        set_exact(self, "bytes_per_s", positive=True)
        set_integer(self, "startup_ns")
        set_integer(self, "message_ns")
        set_integer(self, "per_machine", minimum=1, maximum=2**10)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Costs of a driver, such as Spark's, that schedules every task of every iteration.

    The constants are those of `planner.drizzle.Problem`.
    """

    task_ns: int  # d1
    group_ns: int = 0  # d0
    constant_task_ns: int = 0  # d2
    tasks_per_machine: int = 1  # in one iteration

    def __post_init__(self) -> None:
        for name in ("task_ns", "group_ns", "constant_task_ns"):
            set_integer(self, name)
        set_integer(self, "tasks_per_machine", minimum=1)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Identical machines and their network.

    Attributes
    ----------
    name : str
        Name of the cluster.
    source : str
        Where the numbers come from.
    machines : int
        Number of machines; with `Rails`, of hosts.
    topology : Switch, FatTree, BCube or Rails
        The network between the machines.
    nic : Nic
        NICs of a machine: k with BCube(n, k), one per accelerator with `Rails`.
    cores : int
        Processor cores of a machine.
    memory_bytes : int, optional
        Memory of a machine, all its accelerators together; None means no limit.
    accelerator_memory_bytes : int, optional
        Memory of each accelerator, in place of `memory_bytes`; only with `Rails`.
    shared_bytes_per_s : Fraction, optional
        Bytes per second that all machines together can send, on a switch or a Fat-Tree.
    scheduling : Scheduling, optional
        Costs of the engine's driver, if one schedules the iterations.
    notes : tuple of str
        Remarks for readers of the numbers, such as assumptions.
    failed : Failures
        Failed parts of a BCube. `machines` includes failed machines.
    interference : Interference
        Contention between an all-reduce and computation, for any algorithm; a push or a pull has
        half.
    network : MeasuredNetwork, optional
        Measured times of collectives. If given, plans use them in place of NICs and topology.

    Raises
    ------
    InvalidInputError
        If machines, NICs and topology do not fit together.
    """

    name: str
    source: str
    machines: int
    topology: Topology
    nic: Nic
    cores: int = 1
    memory_bytes: int | None = None
    shared_bytes_per_s: Fraction | None = None
    scheduling: Scheduling | None = None
    notes: tuple[str, ...] = ()
    failed: Failures = field(default_factory=Failures)
    interference: Interference = NO_CONTENTION
    network: MeasuredNetwork | None = None
    accelerator_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("name", "source"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInputError(
                    name, f"expected a string, got {shown(getattr(self, name))}"
                )
        set_integer(self, "machines", minimum=1, maximum=MAX_MACHINES)
        set_integer(self, "cores", minimum=1, maximum=2**20)
        for name in ("memory_bytes", "accelerator_memory_bytes"):
            if getattr(self, name) is not None:
                set_integer(self, name, minimum=1)
        if self.accelerator_memory_bytes is not None:
            place = "accelerator_memory_bytes"
            if self.memory_bytes is not None:
                raise InvalidInputError(place, "not together with memory_bytes")
            if not isinstance(self.topology, Rails):
                raise InvalidInputError(place, "only with topology rails; else memory_bytes")
        check_interference(self.interference)
        self._check_topology()
        self._check_failed()
        if self.shared_bytes_per_s is not None:
            set_exact(self, "shared_bytes_per_s", positive=True)
            if not isinstance(self.topology, Switch | FatTree):
                raise InvalidInputError(
                    "shared_bytes_per_s", "only a switch or a fattree can be shared"
                )

    def _check_topology(self) -> None:
        topology, machines = self.topology, self.machines
        if not isinstance(topology, Topology):
            raise InvalidInputError("topology", f"expected a topology, got {shown(topology)}")
        wrong, nics, servers = "", self.nic.per_machine, topology.servers
        if isinstance(topology, FatTree):
            if servers < machines:
                switches = f"a Fat-Tree of {topology.ports}-port switches"
                wrong = f"{switches} has room for {servers}, got {machines}"
        elif isinstance(topology, Rails):
            nics = topology.accelerators
            if topology.hosts != machines:
                wrong = f"the topology has {topology.hosts} hosts, got {machines}"
            elif servers > MAX_MACHINES:
                wrong = f"expected at most {MAX_MACHINES} accelerators in all, got {servers}"
        else:
            nics = topology.k if isinstance(topology, BCube) else nics
            if servers != machines:
                wrong = f"the topology has {servers} servers, got {machines}"
        if wrong:
            raise InvalidInputError("machines", wrong)
        if self.nic.per_machine != nics:
            raise InvalidInputError(
                "nic.per_machine",
                f"expected {nics}, as many as the topology has for a machine, "
                f"got {self.nic.per_machine}",
            )

    def _check_failed(self) -> None:
        if not self.failed:
            return
        if not isinstance(self.topology, BCube):
            raise InvalidInputError("failed", "only parts of a bcube: re-plans are for it")
        self.failed.check(self.topology)
        if not self.working:
            raise InvalidInputError("failed.servers", "expected one that works, all have failed")

    @property
    def working(self) -> int:
        """Number of machines that have not failed."""
        return self.machines - len(self.failed.servers)

    @property
    def workers(self) -> int:
        """Number of workers: working machines, or all accelerators."""
        return self.topology.servers if isinstance(self.topology, Rails) else self.working

    @property
    def workers_per_host(self) -> int:
        """Workers per host."""
        return self.nic.per_machine if isinstance(self.topology, Rails) else 1

    @property
    def ranks(self) -> tuple[int, ...]:
        """The server of each rank: the working servers of a BCube, in order."""
        return tuple(server for server in range(self.machines) if server not in self.failed.servers)

    @property
    def worker_memory_bytes(self) -> int | None:
        """Memory of one worker; None means no limit."""
        if self.memory_bytes is None or not isinstance(self.topology, Rails):
            return self.accelerator_memory_bytes or self.memory_bytes
        return self.memory_bytes // self.topology.accelerators

    @property
    def memory_caveats(self) -> tuple[str, ...]:
        """Warning if `memory_bytes` looks like the memory of one accelerator; else empty."""
        have, workers = self.memory_bytes, self.workers_per_host
        if have is None or workers == 1 or have > ONE_ACCELERATOR_BYTES:
            return ()
        each = format_bytes(have // workers)
        text = (
            f"memory_bytes is that of a machine: {format_bytes(have)}, {each} for each of its "
            f"{workers} accelerators; if it is that of one, give accelerator_memory_bytes instead"
        )
        return (text,)


def scaled_cluster(
    cluster: Cluster, *, startup: Fraction = Fraction(1), bandwidth: Fraction = Fraction(1)
) -> Cluster:
    """Return a cluster with the start-ups, and the bandwidths, of all its links multiplied.

    Start-ups are those of NICs, of links within hosts and of further messages; bandwidths those of
    NICs, of links within hosts and of what machines share. The start-up of a measured table is the
    time of its smallest transfer.
    """
    nic, topology, network = cluster.nic, cluster.topology, cluster.network
    nic = replace(
        nic,
        startup_ns=round(nic.startup_ns * startup),
        message_ns=round(nic.message_ns * startup),
        bytes_per_s=nic.bytes_per_s * bandwidth,
    )
    if isinstance(topology, Rails):
        topology = replace(
            topology,
            link_startup_ns=round(topology.link_startup_ns * startup),
            link_bytes_per_s=topology.link_bytes_per_s * bandwidth,
        )
    if network is not None:
        network = replace(
            network,
            tables=tuple(
                replace(table, points=_scaled_rows(table.cost, startup, 1 / bandwidth))
                for table in network.tables
            ),
        )
    shared = cluster.shared_bytes_per_s
    return replace(
        cluster,
        nic=nic,
        topology=topology,
        network=network,
        shared_bytes_per_s=None if shared is None else shared * bandwidth,
    )


def _scaled_rows(cost: TableCost, startup: Fraction, rate: Fraction) -> tuple[tuple[int, int], ...]:
    scaled = scaled_cost(cost, startup=startup, rate=rate, most_ns=MAX_VALUE)
    return tuple((size, max(time, 1)) for size, time in scaled.points)
