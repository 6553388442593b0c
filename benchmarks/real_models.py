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


class _Recurrent(nn.Module):
    """Words in, two LSTM layers, a distribution over the next word out."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, words: Tensor) -> Tensor:
        likely: Tensor = self.head(self.layers(self.words(words))[0])
        return likely


class _Mixing(nn.Module):
    """One block of an MLP-mixer: across patches, then across channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.before_patches, self.before_channels = nn.LayerNorm(width), nn.LayerNorm(width)
        self.patches = _perceptron(patches, 2 * patches)
        self.channels = _perceptron(width, 4 * width)

    def forward(self, hidden: Tensor) -> Tensor:
        mixed: Tensor = self.patches(self.before_patches(hidden).transpose(1, 2)).transpose(1, 2)
        hidden = hidden + mixed
        result: Tensor = hidden + self.channels(self.before_channels(hidden))
        return result


class _Transposed(nn.Module):
    """Channels last."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.transpose(1, 2)


class _Recommending(nn.Module):
    """Several tables of categories, the products of their vectors, and a perceptron on top."""

    def __init__(self, tables: int, categories: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(categories, width) for _ in range(tables))
        self.dense = _perceptron(64, 512, width)
        self.top = _perceptron((tables + 1) ** 2, 1024, 1)

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        vectors = [table(column) for table, column in zip(self.tables, categories, strict=True)]
        each = torch.stack([self.dense(dense), *vectors], 1)
        likely: Tensor = self.top(torch.bmm(each, each.transpose(1, 2)).flatten(1))
        return likely


class _Added(nn.Module):
    """A small layer beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = hidden + self.body(hidden)
        return result


class _Translating(nn.Module):
    """A GRU reads words, another one writes words and attends to what was read."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.reader = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.writer = nn.GRU(width, 2 * width, batch_first=True)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.head = nn.Linear(2 * width, words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        read, _ = self.reader(self.source(source))
        written, _ = self.writer(self.target(target))
        likely: Tensor = self.head(written + self.attention(written, read, read)[0])
        return likely


def _perceptron(width: int, hidden: int, out: int | None = None) -> nn.Module:
    return nn.Sequential(
        nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width if out is None else out)
    )


def _separable(channels: int, out: int, stride: int) -> nn.Module:
    """Return a convolution of each channel, and one across channels."""
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, out, 1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(),
    )


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


def recurrent() -> Trained:
    """Return two LSTM layers between 5,000 words (19 MB) on 24 × 48 words."""
    torch.manual_seed(0)
    return _Recurrent(5000, 320), (torch.randint(5000, (24, 48)),)


def mixer() -> Trained:
    """Return eight blocks of an MLP-mixer of width 256 (18 MB) on 8 images of 64 × 64."""
    torch.manual_seed(0)
    stem = [nn.Conv2d(3, 256, 8, 8), nn.Flatten(2)]
    blocks = [_Mixing(64, 256) for _ in range(8)]
    return (
        nn.Sequential(*stem, _Transposed(), *blocks, nn.Flatten(), nn.Linear(64 * 256, 10)),
        (torch.randn(8, 3, 64, 64),),
    )


def recommender() -> Trained:
    """Return eight tables of 8,000 categories and two perceptrons (17 MB) on 8,192 samples."""
    torch.manual_seed(0)
    inputs = torch.randn(8192, 64), torch.randint(8000, (8, 8192))
    return _Recommending(8, 8000, 64), inputs


def deep() -> Trained:
    """Return 80 small layers of width 192 (12 MB) on 1,024 samples."""
    torch.manual_seed(0)
    layers = [_Added(192) for _ in range(80)]
    return nn.Sequential(*layers, nn.Linear(192, 10)), (torch.randn(1024, 192),)


def separable() -> Trained:
    """Return a network of separable convolutions (13 MB) on 8 images of 128 × 128."""
    torch.manual_seed(0)
    widths = (32, 64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024)
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    stem = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    body = [_separable(*row) for row in zip(widths[:-1], widths[1:], strides, strict=True)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 100)]
    return nn.Sequential(*stem, *body, *head), (torch.randn(8, 3, 128, 128),)


def translator() -> Trained:
    """Return two GRUs with attention between 2 × 3,000 words (24 MB) on 24 × 48 words."""
    torch.manual_seed(0)
    inputs = torch.randint(3000, (24, 48)), torch.randint(3000, (24, 48))
    return _Translating(3000, 256), inputs


MODELS: Mapping[str, Callable[[], Trained]] = MappingProxyType(
    {
        "transformer": transformer,
        "wide_resnet": wide_resnet,
        "language": language,
        "branching": branching,
        "recurrent": recurrent,
        "mixer": mixer,
        "recommender": recommender,
        "deep": deep,
        "separable": separable,
        "translator": translator,
    }
)
"""Every model by its name; the last two come after all others: nothing is tuned to them."""

BLOCKS = ("transformer", "wide_resnet", "language", "branching")
"""Models made of blocks, which FSDP2 shards one by one."""
