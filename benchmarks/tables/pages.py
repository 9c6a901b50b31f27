"""Writes the measured tables of the documentation from the files in benchmarks/results.

    python -m benchmarks.tables

A page holds each table between the lines `<!-- NAME -->` and `<!-- end -->`.
"""

import re
from collections.abc import Callable
from functools import partial

from benchmarks.files import ROOT
from benchmarks.tables import choices, runs, speed, strength
from snowball.sweeps.grid import describe_grids


def list_pages(kind: str) -> list[str]:
    """List the names of the defenses or attacks that have a page."""
    return [page.stem for page in sorted((ROOT / "docs" / kind).glob("*.md")) if page.stem != "README"]


TABLES: dict[str, Callable[[], str]] = {
    **{f"defense {name}": partial(runs.tabulate_defense, name) for name in list_pages("defenses")},
    **{f"attack {name}": partial(runs.tabulate_attack, name) for name in list_pages("attacks")},
    **{f"sweep {name}": partial(runs.tabulate_sweep, name) for name in describe_grids()},
    "headline": partial(runs.tabulate_sweep, "cpu/table1", data=("mnist", "fashion-mnist")),
    "cifar10": partial(runs.tabulate_sweep, "cpu/table1", data=("cifar10",)),
    "all rounds": runs.tabulate_all_rounds,
    "attack text": partial(runs.tabulate_sweep, "cpu/table2", data=("sent140",)),
    "attack sdba": runs.tabulate_text_attacks,
    "attacks": runs.tabulate_attacks,
    "persistence": runs.tabulate_persistence,
    "comparison": runs.tabulate_defenses,
    "peers": speed.tabulate_peers,
    "elections": speed.tabulate_elections,
    "guard": speed.tabulate_guard,
    "training": speed.tabulate_training,
    "round": speed.tabulate_round,
    "start": speed.tabulate_start,
    "judges": choices.tabulate_judges,
    "ranking": choices.tabulate_ranking,
    "copies": choices.tabulate_copies,
    "latent": choices.tabulate_latent,
    "seats": choices.tabulate_seats,
    "floors": choices.tabulate_floors,
    "clusters": partial(choices.tabulate_selectees, "clusters"),
    "rounds": choices.tabulate_rounds,
    "found": choices.tabulate_found,
    "cohorts": choices.tabulate_cohorts,
    "operators": choices.tabulate_operators,
    "unequal": choices.tabulate_unequal,
    **{f"rehearsal {sites}": partial(choices.tabulate_rehearsal, sites) for sites in ("5", "8", "20")},
    "loading": speed.tabulate_loading,
    "texts": choices.tabulate_texts,
    "growth": speed.tabulate_growth,
    "step": speed.tabulate_step,
    "models": speed.tabulate_models,
    "busy": speed.tabulate_busy,
    "report": speed.tabulate_report,
    **{f"history {name}": partial(speed.tabulate_history, name) for name in ("fldetector", "foolsgold")},
    "demo": runs.tabulate_demo,
    "strength": strength.tabulate_attacked_cells,
    "strength not learned": strength.tabulate_unlearned,
    "strength clean": strength.tabulate_clean,
    "ablation": strength.tabulate_ablation,
    "ablation clean": strength.tabulate_clean_ablation,
    "ballots": strength.tabulate_ballots,
    "traces": strength.tabulate_traces,
}


def fill_page(page: str) -> str:
    """Return a page with its tables updated."""
    for name, make in TABLES.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if place.search(page):
            table = f"\n{make()}\n\n"
            page = place.sub(lambda found, table=table: found[1] + table + found[2], page)
    return page


def main() -> None:
    """Fill every page."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        path.write_text(fill_page(path.read_text(encoding="utf-8")), encoding="utf-8")
