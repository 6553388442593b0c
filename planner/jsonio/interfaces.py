"""What the JSON interface of a problem consists of, and the interfaces of all problems.

That of one problem is loaded when it is first asked for: most processes answer one kind of request.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.jsonio.control import Controlled
    from planner.jsonio.heads import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """The JSON interface of one problem."""

    plans: tuple[type[Any], ...]  # typed; usually one kind
    evaluation: Any  # the type of the evaluation of a plan
    request: "type[Controlled]"
    answer: "type[Head]"
    run: "Callable[..., Head]"  # answers a request; takes `planner.Control` by name
    headline: Callable[[Any], str]  # one line about an answer
    view: Callable[[Any], Any]  # checks an answer read again; returns what there is to draw of it
    request_rules: Mapping[str, Any] = field(default_factory=dict)  # of its schema, beside types
    told: "Callable[[Any, Any], Head] | None" = None  # the answer of a problem's result, to compare


class Interfaces(MutableMapping[str, Interface]):
    """Interfaces by the name of their problem: `INTERFACE` of the module of that name here."""

    def __init__(self, *names: str) -> None:
        self._known: dict[str, Interface | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Interface:
        known = self._known[name]
        if known is None:
            module = import_module(f"planner.jsonio.{name}")
            known = self._known[name] = module.INTERFACE
        return known

    def __setitem__(self, name: str, interface: Interface) -> None:
        self._known[name] = interface

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


PROBLEMS = Interfaces(
    "ibatch", "caramel", "yan", "bml", "drizzle", "bigdl", "fsdp", "iteration", "overlap"
)
"""Every problem, by the name that requests use."""
