"""The command line: see the package."""

import argparse
import secrets
import sys
from collections import Counter

from planner.jsonio.workers import Limits
from tests import large
from tests.fuzzing.running import SLOW, findings
from tests.fuzzing.valid import MAKERS


def main() -> int:
    """Print what is found; 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--problem", choices=list(MAKERS), action="append", help="default: all")
    parser.add_argument("--requests", type=int, default=9000, help="of all problems together")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--start", type=int, default=0, help="number of the first request")
    parser.add_argument("--seconds", type=float, default=5, help="processor time of a request")
    options = parser.parse_args()
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    problems = options.problem or list(MAKERS)
    each = -(-options.requests // len(problems))
    print(f"seed {seed}, {each} requests of each problem", flush=True)

    large.warm()  # what methods import counts for none of them
    kinds = Counter[tuple[str, str, str]]()
    for problem in problems:
        limits = Limits(seconds=options.seconds)
        for finding in findings(problem, each, seed, limits, options.start):
            kind = problem, finding.fault.kind, finding.fault.where
            kinds[kind] += 1
            if kinds[kind] == 1:
                cancelled = "" if finding.asked.cancel_s is None else ", cancelled"
                text = finding.asked.data[:4000].decode("utf-8", "replace")
                print(f"\n{problem} {finding.asked.number}{cancelled} {finding.fault.kind}:")
                print(f"    {finding.fault.detail}\n    {text}", flush=True)
    for kind, number in kinds.most_common():
        print(f"{number:6} {' '.join(kind)}")
    return 1 if any(kind != SLOW for _, kind, _ in kinds) else 0


if __name__ == "__main__":
    sys.exit(main())
