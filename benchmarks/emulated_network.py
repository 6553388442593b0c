"""Brings an emulated cluster up, and removes it whatever happens.

A switch is a bridge, a link a pair of virtual interfaces with a token bucket at both ends. All
switches are in a namespace of their own, so that nothing outlives the namespaces. Their names say
which process they belong to: what a killed process left is found by that, and removed.
"""

import os
import re
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from emulated_hosts import CONTROL, NAMESPACES, ClusterError, Host, Layout, run

_ROUNDS = 200
"""How often to kill what runs on hosts, 10 ms apart: what is killed may just have started more."""

_BURST = 32 * 1024
"""Bytes of the smallest bucket."""

_SEGMENT = _BURST // 2
"""Most bytes that TCP hands to a link at once.

What a bucket does not hold is cut into packets first, which takes ten times the processor time that
sending does: no NIC charges that.
"""

_SWITCHES = "switches"
_NAME = re.compile(rf"planner-(\d+)-(\d+)-[0-9a-f]+-(?:host\d+|{_SWITCHES})")


@contextmanager
def cluster(layout: Layout, rate_bits_per_s: int | None) -> Iterator[tuple[Host, ...]]:
    """Emulate a cluster while the block runs, and return its hosts.

    At the end, or when the process is asked to end by a signal, what still runs on the hosts is
    killed and the cluster removed. What clusters of dead processes left is removed first.

    Parameters
    ----------
    layout : Layout
        What is plugged into what.
    rate_bits_per_s : int or None
        Rate of every link in each direction, but for the control network; None for no limit.

    Raises
    ------
    ClusterError
        If this machine cannot do that.
    """
    require_tools()
    clean()
    prefix = f"planner-{os.getpid()}-{_started(os.getpid())}-{secrets.token_hex(3)}"
    hosts = tuple(Host(i, layout, f"{prefix}-host{i}") for i in range(len(layout.hosts)))
    names = [f"{prefix}-{_SWITCHES}", *(host.namespace for host in hosts)]
    with _ending_in_order():
        try:
            _bring_up(hosts, names[0], rate_bits_per_s)
            yield hosts
        finally:
            _remove(names)


def clean() -> tuple[str, ...]:
    """Remove what clusters of dead processes left, and return the names of their namespaces."""
    present = (_NAME.fullmatch(path.name) for path in NAMESPACES.glob("planner-*"))
    left = tuple(
        sorted(match[0] for match in present if match and _started(int(match[1])) != match[2])
    )
    _remove(left)
    return left


def reason_unavailable(cores: int = 1) -> str | None:
    """Return why no cluster can be emulated here, or None after having emulated one host."""
    if (os.cpu_count() or 1) < cores:
        return f"it takes {cores} processor cores"
    try:
        with cluster(Layout.flat(1), 10**6):
            return None
    except ClusterError as error:
        return str(error)


def require_tools() -> None:
    """Check what emulating a cluster takes, but for the permission to do it.

    Raises
    ------
    ClusterError
        If something is missing.
    """
    if sys.platform != "linux":
        raise ClusterError(f"emulating a cluster needs Linux, this is {sys.platform}")
    if os.geteuid() != 0:
        raise ClusterError("emulating a cluster needs root, for network namespaces")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise ClusterError(f"emulating a cluster needs the command {tool} (iproute2)")


def _bring_up(hosts: Sequence[Host], switches: str, rate: int | None) -> None:
    """Create everything with few processes: the commands go in batches, one a namespace."""
    _batch(["ip"], [f"netns add {name}" for name in (switches, *(h.namespace for h in hosts))])
    bridges = {CONTROL} | {nic.switch for host in hosts for nic in host.nics}
    plumbing = [
        f"link add name {bridge} up type bridge mcast_snooping 0" for bridge in sorted(bridges)
    ]
    ports: list[str] = []
    for host in hosts:
        plugs = [(CONTROL, CONTROL), *((nic.name, nic.switch) for nic in host.nics)]
        for place, (name, switch) in enumerate(plugs):
            port = f"h{host.index}p{place}"
            plumbing += [
                f"link add name {port} type veth peer name {name} netns {host.namespace}",
                f"link set {port} gso_max_size {_SEGMENT} master {switch} up",
            ]
            ports += [port] if switch != CONTROL else []
    _batch(["ip", "-n", switches], plumbing)
    _shape(switches, ports, rate)
    for host in hosts:
        addresses = [
            (CONTROL, host.control_address),
            *((nic.name, nic.address) for nic in host.nics),
        ]
        own = ["link set lo up"]
        for name, address in addresses:
            own += [
                f"addr add {address}/24 dev {name}",
                f"link set {name} gso_max_size {_SEGMENT} up",
            ]
        own += [nic.route for nic in host.nics]
        _batch(["ip", "-n", host.namespace], own)
        _shape(host.namespace, [nic.name for nic in host.nics], rate)


def change_rate(layout: Layout, rate_bits_per_s: int) -> None:
    """Give every link of the cluster that the caller is a host of another rate, while it is used.

    Parameters
    ----------
    layout : Layout
        The cluster's, which was started with a rate.
    rate_bits_per_s : int
        The new rate of its links.

    Raises
    ------
    ClusterError
        If the caller runs on no host, or the command fails.
    """
    here = _identity(Path("/proc/self/ns/net"))
    name = next((path.name for path in NAMESPACES.iterdir() if _identity(path) == here), "")
    prefix = name.rpartition("-")[0]
    if _NAME.fullmatch(name) is None:
        raise ClusterError("the rate is changed from a host of the cluster")
    ports = [
        f"h{host}p{place}"
        for host, nics in enumerate(layout.hosts)
        for place in range(1, 1 + len(nics))
    ]
    _shape(f"{prefix}-{_SWITCHES}", ports, rate_bits_per_s, "change")
    for host, nics in enumerate(layout.hosts):
        _shape(f"{prefix}-host{host}", [nic.name for nic in nics], rate_bits_per_s, "change")


def _shape(namespace: str, interfaces: Sequence[str], rate: int | None, verb: str = "add") -> None:
    if rate is None:
        return
    # A bucket of a millisecond at least: less and the rate is not reached on fast links.
    burst = max(_BURST, rate // 8000)
    limits = f"rate {rate}bit burst {burst} latency 50ms"
    _batch(["tc", "-n", namespace], [f"qdisc {verb} dev {i} root tbf {limits}" for i in interfaces])


def _batch(command: Sequence[str], lines: Sequence[str]) -> None:
    run([*command, "-batch", "-"], "\n".join(lines) + "\n")


def _remove(names: Sequence[str]) -> None:
    """Remove namespaces, as far as they exist, with all that runs there."""
    present = [name for name in names if (NAMESPACES / name).exists()]
    if not present:
        return
    for _ in range(_ROUNDS):
        inside = _running_in(present)
        if not inside:
            break
        for process in inside:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    # Another process may be cleaning too: what it was faster to delete is no failure.
    text = "".join(f"netns del {name}\n" for name in present)
    run(["ip", "-force", "-batch", "-"], text, check=False)


def _running_in(names: Sequence[str]) -> list[int]:
    """Return the processes in some namespaces; never those where this one is."""
    wanted = {_identity(NAMESPACES / name) for name in names}
    wanted -= {None, _identity(Path("/proc/self/ns/net"))}
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if _identity(process / "ns" / "net") in wanted
    ]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:  # it is gone, or a process that ended
        return None
    return found.st_dev, found.st_ino


def _started(process: int) -> str | None:
    """Return when a living process started, in ticks: with its number, a name never used again."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    state, *others = text.rpartition(")")[2].split()
    return None if state in "ZX" else others[18]


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Turn the signal to terminate into an exception, where nobody else handles it."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    ):
        yield
        return

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
