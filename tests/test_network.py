"""Times of steps on links that are all alike: exact."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from planner.model.network import Network

networks = st.builds(
    Network,
    st.fractions(Fraction(1, 9), 10**10, max_denominator=9),
    st.integers(0, 10**6),
    st.fractions(0, 5, max_denominator=9),
)
shares = st.fractions(0, 10**6, max_denominator=50)


def test_a_step_starts_sends_and_adds() -> None:
    network = Network(Fraction(4 * 10**9), startup_ns=10, reduce_ns_per_byte=Fraction(1, 2))
    assert network.time(8, 6, steps=3) == 30 + 2 + 3
    assert network.step(8, 6) == 10 + 2 + 3
    assert network.step(Fraction(1, 2)) == 10 + Fraction(1, 8)
    assert network.full_transfer_ns(9) == 3


@given(networks, shares, shares)
def test_times_are_exact(network: Network, sent: Fraction, reduced: Fraction) -> None:
    rate, each = network.link_bytes_per_s, network.reduce_ns_per_byte
    exact = network.startup_ns + sent * 10**9 / rate + reduced * each
    if sent:
        assert network.step(sent, reduced) == exact
    assert network.time(sent, reduced, 1) == exact


@given(networks, st.lists(st.tuples(shares.filter(bool), shares), max_size=6))
def test_steps_add_up(network: Network, steps: list[tuple[Fraction, Fraction]]) -> None:
    exact = network.time(sum(s for s, _ in steps), sum(r for _, r in steps), len(steps))
    assert sum(network.step(*step) for step in steps) == exact


@given(networks, st.integers(0, 10**12), st.integers(1, 50))
def test_faster_links_take_proportionally_less(network: Network, size: int, factor: int) -> None:
    faster = Network(network.link_bytes_per_s * factor)
    assert faster.time(size) * factor == network.time(size)
    assert faster.full_transfer_ns(size * factor) == network.full_transfer_ns(size)
