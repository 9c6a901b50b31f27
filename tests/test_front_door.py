"""`import snowball` is fast and gives exactly the names that the reference documents."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import snowball
from snowball.defenses import DEFENSES

REFERENCE = Path(__file__).parent.parent / "docs" / "reference" / "api.md"


def test_import_loads_no_torch() -> None:
    code = "import sys, snowball; dir(snowball); snowball.__version__; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_name_is_in_the_reference_and_nothing_else_is() -> None:
    documented = re.findall(
        r"^::: snowball\.(?:report\.write_)?(\w+)$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(documented) == sorted(snowball.__all__)


@pytest.mark.parametrize("name", snowball.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(snowball, name) is not None
    assert name in dir(snowball)


def test_every_defense_is_there_by_its_class_name() -> None:
    for defense in DEFENSES.values():
        assert getattr(snowball, defense.__name__) is defense


def test_an_unknown_name_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match=r"module 'snowball' has no attribute 'snow'"):
        snowball.snow  # noqa: B018


def test_the_version_is_the_package_s() -> None:
    assert snowball.__version__ == version("snowball-fl")
