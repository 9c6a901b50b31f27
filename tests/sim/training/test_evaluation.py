from collections.abc import Callable

import pytest
import torch

from snowball.defenses import Context, FedAvg
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state
from snowball.sim.training.evaluation import Evaluation, FederatedModel

MakeExperiment = Callable[..., Experiment]


def test_accuracies_are_shares_of_the_right_samples(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny("attack.target=2"))
    model = FederatedModel(federation)
    model.trainer.model.forward = lambda inputs: torch.eye(10)[2].repeat(len(inputs), 1)  # always says 2
    twos = (federation.dataset.test.labels == 2).double().mean().item()
    accuracies = Evaluation(federation, model, FedAvg())(Context(round=1, base=build_first_state(federation).base))
    assert accuracies == {"main_accuracy": pytest.approx(twos), "backdoor_accuracy": 1.0}


def test_without_an_attack_there_is_no_backdoor_to_measure(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny("attack.name=none"))
    evaluate = Evaluation(federation, FederatedModel(federation), FedAvg())
    accuracies = evaluate(Context(round=1, base=build_first_state(federation).base))
    assert accuracies["backdoor_accuracy"] is None
    assert accuracies["main_accuracy"] is not None
