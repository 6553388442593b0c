"""What `runtime_real` measures, setting by setting, kept so that an interrupted run goes on."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from awake import Awake
from runtime_report import Measured

from planner.runtime import World

MOST_BUSY = 0.05
"""Share of the processors that others may take."""

MOST_DRIFT = 0.05
"""By how much a step may last longer, or shorter, as the machine's speed changes. Two profiles in a
row differ by 2 to 3 %."""


class Task(NamedTuple):
    """What is measured in one job.

    Attributes
    ----------
    part : str
        "gradients", "shards" or "waiting".
    model : str
        Its name.
    hosts : int
        How many there are.
    rate : int
        Of their links, in Mbit/s.
    """

    part: str
    model: str
    hosts: int
    rate: int

    @property
    def title(self) -> str:
        """Its heading."""
        hosts = f", {self.hosts} hosts" if self.hosts > 2 else ""
        about = {"shards": ", shards", "waiting": ", layers wait"}
        return f"{self.model}, {self.rate} Mbit/s{hosts}{about.get(self.part, '')}"


@dataclass(frozen=True, slots=True)
class Setting:
    """What was measured of one task.

    Attributes
    ----------
    about : str
        A sentence.
    variants : tuple of Measured
        All of them; those that come to the same have the same rounds.
    compute_ns, transfer_ns : int
        Computation of a step, and one transfer of everything.
    sending_ns : int or None
        Processor time that sending everything takes from computation; None if unknown.
    before, during : float
        Share of the processors that others took.
    drift : float or None
        How much longer the model computed in a profile after all rounds than in the one before;
        None if there is no later one.
    tries : int
        How often this run measured the setting; the last time counts.
    """

    about: str
    variants: tuple[Measured, ...]
    compute_ns: int
    transfer_ns: int
    sending_ns: int | None = None
    before: float = 0.0
    during: float = 0.0
    drift: float | None = None
    tries: int = 1

    @property
    def ratio(self) -> float:
        """Communication over computation."""
        return self.transfer_ns / self.compute_ns

    @property
    def quiet(self) -> bool:
        """Whether hardly anything else ran, and the machine kept its speed."""
        # The least time of a step: transfers and computation may overlap.
        step_ns = max(self.compute_ns, self.transfer_ns)
        drift = abs(self.drift or 0) * self.compute_ns / step_ns
        return max(self.before, self.during) <= MOST_BUSY and drift <= MOST_DRIFT

    @classmethod
    def read(cls, document: dict[str, Any]) -> "Setting":
        """Return what `Kept` has written."""
        variants = tuple(
            Measured(one["name"], one["predicted_ns"], tuple(map(tuple, one["rounds"])))
            for one in document["variants"]
        )
        return cls(**{**document, "variants": variants})


class Load(NamedTuple):
    """What all processors have done until now, and this process, in seconds.

    Interrupts do not count: they are the packets of the job itself.
    """

    all_s: float
    busy_s: float
    own_s: float

    @classmethod
    def now(cls, loop: Awake | None = None) -> "Load":
        """Return the times that Linux counts; those of `loop` are the job's own."""
        fields = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:9]
        user, nice, system, _idle, _waiting, interrupts, soft, stolen = each = [*map(int, fields)]
        tick = os.sysconf("SC_CLK_TCK")
        del interrupts, soft
        own_s = time.process_time() + (0.0 if loop is None else loop.time_s)
        return cls(sum(each) / tick, (user + nice + system + stolen) / tick, own_s)

    def others(self, since: "Load", own_s: float) -> float:
        """Return the share of the processors that others took, without `own_s`."""
        passed = self.all_s - since.all_s
        return max(self.busy_s - since.busy_s - own_s, 0.0) / passed if passed else 0.0


def others_of(world: World, since: Load, loop: Awake | None = None) -> float:
    """Return the share that others than the ranks took. Every rank has to call it."""
    now = Load.now(loop)
    each = world.gather("what was computed", json.dumps(now.own_s - since.own_s))
    return now.others(since, sum(map(json.loads, each)))


class Kept:
    """A file of finished settings, or none.

    Parameters
    ----------
    path : Path or None
        The file; it may be missing yet.
    how : dict
        What all settings have in common; a file of others is refused.
    """

    def __init__(self, path: Path | None, how: dict[str, Any]) -> None:
        self._path = path
        self._all: dict[str, Any] = {"how": how, "networks": {}, "settings": {}}
        if path is not None and path.exists():
            self._all = json.loads(path.read_text("utf-8"))
            if self._all["how"] != how:
                raise SystemExit(f"{path} was measured with {self._all['how']}, not with {how}")

    def network(self, hosts: int, rate: int, collective: str) -> list[list[int]] | None:
        """Return the times of a collective, if they are known."""
        rows: list[list[int]] | None = self._all["networks"].get(f"{hosts}/{rate}/{collective}")
        return rows

    def keep_network(
        self, hosts: int, rate: int, collective: str, rows: Sequence[Sequence[int]]
    ) -> None:
        """Keep the times of a collective."""
        self._all["networks"][f"{hosts}/{rate}/{collective}"] = [*map(list, rows)]
        self._write()

    def setting(self, task: Task) -> Setting | None:
        """Return a setting that is finished."""
        document = self._all["settings"].get("/".join(map(str, task)))
        return None if document is None else Setting.read(document)

    def keep(self, task: Task, setting: Setting) -> None:
        """Keep a setting."""
        self._all["settings"]["/".join(map(str, task))] = asdict(setting)
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            new = self._path.with_name(f"{self._path.name}.new")
            new.write_text(json.dumps(self._all), "utf-8")
            new.replace(self._path)
