"""Settings of the guarded aggregator and controller survive the way to the server."""

import json
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="NVFlare's aggregators need nvflare >= 2.9: `make test-nvflare` has it")

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner

from snowball import defenses
from snowball.errors import SettingError
from snowball.guard import Guard
from snowball.integrations.nvflare import GuardedAggregator, GuardedFedAvg
from snowball.integrations.nvflare._session import build_defense

CHOSEN: dict[str, Any] = {
    "defense": "multi-krum",
    "settings": {"tolerate": 1, "elect": 2},
    "mode": "monitor",
    "min_elected": 2,
    "max_examples": 500.0,
    "audit": "audit.jsonl",
    "state": "guard.safetensors",
    "buffers": ["scale"],
    "seed": 5,
    "max_share": 0.4,
    "min_answers": 0.25,
    "low_turnout": "aggregate",
    "names": "/srv/sites.toml",
    "decisions": "/srv/decisions.toml",
    "models": "models",
    "keep_models": 4,
    "on_other_state": "fresh",
    "listeners": {"webhook": {"url": "$NOT_SET_HERE", "kinds": ["kept"]}},
    "patience": 4,
    "audit_key": "/srv/audit.pem",
}
CONTROLLER = {**CHOSEN, "num_clients": 4, "num_rounds": 7, "start_round": 2, "timeout": 60, "persistor_id": "mine"}


def exported(job: Any, folder: Path) -> Any:
    """Return the server's workflow from an exported job."""
    (job.export if isinstance(job, FedAvgRecipe) else job.export_job)(str(folder))
    (path,) = folder.rglob("config_fed_server.*")
    return json.loads(path.read_text())["workflows"][0]


def rebuilt(component: Any) -> Any:
    module, name = component["path"].rsplit(".", 1)
    return getattr(import_module(module), name)(**component["args"])


def script(tmp_path: Path) -> str:
    path = tmp_path / "client.py"
    path.write_text("")
    return str(path)


def test_the_aggregators_settings_survive_the_recipe(tmp_path: Path) -> None:
    aggregator = GuardedAggregator(**CHOSEN, rounds=7)
    model = {"class_path": "torch.nn.Linear", "args": {"in_features": 2, "out_features": 2}}
    recipe = FedAvgRecipe(model=model, min_clients=3, train_script=script(tmp_path), aggregator=aggregator)
    new = rebuilt(exported(recipe, tmp_path / "job")["args"]["aggregator"])
    assert isinstance(new, GuardedAggregator)
    assert {name: getattr(new, name) for name in {**CHOSEN, "rounds": 7}} == {**CHOSEN, "rounds": 7}
    guard = new.guard_session.guard
    assert guard.defense == defenses.MultiKrum(tolerate=1, elect=2)
    assert (guard.mode, guard.seed, guard.rounds) == ("monitor", 5, 7)
    assert (guard.min_answers, guard.low_turnout, guard.on_other_state) == (0.25, "aggregate", "fresh")


def test_every_setting_of_a_guard_is_one_of_both_components() -> None:
    wanted = {*signature(Guard).parameters, "state"} - {"listeners"}  # callables do not fit into a job
    assert wanted <= {*signature(GuardedAggregator).parameters}
    assert wanted - {"rounds"} <= {*signature(GuardedFedAvg).parameters}  # it has num_rounds


def test_the_controllers_settings_survive_the_job(tmp_path: Path) -> None:
    job = FedJob("guarded")
    job.to_server(GuardedFedAvg(**CONTROLLER))
    job.to_clients(ScriptRunner(script(tmp_path)))
    new = rebuilt(exported(job, tmp_path / "job"))
    assert isinstance(new, GuardedFedAvg)
    own = {name: getattr(new, name if name in vars(new) else f"_{name}") for name in CONTROLLER}
    assert own == CONTROLLER


def test_a_defense_is_made_from_its_name_and_plain_settings() -> None:
    made = build_defense("snowball", {"layers": ["first", "last"], "vae": {"hidden": 8}, "judge": "vae"})
    assert made == defenses.Snowball(layers=("first", "last"), vae=defenses.VAESettings(hidden=8), judge="vae")
    assert build_defense("snowball", None) == defenses.Snowball()


def test_an_intersections_members_are_names_or_sections_that_have_one() -> None:
    made = build_defense("intersection", {"members": ["fedavg", {"name": "multi-krum", "tolerate": 2}]})
    assert made == defenses.Intersection((defenses.FedAvg(), defenses.MultiKrum(tolerate=2)))
    assert build_defense("intersection", None) == defenses.Intersection()


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"defense": "snowbal"}, "'snowbal' is not known; did you mean 'snowball'"),
        (
            {"defense": "snowball", "settings": {"judg": "vae"}},
            "settings.judg is not a setting of snowball; did you mean 'judge'",
        ),
        ({"defense": "snowball", "settings": {"judge": "nobody"}}, 'settings.judge = "nobody" should be '),
        ({"defense": "snowball", "settings": {"vae": 3}}, "settings.vae = 3 is a group of settings"),
        ({"defense": "intersection", "settings": {"members": ["krum"]}}, "at least 2 members, got 1"),
        ({"defense": "intersection", "settings": {"members": ["krum", "krun"]}}, "'krun' is not known; did you mean"),
        ({"defense": "intersection", "settings": {"members": ["krum", "ideal"]}}, "is told who is malicious"),
        ({"mode": "off"}, "mode is 'enforce' or 'monitor'"),
        ({"listeners": {"webhok": {}}}, "'webhok' is not known; did you mean 'webhook'"),
        ({"listeners": {"webhook": {}}}, "listeners.webhook.url is missing"),
        ({"min_elected": 0}, "min_elected must be a positive number, got 0"),
        ({"min_answers": 2}, "min_answers must be a share from 0 to 1, got 2"),
        ({"low_turnout": "ignore"}, "low_turnout is 'keep' or 'aggregate'"),
        ({"keep_models": 3}, "set both or neither, got 3 and no folder"),
        ({"models": "models"}, "set both or neither, got 0 and 'models'"),
        ({"audit_key": "audit.pem"}, "audit_key signs the lines of the audit: set audit, too"),
        ({"on_other_state": "migrate"}, "on_other_state is 'refuse' or 'fresh'"),
        ({"defense": "fltrust"}, "acts in training"),
        ({"defense": "flare"}, "a guard has neither"),
        ({"defense": "ideal"}, "is told who is malicious"),
    ],
)
@pytest.mark.parametrize("kind", [GuardedAggregator, GuardedFedAvg])
def test_settings_that_cannot_be_are_refused_before_a_job_is_sent(
    kind: Any, chosen: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        kind(**chosen)
