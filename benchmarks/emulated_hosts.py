"""The hosts of an emulated cluster: what they are plugged into, and how to work on one.

A host is a network namespace with one interface to each of its switches, and one, ``ctl0``, to a
network of unlimited rate on which the processes of a job meet. `emulated_cluster` brings them up.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.model.errors import PlannerError
from planner.model.topologies import BCube
from planner.model.validation import integer

CONTROL = "ctl0"
"""The interface of every host on the control network."""

MOST = 250
"""Hosts, at most: a subnet has 254 addresses, and one machine is not larger."""

CONGESTION = "cubic"
"""Congestion control of TCP on the network under test: Linux's own default, not this machine's.

With BBR each connection slows down every ten seconds, to measure the round trip: some steps take a
third longer. It also loses many packets on these links.
"""

NAMESPACES = Path("/run/netns")
"""Where the namespaces are, by name."""

_CLONE_NEWNET = 0x40000000


class ClusterError(PlannerError):
    """A cluster could not be emulated here, and why."""


@dataclass(frozen=True, slots=True)
class Nic:
    """A network interface of a host.

    Parameters
    ----------
    name : str
        Its name there, ``eth0`` and so on.
    address : str
        Its IPv4 address; the switch has all those with the same first three numbers.
    switch : str
        The switch it is plugged into.
    """

    name: str
    address: str
    switch: str

    @property
    def route(self) -> str:
        """The arguments of ``ip`` that set the congestion control of its connections.

        A host's default may only be what this machine allows to all users.
        """
        network = f"{self.address.rpartition('.')[0]}.0/24"
        return f"route change {network} dev {self.name} src {self.address} congctl {CONGESTION}"


@dataclass(frozen=True, slots=True)
class Layout:
    """What is plugged into what.

    Parameters
    ----------
    hosts : tuple of tuple of Nic
        The interfaces of each host.
    interface : str
        The interface that reaches every other host: the one of a group of all hosts.
    """

    hosts: tuple[tuple[Nic, ...], ...]
    interface: str

    @classmethod
    def flat(cls, hosts: int, nics: int = 1) -> "Layout":
        """Return hosts with equal interfaces, interface i of every host on switch i.

        Raises
        ------
        InvalidInputError
            If there are none, or more than 250.
        """
        integer(hosts, "hosts", minimum=1, maximum=MOST)
        integer(nics, "nics", minimum=1, maximum=MOST)
        return cls(
            tuple(
                tuple(Nic(f"eth{i}", f"10.0.{i}.{host + 1}", f"s{i}") for i in range(nics))
                for host in range(hosts)
            ),
            "eth0",
        )

    @classmethod
    def bcube(cls, n: int, k: int) -> "Layout":
        """Return BCube(n, k), numbered as `topologies.BCube` does: ``eth{l}`` is level l.

        No level reaches every host, and hosts do not forward, so a group of all hosts is on the
        control network.

        Raises
        ------
        InvalidInputError
            If there is no such network, or it has more than 250 servers.
        """
        bcube = BCube(n, k)
        integer(bcube.servers, "servers", maximum=MOST)

        def nic(server: int, level: int) -> Nic:
            switch = bcube.switch(server, level)
            address = f"10.{level}.{switch}.{bcube.digit(server, level) + 1}"
            return Nic(f"eth{level}", address, f"l{level}s{switch}")

        return cls(
            tuple(tuple(nic(server, level) for level in range(k)) for server in range(n**k)),
            CONTROL,
        )


@dataclass(frozen=True, slots=True)
class Host:
    """A host of a running cluster; may be sent to other processes.

    Parameters
    ----------
    index : int
        Its number, and the rank of what runs there.
    layout : Layout
        The cluster's.
    namespace : str
        Its network namespace.
    """

    index: int
    layout: Layout
    namespace: str

    @property
    def nics(self) -> tuple[Nic, ...]:
        """Its interfaces to the network under test."""
        return self.layout.hosts[self.index]

    @property
    def control_address(self) -> str:
        """Its address on the control network."""
        return _control_address(self.index)

    def environment(self, port: int = 29500, interface: str | None = None) -> dict[str, str]:
        """Return the variables of a worker here, one a host, that meets the others at host 0.

        Parameters
        ----------
        port : int
            TCP port of the meeting point, on the control network.
        interface : str, optional
            The one that gloo uses by default, for groups of all hosts; the layout's if None.
        """
        return {
            "RANK": str(self.index),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(len(self.layout.hosts)),
            "MASTER_ADDR": _control_address(0),
            "MASTER_PORT": str(port),
            "PLANNER_INTERFACES": ",".join(nic.name for nic in self.nics),
            # Names of hosts do not resolve here, and by default gloo would ask for one.
            "GLOO_SOCKET_IFNAME": self.layout.interface if interface is None else interface,
        }

    def enter(self) -> None:
        """Move the calling thread here, and whatever threads and processes it starts later."""
        descriptor = os.open(NAMESPACES / self.namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if sys.version_info >= (3, 12):
                os.setns(descriptor, _CLONE_NEWNET)
            elif ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), self.namespace)
        finally:
            os.close(descriptor)

    def link(self, nic: str, *, up: bool) -> None:
        """Take an interface down, as if its cable were pulled, or up again.

        Raises
        ------
        ClusterError
            If there is no such interface.
        """
        run(["ip", "-n", self.namespace, "link", "set", nic, "up" if up else "down"])
        for one in self.nics if up else ():
            if one.name == nic:  # the route is new
                run(["ip", "-n", self.namespace, *one.route.split()])


def _control_address(index: int) -> str:
    return f"172.31.0.{index + 1}"


def run(command: Sequence[str], text: str = "", *, check: bool = True) -> None:
    """Run a command that reads `text`.

    Raises
    ------
    ClusterError
        If it fails and `check` is set, with what it wrote.
    """
    # In a process group of its own: what stops the script must not stop its tidying up.
    done = subprocess.run(  # a list, and no shell
        command, input=text, capture_output=True, text=True, check=False, process_group=0
    )
    if check and done.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` failed: {'; '.join(done.stderr.splitlines())}")
