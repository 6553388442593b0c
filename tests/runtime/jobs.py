"""Tests whose body runs in each rank of a job: what fails on one rank fails the test."""

import inspect
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, Concatenate, ParamSpec

from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.launching import launch

P = ParamSpec("P")


def in_each_process(
    size: int | str = 2, timeout_s: float = 60
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Run a test in several processes at once, as many as a number or one of its parameters."""

    def decorated(test: Callable[P, None]) -> Callable[P, None]:
        @wraps(test)
        def run(*args: P.args, **given: P.kwargs) -> None:
            count: Any = given[size] if isinstance(size, str) else size
            outcomes = launch(
                _in_this_process, count, test.__module__, test.__name__, given, timeout_s=timeout_s
            )
            failed = [
                f"rank {one.rank} ended with {one.exit_code}\n{one.error and one.error.trace}"
                for one in outcomes
                if one.exit_code
            ]
            assert not failed, "\n".join([*failed, *(one.output for one in outcomes)])

        return run

    return decorated


def in_each_rank(
    size: int | str = 2, timeout_s: float = 60
) -> Callable[[Callable[Concatenate[World, P], None]], Callable[P, None]]:
    """Do the same in processes that have joined a job, which is the test's first argument."""

    def decorated(test: Callable[Concatenate[World, P], None]) -> Callable[P, None]:
        @wraps(test)
        def joined(*args: P.args, **given: P.kwargs) -> None:
            with join() as world:
                test(world, *args, **given)

        signature = inspect.signature(test)
        others = list(signature.parameters.values())[1:]
        vars(joined)["__signature__"] = signature.replace(parameters=others)
        return in_each_process(size, timeout_s)(joined)

    return decorated


def _in_this_process(module: str, name: str, given: dict[str, Any]) -> None:
    getattr(import_module(module), name).__wrapped__(**given)
