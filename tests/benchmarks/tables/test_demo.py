"""One seed has one result, wherever the documentation shows it."""

import json
import re
from typing import Any

import pytest
from PIL import Image

from benchmarks.files import ROOT, read_result
from benchmarks.tables.demo import NUMBERS, PICTURE, select_shown
from snowball.cli.runs import DEMO_DEFENSES
from snowball.sim.presets import load_experiment

RATES = ("last", "false_positive_rate", "false_negative_rate")


def find_demo(defense: str) -> dict[str, Any]:
    [found] = [run for run in read_result("demo")["runs"] if (run["seed"], run["defense"]) == (1, defense)]
    return found


def test_the_picture_shows_the_numbers_of_the_table() -> None:
    with Image.open(PICTURE) as picture:
        assert json.loads(picture.text[NUMBERS]) == select_shown(read_result("demo")["runs"])


@pytest.mark.parametrize(
    ("result", "defense"),
    [*(("compare", name) for name in DEMO_DEFENSES), ("attacks", "fedavg"), ("attacks", "snowball")],
)
def test_other_tables_of_the_same_experiment_have_the_same_numbers(result: str, defense: str) -> None:
    assert load_experiment("demo").seed == 1
    [run] = [run for run in read_result(result)["runs"] if (run["defense"], run["attack"]) == (defense, "cba")]
    assert {name: run[name] for name in RATES} == {name: find_demo(defense)[name] for name in RATES}


def test_the_tables_of_defenses_and_attacks_agree() -> None:
    compared = {(run["defense"], run["attack"]): run for run in read_result("compare")["runs"] if not run["variant"]}
    shared = [run for run in read_result("attacks")["runs"] if (run["defense"], run["attack"]) in compared]
    assert len(shared) >= 5
    for run in shared:
        other = compared[run["defense"], run["attack"]]
        assert {name: run[name] for name in RATES} == {name: other[name] for name in RATES}


def test_sentences_have_the_demo_s_numbers() -> None:
    backdoor = f"{find_demo('fedavg')['last']['backdoor_accuracy']:.1%}".replace("%", " %")
    for page in ("README.md", "evasive.md"):
        text = (ROOT / "docs" / "attacks" / page).read_text(encoding="utf-8")
        reached = re.findall(r"`cba` reaches ([\d.]+ %)|reaches ([\d.]+ %) with \[`cba`\]", text)
        assert ["".join(found) for found in reached] == [backdoor], page
