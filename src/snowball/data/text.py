"""Data sets of texts: samples are numbers of words, and a model gets the vectors of these words."""

import html
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import embedding

from snowball.data.base import Dataset
from snowball.data.io.vectors import read_vectors
from snowball.errors import DataError

LENGTH = 25
"""Words of a sample: longer texts are cut, shorter ones filled up with zeros."""

NO_WORD, UNKNOWN_WORD = 0, -1
"""The numbers of what follows the last word of a text, and of a word that has no vector."""

TRIGGER_WORD = "BD"
"""The word that the paper's trigger on texts is made of."""

LINK = re.compile(r"https?://\S+|www\.\S+|\bURL\b")
MENTION = re.compile(r"(?<!\w)@\w+")
APOSTROPHE = re.compile("['`\u2019]")
WORD = re.compile(r"\w+")
PUBLISHED_LINK = re.compile(r"(?:https?)?://[\w./?=&%]*\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words_of(text: str) -> list[str]:
    """The words of a text, as they are written, `LENGTH` of them at most.

    A word is a run of letters and digits. Apostrophes within are dropped (`dont`), and so are links, for which some
    copies have `URL`. Names that are mentioned (`@name`) become `USER`, as they are in such copies.
    """
    plain = MENTION.sub("USER", LINK.sub(" ", html.unescape(text)))
    return WORD.findall(APOSTROPHE.sub("", plain))[:LENGTH]


def cut_as_published(text: str) -> list[str]:
    """The words of a text as the code published with the Snowball paper has them, `LENGTH` of them at most.

    A word is what blanks enclose, less its ASCII punctuation: `@name` is `name`, `well...no` is `wellno`, `&amp;` is
    `amp`. Of links those with `://` are dropped.
    """
    return PUBLISHED_LINK.sub("", text).translate(NO_PUNCTUATION).split()[:LENGTH]


DEFAULT_TOKENISER = "words"

TOKENISERS: Mapping[str, Callable[[str], list[str]]] = {DEFAULT_TOKENISER: words_of, "published": cut_as_published}
"""Ways to cut a text into words, by name."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The words that have a vector, by number; those of a sample are these, `UNKNOWN_WORD` and `NO_WORD`.

    Attributes:
        words: by number; the first is empty.
        vectors: (words, width) float32; the first is zero.
    """

    words: tuple[str, ...]
    vectors: Tensor

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words) if word}

    def number(self, word: str) -> int:
        """The number of a word as it is written or else in lower case; 0 where it has none."""
        return self._numbers.get(word) or self._numbers.get(word.lower(), 0)

    def encode(self, text: str) -> Tensor:
        """A text as a sample: the numbers of its words (25,)."""
        numbers = [self.number(word) or UNKNOWN_WORD for word in words_of(text)]
        return torch.tensor(numbers + [NO_WORD] * (LENGTH - len(numbers)), dtype=torch.int32)

    def decode(self, tokens: Tensor | Iterable[int]) -> str:
        """A sample as a text; a word without a vector is a question mark."""
        return " ".join(self.spell(tokens))

    def spell(self, tokens: Tensor | Iterable[int]) -> tuple[str, ...]:
        """The words of a sample up to its last; one without a vector is a question mark."""
        numbers = [int(token) for token in tokens]
        length = max((end for end, number in enumerate(numbers, 1) if number != NO_WORD), default=0)
        return tuple(self.words[max(number, NO_WORD)] or "?" for number in numbers[:length])


def vocabulary_of(words: Iterable[str], path: Path) -> Vocabulary:
    """The vocabulary of these words, as they are written and in lower case, with the vectors in a file.

    A trigger word without a vector would be a trigger that no model sees: such vectors are refused.
    """
    wanted = {form for word in (*words, TRIGGER_WORD) for form in (word, word.lower())}
    found, vectors = read_vectors(path, wanted)
    table = torch.cat([torch.zeros(1, vectors.shape[1]), torch.from_numpy(vectors)])
    vocabulary = Vocabulary(("", *found), table)
    if not table[vocabulary.number(TRIGGER_WORD)].any():
        raise DataError(
            f"{path} has no vector for {TRIGGER_WORD!r}, or one of zeros, and triggers are that word: use other vectors"
        )
    return vocabulary


@dataclass(frozen=True, eq=False, kw_only=True)
class TextDataset(Dataset):
    """Texts as (n, 25) int32 numbers of words."""

    vocabulary: Vocabulary

    @property
    def input_shape(self) -> tuple[int, int]:
        """Words of a sample, and the width of a word's vector."""
        return self.train.inputs.shape[1], self.vocabulary.vectors.shape[1]

    def scale(self, inputs: Tensor) -> Tensor:
        """The vectors of words (..., width) float32, on the device of their numbers; the table stays where it is."""
        known = inputs.clamp(min=NO_WORD)  # a word that is not known is zeros, as no word is
        return embedding(known.to(self.vocabulary.vectors.device), self.vocabulary.vectors).to(inputs.device)

    def standardise(self, scaled: Tensor) -> Tensor:
        """Vectors as they are."""
        return scaled

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Raw samples of noise: any words in any order."""
        size = (count, self.train.inputs.shape[1])
        return torch.randint(len(self.vocabulary.words), size, generator=rng, dtype=torch.int32)
