# Copyright (c) 2026, the Snowball contributors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""A site, which trains on its share of the digits; hostile sites misbehave, and claim to be site-1."""

import argparse

import nvflare.client as flare
import torch
from task import BEHAVIOURS, Consortium, parse_numbers


def parse_consortium() -> Consortium:
    """Parse the sites and their behaviour."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=parse_numbers, required=True, help="training images of each site")
    parser.add_argument("--hostile", type=parse_numbers, default=(), help="numbers of the hostile sites, from 1")
    parser.add_argument("--behaviour", choices=BEHAVIOURS, default="clean")
    parser.add_argument("--seed", type=int, default=1)
    settings = parser.parse_args()
    return Consortium(settings.sizes, settings.hostile, settings.behaviour, settings.seed)


def main() -> None:
    """Train and answer in every round."""
    consortium = parse_consortium()
    torch.set_num_threads(1)
    flare.init()
    site = int(flare.get_site_name().rpartition("-")[2])
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        before = {name: torch.as_tensor(tensor) for name, tensor in received.params.items()}
        sent = consortium.train_site(site, received.current_round + 1, before)
        if sent is None:
            raise RuntimeError("this site sends no model")
        meta: dict[str, int | str] = {"NUM_STEPS_CURRENT_ROUND": consortium.sizes[site - 1]}
        if site in consortium.hostile:
            meta["client_name"] = "site-1"  # the server replaces it
        flare.send(flare.FLModel(params=sent, meta=meta))


if __name__ == "__main__":
    main()
