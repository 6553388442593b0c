"""What executors have in common in which each rank updates some elements of the parameters."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from planner.runtime.executors.base import Executor, parameters_of
from planner.runtime.executors.collected import Gradients, version
from planner.runtime.model.parameters import Elements
from planner.runtime.optimisers.sliced import SlicedOptimizer, flat_values

__all__ = ["SlicedExecutor"]


class SlicedExecutor(Executor):
    """An executor of which each rank updates some elements; see `optimisers.sliced`."""

    def begin(self, batches: Sequence[Iterable[nn.Parameter]], slices: Iterable[Elements]) -> None:
        """Take over the optimiser.

        Parameters
        ----------
        batches : sequence of iterable of Parameter
            Whose gradients leave together.
        slices : iterable of Elements
            This rank's slice of each parameter that it has elements of.
        """
        instead = "to clip or scale gradients takes their means, which no rank has as a whole"
        self.gradients = Gradients(batches, self.names, self.stop, instead)
        self._sliced = SlicedOptimizer(self.optimizer, slices)
        self.flats = {parameter: flat_values(parameter) for parameter in self.names}
        """Where new values of each parameter are written: in its own memory if that is flat."""
        self._groups = parameters_of(self.optimizer)
        self._versions = {parameter: version(parameter) for parameter in self.names}

    def optimise(self, means: Mapping[nn.Parameter, Tensor]) -> None:
        """Update this rank's slices of what the parameters are now, with a gradient for each."""
        self.flats = {parameter: flat_values(parameter) for parameter in self.names}
        with self.trace.span("update", self.steps), self.optimising():
            self._sliced.step(means, self.flats)
        self._versions = {parameter: version(parameter) for parameter in self.names}

    def put_in_place(self, parameter: nn.Parameter, batch: int) -> None:
        """Say that all new values of a pending parameter have arrived, and with what."""
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
                increment_version(parameter)  # as if they had been written here and now
            else:
                parameter.copy_(values.view_as(parameter))
        self._versions[parameter] = version(parameter)

    def close(self) -> None:
        """Finish, leave the model as a plain one, and give the optimiser its parameters back."""
        if not self._closed:
            try:
                super().close()
            finally:
                self._sliced.restore()
