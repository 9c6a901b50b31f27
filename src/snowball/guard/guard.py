"""The guard of a federation: sanitise, judge, keep the round and the defense's state, write the audit."""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor

from snowball.defenses import Context, Defense, SnowballPlus, Verdict
from snowball.defenses.ops import everyone, weighted_mean
from snowball.errors import RunError, SettingError, UpdateError
from snowball.guard.audit_log import AuditLog, fingerprint
from snowball.guard.reply import Reply, Sane
from snowball.guard.validation import sanitise
from snowball.guard.verdicts import Tensors, decision, names, rebuild, refuse_unfit, said, take_in, untrained
from snowball.records.audit import Entry
from snowball.records.files import write_bytes
from snowball.serialization import pack, unpack
from snowball.server import Dropped, ask_defense, judge_round
from snowball.updates import Arrays, Layout, Updates, as_tensor

logger = getLogger("snowball")

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Tensors that nobody trains, by the ends of their names: torch's batch normalisation has them. The last is a counter,
which averaging strategies turn into a floating one."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """What came of a round.

    Attributes:
        tensors: the new global model, on the CPU; a copy of the old one where the round was not good enough.
        averaged: the clients whose replies are in it.
        entry: the audit's line, without the model after the round.
    """

    tensors: Tensors
    averaged: tuple[str, ...]
    entry: Entry

    @property
    def kept(self) -> bool:
        """Whether the global model stays as it was."""
        return bool(self.entry["outcome"] == "kept")


class Guard:
    """Judges the rounds of one federation, in their order.

    Attributes:
        defense: who elects; SnowballPlus unless another is given.
        mode: "enforce" averages the elected; "monitor" averages all that is sane, and the audit says who would be out.
        min_elected: with fewer in the average the global model stays as it is.
        max_examples: a client that claims more examples is dropped; None for ten times the median of the round.
        rounds: how many there will be, where that is known.
        audit: the file that gets a line a round.
        buffers: further names of tensors that nobody trains; integer ones and batch normalisation's are known.
        seed: of what a defense draws; a secret one unless it is given.
    """

    def __init__(
        self,
        defense: Defense | None = None,
        mode: Literal["enforce", "monitor"] = "enforce",
        min_elected: int = 1,
        max_examples: float | None = None,
        *,
        rounds: int | None = None,
        audit: str | Path | None = None,
        buffers: Collection[str] = (),
        seed: int | None = None,
    ) -> None:
        if mode not in ("enforce", "monitor"):
            raise SettingError(f"mode is 'enforce' or 'monitor', got {mode!r}")
        for name, least in {"min_elected": min_elected, "max_examples": max_examples, "rounds": rounds}.items():
            if least is not None and not least > 0:
                raise SettingError(f"{name} must be positive, got {least}")
        self.defense = SnowballPlus() if defense is None else defense
        refuse_unfit(self.defense)
        self.mode, self.min_elected, self.max_examples, self.rounds = mode, min_elected, max_examples, rounds
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
        """Judge a round and write its line: `model` is the global one that was sent out to those `asked`."""
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
        """Judge a round; who aggregates in another way calls `record` with what that gives."""
        base = {name: as_tensor(tensor, f"{name!r} of the global model").cpu() for name, tensor in model.items()}
        layout = self._layout(base)
        self.round += 1
        invited = None if asked is None else list(dict.fromkeys(map(str, asked)))
        unjudged = [name for name in base if name not in layout.columns and base[name].is_floating_point()]
        sane, dropped = sanitise(replies, base, invited, self.max_examples, unjudged)
        dropped = [*failed, *dropped]
        answered = [reply.client for reply in sane] + [fault.client for fault in dropped if fault.reason != "error"]
        entry: Entry = {
            "round": self.round,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "mode": self.mode,
            "asked": invited,
            "answered": sorted(set(answered)),
            "silent": sorted(set(invited or ()) - set(answered) - {fault.client for fault in dropped}),
            "dropped": [vars(fault) for fault in dropped],
            "reason": None,
            "elected": [],
            "left_out": [],
            "averaged": [],
            "facts": {},
            "model_before": fingerprint(base),
        }
        return self._decide(base, layout, sane, entry)

    def record(self, judgement: Judgement, after: Arrays) -> Entry:
        """Write the round's line, with the global model that came of it; a file that cannot be written is a warning."""
        tensors = {name: as_tensor(tensor, name) for name, tensor in after.items()}
        entry = {**judgement.entry, "model_after": fingerprint(tensors)}
        try:
            if self.log:
                self.log.append(entry)
        except Exception as error:  # the federation is worth more than a line of its books
            logger.warning("Round %d is not in the audit: %s", entry["round"], error)
        return entry

    def state_dict(self) -> dict[str, Any]:
        """Where the guard stands: nested dicts and lists of tensors, numbers and strings."""
        return {"round": self.round, "seed": self.seed, "method": self._method, "defense": self.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another guard stood."""
        round, seed, defense = (state.get(name) for name in ("round", "seed", "defense"))
        if type(round) is not int or round < 0 or type(seed) is not int or not isinstance(defense, Mapping | None):
            raise RunError("this is not the state of a guard: it needs a round, a seed and the defense's state")
        if state.get("method") != self._method:
            raise RunError(f"this state is of another defense than {self._method}: {str(state.get('method'))[:60]!r}")
        self.round, self.seed, self.state = round, seed, defense

    def save(self, path: str | Path) -> None:
        """Write the state to a file, whole or not at all."""
        write_bytes(Path(path), pack(self.state_dict()))

    def load(self, path: str | Path) -> bool:
        """Go on where the guard that wrote a file stood; False where there is no such file."""
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
    def _method(self) -> str:
        """The defense's name: its state is no other's."""
        return type(self.defense).__name__

    def _layout(self, base: Tensors) -> Layout:
        """The tensors that are compared: floating ones that are trained."""
        trained = {name: tensor for name, tensor in base.items() if self._is_trained(name, tensor)}
        if not trained:
            raise UpdateError(f"none of the global model's {len(base)} tensors is trained")
        for name, tensor in base.items():
            if not tensor.isfinite().all():
                raise UpdateError(f"{name!r} of the global model holds NaN or infinite numbers")
        return Layout.of(trained)

    def _is_trained(self, name: str, tensor: Tensor) -> bool:
        return tensor.is_floating_point() and name not in self.buffers and not name.endswith(STATISTICS)

    def _decide(self, base: Tensors, layout: Layout, sane: Sequence[Sane], entry: Entry) -> Judgement:
        try:
            if not sane:
                raise UpdateError("there is no reply to judge")
            return self._elect(base, layout, sane, entry)
        except Exception as error:  # fail closed: whatever a defense stumbles over, the federation goes on
            entry |= {"outcome": "kept", "reason": said(error)}
            logger.warning("Round %d keeps the old global model: %s", self.round, entry["reason"])
            return Judgement({name: tensor.clone() for name, tensor in base.items()}, (), entry)

    def _elect(self, base: Tensors, layout: Layout, sane: Sequence[Sane], entry: Entry) -> Judgement:
        """Let the defense judge, and make the new model."""
        origin, received = take_in(base, layout, sane)
        rounds = self.rounds and max(self.rounds, self.round)  # a federation may go on for longer than was said
        context = Context(self.round, rounds, origin, self.seed, self.state)
        outcome = judge_round(received, partial(self._average, entry), context, untrained(base, layout))
        entry["dropped"] += map(vars, outcome.dropped)
        if outcome.kept is not None:
            raise UpdateError(outcome.kept)
        tensors = rebuild(base, layout, outcome)
        self.state = outcome.state
        entry |= {"outcome": "aggregated", "averaged": names(outcome.updates.clients, outcome.elected)}
        return Judgement(tensors, tuple(entry["averaged"]), entry)

    def _average(self, entry: Entry, updates: Updates, context: Context) -> Verdict:
        """What the mode makes of the defense's verdict; too few in the average are refused."""
        verdict = self._ask(entry, updates, context)
        if self.mode == "monitor":
            mean = weighted_mean(updates, everyone(updates))
            verdict = Verdict(mean, everyone(updates), verdict.facts, verdict.state)
        averaged = int(verdict.elected.sum())
        if averaged < self.min_elected:
            raise UpdateError(f"{averaged} of {len(updates)} are elected, and {self.min_elected} are needed")
        return verdict

    def _ask(self, entry: Entry, updates: Updates, context: Context) -> Verdict:
        """What the defense decides; one that stumbles does not matter in monitor mode."""
        try:
            verdict = ask_defense(self.defense, updates, context)
            entry |= decision(verdict, updates.clients)
        except Exception as error:
            if self.mode == "enforce":
                raise
            entry |= {"reason": f"the defense could not judge: {said(error)}"}
            return Verdict(torch.zeros(updates.layout.width), everyone(updates), {}, context.state)
        return verdict
