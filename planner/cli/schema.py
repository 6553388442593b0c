"""``planner schema``: print the JSON Schema of requests, answers and files."""

import argparse
import json
from typing import Any

from planner.cli.common import command, in_option, write_json
from planner.jsonio import PROBLEMS, schema
from planner.jsonio.schemas import FILES


def add_parser(commands: Any) -> None:
    """Add the command."""
    command(
        commands,
        "schema",
        run,
        "print the JSON Schema of requests, answers and files",
        "planner schema ibatch",
        {"problem PROBLEM?": f"one of {', '.join((*PROBLEMS, *FILES))}; default: all of them"},
    )


def run(options: argparse.Namespace) -> int:
    """Print the schema."""
    with in_option("PROBLEM"):
        document = schema(options.problem)
    write_json(json.dumps(document, indent=2) + "\n", None)
    return 0
