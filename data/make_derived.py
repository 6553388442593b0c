"""Makes the profiles in ``data/derived``: models of public size, by formula, not measured.

    python data/make_derived.py

Sizes follow from the published configurations. Times are those of two floating-point operations a
parameter and token in the forward pass, twice as many in the backward one, and of attention's
scores, all operations alike, at the throughput that was reported for training: of Llama 3 400
TFLOP/s a GPU in BF16 (405B on 16,384 H100); of DeepSeek-V3 180,000 hours of an H800 for 10^12
tokens, with 37 · 10^9 active parameters. A layer keeps what a fused attention and a gated
perceptron need for the backward pass, in BF16; parameters are gathered in BF16. One sequence a
rank: 8,192 tokens, of DeepSeek-V3 4,096.

Of DeepSeek-V3 only the dense part is sharded: all but the routed experts, which other ranks hold.
Those eight that a token takes count as computation; sending tokens to them does not.

Sources: Grattafiori and others, "The Llama 3 Herd of Models", 2024, tables 3 (configurations) and 4
(throughput); DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 4.2 and table 1;
Korthikanti and others, "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023,
for what layers keep.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from planner.jsonio.profiles import encode_profile
from planner.model.layers import Layer
from planner.model.profiles import Profile, Provenance

FOLDER = Path(__file__).parent / "derived"
BYTES = 2
"""Of a number in BF16."""


class Llama(NamedTuple):
    """A configuration: blocks, width, width of the perceptron, of keys and values, vocabulary."""

    blocks: int
    width: int
    hidden: int
    keys: int
    vocabulary: int = 128_256
    tokens: int = 8192
    flops: int = 400 * 10**12


class DeepSeek(NamedTuple):
    """A configuration with latent attention and experts."""

    blocks: int = 61
    dense: int = 3  # blocks with a perceptron of their own in place of experts
    width: int = 7168
    hidden: int = 18_432
    expert: int = 2048
    active: int = 8
    heads: int = 128
    queries: int = 1536  # width of what queries are made of
    latent: int = 512  # and keys and values
    head: int = 128
    rotary: int = 64
    vocabulary: int = 129_280
    tokens: int = 4096
    flops: int = 6 * 37 * 10**9 * 10**12 // (180_000 * 3600)


MODELS: dict[str, Llama | DeepSeek] = {
    "llama3-8b": Llama(32, 4096, 14336, 1024),
    "llama3-70b": Llama(80, 8192, 28672, 1024),
    "llama3-405b": Llama(126, 16384, 53248, 1024),
    "deepseek-v3-dense": DeepSeek(),
}


def layer(
    model: Llama | DeepSeek,
    name: str,
    numbers: int,
    kept: int,
    scores: int = 0,
    *,
    active: int | None = None,
) -> Layer:
    """Return a layer of so many parameters, that keeps so many numbers a token."""
    operations = 2 * (numbers if active is None else active) * model.tokens + scores
    forward = round(operations * 10**9 / model.flops)
    return Layer(
        name=name,
        forward_ns=forward,
        backward_ns=2 * forward,
        parameter_bytes=BYTES * numbers,
        activation_bytes=BYTES * model.width * model.tokens,
        kept_bytes=BYTES * kept * model.tokens,
    )


def llama(model: Llama) -> Iterator[Layer]:
    """Yield the layers of the blocks of a Llama."""
    width, keys, hidden = model.width, model.keys, model.hidden
    attention, perceptron = 2 * width * width + 2 * width * keys + width, 3 * width * hidden + width
    # Of half of all pairs of tokens: a score, and a part of the sum of values.
    scores = 2 * 2 * width * model.tokens * model.tokens // 2
    for block in range(model.blocks):
        # What is read, normalised, queries and output; keys and values.
        kept = 4 * width + 2 * keys
        yield layer(model, f"blocks.{block}.attention", attention, kept, scores)
        kept = 2 * width + 3 * hidden
        yield layer(model, f"blocks.{block}.perceptron", perceptron, kept)


def deepseek(model: DeepSeek) -> Iterator[Layer]:
    """Yield the layers of the blocks of DeepSeek-V3, without routed experts."""
    width, heads, head, rotary = model.width, model.heads, model.head, model.rotary
    queries = model.queries * (width + 1 + heads * (head + rotary))
    keys = width * (model.latent + rotary) + model.latent * (1 + heads * 2 * head)
    attention = queries + keys + heads * head * width + width
    scores = 2 * heads * (2 * head + rotary) * model.tokens * model.tokens // 2
    # What is read, normalised, and both latent; queries, keys, values and output of all heads.
    kept = 2 * width + model.queries + model.latent + heads * (5 * head + rotary)
    for block in range(model.blocks):
        yield layer(model, f"blocks.{block}.attention", attention, kept, scores)
        name = f"blocks.{block}.perceptron"
        if block < model.dense:
            numbers = 3 * width * model.hidden + width
            yield layer(model, name, numbers, 2 * width + 3 * model.hidden)
        else:
            expert = 3 * width * model.expert
            yield layer(
                model,
                name,
                expert + width,
                2 * width + 3 * model.expert * (1 + model.active),
                active=expert * (1 + model.active),
            )


def profile(name: str, model: Llama | DeepSeek) -> Profile:
    """Return the profile of a model."""
    size = model.vocabulary * model.width
    blocks = llama(model) if isinstance(model, Llama) else deepseek(model)
    layers = (
        layer(model, "embedding", size, 0, active=0),
        *blocks,
        layer(model, "head", size + model.width, 2 * model.width + model.vocabulary),
    )
    provenance = Provenance(
        kind="synthetic",
        source="derived from the published configuration and throughput by data/make_derived.py; "
        "not measured",
    )
    return Profile(name, layers, provenance, batch_size=1)


def main() -> None:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, model in MODELS.items():
        (FOLDER / f"{name}.json").write_text(encode_profile(profile(name, model)))


if __name__ == "__main__":
    main()
