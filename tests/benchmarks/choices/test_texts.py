"""The benchmark of texts counts and compares what it names."""

import torch

from benchmarks.choices.texts import compare_tokenisers, compute_found_share, compute_moved_share
from snowball.data import Split


def test_texts_that_end_in_a_word_without_a_vector_are_counted() -> None:
    texts = torch.tensor([[5, 6, 0, 0], [5, -1, 0, 0], [-1, 6, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.int32)
    split = Split(texts, torch.zeros(5, dtype=torch.int64))
    assert compute_moved_share(split) == 0.2
    assert compute_found_share(split) == 4 / 7


def test_tokenisers_are_compared_text_by_text() -> None:
    case = compare_tokenisers(["so it is", "well...no", "it\u2019s", "a b &amp; c"])
    assert case == {"words": [9 / 4, 9 / 4], "other": 0.75, "other_length": 0.5}
