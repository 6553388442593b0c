"""Plug-ins: entry points by which other packages add methods, peers, cluster sources and formats.

- ``planner.methods.FAMILY``: a method of a family, ``(problem, deadline) -> Outcome``
- ``planner.peers``: a peer of whole iterations, ``(problem, way, deadline) -> Plan``
- ``planner.clusters``: the source of ``--cluster NAME:TEXT``, ``(text) -> cluster as JSON``
- ``planner.formats``: the reader of ``planner import NAME``, ``(data, *, name, source, batch_size)
  -> (Profile, warnings)``

Entry points are listed once per process, and loaded when they are used. A plug-in cannot replace a
name of planner itself. Its plans are checked and priced like all others; its lower bounds are
ignored.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from planner.model.errors import PluginError


@cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    """Return the entry points of all groups, by group and name."""
    from importlib.metadata import distributions

    known: dict[str, dict[str, Any]] = {}
    for package in distributions():
        for entry in package.entry_points:
            if entry.group.startswith(
                "planner."
            ):  # the first one on the path is the one that Python imports
                known.setdefault(entry.group, {}).setdefault(entry.name, entry)
    return {group: dict(sorted(entries.items())) for group, entries in known.items()}


def plugged(group: str) -> dict[str, Callable[..., Any]]:
    """Return the plug-ins of a group such as ``methods.ibatch``, by name; loaded when called."""
    return {
        name: _called_later(name, entry)
        for name, entry in _entries().get(f"planner.{group}", {}).items()
    }


def is_plugged(name: str) -> bool:
    """Return whether a method of this name may come from another package."""
    return any(
        name in entries
        for group, entries in _entries().items()
        if group.startswith("planner.methods.") or group == "planner.peers"
    )


def _called_later(name: str, entry: Any) -> Callable[..., Any]:
    def run(*arguments: Any, **named: Any) -> Any:
        try:
            function = entry.load()
        except Exception as error:  # importing foreign code may raise anything
            message = f"plug-in {name} ({entry.value}) cannot be loaded: {error}"
            raise PluginError(message) from error
        return function(*arguments, **named)

    return run
