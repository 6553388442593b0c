"""The network interface that gloo uses."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def only(interfaces: Sequence[str]) -> str | None:
    """Return the interface if there is exactly one."""
    return interfaces[0] if len(interfaces) == 1 else None


@contextmanager
def using(interface: str | None) -> Iterator[None]:
    """Let gloo use one network interface, by its environment variable."""
    before = os.environ.get("GLOO_SOCKET_IFNAME")
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    try:
        yield
    finally:
        if interface is not None:
            os.environ.pop("GLOO_SOCKET_IFNAME")
            if before is not None:
                os.environ["GLOO_SOCKET_IFNAME"] = before
