"""What an operator sets through Flower: names, decisions, turnout, another defense over an old state, and rollback."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower's strategies need flwr >= 1.41: `make test-flower` has it")

from flower_federation import GLOBAL, NODES, Make, Nodes, ask_nodes, assert_average, make_record, make_reply
from flwr.serverapp.strategy import FedAvg

from snowball import defenses
from snowball.errors import RunError, SettingError
from snowball.guard import AuditLog, restore_model
from snowball.integrations.flower import Guarded

pytestmark = pytest.mark.usefixtures("runtime")

DENY = '[[decision]]\nsite = "Ulm"\nrule = "{}"\nreason = "its scanner is broken"\nby = "M. Weber"\n'


def test_names_and_decisions_are_read_in_every_round(make: Make, audit: AuditLog, tmp_path: Path) -> None:
    sites, decisions = tmp_path / "sites.toml", tmp_path / "decisions.toml"
    sites.write_text('[sites]\n"3" = "Ulm"\n')
    decisions.write_text(DENY.format("deny"))
    strategy = make(defense=defenses.FedAvg(), audit=audit.path, names=sites, decisions=decisions)
    averaged = []
    for rule in ("deny", "probation", None):
        decisions.write_text(DENY.format(rule) if rule else "# none")
        arrays, _ = strategy.aggregate_train(1, map(make_reply, ask_nodes(strategy)))
        averaged.append([node for node in NODES if rule is None or node != 3])
        assert_average(arrays, averaged[-1])
    denied, watched, back = audit.read_entries()
    assert [(fault["client"], fault["reason"]) for fault in denied["dropped"]] == [("Ulm", "denied")]
    assert "Ulm" in watched["elected"]
    assert "Ulm" not in watched["averaged"]
    assert "Ulm" in back["averaged"]
    assert back["ids"] == {"Ulm": "3"}


def test_the_audits_shares_are_those_of_the_counts_that_the_held_strategy_gets(audit: AuditLog, tmp_path: Path) -> None:
    (tmp_path / "sites.toml").write_text('[sites]\n"3" = "Ulm"\n')
    strategy = Guarded(FedAvg(), defense=defenses.Median(), audit=audit.path, names=tmp_path / "sites.toml")
    arrays, _ = strategy.aggregate_train(1, map(make_reply, ask_nodes(strategy)))
    assert_average(arrays, NODES)
    (entry,) = audit.read_entries()
    counts = {"Ulm" if node == 3 else str(node): 10 + node for node in NODES}
    total = sum(counts.values())
    assert entry["shares"] == pytest.approx({name: count / total for name, count in counts.items()})


def test_a_low_turnout_keeps_the_model_unless_the_operator_says_otherwise(make: Make, audit: AuditLog) -> None:
    for settings in ({}, {"low_turnout": "aggregate"}, {"min_answers": 0.3}):
        strategy = make(defense=defenses.FedAvg(), audit=audit.path, **settings)
        arrays, _ = strategy.aggregate_train(1, map(make_reply, ask_nodes(strategy)[:3]))
        assert (arrays is None) == (not settings)
    kept, allowed, enough = audit.read_entries()
    assert kept["reason"].startswith("low turnout: 3 of 8 asked sent a valid reply, and 4 are needed")
    assert (allowed["outcome"], allowed["reason"][:11]) == ("aggregated", "low turnout")
    assert enough["reason"] is None


def test_another_defense_over_an_old_state_is_refused_with_the_choices(make: Make, tmp_path: Path) -> None:
    first = make(defense=defenses.FoolsGold(), state=tmp_path / "state", seed=3)
    first.start(Nodes(make_reply), make_record(GLOBAL), 2)
    with pytest.raises(RunError, match="'FoolsGold', this guard's is 'Median': set on_other_state='fresh'"):
        make(defense=defenses.Median(), state=tmp_path / "state")
    fresh = make(defense=defenses.Median(), state=tmp_path / "state", on_other_state="fresh")
    assert (fresh.guard.round, fresh.guard.seed, fresh.guard.state) == (2, 3, None)


def test_a_federation_starts_again_from_an_earlier_model(make: Make, audit: AuditLog, tmp_path: Path) -> None:
    settings = {"defense": defenses.FedAvg(), "audit": audit.path, "state": tmp_path / "state"}
    kept = {"models": tmp_path / "models", "keep_models": 3}
    make(**settings, **kept).start(Nodes(make_reply), make_record(GLOBAL), 3)
    restored = {name: tensor.numpy() for name, tensor in restore_model(tmp_path / "models", 1).items()}
    make(**settings, **kept).start(Nodes(make_reply), make_record(restored), 1)
    first, *_, last = audit.read_entries()
    assert (last["round"], last["model_before"]) == (4, first["model_after"])
    assert all(np.isfinite(values).all() for values in restored.values())


def test_a_missing_file_is_refused_when_the_strategy_is_made(make: Make, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="there is no such file"):
        make(names=tmp_path / "sites.toml")
