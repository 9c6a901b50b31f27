"""Writes the measured tables of the documentation from the files in benchmarks/results.

    python benchmarks/tables.py

A table stands between the lines `<!-- NAME -->` and `<!-- end -->` of a page.
"""

import re
from collections.abc import Callable
from functools import partial

import choice_tables
import run_tables
import speed_tables
import strength_tables
from snowball.sweeps.grid import describe_grids
from words import ROOT


def pages(kind: str) -> list[str]:
    """The names of the defenses or attacks that have a page."""
    return [page.stem for page in sorted((ROOT / "docs" / kind).glob("*.md")) if page.stem != "README"]


TABLES: dict[str, Callable[[], str]] = {
    **{f"defense {name}": partial(run_tables.one_defense, name) for name in pages("defenses")},
    **{f"attack {name}": partial(run_tables.one_attack, name) for name in pages("attacks")},
    **{f"sweep {name}": partial(run_tables.sweep, name) for name in describe_grids()},
    "headline": partial(run_tables.sweep, "cpu/table1", data=("mnist", "fashion-mnist")),
    "cifar10": partial(run_tables.sweep, "cpu/table1", data=("cifar10",)),
    "all rounds": run_tables.all_rounds,
    "attack text": partial(run_tables.sweep, "cpu/table2", data=("sent140",)),
    "attacks": run_tables.attacks,
    "comparison": run_tables.comparison,
    "peers": speed_tables.peers,
    "elections": speed_tables.elections,
    "training": speed_tables.training,
    "round": speed_tables.whole_round,
    "judges": choice_tables.judges,
    "ranking": choice_tables.ranking,
    "latent": choice_tables.latent,
    "seats": choice_tables.seats,
    "floors": choice_tables.floors,
    "clusters": lambda: choice_tables.selectees("clusters"),
    "rounds": choice_tables.rounds,
    "found": choice_tables.found,
    "cohorts": choice_tables.cohorts,
    "loading": speed_tables.loading,
    "texts": choice_tables.texts,
    "growth": speed_tables.growth,
    "step": speed_tables.step,
    "busy": speed_tables.busy,
    "report": speed_tables.report,
    **{f"history {name}": partial(speed_tables.history, name) for name in ("fldetector", "foolsgold")},
    "demo": run_tables.demo,
    "strength": strength_tables.attacked,
    "strength not learned": strength_tables.unlearned,
    "strength clean": strength_tables.clean,
    "ballots": strength_tables.ballots,
    "traces": strength_tables.traces,
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


if __name__ == "__main__":
    main()
