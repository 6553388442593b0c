"""``planner sweep``: every profile on every cluster with every combination of options."""

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from planner.batches.cases import Case, cases_of, check_first, row_of
from planner.batches.engines import ENGINES
from planner.batches.many import cores
from planner.batches.tables import FORMATS, check_format, encoded, known_rows
from planner.cli.common import check_outputs, command, in_file, read, warn, write_text
from planner.cli.interrupting import ended, interruptible
from planner.cli.progress import Progress
from planner.cli.telling import tell
from planner.cli.writing import write_file
from planner.errors import InvalidInputError
from planner.jsonio.decoding import decode, typed
from planner.jsonio.sweep import SweepDocument
from planner.methods import known_method

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = command(
        commands,
        "sweep",
        run,
        "plan every profile on every cluster with every combination of options",
        """echo '{"profiles": ["data/profiles/*.json"], "clusters": ["caramel-16", "h100-8"],
    "options": {"computation_scale": [1, 0.1], "method": ["auto", "ddp"]}}' > sweep.json
  planner sweep sweep.json -o sweep.csv""",
    )
    parser.add_argument("file", metavar="FILE", help="what is varied; its files are beside it")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help=f"the table ({', '.join(FORMATS)}); cases in FILE.part.jsonl, or in FILE itself if "
        "that is .jsonl, are not planned again",
    )
    parser.add_argument(
        "--processes", type=int, default=cores(), metavar="N", help="at once; default: all cores"
    )
    parser.add_argument(
        "--engine",
        default="local",
        metavar="NAME",
        help=f"where it is planned: {', '.join(ENGINES)}; default: local",
    )
    parser.add_argument(
        "--address", metavar="ADDRESS", help="of a running cluster of the engine; default: none"
    )


def run(options: argparse.Namespace) -> int:
    """Plan all cases that are not known."""
    known_method(options.engine, ENGINES, "--engine")
    if options.processes < 1:
        raise InvalidInputError("--processes", f"expected at least 1, got {options.processes}")
    check_format(options.output)
    check_outputs({"--output": options.output}, (options.file,))
    data = read(options.file)
    with in_file(options.file):
        sweep = typed(decode(data), SweepDocument)
        by_key = {case.key: case for case in cases_of(sweep, Path(options.file).parent)}
        cases = list(by_key.values())
        check_first(cases[0])
    output = Path(options.output)
    part = output.with_name(output.name + ".part.jsonl")
    known = known_rows((output, part) if output.suffix == ".jsonl" else (part,))
    left = [case for case in cases if case.key not in known]
    tell(f"{len(cases)} cases, {len(cases) - len(left)} of them known")
    progress = Progress(quiet=options.quiet)
    with interruptible() as cancel:
        engine = ENGINES[options.engine]
        requests = [case.request for case in left]
        answers = engine(requests, options.processes, options.address, cancel)
        with closing(answers), part.open("ab") as file:  # type: ignore[type-var]
            for number, (place, answer) in enumerate(answers, len(cases) - len(left) + 1):
                if cancel.is_set():  # what it cut short is planned again
                    break
                row = row_of(left[place], answer)
                known[left[place].key] = row
                file.write(json.dumps(row).encode() + b"\n")
                file.flush()
                progress("case", number, len(cases))
    progress.done()
    return _finished(options, cases, known, part) or ended(cancel)


def _finished(
    options: argparse.Namespace, cases: Sequence[Case], known: dict[str, Any], part: Path
) -> int:
    """Write the table once every case is there."""
    rows = [known[case.key] for case in cases if case.key in known]
    if len(rows) < len(cases):
        warn([f"{len(rows)} of {len(cases)} cases are in {part}; the same command goes on"])
        return 0
    write_file(options.output, encoded(rows, Path(options.output).suffix))
    part.unlink(missing_ok=True)
    bad = sum(row["status"] == "error" for row in rows)
    refused = f", {bad} refused" if bad else ""
    write_text(f"{options.output}: {len(rows)} cases{refused}\n")
    return 0
