"""The JSON output of ``planner run --json``: predicted and measured times."""

from msgspec import UNSET, Struct, UnsetType


class PlanReport(Struct, frozen=True, kw_only=True):
    """A plan that ran."""

    file: str
    problem: str
    method: str
    direction: str | UnsetType = UNSET
    ranks: int | UnsetType = UNSET


class ComparisonReport(Struct, frozen=True, kw_only=True):
    """A time of a step: predicted, and measured in every step."""

    name: str
    predicted_ns: int | None
    measured_ns: tuple[int, ...]


class TransferReport(Struct, frozen=True, kw_only=True):
    """The time of one batch: predicted, and measured in every step."""

    direction: str | None
    batch: int
    bytes: int | None
    predicted_ns: int | None
    measured_ns: tuple[int, ...]
    waited_ns: tuple[int, ...] = ()


class RatioReport(Struct, frozen=True, kw_only=True):
    """The speed-up of the plan over DDP, or over FSDP2's default, in alternating rounds.

    `differs` is true if 1 lies outside of `low` to `high`, and there was more than one round.
    """

    median: float
    low: float
    high: float
    rounds: int
    differs: bool

    @property
    def confidence(self) -> float:
        """The probability that the true median lies in the interval; 0 for a single round."""
        return 1 - 2.0 ** (1 - self.rounds)


class RunReport(Struct, frozen=True, kw_only=True):
    """A run, from rank 0; times are means over the ranks, without warm-up steps."""

    plans: tuple[PlanReport, ...]
    model: str
    optimizer: str
    ranks: int
    collective: str
    warnings: tuple[str, ...] | UnsetType = UNSET
    warmup: int
    comparisons: tuple[ComparisonReport, ...]
    transfers: tuple[TransferReport, ...]
    ddp_step_ns: tuple[int, ...] | UnsetType = UNSET
    against_ddp: RatioReport | UnsetType = UNSET
    fsdp2_step_ns: tuple[int, ...] | UnsetType = UNSET
    against_fsdp2: RatioReport | UnsetType = UNSET
