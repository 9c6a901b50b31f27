"""Gradients of several copies of a model at once, for models with hand-written ones.

Engines train clients in groups with them, because a step of a small model is mostly the overhead of its operations.
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from snowball.models.gru import GRUGradients, TextGRU

StackedGradients = Callable[[Sequence[Tensor], Tensor, Tensor, Sequence[Tensor]], None]
"""Writes the gradients of the mean cross-entropy of g models.

It takes their parameters, each (g, ...) in the model's order, inputs (g, n, ...), labels (g, n), and the tensors for
the gradients, which are shaped as the parameters. Those of a model do not depend on the other models, to the last bit.
"""

STACKED_GRADIENTS: dict[type[nn.Module], Callable[[], StackedGradients]] = {TextGRU: GRUGradients}
"""By the exact class: a subclass may compute something else."""


def make_stacked_gradients(model: nn.Module) -> StackedGradients | None:
    """Make the hand-written gradients of a model; None if torch has to differentiate it."""
    make = STACKED_GRADIENTS.get(type(model))
    return make() if make else None
