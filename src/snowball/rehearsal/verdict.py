"""Which defense holds under which attack: numbers of runs, bounds, and a word."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from snowball.rehearsal.plan import NOBODY, REFERENCE

MAX_BACKDOOR = 0.05
"""A defense that holds leaves at most this backdoor accuracy above that of a clean model."""

MAX_ACCURACY_LOST = 0.02
"""A defense that holds costs at most this main accuracy against a clean plain average."""

MAX_HONEST_LEFT_OUT = 0.1
"""A defense that holds leaves out at most this share of the honest updates."""

MIN_LEARNED, MIN_DAMAGE = 0.5, 0.1
"""An attack works if a plain average learns this much of its backdoor, or loses this main accuracy."""

DIVERGED = "training diverged"
"""How the reason of a run that failed starts if its model was destroyed: that is a result."""

ATTACK_WORDS = {
    NOBODY: "nobody attacks",
    "cba": "plain backdoor",
    "model-replacement": "scaled backdoor",
    "ipm": "plain damage",
    "adaptive": "attacker who knows",
}
"""What each attack that is rehearsed by default is."""

Word = Literal["holds", "fails", "says nothing", "not run"]


class Numbers(NamedTuple):
    """A run's numbers, as fractions, or the worst of several runs.

    Attributes:
        backdoor: backdoor accuracy; None for an attack without a backdoor.
        beyond_clean: the same above that of a clean model on the same samples.
        accuracy_lost: main accuracy that a clean plain average has above this run.
        honest_left_out: share of the honest updates that were not averaged.
    """

    backdoor: float | None
    beyond_clean: float | None
    accuracy_lost: float
    honest_left_out: float


class Cell(NamedTuple):
    """A defense under an attack.

    Attributes:
        numbers: the worst of all seeds, each number by itself; None if a run failed.
        word: whether the defense holds; an attack that does not work on a plain average says nothing about others.
        reason: why, unless it holds.
    """

    defense: str
    attack: str
    numbers: Numbers | None
    word: Word
    reason: str = ""

    @property
    def verdict(self) -> str:
        """The word and the reason."""
        return f"{self.word}: {self.reason}" if self.reason else self.word


Measured = Mapping[tuple[str, str], Sequence[Numbers] | str]
"""The numbers of each defense under each attack, one entry per seed, or why there are none."""


def judge_cells(measured: Measured) -> list[Cell]:
    """Judge every defense under every attack."""
    return [judge_cell(defense, attack, measured) for defense, attack in measured]


def judge_cell(defense: str, attack: str, measured: Measured) -> Cell:
    """Judge one defense under one attack."""
    runs = measured[defense, attack]
    if isinstance(runs, str):
        return Cell(defense, attack, None, "fails" if runs.startswith(DIVERGED) else "not run", runs)
    numbers = take_worst(runs)
    if faults := list_faults(numbers):
        return Cell(defense, attack, numbers, "fails", ", ".join(faults))
    if attack != NOBODY and (reason := explain_silence(measured[REFERENCE, attack])):
        return Cell(defense, attack, numbers, "says nothing", reason)
    return Cell(defense, attack, numbers, "holds")


def take_worst(runs: Sequence[Numbers]) -> Numbers:
    """Return the highest of each number."""
    backdoors = [run.backdoor for run in runs if run.backdoor is not None]
    beyond = [run.beyond_clean for run in runs if run.beyond_clean is not None]
    return Numbers(
        max(backdoors, default=None),
        max(beyond, default=None),
        max(run.accuracy_lost for run in runs),
        max(run.honest_left_out for run in runs),
    )


def list_faults(numbers: Numbers) -> list[str]:
    """List what keeps numbers from being within the bounds."""
    faults = []
    if numbers.backdoor is not None and (numbers.beyond_clean or 0.0) > MAX_BACKDOOR:
        faults.append(f"backdoor {numbers.backdoor:.1%}")
    if numbers.accuracy_lost > MAX_ACCURACY_LOST:
        faults.append(f"loses {100 * numbers.accuracy_lost:.1f} points")
    if numbers.honest_left_out > MAX_HONEST_LEFT_OUT:
        faults.append(f"leaves out {numbers.honest_left_out:.1%} of the honest")
    return faults


def explain_silence(reference: Sequence[Numbers] | str) -> str:
    """Say why an attack says nothing about defenses; empty if it works on a plain average with any seed."""
    if isinstance(reference, str):
        return "" if reference.startswith(DIVERGED) else f"its run with {REFERENCE} failed"
    if any((run.beyond_clean or 0.0) >= MIN_LEARNED or run.accuracy_lost >= MIN_DAMAGE for run in reference):
        return ""
    worst = take_worst(reference)
    if worst.backdoor is None:
        return f"{REFERENCE} loses only {max(0.0, 100 * worst.accuracy_lost):.1f} points"
    return f"{REFERENCE} learns only {worst.backdoor:.1%} of it"


def choose_defense(cells: Sequence[Cell]) -> str:
    """Return the defense that attacks beat least often, then the one that fails least often.

    Of equals it is the one that comes first, a plain average last.
    """
    by_defense: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.defense == REFERENCE):
        by_defense.setdefault(cell.defense, []).append(cell)
    return min(by_defense, key=lambda defense: count_failures(by_defense[defense]))


def count_failures(cells: Sequence[Cell]) -> tuple[int, int]:
    """Return how often a defense is beaten, and how often it fails: to lose three points is not to lose the model."""
    failing = [cell for cell in cells if cell.word in ("fails", "not run")]
    return sum(map(is_beaten, failing)), len(failing)


def is_beaten(cell: Cell) -> bool:
    """Return whether a backdoor got in, or the model was ruined or could not be trained."""
    if cell.numbers is None:
        return True
    return (cell.numbers.beyond_clean or 0.0) > MAX_BACKDOOR or cell.numbers.accuracy_lost >= MIN_DAMAGE


def recommend_defense(cells: Sequence[Cell]) -> tuple[str | None, str]:
    """Return the defense to choose, None if the rehearsal does not tell, and why."""
    best = choose_defense(cells)
    own = [cell for cell in cells if cell.defense == best]
    telling = [cell for cell in own if cell.attack != NOBODY and cell.word != "says nothing"]
    if not telling:
        advice = "give more rounds, more hostile sites or larger ones"
        return None, f"No attack works on a plain average here, so this rehearsal tells nothing: {advice}."
    if failing := [cell for cell in own if cell.word in ("fails", "not run")]:
        faults = "; ".join(f"{describe_attack(cell.attack)}: {cell.reason}" for cell in failing)
        return best, f"Nothing holds throughout; {best} comes closest ({faults})."
    held = ", ".join(describe_attack(cell.attack) for cell in telling)
    return best, f"Choose {best}: it holds against {held}, and while nobody attacks."


def describe_attack(attack: str) -> str:
    """Return an attack's name with what it is."""
    words = ATTACK_WORDS.get(attack, "")
    return words if attack == NOBODY else f"{words} ({attack})" if words else attack
