"""The NICs over which a ring takes what was measured."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.families.collectives.prediction import measured_nic, with_measured_nics
from planner.model.clusters import Cluster, Nic
from planner.model.measured import Collective, Measured, MeasuredNetwork
from planner.model.topologies import Rails, Switch

SIZES = (2**10, 2**16, 2**20, 2**24)


def ring(collective: Collective, ranks: int, startup: int, rate: int) -> Measured:
    """What a ring takes on NICs of `rate` bytes a second."""
    halves = 2 if collective == "all_reduce" else 1
    return Measured(
        collective,
        ranks,
        1,
        tuple(
            (
                size,
                halves * (ranks - 1) * startup
                + round(Fraction(halves * (ranks - 1) * size * 10**9, ranks * rate)),
            )
            for size in SIZES
        ),
    )


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
@given(ranks=st.integers(2, 64), startup=st.integers(100, 10**5), rate=st.integers(10**8, 10**11))
def test_a_rings_nics_are_found_again(
    collective: Collective, ranks: int, startup: int, rate: int
) -> None:
    network = MeasuredNetwork((ring(collective, ranks, startup, rate),))
    nic, notes = measured_nic(network, ranks, 1)
    assert abs(nic.startup_ns - startup) <= 1 + startup * 1e-3
    assert abs(nic.bytes_per_s / rate - 1) < 1e-3
    assert collective in notes[-1]


def test_a_cluster_has_them_where_it_was_measured() -> None:
    network = MeasuredNetwork((ring("all_gather", 8, 5000, 10**9),))
    old = Nic(Fraction(7), 7, message_ns=7)
    cluster = Cluster("c", "s", 8, Switch(8), old)
    assert with_measured_nics(cluster) == (cluster, ())
    known, _ = with_measured_nics(Cluster("c", "s", 8, Switch(8), old, network=network))
    assert known.nic.startup_ns == 5000
    assert known.nic.message_ns == 0
    hosts = MeasuredNetwork(
        (Measured("all_gather", 16, 8, ring("all_gather", 16, 5000, 10**9).points),)
    )
    rails = Cluster(
        "c", "s", 2, Rails(2, 8, Fraction(10**9), 5), Nic(Fraction(7), 7, 8), network=hosts
    )
    known, _ = with_measured_nics(rails)
    assert (known.nic.startup_ns, known.nic.per_machine) == (5000, 8)
    assert abs(known.nic.bytes_per_s / 10**9 - 1) < 1e-3
