"""Read profiles and clusters from files, and shipped clusters by name."""

from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path

from planner.jsonio.clusters import decode_cluster
from planner.jsonio.profiles import decode_profile
from planner.model.clusters import Cluster
from planner.model.errors import InvalidInputError, PluginError
from planner.model.profiles import Profile
from planner.model.validation import shown
from planner.solving.plugins import plugged

_FOLDER = Path(__file__).parents[1] / "data" / "clusters"


def shipped_clusters() -> tuple[str, ...]:
    """Return the names of the clusters shipped with the library, in order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def cluster_file(name: str | PathLike[str]) -> Path:
    """Return the path of a cluster file; a name such as ``caramel-16`` means a shipped one.

    Raises InvalidInputError, with the nearest shipped names, if there is neither.
    """
    path, known = Path(name), shipped_clusters()
    if path.parent.name or path.is_absolute() or (path.exists() and not path.is_dir()):
        return path  # a path with a folder names a file, even if missing
    if fspath(name) in known:
        return _FOLDER / f"{name}.json"
    near = get_close_matches(path.name.lower().removesuffix(".json"), known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"shipped are {', '.join(known)}"
    raise InvalidInputError(
        "cluster", f"neither a file nor the name of a shipped one: {shown(fspath(name))}; {hint}"
    )


def cluster_data(name: str | PathLike[str]) -> bytes:
    """Return a cluster as JSON: from a file, a shipped name, or ``SOURCE:TEXT`` for a plug-in.

    Raises InvalidInputError for other names, PluginError if the plug-in does not return JSON, and
    OSError if the file cannot be read.
    """
    source, colon, text = fspath(name).partition(":")
    describe = plugged("clusters").get(source) if colon and not Path(name).exists() else None
    if describe is None:
        return cluster_file(name).read_bytes()
    described = describe(text)
    if isinstance(described, str):
        return described.encode()
    if not isinstance(described, bytes):
        raise PluginError(f"cluster source {source}: expected JSON text, got {shown(described)}")
    return described


def read_cluster(name: str | PathLike[str]) -> Cluster:
    """Read a cluster from a file, or a shipped one by its name.

    Raises
    ------
    InvalidInputError
        If there is no such cluster, or a field is wrong (with its path).
    OSError
        If the file cannot be read.
    """
    return decode_cluster(cluster_data(name))


def read_profile(path: str | PathLike[str]) -> Profile:
    """Read a profile from a file.

    Raises
    ------
    InvalidInputError
        If the file is not a valid profile, with the path of the first wrong field.
    OSError
        If it cannot be read.
    """
    return decode_profile(Path(path).read_bytes())
