"""Families whose plans are priced in a scenario apart from them, and problems for that."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import strategies as st

from planner.solving.scenarios import Scenario, ScenarioSet, measured
from tests.caramel import test_what_if as caramel
from tests.ibatch import test_what_if as ibatch
from tests.iteration import test_what_if as iteration
from tests.outlooks import outlooks

MEASURED = st.sampled_from([measured(), measured(Fraction(90))])

APART: dict[str, tuple[st.SearchStrategy[Any], st.SearchStrategy[ScenarioSet]]] = {
    "ibatch": (ibatch.spread_problems(), outlooks() | MEASURED),
    "caramel": (caramel.problems(), outlooks()),
    "iteration": (
        iteration.spread_problems(one_order=True) | iteration.spread_problems(),
        outlooks() | MEASURED,
    ),
}
"""Problems and scenarios of each family."""

LASTS: dict[str, Callable[[Any, Any, Scenario], int | Fraction]] = {
    "ibatch": ibatch.takes,
    "caramel": caramel.takes,
    "iteration": iteration.takes,
}
"""The time of a plan in a scenario, worked out apart from the family."""

LARGE = {"ibatch": ibatch.large, "caramel": caramel.large, "iteration": iteration.large}
"""Problems that have no room for start-ups twice as long."""

priced_apart = pytest.mark.parametrize(
    "name", ["ibatch", "caramel", pytest.param("iteration", marks=pytest.mark.slow)]
)
