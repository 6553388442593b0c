"""The text of ``planner profile``."""

from planner.cli.compare_tables import provenance, warning_lines
from planner.model.profiles import Profile
from planner.model.units import counted, format_bytes, format_ns, printable


def summary(profile: Profile, place: str, why: str) -> str:
    """Return the size, the times and the warnings of a new profile.

    `place` is where the profile was written, `why` the reason for its number of threads.
    """
    graph, origin = profile.graph, profile.provenance
    parameters = 0 if graph is None else len(graph.parameters)
    sizes = counted(len(profile.layers), "layer"), counted(parameters, "parameter")
    times = format_ns(profile.forward_ns), format_ns(profile.backward_ns)
    lines = [
        "{}: {}, {} with gradients, {}".format(
            printable(profile.name), *sizes, format_bytes(profile.parameter_bytes)
        ),
        "forward {}, backward {}, by {} ({})".format(
            *times, counted(origin.threads or 1, "thread"), why
        ),
        provenance(profile),
        *(printable(note) for note in origin.notes),
        *warning_lines(origin.warnings),
    ]
    if origin.warnings:
        lines.append("plans made of this profile repeat the warnings, with its date and processor")
    return "\n".join([*lines, f"written to {printable(place)}", ""])
