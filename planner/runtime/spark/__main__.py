"""Starts and stops a standalone cluster on this machine."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from planner.errors import PlannerError
from planner.runtime.spark.standalone import StandaloneCluster, default_folder

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0, or 2 with what is wrong on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m planner.runtime.spark",
        description="Start or stop a standalone cluster of Spark's on this machine, for trying.",
        epilog="example:\n  python -m planner.runtime.spark start --workers 2 --cores 4",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["start", "stop"])
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="default: 2")
    parser.add_argument(
        "--cores", type=int, default=1, metavar="K", help="slots of a worker; default: 1"
    )
    parser.add_argument("--memory", default="1g", metavar="M", help="of a worker; default: 1g")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help=f"its files; default: {default_folder()}"
    )
    options = parser.parse_args(arguments)
    try:
        if options.command == "stop":
            StandaloneCluster.running(options.folder).stop()
        else:
            cluster = StandaloneCluster.start(
                options.workers, options.cores, options.memory, options.folder
            )
            print(cluster.url)
    except PlannerError as error:
        print(f"planner: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
