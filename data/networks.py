"""The networks whose communication the papers plan, written from their published tables.

Each factory takes no required argument and returns a model in training mode with a tuple of
example inputs. What computes on parameters, every pooling and every activation is a submodule with
a name of its own; only joins (concatenation, residual sum, flattening, the attention product) are
plain functions. Nothing works in place. With the default batch sizes an iteration takes some
seconds on two CPU cores.
"""

from collections import OrderedDict
from functools import partial

import torch
from torch import Tensor, nn

Example = tuple[nn.Module, tuple[Tensor, ...]]
"""A model and the inputs to call it with."""

Kernel = int | tuple[int, int]
Step = tuple[int, Kernel] | tuple[int, Kernel, int]

IMAGENET_CLASSES = 1000
IMAGENET_22K_CLASSES = 21_841


def chain(**layers: nn.Module) -> nn.Sequential:
    """Return the named layers one behind the other."""
    return nn.Sequential(OrderedDict(layers))


def convolution(
    inputs: int,
    outputs: int,
    kernel: Kernel,
    stride: int = 1,
    *,
    valid: bool = False,
    norm: float | None = None,
    relu: bool = True,
) -> nn.Sequential:
    """Return a convolution with what follows it.

    It is padded by half of its kernel unless it is `valid`. A batch normalisation with epsilon
    `norm` replaces the bias; a rectifier ends it.
    """
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (0, 0) if valid else (height // 2, width // 2)
    conv = nn.Conv2d(inputs, outputs, (height, width), stride, padding, bias=norm is None)
    layers: dict[str, nn.Module] = {"conv": conv}
    if norm is not None:
        layers["norm"] = nn.BatchNorm2d(outputs, eps=norm)
    if relu:
        layers["relu"] = nn.ReLU()
    return chain(**layers)


def row(inputs: int, *steps: Step, norm: float | None = None) -> nn.Sequential:
    """Return convolutions in a row; a step gives channels, kernel and, if it is valid, stride."""
    layers: dict[str, nn.Module] = {}
    for number, (outputs, kernel, *stride) in enumerate(steps, start=1):
        layers[f"conv{number}"] = convolution(
            inputs, outputs, kernel, *stride, valid=bool(stride), norm=norm
        )
        inputs = outputs
    return chain(**layers)


class Branches(nn.Module):
    """Branches on one input, joined along the channels."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        for name, branch in branches.items():
            self.add_module(name, branch)

    def forward(self, images: Tensor) -> Tensor:
        """Return the outputs of all branches as one."""
        return torch.cat([branch(images) for branch in self.children()], dim=1)


class Classifier(nn.Module):
    """Features of an image, and a head that takes them as one vector."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class."""
        scores: Tensor = self.head(torch.flatten(self.features(images), start_dim=1))
        return scores


def dense(first: int, inputs: int, widths: tuple[int, ...], classes: int) -> nn.Sequential:
    """Return linear layers numbered from `first`, all but the last with rectifier and dropout."""
    layers: dict[str, nn.Module] = {}
    for number, outputs in enumerate(widths, start=first):
        layers[f"fc{number}"] = nn.Linear(inputs, outputs)
        layers[f"relu{number}"] = nn.ReLU()
        layers[f"dropout{number}"] = nn.Dropout(0.5)
        inputs = outputs
    return chain(**layers, **{f"fc{first + len(widths)}": nn.Linear(inputs, classes)})


def lenet5(*, batch_size: int = 128) -> Example:
    """Return LeNet-5 as TensorFlow's MNIST tutorial varies it."""
    features = chain(
        conv1=convolution(1, 32, 5),
        pool1=nn.MaxPool2d(2),
        conv2=convolution(32, 64, 5),
        pool2=nn.MaxPool2d(2),
    )
    model = Classifier(features, dense(1, 64 * 7 * 7, (1024,), 10))
    return model, (torch.randn(batch_size, 1, 28, 28),)


def alexnet_v2(*, batch_size: int = 64) -> Example:
    """Return AlexNet in one column (Krizhevsky, 2014), without response normalisation."""
    features = chain(
        conv1=convolution(3, 64, 11, 4, valid=True),
        pool1=nn.MaxPool2d(3, stride=2),
        conv2=convolution(64, 192, 5),
        pool2=nn.MaxPool2d(3, stride=2),
        conv3=convolution(192, 384, 3),
        conv4=convolution(384, 384, 3),
        conv5=convolution(384, 256, 3),
        pool5=nn.MaxPool2d(3, stride=2),
    )
    model = Classifier(features, dense(6, 256 * 5 * 5, (4096, 4096), IMAGENET_CLASSES))
    return model, (torch.randn(batch_size, 3, 224, 224),)


def vgg(depths: tuple[int, ...], classes: int, batch_size: int) -> Example:
    """Return a VGG network (Simonyan & Zisserman, 2015) with so many convolutions per stage."""
    layers: dict[str, nn.Module] = {}
    inputs = 3
    for stage, (depth, outputs) in enumerate(
        zip(depths, (64, 128, 256, 512, 512), strict=True), start=1
    ):
        for number in range(1, depth + 1):
            layers[f"conv{stage}_{number}"] = convolution(inputs, outputs, 3)
            inputs = outputs
        layers[f"pool{stage}"] = nn.MaxPool2d(2)
    model = Classifier(chain(**layers), dense(6, 512 * 7 * 7, (4096, 4096), classes))
    return model, (torch.randn(batch_size, 3, 224, 224),)


def vgg16(*, batch_size: int = 4) -> Example:
    """Return VGG-16, configuration D."""
    return vgg((2, 2, 3, 3, 3), IMAGENET_CLASSES, batch_size)


def vgg19(*, batch_size: int = 4) -> Example:
    """Return VGG-19, configuration E."""
    return vgg((2, 2, 4, 4, 4), IMAGENET_CLASSES, batch_size)


def vgg19_22k(*, batch_size: int = 4) -> Example:
    """Return VGG-19 for the classes of ImageNet-22K."""
    return vgg((2, 2, 4, 4, 4), IMAGENET_22K_CLASSES, batch_size)


def googlenet(*, batch_size: int = 32) -> Example:
    """Return GoogLeNet (Szegedy et al., 2015) without auxiliary classifiers."""
    table = {  # inputs, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection
        "inception_3a": (192, 64, 96, 128, 16, 32, 32),
        "inception_3b": (256, 128, 128, 192, 32, 96, 64),
        "inception_4a": (480, 192, 96, 208, 16, 48, 64),
        "inception_4b": (512, 160, 112, 224, 24, 64, 64),
        "inception_4c": (512, 128, 128, 256, 24, 64, 64),
        "inception_4d": (512, 112, 144, 288, 32, 64, 64),
        "inception_4e": (528, 256, 160, 320, 32, 128, 128),
        "inception_5a": (832, 256, 160, 320, 32, 128, 128),
        "inception_5b": (832, 384, 192, 384, 48, 128, 128),
    }
    pool = partial(nn.MaxPool2d, 3, stride=2, ceil_mode=True)
    layers: dict[str, nn.Module] = {
        "conv1": convolution(3, 64, 7, 2),
        "pool1": pool(),
        "norm1": nn.LocalResponseNorm(5),
        "conv2_reduce": convolution(64, 64, 1),
        "conv2": convolution(64, 192, 3),
        "norm2": nn.LocalResponseNorm(5),
        "pool2": pool(),
    }
    for name, (inputs, one, reduce3, three, reduce5, five, projection) in table.items():
        layers[name] = Branches(
            branch1x1=row(inputs, (one, 1)),
            branch3x3=row(inputs, (reduce3, 1), (three, 3)),
            branch5x5=row(inputs, (reduce5, 1), (five, 5)),
            branch_pool=chain(pool=nn.MaxPool2d(3, 1, 1), conv=row(inputs, (projection, 1))),
        )
        if name in ("inception_3b", "inception_4e"):
            layers[f"pool{name[-2]}"] = pool()
    layers["pool5"] = nn.AdaptiveAvgPool2d(1)
    head = chain(dropout=nn.Dropout(0.4), fc=nn.Linear(1024, IMAGENET_CLASSES))
    return Classifier(chain(**layers), head), (torch.randn(batch_size, 3, 224, 224),)


normed_row = partial(row, norm=1e-3)


def pooled(inputs: int, outputs: int) -> nn.Sequential:
    """Return an average pooling and a projection."""
    return chain(pool=nn.AvgPool2d(3, 1, 1), project=normed_row(inputs, (outputs, 1)))


def split(inputs: int, *steps: Step) -> nn.Sequential:
    """Return a row that ends in two kernels side by side."""
    last = steps[-1][0]
    sides = Branches(
        side1x3=normed_row(last, (384, (1, 3))), side3x1=normed_row(last, (384, (3, 1)))
    )
    return chain(row=normed_row(inputs, *steps), sides=sides)


def mixed_35(inputs: int, projection: int) -> Branches:
    """Return a module of Inception-v3's 35x35 grid."""
    return Branches(
        branch1x1=normed_row(inputs, (64, 1)),
        branch5x5=normed_row(inputs, (48, 1), (64, 5)),
        branch3x3=normed_row(inputs, (64, 1), (96, 3), (96, 3)),
        branch_pool=pooled(inputs, projection),
    )


def mixed_17(width: int) -> Branches:
    """Return a module of Inception-v3's 17x17 grid, its 7x7 kernels factorised."""
    first, flat, tall = (width, 1), (width, (1, 7)), (width, (7, 1))
    return Branches(
        branch1x1=normed_row(768, (192, 1)),
        branch7x7=normed_row(768, first, flat, (192, (7, 1))),
        branch7x7_twice=normed_row(768, first, tall, flat, tall, (192, (1, 7))),
        branch_pool=pooled(768, 192),
    )


def mixed_8(inputs: int) -> Branches:
    """Return a module of Inception-v3's 8x8 grid."""
    return Branches(
        branch1x1=normed_row(inputs, (320, 1)),
        branch3x3=split(inputs, (384, 1)),
        branch3x3_twice=split(inputs, (448, 1), (384, 3)),
        branch_pool=pooled(inputs, 192),
    )


class InceptionV3(nn.Module):
    """Inception-v3 (Szegedy et al., 2016) with its auxiliary classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = chain(
            stem1=normed_row(3, (32, 3, 2), (32, 3, 1), (64, 3)),
            pool1=nn.MaxPool2d(3, stride=2),
            stem2=normed_row(64, (80, 1), (192, 3, 1)),
            pool2=nn.MaxPool2d(3, stride=2),
            mixed_5b=mixed_35(192, 32),
            mixed_5c=mixed_35(256, 64),
            mixed_5d=mixed_35(288, 64),
            mixed_6a=Branches(
                branch3x3=normed_row(288, (384, 3, 2)),
                branch3x3_twice=normed_row(288, (64, 1), (96, 3), (96, 3, 2)),
                branch_pool=nn.MaxPool2d(3, stride=2),
            ),
            mixed_6b=mixed_17(128),
            mixed_6c=mixed_17(160),
            mixed_6d=mixed_17(160),
            mixed_6e=mixed_17(192),
        )
        auxiliary = normed_row(768, (128, 1), (768, 5, 1))
        self.auxiliary = Classifier(
            chain(pool=nn.AvgPool2d(5, stride=3), row=auxiliary),
            chain(fc=nn.Linear(768, IMAGENET_CLASSES)),
        )
        upper = chain(
            mixed_7a=Branches(
                branch3x3=normed_row(768, (192, 1), (320, 3, 2)),
                branch7x7=normed_row(768, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)),
                branch_pool=nn.MaxPool2d(3, stride=2),
            ),
            mixed_7b=mixed_8(1280),
            mixed_7c=mixed_8(2048),
            pool=nn.AdaptiveAvgPool2d(1),
        )
        head = chain(dropout=nn.Dropout(0.5), fc=nn.Linear(2048, IMAGENET_CLASSES))
        self.upper = Classifier(upper, head)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of the classes and those of the auxiliary classifier."""
        middle = self.lower(images)
        auxiliary = self.auxiliary(middle)
        return self.upper(middle), auxiliary


def inception_v3(*, batch_size: int = 8) -> Example:
    """Return Inception-v3; its auxiliary normalisation needs two samples at least."""
    return InceptionV3(), (torch.randn(batch_size, 3, 299, 299),)


class Bottleneck(nn.Module):
    """A residual block that strides in its 3x3 convolution."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        normed = partial(convolution, norm=1e-5)
        outputs = 4 * width
        self.body = chain(
            conv1=normed(inputs, width, 1),
            conv2=normed(width, width, 3, stride),
            conv3=normed(width, outputs, 1, relu=False),
        )
        self.shortcut = (
            None if inputs == outputs else normed(inputs, outputs, 1, stride, relu=False)
        )
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Return the rectified sum of body and shortcut."""
        residual = self.body(images)
        shortcut = images if self.shortcut is None else self.shortcut(images)
        rectified: Tensor = self.relu(residual + shortcut)
        return rectified


def resnet(depths: tuple[int, ...], batch_size: int) -> Example:
    """Return a ResNet of bottlenecks (He et al., 2016) with so many blocks per stage."""
    layers: dict[str, nn.Module] = {
        "conv1": convolution(3, 64, 7, 2, norm=1e-5),
        "pool1": nn.MaxPool2d(3, stride=2, padding=1),
    }
    inputs = 64
    for stage, (depth, width) in enumerate(zip(depths, (64, 128, 256, 512), strict=True), start=2):
        for number in range(1, depth + 1):
            stride = 2 if number == 1 and stage > 2 else 1
            layers[f"block{stage}_{number}"] = Bottleneck(inputs, width, stride)
            inputs = 4 * width
    layers["pool5"] = nn.AdaptiveAvgPool2d(1)
    model = Classifier(chain(**layers), chain(fc=nn.Linear(inputs, IMAGENET_CLASSES)))
    return model, (torch.randn(batch_size, 3, 224, 224),)


def resnet50(*, batch_size: int = 16) -> Example:
    """Return ResNet-50."""
    return resnet((3, 4, 6, 3), batch_size)


def resnet152(*, batch_size: int = 8) -> Example:
    """Return ResNet-152."""
    return resnet((3, 8, 36, 3), batch_size)


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, states: Tensor) -> Tensor:
        """Return for each position what it reads from itself and the earlier ones."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.query_key_value(states).chunk(3, dim=-1)
        )
        read = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        projected: Tensor = self.projection(read.transpose(1, 2).flatten(-2))
        return projected


class TransformerBlock(nn.Module):
    """Attention and a two-layer perceptron, each normalised first and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.perceptron = chain(
            fc1=nn.Linear(width, 4 * width),
            gelu=nn.GELU(approximate="tanh"),
            fc2=nn.Linear(4 * width, width),
        )

    def forward(self, states: Tensor) -> Tensor:
        """Return the states of the next layer."""
        read: Tensor = states + self.attention(self.norm1(states))
        thought: Tensor = read + self.perceptron(self.norm2(read))
        return thought


class GPT2(nn.Module):
    """GPT-2 (Radford et al., 2019); the head shares its weight with the token embedding."""

    def __init__(self, vocabulary: int, context: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = chain(
            **{f"block{number}": TransformerBlock(width, heads) for number in range(1, depth + 1)}
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return for each position the scores of the next token."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.tokens(tokens) + self.positions(places)
        scores: Tensor = self.head(self.norm(self.blocks(states)))
        return scores


def gpt2_small(*, batch_size: int = 1, length: int = 512) -> Example:
    """Return the smallest GPT-2 and sequences of `length` tokens (up to 1024)."""
    model = GPT2(vocabulary=50_257, context=1024, width=768, depth=12, heads=12)
    return model, (torch.randint(50_257, (batch_size, length)),)
