"""Runs a function in several processes at once, as the ranks of a distributed job; needs torch.

A process that imports torch takes seconds to start. A fork server imports it once, and every worker
is a fork of that server: nine start in a fraction of a second. Whatever a worker does, `launch`
ends: each one ends itself at the time limit, after writing where it stood, and what cannot do even
that is killed.
"""

import faulthandler
import itertools
import multiprocessing
import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

PRELOADED = [
    "tests.runtime.recipes",  # which imports most
    "tests.runtime.sharing",
    "pytest",
    "hypothesis",
    "encodings.idna",  # for names of hosts
    "numpy.ma",  # for numpy.unique
    "torch._dynamo.convert_frame",
    "torch._functorch.aot_autograd",
    "torch._subclasses.schema_check_mode",  # for a dispatch mode
    "torch.profiler._cupti_monitor",  # for the first optimiser
    "torch.utils.serialization.config",
    "scipy.optimize",  # for fits
    "planner.runtime.measuring.trial",
    "tests.runtime.preloaded",  # the last one
]
"""What the fork server imports; what does not exist is left out."""

GRACE_S = 3.0
"""How long after its limit a worker may take to say where it stood."""


class Host(Protocol):
    """A machine to run a worker on; the hosts of an emulated cluster are such."""

    def environment(self, port: int) -> Mapping[str, str]:
        """Return the variables of a worker that meets the others at a port of host 0."""

    def enter(self) -> None:
        """Move the calling process there."""


@dataclass(frozen=True, slots=True)
class Error:
    """An exception that ended a worker."""

    type: str  # the name of its class, without the module
    text: str
    attributes: Mapping[str, Any]  # as far as they can be pickled
    trace: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a worker ended."""

    rank: int
    value: Any  # what it returned; None if it did not
    error: Error | None  # the exception that ended it
    exit_code: int  # 0 if it returned, 1 if it raised; -9 if it was killed by signal 9
    output: str  # its standard output and standard error, C++ code included


class HangError(AssertionError):
    """Workers that did not end in time; the message says where each one stood."""


def launch(
    worker: Callable[..., Any],
    size: int,
    *args: Any,
    timeout_s: float = 60,
    hosts: Sequence[Host] | None = None,
    meanwhile: Callable[[Sequence[int]], object] | None = None,
) -> list[Outcome]:
    """Run ``worker(*args)`` in `size` processes and return how each one ended, by rank.

    The workers see RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, and torch computes on
    one thread. Otherwise their environment is that of the first launch. The port was free a moment
    ago; if somebody else took it, launch again. The worker is a function of a module, as is
    whatever else the arguments refer to; they are pickled. `hosts` are where the ranks run, instead
    of all on this machine. `meanwhile` is called with the process ids, by rank, once all have
    started. A worker that has not ended `timeout_s` after its start raises a `HangError`.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    port = free_port()
    processes: list[ForkServerProcess] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            for rank in range(size):
                host = hosts[rank] if hosts is not None else None
                surroundings = _environment(rank, size, port, host)
                job = (folder, rank, surroundings, host, timeout_s, worker, args)
                process = context.Process(target=_work, args=job, daemon=True)
                processes.append(process)
                process.start()
            # Starting the first one waits for the fork server, which may take seconds.
            deadline = time.monotonic() + timeout_s + GRACE_S
            if meanwhile is not None:
                meanwhile([process.pid or 0 for process in processes])
            left = {process.sentinel for process in processes}
            while left:
                ended = wait(list(left), max(deadline - time.monotonic(), 0))
                if not ended:
                    break
                left.difference_update(ended)
            stuck = [process.sentinel in left for process in processes]
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join()
        outcomes = [_outcome(folder, rank, one.exitcode or 0) for rank, one in enumerate(processes)]
        stacks = [_text(folder / f"{rank}.stack") for rank in range(size)]
        for process in processes:
            process.close()
    if any(stuck) or any(stacks):
        raise HangError(_report(outcomes, stuck, stacks, timeout_s))
    return outcomes


def values(outcomes: Sequence[Outcome]) -> list[Any]:
    """Return the value of each rank; an error or an exit code of one fails the test."""
    for outcome in outcomes:
        assert outcome.error is None, outcome.error.trace
        assert outcome.exit_code == 0, outcome.output
    return [outcome.value for outcome in outcomes]


def running(process: int) -> bool:
    """Tell whether a process runs; one that ended and nobody waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def free_port() -> int:
    """Return a TCP port that nobody uses now, nor is given soon.

    It lies below those the system hands to outgoing connections, and in a part that no other
    process of the tests takes from; the next `PORTS_APART` - 1 are left to the job as well.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    start = FIRST_PORT + worker % PORT_PARTS * PORTS_OF_A_PART
    for number in _TAKEN:
        port = start + number * PORTS_APART % PORTS_OF_A_PART
        try:
            with socket.create_server(("", port)):
                return port
        except OSError:  # somebody else's
            continue
    raise AssertionError("numbers do not end")


FIRST_PORT, PORT_PARTS, PORTS_OF_A_PART, PORTS_APART = 10_000, 16, 1_200, 8
_TAKEN = itertools.count(os.getpid())  # so that two runs of the tests seldom meet


def _environment(rank: int, size: int, port: int, host: Host | None) -> dict[str, str]:
    surroundings = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    surroundings |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    surroundings |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if host is not None:
        surroundings |= host.environment(port)
    return surroundings | {"WORLD_SIZE": str(size)}


def _work(
    folder: Path,
    rank: int,
    environment: Mapping[str, str],
    host: Host | None,
    timeout_s: float,
    worker: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    """Run a worker in this process, and leave what came of it in the folder."""
    output = os.open(folder / f"{rank}.output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = sys.stderr  # which never keeps a line back
    faulthandler.enable()
    # Not a thread of Python's: it ends the process even while C++ code holds the lock, and even if
    # the process that started this one is gone.
    stack = (folder / f"{rank}.stack").open("w")
    faulthandler.dump_traceback_later(timeout_s, exit=True, file=stack)
    os.environ.update(environment)
    if host is not None:
        host.enter()

    import torch

    torch.set_num_threads(1)
    value, error = None, None
    try:
        value = worker(*args)
        done = pickle.dumps((value, None))
    except Exception as raised:  # noqa: BLE001 - whatever it is, the test shall see it
        error = Error(
            type(raised).__name__,
            str(raised),
            {name: kept for name, kept in vars(raised).items() if _pickles(kept)},
            traceback.format_exc(),
        )
        done = pickle.dumps((None, error))
    partial = folder / f"{rank}.partial"
    partial.write_bytes(done)
    partial.rename(folder / f"{rank}.result")
    if error is not None:
        raise SystemExit(1)


def _pickles(value: Any) -> bool:
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # noqa: BLE001 - anybody's __reduce__ may raise anything
        return False
    return True


def _outcome(folder: Path, rank: int, exit_code: int) -> Outcome:
    result = folder / f"{rank}.result"
    value, error = pickle.loads(result.read_bytes()) if result.exists() else (None, None)
    return Outcome(rank, value, error, exit_code, _text(folder / f"{rank}.output"))


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _report(
    outcomes: Sequence[Outcome], stuck: Sequence[bool], stacks: Sequence[str], timeout_s: float
) -> str:
    lines = [f"not every worker ended within {timeout_s} s"]
    for outcome, killed, stack in zip(outcomes, stuck, stacks, strict=True):
        state = "still ran" if stack or killed else f"ended with {outcome.exit_code}"
        silent = ", and could not even say where" if killed and not stack else ""
        trace = outcome.error.trace if outcome.error else ""
        lines += [f"--- rank {outcome.rank} {state}{silent}", stack, trace, outcome.output]
    return "\n".join(filter(None, lines))
