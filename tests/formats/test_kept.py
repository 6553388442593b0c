"""What autograd keeps, by kinds, and as autograd itself says."""

import pytest

from planner.formats.importers.pipedream import kept_bytes


def chain(*kinds: str) -> dict[str, int]:
    """Return what each keeps of 100 bytes in a chain; kinds are distinct."""
    links = [(one, one + 1) for one in range(len(kinds) - 1)]
    return dict(zip(kinds, kept_bytes(kinds, [100] * len(kinds), links), strict=True))


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        # A batch normalisation needs its input, ReLU and the next convolution ReLU's output.
        (("Conv2d", "BatchNorm2d", "ReLU", "Linear"), (100, 0, 100, 100)),
        # A mask of a byte for each four bytes; the linear layer needs what dropout leaves.
        (("Linear", "ReLU", "Dropout", "Classifier"), (0, 100, 125, 100)),
        # The positions of maxima are eight bytes each.
        (("Conv2d", "ReLU", "MaxPool2d", "View", "Linear"), (0, 100, 300, 0, 100)),
        (("LSTM", "__getitem__", "Add", "Unheard"), (100, 0, 100, 100)),
        (("Conv2d", "Concat", "ReLU"), (0, 0, 100)),
    ],
)
def test_a_chain_keeps_what_gradients_are_computed_from(
    kinds: tuple[str, ...], kept: tuple[int, ...]
) -> None:
    assert tuple(chain(*kinds).values()) == kept


def test_an_output_several_read_counts_once() -> None:
    """A residual block: the sum needs nothing of the shortcut, the convolution does."""
    kinds = ("ReLU", "Conv2d", "Add", "ReLU")
    assert kept_bytes(kinds, (8, 4, 2, 1), [(0, 1), (1, 2), (0, 2), (2, 3)]) == (8, 0, 0, 1)


@pytest.mark.slow
def test_the_rules_are_autograds() -> None:
    """The same model, by its kinds and by the tensors autograd saves."""
    pytest.importorskip("torch")
    import torch
    from torch import nn

    from planner.profiling import measure

    layers = (
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 5 * 5, 7),
        nn.ReLU(),
        nn.Linear(7, 2),
    )
    data = torch.randn(2, 3, 16, 16)
    profile = measure(nn.Sequential(*layers), (data,), name="m", source="s", repetitions=1)
    kinds = [type(layer).__name__ for layer in layers]
    sizes = [layer.activation_bytes for layer in profile.layers]
    links = [(one, one + 1) for one in range(len(kinds) - 1)]
    by_rule = sum(kept_bytes(kinds, sizes, links))
    saved = sum(layer.remembered_bytes for layer in profile.layers)
    # Beside outputs autograd saves the batch itself, and statistics of a few bytes a channel; the
    # last output, which only a stand-in for the loss reads, it does not.
    extra = data.numel() * 4 - sizes[-1]
    assert by_rule + extra <= saved <= by_rule + extra + 200
    assert saved - data.numel() * 4 < sum(sizes)
