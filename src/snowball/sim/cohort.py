"""Who is malicious, and who takes part in a round."""

import torch

from snowball.rng import stream
from snowball.sim.experiment import Experiment


def malicious_clients(experiment: Experiment) -> range:
    """The attackers: the first clients, as in the published experiments."""
    return range(experiment.attack.attackers(experiment.data.clients))


def attacks_in(experiment: Experiment, round: int) -> bool:
    """Whether the attackers attack in a round; in others they train as everybody does."""
    attack = experiment.attack
    if round < attack.first_round or round > (attack.last_round or round):
        return False
    return float(torch.rand((), generator=stream(experiment.seed, "attack", "round", round))) < attack.share_of_rounds


def draw(experiment: Experiment, round: int) -> list[int]:
    """The clients of a round in random order, so that a place in the list tells nothing."""
    rng = stream(experiment.seed, "cohort", "round", round)
    order = torch.randperm(experiment.data.clients, generator=rng).tolist()
    if experiment.attack.draw == "random":
        return order[: experiment.cohort]
    malicious, attackers = malicious_clients(experiment), experiment.attack.attackers(experiment.cohort)
    idle = malicious[attackers:] if experiment.attack.draw == "same" else range(0)
    places = {True: attackers, False: experiment.cohort - attackers}
    cohort = []
    for client in order:
        if client not in idle and places[client in malicious]:
            places[client in malicious] -= 1
            cohort.append(client)
    return cohort
