"""Selection of the malicious clients, and of the clients of each round."""

import torch

from snowball.rng import stream
from snowball.sim.experiment import Experiment


def select_malicious_clients(experiment: Experiment) -> range:
    """Return the malicious clients: the first ones, as in the published experiments."""
    return range(experiment.attack.count_attackers(experiment.data.clients))


def is_attack_round(experiment: Experiment, round: int) -> bool:
    """Return whether malicious clients attack in a round; in other rounds they train like everybody else."""
    attack = experiment.attack
    if round < attack.first_round or round > (attack.last_round or round):
        return False
    if attack.in_rounds and round not in attack.in_rounds:
        return False
    return float(torch.rand((), generator=stream(experiment.seed, "attack", "round", round))) < attack.share_of_rounds


def draw_cohort(experiment: Experiment, round: int) -> list[int]:
    """Draw the clients of a round in random order, so that a client's slot does not reveal whether it is malicious."""
    rng = stream(experiment.seed, "cohort", "round", round)
    order = torch.randperm(experiment.data.clients, generator=rng).tolist()
    if experiment.attack.draw == "random":
        return order[: experiment.cohort]
    malicious, attackers = select_malicious_clients(experiment), experiment.attack.count_attackers(experiment.cohort)
    idle = malicious[attackers:] if experiment.attack.draw == "same" else range(0)
    free_slots = {True: attackers, False: experiment.cohort - attackers}  # by whether the client is malicious
    cohort = []
    for client in order:
        if client not in idle and free_slots[client in malicious]:
            free_slots[client in malicious] -= 1
            cohort.append(client)
    return cohort
