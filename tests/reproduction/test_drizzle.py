"""Figs. 4 to 6 of Drizzle: by hand, and which number is fitted to for which figure."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import drizzle
import drizzle_model
import pytest
from drizzle_model import GAINED, NUMBERS, SAVED
from multiply_adds import inception_v1, vgg16_on_cifar10

from planner.jsonio import decode_profile


def test_fig_6_from_fig_4_by_hand() -> None:
    """10 % at 300 partitions: 256 of them cost 256/3000 of the computation."""
    (fit,) = (one for one in drizzle_model.fits() if one.figure == 4)
    speedup = (1 + Fraction(256, 3000)) / (1 + Fraction(256, 30000))
    assert float(drizzle_model.predicted(fit, 6, GAINED)) == pytest.approx(float(speedup - 1))
    assert float(drizzle_model.predicted(fit, 6, SAVED)) == pytest.approx(float(1 - 1 / speedup))


def test_fig_5_from_fig_4_by_hand() -> None:
    """VGG's tasks cost as much, and its computation is 0.198 of Inception-v1's."""
    (fit,) = (one for one in drizzle_model.fits() if one.figure == 4)
    overhead = 128 / 3000 / (313_463_808 / 1_582_671_872)
    found = float(drizzle_model.predicted(fit, 5, GAINED))
    assert found == pytest.approx((1 + overhead) / (1 + overhead / 20) - 1)


def test_a_fit_gives_the_number_it_was_fitted_to() -> None:
    for fit in drizzle_model.fits():
        found = drizzle_model.predicted(fit, fit.figure, fit.reading)
        assert float(found) == pytest.approx(float(NUMBERS[fit.figure].share), abs=1e-9)


@pytest.mark.parametrize("figure", NUMBERS)
def test_what_is_scored_was_not_fitted(figure: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {other: [row.ours for row in drizzle.scored(other)] for other in NUMBERS}
    changed = replace(NUMBERS[figure], share=Fraction(12, 100))
    monkeypatch.setattr(drizzle_model, f"FIG{figure}", changed)
    monkeypatch.setitem(NUMBERS, figure, changed)
    after = {other: [row.ours for row in drizzle.scored(other)] for other in NUMBERS}
    for other in NUMBERS:
        assert (before[other] == after[other]) == (other == figure)


def test_multiply_adds_count_the_networks_that_are_meant() -> None:
    path = Path(__file__).parents[2] / "data" / "profiles" / "googlenet.json"
    measured = decode_profile(path.read_bytes())
    assert inception_v1().parameters * 4 == measured.parameter_bytes
    # 13 convolutions by hand: weights times places, then two full layers.
    stages = ((32, 3 * 64 + 64 * 64), (16, 64 * 128 + 128 * 128), (8, 128 * 256 + 2 * 256 * 256))
    last = ((4, 256 * 512 + 2 * 512 * 512), (2, 3 * 512 * 512))
    work = sum(9 * side**2 * weights for side, weights in (*stages, *last))
    assert vgg16_on_cifar10().multiply_adds == work + 512 * 512 + 512 * 10
