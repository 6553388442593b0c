"""Many problems on all cores, each in a process that no other one can harm.

Problem: solve a list of problems in as little time as the cores of this machine allow.

Method: a thread a core takes the next problem, and asks a process of its own
(`planner.workers`), which is forked before anything is solved. One that dies is replaced.

Guarantee: the results of solving one after the other, in the same order. Complexity: theirs, and a
copy of each problem and result. Source: own.
"""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from planner.deadline import Cancel
from planner.errors import InvalidInputError, PlannerError
from planner.jsonio import reply
from planner.jsonio.decoding import plain
from planner.jsonio.streams import limited_reply
from planner.results import Result
from planner.validation import integer, shown
from planner.workers import Limits, OverLimitError, Worker, WorkerFaultError

__all__ = ["answers", "cores", "solve_many"]

_NO_LIMITS = Limits(None, None, None, None)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def solve_many(
    problems: Iterable[Any],
    *,
    method: str = "auto",
    time_limit: float | None = None,
    processes: int | None = None,
    cancel: Cancel | None = None,
    on_result: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """Solve problems of any families on all cores.

    Parameters
    ----------
    problems : iterable
        Typed problems, such as `planner.caramel.Problem`, and requests of the JSON interface.
    method : str
        For each typed problem: a method of its family.
    time_limit : float, optional
        Seconds for each typed problem.
    processes : int, optional
        At most so many at once; by default as many as cores. 1: in this process.
    cancel : Cancel, optional
        Ends all searches with the best plans so far once it is set.
    on_result : callable, optional
        Called with the place of a problem and its result, as soon as that is there.

    Returns
    -------
    list
        In the order of the problems: a `planner.Result` of each typed problem, and the answer to
        each request, which may be an error object.

    Raises
    ------
    InvalidInputError
        If a typed problem is none, or its family refuses it or the method.
    PlannerError
        If the process that solved a typed problem died, such as for want of memory.
    """
    listed = list(problems)
    tasks = [_task(problem, place, method, time_limit) for place, problem in enumerate(listed)]
    count = cores() if processes is None else integer(processes, "processes", minimum=1)
    results: list[Any] = [None] * len(listed)
    for place, result in _solved(tasks, min(count, len(listed)), cancel):
        if isinstance(result, BaseException):
            raise result
        results[place] = result
        if on_result is not None:
            on_result(place, result)
    return results


def _task(problem: Any, place: int, method: str, time_limit: float | None) -> bytes:
    """Return what a process is asked."""
    if isinstance(problem, Mapping):
        return pickle.dumps(("answer", plain(problem)))
    for kind in type(problem).__mro__:
        family, _, _ = kind.__module__.rpartition(".")
        if family.startswith("planner.") and hasattr(import_module(family), "solve"):
            return pickle.dumps(("solve", (family, problem, method, time_limit)))
    raise InvalidInputError(
        f"problems[{place}]", f"expected a problem or a request, got {shown(problem)}"
    )


def _solved(
    tasks: Sequence[bytes], processes: int, cancel: Cancel | None
) -> Iterator[tuple[int, Any]]:
    if processes <= 1:
        for place, task in enumerate(tasks):
            yield place, _done(task, cancel)
        return

    def ask(worker: Worker, task: bytes) -> Any:
        try:
            _, data = worker.ask(task, cancel=cancel)
        except (OverLimitError, WorkerFaultError) as error:
            return PlannerError(f"a process that solved a problem died: {error}")
        return pickle.loads(data)

    def serve(task: bytes, _: Any, cancelled: Cancel) -> tuple[int, bytes]:
        return 0, pickle.dumps(_done(task, cancelled))

    yield from _asked(tasks, processes, serve, ask)


def _done(task: bytes, cancel: Cancel | None) -> Any:
    """Return a result, an answer, or the error that a problem ends with."""
    from planner.jsonio import solve

    kind, content = pickle.loads(task)
    if kind == "answer":
        return solve(content, cancel=cancel)
    family, problem, method, time_limit = content
    try:
        result: Result[Any, Any] = import_module(family).solve(
            problem, method=method, time_limit=time_limit, cancel=cancel
        )
    except PlannerError as error:
        return error
    return result


def answers(
    requests: Sequence[bytes], processes: int, cancel: Cancel | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the place of each request, and the answer as JSON, as soon as it is there.

    Parameters
    ----------
    requests : sequence of bytes
        Requests of the JSON interface.
    processes : int
        At most so many at once.
    cancel : Cancel, optional
        Ends all searches.
    """

    def serve(message: bytes, _: Any, cancelled: Cancel) -> tuple[int, bytes]:
        return 0, reply(message, cancelled).data

    def ask(worker: Worker, message: bytes) -> bytes:
        return limited_reply(worker, message, _NO_LIMITS, cancel=cancel).data

    yield from _asked(requests, processes, serve, ask)


def _asked(
    messages: Sequence[bytes],
    processes: int,
    serve: Callable[[bytes, Any, Any], tuple[int, bytes]],
    ask: Callable[[Worker, bytes], Any],
) -> Iterator[tuple[int, Any]]:
    """Yield what each message was answered, by processes that are forked before any thread."""
    free: SimpleQueue[Worker] = SimpleQueue()
    with ExitStack() as ending:
        for _ in range(processes):
            worker = ending.enter_context(Worker(serve, _NO_LIMITS))
            worker.start()
            free.put(worker)

        def run(message: bytes) -> Any:
            worker = free.get()
            try:
                return ask(worker, message)
            finally:
                free.put(worker)

        threads = ThreadPoolExecutor(processes)
        try:
            places: dict[Future[Any], int] = {
                threads.submit(run, message): place for place, message in enumerate(messages)
            }
            for done in as_completed(places):
                yield places.pop(done), done.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
