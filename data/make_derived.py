"""Writes profiles of models of public size into `derived`: by formula, not measured.

    python data/make_derived.py

Sizes follow from the published configurations. Times are those of two floating-point operations a
parameter and token in the forward pass, twice as many in the backward one, and of attention's
scores, at the throughput that Meta reports for training Llama 3 405B: 400 TFLOP/s a GPU in BF16
(16,384 H100), all operations alike. A layer keeps what a fused attention and a gated perceptron
need for the backward pass, in BF16. One sequence of 8,192 tokens a rank; parameters are gathered in
BF16.

Sources: Grattafiori and others, "The Llama 3 Herd of Models", 2024, tables 3 (configurations) and 4
(throughput); Korthikanti and others, "Reducing Activation Recomputation in Large Transformer
Models", MLSys 2023, for what layers keep.
"""

from pathlib import Path
from typing import NamedTuple

from planner.jsonio.profiles import encode_profile
from planner.layers import Layer
from planner.profiles import Profile, Provenance

FOLDER = Path(__file__).parent / "derived"
TOKENS = 8192
FLOPS = 400 * 10**12
BYTES = 2
"""Of a number in BF16."""


class Model(NamedTuple):
    """A configuration: blocks, width, width of the perceptron, of keys and values, vocabulary."""

    blocks: int
    width: int
    hidden: int
    keys: int
    vocabulary: int = 128_256


MODELS = {
    "llama3-8b": Model(32, 4096, 14336, 1024),
    "llama3-70b": Model(80, 8192, 28672, 1024),
    "llama3-405b": Model(126, 16384, 53248, 1024),
}


def layer(
    model: Model, name: str, numbers: int, kept: int, scores: int = 0, *, computes: bool = True
) -> Layer:
    """Return a layer of so many parameters, that keeps so many numbers a token."""
    operations = (2 * numbers * TOKENS if computes else 0) + scores
    forward = round(operations * 10**9 / FLOPS)
    return Layer(
        name=name,
        forward_ns=forward,
        backward_ns=2 * forward,
        parameter_bytes=BYTES * numbers,
        activation_bytes=BYTES * model.width * TOKENS,
        kept_bytes=BYTES * kept * TOKENS,
    )


def profile(name: str, model: Model) -> Profile:
    """Return the profile of a model."""
    width, keys, hidden = model.width, model.keys, model.hidden
    attention, perceptron = 2 * width * width + 2 * width * keys + width, 3 * width * hidden + width
    # Of half of all pairs of tokens: a score, and a part of the sum of values.
    scores = 2 * 2 * width * TOKENS * TOKENS // 2
    layers = [layer(model, "embedding", model.vocabulary * width, 0, computes=False)]
    for block in range(model.blocks):
        # What is read, normalised, queries and output; keys and values.
        kept = 4 * width + 2 * keys
        layers.append(layer(model, f"blocks.{block}.attention", attention, kept, scores))
        kept = 2 * width + 3 * hidden
        layers.append(layer(model, f"blocks.{block}.perceptron", perceptron, kept))
    kept = 2 * width + model.vocabulary
    layers.append(layer(model, "head", model.vocabulary * width + width, kept))
    provenance = Provenance(
        kind="synthetic",
        source="derived from the published configuration and throughput by data/make_derived.py; "
        "not measured",
    )
    return Profile(name, tuple(layers), provenance, batch_size=1)


def main() -> None:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, model in MODELS.items():
        (FOLDER / f"{name}.json").write_text(encode_profile(profile(name, model)))


if __name__ == "__main__":
    main()
