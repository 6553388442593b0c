"""Tables of the benchmark of joint plans: what it measured, setting by setting and over all."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from runtime_ablations import ABLATIONS
from runtime_cluster import Fit
from runtime_report import Measured, ranking, ratio, summary
from tables import as_text

from planner.model.units import format_ns

JOINT, DDP, SCALED = "`joint`", "DDP", "DDP, buckets scaled"
REPLICATED = "`joint`, replicated"
RINGED = "`joint`, by gloo's ring"
IN_ORDER, IN_BUCKETS, BY_ALGORITHM = ABLATIONS


@dataclass(frozen=True, slots=True)
class Setting:
    """What was found out in one setting.

    Attributes
    ----------
    title, about : str
        Its name, and what it is like.
    plan : str
        What the joint plan chose.
    variants : list of Measured
        All that ran.
    """

    title: str
    about: str
    plan: str
    variants: list[Measured]

    def variant(self, name: str) -> Measured | None:
        """Return one variant; None if it did not run, as the plan has that already."""
        return next((variant for variant in self.variants if variant.name == name), None)

    @property
    def best_of_ddp(self) -> Measured:
        """The fastest of all bucket sizes, torch's defaults included."""
        ddp = [variant for variant in self.variants if is_ddp(variant.name)]
        return min(ddp, key=lambda variant: variant.median_ns)


def is_ddp(name: str) -> bool:
    """Tell whether a variant is torch's own."""
    return name == DDP or name.startswith(f"{DDP}, ")


def gain(setting: Setting, name: str, reference: str = JOINT) -> str:
    """Return how many times as long as `reference` a variant takes, round by round."""
    variant, base = setting.variant(name), setting.variant(reference)
    if variant is None or base is None:
        return "–"
    middle, low, high = ratio(variant, base)
    return f"{middle:.2f}× ({low:.2f} – {high:.2f})"


def gains(settings: Sequence[Setting]) -> str:
    """Return the table of what each decision of the plan is worth."""
    columns = {
        "algorithm": (RINGED, JOINT),
        "order": (IN_ORDER, JOINT),
        "grouping": (IN_BUCKETS, JOINT),
        "mode": (REPLICATED, JOINT),
        "algorithm alone": (SCALED, BY_ALGORITHM),
    }
    rows = [
        (
            setting.title,
            setting.plan,
            *(gain(setting, name, reference) for name, reference in columns.values()),
        )
        for setting in settings
    ]
    return as_text(("setting", "plan", *columns), rows)


def compared(settings: Sequence[Setting]) -> str:
    """Return the table of DDP against the plan, and a sentence on where the plan is slower."""
    rows, slower = [], []
    for setting in settings:
        joint, best = setting.variant(JOINT), setting.best_of_ddp
        assert joint is not None
        cells = []
        for other in (setting.variant(DDP), setting.variant(SCALED), best):
            if other is None:
                cells.append("–")
                continue
            middle, low, high = ratio(other, joint)
            cells.append(f"{middle:.2f}× ({low:.2f} – {high:.2f})")
            if high < 1:
                slower.append(f"{other.name} in {setting.title} ({1 / middle - 1:.1%})")
        spread = max(joint.medians_ns) / min(joint.medians_ns) - 1
        rows.append((setting.title, *cells, best.name, f"{spread:.1%}"))
    columns = ("setting", DDP, SCALED, "best of DDP", "which is", "spread of `joint`")
    verdict = "; ".join(dict.fromkeys(slower)) or "none"
    return f"Faster than `joint` in every round: {verdict}.\n\n{as_text(columns, rows)}"


def predictions(settings: Sequence[Setting]) -> str:
    """Return how good all predictions were, over all settings and in each."""
    rows = [(setting.title, setting.variants) for setting in settings]
    rankings = [ranking(variants) for _, variants in rows]
    right = sum(ranks.right for ranks in rankings)
    clear = right + sum(ranks.wrong + ranks.tied for ranks in rankings)
    share = f" ({right / clear:.1%})" if clear else ""
    return (
        f"{right} of {clear} pairs that differ in every round are ranked rightly{share}; "
        f"{summary(rows)}"
    )


def errors_by_variant(settings: Sequence[Setting]) -> str:
    """Return the table of prediction errors, a row for each kind of variant."""
    errors: dict[str, list[float]] = {}
    for setting in settings:
        for variant in setting.variants:
            name = f"{DDP}, all bucket sizes" if is_ddp(variant.name) else variant.name
            if variant.error is not None:
                errors.setdefault(name, []).append(abs(variant.error))
    rows = [
        (name, len(several), f"{median(several):.1%}", f"{max(several):.1%}")
        for name, several in errors.items()
    ]
    return as_text(("variant", "predictions", "off by (median)", "at worst"), rows)


def calibration(fits: Sequence[tuple[str, str, Fit]]) -> str:
    """Return the table of what clusters cost, as each algorithm sees them."""
    rows = []
    for cluster, name, fit in fits:
        nic = fit.cluster.nic
        rows.append(
            (
                cluster,
                name,
                format_ns(nic.startup_ns),
                format_ns(nic.message_ns),
                f"{float(nic.bytes_per_s) * 8 / 1e6:.1f}",
                f"{max(fit.errors.values()):.1%}",
            )
        )
    columns = ("cluster", "algorithm", "step", "further message", "Mbit/s of a NIC", "misses by")
    return as_text(columns, rows)
