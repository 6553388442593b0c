"""Lower bound on all configurations of a triple that contain a given state of a layer.

Problem: the exchange of two layers is a large part of their time, and bounds of each layer by
itself miss it. Method: the dynamic program of `planner.families.yan.layerwise`, in which a layer
sees of a neighbour only a class of choices; forward and backward values together bound every path
through a state. See docs/yan.md, "Why the dynamic program can cut states".

Guarantee: a bound for every mapping, except for rounding.
Complexity: O(L·K·C·log N) for C choices a layer. Source: own, after Raphael, "Coarse-to-fine
dynamic programming", IEEE PAMI 2001.
"""

from collections.abc import Sequence

import numpy as np

from planner.families.yan.cuts import Array, Places
from planner.families.yan.tables import Choice, Tables
from planner.solving.deadline import Deadline


class Coarse:
    """Coarse bounds of one problem; TimeUpError at the deadline."""

    def __init__(
        self, tables: Tables, options: Sequence[Sequence[Choice]], deadline: Deadline
    ) -> None:
        most = max(p for choices in options for p, _ in choices)
        self.parts = [1, 2, 3, *(1 << power for power in range(2, most.bit_length()))]
        self.parts = [count for count in self.parts if count <= most]
        self.classes: list[Places] = []
        self.own: list[Array] = []
        self.ahead: list[Array] = []
        self.back: list[Array] = []
        last = len(options) - 1
        for place, choices in enumerate(options):
            deadline.check()
            same = tables.alike[place]
            if same < place:
                self.classes.append(self.classes[same])
                self.own.append(self.own[same])
                self.ahead.append(self.ahead[same])
                self.back.append(self.back[same])
                continue
            partitions, copies = np.array(choices).T
            self.classes.append(np.searchsorted(self.parts, partitions, side="right") - 1)
            bounds = [tables.lowest(place, p) for p, _ in choices]
            forward, backward, own = (
                np.array(bound) / copies[:, None] for bound in zip(*bounds, strict=True)
            )
            # Take the stronger of two bounds on the exchange: by the neighbour's class, and for any
            # neighbour.
            ahead = back = np.zeros((1, 1, 1))
            if place:
                ahead = tables.forward_bound(place, self.parts, choices)
                ahead = np.maximum(ahead, forward[None])
            else:
                own = own + forward
            if place < last:
                back = tables.backward_bound(place, choices, self.parts)
                back = np.maximum(back, backward[:, None])
            else:
                own = own + backward
            self.own.append(own)
            self.ahead.append(ahead)
            self.back.append(back)

    def through(self, reading: Sequence[Array], replicas: int, deadline: Deadline) -> list[Array]:
        """Return bounds on all configurations through each state, by choice and threads.

        `reading` is the time to read each layer's weights, by choice and threads, for the first
        choices of each layer.
        """
        counts = [len(times) for times in reading]
        own = [
            costs[:count] / replicas + read
            for costs, count, read in zip(self.own, counts, reading, strict=True)
        ]
        # Forward: the minimum over paths that end in a state, knowing only the neighbour's class.
        values = [own[0]]
        for place in range(1, len(own)):
            deadline.check()
            back = self.back[place - 1][: counts[place - 1]] / replicas
            left = self._least(place - 1, (values[-1][:, None] + back).min(axis=2))
            ahead = self.ahead[place][:, : counts[place]] / replicas
            mine = self.classes[place][: counts[place]]
            values.append(own[place] + (ahead + left[:, mine, None]).min(axis=0))
        # Backward: the minimum over the rest of the path. Their sum bounds every path through a
        # state.
        rest = np.zeros_like(own[-1])
        totals = [values[-1]]
        for place in range(len(own) - 1, 0, -1):
            deadline.check()
            ahead = self.ahead[place][:, : counts[place]] / replicas
            right = self._least(place, (ahead + (own[place] + rest)[None]).min(axis=2).T)
            back = self.back[place - 1][: counts[place - 1]] / replicas
            mine = self.classes[place - 1][: counts[place - 1]]
            rest = (back + right[:, mine].T[:, :, None]).min(axis=1)
            totals.append(values[place - 1] + rest)
        return totals[::-1]

    def _least(self, place: int, times: Array) -> Array:
        """Return the minimum over each class of choices, by class and neighbour's class."""
        least = np.full((len(self.parts), times.shape[1]), np.inf)
        classes = self.classes[place][: len(times)]
        for label in np.unique(classes):
            least[label] = times[classes == label].min(axis=0)
        return least
