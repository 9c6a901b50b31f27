"""The benchmark of texts: it counts what it names."""

import torch

from snowball.data import Split
from texts import moved_share


def test_texts_that_end_in_a_word_without_a_vector_are_counted() -> None:
    texts = torch.tensor([[5, 6, 0, 0], [5, -1, 0, 0], [-1, 6, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.int32)
    assert moved_share(Split(texts, torch.zeros(5, dtype=torch.int64))) == 0.2
