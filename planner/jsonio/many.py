"""Answer many requests on any executor of `concurrent.futures`, in their order.

The caller's executor places, restarts and scales: a process pool, Dask's ``Client.get_executor()``,
``mpi4py.futures``. A bounded number of requests is submitted ahead of the answer that is yielded
next.

Guarantee: the answers of `planner.solve`, in the order of the requests.
Complexity: theirs, and one copy of each request and answer. Source: own.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from itertools import islice
from typing import Any

from planner.jsonio.service import solve
from planner.model.validation import integer


def solve_many(
    requests: Iterable[Mapping[str, Any]], executor: Executor, *, ahead: int = 256
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each request, in the order of the requests.

    Typed problems need no function of their own: ``executor.map(caramel.solve, problems)``.

    Parameters
    ----------
    requests : iterable of mapping
        As for `planner.solve`; read only as far as they are submitted.
    executor : Executor
        Where requests are answered. Its machines need this package.
    ahead : int
        Number of requests submitted before the first of them has been answered.

    Yields
    ------
    dict
        An answer, or the error object of an invalid request.

    Raises
    ------
    InvalidInputError
        If `ahead` is not a positive integer.
    BrokenExecutor
        If a process of the executor died, for example because memory ran out.
    """
    integer(ahead, "ahead", minimum=1)
    left = iter(requests)
    submitted: deque[Future[dict[str, Any]]] = deque(
        executor.submit(solve, request) for request in islice(left, ahead)
    )
    try:
        while submitted:
            yield submitted.popleft().result()
            submitted.extend(executor.submit(solve, request) for request in islice(left, 1))
    finally:
        for future in submitted:
            future.cancel()
