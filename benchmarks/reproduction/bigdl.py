"""Remakes Fig. 3 of "Accelerating Deep Learning Training with BigDL and Drizzle".

    python benchmarks/reproduction/bigdl.py 3
    python benchmarks/reproduction/bigdl.py claims [--picture FILE]    see `bigdl_claims`

The figure prints two ratios: throughput of 16 nodes over that of 8, 1.92 for Inception-v1 and 1.88
for ResNet. Neither network nor computation times are published. A ratio r of the model follows from
one number, computation in units of T_F (the time of one gradient over one link); it is fitted to
one network's ratio, carried over to the other network by the shipped profiles (GoogLeNet is
Inception-v1; ResNet is taken to be ResNet-50, with as many samples), and scored there. Three
readings of what changes between 8 and 16 nodes:

    same a node   every node computes as many samples as before: r = 2 (c + v) / (c + w)
    same in all   all nodes together do: r = (c/8 + v) / (c/16 + w), c of all nodes
    tasks         no traffic, but scheduling takes a share d of computation for each node:
                  r = 2 (1 + 8d) / (1 + 16d)

with v = 2·7/8 and w = 2·15/16, the traffic of the plan at 8 and 16 nodes.
"""

import argparse
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import bigdl_claims
from grids import grid, percent, sections
from table import Row, numbers

from planner.families.bigdl import Exchange, evaluate
from planner.jsonio import decode_profile
from planner.model.profiles import Profile

PROFILES = Path(__file__).parents[2] / "data" / "profiles"

FEW, MANY = 8, 16
ELEMENTS = 7 * 2**20

NS_PER_BYTE = Fraction(8, 10)
"""10 Gb/s, the fastest network of the machine that the text names for Figs. 5 and 6."""

BATCH = 32
"""Samples a node, where nothing is fitted; of 8 nodes, where all compute the same."""

SPARK_SHARE = Fraction(10, 100) / 300
"""Fig. 4 read as a line: scheduling takes 10 % of computation at 300 partitions."""

READINGS = ("same a node", "same in all", "tasks")


@cache
def read(name: str) -> Profile:
    """Return a shipped profile."""
    return decode_profile((PROFILES / f"{name}.json").read_bytes())


@dataclass(frozen=True, slots=True)
class Trained:
    """A network of the figure.

    Attributes
    ----------
    name : str
        As the figure calls it.
    profile : str
        The shipped profile that stands for it.
    ratio : Fraction
        Throughput of 16 nodes over that of 8.
    """

    name: str
    profile: str
    ratio: Fraction

    def measured(self) -> Profile:
        """Return the profile."""
        return read(self.profile)

    def sample_ns(self) -> Fraction:
        """Return what the profile's machine computes for one sample."""
        profile = self.measured()
        assert profile.batch_size is not None
        return Fraction(profile.forward_ns + profile.backward_ns, profile.batch_size)

    def full_transfer_ns(self) -> Fraction:
        """Return T_F over 10 Gb/s."""
        return self.measured().parameter_bytes * NS_PER_BYTE


NETWORKS = (
    Trained("Inception-v1", "googlenet", Fraction(192, 100)),
    Trained("ResNet", "resnet50", Fraction(188, 100)),
)


def volume(nodes: int) -> Fraction:
    """Return the time of a synchronisation by the plan, in T_F: 2(N-1)/N."""
    found = evaluate(bigdl_claims.case(nodes), Exchange(ELEMENTS, nodes))
    return found.times_full_transfer


def throughput(reading: str, value: Fraction) -> Fraction:
    """Return the throughput of 16 nodes over that of 8; `value` is c or d of the reading."""
    few, many = volume(FEW), volume(MANY)
    if reading == "same a node":
        return 2 * (value + few) / (value + many)
    if reading == "same in all":
        return (value / FEW + few) / (value / MANY + many)
    return 2 * (1 + FEW * value) / (1 + MANY * value)


def fitted(reading: str, ratio: Fraction) -> Fraction:
    """Return c or d at which the throughput is `ratio` times as high."""
    few, many = volume(FEW), volume(MANY)
    if reading == "same a node":
        return (2 * few - ratio * many) / (ratio - 2)
    if reading == "same in all":
        return (ratio * many - few) / (Fraction(1, FEW) - ratio / MANY)
    return (2 - ratio) / (MANY * ratio - 2 * FEW)


def carried(reading: str, value: Fraction, known: Trained, wanted: Trained) -> Fraction:
    """Return c or d of one network, given the other's and as many samples."""
    samples = wanted.sample_ns() / known.sample_ns()
    if reading == "tasks":
        return value / samples  # scheduling takes as long, computation longer
    return value * samples * known.full_transfer_ns() / wanted.full_transfer_ns()


def scored() -> list[tuple[str, Fraction, Fraction]]:
    """Return each printed ratio, and ours with the constant fitted to the other network's."""
    rows = []
    for reading in READINGS:
        for known, wanted in (NETWORKS, NETWORKS[::-1]):
            value = carried(reading, fitted(reading, known.ratio), known, wanted)
            name = f"{wanted.name}, {reading}; fitted to {known.name}"
            rows.append((name, wanted.ratio, throughput(reading, value)))
    return rows


def short_of(ratio: Fraction) -> float:
    """Return by how many per cent a ratio is short of twice the throughput."""
    return 100 * float(1 - ratio / 2)


def unfitted() -> list[Row]:
    """Return each ratio with the profile's own computation, over 10 Gb/s."""
    rows = []
    for reading in READINGS[:2]:
        for network in NETWORKS:
            value = BATCH * network.sample_ns() / network.full_transfer_ns()
            if reading == "same in all":
                value *= FEW
            ours = float(throughput(reading, value))
            rows.append(
                Row(f"{network.name}, {reading}", float(network.ratio), ours, "×", decimals=3)
            )
    return rows


def implied() -> str:
    """Return what each ratio by itself says of computation, or of scheduling."""
    many = volume(MANY)
    rows = []
    for network in NETWORKS:
        each, every, task = (fitted(reading, network.ratio) for reading in READINGS)
        rows.append(
            (
                network.name,
                f"{float(each):.4g}",
                percent(many / (each + many)),
                f"{float(every / FEW):.4g}",
                percent(many / (every / MANY + many)),
                percent(MANY * task),
                f"{float(task / SPARK_SHARE):.0f}",
            )
        )
    header = ("", "c, same a node", "traffic at 16", "c at 8, same in all", "traffic at 16")
    return grid((*header, "or scheduling at 16", "tasks a node by Fig. 4"), rows)


def report() -> str:
    """Return the tables of Fig. 3."""
    few, many = volume(FEW), volume(MANY)
    about = (
        f"What each ratio implies, in T_F; traffic is {float(few):g} at {FEW} nodes and "
        f"{float(many):g} at {MANY}, and without any computation the ratio is "
        f"{float(throughput(READINGS[0], Fraction(0))):.4f}"
    )
    found = scored()
    ratios = [Row(name, float(a), float(b), "×", decimals=3) for name, a, b in found]
    losses = [Row(name, short_of(a), short_of(b), "%", decimals=2) for name, a, b in found]
    return sections(
        [
            ("Fig. 3: throughput of 16 nodes over that of 8", numbers(ratios)),
            ("The same as what is short of twice the throughput", numbers(losses)),
            (f"Nothing fitted: two CPU cores, {BATCH} samples, 10 Gb/s", numbers(unfitted())),
            (about, implied()),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="remake a figure of BigDL and Drizzle")
    tables = {"3": ("Fig. 3", report), "claims": ("What the text claims", bigdl_claims.report)}
    parser.add_argument("what", nargs="?", choices=tuple(tables), help="default: both")
    parser.add_argument("--picture", type=Path, help="draw the hot spot and the methods")
    options = parser.parse_args()
    for title, table in (tables[options.what],) if options.what else tables.values():
        print(f"## {title}\n\n{table()}\n")
    if options.picture:
        bigdl_claims.save(options.picture)


if __name__ == "__main__":
    main()
