"""The page for operators names every setting of a rehearsal, and its example is one."""

import re
from pathlib import Path

import pytest

from snowball.rehearsal import verdict
from snowball.rehearsal.plan import plan_rehearsal
from snowball.rehearsal.settings import FederationSettings, read_federation

PAGE = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("setting", FederationSettings.model_fields)
def test_every_setting_is_on_the_page(setting: str) -> None:
    assert re.search(rf"^\| [^|]*`{setting}`[^|]* \|", PAGE, re.MULTILINE)


def test_the_file_on_the_page_can_be_rehearsed(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "federation.toml"
    file.write_text(example, encoding="utf-8")
    rehearsal = plan_rehearsal(read_federation(file, {}))
    assert rehearsal.sites.numbers[: rehearsal.sites.hostile] == (8,)
    assert len(rehearsal.grid.runs) == 3 * 4 * 3  # seeds, defenses, attacks and nobody


def test_the_bounds_on_the_page_are_those_of_the_code() -> None:
    assert f"at most {100 * verdict.MAX_BACKDOOR:g} % more of the triggered samples" in PAGE
    assert f"at most {100 * verdict.MAX_ACCURACY_LOST:g} points below" in PAGE
    assert f"at most {100 * verdict.MAX_HONEST_LEFT_OUT:g} % of the honest updates" in PAGE
    assert f"below {100 * verdict.MIN_LEARNED:g} %, or less than {100 * verdict.MIN_DAMAGE:g}\npoints lost" in PAGE
