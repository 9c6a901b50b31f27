"""Measures the texts of Sent140: where they end, and how the published tokeniser splits them.

    python -m benchmarks.choices.texts > benchmarks/results/texts.json

It reads the copies in $SNOWBALL_DATA.
"""

import json
from collections.abc import Sequence

import torch
from torch import Tensor

from benchmarks.measuring.timing import Case
from snowball.data import Split, load_dataset, locate_dataset
from snowball.data.sets.sent140 import list_sources, read_tweets
from snowball.data.text import NO_WORD, TOKENISERS

SETS, PARTS = ("sent140", "sent140-users"), ("train", "test")


def measure_set(name: str) -> list[Case]:
    """Measure both splits of a set."""
    datasets = [load_dataset(name, tokeniser) for tokeniser in TOKENISERS]
    location = locate_dataset(name)
    assert location is not None
    cases = []
    for part, source in zip(PARTS, list_sources(location.path), strict=True):
        splits = [getattr(dataset, part) for dataset in datasets]
        texts = [text for _, _, text in read_tweets(*source)]
        found = {"found": [compute_found_share(split) for split in splits], "moved": compute_moved_share(splits[0])}
        cases.append({"name": name, "part": part, "texts": len(texts), **found, **compare_tokenisers(texts)})
    return cases


def compute_moved_share(split: Split) -> float:
    """Return the share of texts whose last word differs from the last word that has a vector."""
    return float((find_ends(split.inputs != NO_WORD) != find_ends(split.inputs > NO_WORD)).double().mean())


def find_ends(is_word: Tensor) -> Tensor:
    """Return the end (n,) of each text, given a mask of words is_word (n, 25); 0 for a text without words."""
    return (torch.arange(is_word.shape[1]) * is_word).amax(1)


def compute_found_share(split: Split) -> float:
    """Return the share of words that have a vector."""
    return int((split.inputs > NO_WORD).sum()) / int((split.inputs != NO_WORD).sum())


def compare_tokenisers(texts: Sequence[str]) -> Case:
    """Return words per text by each tokeniser, and the shares of texts with other words and another number of words."""
    cut = [[split(text) for split in TOKENISERS.values()] for text in texts]
    words = [sum(map(len, cuts)) / len(texts) for cuts in zip(*cut, strict=True)]
    other = sum(ours != published for ours, published in cut) / len(texts)
    return {"words": words, "other": other, "other_length": sum(len(a) != len(b) for a, b in cut) / len(texts)}


if __name__ == "__main__":
    print(
        json.dumps({"cases": [case for name in SETS if locate_dataset(name) for case in measure_set(name)]}, indent=1)
    )
