from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snowball.data import Split, TextDataset, Vocabulary
from snowball.data.text import TOKENISERS, WORDS_PER_TEXT, build_vocabulary, tokenise_words
from snowball.errors import DataError

VOCABULARY = Vocabulary(("", "good", "Good", "user", "bd"), torch.tensor([[0.0, 0], [1, 2], [3, 4], [5, 6], [7, 8]]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I don't, DON'T like it!!", ["I", "dont", "DONT", "like", "it"]),
        ("well...no. that\u2019s `it`", ["well", "no", "thats", "it"]),
        ("@bob_1 see http://t.co/a?b=c now", ["USER", "see", "now"]),
        ("USER see URL now www.x.org/y", ["USER", "see", "now"]),
        ("mail me@home, CURLS", ["mail", "me", "home", "CURLS"]),
        ("a &amp; b &lt;3 &quot;c&quot;", ["a", "b", "3", "c"]),
        (":-) !!! ", []),
        ("", []),
        ("Käse 10am", ["Käse", "10am"]),
    ],
)
def test_a_word_is_a_run_of_letters_and_digits(text: str, words: list[str]) -> None:
    assert tokenise_words(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I don't, DON'T like it!!", ["I", "dont", "DONT", "like", "it"]),
        ("well...no. that\u2019s `it`", ["wellno", "that\u2019s", "it"]),
        ("@bob_1 see http://t.co/a?b=c now", ["bob1", "see", "now"]),
        ("see https://t.co/a-b, ://x and http:// now", ["see", "b", "and", "http", "now"]),
        ("USER see URL now www.x.org/y", ["USER", "see", "URL", "now", "wwwxorgy"]),
        ("a &amp; b &lt;3 &quot;c&quot;", ["a", "amp", "b", "lt3", "quotcquot"]),
        (":-) !!! ", []),
        ("", []),
        ("one\ttwo \u00bd\n", ["one", "two", "\u00bd"]),
        ("a " * 30, ["a"] * 25),
    ],
)
def test_the_published_code_deletes_ascii_punctuation_and_cuts_at_blanks(text: str, words: list[str]) -> None:
    assert TOKENISERS["published"](text) == words


@pytest.mark.parametrize("tokeniser", TOKENISERS)
@given(st.text())
def test_any_text_has_words_without_blanks_and_no_more_than_fit(tokeniser: str, text: str) -> None:
    words = TOKENISERS[tokeniser](text)
    assert len(words) <= WORDS_PER_TEXT
    assert all(word and word.split() == [word] for word in words)


def test_a_word_is_looked_up_as_it_is_written_or_else_in_lower_case() -> None:
    assert [VOCABULARY.find_number(word) for word in ("good", "Good", "GOOD", "BD", "bad", "")] == [1, 2, 1, 4, 0, 0]


def test_texts_are_cut_and_filled_up() -> None:
    tokens = VOCABULARY.encode("GOOD, bad @you")
    assert tokens.tolist() == [1, -1, 3] + [0] * 22
    assert tokens.dtype == torch.int32
    assert VOCABULARY.encode("good " * 30).tolist() == [1] * 25


def test_a_sample_is_shown_as_text() -> None:
    assert VOCABULARY.decode(VOCABULARY.encode("Good, bad news for @you today")) == "Good ? ? ? user ?"
    assert VOCABULARY.decode(VOCABULARY.encode("")) == ""
    assert VOCABULARY.decode([0, 4]) == "? bd"


@given(st.lists(st.integers(1, 4), max_size=25))
def test_known_words_survive_being_shown_and_read_again(tokens: list[int]) -> None:
    assert VOCABULARY.encode(VOCABULARY.decode(tokens)).tolist()[: len(tokens)] == tokens


@pytest.fixture
def dataset() -> TextDataset:
    inputs = torch.stack([VOCABULARY.encode(text) for text in ("good", "bad user", "")])
    split = Split(inputs, torch.tensor([1, 0, 0]))
    return TextDataset("toy", 2, split, split, {}, vocabulary=VOCABULARY)


def test_a_model_gets_the_vectors_of_words(dataset: TextDataset) -> None:
    assert dataset.input_shape == (25, 2)
    vectors = dataset.normalise(dataset.train.inputs)
    assert (vectors.shape, vectors.dtype) == ((3, 25, 2), torch.float32)
    assert vectors[0, :2].tolist() == [[1, 2], [0, 0]]
    assert vectors[1, :3].tolist() == [[0, 0], [5, 6], [0, 0]]
    assert not vectors[2].any()
    assert torch.equal(dataset.scale(dataset.train.inputs), vectors)
    assert dataset.standardise(vectors) is vectors


def test_noise_is_any_words_in_any_order(dataset: TextDataset) -> None:
    noise = dataset.draw_inputs(100, torch.Generator().manual_seed(0))
    assert (noise.shape, noise.dtype) == ((100, 25), torch.int32)
    assert noise.unique().tolist() == list(range(5))
    assert dataset.normalise(noise).shape == (100, 25, 2)
    assert torch.equal(noise, dataset.draw_inputs(100, torch.Generator().manual_seed(0)))


def write(path: Path, **vectors: tuple[float, float]) -> Path:
    np.savez(path, words=np.array(list(vectors)), vectors=np.array(list(vectors.values()), np.float32))
    return path


def test_only_what_texts_use_is_kept_and_the_trigger_always(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", good=(1, 2), Good=(3, 4), odd=(5, 6), bd=(7, 8))
    vocabulary = build_vocabulary(["Good", "bad"], path)
    assert vocabulary.words == ("", "good", "Good", "bd")
    assert vocabulary.vectors.tolist() == [[0, 0], [1, 2], [3, 4], [7, 8]]
    assert vocabulary.find_number("BD") == 3


def test_the_trigger_is_found_in_upper_case_where_the_vectors_have_it(tmp_path: Path) -> None:
    vocabulary = build_vocabulary([], write(tmp_path / "a.npz", BD=(1, 2), bd=(0, 0)))
    assert vocabulary.words[vocabulary.find_number("BD")] == "BD"


@pytest.mark.parametrize("vectors", [{"good": (1, 2)}, {"good": (1, 2), "bd": (0, 0)}])
def test_vectors_that_do_not_show_the_trigger_are_refused(
    tmp_path: Path, vectors: dict[str, tuple[float, float]]
) -> None:
    path = write(tmp_path / "a.npz", **vectors)
    with pytest.raises(DataError) as caught:
        build_vocabulary(["good"], path)
    assert str(caught.value) == (f"{path} has no vector for the trigger word 'BD', or one of zeros: use other vectors")
