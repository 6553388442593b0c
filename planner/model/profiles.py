"""Profiles: the measured layers and dataflow graph of one model on one machine, with provenance.

A profile lists the layers of a model in the order of forward computation. Its *chain* merges layers
without parameters into a neighbour, for planners of contiguous batches (Wang et al., iBatch:
"adjacent convolutional layer and pooling layer are regarded as one layer since there are no
parameters in pooling layers"). Its *dataflow* is a graph of operations and parameters, for planners
of single parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from planner.model.errors import InvalidInputError
from planner.model.graphs import Graph, Phase
from planner.model.layers import Layer, graph_of_layers, merged, with_spreads
from planner.model.validation import integer, one_of, set_integer, shown

KINDS = ("measured", "imported", "synthetic")

NUMBER_BYTES = 4  # of a single-precision number, the type of most parameters


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the numbers of a profile come from.

    Attributes
    ----------
    kind : {"measured", "imported", "synthetic"}
        Measured here, read from another tool's file, or invented (never to be shown as measured).
    source : str
        The command, file or paper.
    date : str
        Day of the measurement, ISO 8601; empty if unknown.
    processor : str
        The processor or accelerator; empty if unknown.
    threads : int or None
        Threads of the computation.
    warmup, repetitions : int or None
        Runs before the measurement, and measured runs.
    statistic : str
        How the runs became one number, such as "median".
    versions : mapping of str to str
        Versions of the software that matters.
    notes : tuple of str
        Remarks for readers of the numbers.
    warnings : tuple of str
        Why the numbers may be off (`planner.solving.diagnostics`); see `Profile.caveats`.
    """

    kind: Literal["measured", "imported", "synthetic"]
    source: str
    date: str = ""
    processor: str = ""
    threads: int | None = None
    warmup: int | None = None
    repetitions: int | None = None
    statistic: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        one_of(self.kind, KINDS, "kind")


@dataclass(frozen=True, slots=True)
class Profile:
    """A profiled model.

    Attributes
    ----------
    name : str
        Name of the model.
    layers : tuple of Layer
        In the order of forward computation; at least one, unless there is a graph.
    provenance : Provenance
        Where the numbers come from.
    batch_size : int or None
        Samples of one iteration; None if unknown.
    graph : Graph or None
        The dataflow graph; None if only the layers are known.
    fixed_order : bool
        Whether the ops run in the order of the graph whatever a plan says, as in torch's autograd.

    Raises
    ------
    InvalidInputError
        If the profile is empty, sums exceed the range, or two layers have the same parameter.
    """

    name: str
    layers: tuple[Layer, ...]
    provenance: Provenance
    batch_size: int | None = None
    graph: Graph | None = None
    fixed_order: bool = False

    def __post_init__(self) -> None:
        if self.graph is not None and not isinstance(self.graph, Graph):
            raise InvalidInputError("graph", f"expected a Graph, got {shown(self.graph)}")
        if not self.layers and self.graph is None:
            raise InvalidInputError("layers", "expected at least one layer")
        if self.batch_size is not None:
            set_integer(self, "batch_size", minimum=1)
        for name in ("forward_ns", "backward_ns", "parameter_bytes", "activation_bytes"):
            integer(sum(getattr(layer, name) for layer in self.layers), f"layers: sum of {name}")
        integer(sum(layer.pushed_bytes for layer in self.layers), "layers: sum of gradient_bytes")
        integer(
            sum(layer.saved_activation_bytes for layer in self.layers), "layers: sum of kept_bytes"
        )
        first: dict[str, int] = {}
        for position, layer in enumerate(self.layers):
            for place, name in enumerate(layer.parameters):
                if name in first:
                    raise InvalidInputError(
                        f"layers[{position}].parameters[{place}]",
                        f"{shown(name)} given twice, first in layers[{first[name]}]",
                    )
                first[name] = position

    @property
    def parameter_bytes(self) -> int:
        """Size of all parameters, of the layers or else of the graph."""
        if not self.layers and self.graph is not None:
            return sum(parameter.size_bytes for parameter in self.graph.parameters)
        return sum(layer.parameter_bytes for layer in self.layers)

    @property
    def forward_ns(self) -> int:
        """Time of the whole forward pass, of the layers or else of the graph."""
        return self._pass_ns("forward")

    @property
    def backward_ns(self) -> int:
        """Time of the whole backward pass, of the layers or else of the graph."""
        return self._pass_ns("backward")

    def _pass_ns(self, phase: Phase) -> int:
        if not self.layers and self.graph is not None:
            return sum(op.duration_ns for op in self.graph.ops if op.phase == phase)
        return sum(getattr(layer, f"{phase}_ns") for layer in self.layers)

    @property
    def caveats(self) -> tuple[str, ...]:
        """One warning with date and processor if the times may be off; else empty.

        Every answer planned with the profile repeats the warning.
        """
        origin = self.provenance
        if not origin.warnings:
            return ()
        when = f" on {origin.date}" if origin.date else ""
        where = f" ({origin.processor})" if origin.processor else ""
        about = f"profile {self.name}, {origin.kind}{when}{where}, may be off"
        return (f"{about}: {'; '.join(origin.warnings)}",)

    def dataflow(self) -> Graph:
        """Return the dataflow graph; without one, the chain of the layers.

        Ops that are a layer's pass get the layer's spread unless they have one. Without a graph and
        without gradients to send: an InvalidInputError.
        """
        if self.graph is None:
            return graph_of_layers(self.layers, pairwise(range(len(self.layers))))
        return with_spreads(self.graph, self.layers)

    @property
    def op_order(self) -> tuple[str, ...] | None:
        """Names of the dataflow's ops in the order in which they run; None if plans may choose."""
        if not self.fixed_order:
            return None
        graph = self.dataflow()
        return graph.names_of((*graph.pass_order("backward"), *graph.pass_order("forward")))

    @property
    def element_bytes(self) -> int:
        """Bytes that are never cut apart: 4 if all parameter sizes are multiples of 4, else 1."""
        whole = all(
            parameter.size_bytes % NUMBER_BYTES == 0 for parameter in self.dataflow().parameters
        )
        return NUMBER_BYTES if whole else 1

    def layer_parameters(self) -> tuple[tuple[str, ...], ...] | None:
        """Return the names of each layer's parameters; None if a layer with gradients has none."""
        if not any(layer.parameters for layer in self.layers) or any(
            layer.pushed_bytes and not layer.parameters for layer in self.layers
        ):
            return None
        return tuple(layer.parameters for layer in self.layers)

    def chain(self) -> "Profile":
        """Return the profile as a chain of units that each have parameters.

        Branches stay separate units: one device computes them one after the other, in the order of
        the profile. Layers without parameters join the preceding unit, leading ones the next. Sums
        of times and sizes are kept. The graph is left out, because a chain is its own dataflow.
        Where the layers' parameters are known (`layer_parameters`), each unit lists its own.
        Without layers, or parameters: an InvalidInputError.
        """
        if not self.layers:
            raise InvalidInputError(
                "layers",
                f"missing: profile {shown(self.name)} has a dataflow graph only, and a chain is "
                "made of layers",
            )
        units: list[list[Layer]] = []
        leading = True  # no layer with parameters so far
        for layer, names in zip(
            self.layers, self.layer_parameters() or ((),) * len(self.layers), strict=True
        ):
            weightless = not layer.parameter_bytes
            if not units or not (weightless or leading):
                units.append([])
            units[-1].append(replace(layer, parameters=names))
            leading = leading and weightless
        if leading:
            raise InvalidInputError("layers", "expected at least one layer with parameters")
        return Profile(self.name, tuple(map(merged, units)), self.provenance, self.batch_size)

    def scaled(self, computation: Fraction | int) -> "Profile":
        """Return the profile with all times multiplied, each rounded to whole nanoseconds."""
        if computation == 1:
            return self
        graph = None if self.graph is None else self.graph.scaled(computation)
        layers = tuple(layer.scaled(computation) for layer in self.layers)
        return replace(self, layers=layers, graph=graph)
