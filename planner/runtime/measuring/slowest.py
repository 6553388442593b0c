"""The profile of the slowest rank, after all ranks measured at the same time, as they will train.

Problem: Ranks wait for each other in every transfer, so the slowest one sets the pace.
Guarantee: All ranks return the same profile. Complexity: Every rank reads the profiles of all.
Source: own.
"""

from dataclasses import replace

from planner.jsonio import decode_profile, encode_profile
from planner.model.profiles import Profile
from planner.runtime.world.world import World


def slowest_profile(world: World, own: Profile) -> Profile:
    """Return the profile of the rank whose passes take longest. Every rank has to call it."""
    times = world.gather("its time", str(own.forward_ns + own.backward_ns))
    documents = world.gather("its profile", encode_profile(own))
    profile = decode_profile(documents[max(range(world.size), key=lambda rank: int(times[rank]))])
    note = f"measured by {world.size} ranks at the same time; these are the times of the slowest"
    origin = replace(profile.provenance, notes=(note, *profile.provenance.notes))
    return replace(profile, provenance=origin)
