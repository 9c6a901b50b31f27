"""Sentiment140: positive and negative tweets, most of them labelled by their emoticons.

Go, Bhayani, Huang: Twitter Sentiment Classification using Distant Supervision, 2009.

The test set is the manually labelled one, without its neutral tweets.
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
from snowball.data.io.cache import Tensors, compute_checksum, load_cached, pack_words, unpack_words
from snowball.data.io.download import download_file
from snowball.data.io.formats import convert_read_errors, make_corrupt_error, open_unpacked
from snowball.data.io.locate import describe_provenance, get_cache_folder, locate_copy, make_missing_error
from snowball.data.io.vectors import NEEDED_VECTORS, find_vectors
from snowball.data.text import (
    DEFAULT_TOKENISER,
    NO_WORD,
    TOKENISERS,
    UNKNOWN_WORD,
    WORDS_PER_TEXT,
    TextDataset,
    Vocabulary,
    build_vocabulary,
)
from snowball.errors import DataError

FOLDER = "sent140"
ARCHIVE = "trainingandtestdata.zip"
ORIGINAL = ("training.1600000.processed.noemoticon.csv", "testdata.manual.2009.06.14.csv")
ORIGINAL_COLUMNS = ["label", "id", "date", "query", "user", "text"]
TEST_FILE = "sent140_test498.csv.gz"
ORIGINAL_LABELS, LABELS = {"0": 0, "2": None, "4": 1}, {"0": 0, "2": None, "1": 1}  # None: neutral, dropped
COMPLETE_SIZE = (1_600_000, 359)  # training and test tweets
MAX_TWEETS = 2_000_000  # per file; each takes 100 bytes in memory, but may take less than one compressed

Source = tuple[Path, str]  # a file, and the member to read if it is an archive
Numbers = npt.NDArray[np.int32]
Tweet = tuple[int, str, str]  # label, user (empty if unknown), text


@dataclass(frozen=True)
class Sent140Loader:
    """Finds and loads Sentiment140.

    Attributes:
        file: the training file if the original files are absent; `TEST_FILE` is in the same folder.
        by_user: reject a copy without user names.
        tokeniser: name of the function in `TOKENISERS` that splits a tweet into words.
        home: base address of the archive of the original files.
        sha256: checksum of that archive.
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
        """The files to fetch and their source."""
        return f"{ARCHIVE} from {self.home} and {NEEDED_VECTORS}"

    def locate(self) -> Location | None:
        """Locate a copy in $SNOWBALL_DATA or the user's cache, if there are word vectors too."""
        return locate_copy(self._find) if find_vectors() else None

    def _find(self, folder: Path) -> Path | None:
        pairs = ((ARCHIVE, ARCHIVE), ORIGINAL, (self.file, TEST_FILE))
        found = ((parent / train, parent / test) for parent in (folder, folder / FOLDER) for train, test in pairs)
        return next((train for train, test in found if train.is_file() and test.is_file()), None)

    def fetch(self) -> Location:
        """Locate a copy, and download it if necessary; word vectors must be there already."""
        self._require_vectors()
        return locate_copy(self._find) or self._download()

    def _require_vectors(self) -> Path:
        if path := find_vectors():
            return path
        raise make_missing_error(self.name, "there are no word vectors", self.needs, FOLDER)

    def _download(self) -> Location:
        path = get_cache_folder() / FOLDER / ARCHIVE
        try:
            download_file(f"{self.home}{ARCHIVE}", path, self.sha256)
        except DataError as error:
            raise make_missing_error(self.name, str(error), self.needs, FOLDER) from error
        return Location("download", path)

    def load(self) -> TextDataset:
        """Load the data set from where it is found first."""
        location, vectors = self.fetch(), self._require_vectors()
        (train_file, _), (test_file, _) = sources = list_sources(location.path)
        name = f"{FOLDER}-{self.tokeniser}"
        tensors = load_cached(
            name, [train_file, test_file, vectors], lambda: parse_samples(sources, vectors, self.tokeniser)
        )
        train, test = (Split(tensors[part], tensors[f"{part}_labels"].long()) for part in ("train", "test"))
        groups = tensors["users"].long() if len(tensors["users"]) else None
        if self.by_user and groups is None:
            raise make_corrupt_error(location.path, "it has no user names")
        vocabulary = Vocabulary(tuple(unpack_words(tensors["words"])), tensors["vectors"])
        record = describe_provenance(
            location,
            train,
            test,
            (len(train), len(test)) == COMPLETE_SIZE,
            vectors=vectors.name,
            vectors_sha256=compute_checksum(vectors),
            vector_width=vocabulary.vectors.shape[1],
            words=len(vocabulary.words) - 1,
            words_found=round(tensors["found"].item(), 4),
        )
        return TextDataset(self.name, 2, train, test, record, groups, vocabulary=vocabulary)


def list_sources(path: Path) -> tuple[Source, Source]:
    """List the sources of training and test tweets, given the file of the training tweets."""
    if path.name == ARCHIVE:
        return (path, ORIGINAL[0]), (path, ORIGINAL[1])
    return (path, ""), (path.with_name(ORIGINAL[1] if path.name == ORIGINAL[0] else TEST_FILE), "")


def parse_samples(sources: tuple[Source, Source], vectors: Path, tokeniser: str) -> Tensors:
    """Parse the samples and the vectors of their words; `found` is the share of training words that have one."""
    numbers: dict[str, int] = {}
    tokenise = TOKENISERS[tokeniser]
    (words, labels, users), (test_words, test_labels, _) = (
        encode_tweets(*source, numbers, tokenise) for source in sources
    )
    vocabulary = build_vocabulary(numbers, vectors)
    renumbered = np.array([NO_WORD, *(vocabulary.find_number(word) or UNKNOWN_WORD for word in numbers)], np.int32)
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


def encode_tweets(
    path: Path, member: str, numbers: dict[str, int], tokenise: Callable[[str], list[str]]
) -> list[Numbers]:
    """Encode tweets as numbers: words (n, 25), labels (n,), and users (n,), or (0,) if users are unknown.

    Words are numbered from 1 and users from 0, in order of appearance.
    """
    words, labels, users, known = array("i"), array("i"), array("i"), dict[str, int]()
    for label, user, text in read_tweets(path, member):
        row = [numbers.setdefault(word, len(numbers) + 1) for word in tokenise(text)]
        words.extend(row + [NO_WORD] * (WORDS_PER_TEXT - len(row)))
        labels.append(label)
        if user:
            users.append(known.setdefault(user, len(known)))
    if not labels:
        raise make_corrupt_error(path, "it has no positive or negative tweets")
    return [
        np.frombuffer(words, np.int32).reshape(-1, WORDS_PER_TEXT),
        np.array(labels, np.int32),
        np.array(users, np.int32),
    ]


def read_tweets(path: Path, member: str) -> Iterator[Tweet]:
    """Read the tweets of a file except neutral ones. It is an original file, or its first line names the columns."""
    original = member or path.suffix == ".csv"
    labels = ORIGINAL_LABELS if original else LABELS
    with convert_read_errors(path), open_unpacked(path, member=member) as stream:
        rows = csv.reader(reject_zero_bytes(io.TextIOWrapper(stream, "latin-1" if original else "utf-8", newline="")))
        columns = ORIGINAL_COLUMNS if original else next(rows, [])
        if not {"label", "text"} <= set(columns):
            raise ValueError("its first line does not name a label and a text")
        label, text = columns.index("label"), columns.index("text")
        user = columns.index("user") if "user" in columns else None
        for number, row in enumerate(rows):
            if number == MAX_TWEETS:
                raise ValueError(f"it has more than the limit of {MAX_TWEETS} tweets")
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


def reject_zero_bytes(lines: Iterable[str]) -> Iterator[str]:
    """Pass lines through, and reject zero bytes, which an interrupted copy leaves in a file."""
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise ValueError(f"line {number} has a zero byte")
        yield line


SENT140 = Sent140Loader("sent140", "1,600,000 positive and negative tweets, as word vectors", "sent140_300k.csv.gz")
SENT140_USERS = Sent140Loader(
    "sent140-users", "the same, from a copy with user names", "sent140_users_87k.csv.gz", by_user=True
)
