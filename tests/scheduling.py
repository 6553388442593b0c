"""Which worker of pytest-xdist runs which test.

Tests stand in a row that begins with jobs of several processes, which mostly wait for one another,
and ends with tests of one process, which mostly compute. Half of the workers, or one more, take
from the front, the others from the back, so that until one kind is done jobs run beside
computations.
Long tests are at both ends, so that no worker is left alone with one. Tests of a module that shares
what takes minutes to make are one piece.
"""

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TOGETHER = ("tests/docs/test_layout.py",)
"""Modules whose tests one worker runs."""


class BothEnds(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out single tests from both ends."""

    def _split_scope(self, nodeid: str) -> str:
        return next((module for module in TOGETHER if nodeid.startswith(module)), nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        assert self.workqueue
        number = int(node.gateway.id.removeprefix("gw"))
        nodeid, unit = self.workqueue.popitem(last=number % 2 == 1)
        # What is done is forgotten: all that is kept is looked through after every test.
        held = self.assigned_work[node].items()
        kept = {name: tests for name, tests in held if not all(tests.values())}
        self.assigned_work[node] = {**kept, nodeid: unit}
        numbers = self.registered_collections[node]
        node.send_runtest_some([numbers.index(name) for name in unit])
