"""Direct exchange of tensors between ranks.

Problem: Gloo sends only what has been asked for, and a request queues behind sends to the same
rank. If two ranks send before they ask, as in gloo's all-to-all, the transfers become sequential.
Method: Post all receives before any send.
Guarantee: Both directions of a link are used. Tensors between two ranks arrive in sending order.
Complexity: One message per tensor.
Source: own.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from planner.runtime.world.world import blaming


def exchange(
    group: Any, received: Mapping[int, Tensor], sent: Mapping[int, Tensor], tag: int = 0
) -> Callable[[], None]:
    """Begin to receive and send tensors, given by rank of the group; return a function that waits.

    Tensors are contiguous; `tag` tells apart the exchanges of one thread. A failed transfer raises
    a `PeerError`, here or in the returned function.
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
