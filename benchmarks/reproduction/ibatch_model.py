"""The model behind iBatch's Figs. 3 to 7, and the only numbers its constants come from.

An iteration works on a fixed number of samples, whatever the number N of nodes: the paper counts
iterations per hour against one node, and with N times the samples that count could never rise. So
a node computes C/N, where C is the iteration on one node. It pulls the parameters while or before
it computes forward, then computes backward, then pushes all gradients at once: the push is
sequential in every curve, as the paper says. Pull and push each cost

    startup + V·(N - 1)/N / min(10 Gb/s, 8·10 Gb/s / N)

because a node holds 1/N of the parameters itself, and N nodes share the links of 8 blades. The
absolute bandwidth sets the unit of time only; no speed-up depends on it.

The default curve has one batch and no overlap: T(N) = C/N + 2·startup + 2·V·…/…, linear in C and
in the start-up. Of it the text prints five points: four networks on 30 nodes, VGG19-22K on 72 too.
They determine the five constants, start-up and four C, exactly. No other number of the paper is
read here. What of the constant part is paid by every communication and what once an iteration (a
Spark job, say) this curve cannot tell: `startup_share` is 1 by default, and 0 is the other end.

Relative times of layers and the share of the forward pass: the shipped profiles, measured on a CPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path

from planner import Profile
from planner.families import ibatch
from planner.jsonio import decode_profile
from planner.model.layers import Layer, merged

PROFILES = Path(__file__).parents[2] / "data" / "profiles"
NETWORKS = {
    "googlenet": "GoogLeNet",
    "inception_v3": "Inception-v3",
    "vgg19": "VGG19",
    "vgg19_22k": "VGG19-22K",
}
DEFAULT = {
    ("googlenet", 30): 26.0,
    ("inception_v3", 30): 25.0,
    ("vgg19", 30): 23.0,
    ("vgg19_22k", 30): 22.0,
    ("vgg19_22k", 72): 26.0,
}
"""Speed-up of the default parameter server by network and nodes, as the text prints it."""

BLADES = 8
LINK = 10e9 / 8
"""Bytes per second of a blade's link."""


@dataclass(frozen=True, slots=True)
class Constants:
    """What is fitted to the default curve.

    Attributes
    ----------
    startup_s : float
        Start-up cost of one communication, in seconds.
    compute_s : mapping of str to float
        Computation of one iteration on one node, in seconds, by network.
    """

    startup_s: float
    compute_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration on some nodes, in seconds: three parts that add up to `total_s`.

    `one_node_s` is the same iteration on one node, `batches` are those of the pull.
    """

    overlap_s: float
    exposed_communication_s: float
    exposed_computation_s: float
    one_node_s: float
    batches: int

    @property
    def total_s(self) -> float:
        """How long the iteration lasts."""
        return self.overlap_s + self.exposed_communication_s + self.exposed_computation_s

    @property
    def speedup(self) -> float:
        """How many times as many iterations an hour as on one node."""
        return self.one_node_s / self.total_s


@cache
def profile(network: str) -> Profile:
    """Return the shipped profile of a network."""
    return decode_profile((PROFILES / f"{network}.json").read_bytes())


@cache
def layers_of(network: str) -> tuple[Layer, ...]:
    """Return the layers of a network that are batched: its blocks."""
    whole = profile(network)
    blocks = groupby(whole.layers, key=lambda layer: layer.block)  # all layers here have one
    merged_blocks = tuple(merged(list(layers)) for _, layers in blocks)
    return replace(whole, layers=merged_blocks, graph=None).chain().layers


def transfer_s(network: str, nodes: int) -> float:
    """Return how long all parameters take to a node, without the start-up."""
    return profile(network).parameter_bytes * seconds_per_byte(nodes)


def seconds_per_byte(nodes: int) -> float:
    """Return the time per byte of parameters: most come from other nodes, which share 8 links."""
    return (nodes - 1) / nodes / min(LINK, BLADES * LINK / nodes)


def fit(default: Mapping[tuple[str, int], float]) -> Constants:
    """Return the constants at which the default curve goes through these points.

    From T(N) = C/speedup: C·(1/speedup - 1/N) = 2·startup + 2·transfer. The network with two points
    gives its C and the start-up, every other one its C.
    """
    exposed = {point: 1 / speedup - 1 / point[1] for point, speedup in default.items()}
    networks = [network for network, _ in default]
    twice = next(network for network in networks if networks.count(network) == 2)
    few, many = sorted(nodes for network, nodes in default if network == twice)
    compute = {
        twice: 2
        * (transfer_s(twice, many) - transfer_s(twice, few))
        / (exposed[twice, many] - exposed[twice, few])
    }
    startup = compute[twice] * exposed[twice, few] / 2 - transfer_s(twice, few)
    for (network, nodes), share in exposed.items():
        if network != twice:
            compute[network] = 2 * (startup + transfer_s(network, nodes)) / share
    return Constants(startup, compute)


def pull_problem(
    constants: Constants, network: str, nodes: int, startup_s: float | None = None
) -> tuple[tuple[str, ...], ibatch.Problem]:
    """Return the layers' names and the problem of the pull; the start-up is the fitted one."""
    measured, layers = profile(network), layers_of(network)
    speed = constants.compute_s[network] / (measured.forward_ns + measured.backward_ns) / nodes
    startup_s = constants.startup_s if startup_s is None else startup_s
    problem = ibatch.Problem(
        compute_ns=tuple(round(layer.forward_ns * speed * 1e9) for layer in layers),
        startup_ns=round(startup_s * 1e9),
        transfer_ns=tuple(
            round(layer.parameter_bytes * seconds_per_byte(nodes) * 1e9) for layer in layers
        ),
    )
    return tuple(layer.name for layer in layers), problem


@cache
def _pull(problem: ibatch.Problem, method: str) -> tuple[ibatch.Evaluation, int]:
    plan = ibatch.solve(problem, method=method).plan
    assert plan is not None
    return ibatch.evaluate(problem, plan), len(plan.batches)


def iteration(
    constants: Constants,
    network: str,
    nodes: int,
    method: str,
    *,
    pushed: float = 1,
    startup_share: float = 1,
) -> Iteration:
    """Return one iteration: pull in the batches of `method`, then backward, then push.

    Parameters
    ----------
    constants : Constants
        As fitted.
    network : str
        Name of a shipped profile.
    nodes : int
        Number of nodes N; with one nothing is sent.
    method : str
        A method of `planner.ibatch` for the pull: "one_batch" is the default parameter server.
    pushed : float
        Bytes pushed for each byte of gradients.
    startup_share : float
        Share of the fitted start-up that each communication pays; the rest is paid once for pull
        and once for push, whatever the batches.
    """
    measured = profile(network)
    speed = constants.compute_s[network] / (measured.forward_ns + measured.backward_ns) / nodes
    backward_s = measured.backward_ns * speed
    if nodes == 1:
        return Iteration(0, 0, constants.compute_s[network], constants.compute_s[network], 0)
    startup_s = constants.startup_s * startup_share
    _, problem = pull_problem(constants, network, nodes, startup_s)
    pull, batches = _pull(problem, method)
    once_s = 2 * (constants.startup_s - startup_s)
    push_s = startup_s + transfer_s(network, nodes) * pushed
    return Iteration(
        overlap_s=pull.overlap_ns / 1e9,
        exposed_communication_s=pull.exposed_communication_ns / 1e9 + once_s + push_s,
        exposed_computation_s=pull.exposed_computation_ns / 1e9 + backward_s,
        one_node_s=constants.compute_s[network],
        batches=batches,
    )
