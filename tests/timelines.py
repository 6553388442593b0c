"""What holds of every timeline."""

from itertools import pairwise

from planner.solving.timeline import Timeline


def check_serial(timeline: Timeline) -> None:
    """Check that no two intervals on one resource overlap."""
    for resource in timeline.resources:
        for first, second in pairwise(timeline.on(resource)):
            assert first.end_ns <= second.start_ns, f"{first} and {second} overlap"
