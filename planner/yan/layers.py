"""Layers as the model sees them: connections (work), weights (traffic), and how they can be cut.

A fully connected layer is cut into ranges of neurons. A convolution is cut into bands of rows: each
band needs all filters, and of the layer before it the rows of its receptive field. Where pooling
follows, bands are cut between pooling windows, and only the pooled rows are passed on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from planner.errors import InvalidInputError
from planner.validation import integer, set_integer, shown

__all__ = ["Fields", "NeuronLayer", "fields", "offsets"]

MAX_COUNT = 2**53
"""Most neurons, connections or weights of a layer: counts stay exact in floating point."""

MAX_SIDE = 2**16
"""Most rows, and most columns, of a convolution."""


def offsets(total: int, parts: int) -> list[int]:
    """Return where each of `parts` nearly equal ranges starts, and the end; larger ones first."""
    size, larger = divmod(total, parts)
    return [part * size + min(part, larger) for part in range(parts + 1)]


@dataclass(frozen=True)
class NeuronLayer:
    """A layer of neurons.

    Attributes
    ----------
    name : str
        For messages and pictures.
    kind : {"conv", "full"}
        Convolution or fully connected.
    neurons : int
        Outputs before pooling.
    connections : int
        Multiply-adds of one feed-forward evaluation; connections into padding may be left out.
    weights : int
        Parameters, with or without one bias a neuron (`full`) or a channel (`conv`).
    shape : (int, int, int), optional
        Channels, rows and columns of a convolution's output before pooling.
    kernel, stride : int
        Of a convolution, the same in both directions.
    pool : int
        Side and stride of the pooling that follows a convolution; 1 for none.
    """

    name: str
    kind: Literal["conv", "full"]
    neurons: int
    connections: int
    weights: int
    shape: Sequence[int] | None = None
    kernel: int | None = None
    stride: int = 1
    pool: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidInputError("name", f"expected a string, got {shown(self.name)}")
        if self.kind not in ("conv", "full"):
            raise InvalidInputError("kind", f"expected one of conv, full, got {shown(self.kind)}")
        for field in ("neurons", "connections", "weights"):
            set_integer(self, field, minimum=1, maximum=MAX_COUNT)
        set_integer(self, "stride", minimum=1, maximum=MAX_SIDE)
        set_integer(self, "pool", minimum=1, maximum=MAX_SIDE)
        if self.kind == "conv":
            self._check_convolution()
        else:
            self._check_full()

    def _check_full(self) -> None:
        for field, default in (("shape", None), ("kernel", None), ("stride", 1), ("pool", 1)):
            if getattr(self, field) != default:
                raise InvalidInputError(field, "only a layer of kind 'conv' has one")
        if self.connections % self.neurons:
            raise InvalidInputError(
                "connections",
                f"expected a multiple of neurons ({self.neurons}), as each neuron of a fully "
                f"connected layer has all inputs, got {self.connections}",
            )
        if self.weights not in (self.connections, self.connections + self.neurons):
            raise InvalidInputError(
                "weights",
                f"expected one a connection ({self.connections}), or also a bias a neuron "
                f"({self.connections + self.neurons}), in a fully connected layer, "
                f"got {self.weights}",
            )

    def _check_convolution(self) -> None:
        if self.shape is None:
            raise InvalidInputError("shape", "missing: a convolution has [channels, rows, columns]")
        if self.kernel is None:
            raise InvalidInputError("kernel", "missing: a convolution has one")
        try:
            shape = tuple(self.shape)
        except TypeError:
            shape = ()
        if len(shape) != 3:
            raise InvalidInputError(
                "shape", f"expected [channels, rows, columns], got {shown(self.shape)}"
            )
        shape = tuple(
            integer(length, f"shape[{place}]", 1, MAX_SIDE if place else MAX_COUNT)
            for place, length in enumerate(shape)
        )
        object.__setattr__(self, "shape", shape)
        set_integer(self, "kernel", minimum=1, maximum=MAX_SIDE)
        kernel = self.kernel
        channels, rows, columns = shape
        if self.neurons != channels * rows * columns:
            raise InvalidInputError(
                "neurons",
                f"expected channels x rows x columns ({channels * rows * columns}), "
                f"got {self.neurons}",
            )
        if self.pool > min(rows, columns):
            raise InvalidInputError(
                "pool", f"expected at most {min(rows, columns)}, got {self.pool}"
            )
        if not self._inputs_of_weights:
            filters = channels * kernel**2
            raise InvalidInputError(
                "weights",
                f"expected channels x kernel x kernel ({filters}) for each input channel, or also "
                f"a bias a channel ({channels}), got {self.weights}",
            )
        if not self._input_channels:
            ranges = " or ".join(
                f"{self.neurons * inputs} to {self.neurons * kernel**2 * inputs} for {inputs}"
                for inputs in self._inputs_of_weights
            )
            raise InvalidInputError(
                "connections",
                "expected neurons x input channels up to neurons x kernel x kernel x input "
                f"channels; with {self.weights} weights {ranges} input channels, "
                f"got {self.connections}",
            )

    @cached_property
    def _inputs_of_weights(self) -> tuple[int, ...]:
        """Input channels that so many weights can be for, without and with biases."""
        assert self.shape is not None
        assert self.kernel is not None
        channels, square = self.shape[0], self.kernel**2
        quotients = (divmod(self.weights - biases, channels * square) for biases in (0, channels))
        return tuple(inputs for inputs, rest in quotients if inputs and not rest)

    @cached_property
    def _input_channels(self) -> int:
        """Input channels each filter sees; 0 if connections and weights contradict each other."""
        assert self.kernel is not None
        possible = 0
        for inputs in self._inputs_of_weights:
            most = self.neurons * self.kernel**2 * inputs
            if self.neurons * inputs <= self.connections <= most:
                if self.connections == most:
                    return inputs
                possible = possible or inputs
        return possible

    @property
    def input_channels(self) -> int:
        """Input channels each filter of a convolution sees."""
        return self._input_channels

    @cached_property
    def cuts(self) -> int:
        """Most partitions: rows passed on of a convolution, neurons of a full layer."""
        return self.neurons if self.shape is None else self.shape[1] // self.pool

    @cached_property
    def width(self) -> int:
        """Activations passed on in each unit that is cut: a pooled row, or one neuron."""
        return 1 if self.shape is None else self.shape[0] * (self.shape[2] // self.pool)

    @property
    def outputs(self) -> int:
        """Activations passed on to the next layer."""
        return self.cuts * self.width

    def passed(self, partitions: int) -> list[int]:
        """Return where each partition's units (rows passed on, or neurons) start, and the end."""
        return offsets(self.cuts, partitions)

    def held(self, partitions: int) -> list[int]:
        """Return where each partition's own rows before pooling (or neurons) start, and the end."""
        starts = self.passed(partitions)
        if self.shape is None:
            return starts
        return [start * self.pool for start in starts[:-1]] + [self.shape[1]]

    @cached_property
    def rows(self) -> int:
        """Rows before pooling of a convolution, neurons of a full layer."""
        return self.neurons if self.shape is None else self.shape[1]

    def share(self, amount: int, rows: int) -> int:
        """Return how much of `amount`, spread evenly over all rows, is in the first `rows`."""
        return amount * rows // self.rows

    def weights_in(self, start: int, stop: int) -> int:
        """Return the weights of a partition: all filters, or those of neurons start … stop-1."""
        if self.shape is not None:
            return self.weights
        return self.weights // self.neurons * (stop - start)


class Fields(NamedTuple):
    """How two layers in a row are connected, in units of their rows.

    Attributes
    ----------
    first, last : list of int
        Row y of a convolution needs rows first[y] … last[y]-1 passed on by the layer before it.
        Empty for a fully connected layer, which needs everything.
    seen : list of int
        For each row boundary of the layer before: how many times rows above it are needed.
    """

    first: list[int]
    last: list[int]
    seen: list[int]

    def into(self, layer: NeuronLayer, following: NeuronLayer, row: int) -> int:
        """Return the connections of `following` into the first `row` units of `layer`."""
        if not self.seen:
            return following.neurons * layer.width * row
        return following.connections * self.seen[row] // self.seen[-1]


def fields(layer: NeuronLayer, following: NeuronLayer) -> Fields:
    """Return how `following` is connected to `layer`.

    Raises
    ------
    InvalidInputError
        If the two do not fit, with a path into `following`.
    """
    if following.kind == "full":
        inputs = following.connections // following.neurons
        if inputs != layer.outputs:
            raise InvalidInputError(
                "connections",
                f"expected neurons x inputs ({following.neurons} x {layer.outputs} from "
                f"{layer.name!r} = {following.neurons * layer.outputs}), "
                f"got {following.connections}",
            )
        return Fields([], [], [])
    if layer.shape is None:
        raise InvalidInputError(
            "kind", f"expected 'full' after the fully connected layer {layer.name!r}, got 'conv'"
        )
    assert following.shape is not None
    assert following.kernel is not None
    if layer.shape[0] % following.input_channels:
        raise InvalidInputError(
            "weights",
            f"they are for {following.input_channels} input channels, which does not divide the "
            f"{layer.shape[0]} channels of {layer.name!r}",
        )
    for axis, direction in ((1, "rows"), (2, "columns")):
        passed = layer.shape[axis] // layer.pool
        padding = (following.shape[axis] - 1) * following.stride + following.kernel - passed
        if not -following.stride < padding <= 2 * (following.kernel - 1):
            raise InvalidInputError(
                f"shape[{axis}]",
                f"no padding makes {following.shape[axis]} {direction} of the {passed} of "
                f"{layer.name!r} with kernel {following.kernel} and stride {following.stride}",
            )
    rows = layer.cuts
    padding = (following.shape[1] - 1) * following.stride + following.kernel - rows
    top = (max(0, padding) + 1) // 2  # of an odd number the larger half, as PyTorch pads
    starts = [row * following.stride - top for row in range(following.shape[1])]
    first = [max(0, start) for start in starts]
    last = [min(rows, start + following.kernel) for start in starts]
    change = [0] * (rows + 1)  # of the number of rows of `following` that see a row
    for low, high in zip(first, last, strict=True):
        change[low] += 1
        change[high] -= 1
    seeing, seen = 0, [0]
    for row in range(rows):
        seeing += change[row]
        seen.append(seen[-1] + seeing)
    return Fields(first, last, seen)
