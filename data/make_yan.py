"""Writes the requests of ``data/yan``: stand-ins for the two networks of Yan et al. (KDD'15).

    python data/make_yan.py

The paper gives totals only: about 2.5 million connections in 5 layers for MNIST, over 2 billion in
8 layers for ImageNet-22K. The shapes here are ours and meet these totals; nothing was measured.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "yan"


class Conv(NamedTuple):
    """A convolution: output channels, kernel, stride, padding, pooling behind it."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    pool: int = 1


class Full(NamedTuple):
    """A fully connected layer."""

    neurons: int


def layers(
    shape: tuple[int, int, int], network: Sequence[tuple[str, Conv | Full]]
) -> list[dict[str, Any]]:
    """Return the layers of a network on inputs of a shape, as requests give them."""
    channels, rows, columns = shape
    found: list[dict[str, Any]] = []
    for name, one in network:
        if isinstance(one, Full):
            inputs = channels * rows * columns
            found.append(
                {
                    "name": name,
                    "kind": "full",
                    "neurons": one.neurons,
                    "connections": one.neurons * inputs,
                    "weights": one.neurons * (inputs + 1),
                }
            )
            channels, rows, columns = one.neurons, 1, 1
            continue
        rows = (rows + 2 * one.padding - one.kernel) // one.stride + 1
        columns = (columns + 2 * one.padding - one.kernel) // one.stride + 1
        neurons, filters = one.channels * rows * columns, one.kernel**2 * channels
        found.append(
            {
                "name": name,
                "kind": "conv",
                "shape": [one.channels, rows, columns],
                "kernel": one.kernel,
                "stride": one.stride,
                "pool": one.pool,
                "neurons": neurons,
                "connections": neurons * filters,
                "weights": one.channels * (filters + 1),
            }
        )
        channels, rows, columns = one.channels, rows // one.pool, columns // one.pool
    return found


MNIST = layers(
    (1, 28, 28),
    [
        ("conv1", Conv(8, 5, padding=2, pool=2)),
        ("conv2", Conv(40, 7, pool=4)),
        ("fc1", Full(1146)),
        ("fc2", Full(1000)),
        ("output", Full(10)),
    ],
)

IMAGENET_22K = layers(
    (3, 224, 224),
    [
        ("conv1", Conv(120, 11, stride=4, padding=2, pool=2)),
        ("conv2", Conv(384, 5, padding=2, pool=2)),
        ("conv3", Conv(512, 3, padding=1)),
        ("conv4", Conv(512, 3, padding=1)),
        ("conv5", Conv(384, 3, padding=1, pool=2)),
        ("fc1", Full(4096)),
        ("fc2", Full(4096)),
        ("output", Full(21841)),
    ],
)

TABLE_1A = ("2/9/2", "2/8/4", "2/6/8", "4/4/4", "1/19/1", "1/18/2", "1/16/4", "1/12/8")
TABLE_1B = ("4/4/4", "4/4/2", "2/9/2", "4/3/6", "4/3/4", "2/8/4", "2/6/6", "2/6/4")

NOTE = (
    "Synthetic stand-in for a network of Yan et al. (KDD'15), who give totals only. Printed there: "
    "20 machines, 16 cores, 10 Gb/s. Fitted to the ranks of Table 1: muladd_ns, read_every, "
    "interference (MNIST: one thread, and the two rows conv2 passes on). Assumed: all else."
)


def request(
    network: list[dict[str, Any]],
    samples: int,
    read_every: int,
    muladd_ns: float,
    interference: list[float],
) -> dict[str, Any]:
    """Return a request for the paper's cluster."""
    return {
        "problem": "yan",
        "note": NOTE,
        "machines": 20,
        "cores": 16,
        "samples": samples,
        "read_every": read_every,
        "constants": {
            "muladd_ns": muladd_ns,
            "activation_ns": 2,
            "error_ns": 2,
            "latency_ns": [10_000] * len(interference),
            "nic_bits_per_s": 1e10,
            "bits_per_activation": 32,
            "bits_per_weight": 32,
            "interference": interference,
        },
        "layers": network,
    }


def table_1(base: dict[str, Any], rows: Sequence[str]) -> dict[str, Any]:
    """Return the request that ranks the configurations of one half of Table 1."""
    triples = [map(int, row.split("/")) for row in rows]
    names = ("workers_per_replica", "replicas", "parameter_servers")
    fixed = [dict(zip(names, triple, strict=True)) for triple in triples]
    return {**base, "max_copies": 1, "fixed": fixed}


def requests() -> dict[str, dict[str, Any]]:
    """Return every request by the name of its file."""
    mnist = request(MNIST, 60_000, 112, 1.0, [1.0])
    threads = [round(1 + 0.02 * more, 2) for more in range(16)]
    imagenet = request(IMAGENET_22K, 14_197_122, 475, 0.25, threads)
    return {
        "mnist": mnist,
        "mnist-table1": table_1(mnist, TABLE_1A),
        "imagenet22k": imagenet,
        "imagenet22k-table1": table_1(imagenet, TABLE_1B),
    }


def main() -> None:
    """Write them."""
    for name, one in requests().items():
        (FOLDER / f"{name}.json").write_text(json.dumps(one, indent=1) + "\n")


if __name__ == "__main__":
    main()
