"""The rounds of a federation, one after the other."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from snowball.buffers import Buffers, buffers_of
from snowball.defenses import Context, Defense, LocalDefense, TrustingDefense
from snowball.errors import UpdateError
from snowball.records.checkpoint import Memory, State
from snowball.records.files import replace_non_finite
from snowball.records.rounds import RoundRecord
from snowball.rng import stream
from snowball.server import Dropped, Outcome, Received, ask_defense, judge_round
from snowball.sim.cohort import draw, malicious_clients
from snowball.sim.engines.base import Engine, Replies, one_thread, train_cohort
from snowball.sim.engines.serial import Serial
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.round_record import election, times
from snowball.sim.training.client import LocalTraining, School
from snowball.sim.training.evaluation import Evaluation, FederatedModel
from snowball.sim.training.malicious import craft
from snowball.updates import Layout, Updates

Observer = Callable[[Updates, Sequence[bool], int], None]
"""Sees a round's updates, which of them are malicious, and the round; it copies what it wants to keep."""


def simulate(
    federation: Federation,
    engine: Callable[[Federation], Engine] = Serial,
    state: State | None = None,
    observe: Observer | None = None,
) -> Generator[RoundRecord]:
    """Run the rounds that follow `state`, update it after each of them, and yield one record per round.

    Without a state, the run is rehearsed and starts with an untrained model.
    """
    experiment = federation.experiment
    if state is None:
        rehearse_round(federation)
        state = build_first_state(federation)
    defense = build_defense(experiment)
    with engine(federation) as running:
        model = FederatedModel(federation, running.device)
        Layout.of(model.buffers).check(state.buffers, "the state to go on from")
        model.buffers = state.buffers
        server = trusted_training(federation, defense, running.device)
        evaluate = Evaluation(federation, model, defense, running)
        for round in range(state.round + 1, experiment.rounds + 1):
            started = perf_counter()
            cohort, known = draw(experiment, round), dict(state.clients)
            replies = train_cohort(running, state, cohort, round)
            with one_thread():
                craft(federation, replies.rows, cohort, state.base, round)
                trusted = server(state.base, state.buffers, round) if server else None
                trained = perf_counter()
                context = Context(round, experiment.rounds, state.base, experiment.seed, state.defense, model)
                context = replace(context, trusted=trusted, device=running.device)
                received = receive(federation, replies, cohort)
                outcome = judge(received, defense, context, state.buffers, experiment.training.lr)
                judged = perf_counter()
                state.round, state.base, state.defense = round, outcome.base, outcome.state
                state.buffers = model.buffers = outcome.buffers
                forget_lessons(state.clients, known, outcome.dropped)
                accuracies = evaluate(replace(context, base=state.base, state=state.defense))
                evaluated = perf_counter()
                malicious = {str(client): federation.attacks(client, round) for client in cohort}
                if observe:
                    observe(outcome.updates, [malicious[client] for client in outcome.updates.clients], round)
                record = {"round": round, **accuracies, **election(malicious, outcome)}
            seconds = {"train": trained - started, "defense": judged - trained, "evaluate": evaluated - judged}
            yield replace_non_finite({**record, "seconds": seconds | times(outcome.facts)})


def trusted_training(
    federation: Federation, defense: Defense, device: str = "cpu"
) -> Callable[[Tensor, Buffers, int], Tensor] | None:
    """What trains the server's own update in a round, where the defense wants one."""
    if not isinstance(defense, TrustingDefense):
        return None
    return partial(LocalTraining(federation, device).trusted, federation.trusted(defense.trusted_examples))


def build_first_state(federation: Federation) -> State:
    """Build the state of a run before its first round, with the untrained model."""
    model = federation.model()
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return State(0, federation.layout.flatten(tensors), buffers=buffers_of(model))


def rehearse_round(federation: Federation) -> None:
    """Let the attack poison samples, and let the defense judge a round of zeros and train two samples if it trains.

    Settings that they would refuse in a later round are refused here, before any work is done.
    """
    experiment, base = federation.experiment, build_first_state(federation).base
    federation.backdoor()
    for client in malicious_clients(experiment)[:1]:
        federation.poisoned(client)
    zeros = torch.zeros(()).expand(experiment.cohort, federation.layout.width)  # takes no memory
    with one_thread():
        received = receive(federation, Replies(zeros, []), draw(experiment, 1))
        defense = build_defense(experiment)
        trusted = torch.zeros_like(base) if trusted_training(federation, defense) else None
        context = Context(1, experiment.rounds, base, experiment.seed, trusted=trusted)
        ask_defense(defense, received.to_updates(), context)
        if isinstance(defense, LocalDefense):
            rehearse_lesson(federation, defense)


def rehearse_lesson(federation: Federation, defense: LocalDefense) -> None:
    """Let the defense train the first model on two samples, of two classes where there are, and forget the result."""
    train = federation.dataset.train
    few = [(train.labels == label).nonzero()[0] for label in torch.unique(train.labels)[:2]]
    rng = stream(federation.experiment.seed, "rehearsal")
    School(federation, defense, "cpu").train(train[torch.cat(few)], 1, rng, None)


def who_attacks(experiment: Experiment) -> frozenset[str]:
    """The attackers by the names that they have in updates."""
    return frozenset(map(str, malicious_clients(experiment)))


def build_defense(experiment: Experiment) -> Defense:
    """The defense, told who attacks if it asks."""
    return experiment.defense.build(who_attacks(experiment))


def receive(federation: Federation, replies: Replies, cohort: Sequence[int]) -> Received:
    """A cohort's replies as the server has them."""
    clients = tuple(map(str, cohort))
    return Received(replies.rows, federation.counts(cohort), clients, federation.layout, replies.buffers)


def judge(received: Received, defense: Defense, context: Context, buffers: Buffers, rate: float) -> Outcome:
    """Judge a round; where nobody, or not even the server, trained anything finite, the run is over."""
    try:
        return judge_round(received, defense, context, buffers)
    except UpdateError as error:
        advice = f"try a training.lr below {rate}"
        raise UpdateError(f"training diverged in round {context.round}: {error}; {advice}") from error


def forget_lessons(memory: Memory, before: Memory, dropped: Iterable[Dropped]) -> None:
    """Let dropped clients know what they knew before the round: what broke their models may be in what they keep."""
    for client in {fault.client for fault in dropped} & memory.keys():
        del memory[client]
        if client in before:
            memory[client] = before[client]
