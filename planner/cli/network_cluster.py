"""The cluster file that ``planner calibrate network`` writes."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli.common import in_option, readable
from planner.model import machine
from planner.model.contention import Interference

if TYPE_CHECKING:
    from planner.model.fitting import NetworkFit, Sweep


def cluster_text(
    options: argparse.Namespace,
    sweep: "Sweep",
    fit: "NetworkFit",
    interference: Interference,
    provenance: dict[str, Any],
) -> str:
    """Return the cluster file of a measured network."""
    from planner.jsonio.measured_cluster import cluster_document, encode_cluster

    each = os.environ.get("LOCAL_WORLD_SIZE", "1")
    shared = int(each) if each.isdecimal() and int(each) else 1
    notes = ["the network does not tell how much memory there is: memory_bytes is left out"]
    if shared > 1:
        notes.append(f"{shared} ranks shared a machine, and each counts as one here")
    with in_option("--cluster-out"):
        document = cluster_document(
            sweep,
            fit,
            name=readable(Path(options.cluster_out).stem) or "measured",
            source=f"{provenance['source']}, {provenance['date']}, {provenance['processor']}",
            cores=max(machine.processors() // shared, 1),
            bcube=options.bcube,
            interference=interference,
            notes=notes,
        )
    return encode_cluster(document)
