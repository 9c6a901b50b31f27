from dataclasses import dataclass, field
from typing import Literal

import pytest

from snowball.records.presets import describe_presets
from snowball.setting_docs import SettingInfo, describe_choice, describe_type, read_meanings
from snowball.settings import flatten_settings
from snowball.sim.experiment import SECTIONS, describe_experiment, describe_settings
from snowball.sim.presets import load_experiment


@dataclass(frozen=True)
class Inner:
    """A group.

    Attributes:
        depth: how deep it is,
            over two lines.
    """

    depth: int = 2


@dataclass(frozen=True)
class Base:
    """A base.

    Attributes:
        share, rest: two at once.
        mode: as the base has it.
    """

    share: float
    rest: float = 0.5
    mode: Literal["fast", "slow"] = "fast"


@dataclass(frozen=True)
class Choice(Base):
    """A choice.

    Attributes:
        mode: as the choice has it.
        inner: a group.

    Further: text that describes nothing.
    """

    inner: Inner = field(default_factory=Inner)
    sizes: tuple[int, ...] = (1, 2)


def split_samples(labels: list[int], parts: int = 3) -> None:
    """Split samples.

    Args:
        labels: not a setting, since it has no default.
        parts: how many.
    """


def test_settings_are_described_from_fields_and_docstrings() -> None:
    assert list(describe_choice(Choice)) == [
        SettingInfo("share", "number", ..., "two at once."),
        SettingInfo("rest", "number", 0.5, "two at once."),
        SettingInfo("mode", '"fast" or "slow"', "fast", "as the choice has it."),
        SettingInfo("inner.depth", "integer", 2, "how deep it is, over two lines."),
        SettingInfo("sizes", "list of integer", [1, 2], ""),
    ]
    assert list(describe_choice(split_samples)) == [SettingInfo("parts", "integer", 3, "how many.")]


def test_a_required_setting_has_no_default_in_json() -> None:
    required, optional = list(describe_choice(Choice))[:2]
    assert required.plain() == {"type": "number", "meaning": "two at once."}
    assert optional.plain() == {"type": "number", "default": 0.5, "meaning": "two at once."}


def test_text_after_the_section_is_not_an_attribute() -> None:
    assert set(read_meanings(Choice)) == {"share", "rest", "mode", "inner"}
    assert read_meanings(lambda: None) == {}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int | None, "integer or none"),
        (bool, "true or false"),
        (int | Literal["gap"], 'integer or "gap"'),
        (tuple[dict[str, int], ...], "list of table"),
    ],
)
def test_types_are_in_the_words_of_toml(kind: object, words: str) -> None:
    assert describe_type(kind) == words


@pytest.mark.parametrize("preset", describe_presets())
def test_a_preset_is_described_completely(preset: str) -> None:
    experiment = load_experiment(preset)
    described = {setting.name: setting.default for setting in describe_experiment(experiment)}
    assert described == flatten_settings(experiment.dump_settings())


def test_the_settings_of_every_experiment_have_meanings() -> None:
    assert set(describe_settings()) == {"", *SECTIONS}
    assert all(setting.meaning for section in describe_settings().values() for setting in section)
