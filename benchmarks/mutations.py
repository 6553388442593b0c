"""Do the tests notice when the code is wrong? Deliberate mutations, and the tests that must fail.

Each entry of ``mutations.toml`` names a file, a text that occurs in it exactly once, what takes its
place, and the tests to run. The script applies one after the other in a copy of the repository
and prints which were killed (a test failed), which hung, and which survived.

    python benchmarks/mutations.py [WORD …] [--list FILE] [--time-limit SECONDS]

Tests run with few examples first, and with their usual ones if that does not kill the mutation.
With words only mutations whose file or name holds one of them are tried. The exit status is 1 if a
mutation survived, 2 if one could not be tried: its text is not there exactly once (say what the
code says now), or its tests are not there. That they pass without it is for CI to say.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from shutil import copyfile
from typing import Literal, get_args

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")

Verdict = Literal["killed", "hung", "survived", "refused"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A deliberate fault.

    Attributes
    ----------
    name : str
        What is wrong then.
    file : str
        Where, from the root of the repository.
    old, new : str
        A text that occurs there exactly once, and what takes its place.
    tests : tuple of str
        What pytest is to run: files, tests, and options such as ``-k``.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def read_mutations(path: Path) -> list[Mutation]:
    """Return the mutations in a file."""
    rows = tomllib.loads(path.read_text())["mutation"]
    return [Mutation(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def copy_of(root: Path, into: Path) -> None:
    """Copy what git knows, and new files it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (root / name).is_file() or (root / name).is_symlink():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            copyfile(root / name, into / name, follow_symlinks=False)


def verdict_of(folder: Path, tests: Sequence[str], limit_s: float) -> Verdict:
    """Return what tests say.

    Raises
    ------
    ValueError
        If there are no such tests.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["--hypothesis-seed=0", *tests]  # the same verdict each time
    mutated = {**os.environ, "PYTHONPATH": str(folder)}  # in processes the tests start, too
    try:
        done = subprocess.run(  # pytest, on a list of ours
            command,
            cwd=folder,
            env=mutated,
            check=False,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return "hung"
    if done.returncode in (4, 5):  # tests that are not there, or none at all
        raise ValueError(f"no such tests: {' '.join(tests)}")
    return "killed" if done.returncode else "survived"


def tried(folder: Path, mutation: Mutation, limit_s: float) -> tuple[Verdict, str]:
    """Try one mutation in a copy of the repository, and leave the copy as it was."""
    path = folder / mutation.file
    text = path.read_text() if path.is_file() else ""
    count = text.count(mutation.old)
    if count != 1:
        return "refused", f"its text is in {mutation.file} {count} times, expected once"
    try:
        write(path, text.replace(mutation.old, mutation.new))
        verdict = verdict_of(folder, ("--hypothesis-profile=again", *mutation.tests), limit_s)
        if verdict == "survived":
            verdict = verdict_of(folder, mutation.tests, limit_s)
    except ValueError as error:
        return "refused", str(error)
    finally:
        write(path, text)
    return verdict, ""


def write(path: Path, text: str) -> None:
    """Write a module; what was compiled of it goes, as only second and size tell it is older."""
    path.write_text(text)
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("words", nargs="*", help="only mutations whose file or name holds one")
    parser.add_argument("--list", type=Path, default=LIST, dest="path", help="the mutations")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    parser.add_argument("--time-limit", type=float, default=600, help="seconds for one")
    options = parser.parse_args(arguments)
    chosen = [
        mutation
        for mutation in read_mutations(options.path)
        if not options.words
        or any(word in f"{mutation.file} {mutation.name}" for word in options.words)
    ]
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_of(options.root, folder)
        for one in chosen:
            begin = time.monotonic()
            verdict, why = tried(folder, one, options.time_limit)
            verdicts.append(verdict)
            took = f"{time.monotonic() - begin:5.0f} s"
            print(f"{verdict:9} {took}  {one.file}: {one.name}  {why}".rstrip(), flush=True)
    counts = {verdict: verdicts.count(verdict) for verdict in get_args(Verdict)}
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 2 if counts["refused"] else int(counts["survived"] > 0)


if __name__ == "__main__":
    sys.exit(main())
