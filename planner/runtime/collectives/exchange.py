"""Tensors that ranks exchange directly.

Problem. Gloo sends only what was asked for. What asks waits behind what is sent to the same rank:
of two ranks that send before they ask, as in gloo's own exchange of all with all, the one that is
later sends alone, and then the other one.

Method. All is asked for before anything is sent. Guarantee. Both directions of a link are used, and
tensors between two ranks arrive in the order in which they were sent. Complexity. One message each.
Source. Own.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from planner.runtime.world.world import blaming

__all__ = ["exchange"]


def exchange(
    group: Any, received: Mapping[int, Tensor], sent: Mapping[int, Tensor], tag: int = 0
) -> Callable[[], None]:
    """Begin to receive tensors from ranks, and to send others; return what waits for all.

    Parameters
    ----------
    group : ProcessGroup
        Of gloo.
    received, sent : mapping from int to Tensor
        By rank of the group what comes from it, or goes to it: contiguous.
    tag : int
        Of what is exchanged from one thread.

    Raises
    ------
    PeerError
        If a transfer fails; what is returned raises it, too.
    """
    works = []
    for begin, parts in ((group.recv, received), (group.send, sent)):
        for peer, part in parts.items():
            with blaming(peer):
                works.append((peer, begin([part], peer, tag)))

    def wait() -> None:
        for peer, work in works:
            with blaming(peer):
                work.wait()

    return wait
