"""Which code a results file was made with, and what of it has changed since.

A results file names the commit. A benchmark's sources are its script and all files of `benchmarks`
and `planner` that it imports, directly or not. That one of them has changed says that numbers may
be old, not that they are: it may be a comment.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
UNKNOWN = "unknown: not in a git repository"
MEASURED = ("planner", "benchmarks")
HASH = re.compile(r"\b[0-9a-f]{7,40}\b")


def commit() -> str:
    """Return the commit of the code, "… with changes" if some are not committed."""
    head = _git("rev-parse", "--short=7", "HEAD")
    if head is None:
        return UNKNOWN
    # Results that were just written are no change of the code.
    changed = _git("status", "--porcelain", "--", "planner", "benchmarks/*.py")
    return f"{head.strip()} with changes" if changed else head.strip()


def changed_since(made_with: str, name: str) -> list[str] | None:
    """Return the sources of a benchmark that have changed since a commit.

    Parameters
    ----------
    made_with : str
        The commit, as a results file names it.
    name : str
        The script, without its suffix.

    Returns
    -------
    list of str or None
        Their paths; None where git does not know, or does not have, the commit.
    """
    paths = {path.relative_to(ROOT).as_posix() for path in sources(name)}
    known = HASH.search(made_with)
    changed = _git("diff", "--name-only", known[0], "--", *MEASURED) if known else None
    if changed is None:
        return None
    return [path for path in changed.splitlines() if path in paths]


@cache
def _git(*arguments: str) -> str | None:
    """Return what git prints; None if it fails, or is not there."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def sources(name: str) -> list[Path]:
    """Return the files that a benchmark consists of, sorted."""
    waiting, found = [ROOT / "benchmarks" / f"{name}.py"], set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path)
    return sorted(found)


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    """Return the files of the repository that one imports, wherever in it that stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {name for node in ast.walk(tree) for name in _names(node)}
    return tuple(file for name in names for file in _files(name, path.parent))


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement or an expression may load as modules."""
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{one.name}" for one in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Interfaces":  # loaded by name
        (named,) = (one for one in ast.walk(node) if isinstance(one, ast.Tuple))
        yield from (f"planner.jsonio.{name}" for name in ast.literal_eval(named))
    elif (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "planner"
    ):
        yield f"planner.{node.attr}"


def _files(name: str, beside: Path) -> Iterator[Path]:
    """Yield the file of a module, and those of the packages around it.

    `planner` itself is left out, as it loads what is asked for; a name of its is in its home.
    """
    parts = name.split(".")
    if parts[0] == "planner" and len(parts) > 1:
        parts[1:2] = _homes().get(parts[1], parts[1]).split(".")
    for folder in {ROOT} if parts[0] == "planner" else {beside, ROOT / "benchmarks"}:
        for length in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:length])
            for path in (place.with_suffix(".py"), place / "__init__.py"):
                if path.is_file() and path != ROOT / "planner" / "__init__.py":
                    yield path


@cache
def _homes() -> dict[str, str]:
    """Return the modules of the names that `planner` exports."""
    tree = ast.parse((ROOT / "planner" / "__init__.py").read_text(encoding="utf-8"))
    (homes,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES"
    )
    return {name: home for home, names in homes.items() for name in names}
