"""What other packages add, by entry points: methods, peers, cluster sources and formats.

============================  ===============================================================
group                         what an entry point of it leads to
============================  ===============================================================
``planner.methods.FAMILY``    a method of a family: ``(problem, deadline) -> Outcome``
``planner.peers``             a peer of whole iterations: ``(problem, way, deadline) -> Plan``
``planner.clusters``          what ``--cluster NAME:TEXT`` asks: ``(text) -> cluster as JSON``
``planner.formats``           what ``planner import NAME`` asks: ``(data, *, name, source,
                              batch_size) -> (Profile, warnings)``
============================  ===============================================================

Entry points are listed when planner is loaded, and loaded when they are used. A name that planner
has itself stays its own. What they make is checked and priced like everything else; what a method
says of bounds is not believed.

Complexity: a look at the metadata of every installed package, once a process.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from planner.errors import PluginError

__all__ = ["is_plugged", "plugged"]


@cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    """Return the entry points of all groups, by name."""
    from importlib.metadata import distributions

    known: dict[str, dict[str, Any]] = {}
    for package in distributions():
        for entry in package.entry_points:
            if entry.group.startswith("planner."):  # the first on the path is what is imported
                known.setdefault(entry.group, {}).setdefault(entry.name, entry)
    return {group: dict(sorted(entries.items())) for group, entries in known.items()}


def plugged(group: str) -> dict[str, Callable[..., Any]]:
    """Return what packages add to a group, by name; each is loaded when it is called.

    Parameters
    ----------
    group : str
        Such as ``methods.ibatch``.
    """
    return {
        name: _called_later(name, entry)
        for name, entry in _entries().get(f"planner.{group}", {}).items()
    }


def is_plugged(name: str) -> bool:
    """Return whether a method of this name may be another package's."""
    return any(
        name in entries
        for group, entries in _entries().items()
        if group.startswith("planner.methods.") or group == "planner.peers"
    )


def _called_later(name: str, entry: Any) -> Callable[..., Any]:
    def run(*arguments: Any, **named: Any) -> Any:
        try:
            function = entry.load()
        except Exception as error:  # whatever an import of others ends with
            message = f"plug-in {name} ({entry.value}) cannot be loaded: {error}"
            raise PluginError(message) from error
        return function(*arguments, **named)

    return run
