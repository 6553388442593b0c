"""Clusters: machines, what they are plugged into, and where the numbers come from.

What a plan needs to know of the place a job runs in: how many workers there are, how much each can
remember, and what it costs them to communicate. A cluster knows no algorithm; what one costs on it
says `planner.iteration.synchronisation`.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from planner.costs import TableCost, scaled_cost
from planner.errors import InvalidInputError
from planner.interference import ALONE, Interference, check_interference
from planner.measured import MeasuredNetwork
from planner.topologies import BCube, Failures, FatTree, Rails, Switch, Topology
from planner.units import format_bytes
from planner.validation import MAX_VALUE, set_exact, set_integer, shown

__all__ = ["Cluster", "Nic", "Scheduling", "scaled_cluster"]

MAX_MACHINES = 2**16

ONE_ACCELERATOR_BYTES = 300 * 10**9
"""No accelerator has more memory: a machine's that is no larger may be meant for one of several."""


@dataclass(frozen=True, slots=True)
class Nic:
    """The network interfaces of a machine, all alike and full duplex.

    Attributes
    ----------
    bytes_per_s : Fraction
        Bytes one NIC sends, and receives, in a second.
    startup_ns : int
        Start-up cost of one step of a collective: what the smallest message takes.
    per_machine : int
        NICs of a machine.
    message_ns : int
        What each further message adds that a NIC sends in the same step: the gap g of LogP. With 0,
        exchanging with all others at once costs no more than with one.
    """

    bytes_per_s: Fraction
    startup_ns: int
    per_machine: int = 1
    message_ns: int = 0

    def __post_init__(self) -> None:
        set_exact(self, "bytes_per_s", positive=True)
        set_integer(self, "startup_ns")
        set_integer(self, "message_ns")
        set_integer(self, "per_machine", minimum=1, maximum=2**10)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What a driver that schedules every task of every iteration costs, as Spark's does.

    Attributes
    ----------
    task_ns, group_ns, constant_task_ns : int
        The constants d1, d0 and d2 of `planner.drizzle.Problem`.
    tasks_per_machine : int
        Tasks of one iteration on each machine.
    """

    task_ns: int
    group_ns: int = 0
    constant_task_ns: int = 0
    tasks_per_machine: int = 1

    def __post_init__(self) -> None:
        for name in ("task_ns", "group_ns", "constant_task_ns"):
            set_integer(self, name)
        set_integer(self, "tasks_per_machine", minimum=1)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Machines that are all alike, and their network.

    Attributes
    ----------
    name : str
        Name of the cluster.
    source : str
        Where the numbers come from.
    machines : int
        Number of machines; of hosts, with `Rails`.
    topology : Switch, FatTree, BCube or Rails
        What they are plugged into.
    nic : Nic
        Their NICs: with BCube(n, k) k of them, with `Rails` one for each accelerator.
    cores : int
        Processor cores of a machine.
    memory_bytes : int, optional
        Memory of a machine, all its accelerators together; None if it does not bind.
    accelerator_memory_bytes : int, optional
        Instead, with `Rails`: memory of each accelerator.
    shared_bytes_per_s : Fraction, optional
        What all machines together can send in a second, on a switch or a Fat-Tree.
    scheduling : Scheduling, optional
        What its engine's driver costs, if iterations are scheduled by one.
    notes : tuple of str
        What a reader of the numbers should know, such as what is assumed.
    failed : Failures
        What of a BCube does not work. `machines` are those of the BCube, the dead ones too.
    interference : Interference
        What an all-reduce and computation take from each other, by whichever algorithm; a push or a
        pull takes half as much.
    network : MeasuredNetwork, optional
        What collectives took there, if that was measured: plans take it in place of what NICs and
        topology say.

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
    interference: Interference = ALONE
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
        if self.memory_bytes is not None:
            set_integer(self, "memory_bytes", minimum=1)
        if self.accelerator_memory_bytes is not None:
            set_integer(self, "accelerator_memory_bytes", minimum=1)
            if self.memory_bytes is not None:
                raise InvalidInputError(
                    "accelerator_memory_bytes", "not together with memory_bytes"
                )
            if not isinstance(self.topology, Rails):
                raise InvalidInputError(
                    "accelerator_memory_bytes", "only with topology rails; else memory_bytes"
                )
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
        if isinstance(topology, Switch | BCube) and topology.servers != machines:
            raise InvalidInputError(
                "machines", f"the topology has {topology.servers} servers, got {machines}"
            )
        if isinstance(topology, FatTree) and topology.servers < machines:
            raise InvalidInputError(
                "machines",
                f"a Fat-Tree of {topology.ports}-port switches has room for "
                f"{topology.servers}, got {machines}",
            )
        wanted = 0
        if isinstance(topology, BCube):
            wanted = topology.k
        elif isinstance(topology, Rails):
            wanted = topology.accelerators
            if topology.hosts != machines:
                raise InvalidInputError(
                    "machines", f"the topology has {topology.hosts} hosts, got {machines}"
                )
            if topology.servers > MAX_MACHINES:
                raise InvalidInputError(
                    "machines",
                    f"expected at most {MAX_MACHINES} accelerators in all, got {topology.servers}",
                )
        if wanted and self.nic.per_machine != wanted:
            raise InvalidInputError(
                "nic.per_machine",
                f"expected {wanted}, as many as the topology has for a machine, "
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
        """Number of workers: machines that work, or accelerators of all hosts."""
        return self.topology.servers if isinstance(self.topology, Rails) else self.working

    @property
    def workers_per_host(self) -> int:
        """How many of them share a host."""
        return self.nic.per_machine if isinstance(self.topology, Rails) else 1

    @property
    def ranks(self) -> tuple[int, ...]:
        """The server of a BCube that each rank runs on: those that work, in order."""
        return tuple(server for server in range(self.machines) if server not in self.failed.servers)

    @property
    def worker_memory_bytes(self) -> int | None:
        """Memory of one worker; None if it does not bind."""
        if self.memory_bytes is None or not isinstance(self.topology, Rails):
            return self.accelerator_memory_bytes or self.memory_bytes
        return self.memory_bytes // self.topology.accelerators

    @property
    def memory_doubts(self) -> tuple[str, ...]:
        """Whether `memory_bytes`, which is a machine's, is likely meant as an accelerator's."""
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
    NICs, of links within hosts and of what machines share. Of a measured table what its smallest
    transfer takes is start-up.
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
