"""Measures how far robust averages are from the plain weighted mean, among honest sites of unequal size.

    python -m benchmarks.operators.unequal

Nobody attacks. The consortium of the examples, whose sites differ 94-fold, trains along the plain weighted mean, and in
every round each rule aggregates the same updates. The error is the distance of its aggregate from the weighted mean, as
a share of the mean's length. The result is in benchmarks/results/unequal.json.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean

import torch
from torch import Tensor

from benchmarks.files import RESULTS, shorten_numbers
from benchmarks.operators.cases import Case, task
from snowball.defenses import Context, Defense, FedAvg, Krum, Median, MultiKrum, NormClip, SnowballPlus, TrimmedMean
from snowball.defenses.base import State
from snowball.defenses.ops import average_by_examples, elect_everyone
from snowball.defenses.snowball_plus.ballots import CAUTIOUS_ROUNDS
from snowball.guard.conversion import choose_max_share
from snowball.layout import Layout
from snowball.updates import Updates

ROUNDS, SEEDS = 20, (1, 2, 3)


def list_rules(updates: Updates) -> dict[str, Defense]:
    """List the rules; clipping is to the round's median length."""
    median = float(updates.squared_norms.sqrt().quantile(0.5))
    return {
        "weighted mean, share limited": FedAvg(),
        "snowball-plus": SnowballPlus(),
        "clipped to the median, equal shares": NormClip(bound=median),
        "trimmed mean": TrimmedMean(),
        "median": Median(),
        "multi-krum": MultiKrum(tolerate=2, elect=5),
        "krum": Krum(tolerate=2),
    }


def measure_rounds(seed: int) -> Iterator[tuple[int, str, float]]:
    """Yield the round, the rule and its error, along the plain weighted mean."""
    case = Case("clean", 0, seed, ROUNDS, "fedavg")
    consortium, sites = case.build_consortium(), range(1, len(case.sizes) + 1)
    model: dict[str, Tensor] = {name: each.clone() for name, each in task.Network(seed).state_dict().items()}
    layout, states = Layout.from_tensors(model), dict[str, State | None]()
    for round in range(1, ROUNDS + 1):
        base = layout.to_row(model)
        values = layout.subtract(base, (consortium.train_site(site, round, model) for site in sites), len(sites))
        examples, clients = torch.tensor(case.sizes, dtype=torch.float64), tuple(map(str, sites))
        limited = Updates(values, examples, clients, layout, max_share=choose_max_share(len(sites)))
        mean = average_by_examples(Updates(values, examples, clients, layout), elect_everyone(limited))
        for name, rule in list_rules(limited).items():
            verdict = rule(limited, Context(round=round, base=base, seed=seed, state=states.get(name)))
            states[name] = verdict.state
            yield round, name, float((verdict.delta - mean).norm() / mean.norm())
        model = {name: tensor.clone() for name, tensor in layout.split(base + mean).items()}


def main() -> None:
    """Write the mean errors of the first rounds and of those after them, over all seeds."""
    torch.set_num_threads(1)
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for seed in SEEDS:
        for round, name, error in measure_rounds(seed):
            errors[name]["first" if round <= CAUTIOUS_ROUNDS else "later"].append(error)
    found = {name: {part: fmean(values) for part, values in parts.items()} for name, parts in errors.items()}
    result = {"rounds": ROUNDS, "first_rounds": CAUTIOUS_ROUNDS, "seeds": list(SEEDS), "errors": found}
    (RESULTS / "unequal.json").write_text(json.dumps(shorten_numbers(result), indent=1) + "\n", encoding="utf-8")
    for name, parts in found.items():
        print(f"{name}: {parts['first']:.3f}, later {parts['later']:.3f}")


if __name__ == "__main__":
    main()
