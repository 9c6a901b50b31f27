"""Sentiment140: tweets that are positive or negative, most of them labelled by their smileys.

Go, Bhayani, Huang: Twitter Sentiment Classification using Distant Supervision, 2009.

The test set is the one labelled by hand, without its neutral tweets.
"""

import csv
import io
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from snowball.data.base import Location, Split
from snowball.data.io.cache import Tensors, checksum, kept, pack_words, unpack_words
from snowball.data.io.download import download
from snowball.data.io.formats import corrupt, reading, unpacked
from snowball.data.io.locate import cache_folder, locate, missing, provenance
from snowball.data.io.vectors import NEEDS, find_vectors
from snowball.data.text import (
    DEFAULT_TOKENISER,
    LENGTH,
    NO_WORD,
    TOKENISERS,
    UNKNOWN_WORD,
    TextDataset,
    Vocabulary,
    vocabulary_of,
)
from snowball.errors import DataError

FOLDER = "sent140"
ZIP = "trainingandtestdata.zip"
ORIGINAL = ("training.1600000.processed.noemoticon.csv", "testdata.manual.2009.06.14.csv")
ORIGINAL_COLUMNS = ["label", "id", "date", "query", "user", "text"]
TEST_FILE = "sent140_test498.csv.gz"
ORIGINAL_LABELS, LABELS = {"0": 0, "2": None, "4": 1}, {"0": 0, "2": None, "1": 1}  # None: neutral, left out
COMPLETE = (1_600_000, 359)  # tweets to train on and to test on
MOST = 2_000_000  # tweets of a file at most: each takes 100 bytes, and may be packed into less than one

Source = tuple[Path, str]  # a file, and what to read of it where it is an archive
Numbers = npt.NDArray[np.int32]
Tweet = tuple[int, str, str]  # label, user (empty where nobody knows), text


@dataclass(frozen=True)
class Sent140:
    """Where Sentiment140 is found, and how it is read.

    Attributes:
        file: what is read for training where the original files are not there; `TEST_FILE` lies beside it.
        by_user: refuse a copy that does not say who wrote what.
        tokeniser: how a tweet is cut into words, by a name of `TOKENISERS`.
        home: the address that the archive of the original files lies under.
        sha256: of that archive.
    """

    name: str
    summary: str
    file: str
    by_user: bool = False
    tokeniser: str = DEFAULT_TOKENISER
    home: str = "https://cs.stanford.edu/people/alecmgo/"
    sha256: str = "004a3772c8a7ff9bbfeb875880f47f0679d93fc63e5cf9cff72d54a8a6162e57"

    @property
    def needs(self) -> str:
        """What to fetch, and from where."""
        return f"{ZIP} from {self.home} and {NEEDS}"

    def locate(self) -> Location | None:
        """The first find in $SNOWBALL_DATA and the user's cache, if word vectors are to be found too."""
        return locate(self._find) if find_vectors() else None

    def _find(self, folder: Path) -> Path | None:
        pairs = ((ZIP, ZIP), ORIGINAL, (self.file, TEST_FILE))
        found = ((place / train, place / test) for place in (folder, folder / FOLDER) for train, test in pairs)
        return next((train for train, test in found if train.is_file() and test.is_file()), None)

    def fetch(self) -> Location:
        """Where the set is on this machine, after a download if need be; word vectors must be there already."""
        self._vectors()
        return locate(self._find) or self._download()

    def _vectors(self) -> Path:
        if path := find_vectors():
            return path
        raise missing(self.name, "there are no word vectors", self.needs, FOLDER)

    def _download(self) -> Location:
        path = cache_folder() / FOLDER / ZIP
        try:
            download(f"{self.home}{ZIP}", path, self.sha256)
        except DataError as error:
            raise missing(self.name, str(error), self.needs, FOLDER) from error
        return Location("download", path)

    def load(self) -> TextDataset:
        """The data set in memory, from wherever it is found first."""
        location, vectors = self.fetch(), self._vectors()
        (train_file, _), (test_file, _) = sources = sources_of(location.path)
        name = f"{FOLDER}-{self.tokeniser}"
        tensors = kept(name, [train_file, test_file, vectors], lambda: parse(sources, vectors, self.tokeniser))
        train, test = (Split(tensors[part], tensors[f"{part}_labels"].long()) for part in ("train", "test"))
        groups = tensors["users"].long() if len(tensors["users"]) else None
        if self.by_user and groups is None:
            raise corrupt(location.path, "it does not say who wrote what")
        vocabulary = Vocabulary(tuple(unpack_words(tensors["words"])), tensors["vectors"])
        record = provenance(
            location,
            train,
            test,
            (len(train), len(test)) == COMPLETE,
            vectors=vectors.name,
            vectors_sha256=checksum(vectors),
            vector_width=vocabulary.vectors.shape[1],
            words=len(vocabulary.words) - 1,
            words_found=round(tensors["found"].item(), 4),
        )
        return TextDataset(self.name, 2, train, test, record, groups, vocabulary=vocabulary)


def sources_of(path: Path) -> tuple[Source, Source]:
    """Where to read training and test tweets, given the file that the training tweets are in."""
    if path.name == ZIP:
        return (path, ORIGINAL[0]), (path, ORIGINAL[1])
    return (path, ""), (path.with_name(ORIGINAL[1] if path.name == ORIGINAL[0] else TEST_FILE), "")


def parse(sources: tuple[Source, Source], vectors: Path, tokeniser: str) -> Tensors:
    """The samples, and the vectors of their words; `found` is the share of the training words that have one."""
    numbers: dict[str, int] = {}
    cut = TOKENISERS[tokeniser]
    (words, labels, users), (test_words, test_labels, _) = (gather(*source, numbers, cut) for source in sources)
    vocabulary = vocabulary_of(numbers, vectors)
    renumbered = np.array([NO_WORD, *(vocabulary.number(word) or UNKNOWN_WORD for word in numbers)], np.int32)
    inputs = renumbered[words]
    arrays = {
        "train": inputs,
        "train_labels": labels,
        "users": users,
        "test": renumbered[test_words],
        "test_labels": test_labels,
        "found": np.array([np.count_nonzero(inputs > NO_WORD) / (np.count_nonzero(words) or 1)]),
    }
    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
    return {**tensors, "vectors": vocabulary.vectors, "words": pack_words(vocabulary.words)}


def gather(path: Path, member: str, numbers: dict[str, int], cut: Callable[[str], list[str]]) -> list[Numbers]:
    """Tweets as numbers: their words (n, 25), labels (n,), and users (n,), who may all be unknown (0,).

    Words are numbered from 1 and users from 0, in the order of their appearance.
    """
    words, labels, users, known = array("i"), array("i"), array("i"), dict[str, int]()
    for label, user, text in tweets(path, member):
        row = [numbers.setdefault(word, len(numbers) + 1) for word in cut(text)]
        words.extend(row + [NO_WORD] * (LENGTH - len(row)))
        labels.append(label)
        if user:
            users.append(known.setdefault(user, len(known)))
    if not labels:
        raise corrupt(path, "it has no tweets that are positive or negative")
    return [np.frombuffer(words, np.int32).reshape(-1, LENGTH), np.array(labels, np.int32), np.array(users, np.int32)]


def tweets(path: Path, member: str) -> Iterator[Tweet]:
    """The tweets of a file, but for neutral ones: an original one, or one whose first line names its columns."""
    original = member or path.suffix == ".csv"
    labels = ORIGINAL_LABELS if original else LABELS
    with reading(path), unpacked(path, member=member) as stream:
        rows = csv.reader(without_gaps(io.TextIOWrapper(stream, "latin-1" if original else "utf-8", newline="")))
        columns = ORIGINAL_COLUMNS if original else next(rows, [])
        if not {"label", "text"} <= set(columns):
            raise ValueError("its first line does not name a label and a text")
        label, text = columns.index("label"), columns.index("text")
        user = columns.index("user") if "user" in columns else None
        for number, row in enumerate(rows):
            if number == MOST:
                raise ValueError(f"it has more than the limit of {MOST} tweets")
            if len(row) != len(columns):
                raise ValueError(f"line {rows.line_num} has {len(row)} columns, not {len(columns)}")
            if row[label] not in labels:
                raise ValueError(
                    f"line {rows.line_num} has the label {row[label][:20]!r}, not one of {', '.join(labels)}"
                )
            if user is not None and not row[user]:
                raise ValueError(f"line {rows.line_num} has no user")
            if (value := labels[row[label]]) is not None:
                yield value, "" if user is None else row[user], row[text]


def without_gaps(lines: Iterable[str]) -> Iterator[str]:
    """Lines as they come; zero bytes are what an interrupted copy leaves in a file, and no text."""
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise ValueError(f"line {number} has a zero byte")
        yield line


SENT140 = Sent140("sent140", "1,600,000 tweets, positive or negative, as word vectors", "sent140_300k.csv.gz")
SENT140_USERS = Sent140(
    "sent140-users", "the same, of a copy that says who wrote what", "sent140_users_87k.csv.gz", by_user=True
)
