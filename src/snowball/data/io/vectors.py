"""Readers of word vectors, of any width: NumPy archives, the text files of GloVe and the binary ones of word2vec.

Pennington, Socher, Manning: GloVe, EMNLP 2014. Mikolov et al.: Distributed Representations of Words and Phrases and
their Compositionality, NIPS 2013.

Files are read as streams, and only the vectors of words that are asked for stay in memory.
"""

import os
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from io import BufferedReader
from pathlib import Path

import numpy as np
import numpy.typing as npt

from snowball.data.io.formats import corrupt, read_npz, reading, unpacked
from snowball.data.io.locate import cache_folder, data_folder
from snowball.errors import DataError

NEEDS = (
    "word vectors such as GoogleNews-vectors-negative300.bin from https://code.google.com/archive/p/word2vec/"
    " or glove.6B.zip from https://nlp.stanford.edu/projects/glove/"
)
PATTERNS = ("*vectors*.bin", "*vectors*.bin.gz", "glove*.npz", "glove*.txt", "glove*.txt.gz", "glove*.zip")
"""Names to look for, those of the paper's kind first; any other file is named by $SNOWBALL_VECTORS."""

STREAM_LIMIT, ARRAY_LIMIT = 1 << 33, 1 << 30
"""Bytes of a stream at most, 8 GiB, and of an array, 1 GiB: the largest public files have 5.6 billion."""

LINE, WORD, WIDTH, CHUNK = 1 << 20, 1 << 12, 1 << 14, 1 << 22
NUMBER = re.compile(rb"[-+]?\d*\.?\d+([eE][-+]?\d+)?")

Vector = npt.NDArray[np.floating]
Wanted = Mapping[bytes, str]


def find_vectors() -> Path | None:
    """The file that $SNOWBALL_VECTORS names, or the first find in $SNOWBALL_DATA and the user's cache."""
    if named := os.environ.get("SNOWBALL_VECTORS"):
        if not (path := Path(named).expanduser()).is_file():
            raise DataError(f"SNOWBALL_VECTORS is {named!r}, which is not a file")
        return path
    folders = [folder for folder in (data_folder(), cache_folder()) if folder]
    places = (place for folder in folders for place in (folder, folder / "sent140"))
    return next((path for place in places for pattern in PATTERNS for path in sorted(place.glob(pattern))), None)


def read_vectors(path: Path, wanted: Collection[str]) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Those of the wanted words that a file has, in its order, and their vectors (words, width)."""
    found: dict[str, Vector] = {}
    with reading(path):
        for word, vector in entries(path, {word.encode(): word for word in wanted}):
            found.setdefault(word, vector)
        if not found:
            raise ValueError(f"it has none of the {len(wanted)} words that are looked for")
        vectors = np.stack(list(found.values())).astype(np.float32)
    if len(bad := np.flatnonzero(~np.isfinite(vectors).all(1))):
        raise corrupt(path, f"the vector of {list(found)[bad[0]]!r} is not finite")
    return list(found), vectors


def entries(path: Path, wanted: Wanted) -> Iterator[tuple[str, Vector]]:
    """The wanted words and their vectors, by the form that the file's name promises."""
    if path.suffix == ".npz":
        yield from array_entries(path, set(wanted.values()))
        return
    with unpacked(path, STREAM_LIMIT, first_text(path) if path.suffix == ".zip" else "") as stream:
        yield from (binary_entries if ".bin" in path.suffixes else text_entries)(stream, wanted)


def first_text(path: Path) -> str:
    """The first text file of an archive, e.g. the narrowest of those that GloVe packs together."""
    with zipfile.ZipFile(path) as archive:
        return next(name for name in [*archive.namelist(), "*.txt"] if name.endswith(".txt"))


def array_entries(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, Vector]]:
    """From arrays `words` (n,) and `vectors` (n, width)."""
    words, vectors = read_npz(path, ("words", "vectors"), limit=ARRAY_LIMIT)
    if words.dtype.kind != "U" or vectors.dtype.kind != "f" or vectors.shape[:-1] != words.shape or words.ndim != 1:
        raise ValueError(f"words is {words.dtype} {words.shape} and vectors {vectors.dtype} {vectors.shape}")
    for row, word in enumerate(words.tolist()):
        if word in wanted:
            yield word, vectors[row].astype(np.float32)


def text_entries(stream: BufferedReader, wanted: Wanted) -> Iterator[tuple[str, Vector]]:
    """From lines of a word and its numbers; a first line of two numbers says how many there are, and is passed over."""
    width = 0
    for number, line in enumerate(iter(lambda: stream.readline(LINE), b""), 1):
        word, _, rest = line.partition(b" ")
        if width and word not in wanted:
            continue
        numbers = rest.split()
        if number == 1 and len(numbers) < 2:
            continue
        width = width or len(numbers)
        has_blanks = len(numbers) > width and not NUMBER.fullmatch(numbers[0])  # the word, as some of GloVe's
        if len(numbers) != width and not has_blanks:
            raise ValueError(f"line {number} has {len(numbers)} numbers, not {width}")
        if word in wanted and not has_blanks:
            yield wanted[word], np.array([float(each) for each in numbers], np.float32)


def binary_entries(stream: BufferedReader, wanted: Wanted) -> Iterator[tuple[str, Vector]]:
    """From a line that says how many words of how many numbers follow, then each word, a blank, and its float32s."""
    header = stream.readline(WORD)
    if not re.fullmatch(rb"\d{1,18} \d{1,18}\s*", header):
        raise ValueError(f"it starts with {header[:20]!r}, not with two numbers, of words and of what each has")
    count, width = map(int, header.split())
    if not 1 <= width <= WIDTH:
        raise ValueError(f"its header promises vectors of {width} numbers, not within 1 to {WIDTH}")
    buffer, start, size = b"", 0, 4 * width
    for number in range(count):
        if len(buffer) - start < WORD + size:
            buffer, start = buffer[start:] + stream.read(CHUNK), 0
        blank = buffer.find(b" ", start, start + WORD)
        if blank < 0 or len(buffer) <= blank + size:
            raise ValueError(f"it ends or is garbled after {number} of the {count} words that its header promises")
        word = buffer[start:blank].lstrip(b"\n")
        start = blank + 1 + size
        if word in wanted:
            yield wanted[word], np.frombuffer(buffer, "<f4", width, blank + 1).copy()
