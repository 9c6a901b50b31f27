import pickle
from pathlib import Path

import pytest

from snowball.errors import MAX_SENTENCE_CHARS, RunError, SettingError, bound_sentence
from snowball.settings import MAX_TOML_BYTES
from snowball.sim.presets import load_experiment
from snowball.sweeps.grid import read_grid


def test_a_sentence_is_bounded_and_keeps_its_start_and_its_end() -> None:
    sentence = str(RunError(f"wrong: {'x' * 10**6}; do this"))
    assert len(sentence) == MAX_SENTENCE_CHARS
    assert sentence.startswith("wrong: x")
    assert sentence.endswith("x; do this")


def test_a_sentence_shows_no_control_characters() -> None:
    assert str(RunError("a\x1b[31mb\nc\u202ed\ud800")) == r"a\x1b[31mb\nc\u202ed\ud800"


def test_escapes_count_as_characters() -> None:
    assert len(str(RunError("\x1b" * MAX_SENTENCE_CHARS))) == MAX_SENTENCE_CHARS


def test_a_sentence_stays_the_same_when_it_is_passed_on() -> None:
    error = RunError("\x00" * 5000 + "ü")
    assert bound_sentence(str(error)) == str(error)
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is RunError
    assert str(copied) == str(error)


HUGE = "0x" + "f" * 9000
DOTTED = ".".join(["a"] * 5000)

HOSTILE_TOML = {
    "a hex integer": (f"seed = {HUGE}", "holds an integer of 36000 bits"),
    "a hex integer in a list": (f"seed = [{{a = {HUGE}}}]", "holds an integer of 36000 bits"),
    "a binary integer": ("seed = 0b" + "1" * 9000, "holds an integer of 9000 bits"),
    "a decimal integer": ("seed = " + "9" * 9000, "is not a TOML file: "),
    "a dotted key": (f"x = 1\n{DOTTED} = 1", "has a key of more than 16 parts in line 2"),
    "a dotted key in quotes": ('"a" . ' * 5000 + "'b' = 1", "has a key of more than 16 parts in line 1"),
    "a dotted table": (f"[{DOTTED}]", "has a key of more than 16 parts in line 1"),
    "a deep list": ("seed = " + "[" * 5000, "it is nested too deeply"),
    "a large file": ("#" * (MAX_TOML_BYTES + 1), "it is larger than 4194304 bytes"),
}


@pytest.mark.parametrize("case", HOSTILE_TOML)
@pytest.mark.parametrize("read", [load_experiment, read_grid])
def test_a_hostile_toml_file_is_refused_in_a_sentence(read: object, case: str, tmp_path: Path) -> None:
    assert callable(read)
    file = tmp_path / "mine.toml"
    content, fault = HOSTILE_TOML[case]
    file.write_text(content)
    with pytest.raises(SettingError, match=fault):
        read(file)


def test_files_that_extend_each_other_are_read_a_few_times_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from snowball.records import presets

    read: list[object] = []
    plain = presets.read_toml_text
    monkeypatch.setattr(presets, "read_toml_text", lambda *given: read.append(given) or plain(*given))
    (tmp_path / "mine.toml").write_text("extends = 'mine.toml'")
    with pytest.raises(SettingError, match="extends itself"):
        load_experiment(tmp_path / "mine.toml")
    assert len(read) == presets.MAX_LAYERS
