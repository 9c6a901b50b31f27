"""The features of samples: what enters the last layer of a model."""

from torch import Tensor, nn

from snowball.errors import SettingError
from snowball.layout import Layout


def compute_features(model: nn.Module, layout: Layout, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the features (n, h) and the class scores (n, classes) of a batch.

    The last weight layer must be dense and make the class scores; anything else is refused.
    """
    name = layout.weights[-1].rpartition(".")[0]
    head = model.get_submodule(name)
    if not isinstance(head, nn.Linear):
        raise SettingError(f"features are what enters a last dense layer, and {name or 'the model'} is not one")
    entered: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, arguments: entered.extend(arguments))
    try:
        scores: Tensor = model(inputs)
    finally:
        handle.remove()
    if len(entered) != 1 or entered[0].shape != (len(inputs), head.in_features):
        raise SettingError(f"features are what enters the last layer once per batch, which {name} does not do")
    return entered[0], scores
