"""The guard of a federation: it validates, judges, keeps its round and the defense's state, and writes the audit."""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from logging import getLogger
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError

from snowball.defenses import Context, Defense, SnowballPlus, Verdict
from snowball.defenses.ops import average_by_examples, elect_everyone
from snowball.errors import RunError, UpdateError
from snowball.guard.arguments import list_asked, list_replies, read_model, refuse_bad_settings, refuse_unusable_defense
from snowball.guard.audit_log import (
    AuditLog,
    describe_settings,
    enter_verdict,
    explain_failure,
    explain_no_reply,
    find_defense_name,
    hash_model,
    select_clients,
)
from snowball.guard.conversion import Tensors, convert_replies, select_buffers, share_examples
from snowball.guard.reply import Reply, ValidReply
from snowball.guard.validation import validate_replies
from snowball.records.audit import AuditEntry, JudgedRound
from snowball.records.files import write_bytes
from snowball.serialization import pack, unpack
from snowball.server import Dropped, ask_defense, judge_round
from snowball.updates import Arrays, Layout, Updates, convert_to_tensor, select_parameters

logger = getLogger("snowball")


@dataclass(frozen=True, eq=False)
class Judgement:
    """The result of a round.

    Attributes:
        tensors: the new global model, on the CPU; a copy of the old one if the round is not aggregated.
        averaged: the clients whose replies are in it.
        examples: their example counts, lowered and raised so that no share exceeds `max_share`: for strategies that
            average themselves.
        entry: the round's line of the audit, without the hash of the new model.
    """

    tensors: Tensors
    averaged: tuple[str, ...]
    entry: JudgedRound
    examples: Mapping[str, float] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether the global model stays unchanged."""
        return self.entry["outcome"] == "kept"


class Guard:
    """Judges the rounds of one federation, in order.

    Attributes:
        defense: elects replies; SnowballPlus by default.
        mode: "enforce" averages the elected replies; "monitor" averages all valid ones, and the audit says who would
            have been left out.
        min_elected: the global model stays unchanged if fewer replies are in the average.
        max_examples: a client that claims more examples is dropped; None allows a hundred times the round's median.
        max_share: the largest share of an average that one client may have, whatever it claims; None allows ten times
            an equal share, and at most half.
        rounds: the total number of rounds, if it is known.
        audit: the file that gets one line per round.
        buffers: names of further tensors that are not trained, besides integer ones and batch normalisation's.
        seed: seeds the defense's random draws; secret by default.
    """

    def __init__(
        self,
        defense: Defense | None = None,
        mode: Literal["enforce", "monitor"] = "enforce",
        min_elected: int = 1,
        max_examples: float | None = None,
        *,
        max_share: float | None = None,
        rounds: int | None = None,
        audit: str | Path | None = None,
        buffers: Collection[str] = (),
        seed: int | None = None,
    ) -> None:
        bounds = {"min_elected": min_elected, "max_examples": max_examples, "max_share": max_share, "rounds": rounds}
        refuse_bad_settings(mode, buffers, bounds)
        self.defense = SnowballPlus() if defense is None else defense
        refuse_unusable_defense(self.defense)
        self.mode, self.min_elected, self.max_examples, self.rounds = mode, min_elected, max_examples, rounds
        self.max_share = max_share
        self.log = AuditLog(Path(audit)) if audit is not None else None
        self.buffers = frozenset(buffers)
        self.seed = secrets.randbits(63) if seed is None else seed
        self.round = 0
        self.state: Mapping[str, Any] | None = None

    def __call__(
        self,
        model: Arrays,
        replies: Iterable[Reply],
        asked: Iterable[str] | None = None,
        failed: Iterable[Dropped] = (),
    ) -> Judgement:
        """Judge a round and write its line of the audit.

        Args:
            model: the global model that was sent out, by name.
            replies: the clients' answers.
            asked: the clients that it was sent to, if they are known; others are dropped.
            failed: clients whose answer could not be read at all.
        """
        judgement = self.judge(model, replies, asked, failed)
        self.record(judgement, judgement.tensors)
        return judgement

    def judge(
        self,
        model: Arrays,
        replies: Iterable[Reply],
        asked: Iterable[str] | None = None,
        failed: Iterable[Dropped] = (),
    ) -> Judgement:
        """Judge a round without writing to the audit; call `record` with the new global model afterwards."""
        base, answers, invited = read_model(model), list_replies(replies), list_asked(asked)
        layout = Layout.from_tensors(select_parameters(base, self.buffers))
        self.round += 1
        unjudged = [name for name in base if name not in layout.columns and base[name].is_floating_point()]
        valid, invalid = validate_replies(answers, base, invited, self.max_examples, unjudged)
        dropped = [*failed, *invalid]
        answered = [reply.client for reply in valid] + [fault.client for fault in dropped if fault.reason != "error"]
        entry: JudgedRound = {
            "round": self.round,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": version("snowball-fl"),
            "defense": find_defense_name(self.defense),
            "settings": describe_settings(self.defense),
            "mode": self.mode,
            "outcome": "kept",  # until there is a new model
            "asked": invited,
            "answered": sorted(set(answered)),
            "silent": sorted(set(invited or ()) - set(answered) - {fault.client for fault in dropped}),
            "dropped": [fault.plain() for fault in dropped],
            "reason": None,
            "elected": [],
            "left_out": [],
            "suspects": [],
            "clarity": None,
            "averaged": [],
            "shares": {},
            "decisions": [],
            "ids": {},
            "facts": {},
            "model_before": hash_model(base),
        }
        return self._judge_or_keep(base, layout, valid, entry)

    def record(self, judgement: Judgement, after: Arrays) -> AuditEntry:
        """Write the round's line with the hash of the new global model; warn if the file cannot be written."""
        tensors = {name: convert_to_tensor(tensor, name) for name, tensor in after.items()}
        entry: AuditEntry = {**judgement.entry, "model_after": hash_model(tensors)}
        try:
            if self.log:
                self.log.append(entry)
        except Exception as error:  # the federation matters more than one line of its audit
            logger.warning("Round %d is not in the audit: %s", entry["round"], error)
        return entry

    def state_dict(self) -> dict[str, Any]:
        """Return the guard's state as nested dicts and lists of tensors, numbers and strings."""
        return {"round": self.round, "seed": self.seed, "method": self._defense_name, "defense": self.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another guard."""
        round, seed, defense = (state.get(name) for name in ("round", "seed", "defense"))
        if type(round) is not int or round < 0 or type(seed) is not int or not isinstance(defense, Mapping | None):
            raise RunError("this is not the state of a guard: it needs a round, a seed and the defense's state")
        if str(state.get("method")).casefold() != self._defense_name.casefold():  # older states wrote FlDetector
            other = str(state.get("method"))[:60]
            raise RunError(f"this state belongs to the defense {other!r}, this guard's is {self._defense_name!r}")
        self.round, self.seed, self.state = round, seed, defense

    def save(self, path: str | Path) -> None:
        """Write the state to a file, whole or not at all."""
        write_bytes(Path(path), pack(self.state_dict()))

    def load(self, path: str | Path) -> bool:
        """Continue from the state in a file; return False if there is no such file."""
        try:
            if not Path(path).exists():
                return False
            state = unpack(Path(path).read_bytes())
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(f"{path} is not the state of a guard: {error}") from error
        try:
            self.load_state_dict(state if isinstance(state, Mapping) else {})
        except RunError as error:
            raise RunError(f"{path} cannot be used: {error}") from error
        return True

    @property
    def _defense_name(self) -> str:
        """The defense's class; no other defense can use its state."""
        return type(self.defense).__name__

    def _judge_or_keep(
        self, base: Tensors, layout: Layout, valid: Sequence[ValidReply], entry: JudgedRound
    ) -> Judgement:
        """Judge the valid replies, or keep the old global model whatever goes wrong."""
        try:
            if not valid:
                raise UpdateError(explain_no_reply(entry))
            return self._judge_valid(base, layout, valid, entry)
        except Exception as error:  # fail closed: whatever a defense raises, the federation goes on
            entry |= {"outcome": "kept", "reason": explain_failure(error)}
            logger.warning("Round %d keeps the old global model: %s", self.round, entry["reason"])
            return Judgement({name: tensor.clone() for name, tensor in base.items()}, (), entry)

    def _judge_valid(self, base: Tensors, layout: Layout, valid: Sequence[ValidReply], entry: JudgedRound) -> Judgement:
        """Let the defense judge, and return the new model."""
        origin, received = convert_replies(base, layout, valid, self.max_share)
        rounds = self.rounds and max(self.rounds, self.round)  # a federation may run longer than announced
        context = Context(round=self.round, rounds=rounds, base=origin, seed=self.seed, state=self.state)
        outcome = judge_round(received, partial(self._apply_mode, entry), context, select_buffers(base, layout))
        entry["dropped"] += [fault.plain() for fault in outcome.dropped]
        if outcome.kept is not None:
            raise UpdateError(outcome.kept)
        tensors = layout.rebuild_model(base, outcome.base, outcome.buffers)
        self.state = outcome.state
        entry |= {"outcome": "aggregated", "averaged": select_clients(outcome.updates.clients, outcome.elected)}
        return Judgement(tensors, tuple(entry["averaged"]), entry, share_examples(outcome.updates, outcome.elected))

    def _apply_mode(self, entry: JudgedRound, updates: Updates, context: Context) -> Verdict:
        """Return the defense's verdict, or everybody's average in monitor mode; refuse an average of too few."""
        verdict = self._ask_defense(entry, updates, context)
        if self.mode == "monitor":
            mean = average_by_examples(updates, elect_everyone(updates))
            verdict = replace(verdict, delta=mean, elected=elect_everyone(updates))
        averaged = int(verdict.elected.sum())
        if averaged < self.min_elected:
            raise UpdateError(f"{averaged} of {len(updates)} are elected, and {self.min_elected} are needed")
        return verdict

    def _ask_defense(self, entry: JudgedRound, updates: Updates, context: Context) -> Verdict:
        """Return the defense's verdict, and enter it in the entry; in monitor mode the defense may fail."""
        try:
            verdict = ask_defense(self.defense, updates, context)
            enter_verdict(entry, verdict, updates.clients)
        except Exception as error:
            if self.mode == "enforce":
                raise
            entry |= {"reason": f"the defense could not judge: {explain_failure(error)}"}
            return Verdict(torch.zeros(updates.layout.width), elect_everyone(updates), {}, context.state)
        return verdict
