"""The command line: see the package."""

import argparse
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from planner.jsonio.workers import Limits
from tests.fuzzing.plans import planned
from tests.fuzzing.running import SLOW, Asked, Asker, Finding, findings
from tests.fuzzing.shrinking import smallest
from tests.fuzzing.valid import MAKERS

PORTION = 100
"""Requests of one problem that a process is given at a time."""


def main() -> int:
    """Print what is found; 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--problem", choices=list(MAKERS), action="append", help="default: all")
    parser.add_argument("--requests", type=int, default=9000, help="of all problems together")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--start", type=int, default=0, help="number of the first request")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5, help="processor time of a request")
    parser.add_argument("--tries", type=int, default=300, help="to make a request smaller")
    parser.add_argument("--output", type=Path, help="folder for the requests that found something")
    options = parser.parse_args()
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    # What methods import counts for none of them.
    for name in ("ortools.sat.python.cp_model", "pulp", "scipy.optimize"):
        import_module(name)
    problems = options.problem or list(MAKERS)
    each = -(-options.requests // len(problems))
    limits = Limits(seconds=options.seconds)
    for problem in problems:
        planned(problem)
    print(f"seed {seed}, {each} requests of each problem", flush=True)

    begin = time.monotonic()
    portions = [
        (problem, min(PORTION, options.start + each - start), seed, limits, start)
        for start in range(options.start, options.start + each, PORTION)
        for problem in problems
    ]
    asked, kinds, known = 0, Counter[str](), set[tuple[str, str, str]]()
    for problem, count, found in _done(portions, options.processes):
        asked += count
        for finding in found:
            kind, where = finding.kind, finding.fault.where
            kinds[f"{problem} {kind} {where}"] += 1
            if (problem, kind, where) in known:
                continue
            known.add((problem, kind, where))
            request = _shrunk(problem, finding, limits, options.tries)
            cancelled = "" if finding.asked.cancel_s is None else ", cancelled"
            name = f"{problem} {seed} {finding.asked.number}{cancelled}"
            print(f"\n{name} {kind}: {finding.fault.detail}")
            print("   ", request[:4000], flush=True)
            if options.output:
                options.output.mkdir(parents=True, exist_ok=True)
                name = f"{problem}-{seed}-{finding.asked.number}.json"
                (options.output / name).write_text(request)
    spent = time.monotonic() - begin
    print()
    for kind, number in kinds.most_common():
        print(f"{number:6} {kind}")
    print(f"{asked} requests, seed {seed}, {spent:.0f} s, {asked / spent:.0f} requests a second")
    faults = {kind: number for kind, number in kinds.items() if kind.split()[1] != SLOW}
    print(f"{sum(faults.values())} faults of {len(faults)} kinds")
    return 1 if faults else 0


def _done(
    portions: list[tuple[Any, ...]], processes: int
) -> Iterator[tuple[str, int, list[Finding]]]:
    if processes == 1:
        yield from map(_portion, portions)
        return
    with ProcessPoolExecutor(processes) as pool:
        for future in as_completed([pool.submit(_portion, portion) for portion in portions]):
            yield future.result()


def _portion(portion: tuple[Any, ...]) -> tuple[str, int, list[Finding]]:
    found: Iterable[Finding | None] = findings(*portion)
    return portion[0], portion[1], [finding for finding in found if finding is not None]


def _shrunk(problem: str, finding: Finding, limits: Limits, tries: int) -> str:
    """Return a request with the same fault as JSON text; the same one where none is smaller."""
    asked, fault = finding
    slow = fault.kind in ("time", SLOW, "memory_bytes")
    text = asked.data.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if not isinstance(value, dict):
        return text
    with Asker(problem, replace(limits, seconds=4) if slow else limits) as asker:

        def same(request: Any) -> bool:
            again = Asked(0, json.dumps(request).encode(), request, 1, asked.cancel_s)
            found = asker.fault(again)
            if found is None or found.kind != fault.kind:
                return False
            return slow or found.where == fault.where

        if not same(value):
            return text
        return json.dumps(smallest(value, same, tries // 20 if slow else tries))


if __name__ == "__main__":
    sys.exit(main())
