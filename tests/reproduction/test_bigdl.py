"""Fig. 3 of BigDL: throughputs by hand, and whose ratio is used for which network."""

from dataclasses import replace
from fractions import Fraction

import bigdl
import pytest


@pytest.mark.parametrize(
    ("reading", "value", "ratio"),
    [
        # An iteration of 4 T_F of computation takes 5.75 on 8 nodes, 5.875 on 16.
        ("same a node", Fraction(4), 2 * Fraction("5.75") / Fraction("5.875")),
        # 32 T_F in all: 4 + 1.75 on 8 nodes, 2 + 1.875 on 16.
        ("same in all", Fraction(32), Fraction("5.75") / Fraction("3.875")),
        # 1 % for each node: 1.08 on 8 nodes, 1.16 on 16.
        ("tasks", Fraction(1, 100), 2 * Fraction("1.08") / Fraction("1.16")),
    ],
)
def test_throughput_by_hand_and_back(reading: str, value: Fraction, ratio: Fraction) -> None:
    assert bigdl.throughput(reading, value) == ratio
    assert bigdl.fitted(reading, ratio) == value


def test_computation_is_carried_over_by_samples_and_bytes() -> None:
    known, wanted = bigdl.NETWORKS
    first, second = known.measured(), wanted.measured()
    work = (
        (second.forward_ns + second.backward_ns) / 16 / (first.forward_ns + first.backward_ns) * 32
    )
    size = first.parameter_bytes / second.parameter_bytes
    found = float(bigdl.carried("same a node", Fraction(3), known, wanted))
    assert found == pytest.approx(3 * work * size)
    found = float(bigdl.carried("tasks", Fraction(3), known, wanted))
    assert found == pytest.approx(3 / work)


def test_what_is_scored_was_not_used_in_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    before = bigdl.scored()
    first, second = bigdl.NETWORKS
    monkeypatch.setattr(bigdl, "NETWORKS", (first, replace(second, ratio=Fraction(19, 10))))
    after = bigdl.scored()
    for (name, _, old), (_, _, new) in zip(before, after, strict=True):
        assert (old == new) == name.startswith("ResNet")
