"""The cases of a sweep: every profile on every cluster with every combination of options.

Each has a key, made of all that its answer depends on but the program: who repeats a sweep, or
adds to it, finds by it what has been answered before.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from msgspec import UNSET

from planner.errors import InvalidInputError
from planner.jsonio import decode_request
from planner.jsonio.decoding import decode
from planner.jsonio.files import cluster_data
from planner.jsonio.sweep import SweepDocument
from planner.validation import shown

__all__ = ["MAX_CASES", "Case", "cases_of", "check_first", "row_of"]

MAX_CASES = 1_000_000
"""Cases of a sweep."""

_FIXED = ("problem", "profile", "cluster")
"""Fields of a request that no option may be."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request of a sweep.

    Attributes
    ----------
    key : str
        What tells it from all others.
    varied : mapping of str to object
        Profile, cluster and options, as the sweep names them.
    request : bytes
        The request.
    """

    key: str
    varied: Mapping[str, Any]
    request: bytes


def cases_of(sweep: SweepDocument, folder: Path) -> Iterator[Case]:
    """Yield all cases, profiles first.

    Parameters
    ----------
    sweep : SweepDocument
        What is varied.
    folder : Path
        Where its files are.

    Raises
    ------
    InvalidInputError
        If there is no such file, an option is none, or there are too many cases.
    OSError
        If a file cannot be read.
    """
    for name in sweep.options:
        if name in _FIXED or name == "time_limit_s":
            raise InvalidInputError(f"options.{name}", "is not one of the options")
    profiles = _documents(sweep.profiles, folder, "profiles")
    clusters = _documents(sweep.clusters, folder, "clusters")
    choices = list(product(*sweep.options.values()))
    count = len(profiles) * len(clusters) * len(choices)
    if count > MAX_CASES:
        raise InvalidInputError("", f"expected at most {MAX_CASES:,} cases, got {count:,}")
    limit = {} if sweep.time_limit_s is UNSET else {"time_limit_s": sweep.time_limit_s}
    for (profile, model), (cluster, place), values in product(
        profiles.items(), clusters.items(), choices
    ):
        options = dict(zip(sweep.options, values, strict=True))
        request = {"problem": "iteration", "profile": model, "cluster": place, **options, **limit}
        data = json.dumps(request, sort_keys=True).encode()
        key = hashlib.sha256(data).hexdigest()[:16]
        yield Case(key, {"profile": profile, "cluster": cluster, **options}, data)


def check_first(case: Case) -> None:
    """Refuse what is wrong with every case, such as an option that there is not.

    Raises
    ------
    InvalidInputError
        With the path of the first bad field.
    """
    decode_request(case.request)


def row_of(case: Case, answer: bytes) -> dict[str, Any]:
    """Return a row of the table: what was varied, and the plain fields of the answer.

    Parameters
    ----------
    case : Case
        What was asked.
    answer : bytes
        What was answered.
    """
    made: dict[str, Any] = json.loads(answer)
    if "error" in made:
        error = made["error"]
        made = {"status": "error", "reason": f"{error['path']}: {error['message']}".lstrip(": ")}
    for name, value in made.get("synchronisation", {}).items():
        made.setdefault(name, value)
    plain = {name: value for name, value in made.items() if isinstance(value, _PLAIN)}
    varied = {
        name: value if isinstance(value, _PLAIN) else json.dumps(value)
        for name, value in case.varied.items()
    }
    return {"case": case.key, **plain, **varied}


_PLAIN = str | int | float | None


def _documents(patterns: tuple[str, ...], folder: Path, field: str) -> dict[str, Any]:
    """Return what files hold, by the names that are given or that match a pattern."""
    documents: dict[str, Any] = {}
    for place, pattern in enumerate(patterns):
        names = [pattern]
        if any(mark in pattern for mark in "*?["):
            names = [str(path) for path in sorted(folder.glob(pattern))]
        if not names:
            raise InvalidInputError(f"{field}[{place}]", f"no file matches {shown(pattern)}")
        for name in names:
            try:
                own = field == "clusters" and not (folder / name).exists()
                data = cluster_data(name) if own else (folder / name).read_bytes()
                decode(data)
                documents[name] = json.loads(data)
            except InvalidInputError as error:
                raise InvalidInputError(f"{field}[{place}]", f"{name}: {error}") from None
    return documents
