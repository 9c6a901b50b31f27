"""Writes the measured tables of the documentation from the files in benchmarks/results.

    python -m benchmarks.tables

A table stands between the lines `<!-- NAME -->` and `<!-- end -->` of a page.
"""

import re
from collections.abc import Callable
from functools import partial

from benchmarks.files import ROOT
from benchmarks.tables import choices, runs, speed, strength
from snowball.sweeps.grid import describe_grids


def pages(kind: str) -> list[str]:
    """The names of the defenses or attacks that have a page."""
    return [page.stem for page in sorted((ROOT / "docs" / kind).glob("*.md")) if page.stem != "README"]


TABLES: dict[str, Callable[[], str]] = {
    **{f"defense {name}": partial(runs.one_defense, name) for name in pages("defenses")},
    **{f"attack {name}": partial(runs.one_attack, name) for name in pages("attacks")},
    **{f"sweep {name}": partial(runs.sweep, name) for name in describe_grids()},
    "headline": partial(runs.sweep, "cpu/table1", data=("mnist", "fashion-mnist")),
    "cifar10": partial(runs.sweep, "cpu/table1", data=("cifar10",)),
    "all rounds": runs.all_rounds,
    "attack text": partial(runs.sweep, "cpu/table2", data=("sent140",)),
    "attacks": runs.attacks,
    "comparison": runs.comparison,
    "peers": speed.peers,
    "elections": speed.elections,
    "training": speed.training,
    "round": speed.whole_round,
    "judges": choices.judges,
    "ranking": choices.ranking,
    "latent": choices.latent,
    "seats": choices.seats,
    "floors": choices.floors,
    "clusters": partial(choices.selectees, "clusters"),
    "rounds": choices.rounds,
    "found": choices.found,
    "cohorts": choices.cohorts,
    "loading": speed.loading,
    "texts": choices.texts,
    "growth": speed.growth,
    "step": speed.step,
    "busy": speed.busy,
    "report": speed.report,
    **{f"history {name}": partial(speed.history, name) for name in ("fldetector", "foolsgold")},
    "demo": runs.demo,
    "strength": strength.attacked,
    "strength not learned": strength.unlearned,
    "strength clean": strength.clean,
    "ablation": strength.ablation,
    "ballots": strength.ballots,
    "traces": strength.traces,
}


def fill(page: str) -> str:
    """A page with its tables made anew."""
    for name, make in TABLES.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if place.search(page):
            table = f"\n{make()}\n\n"
            page = place.sub(lambda found, table=table: found[1] + table + found[2], page)
    return page


def main() -> None:
    """Fill every page."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
