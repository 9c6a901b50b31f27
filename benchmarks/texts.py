"""Where the texts of Sent140 end: at their last word, or at the last word that has a vector.

    python benchmarks/texts.py > benchmarks/results/texts.json

Measured are the copies in $SNOWBALL_DATA.
"""

import json

import torch
from torch import Tensor

from snowball.data import Split, TextDataset, load, where
from snowball.data.text import NO_WORD
from timing import Case

SETS = ("sent140", "sent140-users")


def compare(name: str) -> Case:
    """How often the last word of a text is not the last that has a vector, in either split."""
    dataset = load(name)
    assert isinstance(dataset, TextDataset)
    shares = {f"{part}_moved": moved_share(split) for part, split in parts(dataset).items()}
    return {"name": name, **{part: len(split) for part, split in parts(dataset).items()}, **shares}


def parts(dataset: TextDataset) -> dict[str, Split]:
    """The splits of a data set by name."""
    return {"train": dataset.train, "test": dataset.test}


def moved_share(split: Split) -> float:
    """The share of texts whose last word has no vector."""
    return float((find_ends(split.inputs != NO_WORD) != find_ends(split.inputs > NO_WORD)).double().mean())


def find_ends(is_word: Tensor) -> Tensor:
    """(n,) where texts end, of which is_word (n, 25) says where a word is; 0 in a text of none."""
    return (torch.arange(is_word.shape[1]) * is_word).amax(1)


if __name__ == "__main__":
    print(json.dumps({"cases": [compare(name) for name in SETS if where(name)]}, indent=1))
