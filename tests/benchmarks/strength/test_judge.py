"""The benchmark that judges defenses: its runs, its refusals, and its summaries of made-up runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.strength import headline, worlds
from benchmarks.strength.headline import (
    judge_cells,
    make_headline,
    summarise_clients,
    tabulate_cells,
    tabulate_headlines,
)
from benchmarks.strength.judge import find_waiting, main, plan_runs
from benchmarks.strength.known import Known, match_runs, read_known
from benchmarks.strength.worlds import (
    CORNER,
    EVASIONS,
    EVERY_ATTACK,
    MODES,
    WORLDS,
    Cell,
    Job,
    World,
    choose_cells,
    choose_seeds,
    choose_worlds,
    draw_place,
    draw_target,
    list_jobs,
    make_attack,
    make_experiment,
    parse_defense,
)
from snowball.errors import SettingError
from snowball.records.run import RunFolder
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate
from snowball.sweeps.grid import name_run

SEEDS = sorted(seed for mode in MODES.values() for seed in mode.seeds)
TUNE, REPORT = MODES["tune"], MODES["report"]


def job(world: str, attack: str, defense: str = "snowball", seed: int = 1) -> Job:
    return Job(Cell(world, attack), defense, seed)


@pytest.mark.parametrize("world", WORLDS)
def test_every_run_of_a_world_is_a_valid_experiment(world: str) -> None:
    for each in list_jobs(choose_cells([world]), ["snowball", "krum:tolerate=0.2"], SEEDS[:1]):
        experiment = make_experiment(each)
        assert experiment.seed == SEEDS[0]
        assert experiment.defense.name == each.defense.partition(":")[0]
        assert (experiment.attack.name == "none") == (each.cell.attack == "clean")


def test_the_worlds_are_those_that_must_be_judged() -> None:
    experiments = {
        (name, attack): make_experiment(job(name, attack)) for name, world in WORLDS.items() for attack in world.attacks
    }
    for data in ("mnist", "fashion-mnist"):
        found = [each for each in experiments.values() if each.data.name == data and each.attack.name == "cba"]
        assert {each.data.own["alpha"] for each in found} == {0.1, 0.5, 1}
        assert {each.attack.malicious for each in found} == {0.1, 0.2, 0.3, 0.4}
    every = {*EVERY_ATTACK, "clean"}
    found_on = {
        data: {attack for world, attack in experiments if world.startswith(data)} for data in ("mnist", "cifar")
    }
    assert found_on == {"mnist": every - {"cba-middle"} | EVASIONS.keys(), "cifar": every | {"evade-all"}}
    femnist = [each for each in experiments.values() if each.data.name == "femnist" and each.attack.name == "cba"]
    assert {each.attack.own["poison_ratio"] for each in femnist} == {0.1, 0.3, 0.9}
    assert experiments["sent140", "text"].attack.name == "text"
    clean = {each.data.name for (_, attack), each in experiments.items() if attack == "clean"}
    assert clean == {"mnist", "mnist-sample", "fashion-mnist", "cifar10", "femnist", "sent140"}


def test_all_sites_of_a_small_federation_take_part() -> None:
    infected = {}
    for sites in (5, 8, 10, 20, 50):
        experiment = make_experiment(job(f"sites-{sites}", "cba"))
        assert experiment.cohort == experiment.data.clients == sites
        infected[sites] = experiment.attack.count_attackers(sites)
    assert infected == {5: 1, 8: 2, 10: 2, 20: 4, 50: 10}


def test_a_defense_has_the_same_settings_in_every_world() -> None:
    for text in ("snowball", "rlr", "krum:variant=published"):
        settings = [make_experiment(job(name, world.attacks[0], text)).defense.own for name, world in WORLDS.items()]
        assert all(each == settings[0] for each in settings)
    assert settings[0] == {"tolerate": 0.3, "variant": "published"}


def test_the_middle_is_that_of_the_data_sets_images() -> None:
    assert make_experiment(job("cifar10-m20", "cba-middle")).attack.own["trigger"] == "black-square@14,14"  # of 32x32
    assert (
        make_experiment(job("mnist-a0.5-m30", "cba-middle")).attack.own["trigger"] == "white-square@12,12"
    )  # of 28x28


def test_drawn_places_and_targets_differ_between_seeds_and_not_between_calls() -> None:
    places = [draw_place(seed, 28) for seed in SEEDS]
    assert places == [draw_place(seed, 28) for seed in SEEDS]
    assert len(set(places)) == len(SEEDS)
    targets = [draw_target(seed, 10, 1) for seed in SEEDS]
    assert targets == [draw_target(seed, 10, 1) for seed in SEEDS]
    assert len(set(targets)) > 2
    many = [(draw_place(seed, 28), draw_target(seed, 10, 1)) for seed in range(400)]
    assert {number for place, _ in many for number in place} == set(range(26))
    assert all({0, 1, 24, 25} & set(place) for place, _ in many)  # within a pixel of an edge
    assert {target for _, target in many} == set(range(10)) - {1}


def test_what_was_drawn_stands_in_the_settings_of_the_run() -> None:
    row, column = draw_place(2, 32)
    attack = make_experiment(job("cifar10-m20", "cba-place", seed=2)).attack
    assert (attack.own["trigger"], attack.own["target"]) == (f"black-square@{row},{column}", 1)
    attack = make_experiment(job("cifar10-m20", "cba-target", seed=2)).attack
    assert (attack.own["trigger"], attack.own["target"]) == ("black-square", draw_target(2, 10, 1))
    assert make_experiment(job("cifar10-m30", "blended")).attack.own["trigger"] == "noise"


def test_ideal_is_run_once_for_all_attacks_with_one_probe() -> None:
    corner = [make_experiment(job("cifar10-m20", attack, "ideal")) for attack in (*CORNER, *EVASIONS)]
    assert all(each == corner[0] for each in corner)
    others = [make_experiment(job("cifar10-m20", attack, "ideal")) for attack in EVERY_ATTACK if attack not in CORNER]
    assert all(each != corner[0] for each in others)
    assert make_experiment(job("femnist-p10", "cba", "ideal")) == make_experiment(job("femnist-p90", "cba", "ideal"))
    assert make_experiment(job("femnist-p10", "cba")) != make_experiment(job("femnist-p90", "cba"))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "dba"},
        {"name": "adaptive"},
        {"name": "model-replacement"},
        {"name": "layer-poison"},
        {"poison_ratio": 1.0},
        {"share_of_rounds": 0.1},
        {"name": "evasive", "scatter": 0.5, "noise": 0.5, "align": True},
    ],
    ids=str,
)
def test_ideal_does_not_depend_on_what_attackers_do(change: dict[str, Any], accuracies: list[Any]) -> None:
    assert measure_accuracies(change) == accuracies


@pytest.fixture(scope="module")
def accuracies() -> list[Any]:
    """The accuracies of Ideal under the usual attack."""
    return measure_accuracies({})


def measure_accuracies(change: dict[str, Any]) -> list[Any]:
    """Run Ideal under a changed attack, and return the accuracies of each round."""
    usual = tiny_settings()
    rounds = simulate(Federation.build(Experiment.parse({**usual, "attack": {**usual["attack"], **change}})))
    return [(record["main_accuracy"], record["backdoor_accuracy"]) for record in rounds]


def tiny_settings() -> dict[str, Any]:
    """Two rounds of Ideal in a federation of five small sites, of which one is infected."""
    settings = make_experiment(job("sites-5", "cba", "ideal")).dump_settings()
    return {**settings, "rounds": 2, "data": {**settings["data"], "examples": 100, "minimum": 5}}


def test_jobs_have_baselines_and_no_ideal_where_nobody_attacks() -> None:
    jobs = list(list_jobs(choose_cells(["sites-5"]), ["snowball", "fedavg"], (1,)))
    assert [(each.cell.attack, each.defense) for each in jobs] == [
        *(("cba", defense) for defense in ("fedavg", "ideal", "snowball")),
        *(("clean", defense) for defense in ("fedavg", "snowball")),
    ]


def test_cells_can_be_chosen_by_their_attacks() -> None:
    worlds = ["sites-5", "mnist-a0.5-m30"]
    assert choose_cells(worlds, ["dba", "cba"]) == [
        Cell("sites-5", "cba"),
        Cell("mnist-a0.5-m30", "cba"),
        Cell("mnist-a0.5-m30", "dba"),
    ]


def test_jobs_are_made_seed_by_seed_and_each_cell_with_its_baselines() -> None:
    jobs = list(list_jobs(choose_cells(["sites-8", "sites-5"]), ["krum", "snowball"], (2, 1)))
    whole = list(list_jobs(choose_cells(["sites-8", "sites-5"]), ["krum", "snowball"], (2,)))
    assert jobs == [*whole, *(each._replace(seed=1) for each in whole)]
    cells = list(dict.fromkeys(each.cell for each in whole))
    assert [each.cell for each in whole] == [cell for cell in cells for each in whole if each.cell == cell]


def test_runs_are_started_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    planned = plan_runs(list(list_jobs(choose_cells(["sites-8", "sites-5"]), ["krum"], (2, 1))))
    waiting = list(find_waiting(planned, {}, tmp_path))
    assert waiting == list(dict.fromkeys(planned_run.name for planned_run in planned.values()))
    assert [planned[job].experiment.seed for job in planned] == [2] * 10 + [1] * 10


USUAL = {"name": "cba", "malicious": 0.3, "poison_ratio": 0.3, "target": 1, "trigger": "white-square"}


@pytest.mark.parametrize(
    ("attack", "own"),
    [
        ("evade-crowd", {"name": "evasive", "balance": True}),
        ("evade-split", {"name": "evasive", "balance": False, "scatter": 0.3}),
        ("evade-noise", {"name": "evasive", "balance": False, "noise": 1.0}),
        ("evade-alignment", {"name": "evasive", "balance": False, "align": True}),
        ("evade-memory", {"name": "cba", "share_of_rounds": 1 / 3}),
        ("evade-all", {"name": "evasive", "balance": True, "scatter": 0.5, "noise": 0.5, "align": True}),
    ],
)
def test_attackers_who_know_defenses_have_settings_of_their_own(attack: str, own: dict[str, Any]) -> None:
    assert make_attack(USUAL, attack, "mnist", 1) == USUAL | own
    assert attack in WORLDS["mnist-a0.5-m30"].attacks
    assert (attack in WORLDS["cifar10-m30"].attacks) == (attack == "evade-all")


def test_an_evasion_evades_what_it_is_named_for_and_nothing_else() -> None:
    plain = {"balance": False, "scatter": 1.0, "noise": 0.0, "align": False, "share_of_rounds": 1}
    changed = {}
    for attack in EVASIONS:
        settings = make_experiment(job("mnist-a0.5-m30", attack)).dump_settings()["attack"]
        changed[attack] = [name for name, value in plain.items() if settings.get(name, value) != value]
    assert changed == {
        "evade-crowd": ["balance"],
        "evade-split": ["scatter"],
        "evade-noise": ["noise"],
        "evade-alignment": ["align"],
        "evade-memory": ["share_of_rounds"],
        "evade-all": ["balance", "scatter", "noise", "align"],
    }


def test_tuning_never_sees_what_is_reported() -> None:
    assert not set(TUNE.seeds) & set(REPORT.seeds)
    data = {make_experiment(job(name, "cba")).data.name for name in choose_worlds(TUNE)}
    assert data == {"mnist", "mnist-sample", "fashion-mnist", "cifar10"}
    assert choose_worlds(REPORT) == list(WORLDS)
    assert choose_seeds(TUNE, None) == (1, 2, 3)
    assert choose_seeds(REPORT, [13, 11, 13]) == (13, 11)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("tune", "--seeds", "1", "11"), "--seeds 11 is not a seed of this mode, whose seeds are 1, 2, 3"),
        (("report", "--seeds", "2"), "--seeds 2 is not a seed of this mode, whose seeds are 11, 12, 13"),
        (("tune", "--seeds", "4"), "--seeds 4 is not a seed"),
        (("tune", "--only", "sent140"), "--only sent140 names no world of this mode"),
        (("tune", "--only", "cifar10-*", "femnist-*"), "--only femnist-* names no world of this mode"),
        (("report", "--only", "mnst"), "--only mnst names no world"),
        (("tune", "--only", "sites-5", "--attacks", "dba"), "--attacks dba is not an attack on these worlds, whose"),
    ],
)
def test_the_other_modes_seeds_and_worlds_are_refused(
    arguments: tuple[str, ...], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mode, *rest = arguments
    assert main([mode, "snowball", "--out", str(tmp_path), "--plan", *rest]) == 2
    assert capsys.readouterr().err.startswith(f"strength: {fault}")
    assert not list(tmp_path.iterdir())


def test_a_defense_that_is_not_known_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "snowbal", "--out", str(tmp_path)]) == 2
    assert "did you mean 'snowball'?" in capsys.readouterr().err
    with pytest.raises(SettingError, match=r"defense\.tolerat is not a setting"):
        make_experiment(job("sites-5", "cba", "krum:tolerat=0.2"))


def test_a_defense_takes_several_settings_and_lists() -> None:
    assert parse_defense('snowball-plus:without=["crowd","position"],remember=9') == {
        "name": "snowball-plus",
        "without": ["crowd", "position"],
        "remember": 9,
    }


def test_the_plan_says_how_long_it_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World("cpu/mnist", ("rounds=10", "data.clients=100", "data.minimum=10"), ("cba", "dba", "clean"), 12.0)
    monkeypatch.setitem(WORLDS, "small", world)
    chosen = ["tune", "snowball", "--out", str(tmp_path), "--only", "small", "--seeds", "1", "2", "--plan"]
    assert main(chosen) == 0
    # FedAvg and Snowball in three cells, Ideal in one for two of them, two seeds: 14 runs of 120 seconds
    assert capsys.readouterr().err.startswith("14 of 14 runs are to be made, about 28 core-minutes or 14 minutes")


def run(cell: str, defense: str, seed: int, main: float, backdoor: float | None, **more: Any) -> dict[str, Any]:
    """A made-up run, whose last round is 10 points of main accuracy and of the backdoor below the best."""
    world, attack = cell.split()
    clients = {"honest": 4, "mean_share": 0.25, "most": "c", "most_share": 0.5, "most_rounds": 8, "never_elected": 1}
    return {
        "world": world,
        "attack": attack,
        "defense": defense,
        "seed": seed,
        "best": {"round": 1, "main_accuracy": main, "backdoor_accuracy": backdoor},
        "last": {
            "round": 2,
            "main_accuracy": main - 0.1,
            "backdoor_accuracy": None if backdoor is None else backdoor - 0.1,
        },
        "infected_elected": None if backdoor is None else 0.2,
        "honest_left_out": 0.25,
        "clients": clients,
        **more,
    }


def judge(runs: list[dict[str, Any]], cells: list[str], seeds: tuple[int, ...] = (1, 2)) -> list[Any]:
    jobs = [job(*cell.split(), "fedavg", seed) for cell in cells for seed in seeds]
    return judge_cells(runs, "ours", jobs)


A, B = "w a", "w b"
RUNS = [
    *(run(A, "fedavg", seed, 0.9, 1.0) for seed in (1, 2)),
    *(run(A, "ideal", seed, 0.9, 0.2) for seed in (1, 2)),
    run(A, "ours", 1, 0.8, 0.3),
    run(A, "ours", 2, 0.6, 0.7, infected_elected=0.4, honest_left_out=0.75),
    *(run(B, "fedavg", seed, 0.9, 0.95) for seed in (1, 2)),
    *(run(B, "ideal", seed, 0.9, 0.2) for seed in (1, 2)),
    *(run(B, "ours", seed, 0.9, 0.2, infected_elected=0.0, honest_left_out=0.0) for seed in (1, 2)),
]


def test_cells_are_means_over_seeds_and_the_headline_mean_and_worst_of_cells() -> None:
    cells = judge(RUNS, [A, B])
    first = cells[0].numbers
    assert first["backdoor_best"] == pytest.approx((0.1 + 0.5) / 2)
    assert first["backdoor_last"] == pytest.approx((0.1 + 0.5) / 2)
    assert first["main_lost_best"] == pytest.approx((0.1 + 0.3) / 2)
    assert first["infected_elected"] == pytest.approx(0.3)
    assert first["honest_left_out"] == pytest.approx(0.5)
    assert first["most_left_out"] == pytest.approx(2.0)
    assert first["never_elected"] == pytest.approx(0.25)
    headline = make_headline(cells, "ours")
    assert (headline["missing_runs"], headline["not_counting"]) == (0, {"cells": 0, "of": 0})
    assert headline["attacked"]["cells"] == headline["attacked"]["of"] == 2
    assert headline["attacked"]["backdoor_best"] == {
        "mean": pytest.approx(0.15),
        "worst": pytest.approx(0.3),
        "worst_cell": "w a",
        "worst_run": pytest.approx(0.5),
    }
    assert headline["attacked"]["honest_left_out"]["mean"] == pytest.approx(0.25)
    assert headline["clean"] == {"cells": 0, "of": 0}


def test_the_last_round_is_judged_by_itself() -> None:
    late = run(A, "ours", 1, 0.9, 0.2)
    late["last"] |= {"main_accuracy": 0.5, "backdoor_accuracy": 0.9}
    (cell,) = judge([*RUNS[:4], late], [A], (1,))
    assert (cell.numbers["backdoor_best"], cell.numbers["backdoor_last"]) == (0, pytest.approx(0.8))
    assert (cell.numbers["main_lost_best"], cell.numbers["main_lost_last"]) == (0, pytest.approx(0.3))


def test_seeds_with_which_fedavg_does_not_learn_the_backdoor_do_not_count() -> None:
    faint = [run(A, "fedavg", 1, 0.9, 0.9), *RUNS[1:]]  # 80 % in the last round, and no more than that
    (cell,) = judge(faint, [A])
    assert (cell.counts, cell.found, cell.of) == (True, 1, 1)
    assert cell.numbers["backdoor_best"] == pytest.approx(0.5)  # the second seed's
    assert cell.fedavg == pytest.approx((0.8 + 0.9) / 2)


def test_a_cell_that_does_not_count_is_shown_apart() -> None:
    faint = [*(run(A, "fedavg", seed, 0.9, 0.6) for seed in (1, 2)), *RUNS[2:]]
    cells = judge(faint, [A, B])
    assert [cell.counts for cell in cells] == [False, True]
    headline = make_headline(cells, "ours")
    assert headline["not_counting"]["backdoor_last"]["worst"] == pytest.approx(0.3)
    assert headline["not_counting"]["backdoor_last"]["worst_cell"] == "w a"
    assert headline["missing_runs"] == 0
    assert headline["attacked"]["of"] == 1
    assert headline["attacked"]["backdoor_best"]["worst"] == pytest.approx(0)
    assert "| w | a | 50.0 | no | 2 of 2 | 30.0 |" in tabulate_cells(cells)


@pytest.mark.parametrize("lost", ["fedavg", "ideal", "ours"])
def test_missing_and_failed_runs_are_counted(lost: str) -> None:
    (place,) = (number for number, each in enumerate(RUNS[:6]) if (each["defense"], each["seed"]) == (lost, 2))
    failed = {name: RUNS[place][name] for name in ("world", "attack", "defense", "seed")} | {"fault": "it fell over"}
    for runs in ([*RUNS[:place], *RUNS[place + 1 :]], [*RUNS[:place], failed, *RUNS[place + 1 :]]):
        cells = judge(runs, [A, B])
        assert [(cell.found, cell.of) for cell in cells] == [(1, 2), (2, 2)]
        assert make_headline(cells, "ours")["missing_runs"] == 1


def test_a_cell_of_which_nothing_is_known_is_missing_and_not_good() -> None:
    cells = judge(RUNS, [A, B, "w c"])
    headline = make_headline(cells, "ours")
    assert headline["missing_runs"] == 2
    assert (headline["attacked"]["cells"], headline["attacked"]["of"]) == (2, 3)
    assert "| w | c | - | unknown | 0 of 2 | - |" in tabulate_cells(cells)
    table = tabulate_headlines([headline, make_headline(judge(RUNS, [A, B]), "theirs")]).splitlines()
    assert table[0] == "|  | ours | theirs |"
    assert table[2:4] == ["| runs missing | 2 | 0 |", "| cells judged, of those that count | 2 of 3 | 2 of 2 |"]
    assert "| attacked: backdoor over Ideal's, last round, worst | 30.0 | 30.0 |" in table
    assert "| attacked: backdoor over Ideal's, last round, worst cell | w a | w a |" in table
    assert "| clean: most left out, times the mean, worst | - | - |" in table


def test_clean_federations_are_judged_apart() -> None:
    free = {"most_share": 0.0, "mean_share": 0.0, "honest": 4, "never_elected": 0}
    clean = [
        *(run("w clean", "fedavg", seed, 0.9, None) for seed in (1, 2)),
        run("w clean", "ours", 1, 0.7, None, honest_left_out=0.5),
        run("w clean", "ours", 2, 0.9, None, honest_left_out=0.0, clients=free),
    ]
    cells = judge([*RUNS, *clean], [A, B, "w clean"])
    headline = make_headline(cells, "ours")
    assert headline["attacked"] == make_headline(judge(RUNS, [A, B]), "ours")["attacked"]
    found = headline["clean"]
    assert (found["cells"], found["of"], headline["missing_runs"]) == (1, 1, 0)
    assert found["honest_left_out"]["worst"] == pytest.approx(0.25)
    assert found["main_lost_best"]["worst"] == pytest.approx(0.1)
    assert found["most_left_out"]["worst"] == pytest.approx(2.0)  # of the run that left anybody out
    assert "backdoor_best" not in found
    assert "infected_elected" not in found
    assert "| w | clean | - | yes | 2 of 2 | - | - | 10.0 |" in tabulate_cells(cells)
    ideal = judge_cells([*RUNS, *clean], "ideal", [job("w", "clean", "fedavg", 1)])
    assert ideal[0].numbers["main_lost_best"] == 0  # Ideal of a clean federation is FedAvg


def test_honest_clients_are_counted_one_by_one() -> None:
    rounds = [
        {
            "participants": ["a", "b", "c", "x"],
            "malicious": [False] * 3 + [True],
            "elected": [True, False, True, False],
        },
        {"participants": ["a", "b", "x"], "malicious": [False, False, True], "elected": [False, False, True]},
        {"participants": ["b", "c"], "malicious": [False, False], "elected": [False, True]},
    ]
    assert summarise_clients(rounds) == {
        "honest": 3,
        "mean_share": pytest.approx((0.5 + 1 + 0) / 3),
        "most": "b",
        "most_share": 1.0,
        "most_rounds": 3,
        "never_elected": 1,
    }
    nobody = summarise_clients([])
    assert (nobody["honest"], nobody["mean_share"], nobody["most"]) == (0, None, None)


def test_a_small_world_is_run_and_judged_and_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = ("rounds=2", "cohort=5", "data.clients=5", "data.examples=100", "data.minimum=2", "data.name=mnist-sample")
    world = World("cpu/mnist", (*size, "training.epochs=1"), ("cba", "clean"), 0.3)
    monkeypatch.setattr(worlds, "WORLDS", {"tiny": world})
    monkeypatch.setattr(headline, "TAKEN", -1.0)
    chosen = ["tune", "krum:tolerate=0.2", "--out", str(tmp_path), "--seeds", "1"]
    assert main(chosen) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("5 of 5 runs are to be made")
    assert "| tiny | cba |" in captured.out
    result = json.loads((tmp_path / "tune" / "strength.json").read_text(encoding="utf-8"))
    assert [(each["attack"], each["defense"]) for each in result["runs"]] == [
        *(("cba", defense) for defense in ("fedavg", "ideal", "krum:tolerate=0.2")),
        *(("clean", defense) for defense in ("fedavg", "krum:tolerate=0.2")),
    ]
    assert (result["mode"], result["headlines"][0]["missing_runs"]) == ("tune", 0)
    assert (result["runs"][0]["trigger"], result["runs"][0]["target"]) == ("white-square", 1)
    folders = [RunFolder.open(path.parent) for path in tmp_path.glob("tune/*/run.json")]
    assert len(folders) == 5
    assert all((tmp_path / "tune" / each["run"] / "summary.json").exists() for each in result["runs"])
    assert main(chosen) == 0
    assert capsys.readouterr().err.startswith("0 of 5 runs are to be made")
    known = ["--known", str(tmp_path / "tune" / "strength.json")]
    elsewhere = ["tune", "krum:tolerate=0.2", "--out", str(tmp_path / "elsewhere"), "--seeds", "1", *known]
    assert main(elsewhere) == 0
    assert capsys.readouterr().err.startswith("0 of 5 runs are to be made")
    assert json.loads((tmp_path / "elsewhere" / "tune" / "strength.json").read_text(encoding="utf-8")) == result
    false = write_known(tmp_path / "false.json", [each | {"honest_left_out": 1.0} for each in result["runs"]])
    assert main([*chosen, "--known", false]) == 0  # what the folder holds counts for more
    assert json.loads((tmp_path / "tune" / "strength.json").read_text(encoding="utf-8")) == result


SMALL = World("cpu/mnist", ("rounds=10", "data.clients=100", "data.minimum=10"), ("cba", "dba", "clean"), 12.0)
LIKE_SMALL = World("cpu/mnist", (*SMALL.changes, "attack.poison_ratio=0.5"), ("cba",), 12.0)
ALL_RUNS = ("cba fedavg", "cba ideal", "cba ours", "dba fedavg", "dba ours", "clean fedavg", "clean ours")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world whose jobs with one seed and one defense are seven runs, and one that shares a run of Ideal with it."""
    monkeypatch.setattr(worlds, "WORLDS", {"small": SMALL, "like-small": LIKE_SMALL, "sent140": SENT140})


SENT140 = WORLDS["sent140"]


def known_run(attack: str, defense: str, seed: int = 1, world: str = "small", **more: Any) -> dict[str, Any]:
    """A made-up line of a result, with the name that the run has."""
    backdoor = None if attack == "clean" else 0.95
    finished = {"run": name_run(make_experiment(job(world, attack, defense, seed))), "seconds": 1.5}
    return run(f"{world} {attack}", defense, seed, 0.9, backdoor, trigger=None, target=1) | finished | more


def known_runs(*cells: str) -> list[dict[str, Any]]:
    return [known_run(*cell.replace("ours", "krum").split()) for cell in cells]


def write_known(path: Path, runs: list[Any]) -> str:
    path.write_text(json.dumps({"mode": "tune", "runs": runs}), encoding="utf-8")
    return str(path)


def call(folder: Path, *more: str) -> int:
    return main(["tune", "krum", "--out", str(folder), "--only", "small", "--seeds", "1", *more])


@pytest.mark.usefixtures("small")
def test_known_runs_are_taken_over_and_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [
        write_known(tmp_path / "a", known_runs(*ALL_RUNS[:3])),
        write_known(tmp_path / "b", known_runs(*ALL_RUNS[3:])),
    ]
    assert call(tmp_path, "--plan", "--known", files[0]) == 0
    assert capsys.readouterr().err.startswith("4 of 7 runs are to be made, about 8 core-minutes")
    assert call(tmp_path, "--known", *files) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("0 of 7 runs are to be made")
    assert "| runs missing | 0 |" in captured.out
    written = json.loads((tmp_path / "tune" / "strength.json").read_text(encoding="utf-8"))["runs"]
    (shared,) = known_runs("dba ideal")
    assert written == sorted([*known_runs(*ALL_RUNS), shared], key=lambda each: (each["attack"], each["defense"]))


@pytest.mark.usefixtures("small")
def test_runs_that_nobody_asks_for_are_kept_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = [
        known_run("cba", "rlr"),
        known_run("cba", "krum", 2, infected_elected=1.0),
        known_run("cba", "krum", 1, "like-small"),
        known_run("cba", "fedavg", 1) | {"world": "of-yesterday"},
        {"world": "small", "attack": "dba", "defense": "rlr", "seed": 3, "run": "a", "fault": "it fell over"},
    ]
    assert call(tmp_path, "--known", write_known(tmp_path / "a", known_runs(*ALL_RUNS))) == 0
    alone = capsys.readouterr().out
    file = write_known(tmp_path / "b", [*others, *known_runs(*ALL_RUNS)])
    assert call(tmp_path, "--known", file) == 0
    assert capsys.readouterr().out == alone
    written = json.loads((tmp_path / "tune" / "strength.json").read_text(encoding="utf-8"))["runs"]
    assert len(written) == 8 + len(others)
    assert all(each in written for each in others)
    seeds = [each["seed"] for each in written]
    assert seeds == sorted(seeds)


def name_jobs(defense: str = "krum") -> dict[Job, str]:
    """What is asked for of the small world, with the names of the runs."""
    return {each: name_run(make_experiment(each)) for each in list_jobs(choose_cells(["small"]), [defense], [1])}


@pytest.mark.usefixtures("small")
def test_runs_with_other_settings_are_ignored_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stale = [each | {"run": f"{each['run'][:-1]}x"} for each in known_runs(*ALL_RUNS[:2])]
    file = write_known(tmp_path / "a", [*stale, *known_runs(*ALL_RUNS[2:])])
    assert call(tmp_path, "--plan", "--known", file) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "2 known runs are ignored: their settings are not those of today"
    assert said[1].startswith("2 of 7 runs are to be made")
    known = match_runs(stale, name_jobs())
    assert known == Known({}, [], 2)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("mislabelled", [{"attack": "dba"}, {"defense": "rlr"}, {"seed": 2}, {"world": "like-small"}])
def test_a_run_under_the_label_of_another_is_not_taken_over(mislabelled: dict[str, Any]) -> None:
    known = match_runs([known_run("cba", "krum") | mislabelled], name_jobs())
    assert not known.done


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("cell", ["small cba", "small dba", "like-small cba"])
def test_a_run_of_ideal_is_known_from_any_cell_that_shares_it(cell: str) -> None:
    world, attack = cell.split()
    line = known_run(attack, "ideal", 1, world)
    known = match_runs([line], name_jobs())
    assert known.done == {line["run"]: line}
    assert match_runs([line | {"world": "of-yesterday"}], name_jobs()).done == {}
    assert match_runs([line | {"attack": "clean"}], name_jobs()).done == {}
    assert match_runs([line | {"seed": 2}], name_jobs()).done == {}


@pytest.mark.usefixtures("small")
def test_a_known_run_that_failed_is_made_again() -> None:
    done = known_run("cba", "krum")
    failed = {name: done[name] for name in ("world", "attack", "defense", "seed", "run")} | {"fault": "it fell over"}
    assert match_runs([failed], name_jobs()) == Known({}, [], 0)
    for lines in ([failed, done], [done, failed]):
        assert match_runs(lines, name_jobs()).done == {done["run"]: done}
        assert match_runs(lines, name_jobs("rlr")).others == [done]


FINE = run("small cba", "krum", 1, 0.9, 0.95, trigger=None, target=1, run="a", seconds=1.5)


def change(section: str, **fields: Any) -> dict[str, Any]:
    return FINE | {section: FINE[section] | fields}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "is not valid JSON"),
        ("[" * 200_000, "nested|recursion"),
        ("[]", "an object was expected, got list"),
        ('{"mode": "report", "runs": []}', "its 'mode' cannot be 'report'"),
        ('{"mode": 1, "runs": []}', "its 'mode' cannot be 1"),
        ('{"mode": "tune", "runs": {}}', "its 'runs' cannot be {}"),
        ([1], "run 1: an object was expected, got int"),
        ([FINE, FINE | {"world": 1}], "run 2: its 'world' cannot be 1"),
        ([FINE | {"seed": True}], "run 1: its 'seed' cannot be True"),
        ([FINE | {"seed": 11}], "run 1 has seed 11, which is not a seed of this mode"),
        ([FINE | {"world": "sent140"}], "run 1 is of sent140, which is not a world of this mode"),
        ([{name: FINE[name] for name in FINE if name != "run"}], "run 1: it has no 'run'"),
        ([{name: FINE[name] for name in FINE if name != "clients"}], "run 1: it has no 'clients'"),
        ([FINE | {"fault": None}], "run 1: its 'fault' cannot be None"),
        ([FINE | {"infected_elected": 1.5}], "run 1: its 'infected_elected' cannot be 1.5"),
        ([FINE | {"honest_left_out": "0.5"}], "run 1: its 'honest_left_out' cannot be '0.5'"),
        ([FINE | {"seconds": -1}], "run 1: its 'seconds' cannot be -1"),
        ([FINE | {"seconds": float("nan")}], "run 1: its 'seconds' cannot be None"),
        ([FINE | {"target": 10**20}], "run 1: its 'target' cannot be 1000"),
        ([FINE | {"last": None}], "run 1: its 'last' cannot be None"),
        ([change("last", main_accuracy=None)], "run 1, 'last': its 'main_accuracy' cannot be None"),
        ([change("best", backdoor_accuracy=None)], "run 1, 'best': its 'backdoor_accuracy' cannot be None"),
        ([FINE | {"attack": "clean"}], "run 1, 'best': its 'backdoor_accuracy' cannot be 0.95"),
        ([change("clients", honest=-1)], "run 1, 'clients': its 'honest' cannot be -1"),
        ([change("clients", never_elected=5)], "run 1, 'clients': 5 of 4 clients cannot have been left out"),
        ([change("clients", most_share=None)], "'mean_share' of 0.25 cannot have a 'most_share' of None"),
        ([change("clients", mean_share=5e-324)], "'mean_share' of 5e-324 cannot have a 'most_share' of 0.5"),
        ([FINE | {"world": "\x1b[2J\n", "seed": "\x1b[2J\n"}], r"cannot be '\x1b[2J\n'"),
    ],
)
def test_a_file_that_is_not_a_result_is_refused_in_one_sentence(
    content: str | list[Any], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "known.json"
    if isinstance(content, str):
        file.write_text(content, encoding="utf-8")
    else:
        write_known(file, content)
    assert call(tmp_path / "out", "--plan", "--known", str(file)) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"strength: {file} ")
    assert any(each in said for each in fault.split("|"))
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("small")
def test_a_known_file_must_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, "--plan", "--known", str(tmp_path / "none.json")) == 2
    assert capsys.readouterr().err == f"strength: {tmp_path / 'none.json'} cannot be used: No such file or directory\n"


def test_a_result_of_ones_own_is_fine(tmp_path: Path) -> None:
    nobody = {
        "honest": 0,
        "mean_share": None,
        "most": None,
        "most_share": None,
        "most_rounds": None,
        "never_elected": 0,
    }
    lines = [
        FINE,
        FINE | {"clients": nobody, "honest_left_out": None},
        change("clients", most_share=0.0, mean_share=0.0),
    ]
    assert read_known(Path(write_known(tmp_path / "a", lines)), "tune") == lines
