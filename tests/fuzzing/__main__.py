"""The command line: see the package."""

import argparse
import secrets
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

from planner.workers import Limits
from tests.fuzzing.running import findings
from tests.fuzzing.valid import MAKERS


def main() -> int:
    """Print what is found; 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--problem", choices=list(MAKERS), action="append", help="default: all")
    parser.add_argument("--count", type=int, default=1000, help="requests for each problem")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--start", type=int, default=0, help="number of the first request")
    parser.add_argument("--seconds", type=float, default=60, help="processor time of a request")
    parser.add_argument("--output", type=Path, help="folder for the requests that found something")
    options = parser.parse_args()
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    # What methods import counts for none of them.
    for name in ("ortools.sat.python.cp_model", "pulp", "scipy.optimize"):
        import_module(name)

    limits = Limits(seconds=options.seconds)
    total = 0
    for problem in options.problem or MAKERS:
        kinds: Counter[str] = Counter()
        for finding in findings(problem, options.count, seed, limits, options.start):
            if finding is None:
                continue
            kinds[finding.kind] += 1
            number, data = finding.asked.number, finding.asked.data
            print(f"{problem} {number} {finding.kind}: {finding.detail[:300]}")
            print("   ", data[:500].decode("utf-8", "replace"), flush=True)
            if options.output:
                options.output.mkdir(parents=True, exist_ok=True)
                (options.output / f"{problem}-{seed}-{number}.json").write_bytes(data)
        told = ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items())) or "nothing"
        print(f"{problem}: {options.count} requests, seed {seed}: {told}", flush=True)
        total += kinds.total()
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
