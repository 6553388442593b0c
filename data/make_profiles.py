"""Measures the papers' networks on this machine and writes ``data/profiles/``.

    python data/make_profiles.py                # all ten, some ten minutes on two cores
    python data/make_profiles.py vgg19 lenet5   # some
    python data/make_profiles.py --shapes       # what follows from the networks, times unchanged

Run it on a machine that does nothing else. Each profile says where and how it was measured, where
the network's size is published, and what the planning papers print of it.
"""

import argparse
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import networks
import torch

from planner.jsonio import decode_profile, encode_profile
from planner.model.profiles import Profile
from planner.profiling import measure
from planner.profiling.shapes import describe

PROFILES = Path(__file__).parent / "profiles"

SHAPES = (
    "kinds, shapes, kernels, connections and weights follow from the network's definition "
    "(python data/make_profiles.py --shapes): they were not measured"
)


@dataclass(frozen=True, slots=True)
class Network:
    """A network and what is published of its size.

    Attributes
    ----------
    name : str
        Name of its factory.
    factory : callable
        Makes the model and its example inputs.
    parameters : int
        Published total.
    published_by : str
        Where that total, or what it follows from, is published.
    paper_figures : str
        What the planning papers print, and why it differs.
    """

    name: str
    factory: Callable[..., networks.Example]
    parameters: int
    published_by: str
    paper_figures: str


NETWORKS = (
    Network(
        "googlenet",
        networks.googlenet,
        6_998_552,
        "Table of models in the documentation of HewlettPackard/dlcookbook-dlbs "
        "(docs/models/models.md), for BVLC Caffe's bvlc_googlenet",
        "iBatch prints 5 M: unexplained. The layers here sum to 7.0 M (6.0 M without the last "
        "one); 5 M would be a twelfth of AlexNet's 60 M, the ratio the GoogLeNet paper names.",
    ),
    Network(
        "inception_v3",
        networks.inception_v3,
        27_161_264,
        "torchvision's documentation, num_params of Inception_V3_Weights.IMAGENET1K_V1",
        "iBatch prints 27 M: the same, auxiliary classifier included. Caramel prints 196 tensors "
        "and 103.5 MiB: without the 18,112 scales of the 96 batch normalisations there remain "
        "2 x 96 + 4 tensors and 27,143,152 parameters = 103.54 MiB, TF-Slim's total.",
    ),
    Network(
        "vgg16",
        networks.vgg16,
        138_357_544,
        "torchvision's documentation, num_params of VGG16_Weights.IMAGENET1K_V1",
        "Caramel prints 32 tensors and 527.8 MiB: the same (527.79 MiB).",
    ),
    Network(
        "vgg19",
        networks.vgg19,
        143_667_240,
        "torchvision's documentation, num_params of VGG19_Weights.IMAGENET1K_V1",
        "iBatch prints 143 M: the same, cut off. BML prints 143.65 M (548 MB): the weights "
        "without the 14,696 biases are 143,652,544; with or without, 548 MiB.",
    ),
    Network(
        "vgg19_22k",
        networks.vgg19_22k,
        229_052_817,
        "Poseidon's documentation as 229 M; the exact total is VGG-19's and 4097 parameters for "
        "each of the 21,841 - 1000 further classes",
        "iBatch prints 229 M: the same.",
    ),
    Network(
        "alexnet_v2",
        networks.alexnet_v2,
        50_303_912,
        "Table of the TF-Slim models in visipedia/tf_classification (nets/README.md)",
        "Caramel prints 16 tensors and 191.9 MiB: the same (191.89 MiB).",
    ),
    Network(
        "resnet50",
        networks.resnet50,
        25_557_032,
        "torchvision's documentation, num_params of ResNet50_Weights.IMAGENET1K_V1",
        "Caramel prints 108 tensors and 97.4 MiB for ResNet-v1-50: with one vector instead of two "
        "behind each of the 53 convolutions (a bias, or a normalisation without scale) there are "
        "2 x 53 + 2 tensors and 25,530,472 parameters = 97.39 MiB.",
    ),
    Network(
        "resnet152",
        networks.resnet152,
        60_192_808,
        "torchvision's documentation, num_params of ResNet152_Weights.IMAGENET1K_V1",
        "Caramel prints 363 tensors and 229.5 MiB for ResNet-v2-152, another network. Both follow "
        "for TF-Slim's built without its argument scope: 155 convolutions with bias, 51 "
        "normalisations without scale and the last layer are 2 x 155 + 51 + 2 tensors and "
        "60,165,032 parameters = 229.51 MiB.",
    ),
    Network(
        "lenet5",
        networks.lenet5,
        3_274_634,
        "Sum of the layers of TensorFlow's MNIST tutorial (mnist_deep.py)",
        "BML prints 3.27 M (12.5 MB): the same (12.49 MiB). That BML means this variant is "
        "inferred from the number; LeCun's LeNet-5 has about 60,000 parameters.",
    ),
    Network(
        "gpt2_small",
        networks.gpt2_small,
        124_439_808,
        "KerasHub's preset gpt2_base_en (gpt2_presets.py)",
        "Not in these papers.",
    ),
)
"""All networks of this file."""


def main() -> None:
    """Measure the networks named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    known = {network.name: network for network in NETWORKS}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(known)}")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument(
        "--shapes",
        action="store_true",
        help="measure nothing: work out kinds, shapes, connections and weights of the layers again",
    )
    options = parser.parse_args()
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    PROFILES.mkdir(exist_ok=True)
    for name in options.names or known:
        if options.shapes:
            path = PROFILES / f"{name}.json"
            profile = with_shapes(known[name], decode_profile(path.read_bytes()))
            path.write_text(encode_profile(profile), encoding="utf-8")
            continue
        write_profile(known[name], options)
        gc.collect()


def with_shapes(network: Network, profile: Profile) -> Profile:
    """Return a profile with what follows from its network's definition, and a note that says so."""
    assert profile.batch_size is not None
    with torch.device("meta"):  # shapes alone: nothing is computed
        model, inputs = network.factory(batch_size=profile.batch_size)
    described = describe(model, inputs, profile.batch_size)
    assert described is not None
    layers = tuple(
        replace(layer, **known._asdict())
        for layer, known in zip(profile.layers, described, strict=True)
    )
    notes = (*(note for note in profile.provenance.notes if note != SHAPES), SHAPES)
    return replace(profile, layers=layers, provenance=replace(profile.provenance, notes=notes))


def write_profile(network: Network, options: argparse.Namespace) -> None:
    """Measure one network and write its profile."""
    model, inputs = network.factory()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    profile = measure(
        model,
        inputs,
        name=network.name,
        source=f"python data/make_profiles.py {network.name}",
        warmup=options.warmup,
        repetitions=options.repetitions,
        batch_size=inputs[0].shape[0],
        progress=lambda done, of: print(f"{network.name}: {done}/{of}", file=sys.stderr),
    )
    notes = (
        f"input {'x'.join(map(str, inputs[0].shape))}",
        f"{network.parameters} parameters, as published: {network.published_by}",
        network.paper_figures,
        *profile.provenance.notes,
    )
    profile = replace(profile, provenance=replace(profile.provenance, notes=notes))
    path = PROFILES / f"{network.name}.json"
    path.write_text(encode_profile(profile), encoding="utf-8")
    print(
        f"{path}: {profile.forward_ns / 1e6:.1f} ms forward, {profile.backward_ns / 1e6:.1f} back"
    )


if __name__ == "__main__":
    main()
