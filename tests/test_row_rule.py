"""One rule decides what a row contains: running statistics change no vote, however updates arrive."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from snowball.defenses import Context, SnowballMinus
from snowball.guard import Guard, Reply
from snowball.layout import Layout, select_parameters
from snowball.server import Received, judge_round
from snowball.updates import Updates

MODEL = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
CLIENTS = [f"site-{number:02}" for number in range(8)]
DEFENSE = SnowballMinus(clusters=3, first_share=0.5)
State = dict[str, Tensor]


def make_states(shift: float = 0.0) -> list[State]:
    """Eight clients' models; the last one's running statistics are moved."""
    rng = torch.Generator().manual_seed(1)
    states = []
    for _ in CLIENTS:
        drawn = {name: torch.randn(tensor.shape, generator=rng) * 0.01 for name, tensor in MODEL.state_dict().items()}
        states.append({name: (tensor + drawn[name]).to(tensor.dtype) for name, tensor in MODEL.state_dict().items()})
    states[-1]["1.running_mean"] += shift
    states[-1]["1.running_var"] += shift
    return states


def vote_on_states(states: list[State]) -> list[float]:
    updates = Updates.from_states(MODEL.state_dict(), states, clients=CLIENTS)
    return torch.as_tensor(DEFENSE(updates, Context(round=1)).facts["votes"]).tolist()


def vote_in_a_guard(states: list[State]) -> list[float]:
    replies = [Reply(client, 10, state) for client, state in zip(CLIENTS, states, strict=True)]
    entry: Any = Guard(DEFENSE, seed=0)(MODEL.state_dict(), replies).entry
    return [entry["facts"]["votes"][client] for client in CLIENTS]


def vote_on_a_server(states: list[State]) -> list[float]:
    """As the simulator does, which knows the module itself."""
    parameters = select_parameters(MODEL)
    layout = Layout.from_tensors(parameters)
    rows = [layout.flatten({name: state[name] for name in parameters}) for state in states]
    buffers = [{name: state[name] for name in state if name not in parameters} for state in states]
    base = layout.flatten(parameters)
    received = Received(
        values=torch.stack(rows) - base,
        examples=torch.full((8,), 10.0),
        clients=tuple(CLIENTS),
        layout=layout,
        buffers=buffers,
    )
    outcome = judge_round(received, DEFENSE, Context(round=1, base=base), buffers[0])
    return torch.as_tensor(outcome.facts["votes"]).tolist()


@pytest.mark.parametrize("vote", [vote_on_states, vote_in_a_guard, vote_on_a_server])
def test_running_statistics_change_no_vote(vote: Callable[[list[State]], list[float]]) -> None:
    honest = vote(make_states())
    assert len(set(honest)) > 1
    assert vote(make_states(shift=0.05)) == honest
    assert honest == vote_on_states(make_states())
