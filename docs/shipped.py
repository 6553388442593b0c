"""Makes the pages of what is shipped, from the files: clusters and profiles."""

from collections.abc import Iterator
from pathlib import Path

from planner import Cluster, Profile, read_cluster, read_profile
from planner.model.topologies import BCube, FatTree, Rails
from planner.model.units import format_bytes, format_ns

DATA = Path(__file__).parent.parent / "data"


def pages() -> dict[str, str]:
    """Return the pages by their names."""
    return {"clusters": "\n".join(_clusters()), "profiles": "\n".join(_profiles())}


def _clusters() -> Iterator[str]:
    yield "# The shipped clusters\n"
    yield "What `data/clusters` holds; `--cluster NAME` takes each by its name.\n"
    yield "| cluster | machines | topology | NICs, one way | start-up; further message | memory |"
    yield "| --- | --- | --- | --- | --- | --- |"
    known = [read_cluster(path) for path in sorted((DATA / "clusters").glob("*.json"))]
    for cluster in known:
        nic = cluster.nic
        rate = f"{float(nic.bytes_per_s) * 8e-9:g} Gb/s"
        several = f"{nic.per_machine} × " if nic.per_machine > 1 else ""
        startup = f"{format_ns(nic.startup_ns)}; {format_ns(nic.message_ns)}"
        memory = "–" if cluster.memory_bytes is None else format_bytes(cluster.memory_bytes)
        cells = (
            cluster.name,
            cluster.machines,
            _topology(cluster),
            several + rate,
            startup,
            memory,
        )
        yield f"| {' | '.join(map(str, cells))} |"
    for cluster in known:
        yield f"\n## {cluster.name}\n"
        yield f"{_text(cluster.source)}\n"
        yield from (f"- {_text(note)}" for note in cluster.notes)


def _topology(cluster: Cluster) -> str:
    topology = cluster.topology
    if isinstance(topology, BCube):
        return f"BCube({topology.n}, {topology.k})"
    if isinstance(topology, FatTree):
        return f"Fat-Tree of {topology.ports}-port switches"
    if isinstance(topology, Rails):
        link = f"{float(topology.link_bytes_per_s) * 1e-9:g} GB/s"
        return f"rails, {topology.accelerators} accelerators a host, links of {link}"
    return "switch"


def _profiles() -> Iterator[str]:
    yield "# The shipped profiles\n"
    yield "What `data/profiles` holds.\n"
    yield "| profile | parameters | layers | batch size | forward | backward |"
    yield "| --- | --- | --- | --- | --- | --- |"
    known = [read_profile(path) for path in sorted((DATA / "profiles").glob("*.json"))]
    for profile in known:
        yield f"| {' | '.join(_cells(profile))} |"
    for profile in known:
        yield f"\n## {profile.name}\n"
        made = profile.provenance
        yield f"`{made.source}`, {made.date}, {_text(made.processor)}, {made.threads} threads.\n"
        yield from (f"- {_text(note)}" for note in made.notes)


def _cells(profile: Profile) -> Iterator[str]:
    yield profile.name
    yield format_bytes(sum(layer.parameter_bytes for layer in profile.layers))
    yield str(len(profile.layers))
    yield str(profile.batch_size or "–")
    yield format_ns(sum(layer.forward_ns for layer in profile.layers))
    yield format_ns(sum(layer.backward_ns for layer in profile.layers))


def _text(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")
