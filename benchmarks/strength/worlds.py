"""Defines the federations in which `judge.py` judges defenses, the attacks on them, and the settings of each run.

A world is a preset at a size that two cores can handle; a cell is a world and an attack on it. A defense has the same
settings in every world: none is tuned to one of them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from typing import NamedTuple

from snowball.errors import SettingError
from snowball.rng import numpy_stream
from snowball.settings import Settings, apply_assignments
from snowball.sim.experiment import CHOICES, Experiment
from snowball.sim.presets import Preset

CLEAN = "clean"
"""The attack of a federation in which nobody is malicious."""

CORNER = ("cba", "dba", "model-replacement", "neurotoxin", "layer-poison", "adaptive")
"""Attacks that stamp the square near the corner, and are probed with it."""

EVERY_ATTACK = (*CORNER, "cba-middle", "cba-place", "cba-target", "blended")
"""All attacks on images by clients that do not know of defenses.

CBA also has variants: in the middle, at a position drawn per run, and with a target class drawn per run.
"""

EVASIONS: dict[str, Settings] = {
    "evade-crowd": {"name": "evasive", "balance": True},
    "evade-split": {"name": "evasive", "balance": False, "scatter": 0.3},
    "evade-noise": {"name": "evasive", "balance": False, "noise": 1.0},
    "evade-alignment": {"name": "evasive", "balance": False, "align": True},
    "evade-memory": {"name": "cba", "share_of_rounds": 1 / 3},
    "evade-all": {"name": "evasive", "balance": True, "scatter": 0.5, "noise": 0.5, "align": True},
}
"""Attacks by clients that know what defenses examine: each evades one signal, and the last all but memory.

They stamp the square near the corner.
"""

RIM = 1
"""Largest distance of a drawn square from an edge, in pixels: elsewhere, the digit or garment would hide it."""

SQUARE = 3
"""Side of the square in pixels."""

ATTACK_COSTS = {
    "neurotoxin": 1.15,
    "adaptive": 1.25,
    "layer-poison": 1.6,
    "evade-split": 1.25,
    "evade-alignment": 1.3,
    "evade-all": 1.35,
}
"""Factor by which attacks whose clients train more than once lengthen a round, measured on MNIST with 30 %."""

COMMA_OUTSIDE_LISTS = re.compile(r",(?![^\[]*\])")
"""What separates the settings of a defense, some of which are lists."""

USUAL_RATIO = 0.3
"""The poison ratio of Ideal's runs. It has no effect on them, so they are shared."""

SIDES = {"mnist": 28, "mnist-sample": 28, "fashion-mnist": 28, "cifar10": 32, "femnist": 28}
CLASSES = {"mnist": 10, "mnist-sample": 10, "fashion-mnist": 10, "cifar10": 10, "femnist": 62}


class World(NamedTuple):
    """A federation.

    Attributes:
        changes: assignments that override the preset.
        attacks: attacks on this federation, one per cell.
        round_seconds: core-seconds of a round with FedAvg, measured.
    """

    preset: str
    changes: tuple[str, ...]
    attacks: tuple[str, ...]
    round_seconds: float


class Cell(NamedTuple):
    """A world and an attack on it, by name."""

    world: str
    attack: str


class Job(NamedTuple):
    """A run of a cell."""

    cell: Cell
    defense: str
    seed: int


class Mode(NamedTuple):
    """The seeds, and the presets of the worlds, that a mode may use."""

    seeds: tuple[int, ...]
    presets: tuple[str, ...]


TUNED = ("cpu/mnist", "cpu/fashion-mnist", "cpu/cifar10")

MODES = {
    "tune": Mode((1, 2, 3), TUNED),
    "report": Mode((11, 12, 13), (*TUNED, "cpu/femnist", "cpu/sent140")),
}
"""Tuning must not see the data of the report: neither its seeds nor FEMNIST and Sent140."""


def build_worlds() -> Iterator[tuple[str, World]]:
    """Yield every world with its name."""
    changes: tuple[str, ...]
    for data in ("mnist", "fashion-mnist"):
        for alpha, shares in SHARES.items():
            for malicious in shares:
                name = f"{data}-a{alpha}-m{malicious}"
                changes = (*HUNDRED_CLIENTS, f"data.alpha={alpha}", f"attack.malicious={malicious / 100}")
                longer = SLOW_ATTACKS.get((alpha, malicious), ())
                yield name, World(f"cpu/{data}", (*changes, *longer), MORE_ATTACKS.get(name, ("cba",)), 2.1)
    for malicious, attacks in CIFAR10_ATTACKS.items():
        size = ("rounds=20", "data.examples=10000", f"attack.malicious={malicious / 100}")
        yield f"cifar10-m{malicious}", World("cpu/cifar10", size, attacks, 2.5)
    for sites, (infected, ratio, examples, rounds) in SITES.items():
        federation = (
            f"rounds={rounds}",
            f"cohort={sites}",
            f"data.clients={sites}",
            f"attack.malicious={infected / sites}",
        )
        samples = ("data.name=mnist-sample", f"data.examples={sites * examples}", f"data.minimum={examples // 2}")
        changes = (*federation, *samples, f"attack.poison_ratio={ratio}")
        yield f"sites-{sites}", World("cpu/mnist", changes, ("cba", CLEAN), 0.1 + 0.00028 * sites * examples)
    for percent in (10, 30, 90):
        changes = ("rounds=16", f"attack.poison_ratio={percent / 100}")
        more = ("dba", "cba-place", CLEAN) if percent == 30 else ()
        yield f"femnist-p{percent}", World("cpu/femnist", changes, ("cba", *more), 2.4)
    faster = ("rounds=18", "data.examples=150000", "training.lr=0.05")
    yield "sent140", World("cpu/sent140", faster, ("text", CLEAN), 4.9)


HUNDRED_CLIENTS = ("rounds=20", "data.clients=100", "data.examples=12000", "data.minimum=10")
"""The size of the MNIST and Fashion-MNIST worlds: half of the presets' clients, with 120 examples on average."""

SHARES: dict[str, tuple[int, ...]] = {"0.1": (20, 30, 40), "0.5": (10, 20, 30, 40), "1": (10, 20, 40)}
"""Per cent of malicious clients, by the alpha of the label skew."""

SLOW_ATTACKS = {
    ("0.1", 20): ("rounds=28",),
    ("0.5", 10): ("rounds=36", "attack.poison_ratio=0.5"),
    ("1", 10): ("rounds=36", "attack.poison_ratio=0.5"),
}
"""Changes where FedAvg takes longer to learn the backdoor, by alpha and per cent of malicious clients."""

MORE_ATTACKS = {
    "mnist-a0.5-m30": (*(attack for attack in EVERY_ATTACK if attack != "cba-middle"), *EVASIONS),
    "fashion-mnist-a0.1-m30": ("cba", "cba-target", "cba-place", "model-replacement", "adaptive"),
    **{f"{data}-a{alpha}-m20": ("cba", CLEAN) for data in ("mnist", "fashion-mnist") for alpha in SHARES},
}
"""Attacks on worlds that have others than CBA. In the middle, strokes and clothes hide a square from FedAvg too."""

CIFAR10_ATTACKS = {
    20: ("cba", "cba-middle", "cba-place", "cba-target", "model-replacement", CLEAN),
    30: ("dba", "blended", "neurotoxin", "layer-poison", "adaptive", "evade-all"),
}
"""Attacks on CIFAR-10 by per cent of malicious clients: more clients for attacks that FedAvg takes longer to learn."""

SITES = {
    5: (1, 0.8, 400, 28),
    8: (2, 0.5, 400, 28),
    10: (2, 0.5, 400, 28),
    20: (4, 0.5, 200, 24),
    50: (10, 0.5, 200, 24),
}
"""Federations in which all sites take part in every round: infected sites, poison ratio, examples per site, rounds."""

WORLDS: dict[str, World] = dict(build_worlds())


def choose_worlds(mode: Mode, patterns: Sequence[str] = ("*",)) -> list[str]:
    """Return a mode's worlds that match patterns such as `mnist-*`; refuse a pattern that matches none."""
    open_worlds = [name for name in WORLDS if is_open(name, mode)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in open_worlds):
            raise SettingError(
                f"--only {pattern} names no world of this mode, whose worlds are {', '.join(open_worlds)}"
            )
    return [name for name in open_worlds if any(fnmatchcase(name, pattern) for pattern in patterns)]


def is_open(world: str, mode: Mode) -> bool:
    """Return whether a mode may see a world. It may see an unknown one, since there is nothing to see."""
    return world not in WORLDS or WORLDS[world].preset in mode.presets


def has_cell(cell: Cell) -> bool:
    """Return whether such a world with such an attack exists."""
    return cell.world in WORLDS and cell.attack in WORLDS[cell.world].attacks


def choose_seeds(mode: Mode, seeds: Sequence[int] | None) -> tuple[int, ...]:
    """Return a mode's seeds, or the requested ones among them; refuse any other."""
    for seed in seeds or ():
        if seed not in mode.seeds:
            allowed = ", ".join(map(str, mode.seeds))
            raise SettingError(f"--seeds {seed} is not a seed of this mode, whose seeds are {allowed}")
    return tuple(dict.fromkeys(seeds or mode.seeds))


def choose_cells(worlds: Iterable[str], attacks: Sequence[str] | None = None) -> list[Cell]:
    """List the cells of some worlds, or only those with some attacks; refuse an attack that none of them has."""
    cells = [Cell(world, attack) for world in worlds for attack in WORLDS[world].attacks]
    for attack in attacks or ():
        if all(cell.attack != attack for cell in cells):
            found = ", ".join(dict.fromkeys(cell.attack for cell in cells))
            raise SettingError(f"--attacks {attack} is not an attack on these worlds, whose attacks are {found}")
    return [cell for cell in cells if not attacks or cell.attack in attacks]


def list_jobs(cells: Sequence[Cell], defenses: Sequence[str], seeds: Sequence[int]) -> Iterator[Job]:
    """Yield every run, seed by seed and cell by cell, so that a call that is stopped has judged whole seeds.

    Where nobody is malicious, Ideal is FedAvg and is not run.
    """
    for seed, cell in product(seeds, cells):
        baselines = ("fedavg",) if cell.attack == CLEAN else ("fedavg", "ideal")
        for defense in dict.fromkeys((*baselines, *defenses)):
            if not (cell.attack == CLEAN and defense == "ideal"):
                yield Job(cell, defense, seed)


def estimate_seconds(job: Job, rounds: int) -> float:
    """Estimate the core-seconds of a run, as if the defense took no longer than FedAvg."""
    return WORLDS[job.cell.world].round_seconds * ATTACK_COSTS.get(job.cell.attack, 1) * rounds


def make_experiment(job: Job) -> Experiment:
    """Make a run's experiment; Ideal's is the same for all attacks with one probe, since it leaves attackers out."""
    world = WORLDS[job.cell.world]
    settings = apply_assignments(open_preset(world.preset).settings, world.changes, CHOICES)
    attack, data = job.cell.attack, settings["data"]["name"]
    if job.defense == "ideal":
        attack = "cba" if attack in CORNER or attack in EVASIONS else attack
        settings["attack"]["poison_ratio"] = USUAL_RATIO
    settings["attack"] = make_attack(settings["attack"], attack, data, job.seed)
    return Experiment.parse({**settings, "seed": job.seed, "defense": parse_defense(job.defense)})


@cache
def open_preset(name: str) -> Preset:
    """Read a preset once."""
    return Preset.read(name)


def parse_defense(text: str) -> Settings:
    """Parse a defense such as `krum` or `krum:tolerate=0.2,variant=published`; other settings keep their defaults."""
    name, _, own = text.partition(":")
    assignments = [f"defense.{each}" for each in COMMA_OUTSIDE_LISTS.split(own) if each]
    settings: Settings = apply_assignments({"defense": {"name": name}}, assignments, {})["defense"]
    return settings


def make_attack(usual: Settings, attack: str, data: str, seed: int) -> Settings:
    """Make a run's attack from the world's usual one, with the values drawn from the run's seed written out."""
    if attack == CLEAN:
        return {"name": "none"}
    trigger = usual.get("trigger", "white-square")
    if attack == "cba-middle":
        row = column = (SIDES[data] - SQUARE) // 2
        return {**usual, "trigger": f"{trigger}@{row},{column}"}
    if attack == "cba-place":
        row, column = draw_place(seed, SIDES[data])
        return {**usual, "trigger": f"{trigger}@{row},{column}"}
    if attack == "cba-target":
        return {**usual, "target": draw_target(seed, CLASSES[data], usual.get("target", 1))}
    if attack == "blended":
        return {**usual, "name": attack, "trigger": "noise"}
    if attack in EVASIONS:
        return {**usual, **EVASIONS[attack]}
    return {**usual, "name": attack}


def draw_place(seed: int, side: int) -> tuple[int, int]:
    """Draw the row and column of a square from all that lie near an edge of an image of side x side."""
    last = side - SQUARE
    places = [
        place for place in product(range(last + 1), repeat=2) if min(*place, *(last - each for each in place)) <= RIM
    ]
    row, column = places[int(numpy_stream(seed, "strength", "place").integers(len(places)))]
    return row, column


def draw_target(seed: int, classes: int, usual: int) -> int:
    """Draw a class other than the usual target."""
    others = [number for number in range(classes) if number != usual]
    return others[int(numpy_stream(seed, "strength", "target").integers(len(others)))]
