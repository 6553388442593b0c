"""Lazy imports: a package loads an exported name only when the name is used."""

import sys

TYPE_CHECKING = False  # `typing` takes longer to load than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def loader(package: str, homes: "Mapping[str, tuple[str, ...]]") -> "Callable[[str], Any]":
    """Return the ``__getattr__`` of a package that exports the names of each of its modules.

    A module that is exported as a whole has no names.
    """

    def load(name: str) -> "Any":
        from importlib import import_module

        for home, names in homes.items():
            if name in names:
                found = getattr(import_module(f"{package}.{home}"), name)
                setattr(sys.modules[package], name, found)
                return found
        if name in homes:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
