"""Multiply-adds and parameters of VGG-16 on CIFAR-10 and of Inception-v1 on ImageNet.

Problem: what is one network's computation relative to the other's, if no time is published?

Method: multiply-adds of one sample, counted from the published shapes. Activations, pooling and
normalisation are left out: they are some per cent of the work.

Source: Simonyan and Zisserman, "Very Deep Convolutional Networks", ICLR 2015, column D, with two
fully connected layers of 512 and 10 as is usual for CIFAR-10; Szegedy et al., "Going Deeper with
Convolutions", CVPR 2015, Table 1, without the auxiliary classifiers.
"""

from typing import NamedTuple


class Work(NamedTuple):
    """What one sample takes, and what a network consists of.

    Attributes
    ----------
    multiply_adds : int
        Of a forward pass of one sample.
    parameters : int
        Weights and biases.
    """

    multiply_adds: int
    parameters: int

    def __add__(self, other: object) -> "Work":
        assert isinstance(other, Work)
        return Work(self.multiply_adds + other.multiply_adds, self.parameters + other.parameters)


def layer(inputs: int, outputs: int, kernel: int = 1, side: int = 1) -> Work:
    """Return a convolution with an output of side² places; a full layer if nothing is said."""
    weights = inputs * outputs * kernel**2
    return Work(weights * side**2, weights + outputs)


VGG16 = (
    (32, (64, 64)),
    (16, (128, 128)),
    (8, (256, 256, 256)),
    (4, (512, 512, 512)),
    (2, (512, 512, 512)),
)
"""Side of the images and channels of its 3×3 convolutions, between poolings."""


def vgg16_on_cifar10() -> Work:
    """Return VGG-16's work on images of 32×32."""
    work, channels = Work(0, 0), 3
    for side, outputs in VGG16:
        for output in outputs:
            work += layer(channels, output, 3, side)
            channels = output
    return work + layer(512, 512) + layer(512, 10)


INCEPTION = (
    (28, 192, (64, 96, 128, 16, 32, 32)),
    (28, 256, (128, 128, 192, 32, 96, 64)),
    (14, 480, (192, 96, 208, 16, 48, 64)),
    (14, 512, (160, 112, 224, 24, 64, 64)),
    (14, 512, (128, 128, 256, 24, 64, 64)),
    (14, 512, (112, 144, 288, 32, 64, 64)),
    (14, 528, (256, 160, 320, 32, 128, 128)),
    (7, 832, (256, 160, 320, 32, 128, 128)),
    (7, 832, (384, 192, 384, 48, 128, 128)),
)
"""Side, input channels, and outputs of 1×1, reduction, 3×3, reduction, 5×5 and of the pooling's."""


def inception_v1() -> Work:
    """Return Inception-v1's work on images of 224×224."""
    work = layer(3, 64, 7, 112) + layer(64, 64, 1, 56) + layer(64, 192, 3, 56)
    for side, inputs, (one, before_three, three, before_five, five, pooled) in INCEPTION:
        work += layer(inputs, one, 1, side)
        work += layer(inputs, before_three, 1, side) + layer(before_three, three, 3, side)
        work += layer(inputs, before_five, 1, side) + layer(before_five, five, 5, side)
        work += layer(inputs, pooled, 1, side)
    return work + layer(1024, 1000)
