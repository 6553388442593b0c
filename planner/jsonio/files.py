"""Profiles and clusters by the names of their files; shipped clusters by their own."""

from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path

from planner.clusters import Cluster
from planner.errors import InvalidInputError
from planner.jsonio.clusters import decode_cluster
from planner.jsonio.profiles import decode_profile
from planner.profiles import Profile
from planner.validation import shown

__all__ = ["cluster_file", "read_cluster", "read_profile", "shipped_clusters"]

_FOLDER = Path(__file__).parents[1] / "data" / "clusters"


def shipped_clusters() -> tuple[str, ...]:
    """Return the names of the clusters that come with the library, in order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def cluster_file(name: str | PathLike[str]) -> Path:
    """Return the file that is meant: of that name or, if there is none here, a shipped one.

    Parameters
    ----------
    name : str or path
        A file, or a name such as ``caramel-16``.

    Raises
    ------
    InvalidInputError
        If a name is neither; the message gives the nearest shipped ones, or all.
    """
    path, known = Path(name), shipped_clusters()
    if path.parent.name or path.is_absolute() or (path.exists() and not path.is_dir()):
        return path  # in a folder: a file, if a missing one
    if fspath(name) in known:
        return _FOLDER / f"{name}.json"
    near = get_close_matches(path.name.lower().removesuffix(".json"), known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"shipped are {', '.join(known)}"
    raise InvalidInputError(
        "cluster", f"neither a file nor the name of a shipped one: {shown(fspath(name))}; {hint}"
    )


def read_cluster(name: str | PathLike[str]) -> Cluster:
    """Read a cluster from a file, or a shipped one by its name.

    Raises
    ------
    InvalidInputError
        If there is none, or it holds something else, with the path of the first bad field.
    OSError
        If the file cannot be read.
    """
    return decode_cluster(cluster_file(name).read_bytes())


def read_profile(path: str | PathLike[str]) -> Profile:
    """Read a profile from a file.

    Raises
    ------
    InvalidInputError
        If it holds something else, with the path of the first bad field.
    OSError
        If it cannot be read.
    """
    return decode_profile(Path(path).read_bytes())
