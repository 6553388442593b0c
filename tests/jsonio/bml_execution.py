"""Does what the transfers of an answer of bml say, as a third party would."""

from itertools import groupby, product
from typing import Any

from planner.model.topologies import BCube


def unusable(bcube: BCube, failed: dict[str, Any]) -> set[tuple[tuple[int, ...], int]]:
    """Return the NICs that failures put out of use."""
    found = {(tuple(server), level) for server, level in failed.get("nics", [])}
    found |= {(tuple(server), level) for server, level in failed.get("links", [])}
    for server in product(range(bcube.n), repeat=bcube.k):
        for level in range(bcube.k):
            place = bcube.k - 1 - level
            rest = [*server[:place], *server[place + 1 :]]
            if [level, rest] in failed.get("switches", []) or list(server) in failed.get(
                "servers", []
            ):
                found.add((server, level))
    return found


def execute(request: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Do what the transfers say, byte by byte; everybody has the sum of all then.

    A server counts its contributions to each byte, 256 to the power of the contributor each.
    """
    bcube = BCube(request["n"], request["k"])
    size = request.get("gradient_bytes", sum(request.get("layer_bytes", [])))
    failed = request.get("failed", {})
    down = unusable(bcube, failed)
    names = list(product(range(bcube.n), repeat=bcube.k))
    held = {name: [256**number] * size for number, name in enumerate(names)}

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        return -row.get("layer", 0), row.get("part", 0), row["stage"], row["step"]

    for _, together in groupby(sorted(rows, key=order), order):
        sent = []
        for row in together:
            server, peer = tuple(row["server"]), tuple(row["peer"])
            differing = [bcube.k - 1 - place for place in places_that_differ(server, peer)]
            assert differing == [row["level"]]
            assert not down & {(server, row["level"]), (peer, row["level"])}
            assert row["length"] > 0
            assert row["length_bytes"] > 0
            place = range(row["offset_bytes"], row["offset_bytes"] + row["length_bytes"])
            sent.append((row["stage"], peer, place, held[server][place.start : place.stop]))
        for stage, peer, place, values in sent:
            for byte, value in zip(place, values, strict=True):
                held[peer][byte] = value + (held[peer][byte] if stage == "aggregate" else 0)
    living = [name for name in names if list(name) not in failed.get("servers", [])]
    total = sum(256 ** names.index(name) for name in living)
    assert all(held[name] == [total] * size for name in living)


def places_that_differ(one: tuple[int, ...], other: tuple[int, ...]) -> list[int]:
    return [place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
