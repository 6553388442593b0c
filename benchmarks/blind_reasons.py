"""Why a prediction of `blind.py` missed, as far as its rows tell: the first rule that holds.

A miss is off by more than 10 %. Rules look at measured rows, never at what else is known of a
system, so that each can be checked: `measurement` and `host` are facts of the table; three say how
the batch of an accelerator changed; what is left is `network`, unless the affine cost, by which
nothing is hidden, misses as well.
"""

from collections.abc import Mapping
from types import MappingProxyType

from blind_rows import Group, Row

MISS = 0.1
"""How far a prediction may be off."""

APART = 0.9
"""A scale this slow beside both its neighbours is no trend."""

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "measurement": "slower an accelerator than at the scales below and above",
        "host": "at least half of it is there within a host, where hardly anything waits for links",
        "fewer samples": "small batches compute a sample slower than the fixed share says",
        "not so slow": "small batches compute a sample faster than the fixed share says",
        "larger parts": "larger micro-batches compute a sample faster",
        "beyond transfers": "short even if nothing is hidden behind computation: input, waiting",
        "network": "transfers are hidden less, or cost more, than predicted",
        "cheap network": "transfers cost less than predicted",
    }
)
"""What each reason means."""


def reason_of(group: Group, row: Row, errors: Mapping[int, float], alone: float) -> str:
    """Return why a row was missed; empty if it was not.

    Parameters
    ----------
    group, row : Group, Row
        Which.
    errors : mapping of int to float
        The errors of the group's larger rows, by accelerators.
    alone : float
        The row's error if transfers run beside no computation.
    """
    error = errors[row.accelerators]
    if abs(error) <= MISS:
        return ""
    short = error < 0
    if short and _apart(group, row):
        return "measurement"
    within = [errors[other.accelerators] for other in group.rows[1:] if other.hosts == 1]
    if within and 2 * abs(within[-1]) >= abs(error) and (within[-1] < 0) == short:
        return "host"
    part, of_base = (one.local / one.accumulated for one in (row, group.base))
    if part < of_base:
        return "fewer samples" if short else "not so slow"
    if part > of_base and not short:
        return "larger parts"
    if short and alone < -MISS:
        return "beyond transfers"
    return "network" if short else "cheap network"


def _apart(group: Group, row: Row) -> bool:
    """Whether both neighbours are faster an accelerator."""
    at = group.rows.index(row)
    if at + 1 == len(group.rows):
        return False
    speed = row.per_s / row.accelerators
    return all(
        speed < APART * float(other.per_s / other.accelerators)
        for other in (group.rows[at - 1], group.rows[at + 1])
    )
