"""Settings of all tests."""

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from secrets import randbelow
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, seed, settings

# What tests start again and again is compiled once, and so are tests for all processes of
# pytest-xdist, whatever this one was told.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Lean: the same examples on every run (a red test is a fact, not an accident), but for the few of
# `FRESH`, and fewer than a test asks for.
settings.register_profile(
    "planner",
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
# All examples that a test asks for, and all cases.
settings.register_profile("thorough", settings.get_profile("planner"), max_examples=200)
# New ones in all tests, for the seed of `--hypothesis-seed`.
settings.register_profile(
    "fresh", settings.get_profile("thorough"), derandomize=False, database=None
)
# A first look: for `benchmarks/mutations.py`, and for `-m "not slow"`.
settings.register_profile("again", settings.get_profile("planner"), max_examples=8)
settings.load_profile("planner")

SHARES = {"planner": 12, "again": 50}
"""In these profiles a test has one in so many of the examples it asks for, but at least those of
the profile, if it asks for as many."""

FRESH = 4
"""Of so many property tests one has new examples in each run, drawn from the seed of that run."""

SEED = pytest.StashKey[int]()

JOBS = (
    "tests/runtime/",
    "tests/cli/test_run",
    "tests/cli/test_calibrate_network",
    "tests/docs/test_tutorial",
)
"""Tests that start jobs of several processes."""

WAITING = "tests/runtime/world/test_faults"
"""Those of them that mostly wait until something is noticed."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose cases and examples of each test, and put jobs at one end and long tests at both.

    Where tests run in parallel, workers take them from both ends; see `scheduling.py`.
    """
    thorough = settings.get_current_profile_name() in ("thorough", "fresh")
    if config.args == config.getini("testpaths") and not thorough:
        left_out = not_drawn(items, config.stash[SEED])
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in set(left_out)]
    tests: set[Any] = {getattr(item, "obj", None) for item in items}
    for test in tests:
        if is_hypothesis_test(test):
            # Hypothesis has no public way to a test's settings.
            test._hypothesis_internal_use_settings = shared(test._hypothesis_internal_use_settings)
    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Give torch one thread, if there is torch: tests run side by side, and threads wait busily."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Leave what is imported to no garbage collector.

    Torch is millions of objects, and all of them would be looked at in each full collection: half a
    second, and every measurement of a model begins with one.
    """
    gc.disable()
    try:
        import_by_turns(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def import_by_turns(config: pytest.Config) -> None:
    """Import all tests, each worker of pytest-xdist from another one on.

    Else all of them compiled the same file at the same time: this way each finds compiled what the
    others were at before.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    root = Path(__file__).parents[1]
    names = [
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in sorted(root.glob("tests/**/test_*.py"))
    ]
    number = int(worker["workerid"].removeprefix("gw"))
    first = len(names) * number // worker["workercount"]
    for name in names[first:] + names[:first]:
        # What cannot be imported, or is skipped as a whole, is for the collection to say.
        with suppress(Exception, pytest.skip.Exception):
            import_module(name)


def not_drawn(items: list[pytest.Item], number: int) -> list[pytest.Item]:
    """Return the cases of tests marked ``drawn(n)`` that a run leaves out.

    Each such test has one in n of its cases, and one at least, as names and seed decide.
    """
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("drawn") is not None:
            cases[item.nodeid.partition("[")[0]].append(item)
    left_out: list[pytest.Item] = []
    for own in cases.values():
        marker = own[0].get_closest_marker("drawn")
        assert marker is not None
        own.sort(key=lambda item: sha256(f"{number} {item.nodeid}".encode()).digest())
        left_out += own[-(-len(own) // marker.args[0]) :]
    return left_out


def place(item: pytest.Item) -> int:
    """Return where a test stands: jobs that wait, long jobs, jobs, tests, long tests."""
    if item.nodeid.startswith(WAITING):
        return 0
    job = item.nodeid.startswith(JOBS)
    slow = item.get_closest_marker("slow") is not None
    return (1 if slow else 2) if job else (4 if slow else 3)


def shared(asked: settings) -> settings:
    """Return a test's settings with the examples it has in the profile of this run."""
    profile = settings.get_current_profile_name()
    least = min(asked.max_examples, settings.get_profile(profile).max_examples)
    return settings(asked, max_examples=max(least, asked.max_examples // SHARES.get(profile, 1)))


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples of this run, and its seed, the same in all processes.

    The seed is the one given, or a new one.
    """
    if config.option.markexpr == "not slow" and not config.getoption("--hypothesis-profile", None):
        settings.load_profile("again")
    given = str(config.getoption("hypothesis_seed", default=None))
    worker = getattr(config, "workerinput", None)
    if given.isdecimal():
        config.stash[SEED] = int(given)
    else:
        config.stash[SEED] = randbelow(10**6) if worker is None else worker["fresh_seed"]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist the seed."""
    node.workerinput["fresh_seed"] = node.config.stash[SEED]


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to see the same examples again."""
    one = config.stash[SEED]
    return (
        f"new examples in one of {FRESH} property tests, and some of the cases of long tests: "
        f"again with --hypothesis-seed={one}"
    )


def is_fresh(item: pytest.Item) -> bool:
    """Return whether a test has new examples, which only its name and the seed decide."""
    drawn = sha256(f"{item.config.stash[SEED]} {item.nodeid}".encode()).digest()
    return drawn[0] % FRESH == 0 and is_hypothesis_test(getattr(item, "obj", None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run a test with new examples if it is its turn."""
    if not is_fresh(item):
        return (yield)
    test = item.obj  # type: ignore[attr-defined]
    seed(f"{item.config.stash[SEED]} {item.nodeid}")(test)
    try:
        return (yield)
    finally:
        seed(None)(test)  # parametrised tests share it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Say beside a failure how to see it again."""
    report: Any = yield
    if report.failed and is_fresh(item):
        again = f"--hypothesis-seed={item.config.stash[SEED]}"
        report.sections.append(("new examples", f"this test's are drawn: again with {again}"))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return two workers for each core, and one: jobs leave them idle half of the time.

    Quick tests do not, nor do those of pages, and each worker takes ten seconds to find them all.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    chosen = config.option.markexpr
    return cores if "not slow" in chosen or chosen == "pages" else 2 * cores + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have tests handed out from both ends."""
    from tests.scheduling import BothEnds

    return BothEnds(config, log)
