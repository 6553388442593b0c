"""Models that compute, small enough for one processor core: none of them is a shipped profile."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

Trained = tuple[nn.Module, tuple[Tensor, ...]]


class _Residual(nn.Module):
    """Two convolutions beside a shortcut, with normalisation before each."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
        )
        plain = channels == out and stride == 1
        self.shortcut = nn.Identity() if plain else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.body(images) + self.shortcut(images)
        return result


class _Branches(nn.Module):
    """Convolutions of several sizes side by side, and the maximum of the neighbourhood."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, width, 1),
                nn.ReLU(),
                nn.Conv2d(width, width, size, padding=size // 2),
                nn.ReLU(),
            )
            for size in (1, 3, 5)
        )
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(channels, width, 1))

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([*(branch(images) for branch in self.branches), self.pooled(images)], 1)


class _Language(nn.Module):
    """Words in, a distribution over the next word out, one weight for both ends."""

    def __init__(self, words: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(length, width) / 100)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.layers(self.words(words) + self.places, mask=self.mask)
        likely: Tensor = hidden @ self.words.weight.T
        return likely


def transformer() -> Trained:
    """Return six encoder layers of width 304 (27 MB) on 8 sequences of 32."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(304, 4, 1216, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 6), (torch.randn(8, 32, 304),)


def wide_resnet() -> Trained:
    """Return WideResNet-16-4 (11 MB) on 4 images of 32 × 32."""
    torch.manual_seed(0)
    widths = (16, 64, 128, 256)
    blocks: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    for place in range(3):
        blocks.append(_Residual(widths[place], widths[place + 1], 1 + (place > 0)))
        blocks.append(_Residual(widths[place + 1], widths[place + 1], 1))
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)]
    return nn.Sequential(*blocks, *head), (torch.randn(4, 3, 32, 32),)


def language() -> Trained:
    """Return a language model in the manner of GPT-2, of width 256 (17 MB), on 4 × 64 words."""
    torch.manual_seed(0)
    return _Language(4000, 256, 4, 64), (torch.randint(4000, (4, 64)),)


def branching() -> Trained:
    """Return five blocks of four branches each (9 MB) on 8 images of 16 × 16."""
    torch.manual_seed(0)
    width = 96
    blocks = [_Branches(3 if place == 0 else 4 * width, width) for place in range(5)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 1000)]
    return nn.Sequential(*blocks, *head), (torch.randn(8, 3, 16, 16),)


MODELS: Mapping[str, Callable[[], Trained]] = MappingProxyType(
    {
        "transformer": transformer,
        "wide_resnet": wide_resnet,
        "language": language,
        "branching": branching,
    }
)
"""Every model by its name."""
