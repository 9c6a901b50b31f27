"""Loop over the rounds of a federation: train, judge, evaluate, record."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from snowball.buffers import Buffers, copy_buffers
from snowball.defenses import Context, Defense, InspectingDefense, LocalDefense, TrustingDefense
from snowball.errors import UpdateError
from snowball.layout import Layout, select_parameters
from snowball.records.checkpoint import ClientStates, RunState
from snowball.records.files import replace_non_finite
from snowball.records.rounds import ADAPTATION, RoundRecord
from snowball.rng import stream
from snowball.server import Dropped, Outcome, Received, ask_defense, judge_round, select_rows
from snowball.sim.cohort import draw_cohort, select_malicious_clients
from snowball.sim.engines.base import Engine, Replies, train_cohort, use_one_thread
from snowball.sim.engines.faulty import FaultyEngine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.experiment import Experiment
from snowball.sim.faults import corrupt_rows
from snowball.sim.federation import Federation
from snowball.sim.round_record import describe_election, extract_times
from snowball.sim.training.adaptation import Adaptation
from snowball.sim.training.client import DefendedTraining, LocalTraining
from snowball.sim.training.evaluation import Evaluation, FederatedModel
from snowball.sim.training.malicious import craft_updates
from snowball.updates import Updates

Observer = Callable[[Updates, Sequence[bool], int], None]
"""Callback with a round's updates, which of them are malicious, and the round; it must copy what it keeps."""


def simulate(
    federation: Federation,
    engine: Callable[[Federation], Engine] = SerialEngine,
    state: RunState | None = None,
    observe: Observer | None = None,
) -> Generator[RoundRecord]:
    """Run the rounds that follow `state`, update it after each of them, and yield one record per round.

    Without a state, the run is rehearsed and starts with the first model.
    """
    experiment = federation.experiment
    if state is None:
        rehearse_round(federation)
        state = build_first_state(federation)
    defense = build_defense(experiment)
    with engine(federation) as running:
        model = FederatedModel(federation, running.device)
        Layout.from_tensors(model.buffers).check(state.buffers, "the state to continue from")
        model.buffers = state.buffers
        train_trusted = prepare_trusted_training(federation, defense, running.device)
        samples = select_inspected_samples(federation, defense)
        adapt, evaluate = Adaptation(federation, running.device), Evaluation(federation, model, defense, running)
        for round in range(state.round + 1, experiment.rounds + 1):
            started = perf_counter()
            cohort, former_states = draw_cohort(experiment, round), dict(state.clients)
            with use_one_thread():
                state.attack = adapt(state, cohort, round)
            adapted = perf_counter()
            replies = train_cohort(FaultyEngine(running, experiment), state, cohort, round)
            with use_one_thread():
                state.attack = craft_updates(federation, replies.rows, cohort, state.base, round, state.attack)
                corrupt_rows(experiment, replies.rows, cohort, round)
                trusted = train_trusted(state.base, state.buffers, round) if train_trusted else None
                trained = perf_counter()
                context = Context(
                    round=round,
                    rounds=experiment.rounds,
                    base=state.base,
                    seed=experiment.seed,
                    state=state.defense,
                    model=model,
                )
                context = replace(context, trusted=trusted, samples=samples, device=running.device)
                received = receive_replies(federation, replies, cohort)
                outcome = judge_replies(received, defense, context, state.buffers, experiment)
                judged = perf_counter()
                state.round = round
                if outcome:
                    state.base, state.defense, state.buffers = outcome.base, outcome.state, outcome.buffers
                    model.buffers = outcome.buffers
                    restore_client_states(state.clients, former_states, outcome.dropped)
                accuracies = evaluate(replace(context, base=state.base, state=state.defense), state.attack)
                evaluated = perf_counter()
                malicious = {str(client): federation.is_attacking(client, round) for client in cohort}
                if observe and outcome:
                    observe(outcome.updates, [malicious[client] for client in outcome.updates.clients], round)
                failed = [str(cohort[slot]) for slot in replies.failed]
                record = {"round": round, **accuracies, **describe_election(malicious, outcome, failed)}
            seconds = {"train": trained - adapted, "defense": judged - trained, "evaluate": evaluated - judged}
            seconds |= {ADAPTATION: adapted - started} if adapt.attack else {}
            yield replace_non_finite({**record, "seconds": seconds | extract_times(outcome.facts if outcome else {})})


def prepare_trusted_training(
    federation: Federation, defense: Defense, device: str = "cpu"
) -> Callable[[Tensor, Buffers, int], Tensor] | None:
    """Return a function that trains the server's own update; None if the defense does not want one."""
    if not isinstance(defense, TrustingDefense):
        return None
    samples = federation.select_trusted_samples(defense.trusted_examples)
    return partial(LocalTraining(federation, device).train_trusted, samples)


def select_inspected_samples(federation: Federation, defense: Defense) -> Tensor | None:
    """Return the server's samples on which the defense runs models; None if it does not."""
    if not isinstance(defense, InspectingDefense):
        return None
    return federation.select_trusted_samples(defense.inspected_examples, "defense.inspected_examples").inputs


def build_first_state(federation: Federation) -> RunState:
    """Build the state of a run before its first round."""
    model = federation.build_first_model()
    return RunState(0, federation.layout.flatten(select_parameters(model)), buffers=copy_buffers(model))


def rehearse_round(federation: Federation) -> None:
    """Let the attack poison samples, and let the defense judge a round of zeros and train two samples if it trains.

    Settings that they would refuse in a later round are refused here, before any work is done.
    """
    experiment, base = federation.experiment, build_first_state(federation).base
    federation.build_backdoor_test()
    for client in select_malicious_clients(experiment)[:1]:
        federation.poison_samples(client)
    zeros = torch.zeros(()).expand(experiment.cohort, federation.layout.width)  # takes no memory
    with use_one_thread():
        received = receive_replies(federation, Replies(zeros, []), draw_cohort(experiment, 1))
        defense = build_defense(experiment)
        trusted = torch.zeros_like(base) if prepare_trusted_training(federation, defense) else None
        context = Context(round=1, rounds=experiment.rounds, base=base, seed=experiment.seed, trusted=trusted)
        if (samples := select_inspected_samples(federation, defense)) is not None:
            context = replace(context, model=FederatedModel(federation), samples=samples)
        ask_defense(defense, received.to_updates(), context)
        if isinstance(defense, LocalDefense):
            rehearse_client_task(federation, defense)


def rehearse_client_task(federation: Federation, defense: LocalDefense) -> None:
    """Let the defense train the first model on two samples, of two classes if possible, and discard the result."""
    train = federation.dataset.train
    few = [(train.labels == label).nonzero()[0] for label in torch.unique(train.labels)[:2]]
    rng = stream(federation.experiment.seed, "rehearsal")
    DefendedTraining(federation, defense, "cpu").train(train[torch.cat(few)], 1, rng, None)


def name_attackers(experiment: Experiment) -> frozenset[str]:
    """Return the names of the malicious clients in updates."""
    return frozenset(map(str, select_malicious_clients(experiment)))


def build_defense(experiment: Experiment) -> Defense:
    """Build the defense; it learns who is malicious only if it has a field for that."""
    return experiment.defense.build(name_attackers(experiment))


def receive_replies(federation: Federation, replies: Replies, cohort: Sequence[int]) -> Received:
    """Return a cohort's replies in the form that the server judges; without clients that failed."""
    slots = [slot for slot in range(len(cohort)) if slot not in replies.failed]
    return Received(
        values=select_rows(replies.rows, slots) if replies.failed else replies.rows,
        examples=federation.count_examples(cohort)[slots],
        clients=tuple(str(cohort[slot]) for slot in slots),
        layout=federation.layout,
        buffers=[replies.buffers[slot] for slot in slots] if replies.buffers else [],
    )


def judge_replies(
    received: Received, defense: Defense, context: Context, buffers: Buffers, experiment: Experiment
) -> Outcome | None:
    """Judge a round; None if nobody replied. The run ends if no reply, or not the server's own, is finite."""
    if not received.clients:
        return None
    try:
        return judge_round(received, defense, context, buffers)
    except UpdateError as error:
        advice = f"try a training.lr below {experiment.training.lr}"
        advice += " or a smaller faults.corrupted" if experiment.faults.corrupted else ""
        raise UpdateError(f"training diverged in round {context.round}: {error}; {advice}") from error


def restore_client_states(states: ClientStates, before: ClientStates, dropped: Iterable[Dropped]) -> None:
    """Reset the states of dropped clients to those before the round: the new ones may have broken their models."""
    for client in (fault.client for fault in dropped):
        if client in states and client in before:
            states[client] = before[client]
        else:
            states.pop(client, None)
