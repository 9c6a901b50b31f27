import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tables.packed import iterate_runs
from snowball.defenses import Snowball
from snowball.errors import SettingError
from snowball.records.presets import describe_presets
from snowball.records.run_names import ADDED_SETTINGS
from snowball.report.figure_spec import parse_figure
from snowball.report.sweeps import METRICS, read_published_numbers
from snowball.sim.experiment import Experiment
from snowball.sim.presets import load_experiment
from snowball.sweeps.grid import Grid, describe_grids, name_run, read_grid

MakeExperiment = Callable[..., Experiment]
ROOT = Path(__file__).parents[2]

SMALL = """# Two defenses on the sample
[table]
rows = ["defense.name"]
columns = ["training.epochs"]
values = ["backdoor_accuracy"]

[[grid]]
preset = "demo"
set = { "training.epochs" = 1 }
[grid.axes]
"defense.name" = ["krum", "snowball"]
seed = [1, 2]
"""


def grid_in(folder: Path, text: str, name: str = "mine.toml") -> Grid:
    (folder / name).write_text(text, encoding="utf-8")
    return read_grid(folder / name)


def test_a_block_is_the_product_of_its_axes(tmp_path: Path) -> None:
    grid = grid_in(tmp_path, SMALL)
    assert [(run.at["defense.name"], run.at["seed"]) for run in grid.runs] == [
        ("krum", 1),
        ("krum", 2),
        ("snowball", 1),
        ("snowball", 2),
    ]
    assert (grid.name, grid.title, grid.axes) == ("mine", "Two defenses on the sample", ("defense.name", "seed"))


def test_every_run_is_what_run_would_make_of_the_same_settings(tmp_path: Path) -> None:
    run = grid_in(tmp_path, SMALL).runs[0]
    assert run.experiment == load_experiment("demo", ["defense.name=krum", "training.epochs=1", "seed=1"])
    assert run.experiment.defense.own["variant"] == "published"  # from the preset's section of that peer


def test_a_choice_comes_before_its_settings_wherever_it_stands(tmp_path: Path) -> None:
    axes = '"defense.tolerate" = [0.1, 0.3]\n"defense.name" = ["krum"]\n'
    grid = grid_in(tmp_path, f'[[grid]]\npreset = "cpu/mnist"\n[grid.axes]\n{axes}')
    assert [run.experiment.defense.own for run in grid.runs] == [
        {"tolerate": 0.1, "variant": "published"},
        {"tolerate": 0.3, "variant": "published"},
    ]


def test_a_path_needs_no_quotation_marks(tmp_path: Path) -> None:
    quoted = '[[grid]]\npreset = "cpu/mnist"\nset = { "defense.name" = "krum" }\naxes = { "data.alpha" = [0.5, 1.0] }\n'
    bare = quoted.replace('"defense.name"', "defense.name").replace('"data.alpha"', "data.alpha")
    assert grid_in(tmp_path, bare).manifest() == grid_in(tmp_path, quoted).manifest()


def test_a_setting_that_the_chosen_defense_does_not_have_is_not_dropped_in_silence(tmp_path: Path) -> None:
    block = '[[grid]]\npreset = "cpu/mnist"\nset = { "defense.clusters" = 5 }\naxes = { "defense.name" = ["fedavg"] }\n'
    with pytest.raises(SettingError, match=r"^defense\.clusters is not a setting of fedavg"):
        grid_in(tmp_path, block)


def test_presets_vary_fastest_and_may_be_files_beside_the_grid(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text('extends = "demo"\nrounds = 3\n', encoding="utf-8")
    grid = grid_in(tmp_path, '[[grid]]\npreset = ["demo", "short.toml"]\naxes = { seed = [1, 2] }\n')
    assert [(run.experiment.rounds, run.at["seed"]) for run in grid.runs] == [(20, 1), (3, 1), (20, 2), (3, 2)]


def test_what_takes_long_is_played_first_and_shown_where_it_stands(tmp_path: Path) -> None:
    grid = grid_in(tmp_path, SMALL.replace("[table]", 'first = ["snowball"]\n[table]'))
    assert [run.experiment.defense.name for run in grid.order_runs()] == ["snowball"] * 2 + ["krum"] * 2
    assert [run.experiment.defense.name for run in grid.runs] == ["krum"] * 2 + ["snowball"] * 2


def test_a_run_s_name_follows_from_all_of_its_settings_and_stays(tiny: MakeExperiment) -> None:
    assert name_run(tiny()) == "mnist-sample-cba-snowball-minus-3-a6b80ccc"
    assert name_run(tiny("data.alpha=1")) == name_run(tiny("data.alpha=1.0")) != name_run(tiny())


PLAIN = "defense.clusters=2", "defense.ballot_floor=0.25"
INSIDE = (
    'defense.members=["flame", { name = "snowball-minus" }]',
    'defense.members=["flame", { name = "snowball-minus", ballot_floor = 0.25 }]',
)


@pytest.mark.parametrize(
    ("name", "default", "other"), [("snowball-minus", *PLAIN), ("intersection", *INSIDE)], ids=["plain", "inside"]
)
def test_a_setting_that_was_added_later_renames_only_the_runs_that_use_it(
    tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch, name: str, default: str, other: str
) -> None:
    unaware = without(tiny(f"defense.name={name}", default).dump_settings(), {*ADDED_SETTINGS, "ballot_floor"})
    digest = hashlib.sha256(json.dumps(unaware, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    monkeypatch.setitem(ADDED_SETTINGS, "ballot_floor", 0.5)
    assert name_run(tiny(f"defense.name={name}", default)) == f"mnist-sample-cba-{name}-3-{digest[:8]}"
    assert not name_run(tiny(f"defense.name={name}", other)).endswith(digest[:8])


def without(settings: Any, names: set[str]) -> Any:
    """Settings as a version had them that did not know some of them."""
    if isinstance(settings, list):
        return [without(entry, names) for entry in settings]
    if isinstance(settings, dict):
        return {key: without(value, names) for key, value in settings.items() if key not in names}
    return settings


def test_the_records_that_are_kept_have_the_names_that_their_settings_give() -> None:
    settings = {run["name"]: run["run"]["settings"] for run in iterate_runs()}
    assert len(settings) > 100
    assert [name for name, given in settings.items() if name_run(Experiment.parse(given)) != name] == []


def test_a_name_from_elsewhere_leads_to_no_other_folder(tiny: MakeExperiment) -> None:
    experiment = tiny()
    other = experiment.model_copy(update={"defense": experiment.defense.model_copy(update={"name": "../x y"})})
    assert name_run(other).startswith("mnist-sample-cba-.._x_y-3-")


def test_blocks_and_grids_share_the_runs_that_they_have_in_common(tmp_path: Path) -> None:
    whole = grid_in(tmp_path, SMALL)
    part = SMALL[SMALL.index("[[grid]]") :].replace('"krum", ', "").replace("[1, 2]", "[2, 3]")
    both = grid_in(tmp_path, SMALL + part)
    names = [run.name for run in whole.runs]
    assert [run.name for run in both.runs[:4]] == names
    assert len(both.runs) == 5
    assert {run.name for run in grid_in(tmp_path, part).runs} & set(names) == {names[3]}


def test_the_manifest_says_where_each_run_stands(tmp_path: Path) -> None:
    manifest = grid_in(tmp_path, SMALL).manifest()
    place = {"data.name": "mnist-sample", "attack.name": "cba", "defense.name": "snowball", "seed": 2}
    assert manifest.runs[3].at == {**place, "training.epochs": 1}
    assert manifest.runs[3].folder.startswith("mnist-sample-cba-snowball-2-")
    assert manifest.axes == ("defense.name", "seed")
    assert (manifest.published, manifest.figure) == (None, None)
    assert manifest.table
    assert manifest.table["columns"] == ["training.epochs"]


def test_a_place_has_what_a_figure_names_and_null_where_a_run_has_no_such_setting(tmp_path: Path) -> None:
    figure = '[figure]\nkind = "lines"\nx = "defense.clusters"\nvalue = "main_accuracy"\n'
    runs = grid_in(tmp_path, f"{figure}{SMALL}").manifest().runs
    assert [run.at["defense.clusters"] for run in runs] == [None, None, "gap", "gap"]
    assert "main_accuracy" not in runs[0].at


def test_runs_that_are_no_repetitions_of_each_other_stand_at_different_places(tmp_path: Path) -> None:
    one = '[[grid]]\npreset = "demo"\nset = { rounds = 2 }\naxes = { seed = [1, 2] }\n'
    grid = grid_in(tmp_path, one + one.replace("rounds = 2", 'rounds = 3, "data.alpha" = 1.0'))
    places = [(run.at["rounds"], run.at["data.alpha"], run.at["seed"]) for run in grid.runs]
    assert places == [(2, 0.5, 1), (2, 0.5, 2), (3, 1.0, 1), (3, 1.0, 2)]
    assert grid_in(tmp_path, one).runs[0].at.keys() == {"data.name", "attack.name", "defense.name", "seed"}


FAULTS = {
    "unknown axis": ("seed = [1, 2]", "sede = [1]", "sede is not a setting; did you mean 'seed'?"),
    "unknown setting": (
        "seed = [1, 2]",
        '"defense.tolerat" = [0.1]',
        "defense.tolerat is not a setting of krum; did you mean 'tolerate'?",
    ),
    "unknown preset": ('"demo"', '"cpu/mnst"', "'cpu/mnst' is neither a preset nor a file; did you mean 'cpu/mnist'?"),
    "no preset": ('preset = "demo"', "", "block 1.preset is missing"),
    "empty presets": ('"demo"', "[]", "axis 'preset' of block 1 is empty"),
    "preset of another kind": ('"demo"', "3", "block 1.preset = 3 should be a valid list"),
    "empty axis": ("[1, 2]", "[]", "axis 'seed' of block 1 is empty"),
    "no list": ("[1, 2]", "1", "axis 'seed' of block 1 must be a list, got 1"),
    "a list in a list": ("[1, 2]", "[[1]]", "axis 'seed' of block 1 must hold numbers, strings or booleans, got [1]"),
    "twice": ("[1, 2]", "[1, 2, 1]", "axis 'seed' of block 1 has 1 twice"),
    "preset twice": ('"demo"', '["demo", "demo"]', "axis 'preset' of block 1 has 'demo' twice"),
    "set and varied": ('"training.epochs" = 1', "seed = 1", "block 1 both sets and varies seed"),
    "unknown value": ('"krum"', '"krumm"', "defense.name = 'krumm' is not known; did you mean 'krum'?"),
    "unknown key": ("[table]", "[tabel]", "tabel is not known in a grid; did you mean 'table'?"),
    "unknown key of a block": ("\nset = ", "\nsets = ", "sets is not known in block 1; did you mean 'set'?"),
    "no rows": ("rows = ", "row = ", "table.rows is missing"),
    "unknown key of the table": ("rows = ", "row = []\nrows = ", "table.row is not a setting"),
    "unknown row": (
        '["training.epochs"]',
        '["training.epoch"]',
        "[table] names training.epoch, which no run has; did you mean 'training.epochs'?",
    ),
    "unknown first": ("[table]", 'first = ["kram"]\n[table]', "first = 'kram' is not known; did you mean 'krum'?"),
    "no blocks": (SMALL[SMALL.index("[[grid]]") :], "", "grid is missing"),
    "blocks of another kind": (SMALL[SMALL.index("[[grid]]") :], "[grid]", "grid = {} should be a valid list"),
    "too many": ("[1, 2]", str(list(range(5001))), "mine has 10,002 runs; the maximum is 10,000"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_sentence(tmp_path: Path, fault: str) -> None:
    before, after, sentence = FAULTS[fault]
    assert before in SMALL
    with pytest.raises(SettingError) as caught:
        grid_in(tmp_path, SMALL.replace(before, after))
    assert str(caught.value) == sentence


@pytest.mark.parametrize("content", [b"seed = ", b"\xff\xfe"])
def test_what_is_no_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(SettingError, match=r"mine\.toml is not a TOML file: "):
        read_grid(tmp_path / "mine.toml")


def test_an_integer_that_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"x = [0x" + b"f" * 5000 + b"]")
    with pytest.raises(SettingError, match=r"mine\.toml holds an integer of 20000 bits; the most is 63"):
        read_grid(tmp_path / "mine.toml")


@pytest.mark.parametrize("depth", [600, 900, 940, 960, 980, 990])
def test_what_is_nested_deeply_is_refused_in_a_sentence(tmp_path: Path, depth: int) -> None:
    with pytest.raises(SettingError, match=r"nested too deeply|not a TOML file|^a is not a setting"):
        grid_in(tmp_path, f'[[grid]]\npreset = "demo"\n[grid.set]\na = {"{a = " * depth}1{"}" * depth}\n')


def test_a_grid_that_is_not_there_is_refused_with_what_may_be_meant() -> None:
    with pytest.raises(SettingError, match=r"^'cpu/tabel1' is neither a grid nor a file; did you mean 'cpu/table1'\?$"):
        read_grid("cpu/tabel1")


SIZES = {
    "table1": (13 * 2 * 3 - 2, 3),  # no FLIP on CIFAR-10 in either attack
    "table2": (12 * 3, 3),
    "table3": (3 * 9, 3),
    "table5": (7 * 3 * 5, 3),
    "table6": (7, 3),
    "poison-ratio": (2 * 4 * 5, 3),
    "vae-training": (5 * 5, 3),
    "vae-size": (4 * 4, 3),
    "time": (13, 3),
    "curves": (3 * 6, 3),
    "updates": (2, 1),
    "distances": (2, 3),
    "latent": (2 * 2, 3),
}
"""Cells of the paper's tables and of what its figures show, and seeds a cell."""

SMALLER = {
    "leaderboard": (12 * 33, 3),
    "latent": (3, 1),
    "vae-training": (2 * 2, 1),
    "vae-size": (2 * 2, 1),
    "table5": (7 * 3 * 3, 1),
    "judges": (2, 1),
    "table6": (7, 2),
    "poison-ratio": (4 * (5 + 3), 1),
    "defaults": (7 * 2, 1),
    "effort": (2 * 2 + 2 * 2, 1),
    "full": (2, 1),
    "dnc-columns": (2 * 2, 1),
    "summary": (13 * 2 + 12 * 3, 1),
    "label-skew": (8 * 2 * 2 + 8, 1),
}
"""What the versions for two cores have in another number of cells, or of seeds than one, or alone."""


@pytest.fixture(scope="module")
def shipped() -> dict[str, Grid]:
    """All shipped grids, each read once."""
    return {name: read_grid(name) for name in describe_grids()}


def test_shipped_grids_have_a_run_for_every_cell_and_seed(shipped: dict[str, Grid]) -> None:
    cells = {f"paper/{name}": size for name, size in SIZES.items()}
    cells |= {f"cpu/{name}": (size, 1) for name, (size, _) in SIZES.items()}
    cells |= {f"cpu/{name}": size for name, size in SMALLER.items()}
    found = {}
    for name, grid in shipped.items():
        places = {tuple(value for path, value in run.at.items() if path != "seed") for run in grid.runs}
        found[name] = len(places), len({run.at["seed"] for run in grid.runs})
        assert len(grid.runs) == found[name][0] * found[name][1]
    assert found == cells


@pytest.mark.parametrize("name", ["paper/table3", "cpu/table3"])
def test_table_3_has_the_rates_that_are_published(shipped: dict[str, Grid], name: str) -> None:
    published = {key for entry in read_published_numbers()["error-rates"]["numbers"] for key in entry} - {"at"}
    table = shipped[name].manifest().table
    assert table
    assert set(table["values"]) == published


@pytest.mark.parametrize("family", ["paper", "cpu"])
def test_what_tables_have_in_common_is_run_once(shipped: dict[str, Grid], family: str) -> None:
    names = {name: {run.name for run in grid.runs} for name, grid in shipped.items() if name.startswith(family)}
    tables = names[f"{family}/table1"] | names[f"{family}/table2"]
    for part in ("table3", "curves", "updates", "distances", *(("summary", "label-skew") if family == "cpu" else ())):
        assert names[f"{family}/{part}"] <= tables, part
    shared = {part: len(names[f"{family}/{part}"] & tables) for part in ("table5", "table6", "poison-ratio")}
    full = family == "paper"
    assert shared == (
        {"table5": 21, "table6": 3, "poison-ratio": 24} if full else dict.fromkeys(shared, 0) | {"poison-ratio": 4}
    )
    assert len(names[f"{family}/table5"] & names[f"{family}/poison-ratio"]) == (12 if full else 4)
    assert len(names[f"{family}/vae-size"] & names[f"{family}/vae-training"]) == (3 if full else 1)


def test_the_defaults_are_compared_with_runs_of_the_tables(shipped: dict[str, Grid]) -> None:
    tables = {run.name for part in ("table1", "table2", "poison-ratio") for run in shipped[f"cpu/{part}"].runs}
    own = [run for run in shipped["cpu/defaults"].runs if run.name not in tables]
    assert len(own) == 7
    for run in own:
        built = run.experiment.defense.build()
        assert isinstance(built, Snowball)
        assert (built.clusters, built.ballot_floor) == (Snowball().clusters, Snowball().ballot_floor)


def test_shipped_grids_train_as_their_family_does(shipped: dict[str, Grid]) -> None:
    own = {name: load_experiment(name) for name in describe_presets() if name != "demo"}
    for name, grid in shipped.items():
        if name == "cpu/leaderboard":
            continue  # its federations are of other sizes
        family = name.partition("/")[0]
        for run in grid.runs:
            preset = own[f"{'paper' if name == 'cpu/full' else family}/{run.at['data.name']}"]
            assert run.experiment.training == preset.training or name == "cpu/effort"
            assert run.experiment.rounds == preset.rounds or (family == "cpu" and run.experiment.rounds < preset.rounds)


def test_reports_know_what_shipped_grids_ask_for(shipped: dict[str, Grid]) -> None:
    for grid in shipped.values():
        assert grid.file.table or grid.file.figure
        assert set(grid.file.table.values if grid.file.table else []) <= set(METRICS)
        assert grid.file.published is None or grid.file.published in read_published_numbers()
        if grid.file.figure:
            request = parse_figure(grid.file.figure)
            assert set(request.paths) <= set(grid.runs[0].at)


@pytest.mark.parametrize("key", ["label-skew", "feature-skew", "error-rates", "alpha-malicious", "target-share"])
def test_every_published_number_has_its_runs(shipped: dict[str, Grid], key: str) -> None:
    (grid,) = (grid for name, grid in shipped.items() if grid.file.published == key and name.startswith("paper/"))
    for number in read_published_numbers()[key]["numbers"]:
        assert any(number["at"].items() <= run.at.items() for run in grid.runs), number


def test_every_grid_is_listed_with_what_it_is() -> None:
    listed = describe_grids()
    assert {name.partition("/")[2] for name in listed} == {*SIZES, *SMALLER}
    assert all(title and not re.search(r"[#.]", title) for title in listed.values())


WORST = """[table]
rows = ["defense.name"]
columns = []
values = ["backdoor_accuracy"]
worst = "attack.target"

[[grid]]
preset = "demo"
axes = { "defense.name" = ["krum"], "attack.target" = [1, 7] }
"""


def test_a_table_names_the_setting_whose_worst_value_it_shows(tmp_path: Path) -> None:
    manifest = grid_in(tmp_path, WORST).manifest()
    assert manifest.table
    assert manifest.table["worst"] == "attack.target"
    assert [run.at["attack.target"] for run in manifest.runs] == [1, 7]


@pytest.mark.parametrize(
    ("worst", "sentence"),
    [
        ("attack.targets", "[table] names attack.targets, which no run has; did you mean 'attack.target'?"),
        ("defense.name", "[table] names defense.name twice"),
    ],
)
def test_a_worst_setting_that_cannot_be_is_refused(tmp_path: Path, worst: str, sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        grid_in(tmp_path, WORST.replace("attack.target", worst, 1))
    assert str(caught.value) == sentence


def test_what_goes_before_a_defense_can_be_an_axis(tmp_path: Path) -> None:
    grid = grid_in(tmp_path, SMALL.replace("seed = [1, 2]", '"defense.before" = ["none", "nnm", "arc"]\nseed = [1]'))
    before = [[mixing["name"] for mixing in run.experiment.defense.before] for run in grid.runs]
    assert before == [[], ["nnm"], ["arc"]] * 2
    assert len({run.name for run in grid.runs}) == 6
    assert grid.runs[0].experiment == load_experiment("demo", ["defense.name=krum", "training.epochs=1", "seed=1"])


def test_axes_of_the_file_vary_in_all_blocks(tmp_path: Path) -> None:
    block = '\n[[grid]]\npreset = "demo"\n[grid.axes]\ncohort = [{}]\n'
    text = '[axes]\n"defense.name" = ["krum", "median"]\n' + block.format(10) + block.format(20)
    grid = grid_in(tmp_path, text)
    expected = [(10, "krum"), (10, "median"), (20, "krum"), (20, "median")]
    assert [(run.at["cohort"], run.at["defense.name"]) for run in grid.runs] == expected
    with pytest.raises(SettingError, match="block 2 varies cohort, which all blocks vary"):
        grid_in(tmp_path, "[axes]\ncohort = [10]\n[[grid]]\npreset = 'demo'\n" + block.format(20))
    with pytest.raises(SettingError, match="axis 'seed' of block 1 must be a list, got 1"):
        grid_in(tmp_path, "[axes]\nseed = 1\n" + block.format(10))


def test_peers_of_the_file_replace_those_of_the_presets(tmp_path: Path) -> None:
    axes = '[grid.axes]\n"defense.name" = ["krum", "crfl", "snowball"]\n'
    text = '[peers.crfl]\ncopies = 3\n[[grid]]\npreset = ["cpu/mnist", "cpu/femnist"]\n' + axes
    own = [run.experiment.defense.own for run in grid_in(tmp_path, text).runs]
    krum, crfl, snowball = own[:2], own[2:4], own[4:]
    assert [each["variant"] for each in krum] == ["original"] * 2  # its default, not the presets'
    assert [each["copies"] for each in crfl] == [3, 3]
    assert snowball[0] == snowball[1] == load_experiment("demo", ["defense.name=snowball"]).defense.own
    with pytest.raises(SettingError, match=r"peers\.crfl\.copys is not a setting"):
        grid_in(tmp_path, text.replace("copies", "copys"))


def test_peers_alone_choose_no_defense(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"defense"):
        grid_in(tmp_path, "[peers]\n[[grid]]\npreset = 'demo'\n")


def test_the_leaderboard_compares_with_fedavg_and_ideal_everywhere() -> None:
    grid = read_grid("cpu/leaderboard")
    assert grid.manifest().leaderboard
    places: dict[str, set[str]] = {}
    for run in grid.runs:
        at = {path: value for path, value in run.at.items() if path != "defense.name"}
        places.setdefault(json.dumps(at), set()).add(run.experiment.defense.name)
    assert len({frozenset(defenses) for defenses in places.values()}) == 1
    assert all({"fedavg", "ideal", "snowball", "snowball-plus"} <= defenses for defenses in places.values())
    assert not set(range(1, 11)) & {run.experiment.seed for run in grid.runs}  # bounds were tuned on some of these
    own: dict[str, set[str]] = {}
    for run in grid.runs:
        own.setdefault(run.experiment.defense.name, set()).add(run.experiment.defense.model_dump_json())
    assert all(len(settings) == 1 for settings in own.values())
