"""Counts the clusters that the Gap statistic finds in stored rounds, for each range and rule.

python -m benchmarks.choices.gap          (half a minute)
"""

from collections.abc import Sequence
from typing import get_args

from safetensors.torch import load_file

from benchmarks.files import GOLDEN
from benchmarks.measuring.timing import use_one_thread
from snowball.defenses import Context, SnowballMinus
from snowball.defenses.snowball.gap import GapRule
from snowball.updates import Updates

ROUNDS = ("mnist-cba/1", "mnist-k20-4-s1/1", "mnist-paper/4")
RANGES = ((2, 15), (3, 15))
SEEDS = range(6)


def read_round(name: str) -> Updates:
    """Read the voting layers of a round of tests/golden."""
    prefix = f"{name}/layer/"
    tensors = {key: tensor for key, tensor in load_file(GOLDEN).items() if key.startswith(prefix)}
    return Updates.from_layers({key.removeprefix(prefix): tensor for key, tensor in tensors.items()})


def find_clusters(updates: Updates, least: int, most: int, rule: GapRule, seeds: Sequence[int] = SEEDS) -> list[float]:
    """Return the number of clusters found with each seed."""
    defense = SnowballMinus(gap_from=least, gap_to=most, gap_rule=rule)
    return [float(defense(updates, Context(round=1, seed=seed)).facts["clusters"]) for seed in seeds]


def main() -> None:
    """Print one line per round, range and rule."""
    with use_one_thread():
        for name in ROUNDS:
            for least, most in RANGES:
                for rule in get_args(GapRule):
                    found = ", ".join(
                        f"{clusters:.0f}" for clusters in find_clusters(read_round(name), least, most, rule)
                    )
                    print(f"{name} [{least}, {most}] {rule}: {found}")


if __name__ == "__main__":
    main()
