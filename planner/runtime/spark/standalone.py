"""A standalone cluster of Spark's on this machine: a master and workers, each a process.

For tests and benchmarks: executors come and go as on a real cluster, over the loopback interface.
Cores of a worker are slots, however many the machine has.

    python -m planner.runtime.spark start --workers 2 --cores 4
    python -m planner.runtime.spark stop
"""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from planner.errors import EngineError, MissingExtraError
from planner.runtime.spark.connecting import java
from planner.units import counted
from planner.validation import integer

__all__ = ["StandaloneCluster", "default_folder"]

_HOST = "127.0.0.1"
_LOOK_S = 0.1
_STOP_S = 10.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_REGISTERED = re.compile(r"Successfully registered with master|Successfully registered")


def default_folder() -> Path:
    """Return where a cluster is that was started without saying where."""
    return Path(tempfile.gettempdir()) / f"planner-spark-{os.getuid()}"


@dataclass(slots=True)
class StandaloneCluster:
    """A cluster that is running. Used in a ``with`` statement it is stopped at the end.

    Attributes
    ----------
    url : str
        Its master, as `planner.runtime.spark.connect` takes it.
    folder : Path
        Where logs, and the executors' files, are.
    pids : list of int
        Its processes: the master, then the workers.
    """

    url: str
    folder: Path
    pids: list[int] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        folder: Path | None = None,
        *,
        timeout_s: float = 60.0,
    ) -> "StandaloneCluster":
        """Start a master and workers.

        Parameters
        ----------
        workers : int
            How many.
        cores : int
            Slots of each.
        memory : str
            Memory of each that executors may have, as Spark writes it.
        folder : Path, optional
            Where its files go.
        timeout_s : float
            How long to wait for all of them.

        Raises
        ------
        EngineError
            If there is no Java, a cluster runs there already, or it does not come up in time.
        MissingExtraError
            If PySpark, which brings Spark, is not installed.
        """
        java()
        integer(workers, "workers", minimum=1, maximum=1024)
        integer(cores, "cores", minimum=1, maximum=1024)
        place = folder or default_folder()
        place.mkdir(parents=True, exist_ok=True)
        if (place / "cluster.json").exists():
            raise EngineError(f"a cluster runs in {place} already: stop it before")
        with socket.socket() as free:
            free.bind((_HOST, 0))
            port = free.getsockname()[1]
        cluster = cls(f"spark://{_HOST}:{port}", place)
        end = time.monotonic() + timeout_s
        try:
            master = ("--host", _HOST, "--port", str(port), "--webui-port", "0")
            cluster._launch("master", _MASTER, master)
            cluster._wait("master", re.compile("elected leader"), end)
            for number in range(workers):
                work = place / f"work{number}"
                options = ("--cores", str(cores), "--memory", memory, "--work-dir", str(work))
                cluster._launch(
                    f"worker{number}",
                    _WORKER,
                    ("--host", _HOST, "--webui-port", "0", *options, cluster.url),
                )
            for number in range(workers):
                cluster._wait(f"worker{number}", _REGISTERED, end)
        except BaseException:
            cluster.stop()
            raise
        cluster._remember()
        return cluster

    @classmethod
    def running(cls, folder: Path | None = None) -> "StandaloneCluster":
        """Return the cluster that was started in a folder, maybe by another process.

        Raises
        ------
        EngineError
            If there is none.
        """
        place = folder or default_folder()
        try:
            known = json.loads((place / "cluster.json").read_text(encoding="utf-8"))
            return cls(str(known["url"]), place, [int(pid) for pid in known["pids"]])
        except (OSError, ValueError, KeyError, TypeError):
            raise EngineError(f"no cluster was started in {place}") from None

    def stop(self) -> None:
        """End all of its processes, the workers' executors included."""
        for pid in reversed(self.pids):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGTERM)
        end = time.monotonic() + _STOP_S
        for pid in self.pids:
            while _lives(pid) and time.monotonic() < end:
                time.sleep(_LOOK_S)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.pids = []
        (self.folder / "cluster.json").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, name: str, kind: str, options: Sequence[str]) -> None:
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(_home() / "bin" / "spark-class"), kind, *options],  # which becomes Java
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**environment, "SPARK_HOME": str(_home())},
                start_new_session=True,
            )
        self.pids.append(process.pid)

    def _wait(self, name: str, pattern: re.Pattern[str], end: float) -> None:
        log = self.folder / f"{name}.log"
        while True:
            text = log.read_text(encoding="utf-8", errors="replace")
            if pattern.search(text):
                return
            if time.monotonic() > end or not _lives(self.pids[-1]):
                last = [line for line in text.splitlines() if line.strip()][-3:]
                raise EngineError(
                    f"{name} of {counted(len(self.pids), 'process', 'processes')} did not come up "
                    f"({log}): {' / '.join(last)}"
                )
            time.sleep(_LOOK_S)

    def _remember(self) -> None:
        text = json.dumps({"url": self.url, "pids": self.pids})
        (self.folder / "cluster.json").write_text(text, encoding="utf-8")


def _home() -> Path:
    try:
        import pyspark
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyspark", "spark") from error
    return Path(pyspark.__file__).parent


def _lives(pid: int) -> bool:
    """Tell whether a process runs; one that has ended but was not waited for does not."""
    with suppress(ChildProcessError):
        ended, _ = os.waitpid(pid, os.WNOHANG)
        return ended == 0
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
