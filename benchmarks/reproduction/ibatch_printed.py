"""What the text of the iBatch paper prints of Fig. 5, beside the default curve, and its methods."""

METHODS = {
    "one_batch": "default",
    "layer_by_layer": "layer by layer",
    "greedy": "iBatch",
    "exact": "best batches",
}
PRINTED = {
    ("googlenet", 30): {"layer_by_layer": 25.0, "greedy": 29.0},
    ("inception_v3", 30): {"layer_by_layer": 24.0, "greedy": 28.0},
    ("vgg19", 30): {"layer_by_layer": 22.0, "greedy": 26.0},
    ("vgg19_22k", 30): {"layer_by_layer": 21.0, "greedy": 25.0},
    ("vgg19_22k", 72): {"layer_by_layer": 32.0, "greedy": 45.0},
}
"""Speed-ups of the text that are compared with; no constant comes from them."""
