"""FLDetector: clients whose updates do not follow from their previous ones are malicious.

Zhang, Cao, Jia, Gong, "FLDetector: Defending Federated Learning Against Model Poisoning Attacks via Detecting Malicious
Clients", KDD 2022. An honest client's update follows the model: the server predicts it from the client's last update
and an approximate Hessian, estimated from the last rounds. Clients whose updates are predicted worse than those of
others over several rounds form their own cluster.

Deviations: in the paper all clients take part in every round. Here the update of a client that was absent is predicted
from its own last update and the model that this was trained from. Errors are compared within a round, so a client's
score does not depend on how many others can be scored in the same round; with all clients present, the scores are the
paper's. Detection starts when the window is full, after `window` + 1 rounds, and continues every round. The paper
instead stops at the first detection and restarts training without the detected clients, which a defense cannot do.
Fewer than four scored clients are not clustered. The histories of at most `remember` clients are kept; those not seen
for longest are dropped, and such clients are unknown when they return.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isnan, nan
from statistics import fmean
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from snowball.defenses.base import Context, State, Verdict, require
from snowball.defenses.history import (
    MAX_REMEMBERED_CLIENTS,
    Entries,
    Entry,
    check_bounds,
    check_numbers,
    count_mebibytes,
    describe_damage,
    extend_barred,
    is_row,
    keep_recent,
    read_entries,
)
from snowball.defenses.lbfgs import Hessian
from snowball.defenses.ops import average_by_examples
from snowball.defenses.score_clusters import count_clusters, select_upper_cluster
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.updates import Updates

LEAST_SCORED = 4

MAX_ERROR = 1e12
"""Largest error of a client in a state: it is a share of a round's errors times the number of clients scored."""

NOTHING: State = {"clients": {}, "bases": {}, "steps": [], "changes": [], "blacklist": []}
"""The state before the first round."""

OnDetect = Literal["exclude_round", "blacklist"]


@dataclass(frozen=True)
class FLDetector:
    """Average the updates of clients that behave as their previous updates predict.

    Attributes:
        window: past rounds that a score and the approximate Hessian cover (the paper's N).
        on_detect: "exclude_round" leaves detected clients out of the round; "blacklist" leaves them out from then on,
            at most `MAX_BARRED_CLIENTS` of them.
        forget_after: rounds in a row that a client may miss before its history is dropped; None sets no limit.
        remember: number of clients, those seen last, whose history is kept; None keeps all forever.
    """

    window: int = 10
    on_detect: OnDetect = "exclude_round"
    forget_after: int | None = None
    remember: int | None = MAX_REMEMBERED_CLIENTS

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if self.window < 1:
            raise SettingError(f"window must be 1 round or more, got {self.window}")
        if self.on_detect not in get_args(OnDetect):
            raise SettingError(f"on_detect {self.on_detect!r} is not one of {', '.join(get_args(OnDetect))}")
        check_bounds(self.forget_after, self.remember)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Compare the updates with their predictions, and leave out the clients that are predicted badly."""
        base = require(context.base, "base", "fldetector")
        known = context.state or NOTHING
        check_parts(known, updates.layout.width, context.round)
        seen = self._see(
            updates, known["clients"], compute_shares(measure_prediction_errors(updates, base, known)), context.round
        )
        scores = score_clients(seen)
        clusters, found = self._detect(scores, known, context)
        listed = torch.tensor([client in known["blacklist"] for client in updates.clients])
        elected = ~(found | listed)
        delta = average_by_examples(updates, elected)
        barred = {client for client, bad in zip(updates.clients, found.tolist(), strict=True) if bad}
        blacklist = extend_barred(known["blacklist"], barred, context) if self.on_detect == "blacklist" else []
        state = self._remember(known, seen, blacklist, base, delta, context)
        facts = {"clusters": clusters, "blacklisted": len(blacklist), "history_mib": count_mebibytes(state)}
        return Verdict(delta, elected, {"scores": scores, **facts}, state, ~elected)

    def check_state(self, state: State, round: int, layout: Layout) -> None:
        """Refuse a state whose parts do not fit together, or whose numbers are not finite."""
        check_parts(state, layout.width, round)
        kept = [entry["row"] for entry in state["clients"].values()]
        means = [state["mean"]] if "round" in state else []
        check_numbers([*kept, *state["bases"].values(), *state["steps"], *state["changes"], *means])

    def _see(self, updates: Updates, entries: Entries, errors: Tensor, round: int) -> dict[str, Entry]:
        """Return the new entries of this round's clients."""
        seen: dict[str, Entry] = {}
        scored = int((~errors.isnan()).sum())
        for client, row, error in zip(updates.clients, updates.rows, errors.tolist(), strict=True):
            past = entries[client]["errors"] if client in entries else []
            fresh = [] if isnan(error) else [error * scored]  # 1 is the average of the round
            seen[client] = {"round": round, "row": row.clone(), "errors": [*past, *fresh][-self.window :]}
        return seen

    def _detect(self, scores: Tensor, known: State, context: Context) -> tuple[float, Tensor]:
        """Return the number of clusters of the scores, NaN if it is too early, and a mask of the malicious cluster."""
        scored = ~scores.isnan()
        found = torch.zeros_like(scored)
        if len(known["steps"]) < self.window or scored.sum() < LEAST_SCORED:
            return nan, found
        clusters = count_clusters(scores[scored], context.stream("gap"))
        if clusters > 1:
            found[scored] = select_upper_cluster(scores[scored])
        return clusters, found

    def _remember(
        self, known: State, seen: Entries, blacklist: Sequence[str], base: Tensor, delta: Tensor, context: Context
    ) -> State:
        """Return the next state: the clients' last rows, the models they were trained from, steps and changes."""
        judged = {**known["clients"], **seen}
        wanted = {client: entry for client, entry in judged.items() if client not in blacklist}
        clients = keep_recent(wanted, context, self.forget_after, self.remember)
        round = context.round
        bases = {**known["bases"], str(round): base.clone()}
        needed = {str(entry["round"]) for entry in clients.values()} | {str(round)}
        steps, changes = known["steps"], known["changes"]
        if "round" in known:
            steps = [*steps, base - known["bases"][str(known["round"])]][-self.window :]
            changes = [*changes, delta - known["mean"]][-self.window :]
        return {
            "round": round,
            "mean": delta.clone(),
            "clients": clients,
            "bases": {name: row for name, row in bases.items() if name in needed},
            "steps": steps,
            "changes": changes,
            "blacklist": list(blacklist),
        }


def check_parts(state: State, width: int, round: int) -> None:
    """Refuse a state whose parts cannot come from this or an earlier round."""
    parts: list[Any] = [state.get(name) for name in ("bases", "steps", "changes", "blacklist")]
    bases, steps, changes, blacklist = parts
    clients = read_entries(state, "row", width, round)
    errors: list[Any] = [entry.get("errors") for entry in clients.values()]
    if not all(isinstance(part, list) for part in (steps, changes, blacklist, *errors)):
        raise describe_damage("its steps, changes, blacklist and errors are not lists")
    if not all(type(error) is float and 0 <= error <= MAX_ERROR for past in errors for error in past):
        raise describe_damage("its errors are not possible numbers")
    if not all(isinstance(client, str) for client in blacklist):
        raise describe_damage("its blacklist does not consist of client ids")
    if "round" in state and (type(state["round"]) is not int or not 0 < state["round"] <= round):
        raise describe_damage(f"its last round is not one of {round}")
    latest = [state] if "round" in state else []
    trained_from = {str(entry["round"]) for entry in (*clients.values(), *latest)}
    if not isinstance(bases, Mapping) or not trained_from <= bases.keys():
        raise describe_damage("it lacks models that updates were trained from")
    rows = [*bases.values(), *steps, *changes, *(entry.get("mean") for entry in latest)]
    if not all(is_row(row, width) for row in rows) or len(steps) != len(changes):
        raise describe_damage(f"its models, mean, steps and changes are not rows of {width} numbers")


def measure_prediction_errors(updates: Updates, base: Tensor, known: State) -> Tensor:
    """Return the (n,) distance of each row from its prediction; NaN for clients without a previous row."""
    errors = torch.full((len(updates),), nan, dtype=torch.float64)
    hessian = Hessian(known["steps"], known["changes"])
    returning = defaultdict(list)
    for row, client in enumerate(updates.clients):
        if client in known["clients"]:
            returning[known["clients"][client]["round"]].append(row)
    for round, rows in returning.items():
        change = hessian.times(base.double() - known["bases"][str(round)].double())  # (d,)
        for row in rows:
            last = known["clients"][updates.clients[row]]["row"]
            errors[row] = torch.linalg.vector_norm(last + change - updates.rows[row])
    return errors


def compute_shares(errors: Tensor) -> Tensor:
    """Return each row's (n,) share of the sum of all errors; NaN stays NaN."""
    total = fsum(error for error in errors.tolist() if not isnan(error))  # exact in any order
    return errors / total if total > 0 else errors


def score_clients(seen: Entries) -> Tensor:
    """Return the clients' (n,) recent mean error, divided by the number of scored clients; NaN without errors."""
    past = [entry["errors"] for entry in seen.values()]
    scored = sum(map(bool, past))
    return torch.tensor([fmean(errors) / scored if errors else nan for errors in past], dtype=torch.float64)
