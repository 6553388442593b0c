"""Build overlap problems by the names of nodes instead of their numbers.

The wait for a collective stands just before the first node that needs it, as in a traced graph, or
at the end. Complexity: O(nodes + dependences + readers).
"""

from collections.abc import Iterable
from typing import Any

from planner.families.overlap.problem import Collective, Kind, Node, Problem, Tensor
from planner.model.errors import InvalidInputError
from planner.model.validation import did_you_mean, shown


class Builder:
    """Builds a `Problem` node by node, in the order of the graph.

    Examples
    --------
    >>> from planner import overlap
    >>> graph = overlap.Builder()
    >>> graph.add_kind("all_gather", channel="0", times=[(0, 20), (100, 80)])
    >>> graph.add_collective("gather", "all_gather", 40)
    >>> graph.add_op("other", 80)
    >>> graph.add_op("use", 50, after=["gather"])
    >>> problem = graph.problem()
    >>> [node.name for node in problem.nodes]
    ['gather', 'other', 'wait gather', 'use']
    >>> overlap.solve(problem).objective_ns
    130
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._kinds: dict[str, Kind] = {}
        self._after: dict[str, tuple[str, ...]] = {}  # by node; waits are added by `problem`
        self._durations: dict[str, int] = {}  # of operations
        self._collectives: dict[str, tuple[str, dict[str, int]]] = {}  # kind, and other fields
        self._tensors: list[tuple[int, str | None, tuple[str, ...], bool]] = []

    def add_kind(
        self, name: str, *, channel: str, times: Iterable[tuple[int, int]], mergeable: bool = True
    ) -> None:
        """Add a kind of collectives; see `Kind`.

        Raises
        ------
        InvalidInputError
            If a kind of that name exists.
        """
        if name in self._kinds:
            raise InvalidInputError("name", f"there is a kind {shown(name)} already")
        self._kinds[name] = Kind(name, channel, tuple(times), mergeable)

    def add_op(self, name: str, duration_ns: int, *, after: Iterable[str] = ()) -> None:
        """Add a computation.

        Parameters
        ----------
        name : str
            Its name, which no other node has.
        duration_ns : int
            Time on the rank.
        after : iterable of str
            The nodes it depends on; a collective's name stands for its result.

        Raises
        ------
        InvalidInputError
            If the name is taken, or a node does not exist yet.
        """
        self._add((name,), after)
        self._durations[name] = duration_ns

    def add_collective(
        self, name: str, kind: str, size_bytes: int, *, after: Iterable[str] = (), **merged: int
    ) -> None:
        """Add a collective: its start, and later the wait for it, named "wait" and its name.

        Parameters
        ----------
        name : str
            Its name, which no other node has.
        kind : str
            Name of its kind.
        size_bytes : int
            Bytes, as in its kind's times.
        after : iterable of str
            The nodes that its start depends on.
        **merged : int
            `pack_ns`, `unpack_ns`, `pack_bytes`, `unpack_bytes`, as in `Collective`.

        Raises
        ------
        InvalidInputError
            If the name is taken, or a node or the kind does not exist yet.
        """
        if kind not in self._kinds:
            raise InvalidInputError("kind", _unknown("kind", kind, self._kinds))
        self._add((name, _wait(name)), after)
        self._collectives[name] = kind, {"size_bytes": size_bytes, **merged}

    def add_tensor(
        self,
        size_bytes: int,
        *,
        producer: str | None = None,
        readers: Iterable[str] = (),
        kept: bool = False,
    ) -> None:
        """Add a tensor by the names of its nodes; the name of a collective is its start."""
        self._tensors.append((size_bytes, producer, tuple(readers), kept))

    def problem(self, *, memory_limit_bytes: int | None = None) -> Problem:
        """Return the problem.

        Raises
        ------
        InvalidInputError
            If a tensor names a node that does not exist, or the problem is invalid.
        """
        place: dict[str, int] = {}
        nodes: list[Node] = []

        def put(name: str, after: Iterable[str], duration_ns: int = 0) -> None:
            place[name] = len(nodes)
            nodes.append(Node(name, tuple(place[other] for other in after), duration_ns))

        for name, needed in self._after.items():
            after = [_wait(other) if other in self._collectives else other for other in needed]
            for other, wait in zip(needed, after, strict=True):
                if wait not in place:
                    put(wait, [other])
            put(name, after, self._durations.get(name, 0))
        for name in self._collectives:
            if _wait(name) not in place:
                put(_wait(name), [name])

        def place_of(name: str, path: str) -> int:
            if name not in place:
                raise InvalidInputError(path, _unknown("node", name, place))
            return place[name]

        numbers = {name: number for number, name in enumerate(self._kinds)}
        return Problem(
            nodes=nodes,
            kinds=tuple(self._kinds.values()),
            collectives=[
                Collective(place[name], place[_wait(name)], numbers[kind], **fields)
                for name, (kind, fields) in self._collectives.items()
            ],
            tensors=[
                Tensor(
                    size,
                    None if producer is None else place_of(producer, f"tensors[{number}].producer"),
                    tuple(
                        place_of(reader, f"tensors[{number}].readers[{other}]")
                        for other, reader in enumerate(readers)
                    ),
                    kept,
                )
                for number, (size, producer, readers, kept) in enumerate(self._tensors)
            ],
            memory_limit_bytes=memory_limit_bytes,
        )

    def _add(self, names: tuple[str, ...], after: Iterable[str]) -> None:
        needed = tuple(after)
        for name in names:
            if name in self._names:
                raise InvalidInputError("name", f"there is a node {shown(name)} already")
        for number, other in enumerate(needed):
            if other not in self._after:
                raise InvalidInputError(f"after[{number}]", _unknown("node", other, self._after))
        self._names.update(names)
        self._after[names[0]] = needed


def _wait(name: str) -> str:
    return f"wait {name}"


def _unknown(what: str, name: str, known: Iterable[Any]) -> str:
    hint = did_you_mean(name, known)
    return f"there is no {what} {shown(name)}{hint and f' ({hint})'}"
