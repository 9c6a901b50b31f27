"""A run on disk: its folder, its checkpoints, and how it is resumed."""

import os
import platform
import subprocess
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from snowball.attacks import StatefulAttack, TriggerLearningAttack
from snowball.data.preview import make_preview
from snowball.defenses.base import StatefulLocalDefense, check_state, explain_schedule
from snowball.errors import RunError
from snowball.records.checkpoint import TENSOR_FOLDER, RunState, load_state, save_state
from snowball.records.drafts import remove_leftovers
from snowball.records.lock import exclusive_lock
from snowball.records.rounds import RoundRecord
from snowball.records.run import CHECKPOINT, ROUNDS, RUN, RunFolder, RunInfo
from snowball.records.run_names import ADDED_SETTINGS, drop_added_settings, hash_settings
from snowball.settings import Settings, flatten_settings
from snowball.sim.engines.base import Engine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import Observer, build_defense, build_first_state, rehearse_round, simulate
from snowball.trackers import Tracker, track_run


def run_experiment(
    experiment: Experiment,
    path: Path,
    engine: Callable[[Federation], Engine] = SerialEngine,
    resume: bool = False,
    overwrite: bool = False,
    observe: Observer | None = None,
    trackers: Mapping[str, Tracker] | None = None,
) -> Generator[RoundRecord]:
    """Simulate into a folder; each record is yielded once it and the checkpoint of its round are on disk.

    Trackers, by name, get each record at the same time. The folder is locked until the last record, or until the
    generator is closed.
    """
    federation = Federation.build(experiment)
    if not (resume and (path / RUN).exists()):
        rehearse_round(federation)  # refuses impossible settings before there is a folder
    with exclusive_lock(path, "run"):
        resumes = resume and (path / RUN).exists()
        folder, state = reopen_run(path, federation) if resumes else create_run(path, federation, overwrite)
        for each in (path, path / CHECKPOINT, path / CHECKPOINT / TENSOR_FOLDER):
            remove_leftovers(each)
        with track_run(trackers or {}, folder) as tracked:
            with closing(simulate(federation, engine, state, observe)) as rounds:
                for record in rounds:
                    folder.append(record)
                    save_state(state, folder.path / CHECKPOINT)
                    tracked.log(record)
                    yield record
            folder.write_summary()


def create_run(path: Path, federation: Federation, overwrite: bool) -> tuple[RunFolder, RunState]:
    """Create the folder of a new run."""
    return RunFolder.create(path, describe_run(federation), overwrite), build_first_state(federation)


def reopen_run(path: Path, federation: Federation) -> tuple[RunFolder, RunState]:
    """Open the folder of a run and load the state that its checkpoint holds; the experiment may add rounds."""
    folder = RunFolder.open(path)
    refuse_other_experiment(folder, federation.experiment)
    state = load_state(path / CHECKPOINT, federation.experiment.rounds, federation.layout)
    state = state or build_first_state(federation)
    check_memory(path / CHECKPOINT, state, federation)
    on_record = [record["round"] for record in folder.read_rounds()]
    if [number for number in on_record if number <= state.round] != list(range(1, state.round + 1)):
        missing = f"all of rounds 1 to {state.round}, which its {CHECKPOINT} has completed"
        raise RunError(f"{path / ROUNDS} does not hold {missing}: remove the folder to start again")
    folder.set_rounds(federation.experiment.rounds)
    folder.truncate(state.round)
    return folder, state


def check_memory(checkpoint: Path, state: RunState, federation: Federation) -> None:
    """Let defense and attack refuse a checkpoint with a damaged memory of their own or of a client."""
    defense, dataset = build_defense(federation.experiment), federation.dataset
    try:
        setup = federation.recall_setup(state.attack)
        if isinstance(federation.attack, StatefulAttack) and setup and state.attack is not None:
            federation.attack.check_memory(state.attack, setup, federation.layout)
        check_state(defense, state.defense, state.round, federation.layout)
        if isinstance(defense, StatefulLocalDefense):
            for client_state in state.clients.values():
                defense.check_client_state(client_state, dataset.input_shape, dataset.classes)
    except RunError as error:
        raise RunError(f"{checkpoint} cannot be used: {error}") from error


def is_finished(path: Path, experiment: Experiment) -> bool:
    """Return whether a folder holds this experiment, run to its end."""
    if not (path / RUN).exists():
        return False
    folder = RunFolder.open(path)
    refuse_other_experiment(folder, experiment)
    rounds = folder.read_rounds()
    complete = [record["round"] for record in rounds] == list(range(1, experiment.rounds + 1))
    return complete and folder.is_summarised(rounds)


def refuse_other_experiment(folder: RunFolder, experiment: Experiment) -> None:
    """Refuse to resume a run with other settings, own data or own model than it was started with."""
    refuse_other_settings(folder, experiment)
    advice = "or choose another folder"
    own = experiment.describe_own()
    if "data" in own and folder.run.get("data", {}).get("sha256") != own["data"]["sha256"]:
        raise RunError(f"{folder.path} was started with other data: resume it with the same data {advice}")
    if "model" in own and folder.run.get("model") != own["model"]:
        reason = "another model or other first weights, which a function given as model= draws from the seed"
        raise RunError(f"{folder.path} was started with {reason}: resume it with the same model {advice}")


def refuse_other_settings(folder: RunFolder, experiment: Experiment) -> None:
    """Refuse to resume a run with other settings than it was started with, except for rounds that it may add."""
    settings = folder.run.get("settings")
    if settings is None:
        raise RunError(f"{folder.path / RUN} holds no settings: remove the folder to start again")
    before, now = (flatten_settings(drop_added_settings(each)) for each in (settings, experiment.dump_settings()))
    added = flatten_settings(ADDED_SETTINGS)
    former = {name: added.get(name, added.get(name.rpartition(".")[2])) for name in {**before, **now}}
    before, now = former | before, former | now
    more_rounds = adds_rounds(before, now)
    differing = [name for name in former if before[name] != now[name] and not (name == "rounds" and more_rounds)]
    if differing:
        changes = ", ".join(f"{name} = {before[name]!r}, not {now[name]!r}" for name in differing)
        advice = "resume it with the same settings or choose another folder"
        raise RunError(f"{folder.path} was started with {changes}: {advice}")
    if more_rounds:
        refuse_schedule(folder, experiment, before)


def adds_rounds(before: Settings, now: Settings) -> bool:
    """Return whether settings ask for more rounds than a run was started with."""
    return isinstance(before["rounds"], int) and before["rounds"] < now["rounds"]


def refuse_schedule(folder: RunFolder, experiment: Experiment, before: Settings) -> None:
    """Refuse to add rounds if the rounds so far would have been different in a longer run."""
    if reason := explain_schedule(build_defense(experiment)):
        fault = f"{folder.path} has {before['rounds']} rounds and cannot get {experiment.rounds}: defense.{reason}"
        raise RunError(f"{fault}; start a longer run in another folder")
    if folder.path.resolve().name.endswith(f"-{hash_settings(folder.run['settings'])}"):
        raise RunError(f"{folder.path} has all of its settings in its name, its rounds too: choose another folder")


def describe_run(federation: Federation) -> RunInfo:
    """Describe a run for run.json: settings, code, machine and data."""
    experiment = federation.experiment
    return {
        "settings": experiment.dump_settings(),
        "seed": experiment.seed,
        "versions": collect_versions(),
        "commit": find_commit(),
        "machine": {"processor": find_processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "data": dict(federation.dataset.provenance),
        **experiment.describe_own(),  # type: ignore[typeddict-item]
        "trigger": describe_trigger(federation),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def describe_trigger(federation: Federation) -> dict[str, Any] | None:
    """Describe what the attack's trigger looks like; None without a trigger."""
    attack, setup = federation.attack, federation.recall_setup(None)
    if attack is None or setup is None or attack.trigger is None:
        return None
    preview = make_preview(attack.trigger, setup.trigger, setup.dataset, attack.target)
    if isinstance(attack, TriggerLearningAttack):
        preview = replace(preview, summary=f"what {federation.experiment.attack.name} learns from, round by round")
    return preview.to_json()


def collect_versions() -> dict[str, str]:
    """Return the versions of the software that determines the results."""
    packages = {"snowball": "snowball-fl", "torch": "torch", "numpy": "numpy", "scikit-learn": "scikit-learn"}
    return {"python": platform.python_version()} | {name: metadata.version(of) for name, of in packages.items()}


def find_commit() -> str | None:
    """Return the commit of a git checkout, marked as dirty if files differ from it; None elsewhere."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def find_processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())
