"""Group sizes the planner chooses, and the rule that finds them while the job runs.

Problem: with the scheduler of `drizzle_model`, which groups keep scheduling below a limit, and how
soon does the rule of `planner.drizzle.adjusted` find them if the tasks of an iteration change? Not
a figure of the paper: it says that group sizes can be adapted, and prints nothing of it.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

from drizzle_model import FIG6, fits, model
from grids import grid, sections

from planner.families.drizzle import Band, Plan, Problem, State, evaluate, group_sizes, solve

LIMITS = (0.05, 0.02, 0.01, 0.005)

BAND = Band(low=Fraction(5, 1000), high=Fraction(10, 1000))
CHANGES = ((256, 10), (64, 16), (512, 14))
"""Tasks of an iteration, and for how many groups."""


def choices() -> str:
    """Return the smallest groups that keep to a limit."""
    found = fits()
    rows = []
    for limit in LIMITS:
        plans = [solve(model(FIG6.tasks, one.task_ns, limit=limit)).plan for one in found]
        rows.append(
            (f"{limit:.1%}", *("" if plan is None else str(plan.group_size) for plan in plans))
        )
    return grid(("overhead at most", *(one.name for one in found)), rows)


def replay(task_ns: Fraction) -> list[tuple[int, int, int, int]]:
    """Return for each group its tasks, its size and the sizes in the band."""
    state = State()
    rows: list[tuple[int, int, int, int]] = []
    for tasks, groups in CHANGES:
        problem = model(tasks, task_ns)
        first = within(lambda share: share > BAND.high, problem)
        last = within(lambda share: share >= BAND.low, problem) - 1
        *sizes, following = group_sizes(problem, BAND, groups + 1, state)
        rows += [(tasks, size, first, last) for size in sizes]
        state = State(following)
    return rows


def within(above: Callable[[Fraction], bool], problem: Problem) -> int:
    """Return the first size whose overhead is not above."""
    return next(g for g in range(1, 10**6) if not above(evaluate(problem, Plan(g)).overhead))


def settling(rows: Sequence[tuple[int, int, int, int]]) -> str:
    """Return where the rule starts and settles after each change of the tasks."""
    lines = []
    place = 0
    for tasks, groups in CHANGES:
        part = rows[place : place + groups]
        steps = next(i for i, (_, size, low, high) in enumerate(part) if low <= size <= high)
        _, start, low, high = part[0]
        lines.append(
            (str(tasks), str(start), f"{low} to {high}", str(part[-1][1]), f"{steps} groups")
        )
        place += groups
    return grid(("tasks", "starts at", "in the band", "settles at", "after"), lines)


def report() -> str:
    """Return both tables."""
    rule = "The online rule, scheduler of Fig. 4, overhead within 0.5 to 1 %, times 2 or minus 1"
    return sections(
        [
            (
                "Smallest groups for Inception-v1, 256 tasks, by what the constant is fitted to",
                choices(),
            ),
            (rule, settling(replay(fits()[0].task_ns))),
        ]
    )
