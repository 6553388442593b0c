"""Where the requests of a sweep are answered: here, or on an engine that the user has.

Ray and Dask place tasks, start them again where a machine fails, and grow with a cluster. What they
need is this package on all machines. Nothing of them is imported until it is used.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from planner.batches.many import answers
from planner.deadline import Cancel
from planner.errors import InvalidInputError, MissingExtraError, PlannerError
from planner.jsonio import reply

__all__ = ["ENGINES", "Engine"]

Engine: TypeAlias = Callable[
    [Sequence[bytes], int, str | None, Cancel | None], Iterator[tuple[int, bytes]]
]
"""Yields the place of each request, and its answer, as soon as it is there.

Takes requests; how many are answered at once; the address of a cluster, if not a local one; and
what ends all.
"""

_WAIT_S = 0.2
"""How often somebody looks whether to end."""


def local(
    requests: Sequence[bytes], processes: int, address: str | None, cancel: Cancel | None
) -> Iterator[tuple[int, bytes]]:
    """Answer on the cores of this machine."""
    if address is not None:
        raise InvalidInputError("address", "there is none of engine local")
    yield from answers(requests, processes, cancel)


def on_ray(
    requests: Sequence[bytes], processes: int, address: str | None, cancel: Cancel | None
) -> Iterator[tuple[int, bytes]]:
    """Answer on Ray: its cluster at the address, or one of this machine."""
    try:
        import ray
    except ImportError:
        raise MissingExtraError("Ray", "sweep") from None
    started = not ray.is_initialized()
    if started:
        own = {"num_cpus": processes, "include_dashboard": False} if address is None else {}
        try:
            ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **own)
        except (ConnectionError, ValueError) as error:
            raise PlannerError(f"Ray cannot be reached at {address}: {error}") from None
    try:
        task: Any = ray.remote(_answer)
        waiting: dict[Any, int] = {}
        left = iter(enumerate(requests))
        # Some more than run, so that none has to wait for this process.
        most = 2 * max(processes, int(ray.cluster_resources().get("CPU", 1)))
        while True:
            while len(waiting) < most and (following := next(left, None)) is not None:
                place, request = following
                waiting[task.remote(request)] = place
            if not waiting or (cancel is not None and cancel.is_set()):
                return
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_WAIT_S)
            for done in ready:
                yield waiting.pop(done), ray.get(done)
    finally:
        if started:
            ray.shutdown()


def on_dask(
    requests: Sequence[bytes], processes: int, address: str | None, cancel: Cancel | None
) -> Iterator[tuple[int, bytes]]:
    """Answer on Dask: its scheduler at the address, or one of this machine."""
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError:
        raise MissingExtraError("Dask", "sweep") from None
    from contextlib import ExitStack

    with ExitStack() as ending:
        try:
            cluster = address or ending.enter_context(
                LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address=None)
            )
            client = ending.enter_context(Client(cluster, set_as_default=False))
        except (OSError, TimeoutError, ValueError) as error:
            raise PlannerError(f"Dask cannot be reached at {address}: {error}") from None
        left = iter(enumerate(requests))
        running = as_completed(loop=client.loop)
        places: dict[str, int] = {}

        def submit() -> None:
            following = next(left, None)
            if following is None:
                return
            place, request = following
            future = client.submit(_answer, request, key=f"planner-{place}")
            places[future.key] = place
            running.add(future)

        most = 2 * max(processes, sum(client.nthreads().values()))
        for _ in range(most):
            submit()
        while not running.is_empty():
            done = next(running)
            yield places.pop(done.key), done.result()
            if cancel is not None and cancel.is_set():
                return
            submit()


def _answer(request: bytes) -> bytes:
    """Answer one request; runs on whatever machine the engine chooses."""
    return reply(request).data


ENGINES: dict[str, Engine] = {"local": local, "ray": on_ray, "dask": on_dask}
"""Every engine by its name."""
