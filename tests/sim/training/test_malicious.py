"""Malicious clients in the simulator, beyond poisoned samples."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from snowball.attacks import ATTACKS
from snowball.errors import SettingError
from snowball.layout import select_parameters
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate
from snowball.sim.training.client import LocalTraining
from snowball.sim.training.malicious import SimulatedSession
from snowball.updates import Updates

MakeExperiment = Callable[..., Experiment]

pytestmark = pytest.mark.usefixtures("few_test_digits")
IMAGE_ATTACKS = [name for name in ATTACKS if name not in ("text", "sdba")]


def record_updates(experiment: Experiment, engine: Any = SerialEngine) -> tuple[list[dict[str, Any]], list[Tensor]]:
    """Return the records, and each round's rows in the order of its participants."""
    seen: list[dict[str, Tensor]] = []

    def observe(updates: Updates, malicious: Sequence[bool], round: int) -> None:
        seen.append(dict(zip(updates.clients, updates.values.clone(), strict=True)))

    records = list(simulate(Federation.build(experiment), engine, observe=observe))
    rows = [
        torch.stack([by_client[client] for client in record["participants"]])
        for record, by_client in zip(records, seen, strict=True)
    ]
    return records, rows


@pytest.fixture
def fed(tiny: MakeExperiment) -> MakeExperiment:
    """Return a function that makes an experiment of one round of FedAvg with two attackers among five clients."""
    return lambda name, *more: tiny(
        "defense.name=fedavg", "rounds=1", "data.examples=120", f"attack.name={name}", "attack.malicious=0.4", *more
    )


def test_every_attack_on_images_runs_and_touches_only_its_own_clients(fed: MakeExperiment) -> None:
    _, plain = record_updates(fed("cba"))
    for name in IMAGE_ATTACKS:
        records, rows = record_updates(fed(name, *(["attack.radius=0.05"] if name == "pgd" else [])))
        malicious = torch.tensor(records[0]["malicious"])
        assert malicious.sum() == 2
        assert torch.equal(rows[0][~malicious], plain[0][~malicious]), name
        assert name == "cba" or not torch.equal(rows[0][malicious], plain[0][malicious]), name
        untargeted = name in ("ipm", "min-max", "min-sum")
        assert (records[0]["backdoor_accuracy"] is None) == untargeted, name


@pytest.mark.parametrize("name", ["neurotoxin", "adaptive"])
@pytest.mark.parametrize("model", ["cnn-quarter", "cifar-cnn-quarter"])  # the second has dropout
def test_workers_attack_as_the_serial_engine_does(fed: MakeExperiment, name: str, model: str) -> None:
    experiment = fed(name, f"model.name={model}")
    serial, processes = (
        record_updates(experiment, engine)[1] for engine in (SerialEngine, partial(ProcessEngine, workers=2))
    )
    assert torch.equal(serial[0], processes[0])


EVASIVE = ("attack.scatter=0.5", "attack.noise=0.5", "attack.align=true")


def test_workers_evade_as_the_serial_engine_does(fed: MakeExperiment) -> None:
    experiment = fed("evasive", *EVASIVE)
    serial, processes = (
        record_updates(experiment, engine)[1] for engine in (SerialEngine, partial(ProcessEngine, workers=2))
    )
    assert torch.equal(serial[0], processes[0])


@pytest.mark.parametrize("dodges", [EVASIVE[2:], EVASIVE])
def test_evasive_updates_have_the_cosine_of_honest_ones(fed: MakeExperiment, dodges: tuple[str, ...]) -> None:
    experiment = fed("evasive", *dodges)
    model = Federation.build(experiment).build_model()
    base = torch.cat([weights.detach().flatten() for weights in model.parameters()])
    records, rows = record_updates(experiment)
    malicious = torch.tensor(records[0]["malicious"])
    sent, honest, plain = (
        cosine_similarity(rows[0][malicious], base)
        for rows in (rows, record_updates(fed("cba", "attack.poison_ratio=0.0"))[1], record_updates(fed("evasive"))[1])
    )
    torch.testing.assert_close(sent, honest, atol=1e-4, rtol=0)
    assert (plain - honest).abs().min() > 1e-3


def test_an_attacker_has_the_same_stream_in_every_round_and_no_other_attacker_has_it(fed: MakeExperiment) -> None:
    federation = Federation.build(fed("cba"))
    trainer, base = LocalTraining(federation).trainer, torch.zeros(federation.layout.width)

    def draw(client: int, round: int, *name: str) -> int:
        session = SimulatedSession(
            federation=federation, trainer=trainer, base=base, buffers={}, client=client, round=round
        )
        return session.make_stream(*name).initial_seed()

    assert draw(0, 1, "scatter") == draw(0, 2, "scatter")
    assert len({draw(0, 1, "scatter"), draw(1, 1, "scatter"), draw(0, 1, "other")}) == 3


def test_a_gradient_does_not_depend_on_what_the_attacker_did_before(fed: MakeExperiment) -> None:
    federation = Federation.build(fed("neurotoxin", "model.name=cifar-cnn-quarter"))
    trainer = LocalTraining(federation).trainer
    base = torch.full((federation.layout.width,), 0.01)
    session = SimulatedSession(federation=federation, trainer=trainer, base=base, buffers={}, client=0, round=1)
    first = session.compute_gradient()
    session.measure_backdoor_success(session.start)
    assert torch.equal(session.compute_gradient(), first)
    assert not torch.equal(session.compute_gradient(clean=True), first)


def make_session(fed: MakeExperiment, *assignments: str) -> SimulatedSession:
    """Make a malicious client's session from the first global model."""
    federation = Federation.build(fed("cba", *assignments))
    base = federation.layout.flatten(select_parameters(federation.build_model()))
    trainer = LocalTraining(federation).trainer
    return SimulatedSession(federation=federation, trainer=trainer, base=base, buffers={}, client=0, round=1)


@pytest.mark.parametrize("model", ["cnn-quarter", "cifar-cnn-quarter"])
def test_the_cross_entropy_given_as_a_loss_trains_the_same_model(fed: MakeExperiment, model: str) -> None:
    session = make_session(fed, f"model.name={model}")
    plain = session.train()
    own = session.train(loss=lambda features, scores, labels: cross_entropy(scores, labels))
    assert torch.equal(own, plain)
    doubled = session.train(loss=lambda features, scores, labels: 2 * cross_entropy(scores, labels))
    assert not torch.equal(doubled, plain)
    assert torch.equal(session.train(), plain)  # no trace of the losses is left


def test_training_starts_where_the_attacker_says_and_lasts_as_long(fed: MakeExperiment) -> None:
    session = make_session(fed)
    elsewhere = session.start + 0.01

    def hold(weights: Tensor) -> None:
        weights.copy_(elsewhere)

    assert torch.equal(session.train(start=elsewhere, after=hold), elsewhere)
    assert not torch.equal(session.train(start=elsewhere), session.train())
    assert torch.equal(session.train(start=session.start), session.train())
    steps = []
    for epochs in (None, 1, 3):
        counted = list[int]()
        session.train(epochs=epochs, after=lambda weights, counted=counted: counted.append(1))  # type: ignore[misc]
        steps.append(len(counted))
    common = session.federation.experiment.training.epochs
    assert steps == [common * steps[1], steps[1], 3 * steps[1]]


def test_a_model_is_replaced_in_a_single_round(fed: MakeExperiment) -> None:
    once = fed("model-replacement", "rounds=3", "attack.first_round=2", "attack.last_round=2")
    records, rows = record_updates(once)
    assert [any(record["malicious"]) for record in records] == [False, True, False]
    lengths = rows[1].norm(dim=1)
    malicious = torch.tensor(records[1]["malicious"])
    assert lengths[malicious].min() > 1.5 * lengths[~malicious].max()
    assert all(record["backdoor_accuracy"] is not None for record in records)


def test_pgd_stays_in_its_ball(fed: MakeExperiment) -> None:
    records, rows = record_updates(fed("pgd", "attack.radius=0.05"))
    malicious = torch.tensor(records[0]["malicious"])
    lengths = rows[0].norm(dim=1)
    torch.testing.assert_close(lengths[malicious], torch.full((2,), 0.05), rtol=1e-3, atol=0)
    assert lengths[~malicious].min() > 0.06


def test_a_replaced_model_is_the_plain_one_scaled(fed: MakeExperiment) -> None:
    records, scaled = record_updates(fed("model-replacement", "attack.scale=3.0"))
    _, plain = record_updates(fed("cba"))
    malicious = torch.tensor(records[0]["malicious"])
    torch.testing.assert_close(scaled[0][malicious], 3 * plain[0][malicious])


def test_layer_poison_leaves_layers_honest(fed: MakeExperiment) -> None:
    experiment = fed("layer-poison", 'attack.spare=["conv1.weight", "fc2.weight"]')
    records, rows = record_updates(experiment)
    _, honest = record_updates(fed("cba", "attack.poison_ratio=0.0"))
    columns = Federation.build(experiment).layout.columns
    malicious = torch.tensor(records[0]["malicious"])
    for name in ("conv1.weight", "fc2.weight"):
        assert torch.equal(rows[0][malicious][:, columns[name]], honest[0][malicious][:, columns[name]])


def test_attackers_wait_for_their_time(tiny: MakeExperiment) -> None:
    experiment = tiny("defense.name=fedavg", "rounds=4", "attack.first_round=2", "attack.last_round=3")
    records, rows = record_updates(experiment)
    _, never = record_updates(tiny("defense.name=fedavg", "rounds=4", "attack.poison_ratio=0.0"))
    assert [any(record["malicious"]) for record in records] == [False, True, True, False]
    assert torch.equal(rows[0], never[0])
    assert not torch.equal(rows[1], never[1])
    assert records[0]["false_positive_rate"] is None


def test_attackers_may_attack_in_a_share_of_the_rounds(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny("attack.share_of_rounds=0.3"))
    active = sum(federation.is_attacking(0, round) for round in range(1, 1001))
    assert 240 < active < 360
    assert not any(federation.is_attacking(7, round) for round in range(1, 20))


def test_a_word_is_no_trigger_for_images(tiny: MakeExperiment) -> None:
    with pytest.raises(SettingError, match="a word cannot be a trigger on mnist-sample, whose samples are not texts"):
        Federation.build(tiny("attack.name=text"))
