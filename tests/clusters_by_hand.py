"""Clusters by hand, as the fields of `Cluster`."""

from fractions import Fraction
from typing import Any

from planner.model.clusters import Nic
from planner.model.topologies import Rails, Switch

SPEED = Fraction(10**9)
GOOD: dict[str, Any] = {
    "name": "c",
    "source": "a test",
    "machines": 4,
    "topology": Switch(4),
    "nic": Nic(SPEED, 5),
}
RAILS = {"topology": Rails(4, 8, SPEED), "nic": Nic(SPEED, 5, 8)}
