"""When a job that runs should be planned anew, and whether its new plan is worth the switch.

Problem. What a job measures while it runs differs from what it was planned for: by noise, always;
by a change of the network or of the computation, sometimes. A new plan pays after a change only,
and planning for noise costs time and never ends.

Method. A window is some steps in a row; a reading is what each of some times took in it, over what
it was planned for. It is time to plan when the same time has been beyond a band, on one side, in
each of the last windows, and these readings agree within the band: what lasts, and lasts alike, is
a change. Then what was measured is what is planned for from now on, whatever comes of it, and some
windows pass unread, twice as many each time, until the job is quiet for as long. A new plan
replaces the old one if it saves a share of the step, both priced for what was measured.

Guarantee. With a band d, n windows and r windows to rest:

- never a plan while every reading lies in 1/(1 + d) … 1 + d, nor while none of the times is beyond
  it on one side in n windows in a row, however far it is in fewer;
- if from some window on a time reads between q and q (1 + d), with q above 1 + d (or the inverse of
  both), it is time to plan after n windows at most, and those it rests;
- in w windows at most 1 + log2(m/r) + w/m plans, for the longest rest m, whatever is measured, if
  the job is never quiet.

Complexity. O(times · windows) a reading. Source. Own; the band and the rest are the dead band and
the back-off of control and of networks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from planner.errors import InvalidInputError
from planner.validation import exact, set_exact, set_integer

__all__ = ["Drift", "Hysteresis", "Reading", "State", "noted", "worth"]

Reading = Mapping[str, Fraction]
"""What each time took over what was planned for, by name; above 0. Any may be missing."""


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """How much has to change, for how long, and for how much gain.

    Attributes
    ----------
    band : Fraction
        By how much of itself a time may be off without being looked at; above 0.
    windows : int
        How many windows in a row have to agree.
    gain : Fraction
        The least share of a step that a new plan has to save; below 1.
    rest : int
        Windows that pass unread after planning.
    longest_rest : int
        The most there ever are.

    Raises
    ------
    InvalidInputError
        If one of them is out of range, with its name.
    """

    band: Fraction = Fraction(1, 5)
    windows: int = 2
    gain: Fraction = Fraction(1, 50)
    rest: int = 1
    longest_rest: int = 64

    def __post_init__(self) -> None:
        set_exact(self, "band", positive=True)
        set_exact(self, "gain")
        if self.gain >= 1:
            raise InvalidInputError("gain", f"expected a share below 1, got {self.gain}")
        set_integer(self, "windows", minimum=1, maximum=2**10)
        set_integer(self, "rest", minimum=1, maximum=2**20)
        set_integer(self, "longest_rest", minimum=self.rest, maximum=2**20)


class Drift(NamedTuple):
    """A time that has changed.

    Attributes
    ----------
    name : str
        Which.
    factor : Fraction
        What it took in the last window, over what was planned for.
    """

    name: str
    factor: Fraction


@dataclass(frozen=True, slots=True)
class State:
    """What the rule remembers.

    Attributes
    ----------
    recent : tuple of Reading
        The last readings, the newest last; one fewer than the rule's windows at most.
    unread : int
        Windows that are still to pass unread.
    rest : int
        How many will after the next plan; 0: as many as the rule says.
    quiet : int
        Windows in a row in which nothing was beyond the band.
    """

    recent: tuple[Reading, ...] = ()
    unread: int = 0
    rest: int = 0
    quiet: int = 0


def noted(rule: Hysteresis, state: State, reading: Reading) -> tuple[State, tuple[Drift, ...]]:
    """Return the state after a window, and what has changed: if anything has, it is time to plan.

    Parameters
    ----------
    rule : Hysteresis
        The rule.
    state : State
        The state before.
    reading : Reading
        Of this window.

    Raises
    ------
    InvalidInputError
        If a number of the reading is not above 0, with its name.
    """
    read = {name: exact(value, name, positive=True) for name, value in reading.items()}
    rest = state.rest or rule.rest
    if state.unread:
        return State((), state.unread - 1, rest), ()
    recent = (*state.recent, read)[-rule.windows :]
    if len(recent) == rule.windows:
        changed = tuple(Drift(name, read[name]) for name in read if _lasts(rule, name, recent))
        if changed:
            return State((), rest, min(2 * rest, rule.longest_rest)), changed
    quiet = 0 if any(_beyond(rule, value) for value in read.values()) else state.quiet + 1
    if quiet >= rest:
        rest = rule.rest
    return State(recent[1 - rule.windows :] if rule.windows > 1 else (), 0, rest, quiet), ()


def worth(rule: Hysteresis, kept_ns: int, new_ns: int) -> bool:
    """Return whether to switch to a new plan, whose step lasts so long in place of the old one's.

    Parameters
    ----------
    rule : Hysteresis
        The rule.
    kept_ns, new_ns : int
        What a step lasts under the old and the new plan, both by what was measured.
    """
    return new_ns < kept_ns and kept_ns - new_ns >= rule.gain * kept_ns


def _beyond(rule: Hysteresis, value: Fraction) -> bool:
    """Return whether a reading is outside of the band."""
    limit = 1 + rule.band
    return value > limit or value * limit < 1


def _lasts(rule: Hysteresis, name: str, recent: tuple[Reading, ...]) -> bool:
    """Return whether a time is beyond the band in all readings alike: so on one side, too."""
    values = [reading[name] for reading in recent if name in reading]
    if len(values) < len(recent) or not all(_beyond(rule, value) for value in values):
        return False
    return max(values) <= (1 + rule.band) * min(values)
