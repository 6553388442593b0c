"""Layers of the model: connections (work), weights (traffic), and how they can be cut.

A fully connected layer is cut into ranges of neurons. A convolution is cut into bands of rows: each
band needs all filters and, of the layer before, the rows of its receptive field. If pooling
follows, bands are cut between pooling windows, and only the pooled rows are passed on. A block of
layers is cut like a convolution if its rows need only some rows of its input; otherwise it is not
cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, NamedTuple

from planner.model.errors import InvalidInputError
from planner.model.validation import integer, one_of, set_exact, set_integer, shown

MAX_COUNT = 2**53
"""Most neurons, connections or weights of a layer: counts stay exact in floating point."""

MAX_SIDE = 2**16
"""Most rows, and most columns, of a convolution."""


def offsets(total: int, parts: int) -> list[int]:
    """Return the starts of `parts` nearly equal ranges, and the end; larger ranges first."""
    size, larger = divmod(total, parts)
    return [part * size + min(part, larger) for part in range(parts + 1)]


@dataclass(frozen=True)
class NeuronLayer:
    """A layer of neurons.

    Attributes
    ----------
    name : str
        For messages and pictures.
    kind : {"conv", "full", "block"}
        Convolution, fully connected, or several layers in one.
    neurons : int
        Outputs before pooling; of a block its outputs.
    connections : int
        Multiply-adds of one feed-forward evaluation; connections into padding may be left out.
    weights : int
        Parameters, with or without one bias a neuron (`full`) or a channel (`conv`).
    shape : (int, int, int), optional
        Channels, rows and columns of the output of a convolution before pooling, or of a block.
    kernel, stride : int
        Of a convolution, the same in both directions. Of a block: the input rows that an output row
        needs, and the offset between those of consecutive rows. A block without a kernel is not cut
        and needs its whole input.
    pool : int
        Side and stride of the pooling that follows a convolution; 1 for none.
    forward_ns, backward_ns : Fraction, optional
        Measured computation of a sample, all functions included, instead of the time from
        connections, neurons and constants; the backward pass includes the update of the weights.
    """

    name: str
    kind: Literal["conv", "full", "block"]
    neurons: int
    connections: int
    weights: int
    shape: Sequence[int] | None = None
    kernel: int | None = None
    stride: int = 1
    pool: int = 1
    forward_ns: Fraction | None = None
    backward_ns: Fraction | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidInputError("name", f"expected a string, got {shown(self.name)}")
        one_of(self.kind, ("conv", "full", "block"), "kind")
        for field in ("neurons", "connections", "weights"):
            least = 0 if (self.kind, field) == ("block", "weights") else 1
            set_integer(self, field, minimum=least, maximum=MAX_COUNT)
        set_integer(self, "stride", minimum=1, maximum=MAX_SIDE)
        set_integer(self, "pool", minimum=1, maximum=MAX_SIDE)
        self._check_times()
        if self.kind == "conv":
            self._check_convolution()
        elif self.kind == "block":
            self._check_block()
        else:
            self._check_full()

    def _check_times(self) -> None:
        for field, other in (("forward_ns", "backward_ns"), ("backward_ns", "forward_ns")):
            if getattr(self, field) is not None:
                set_exact(self, field)
            elif getattr(self, other) is not None:
                raise InvalidInputError(field, f"missing: it comes with {other}")

    def _check_full(self) -> None:
        for field, default in (("shape", None), ("kernel", None), ("stride", 1), ("pool", 1)):
            if getattr(self, field) != default:
                raise InvalidInputError(field, "a fully connected layer has none")
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
        channels, rows, columns = self._check_shape()
        if self.kernel is None:
            raise InvalidInputError("kernel", "missing: a convolution has one")
        set_integer(self, "kernel", minimum=1, maximum=MAX_SIDE)
        kernel = self.kernel
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
        if not self.input_channels:
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

    def _check_block(self) -> None:
        self._check_shape()
        if self.pool != 1:
            raise InvalidInputError("pool", "a block has none: its shape is what it passes on")
        if self.kernel is not None:
            set_integer(self, "kernel", minimum=1, maximum=MAX_SIDE)
        elif self.stride != 1:
            raise InvalidInputError("stride", "a block without a kernel has none")

    def _check_shape(self) -> tuple[int, int, int]:
        """Check channels, rows and columns, and return them."""
        if self.shape is None:
            what = "convolution" if self.kind == "conv" else "block"
            raise InvalidInputError("shape", f"missing: a {what} has [channels, rows, columns]")
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
        channels, rows, columns = shape
        if self.neurons != channels * rows * columns:
            raise InvalidInputError(
                "neurons",
                f"expected channels x rows x columns ({channels * rows * columns}), "
                f"got {self.neurons}",
            )
        return channels, rows, columns

    @cached_property
    def _inputs_of_weights(self) -> tuple[int, ...]:
        """Numbers of input channels that match the weights, without and with biases."""
        assert self.shape is not None
        assert self.kernel is not None
        channels, square = self.shape[0], self.kernel**2
        quotients = (divmod(self.weights - biases, channels * square) for biases in (0, channels))
        return tuple(inputs for inputs, rest in quotients if inputs and not rest)

    @cached_property
    def input_channels(self) -> int:
        """Input channels of each filter of a convolution; 0 if connections contradict weights."""
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
    def needs_all(self) -> bool:
        """Whether every part needs the whole output of the layer before."""
        return self.kernel is None

    @cached_property
    def units(self) -> int:
        """Units passed on: rows of a convolution or a block, neurons of a full layer."""
        return self.neurons if self.shape is None else self.shape[1] // self.pool

    @property
    def cuts(self) -> int:
        """Most partitions: the units passed on, but 1 for a block that is not cut."""
        return self.units if self.kind != "block" or self.kernel is not None else 1

    @cached_property
    def width(self) -> int:
        """Activations in each unit passed on: of a pooled row, or of one neuron."""
        return 1 if self.shape is None else self.shape[0] * (self.shape[2] // self.pool)

    @property
    def outputs(self) -> int:
        """Activations passed on to the next layer."""
        return self.units * self.width

    def times(self, factor: Fraction) -> "NeuronLayer":
        """Return the layer with its measured times, if it has any, multiplied by `factor`."""
        if self.forward_ns is None or self.backward_ns is None:
            return self
        return replace(
            self, forward_ns=factor * self.forward_ns, backward_ns=factor * self.backward_ns
        )

    def passed(self, partitions: int) -> list[int]:
        """Return the start of each partition's units (rows passed on, or neurons), and the end."""
        return offsets(self.units, partitions)

    def held(self, partitions: int) -> list[int]:
        """Return the start of each partition's rows before pooling (or neurons), and the end."""
        starts = self.passed(partitions)
        if self.shape is None:
            return starts
        return [start * self.pool for start in starts[:-1]] + [self.shape[1]]

    @cached_property
    def rows(self) -> int:
        """Rows before pooling of a convolution, rows of a block, neurons of a full layer."""
        return self.neurons if self.shape is None else self.shape[1]

    def share(self, amount: int, rows: int) -> int:
        """Return the part of `amount`, spread evenly over all rows, in the first `rows`."""
        return amount * rows // self.rows

    def weights_in(self, start: int, stop: int) -> int:
        """Return the weights of a partition: all filters, or those of neurons start … stop-1."""
        if self.shape is not None:
            return self.weights
        return self.weights // self.neurons * (stop - start)


class Fields(NamedTuple):
    """Connections of two consecutive layers, by rows; empty if the later layer needs everything.

    Row y of the later layer needs rows first[y] … last[y]-1 passed on by the earlier one. For each
    row boundary of the earlier layer, `seen` counts how many times the rows above it are needed.
    """

    first: list[int]
    last: list[int]
    seen: list[int]

    def into(self, layer: NeuronLayer, following: NeuronLayer, row: int) -> int:
        """Return the connections of `following` into the first `row` units of `layer`."""
        if not self.seen:
            return following.connections * row // layer.units
        return following.connections * self.seen[row] // self.seen[-1]


def fields(layer: NeuronLayer, following: NeuronLayer) -> Fields:
    """Return the connections of `following` to `layer`.

    InvalidInputError, with a path into `following`, if the two do not fit.
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
    if following.kernel is None:
        return Fields([], [], [])
    if layer.shape is None:
        raise InvalidInputError(
            "kind",
            f"expected 'full' after the fully connected layer {layer.name!r}, "
            f"got {following.kind!r}{' with a kernel' * (following.kind == 'block')}",
        )
    assert following.shape is not None
    if following.kind == "conv" and layer.shape[0] % following.input_channels:
        raise InvalidInputError(
            "weights",
            f"they are for {following.input_channels} input channels, which does not divide the "
            f"{layer.shape[0]} channels of {layer.name!r}",
        )
    directions = ((1, "rows"), (2, "columns"))
    for axis, direction in directions if following.kind == "conv" else directions[:1]:
        passed = layer.shape[axis] // layer.pool
        padding = (following.shape[axis] - 1) * following.stride + following.kernel - passed
        if not -following.stride < padding <= 2 * (following.kernel - 1):
            raise InvalidInputError(
                f"shape[{axis}]",
                f"no padding makes {following.shape[axis]} {direction} of the {passed} of "
                f"{layer.name!r} with kernel {following.kernel} and stride {following.stride}",
            )
    rows = layer.units
    padding = (following.shape[1] - 1) * following.stride + following.kernel - rows
    top = (max(0, padding) + 1) // 2  # the larger half of odd padding, as in PyTorch
    starts = [row * following.stride - top for row in range(following.shape[1])]
    first = [max(0, start) for start in starts]
    last = [min(rows, start + following.kernel) for start in starts]
    change = [0] * (rows + 1)  # change of the number of rows of `following` that see a row
    for low, high in zip(first, last, strict=True):
        change[low] += 1
        change[high] -= 1
    seeing, seen = 0, [0]
    for row in range(rows):
        seeing += change[row]
        seen.append(seen[-1] + seeing)
    return Fields(first, last, seen)
