"""Common part of executors in which each rank updates some elements of the parameters."""

from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.autograd.graph import increment_version

from planner.runtime.executors.base import Executor, parameters_of
from planner.runtime.executors.channel import Ticket
from planner.runtime.executors.collected import Gradients, version
from planner.runtime.model.parameters import Elements
from planner.runtime.optimisers.sliced import SlicedOptimizer, flat_values


class SlicedExecutor(Executor):
    """An executor in which each rank updates some elements; see `optimisers.sliced`.

    ``executor.optimizer.state_dict()`` is the state of these elements alone: a checkpoint needs one
    of every rank, and as many ranks to resume. `close` gives the optimiser its parameters back,
    without that state.

    Values written into the model's parameters between steps count if all ranks write them after
    `finish`.
    """

    def begin(self, batches: Sequence[Iterable[nn.Parameter]], slices: Iterable[Elements]) -> None:
        """Take over the optimiser, to update this rank's slices, none of them empty.

        The gradients of each of `batches` leave together.
        """
        instead = "to clip or scale gradients takes their means, which no rank has as a whole"
        self.gradients = Gradients(batches, self.names, self.stop, instead)
        self.pulling: list[Ticket] = []
        """The pulls of the current step."""
        self.sliced = SlicedOptimizer(self.optimizer, slices)
        self.flats = {parameter: flat_values(parameter) for parameter in self.names}
        """Destination of new values: the parameter's own memory if it is contiguous."""
        self._groups = parameters_of(self.optimizer)
        self._versions = {parameter: version(parameter) for parameter in self.names}

    def remember(self) -> None:
        """End a backward pass: remember the settings for the updates of slices that follow."""
        self.gradients.forget()
        self.flats = {parameter: flat_values(parameter) for parameter in self.names}
        self.sliced.remember(self.flats)
        self._versions = {parameter: version(parameter) for parameter in self.names}
        self.gate.pending = set(self.names)

    def finish_all(self) -> None:
        """Finish all pending parameters, and serve the other ranks to the end."""
        for ticket in self.pulling:
            self.channel.wait(ticket)
        for parameter in tuple(self.gate.pending):
            if parameter in self.gate.pending:  # otherwise finished with another parameter
                self.finish_one(parameter)

    def put_in_place(self, parameter: nn.Parameter, batch: int) -> None:
        """Complete a pending parameter whose new values have arrived, the last ones in `batch`."""
        if version(parameter) != self._versions[parameter]:
            self.stop(
                f"{self.names[parameter]} was changed while new values were on their way: call "
                "finish() before",
                batch,
            )
        self.gate.pending.discard(parameter)
        with torch.inference_mode(mode=False), torch.no_grad():
            values = self.flats[parameter]
            if values.data_ptr() == parameter.data_ptr():
                increment_version(parameter)  # autograd must see the write of the channel's thread
            else:
                parameter.copy_(values.view_as(parameter))
        self._versions[parameter] = version(parameter)

    def close(self) -> None:
        """Finish, remove the hooks, and give the optimiser its parameters back."""
        if not self._closed:
            try:
                super().close()
            finally:
                self.sliced.restore()
