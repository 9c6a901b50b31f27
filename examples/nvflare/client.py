"""A site, which trains on its share of the digits; a hostile one sends NaN in another's name, fails, or hangs."""

import argparse
import time
from typing import NoReturn

import nvflare.client as flare
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from snowball.data import Dataset, Split, load_dataset
from snowball.data.partition import PARTITIONS
from snowball.models import CNN
from snowball.rng import numpy_stream, stream

SEED, BATCH_SIZE, LEARNING_RATE, MOMENTUM = 1, 20, 0.01, 0.9
NETWORK = {"widths": (8, 16, 64), "input_shape": (1, 28, 28), "classes": 10}


def send_nan(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return NaN for every weight."""
    return {name: tensor * torch.nan for name, tensor in weights.items()}


def fail(weights: dict[str, Tensor]) -> NoReturn:
    """Fail instead of sending a model."""
    raise RuntimeError("this site fails")


def hang(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the model a day late."""
    time.sleep(86400)
    return weights


BEHAVIOURS = {"nan": send_nan, "fail": fail, "hang": hang}
"""What a hostile site does with its trained model."""


def parse_arguments() -> argparse.Namespace:
    """Parse the site's settings; a site's name ends with its number, from 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--examples", type=int, default=600, help="training examples per site, at most")
    parser.add_argument("--hostile", default="", help="the site that misbehaves, such as site-3")
    parser.add_argument("--behaviour", choices=BEHAVIOURS, default="nan")
    return parser.parse_args()


def take_share(dataset: Dataset, site: str, sites: int, examples: int) -> Split:
    """Return the training examples that a site holds."""
    shares = PARTITIONS["iid"](dataset.train.labels, sites, numpy_stream(SEED, "partition"))
    return dataset.train[shares[int(site.rpartition("-")[2]) - 1][:examples]]


def train_model(model: nn.Module, dataset: Dataset, split: Split, rng: torch.Generator) -> float:
    """Train a model for one epoch, and return the last loss."""
    optimiser = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM)
    inputs = dataset.normalise(split.inputs)
    for batch in torch.randperm(len(split), generator=rng).split(BATCH_SIZE):
        optimiser.zero_grad()
        loss = cross_entropy(model(inputs[batch]), split.labels[batch])
        loss.backward()
        optimiser.step()
    return float(loss.detach())


def main() -> None:
    """Train and answer in every round."""
    settings = parse_arguments()
    flare.init()
    site, dataset, model = flare.get_site_name(), load_dataset("mnist-sample"), CNN(**NETWORK)
    split = take_share(dataset, site, settings.sites, settings.examples)
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        model.load_state_dict({name: torch.as_tensor(tensor) for name, tensor in received.params.items()})
        loss = train_model(model, dataset, split, stream(SEED, "site", site, "round", received.current_round))
        weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        meta: dict[str, int | str] = {"NUM_STEPS_CURRENT_ROUND": len(split)}
        if site == settings.hostile:
            weights = BEHAVIOURS[settings.behaviour](weights)
            meta["client_name"] = "site-1"  # the server replaces it
        flare.send(flare.FLModel(params=weights, metrics={"loss": loss}, meta=meta))


if __name__ == "__main__":
    main()
