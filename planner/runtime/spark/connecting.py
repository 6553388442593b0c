"""A connection to Spark that is there, or an error at once: Java, the master, and enough slots.

Spark waits for ever where there are too few slots for a barrier stage, or no executors at all, and
a missing Java ends in a message about a gateway. Here each of them is looked at first.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.errors import EngineError, MissingExtraError
from planner.units import counted

__all__ = ["connect", "java", "slots_of", "wait_for_slots"]

_LOOK_S = 0.05
_RAISED = re.compile(r"(?!org\.apache\.|java\.|py4j\.)[A-Za-z_][\w.]*(Error|Exception)(: |$)")
_DAEMON = "planner.runtime.spark.daemon"


def java() -> str:
    """Return the command that starts Java.

    Raises
    ------
    EngineError
        If there is none, or it does not start.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    place = f"JAVA_HOME is {home}, and has none" if home else "none is on PATH"
    hint = "install Java 17 or later, such as openjdk-17-jre-headless, or set JAVA_HOME"
    if command is None or not os.access(command, os.X_OK):
        raise EngineError(f"Spark needs Java, and {place}: {hint}")
    try:
        subprocess.run([command, "-version"], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"Spark needs Java, and {command} does not start: {hint}") from error
    return command


def connect(
    master: str,
    name: str = "planner",
    settings: Mapping[str, str] | None = None,
    *,
    slots: int = 1,
    timeout_s: float = 60.0,
) -> Any:
    """Return the context of an application on a cluster.

    Parameters
    ----------
    master : str
        Such as ``spark://host:7077`` or ``local[4]``.
    name : str
        What Spark's pages and logs call it.
    settings : mapping of str to str, optional
        Spark's own, which go before those made here.
    slots : int
        How many slots to wait for; executors come one after the other.
    timeout_s : float
        How long to wait for them.

    Returns
    -------
    pyspark.SparkContext
        Its Python processes have torch loaded; `stop` ends it.

    Raises
    ------
    EngineError
        If there is no Java, nobody answers at the master's address, or too few executors come.
    MissingExtraError
        If PySpark is not installed.
    """
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyspark", "spark") from error
    java()
    _reach(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster(master).setAppName(name)
    chosen = {
        "spark.python.daemon.module": _DAEMON,
        "spark.locality.wait": "0s",  # tasks of an iteration are short
        "spark.ui.showConsoleProgress": "false",
        **(settings or {}),
    }
    for key, value in chosen.items():
        conf.set(key, value)
    try:
        context = SparkContext(conf=conf)
    except PySparkException as error:
        raise EngineError(f"Spark does not start: {first_line(error)}") from error
    except Exception as error:  # of py4j: whatever Java says
        if type(error).__module__.partition(".")[0] != "py4j":
            raise
        raise EngineError(f"Spark does not start at {master}: {first_line(error)}") from error
    try:
        wait_for_slots(context, slots, timeout_s)
    except EngineError:
        context.stop()
        raise
    return context


def _reach(master: str) -> None:
    """Refuse a standalone master where nobody listens; Spark would try for a minute."""
    if not master.startswith("spark://"):
        return
    tried = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise EngineError(f"expected spark://host:port, got {master}")
        try:
            with socket.create_connection((host, int(port)), timeout=5):
                return
        except OSError as error:
            tried.append(f"{address}: {error.strerror or error}")
    raise EngineError(f"nobody answers at {master} ({'; '.join(tried)}): is the master running?")


def slots_of(context: Any) -> int:
    """Return how many tasks can run at the same time, by the executors that are there."""
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def wait_for_slots(context: Any, tasks: int, timeout_s: float) -> None:
    """Wait until so many tasks can run at the same time; executors come one after the other.

    Raises
    ------
    EngineError
        If they cannot in time: Spark itself would go on waiting.
    """
    end = time.monotonic() + timeout_s
    while (known := slots_of(context)) < tasks:
        if context._jsc.sc().isStopped():
            raise EngineError(
                f"{context.master} has ended the application: its workers' logs say why"
            )
        if time.monotonic() > end:
            if not known:
                raise EngineError(
                    f"no executor came within {timeout_s:g} s: has the cluster workers with as "
                    "much memory as spark.executor.memory says?"
                )
            raise EngineError(
                f"{counted(tasks, 'task')} at once need as many slots, and {context.master} has "
                f"{counted(known, 'slot')}: fewer partitions, or more cores"
            )
        time.sleep(_LOOK_S)


def first_line(error: BaseException) -> str:
    """Return the line of an error of Spark's that says most: Python's, if a task raised it."""
    java_error = getattr(error, "java_exception", None)
    text = str(java_error.toString()) if java_error is not None else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    return raised[-1] if raised else (lines or [type(error).__name__])[0]
