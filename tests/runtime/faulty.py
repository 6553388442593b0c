"""What happens to ranks: they die, hang, raise and leave, in the middle of a transfer or a pass."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from torch import Tensor

from planner.runtime.collectives.ring import Ring
from planner.runtime.world.world import World
from tests.runtime.launching import running

TIMEOUT_S = 3.0
LIMIT_S = TIMEOUT_S + 25  # for the steps before and a roll call, on a busy machine


class Spied(Ring):
    """Gloo's ring, with something done in the middle of a transfer."""

    def __init__(self, world: World, before: Callable[[], object]) -> None:
        super().__init__(world.group)
        self._before = before

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        half = flat.numel() // 2
        super().__call__(flat[:half], depth)
        self._before()
        super().__call__(flat[half:], depth)


def strike(what: str, world: World) -> None:
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        threading.Event().wait()  # another thread may be who is told, and that takes its time
    elif what == "raise":
        raise ValueError("no such picture")
    elif what == "exit":
        sys.exit(0)
    elif what == "cut":
        subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)
    elif what == "hang":
        while world.watch.error is None:
            time.sleep(0.05)


def end(rank: int) -> Callable[[Sequence[int]], None]:
    """Return what kills a rank once the others have ended, since it cannot end itself."""

    def wait(processes: Sequence[int]) -> None:
        limit = time.monotonic() + LIMIT_S
        others = [process for other, process in enumerate(processes) if other != rank]
        while any(map(running, others)) and time.monotonic() < limit:
            time.sleep(0.05)
        os.kill(processes[rank], signal.SIGKILL)

    return wait
