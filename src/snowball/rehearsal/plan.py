"""Plans a rehearsal: which defenses face which attacks, as a grid of runs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import torch

from snowball.attacks import ATTACKS, TriggerLearningAttack, Untargeted
from snowball.data import Dataset, load_dataset
from snowball.data.own import OwnData, Samples, wrap_data
from snowball.data.triggers import find_fitting_trigger
from snowball.defenses import DEFENSES, MIXINGS
from snowball.defenses.build import complete_mixings
from snowball.errors import SettingError
from snowball.models.own import OwnModel
from snowball.records.rounds import ADAPTATION
from snowball.rehearsal.settings import STAND_IN_DATA, FederationSettings, Sites, arrange_sites
from snowball.settings import Settings, collect_fields, require_known
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate
from snowball.sim.presets import load_experiment
from snowball.sweeps.grid import Grid, assemble_grid, name_run
from snowball.sweeps.grid_file import GridFile, TableSettings

PRESET = "demo"
"""The settings that a federation does not decide."""

NOBODY = "none"
"""The attack of a federation in which nobody is malicious."""

REFERENCE = "fedavg"
"""The defense that the others are compared with: a plain average."""

TIMES = (ADAPTATION, "train", "defense", "evaluate")
"""The times of a round that add up to its time."""

POISON_RATIO = 0.5
"""Share of a hostile site's samples that carry the trigger."""

USUAL_TRIGGER = "white-square"
"""The trigger that attacks on images name; other samples need another one."""

MAX_SITE_EXAMPLES, MAX_ROUND_EXAMPLES, MIN_SITE_EXAMPLES = 300, 3000, 10
"""Examples of the stand-in: per site at most, in all sites of a round at most, and per site at least."""

SNOWBALL_SITES = 15
"""From so many sites per round on, the paper's elections are a candidate."""


class Option(NamedTuple):
    """A defense or an attack with settings of its own.

    Attributes:
        label: what it is called in results: its name and, if the operator chose them, its settings.
    """

    name: str
    own: Settings
    label: str

    def choose(self, section: str) -> Settings:
        """Return the settings of an experiment that choose it."""
        return {f"{section}.name": self.name} | {f"{section}.{name}": value for name, value in self.own.items()}


def make_option(name: str, **own: Any) -> Option:
    """Make an option that is labelled with its settings, such as `multi-krum:tolerate=1`."""
    settings = ",".join(f"{setting}={value}" for setting, value in own.items())
    return Option(name, own, f"{name}:{settings}" if settings else name)


class Trial(NamedTuple):
    """A run of a rehearsal.

    Attributes:
        run: the name of its folder.
    """

    defense: str
    attack: str
    seed: int
    run: str


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A planned rehearsal.

    Attributes:
        probes: the clean run in which each attack's trigger is tried, by attack and seed.
        guards: the line of Python that guards a federation with each defense, by its label.
    """

    settings: FederationSettings
    sites: Sites
    examples: int
    grid: Grid
    trials: tuple[Trial, ...]
    probes: Mapping[tuple[str, int], str]
    guards: Mapping[str, str]

    @property
    def hostile_sites(self) -> tuple[int, ...]:
        """The operator's numbers of the hostile sites; empty if they are drawn from the clients that the data has."""
        drawn = self.grid.runs[0].experiment.data.partition == "natural"
        return () if drawn else self.sites.numbers[: self.sites.hostile]

    @property
    def owns_objects(self) -> bool:
        """Whether data or a model came as Python objects, which a sweep's processes cannot be sent."""
        return bool(self.grid.runs[0].experiment.describe_own())


def plan_rehearsal(
    settings: FederationSettings, data: OwnData | Samples | None = None, model: OwnModel | None = None
) -> Rehearsal:
    """Plan the runs of a rehearsal, all parsed; data and a model may be Python objects."""
    own_data = None if data is None else wrap_data(data)
    attacks = list_options(settings.attacks, ATTACKS, "attacks")
    dataset = load_dataset(settings.data) if own_data is None else own_data.build_dataset(settings.seeds[0])
    natural = count_natural_sites(settings, dataset, own_data)
    sites = arrange_sites(settings, natural)
    defenses = list_defenses(settings, sites)
    examples = count_examples(
        settings, sites, dataset, natural, is_stand_in=not own_data and settings.data == STAND_IN_DATA
    )
    base = build_base(settings, sites, examples, natural)
    base |= {} if own_data else {"data.name": settings.data}
    base |= {} if model is not None else {"model.name": settings.model}
    seeded = [load_experiment(PRESET, {**base, "seed": seed}, data=own_data, model=model) for seed in settings.seeds]
    fitted = [fit_attack(attack, sites, dataset) for attack in attacks]
    trials, probes = build_trials(seeded, defenses, fitted, sites.hostile / len(sites.sizes))
    return Rehearsal(
        settings,
        sites,
        examples,
        build_grid(sites, [*trials.values(), *probes.values()]),
        tuple(Trial(*cell, name_run(experiment)) for cell, experiment in trials.items()),
        {cell: name_run(experiment) for cell, experiment in probes.items()},
        {defense.label: write_guard(defense, settings) for defense in defenses},
    )


def build_trials(
    seeded: Sequence[Experiment], defenses: Sequence[Option], attacks: Sequence[Option], share: float
) -> tuple[dict[tuple[str, str, int], Experiment], dict[tuple[str, int], Experiment]]:
    """Build the experiments of all defenses under all attacks and under none, and of the clean runs with each trigger.

    The first are by defense, attack and seed, the clean ones by attack and seed.
    """
    trials: dict[tuple[str, str, int], Experiment] = {}
    probes: dict[tuple[str, int], Experiment] = {}
    for base in seeded:
        groups = group_by_probe(base, attacks)
        for first, *others in groups:  # one clean run serves all attacks with the same trigger and target
            clean = build_experiment(base, defenses[0], first, 0.0)
            probes |= {(attack.label, base.seed): clean for attack in (first, *others)}
        probing = groups[0][0] if groups else attacks[0]
        for defense in defenses:
            trials[defense.label, NOBODY, base.seed] = build_experiment(base, defense, probing, 0.0)
            for attack in attacks:
                trials[defense.label, attack.label, base.seed] = build_experiment(base, defense, attack, share)
    return trials, probes


def build_experiment(base: Experiment, defense: Option, attack: Option, share: float) -> Experiment:
    """Build the experiment of a defense under an attack by a share of the sites."""
    chosen = {**defense.choose("defense"), **attack.choose("attack"), "attack.malicious": share}
    everybody = base.cohort == base.data.clients
    return load_experiment(base, chosen | {"attack.draw": "exact" if everybody else "random"})


def group_by_probe(base: Experiment, attacks: Sequence[Option]) -> list[list[Option]]:
    """Group the attacks that have a backdoor by the samples on which its success is measured."""
    groups: dict[Any, list[Option]] = {}
    for option in attacks:
        attack: Any = build_experiment(base, make_option(REFERENCE), option, 0.0).attack.build()
        if not isinstance(attack, Untargeted):
            stamped = (type(attack).probe, attack.trigger, attack.target)
            shared = attack.trigger and not isinstance(attack, TriggerLearningAttack)
            groups.setdefault(stamped if shared else option.label, []).append(option)
    return list(groups.values())


def build_grid(sites: Sites, experiments: Sequence[Experiment]) -> Grid:
    """Build the grid of these experiments, which a report shows as one table."""
    columns = ["attack.name", "attack.malicious"]
    values = ["last_backdoor_accuracy", "last_main_accuracy", "false_negative_rate"]
    table = TableSettings(rows=["defense.name"], columns=columns, values=values)
    file = GridFile(grid=[{"preset": PRESET}], table=table)
    name = f"{len(sites.sizes)} sites"
    return assemble_grid(f"rehearsal-{name.replace(' ', '-')}", f"Rehearsal of {name}", file, (), experiments)


def build_base(settings: FederationSettings, sites: Sites, examples: int, natural: int | None) -> Settings:
    """Return the settings that all runs of a rehearsal share."""
    split: Settings = {"data.partition": "natural", "data.clients": natural}
    if natural is None:
        split = {
            "data.partition": "sized",
            "data.clients": len(sites.sizes),
            "data.sizes": list(sites.sizes),
            "data.alpha": settings.alpha,
            "data.examples": examples,
        }
    training = {f"training.{name}": value for name, value in settings.training.items()}
    return {"rounds": settings.rounds, "cohort": sites.per_round, "attack.name": NOBODY, **split, **training}


def count_natural_sites(settings: FederationSettings, dataset: Dataset, own_data: OwnData | None) -> int | None:
    """Return how many clients the data comes with, if they are the sites; None if it is to be split among sites."""
    if own_data:
        return own_data.count_clients()
    if dataset.groups is None or settings.sites is not None or settings.sizes is not None:
        return None
    return len(torch.unique(dataset.groups))


def count_examples(
    settings: FederationSettings, sites: Sites, dataset: Dataset, natural: int | None, is_stand_in: bool
) -> int:
    """Return how many training examples all sites hold together: the operator's number, scaled down to the data."""
    available, count = len(dataset.train), len(sites.sizes)
    if natural is not None:
        if settings.examples is not None:
            raise SettingError("examples cannot reduce data that comes with its clients: leave it out")
        return available
    wanted = settings.examples or available
    if wanted > available:
        raise SettingError(f"examples = {wanted} is more than the {available} of {dataset.name}")
    if is_stand_in and settings.examples is None:
        wanted = min(available, count * min(MAX_SITE_EXAMPLES, MAX_ROUND_EXAMPLES // sites.per_round))
    if settings.sizes is not None:
        wanted = min(wanted, sum(sites.sizes))
    if wanted < count * MIN_SITE_EXAMPLES:
        needed = f"{count} sites need {MIN_SITE_EXAMPLES} examples each on average, {count * MIN_SITE_EXAMPLES} in all"
        raise SettingError(f"{needed}, and there are {wanted} of {dataset.name}")
    return wanted


def list_options(entries: Sequence[str | Settings], table: Collection[str], path: str) -> list[Option]:
    """Return the options of a list of names, or of tables with a name and settings; each once."""
    options = {}
    for entry in entries:
        own = {"name": entry} if isinstance(entry, str) else dict(entry)
        name = own.pop("name", None)
        if not isinstance(name, str):
            raise SettingError(f"{path} must be a list of names, or of tables with a name, got {entry!r}")
        if (path, name) != ("attacks", NOBODY):  # nobody is always rehearsed
            option = make_option(require_known(path, name, table), **own)
            options[option.label] = option
    if not options:
        raise SettingError(f"{path} names nobody: give at least one attack, such as cba")
    return list(options.values())


def list_defenses(settings: FederationSettings, sites: Sites) -> list[Option]:
    """Return the defenses to rehearse: a plain average first, then the operator's, or those that fit the size."""
    fitting = {option.name: option for option in choose_candidates(sites)}
    chosen = list(fitting) if settings.defenses is None else settings.defenses
    options = [
        option if option.own else fitting.get(option.name, option)
        for option in list_options(chosen, DEFENSES, "defenses")
    ]
    return [make_option(REFERENCE), *(option for option in options if option.label != REFERENCE)]


def choose_candidates(sites: Sites) -> Iterator[Option]:
    """Yield the defenses that make sense for so many sites, in order of preference."""
    infected = ceil(sites.hostile * sites.per_round / len(sites.sizes))
    yield make_option("snowball-plus")
    if sites.per_round >= SNOWBALL_SITES:
        yield make_option("snowball")
    if sites.per_round > infected + 2:  # what its scores need
        yield make_option("multi-krum", tolerate=infected, elect=sites.per_round - infected)
    yield make_option("median")
    yield make_option("norm-clip")


def fit_attack(option: Option, sites: Sites, dataset: Dataset) -> Option:
    """Return an attack with a trigger that the data can carry, and at a strength that outweighs the other sites."""
    known = collect_fields(ATTACKS[option.name])
    fitted: Settings = {}
    if known.get("trigger") == (str, USUAL_TRIGGER):
        fitted["trigger"] = find_fitting_trigger(dataset) or USUAL_TRIGGER
    if "poison_ratio" in known:
        fitted["poison_ratio"] = POISON_RATIO
    if option.name == "ipm":  # cancels the step of a plain average; much more would make any training diverge
        fitted["strength"] = round((1 - sites.hostile_share) / sites.hostile_share, 1)
    return option._replace(own=fitted | option.own)


def write_guard(defense: Option, settings: FederationSettings) -> str:
    """Write the line of Python that guards a federation with a defense."""
    parts = [write_defense(defense.name, **defense.own), 'mode="monitor"']
    parts += [f"rounds={settings.rounds}"] if defense.name == "snowball" else []
    parts += [f"max_examples={max(settings.sizes)}"] if settings.sizes else []
    return f'Guard({", ".join(parts)}, audit="audit.jsonl")'


def write_defense(name: str, before: Any = (), **own: Any) -> str:
    """Write the call that makes a defense, and what goes before it."""
    mixings = [write_call(MIXINGS[part.pop("name")], part) for part in complete_mixings("before", before)]
    made = write_call(DEFENSES[name], own)
    return f"Before({made}, ({', '.join(mixings)},))" if mixings else made


def write_call(make: Callable[..., Any], own: Settings) -> str:
    """Write a call with settings by name."""
    return f"{make.__name__}({', '.join(f'{name}={value!r}' for name, value in own.items())})"


def time_round(experiment: Experiment) -> float:
    """Run the first round of an experiment in memory and return its seconds."""
    record = next(simulate(Federation.build(experiment)))
    return sum(seconds for name, seconds in record["seconds"].items() if name in TIMES)
