"""Text data sets: samples are word numbers, and the model receives the vectors of these words."""

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

WORDS_PER_TEXT = 25
"""Words per sample: longer texts are truncated, shorter ones padded with zeros."""

NO_WORD, UNKNOWN_WORD = 0, -1
"""The numbers of the padding after a text, and of a word that has no vector."""

TRIGGER_WORD = "BD"
"""The word that is the paper's trigger for texts."""

LINK = re.compile(r"https?://\S+|www\.\S+|\bURL\b")
MENTION = re.compile(r"(?<!\w)@\w+")
APOSTROPHE = re.compile("['`\u2019]")
WORD = re.compile(r"\w+")
PUBLISHED_LINK = re.compile(r"(?:https?)?://[\w./?=&%]*\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def tokenise_words(text: str) -> list[str]:
    """Split a text into words as they are written, at most `WORDS_PER_TEXT` of them.

    A word is a run of letters and digits. Apostrophes within words are dropped (`dont`), and so are links, which some
    copies of the data replace by `URL`. Mentioned names (`@name`) become `USER`, as in such copies.
    """
    plain = MENTION.sub("USER", LINK.sub(" ", html.unescape(text)))
    return WORD.findall(APOSTROPHE.sub("", plain))[:WORDS_PER_TEXT]


def tokenise_as_published(text: str) -> list[str]:
    """Split a text into words as the code published with the Snowball paper does, at most `WORDS_PER_TEXT` of them.

    Words are separated by blanks and lose their ASCII punctuation: `@name` becomes `name`, `well...no` becomes
    `wellno`, `&amp;` becomes `amp`. Only links with `://` are dropped.
    """
    return PUBLISHED_LINK.sub("", text).translate(NO_PUNCTUATION).split()[:WORDS_PER_TEXT]


DEFAULT_TOKENISER = "words"

TOKENISERS: Mapping[str, Callable[[str], list[str]]] = {
    DEFAULT_TOKENISER: tokenise_words,
    "published": tokenise_as_published,
}
"""Ways to cut a text into words, by name."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The words that have a vector. Samples hold their numbers, `UNKNOWN_WORD` and `NO_WORD`.

    Attributes:
        words: the words by number; the first is empty.
        vectors: (words, width) float32; the first is zero.
    """

    words: tuple[str, ...]
    vectors: Tensor

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words) if word}

    def find_number(self, word: str) -> int:
        """Return the number of a word as written, or else in lower case; 0 if it has none."""
        return self._numbers.get(word) or self._numbers.get(word.lower(), 0)

    def encode(self, text: str) -> Tensor:
        """Encode a text as a sample: the numbers of its words (25,)."""
        numbers = [self.find_number(word) or UNKNOWN_WORD for word in tokenise_words(text)]
        return torch.tensor(numbers + [NO_WORD] * (WORDS_PER_TEXT - len(numbers)), dtype=torch.int32)

    def decode(self, tokens: Tensor | Iterable[int]) -> str:
        """Decode a sample as a text; a word without a vector becomes a question mark."""
        return " ".join(self.list_words(tokens))

    def list_words(self, tokens: Tensor | Iterable[int]) -> tuple[str, ...]:
        """Return the words of a sample without padding; a word without a vector becomes a question mark."""
        numbers = [int(token) for token in tokens]
        length = max((end for end, number in enumerate(numbers, 1) if number != NO_WORD), default=0)
        return tuple(self.words[max(number, NO_WORD)] or "?" for number in numbers[:length])


def build_vocabulary(words: Iterable[str], path: Path) -> Vocabulary:
    """Build the vocabulary of these words, as written and in lower case, from the vectors in a file.

    A file without a vector for the trigger word is rejected, since no model would see the trigger.
    """
    wanted = {form for word in (*words, TRIGGER_WORD) for form in (word, word.lower())}
    found, vectors = read_vectors(path, wanted)
    table = torch.cat([torch.zeros(1, vectors.shape[1]), torch.from_numpy(vectors)])
    vocabulary = Vocabulary(("", *found), table)
    if not table[vocabulary.find_number(TRIGGER_WORD)].any():
        raise DataError(
            f"{path} has no vector for the trigger word {TRIGGER_WORD!r}, or one of zeros: use other vectors"
        )
    return vocabulary


@dataclass(frozen=True, eq=False, kw_only=True)
class TextDataset(Dataset):
    """Texts as (n, 25) int32 word numbers."""

    vocabulary: Vocabulary

    @property
    def input_shape(self) -> tuple[int, int]:
        """The words per sample, and the width of a word's vector."""
        return self.train.inputs.shape[1], self.vocabulary.vectors.shape[1]

    def scale(self, inputs: Tensor) -> Tensor:
        """Look up word vectors, (..., width) float32, on the device of the inputs; the table stays on its device."""
        known = inputs.clamp(min=NO_WORD)  # unknown words and padding are zeros
        return embedding(known.to(self.vocabulary.vectors.device), self.vocabulary.vectors).to(inputs.device)

    def standardise(self, scaled: Tensor) -> Tensor:
        """Return the vectors unchanged."""
        return scaled

    def draw_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Draw raw samples of random words."""
        size = (count, self.train.inputs.shape[1])
        return torch.randint(len(self.vocabulary.words), size, generator=rng, dtype=torch.int32)
