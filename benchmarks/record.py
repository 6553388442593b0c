"""Runs a benchmark and keeps what it prints as data.

    python benchmarks/record.py NAME [-o FILE | --check] [ARGUMENT …]
    python benchmarks/record.py --all

NAME is a script beside this one, without its suffix: `ibatch_speed`, `reproduction/caramel`. Its
arguments follow; what it prints is printed too, and written to `benchmarks/results/NAME.json` or to
FILE (see `results`). With `--check` nothing is written: the run ends with an error if it prints a
table that the results file has not, by its columns. So a short run, say with `--quick`, tells
whether the script still makes what is kept. `--all` runs the command of each results file again, in
one go on one machine, but for those that this code has made; run it again to go on after a stop.
"""

import argparse
import ast
import datetime
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from results import FOLDER, Results, dumps, load, sections, unknown
from versions import commit

HERE = Path(__file__).parent
SKIPPED = "skipped: "


def machine() -> str:
    """Say on what machine this runs."""
    name = platform.processor() or platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        lines = cpus.read_text(encoding="utf-8").splitlines()
        name = next((line.partition(": ")[2] for line in lines if "model name" in line), name)
    return f"{os.cpu_count()} processors, {name}; Python {platform.python_version()}"


def again(files: Sequence[Path]) -> str | None:
    """Record results files by their own commands; return which could not be, or None."""
    failed = []
    for place, path in enumerate(files, 1):
        kept = load(path.relative_to(FOLDER).with_suffix("").as_posix())
        if kept.commit == commit():
            continue
        print(f"{place} of {len(files)}: {kept.command}", file=sys.stderr)
        arguments = shlex.split(kept.command)[2:]
        command = [sys.executable, __file__, kept.benchmark, "-o", str(path), *arguments]
        if subprocess.run(command, check=False).returncode:
            failed.append(path.name)
    return f"not recorded: {', '.join(failed)}" if failed else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("name", nargs="?", metavar="NAME", help="of a script beside this one")
    parser.add_argument("--all", action="store_true", help="every results file, by its command")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: see above")
    parser.add_argument("--check", action="store_true", help="compare the columns, write nothing")
    options, arguments = parser.parse_known_args()
    if options.all:
        sys.exit(again(sorted(FOLDER.rglob("*.json"))))
    if options.name is None:
        parser.error("expected a NAME, or --all")
    script = HERE / f"{options.name}.py"
    if not script.is_file():
        parser.error(f"no benchmark of the name {options.name!r}")
    code = commit()  # as it is when the run begins
    printed = []
    with subprocess.Popen(  # a script of ours
        [sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line)
    text = "".join(printed)
    if process.returncode or text.startswith(SKIPPED):
        sys.exit(process.returncode)
    if options.check:
        if new := unknown(sections(text), load(options.name).sections):
            sys.exit(f"{options.name}.json has no table of columns {new}")
        return
    about = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    made = Results(
        benchmark=options.name,
        about=about.splitlines()[0],
        # Of files elsewhere only the name: the folder means nothing to others.
        command=shlex.join(
            [
                "python",
                f"benchmarks/{options.name}.py",
                *(Path(text).name if Path(text).is_absolute() else text for text in arguments),
            ]
        ),
        date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        machine=machine(),
        commit=code,
        sections=sections(text),
    )
    output = options.output or FOLDER / f"{options.name}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(dumps(made), encoding="utf-8")


if __name__ == "__main__":
    main()
