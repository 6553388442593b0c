"""Do two versions of planner give the same plans? Every documented request, answered by both.

Requests are the JSON objects with a `problem` in the pages of ``docs/`` and ``README.md``, the
files in ``data/``, and whole iterations of every shipped profile on every shipped cluster.
Answers are compared without their run time and the name of the method that made them; what only
NEW says was added since, and is no difference.

    python benchmarks/same_answers.py OLD [NEW] [--profiles A,B,…]

OLD and NEW (default: this one) are folders with a version each, such as ``git worktree add`` makes.
The exit status is 1 if any plan, objective, bound or status differs.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

APART = ("runtime_s", "method")
"""Fields that may differ: times do, and `auto` says since when it chose what."""

ANSWERING = """
import json, sys
import planner
for line in sys.stdin:
    print(json.dumps(planner.solve(json.loads(line))), flush=True)
"""


def requests_in(text: str) -> Iterator[dict[str, Any]]:
    """Yield the requests that stand in a page, also where quotes of a shell follow them."""
    decoder = json.JSONDecoder()
    start = text.find('{"problem"')
    while start >= 0:
        try:
            request, length = decoder.raw_decode(text[start:])
        except json.JSONDecodeError:  # shortened with an ellipsis
            length = 1
        else:
            if "status" not in request:
                yield request
        start = text.find('{"problem"', start + length)


def documented(root: Path, profiles: Sequence[str] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the content of each request."""
    pages = [root / "README.md", *sorted((root / "docs").glob("**/*.md"))]
    for page in pages:
        for number, request in enumerate(requests_in(page.read_text(encoding="utf-8"))):
            yield f"{page.relative_to(root)} {number}", request
    files = sorted((root / "data").glob("*/*.json"))
    known = {str(file.relative_to(root / "data")): json.loads(file.read_bytes()) for file in files}
    for name, document in known.items():
        if "problem" in document:
            yield name, document
    for one, other in product(known, known):
        if not one.startswith("profiles/") or not other.startswith("clusters/"):
            continue
        if profiles is not None and Path(one).stem not in profiles:
            continue
        for scale in (1, 0.02):
            yield (
                f"{one} on {other} × {scale}",
                {
                    "problem": "iteration",
                    "profile": known[one],
                    "cluster": known[other],
                    "computation_scale": scale,
                },
            )


def answers(folder: Path, requests: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the answers of one version."""
    process = subprocess.Popen(  # Python, on a script of ours
        [sys.executable, "-c", ANSWERING],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        for request in requests:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            yield json.loads(process.stdout.readline())
        process.stdin.close()


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the fields of the old answer that are others, or missing, in the new one."""
    return [name for name in old if name not in APART and old[name] != new.get(name)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--profiles", help="of iterations, those of these profiles only")
    options = parser.parse_args(arguments)
    chosen = options.profiles.split(",") if options.profiles else None
    named = list(documented(options.old.resolve(), chosen))
    requests = [request for _, request in named]
    pairs = (answers(folder.resolve(), requests) for folder in (options.old, options.new))
    changed = 0
    for (name, _), old, new in zip(named, *pairs, strict=True):
        fields = differences(old, new)
        if fields:
            changed += 1
            told = ", ".join(
                f"{field}: {old.get(field)!r} → {new.get(field)!r}"[:120] for field in fields
            )
            print(f"{name}: {told}", flush=True)
    print(f"{len(named)} requests, {changed} answered otherwise")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
