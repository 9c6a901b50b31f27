"""Readers of word vectors of any width: NumPy archives, GloVe text files and word2vec binary files.

Pennington, Socher, Manning: GloVe, EMNLP 2014. Mikolov et al.: Distributed Representations of Words and Phrases and
their Compositionality, NIPS 2013.

Files are read as streams, and only the vectors of wanted words stay in memory.
"""

import os
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from io import BufferedReader
from pathlib import Path

import numpy as np
import numpy.typing as npt

from snowball.data.io.formats import convert_read_errors, make_corrupt_error, open_unpacked, read_npz
from snowball.data.io.locate import find_data_folder, get_cache_folder
from snowball.errors import DataError

NEEDED_VECTORS = (
    "word vectors such as GoogleNews-vectors-negative300.bin from https://code.google.com/archive/p/word2vec/"
    " or glove.6B.zip from https://nlp.stanford.edu/projects/glove/"
)
FILE_PATTERNS = ("*vectors*.bin", "*vectors*.bin.gz", "glove*.npz", "glove*.txt", "glove*.txt.gz", "glove*.zip")
"""File names to look for, those of the paper's kind first; $SNOWBALL_VECTORS can name any other file."""

MAX_STREAM_BYTES, MAX_ARRAY_BYTES = 1 << 33, 1 << 30
"""Maximum size of a stream, 8 GiB, and of an array, 1 GiB: the largest public files have 5.6 billion bytes."""

MAX_LINE_BYTES, MAX_WORD_BYTES, MAX_VECTOR_WIDTH, CHUNK_BYTES = 1 << 20, 1 << 12, 1 << 14, 1 << 22
NUMBER = re.compile(rb"[-+]?\d*\.?\d+([eE][-+]?\d+)?")

Vector = npt.NDArray[np.floating]
Wanted = Mapping[bytes, str]


def find_vectors() -> Path | None:
    """Find word vectors: the file in $SNOWBALL_VECTORS, or else the first in $SNOWBALL_DATA and the user's cache."""
    if named := os.environ.get("SNOWBALL_VECTORS"):
        if not (path := Path(named).expanduser()).is_file():
            raise DataError(f"SNOWBALL_VECTORS is {named!r}, which is not a file")
        return path
    roots = [root for root in (find_data_folder(), get_cache_folder()) if root]
    folders = (folder for root in roots for folder in (root, root / "sent140"))
    found = (path for folder in folders for pattern in FILE_PATTERNS for path in sorted(folder.glob(pattern)))
    return next(found, None)


def read_vectors(path: Path, wanted: Collection[str]) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Read the wanted words that a file has, in its order, and their vectors (words, width)."""
    found: dict[str, Vector] = {}
    with convert_read_errors(path):
        for word, vector in read_entries(path, {word.encode(): word for word in wanted}):
            found.setdefault(word, vector)
        if not found:
            raise ValueError(f"it has none of the {len(wanted)} wanted words")
        vectors = np.stack(list(found.values())).astype(np.float32)
    if len(bad := np.flatnonzero(~np.isfinite(vectors).all(1))):
        raise make_corrupt_error(path, f"the vector of {list(found)[bad[0]]!r} is not finite")
    return list(found), vectors


def read_entries(path: Path, wanted: Wanted) -> Iterator[tuple[str, Vector]]:
    """Read the wanted words and their vectors, in the format that the file name indicates."""
    if path.suffix == ".npz":
        yield from read_array_entries(path, set(wanted.values()))
        return
    with open_unpacked(path, MAX_STREAM_BYTES, find_first_text(path) if path.suffix == ".zip" else "") as stream:
        yield from (read_binary_entries if ".bin" in path.suffixes else read_text_entries)(stream, wanted)


def find_first_text(path: Path) -> str:
    """Return the name of the first text file of an archive; in GloVe's archives it has the narrowest vectors."""
    with zipfile.ZipFile(path) as archive:
        return next(name for name in [*archive.namelist(), "*.txt"] if name.endswith(".txt"))


def read_array_entries(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, Vector]]:
    """Read from arrays `words` (n,) and `vectors` (n, width)."""
    words, vectors = read_npz(path, ("words", "vectors"), limit=MAX_ARRAY_BYTES)
    if words.dtype.kind != "U" or vectors.dtype.kind != "f" or vectors.shape[:-1] != words.shape or words.ndim != 1:
        raise ValueError(f"words is {words.dtype} {words.shape} and vectors {vectors.dtype} {vectors.shape}")
    for row, word in enumerate(words.tolist()):
        if word in wanted:
            yield word, vectors[row].astype(np.float32)


def read_text_entries(stream: BufferedReader, wanted: Wanted) -> Iterator[tuple[str, Vector]]:
    """Read lines of a word and its numbers; a first line with two numbers is a header, which is skipped."""
    width = 0
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES), b""), 1):
        word, _, rest = line.partition(b" ")
        if width and word not in wanted:
            continue
        numbers = rest.split()
        if number == 1 and len(numbers) < 2:
            continue
        width = width or len(numbers)
        has_blanks = len(numbers) > width and not NUMBER.fullmatch(numbers[0])  # in the word, like some of GloVe's
        if len(numbers) != width and not has_blanks:
            raise ValueError(f"line {number} has {len(numbers)} numbers, not {width}")
        if word in wanted and not has_blanks:
            yield wanted[word], np.array([float(each) for each in numbers], np.float32)


def read_binary_entries(stream: BufferedReader, wanted: Wanted) -> Iterator[tuple[str, Vector]]:
    """Read a header line with the number of words and their width, then each word, a blank, and its float32s."""
    header = stream.readline(MAX_WORD_BYTES)
    if not re.fullmatch(rb"\d{1,18} \d{1,18}\s*", header):
        raise ValueError(f"it starts with {header[:20]!r}, not with the number of words and their width")
    count, width = map(int, header.split())
    if not 1 <= width <= MAX_VECTOR_WIDTH:
        raise ValueError(f"its header promises vectors of {width} numbers, not within 1 to {MAX_VECTOR_WIDTH}")
    buffer, start, size = b"", 0, 4 * width
    for number in range(count):
        if len(buffer) - start < MAX_WORD_BYTES + size:
            buffer, start = buffer[start:] + stream.read(CHUNK_BYTES), 0
        blank = buffer.find(b" ", start, start + MAX_WORD_BYTES)
        if blank < 0 or len(buffer) <= blank + size:
            raise ValueError(f"it ends or is garbled after {number} of the {count} words that its header promises")
        word = buffer[start:blank].lstrip(b"\n")
        start = blank + 1 + size
        if word in wanted:
            yield wanted[word], np.frombuffer(buffer, "<f4", width, blank + 1).copy()
