"""Where jobs run: workers on this machine that return, fail, die and hang, and emulated clusters.

Of clusters: who reaches whom over what, at what rate, and that nothing of them stays.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_interface
from itertools import combinations
from pathlib import Path
from typing import Any, NoReturn

import emulated_cluster
import pytest
import torch
from emulated_hosts import ClusterError, Host, Layout
from emulated_network import clean, cluster

from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube
from tests.runtime import launching
from tests.runtime.launching import HangError, launch, running, values


def end(factor: int) -> Any:
    """End in another way on each rank."""
    rank = int(os.environ["RANK"])
    if rank == 1:
        print("about to refuse")
        error = InvalidInputError("buckets[1]", "not this one")
        vars(error)["function"] = lambda: None  # which does not pickle
        raise error
    if rank == 2:
        return lambda: None
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return rank * factor, os.environ["WORLD_SIZE"], torch.get_num_threads()


def test_values_exceptions_and_signals_come_back_in_order_of_the_ranks() -> None:
    outcomes = launch(end, 5, 10)
    assert [one.rank for one in outcomes] == [0, 1, 2, 3, 4]
    assert [one.exit_code for one in outcomes] == [0, 1, 1, -signal.SIGKILL, 0]
    assert [one.value for one in outcomes] == [(0, "5", 1), None, None, None, (40, "5", 1)]
    first, refused, unpicklable, killed, _ = (one.error for one in outcomes)
    assert first is killed is None
    assert refused is not None
    assert (refused.type, refused.text) == ("InvalidInputError", "buckets[1]: not this one")
    assert refused.attributes == {"path": "buckets[1]", "message": "not this one"}
    assert "in end" in refused.trace
    assert outcomes[1].output == "about to refuse\n"
    assert unpicklable is not None
    assert "lambda" in unpicklable.text


def hang() -> None:
    if os.environ["RANK"] == "1":
        time.sleep(3600)
    if os.environ["RANK"] == "2":
        os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.slow
def test_workers_that_hang_are_ended_and_say_where_if_they_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launching, "GRACE_S", 1.5)
    started: list[int] = []
    with pytest.raises(HangError) as error:
        launch(hang, 3, timeout_s=1, meanwhile=started.extend)
    fine, hung, stopped = str(error.value).split("--- rank ")[1:]
    assert "0 ended with 0" in fine
    assert "in hang" in hung
    assert "could not even say where" in stopped
    assert len(started) == 3
    assert not any(map(running, started))


# ---
# Emulated clusters.

SCRIPT = Path(emulated_cluster.__file__)
RATE = 50_000_000

emulated = pytest.mark.emulated


def namespaces(owner: int | None = None) -> set[str]:
    """Return the names of what a process, or this one, has of clusters."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    return {name for name in names if name.startswith(f"planner-{owner or os.getpid()}-")}


@contextmanager
def script(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(SCRIPT), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def sleeping() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Run a script whose two hosts sleep; yield its process, and those of the hosts."""
    with script("--flat", "2", "--", "sh", "-c", "echo $$; exec sleep 1000") as process:
        assert process.stdout is not None
        inside = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
        assert len(namespaces(process.pid)) == 3
        yield process, inside


def connect(address: str, port: int, limit_s: float) -> bool:
    """Tell whether a server on another host is reached, with the same TCP on all machines."""
    try:
        with socket.create_connection((address, port), timeout=limit_s) as made:
            control = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            return address.startswith("172.31.") or control.startswith(b"cubic\0")
    except OSError:
        return False


def meet(hosts: tuple[Host, ...]) -> list[bool]:
    """Let every host but the first connect to the first, over each of its interfaces."""
    port, control = 4000, hosts[0].control_address
    servers = [nic.address for nic in hosts[0].nics]
    if os.environ["RANK"] == "0":
        with ExitStack() as doors:
            for server in servers:
                doors.enter_context(socket.create_server((server, port)))
            door = doors.enter_context(socket.create_server((control, port)))
            # Who comes here a second time has tried the other addresses.
            for _ in range(2 * (len(hosts) - 1)):
                door.accept()[0].close()
        return []
    while not connect(control, port, 5):
        time.sleep(0.05)
    answers = [connect(server, port, 1) for server in servers]
    connect(control, port, 5)
    return answers


def reached(hosts: tuple[Host, ...]) -> list[list[bool]]:
    """Return over which interfaces each other host reaches the first one."""
    _, *others = values(launch(meet, len(hosts), hosts, timeout_s=30, hosts=hosts))
    return others


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (2, 3), (4, 3)])
def test_a_bcube_plugs_servers_where_the_network_says(n: int, k: int) -> None:
    bcube, hosts = BCube(n, k), Layout.bcube(n, k).hosts
    assert len(hosts) == bcube.servers
    for host in hosts:
        assert [nic.name for nic in host] == [f"eth{level}" for level in range(k)]
    for server, other in combinations(range(bcube.servers), 2):
        for level in range(k):
            together = other in bcube.neighbours(server, level)
            left, right = hosts[server][level], hosts[other][level]
            assert (left.switch == right.switch) == together
            networks = [ip_interface(f"{nic.address}/24").network for nic in (left, right)]
            assert (networks[0] == networks[1]) == together


def test_addresses_are_all_different_and_few_enough() -> None:
    for layout in (Layout.bcube(3, 3), Layout.flat(5, 3)):
        addresses = [nic.address for host in layout.hosts for nic in host]
        assert len(set(addresses)) == len(addresses)
        assert not any(address.startswith("172.31.") for address in addresses)
    for hosts, nics in ((0, 1), (251, 1), (2, 0)):
        with pytest.raises(InvalidInputError, match="hosts" if nics else "nics"):
            Layout.flat(hosts, nics)
    with pytest.raises(InvalidInputError, match="servers"):
        Layout.bcube(16, 2)


@pytest.mark.slow
@emulated
def test_links_have_the_rate_and_hosts_reach_each_other_unless_an_interface_is_down() -> None:
    with cluster(Layout.flat(3, nics=2), RATE) as hosts:
        (switches,) = namespaces() - {host.namespace for host in hosts}
        limited: list[int] = []
        for space in [*(host.namespace for host in hosts), switches]:  # both ends of every link
            shown = subprocess.run(
                ["tc", "-n", space, "-json", "qdisc"], capture_output=True, check=True
            )
            rules = [rule for rule in json.loads(shown.stdout) if rule["kind"] == "tbf"]
            limited.append(len(rules))
            assert {rule["options"]["rate"] for rule in rules} == {RATE // 8}
            assert "ctl0" not in {rule["dev"] for rule in rules}
        assert limited == [2, 2, 2, 6]
        assert reached(hosts) == [[True, True], [True, True]]
        hosts[1].link("eth0", up=False)
        assert reached(hosts) == [[False, True], [True, True]]
        hosts[1].link("eth0", up=True)
        hosts[0].link("eth1", up=False)
        assert reached(hosts) == [[True, False], [True, False]]
        with pytest.raises(ClusterError, match="eth7"):
            hosts[0].link("eth7", up=False)


@emulated
def test_hosts_of_a_bcube_reach_their_neighbours_and_nothing_stays_after_an_exception() -> None:
    def fail() -> NoReturn:
        with cluster(Layout.bcube(2, 2), RATE) as hosts:
            assert len(namespaces()) == 4 + 1
            assert reached(hosts) == [[True, False], [False, True], [False, False]]
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert namespaces() == set()


@emulated
def test_the_script_runs_a_command_on_every_host() -> None:
    command = 'echo "$RANK of $WORLD_SIZE by $PLANNER_INTERFACES"; exit $RANK'
    with script("--bcube", "2,2", "--rate", "50Mb/s", "--", "sh", "-c", command) as process:
        output, _ = process.communicate(timeout=60)
        assert sorted(output.splitlines()) == [
            f"[host {rank}] {rank} of 4 by eth0,eth1" for rank in range(4)
        ]
        assert process.returncode == 3
    assert namespaces(process.pid) == set()


@emulated
def test_a_script_that_is_asked_to_end_leaves_nothing_and_the_next_removes_what_one_left() -> None:
    with cluster(Layout.flat(1), RATE):
        own = namespaces()
        with sleeping() as (process, inside):
            process.terminate()
            assert process.wait(30) == 143
        assert namespaces(process.pid) == set()
        assert not any(map(running, inside))
        with sleeping() as (process, inside):
            with script("--clean") as cleaner:
                cleaner.communicate(timeout=60)
            left = namespaces(process.pid)
            assert len(left) == 3
            process.kill()
            process.wait(30)
            assert namespaces(process.pid) == left
            with script("--flat", "1", "--", "true") as following:
                following.communicate(timeout=60)
            assert namespaces(process.pid) == set()
            assert not any(map(running, inside))
            assert namespaces() == own
            assert not left & set(clean())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["--flat", "2", "--", "true"], "needs"), (["--bcube", "2", "--", "true"], "--bcube")],
)
def test_the_script_says_why_it_cannot(arguments: list[str], reason: str) -> None:
    surroundings = {**os.environ, "PATH": "/nowhere"}
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
