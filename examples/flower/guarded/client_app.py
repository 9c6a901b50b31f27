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
"""A site, which trains on its share of the digits; the settings `hostile` and `behaviour` make some sites hostile."""

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from guarded.task import Consortium, parse_numbers

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model, and reply with the result."""
    consortium, site = read_consortium(context), read_site(context)
    before = message.content["arrays"].to_torch_state_dict()
    sent = consortium.train_site(site, int(message.content["config"]["server-round"]), before)
    if sent is None:
        raise RuntimeError("this site sends no model")
    metrics = MetricRecord({"num-examples": consortium.sizes[site - 1]})
    return Message(RecordDict({"arrays": ArrayRecord(sent), "metrics": metrics}), reply_to=message)


@app.query()
def tell_name(message: Message, context: Context) -> Message:
    """Reply with the site's name."""
    name = ConfigRecord({"name": f"site-{read_site(context)}"})
    return Message(RecordDict({"site": name}), reply_to=message)


def read_consortium(context: Context) -> Consortium:
    """Read the sites and their behaviour from the run's settings."""
    config = context.run_config
    sizes, hostile = (parse_numbers(str(config[name])) for name in ("sizes", "hostile"))
    return Consortium(sizes, hostile, str(config["behaviour"]), int(config["seed"]))


def read_site(context: Context) -> int:
    """Read the site's number, from 1; a simulation numbers its nodes from 0, a SuperNode is told with --node-config."""
    return int(context.node_config["partition-id"]) + 1
