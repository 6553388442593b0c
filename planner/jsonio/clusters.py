"""The JSON form of clusters; clusters from files, and shipped ones by name."""

from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from planner.jsonio.decoding import decode, typed
from planner.jsonio.links import FailedDocument, failures_of
from planner.jsonio.network import Forms, InterferenceDocument, MeasuredDocument
from planner.jsonio.types import (
    PositiveRate,
    PositiveSize,
    Time,
    as_dataclass,
    fields_of,
    says,
    unset_to_none,
)
from planner.model.clusters import MAX_MACHINES, Cluster
from planner.model.errors import InvalidInputError, PluginError
from planner.model.topologies import BCube, Failures, FatTree, Rails, Switch, Topology
from planner.model.validation import inside, shown
from planner.solving.plugins import plugged

_KINDS: Forms = {
    "switch": (("kind",), ()),
    "bcube": (("kind", "n", "k"), ()),
    "fattree": (("kind", "ports"), ()),
    "rails": (("kind", "accelerators", "link_bytes_per_s"), ("link_startup_ns",)),
}

Ports = Annotated[int, Meta(ge=1, le=2**22)]
Text = Annotated[str, Meta(min_length=1)]


class TopologyDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The network that machines are plugged into.

    A `switch` has no other fields; a `bcube` has n and k; a `fattree` has the ports of its
    switches. `rails` (hosts with several accelerators, a NIC and a network for each) have
    accelerators, and the speed and start-up cost of the links within a host.
    """

    kind: Literal["switch", "bcube", "fattree", "rails"]
    n: Ports | UnsetType = UNSET
    k: Ports | UnsetType = UNSET
    ports: Ports | UnsetType = UNSET
    accelerators: Annotated[int, Meta(ge=1, le=2**10)] | UnsetType = UNSET
    link_bytes_per_s: PositiveRate | UnsetType = UNSET
    link_startup_ns: Time | UnsetType = UNSET


class NicDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The network interfaces of a machine, all alike."""

    bytes_per_s: PositiveRate
    startup_ns: Time
    per_machine: Annotated[int, Meta(ge=1, le=2**10)] = 1
    message_ns: Annotated[
        int,
        Meta(ge=0, le=2**62, description="ns for each further message of one step"),
    ] = 0


class SchedulingDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cost of a driver that schedules every task of every iteration."""

    task_ns: Time
    group_ns: Time = 0
    constant_task_ns: Time = 0
    tasks_per_machine: Annotated[int, Meta(ge=1, le=2**20)] = 1


class ClusterDocument(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Machines that are all alike, their network, and the source of the numbers."""

    name: Text
    source: Text
    machines: Annotated[int, Meta(ge=1, le=MAX_MACHINES)]
    topology: TopologyDocument
    nic: NicDocument
    cores: Annotated[int, Meta(ge=1, le=2**20)] = 1
    memory_bytes: PositiveSize | None = None
    accelerator_memory_bytes: PositiveSize | UnsetType = UNSET
    shared_bytes_per_s: PositiveRate | UnsetType = UNSET
    scheduling: SchedulingDocument | UnsetType = UNSET
    notes: tuple[str, ...] = ()
    failed: FailedDocument | UnsetType = UNSET
    interference: InterferenceDocument | UnsetType = UNSET
    network: Annotated[
        MeasuredDocument | UnsetType, says("what collectives took there, as measured")
    ] = UNSET


def decode_cluster(data: bytes | str) -> Cluster:
    """Read a cluster from JSON text; an error has the path of the first wrong field."""
    return cluster_of(typed(decode(data), ClusterDocument))


def cluster_of(document: ClusterDocument, path: str = "") -> Cluster:
    """Return the typed cluster; errors carry `path`, the cluster's place in a request."""
    with inside(path):
        with inside("topology"):
            topology = _topology(document)
        measured = unset_to_none(document.network)
        with inside("network"):
            network = None if measured is None else measured.typed()
        return as_dataclass(
            Cluster,
            document,
            topology=topology,
            failed=_failures(topology, document.failed),
            network=network,
        )


def _topology(document: ClusterDocument) -> Topology:
    topology = document.topology
    needed, optional = _KINDS[topology.kind]
    for name in topology.__struct_fields__:
        value = getattr(topology, name)
        if name in needed and value is UNSET:
            raise InvalidInputError(name, f"missing: kind {topology.kind} needs it")
        if value is not UNSET and name not in (*needed, *optional):
            raise InvalidInputError(name, f"not with kind {topology.kind}")
    fields = fields_of(topology)
    del fields["kind"]
    if topology.kind == "bcube":
        return BCube(**fields)
    if topology.kind == "fattree":
        return FatTree(**fields)
    if topology.kind == "rails":
        return Rails(document.machines, **fields)
    return Switch(document.machines)


def _failures(topology: Topology, document: FailedDocument | UnsetType) -> Failures:
    if document is UNSET:
        return Failures()
    if not isinstance(topology, BCube):
        raise InvalidInputError("failed", "only with a topology of kind bcube")
    return failures_of(topology, document)


_FOLDER = Path(__file__).parents[1] / "data" / "clusters"


def shipped_clusters() -> tuple[str, ...]:
    """Return the names of the clusters shipped with the library, in order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def cluster_file(name: str | PathLike[str]) -> Path:
    """Return the path of a cluster file; a name such as ``caramel-16`` means a shipped one.

    Raises InvalidInputError, with the nearest shipped names, if there is neither.
    """
    path, known = Path(name), shipped_clusters()
    if path.parent.name or path.is_absolute() or (path.exists() and not path.is_dir()):
        return path  # a path with a folder names a file, even if missing
    if fspath(name) in known:
        return _FOLDER / f"{name}.json"
    near = get_close_matches(path.name.lower().removesuffix(".json"), known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"shipped are {', '.join(known)}"
    raise InvalidInputError(
        "cluster", f"neither a file nor the name of a shipped one: {shown(fspath(name))}; {hint}"
    )


def cluster_data(name: str | PathLike[str]) -> bytes:
    """Return a cluster as JSON: from a file, a shipped name, or ``SOURCE:TEXT`` for a plug-in.

    Raises InvalidInputError for other names, PluginError if the plug-in does not return JSON, and
    OSError if the file cannot be read.
    """
    source, colon, text = fspath(name).partition(":")
    describe = plugged("clusters").get(source) if colon and not Path(name).exists() else None
    if describe is None:
        return cluster_file(name).read_bytes()
    described = describe(text)
    if isinstance(described, str):
        return described.encode()
    if not isinstance(described, bytes):
        raise PluginError(f"cluster source {source}: expected JSON text, got {shown(described)}")
    return described


def read_cluster(name: str | PathLike[str]) -> Cluster:
    """Read a cluster from a file, or a shipped one by its name.

    Raises
    ------
    InvalidInputError
        If there is no such cluster, or a field is wrong (with its path).
    OSError
        If the file cannot be read.
    """
    return decode_cluster(cluster_data(name))
