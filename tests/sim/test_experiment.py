import json
from collections.abc import Callable
from pathlib import Path

import pytest

from snowball.attacks import ATTACKS, CBA
from snowball.defenses import DEFENSES, FLIP, Ideal, SnowballMinus
from snowball.errors import SettingError
from snowball.records.presets import describe_presets, read_preset
from snowball.sim.experiment import CHOICES, AttackSettings, Experiment, TrainingSettings
from snowball.sim.presets import load_experiment

MakeExperiment = Callable[..., Experiment]


def test_settings_survive_json_and_hold_every_default(tiny: MakeExperiment) -> None:
    for name in DEFENSES:
        experiment = tiny(f"defense.name={name}")
        settings = json.loads(json.dumps(experiment.dump_settings()))
        assert Experiment.parse(settings) == experiment
        assert settings["training"]["weight_decay"] == 5e-4
        assert settings["data"]["alpha"] == 0.5
        assert settings["attack"]["target"] == 1


def test_attack_and_defense_are_built_from_their_settings(tiny: MakeExperiment) -> None:
    experiment = tiny("attack.target=7", "defense.first_share=0.4")
    assert experiment.attack.build() == CBA(target=7, poison_ratio=0.3)
    assert experiment.defense.build({"1"}) == SnowballMinus(clusters=2, first_share=0.4)


def test_only_a_defense_that_asks_is_told_who_is_malicious(tiny: MakeExperiment) -> None:
    assert tiny("defense.name=ideal").defense.build({"1"}) == Ideal({"1"})


def test_no_attack_has_no_attackers(tiny: MakeExperiment) -> None:
    attack = tiny("attack.name=none").attack
    assert attack.build() is None
    assert attack.count_attackers(100) == 0


def test_shares_are_not_cut_by_floating_point() -> None:
    assert AttackSettings(name="cba", malicious=0.29).count_attackers(100) == 29  # int(0.29 * 100) is 28
    assert AttackSettings(name="cba", malicious=0.2).count_attackers(8) == 1


def test_the_learning_rate_has_decayed_once_in_the_first_round() -> None:
    assert TrainingSettings().compute_rate(1) == 0.01 * 0.99
    assert TrainingSettings().compute_rate(30) == 0.01 * 0.99**30


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("round=3", "round is not a setting; did you mean 'rounds'?"),
        ("training.epoch=3", "training.epoch is not a setting of training; did you mean 'epochs'?"),
        ("data.alfa=3", "data.alfa is not a setting of dirichlet-plain; did you mean 'alpha'?"),
        ("attack.poison=1", "attack.poison is not a setting of cba; did you mean 'poison_ratio'?"),
        ("defense.first_shar=1", "defense.first_shar is not a setting of snowball-minus; did you mean 'first_share'?"),
        ("defense.clusters=1", "clusters must be 2 or more, or 'gap', got 1"),
        ("model.name=cn", "model.name = 'cn' is not known; did you mean 'cnn'?"),
        ("data.name=mnistsample", "data.name = 'mnistsample' is not known; did you mean 'mnist-sample'?"),
        ("data.tokeniser=publshed", "data.tokeniser = 'publshed' is not known; did you mean 'published'?"),
        ("data.partition=ii", "data.partition = 'ii' is not known; did you mean 'iid'?"),
        ("rounds=ten", 'rounds = "ten" should be a valid integer'),
        ("rounds=0", "rounds = 0 should be greater than or equal to 1"),
        ("training.lr=nan", "training.lr = NaN should be a finite number"),
        ("training=3", "training is a section: did you mean training.epochs=3?"),
        ("defense=fedavg", "defense is a section: did you mean defense.name=fedavg?"),
        ("defense.name=[1]", "defense.name = [1] should be a valid string"),
        ("data.partition=[1]", "data.partition = [1] should be a valid string"),
        ("attack.name={a=1}", 'attack.name = {"a": 1} should be a valid string'),
        ("attack.draw=all", "attack.draw = \"all\" should be 'exact', 'same' or 'random'"),
        ("cohort=9", "cohort = 9 is more than data.clients = 8"),
        ("attack.malicious=0.15", "attack.malicious = 0.15 of cohort = 5 rounds down to 0 clients"),
        ("attack.malicious=0.1", "attack.malicious = 0.1 of data.clients = 8 rounds down to 0 clients"),
    ],
)
def test_a_fault_is_one_sentence(tiny: MakeExperiment, assignment: str, sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        tiny(assignment)
    assert str(caught.value) == sentence


def test_a_list_that_is_too_short_is_not_called_missing() -> None:
    with pytest.raises(SettingError, match=r"^defense\.ramp = \[0\.1\] lacks an entry$"):
        load_experiment("demo", ["defense.name=crfl", "defense.ramp=[0.1]"])


def test_a_random_draw_needs_no_attacker_in_every_cohort(tiny: MakeExperiment) -> None:
    assert tiny("attack.malicious=0.15", "attack.draw=random").attack.count_attackers(8) == 1


@pytest.mark.parametrize("name", describe_presets())
def test_presets_parse(name: str) -> None:
    assert load_experiment(name).dump_settings()["rounds"] == read_preset(name, CHOICES)["rounds"]


def test_every_preset_is_listed_with_what_it_is() -> None:
    listed = describe_presets()
    assert {"demo", "cpu/mnist", "paper/mnist"} <= set(listed)
    assert all(summary and not summary.startswith("#") for summary in listed.values())


def test_every_cpu_preset_is_a_smaller_paper_preset_with_the_same_shares() -> None:
    for name in (name for name in describe_presets() if name.startswith("cpu/")):
        small, whole = load_experiment(name), load_experiment(name.replace("cpu", "paper"))
        assert small.data.name == whole.data.name
        assert small.attack == whole.attack
        assert small.rounds < whole.rounds
        shares = ("first_share", "target_share", "step_share", "grow_after", "clusters")
        assert [small.defense.own[share] for share in shares] == [whole.defense.own[share] for share in shares]


@pytest.mark.parametrize("name", ATTACKS)
def test_the_demo_s_attack_can_be_changed_by_its_name_alone(name: str) -> None:
    assert load_experiment("demo", [f"attack.name={name}"]).attack.name == name


def test_fldetector_forgets_clients_of_one_preset_alone() -> None:
    chosen = {name: load_experiment(name, ["defense.name=fldetector"]) for name in describe_presets()}
    forgetful = [name for name, one in chosen.items() if one.defense.own["remember"] < one.data.clients]
    assert forgetful == ["paper/femnist"]
    small = {name: one.defense.own["remember"] for name, one in chosen.items() if not name.startswith("paper/")}
    assert set(small.values()) == {512}  # the default, so that runs keep their names


def test_a_preset_s_defense_can_be_changed_by_its_name_alone() -> None:
    assert load_experiment("paper/mnist", ["defense.name=fedavg"]).defense.own == {}
    assert load_experiment("paper/mnist", ["defense.name=snowball-minus"]).defense.own["clusters"] == 11


def test_the_mnist_preset_is_the_paper_s() -> None:
    experiment = load_experiment("paper/mnist")
    assert (experiment.data.clients, experiment.cohort, experiment.rounds) == (200, 50, 100)
    assert experiment.attack.count_attackers(200) == 40
    assert experiment.defense.own["judge"] == "vae"
    assert (experiment.training.epochs, experiment.training.batch) == (5, 10)


PUBLISHED = {
    "mnist": (200, 50, 100, 5, 11, 25, 2, 270, 30, 10),
    "fashion-mnist": (200, 50, 120, 5, 11, 30, 2, 270, 30, 10),
    "cifar10": (200, 50, 300, 5, 12, 100, 2, 450, 50, 10),
    "femnist": (3597, 100, 160, 5, 11, 80, 5, 360, 40, 20),
    "sent140": (2000, 50, 60, 2, 11, 30, 2, 360, 40, 10),
}
"""Clients, clients per round, rounds, epochs, clusters, last bottom-up round, seats per step, VAE epochs, RLR."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_paper_s_presets_have_the_published_numbers(name: str) -> None:
    run, rlr = load_experiment(f"paper/{name}"), load_experiment(f"paper/{name}", ["defense.name=rlr"])
    own = run.defense.own
    growth = int(own["grow_after"] * run.rounds), round(own["step_share"] * run.cohort)
    vae = own["vae"].first_epochs, own["vae"].tune_epochs
    federation = run.data.clients, run.cohort, run.rounds, run.training.epochs, own["clusters"]
    assert (*federation, *growth, *vae, rlr.defense.own["threshold"]) == PUBLISHED[name]


@pytest.mark.parametrize(
    ("preset", "training", "steps"),
    [
        ("paper/mnist", (10, 64, 0.01, 0.5), (400, 200, 50)),
        ("paper/fashion-mnist", (5, 128, 0.01, 0.6), (600, 400, 100)),
        ("cpu/mnist", (2, 64, 0.01, 0.5), (30, 20, 10)),
        ("cpu/fashion-mnist", (2, 64, 0.01, 0.5), (30, 20, 10)),
    ],
)
def test_flip_has_its_authors_settings_for_the_data_set(
    preset: str, training: tuple[float, ...], steps: tuple[int, ...]
) -> None:
    flip = load_experiment(preset, ["defense.name=flip"]).defense.build()
    assert isinstance(flip, FLIP)
    assert (flip.epochs, flip.batch, flip.lr, flip.portion) == training
    assert (flip.inversion.universal_steps, flip.inversion.pair_steps, flip.inversion.repeat_steps) == steps
    assert (flip.reject_below, flip.max_batches) == (0.4, 110)


def test_a_file_may_extend_a_preset_or_another_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "demo"\nrounds = 3\n[defense]\nkeep = 2\nname = "krum"\n')
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "other.toml").write_text('extends = "../mine.toml"\n[attack]\nname = "none"\n')
    with pytest.raises(SettingError, match=r"defense\.keep is not a setting of krum"):
        load_experiment(tmp_path / "mine.toml")
    (tmp_path / "mine.toml").write_text('extends = "demo"\nrounds = 3\n[defense]\ntolerate = 0.1\nname = "krum"\n')
    changed, whole = load_experiment(tmp_path / "inner" / "other.toml"), load_experiment("demo")
    assert (changed.rounds, changed.cohort, changed.attack.name) == (3, whole.cohort, "none")
    assert (changed.defense.name, changed.defense.own["tolerate"]) == ("krum", 0.1)


def test_a_file_that_extends_another_choice_drops_what_belonged_to_the_former(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "paper/mnist"\ndefense.name = "fedavg"\ndata.partition = "iid"\n')
    assert load_experiment(file).defense.own == {}
    assert load_experiment(file).data.own == {}


@pytest.mark.parametrize(
    ("extends", "sentence"),
    [
        ('"mine.toml"', r"mine\.toml are nested too deeply, or it extends itself"),
        ('"demon"', r"demon' is neither a preset nor a file"),
        ("3", r"extends = 3 in .*mine\.toml is neither the name of a preset nor a file"),
    ],
)
def test_what_cannot_be_extended_is_refused(tmp_path: Path, extends: str, sentence: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"extends = {extends}\n")
    with pytest.raises(SettingError, match=sentence):
        load_experiment(file)


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('rounds = 3\ncohort = 2\ndata = {name = "mnist-sample", clients = 4}\n', encoding="utf-8")
    experiment = load_experiment(file, ["model.name=cnn", "defense.name=fedavg"])
    assert (experiment.rounds, experiment.model.name, experiment.attack.name) == (3, "cnn", "none")


def test_a_file_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xef\xbb\xbfrounds = 3\n")
    assert read_preset(file, CHOICES) == {"rounds": 3}


DEEP = "rounds = " + "[" * 9000 + "]" * 9000


@pytest.mark.parametrize(("content", "assignments"), [(DEEP, []), ("rounds = 3", [DEEP])])
def test_settings_nested_too_deeply_are_refused(tmp_path: Path, content: str, assignments: list[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SettingError, match=r"mine\.toml .*nested too deeply"):
        load_experiment(file, assignments)


@pytest.mark.parametrize("content", [b"rounds = ", b"rounds = " + b"1" * 5000, b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(content)
    with pytest.raises(SettingError, match=r"mine\.toml is not a TOML file: "):
        load_experiment(file)


def test_a_preset_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"^'dmo' is neither a preset nor a file; did you mean 'demo'"):
        load_experiment("dmo")
    with pytest.raises(SettingError, match=r"is neither a preset nor a file$"):
        load_experiment(tmp_path)


PEERS = """
rounds = 2
cohort = 5
[data]
name = "mnist-sample"
clients = 8
[model]
name = "cnn-quarter"
[defense]
name = "snowball"
clusters = 3
[peers.voting-center]
first_share = 0.4
[peers.snowball-minus]
clusters = 4
"""


def test_a_file_says_what_is_set_for_each_defense_that_may_be_chosen(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(PEERS)
    assert load_experiment(file).defense.own["clusters"] == 3
    assert load_experiment(file, ["defense.name=voting-center"]).defense.own == {"layers": "ends", "first_share": 0.4}
    chosen = load_experiment(file, ["defense.name=voting-center", "defense.first_share=0.2"])
    assert chosen.defense.own["first_share"] == 0.2
    assert load_experiment(file, ["defense.name=snowball-minus"]).defense.own["clusters"] == 4
    assert load_experiment(file, ["defense.clusters=5", "defense.name=snowball-minus"]).defense.own["clusters"] == 5
    assert load_experiment(file, ["defense.name=fedavg"]).defense.own == {}


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("[peers.voting-centre]", "peers = 'voting-centre' is not known; did you mean 'voting-center'?"),
        (
            "[peers.snowball]\ncluster=3",
            "peers.snowball.cluster is not a setting of snowball; did you mean 'clusters'?",
        ),
        ("[peers.snowball]\nclusters = 1", "clusters must be 2 or more, or 'gap', got 1"),
        ("[peers]\nsnowball = 3", "peers.snowball must be a section with the settings of a defense, got 3"),
    ],
)
def test_a_fault_in_the_settings_of_a_peer_is_found_before_it_is_chosen(
    tmp_path: Path, section: str, fault: str
) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(PEERS[: PEERS.index("[peers")] + section)
    with pytest.raises(SettingError) as caught:
        load_experiment(file)
    assert str(caught.value) == fault
