"""iBatch's remade figures: constants from the default curve alone, and times by hand."""

import ibatch
import pytest
from ibatch_model import DEFAULT, NETWORKS, Constants, fit, iteration, profile
from ibatch_printed import PRINTED


@pytest.fixture(scope="module")
def constants() -> Constants:
    return fit(DEFAULT)


def ours(text: str) -> list[str]:
    """The third column of each row that has a paper's number."""
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    return [cells[3] for cells in rows if len(cells) == 6]


def test_what_is_fitted_goes_through_the_default_curve(constants: Constants) -> None:
    """T(N) = C/N + 2·startup + 2·bytes·(N-1)/N·N/(80 Gb/s), written out."""
    for (network, nodes), speedup in DEFAULT.items():
        size = sum(layer.parameter_bytes for layer in profile(network).layers)
        bytes_pulled = size * (nodes - 1) / nodes
        one = constants.compute_s[network]
        many = one / nodes + 2 * constants.startup_s + 2 * bytes_pulled * 8 / (80e9 / nodes)
        assert one / many == pytest.approx(speedup)
        assert iteration(constants, network, nodes, "one_batch").speedup == pytest.approx(speedup)


def test_other_curves_change_nothing(constants: Constants, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ibatch.figure_5(constants)
    nonsense = {point: dict.fromkeys(printed, 7.0) for point, printed in PRINTED.items()}
    monkeypatch.setattr(ibatch, "PRINTED", nonsense)
    after = ibatch.figure_5(fit(DEFAULT))
    assert after != before
    assert len(ours(before)) > 20
    assert ours(after) == ours(before)


def test_another_default_curve_does(constants: Constants) -> None:
    other = fit({**DEFAULT, ("vgg19", 30): 24.0})
    assert other.startup_s == constants.startup_s
    assert {
        network for network in NETWORKS if other.compute_s[network] != constants.compute_s[network]
    } == {"vgg19"}


@pytest.mark.parametrize("method", ["one_batch", "layer_by_layer", "greedy", "exact"])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_parts_add_up(constants: Constants, method: str, share: float) -> None:
    """Everything sent and everything computed is in the parts; overlap is in both."""
    network, nodes, pushed = "googlenet", 30, 0.5
    made = iteration(constants, network, nodes, method, pushed=pushed, startup_share=share)
    size = profile(network).parameter_bytes
    sent = (1 + pushed) * size * (nodes - 1) / nodes * 8 / (80e9 / nodes)
    started = share * (made.batches + 1) + 2 * (1 - share)
    assert made.overlap_s + made.exposed_communication_s == pytest.approx(
        sent + started * constants.startup_s
    )
    assert made.overlap_s + made.exposed_computation_s == pytest.approx(
        constants.compute_s[network] / nodes
    )
    if method == "one_batch":
        assert made.overlap_s == 0


def test_what_the_default_leaves_room_for() -> None:
    """72 nodes at 24×: 1 of computation, 2 of communication, 1 of them the pull."""
    assert ibatch.most(72, 24, forward=0.25) == pytest.approx((72 / 2.75, 36, 36))
    assert ibatch.most(30, 20, forward=0.5) == pytest.approx((30 / 1.25, 24, 30))


def test_no_batches_exceed_what_the_forward_pass_can_hide(constants: Constants) -> None:
    for (network, nodes), printed in DEFAULT.items():
        measured = profile(network)
        share = measured.forward_ns / (measured.forward_ns + measured.backward_ns)
        limit, without_pull, _ = ibatch.most(nodes, printed, share)
        assert limit <= without_pull
        for startup_share in (0.0, 1.0):
            made = iteration(constants, network, nodes, "exact", startup_share=startup_share)
            assert made.speedup <= limit * (1 + 1e-9)
