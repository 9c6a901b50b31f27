import re
from pathlib import Path

from snowball.sweeps.grid import read_grid

ROOT = Path(__file__).parents[2]


def test_the_example_is_that_of_the_page_and_has_a_run_for_every_target() -> None:
    file = ROOT / "examples" / "targets.toml"
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    assert file.read_text(encoding="utf-8") in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    runs = read_grid(file).runs
    assert sorted(run.experiment.attack.own["target"] for run in runs) == sorted([*range(10)] * 2)
