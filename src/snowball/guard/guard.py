"""The guard of a federation: it validates, judges, keeps its round and the defense's state, and writes the audit."""

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from logging import getLogger
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch

from snowball.arrays import Arrays, convert_to_tensor
from snowball.defenses import Context, Defense, SnowballPlus, Verdict
from snowball.defenses.base import has_fresh_deltas
from snowball.defenses.history import rename_clients
from snowball.defenses.ops import elect_everyone
from snowball.errors import RunError, UpdateError
from snowball.guard.admission import Admitted, admit_clients
from snowball.guard.alerts import Alerts, Choice, build_listeners
from snowball.guard.alerts.events import rename_streaks
from snowball.guard.arguments import (
    list_asked,
    list_failures,
    list_replies,
    read_model,
    refuse_bad_choices,
    refuse_bad_history,
    refuse_bad_settings,
    refuse_bad_share,
    refuse_lone_key,
    refuse_unusable_defense,
)
from snowball.guard.audit_log import (
    describe_settings,
    enter_verdict,
    explain_failure,
    explain_no_reply,
    find_defense_name,
    hash_model,
    open_audit,
    read_shares,
    select_clients,
)
from snowball.guard.conversion import Tensors, convert_replies, select_buffers, share_examples
from snowball.guard.decisions import parse_decisions
from snowball.guard.model_history import ModelHistory
from snowball.guard.names import Names, find_renames, parse_names
from snowball.guard.overrides import apply_decisions, average_everybody
from snowball.guard.reply import Reply, ValidReply
from snowball.guard.seats import drop_seatless
from snowball.guard.state import (
    GuardState,
    OnOtherState,
    encode_settings,
    fit_state,
    name_defense,
    parse_state,
    read_state,
    write_state,
)
from snowball.guard.turnout import MIN_ANSWERS, explain_low_turnout
from snowball.guard.validation import validate_replies
from snowball.guard.watched_file import WatchedFile
from snowball.layout import Layout, select_parameters
from snowball.records.audit import Decision, JudgedRound, RecordedRound
from snowball.records.drafts import remove_leftovers
from snowball.records.files import explain_os_errors
from snowball.rng import derive
from snowball.server import Dropped, ask_defense, judge_round
from snowball.updates import Updates

logger = getLogger("snowball")


@dataclass(frozen=True, eq=False)
class Judgement:
    """The result of a round.

    Attributes:
        tensors: the new global model, on the CPU; a copy of the old one if the round is not aggregated.
        averaged: the clients whose replies are in it, by the framework's ids.
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
        audit_key: the file of the private key that signs each line: ed25519, PEM, not encrypted.
        buffers: names of further tensors that are not trained, besides integer ones and batch normalisation's.
        seed: seeds the defense's random draws; secret by default.
        min_answers: the share of those asked that must send a valid reply; sites that people deny do not count.
        low_turnout: "keep" leaves the global model unchanged if fewer reply, or fewer than the defense can tell apart;
            "aggregate" averages all the same, as monitor mode does, and the audit says that the turnout was low.
        names: a TOML file with the operator's names of clients; read again in every round.
        decisions: a TOML file with the decisions of people about clients; likewise.
        models: the folder for the files of the last `keep_models` global models.
        on_other_state: "refuse" raises an error if the state to load is of another defense, of a later version, or
            damaged; "fresh" keeps its round and seed, and starts the defense's memory again. A memory that was measured
            on another model is found in the first round.
        listeners: get an event for every round and for every alert: functions, or names and settings of ready ones.
        patience: the rounds in a row in which a client has to be suspect, or malformed, to be an alert.
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
        audit_key: str | Path | None = None,
        buffers: Collection[str] = (),
        seed: int | None = None,
        min_answers: float = MIN_ANSWERS,
        low_turnout: Literal["keep", "aggregate"] = "keep",
        names: str | Path | None = None,
        decisions: str | Path | None = None,
        models: str | Path | None = None,
        keep_models: int = 0,
        on_other_state: OnOtherState = "refuse",
        listeners: Choice | Iterable[Choice] = (),
        patience: int = 3,
    ) -> None:
        refuse_bad_choices(
            {
                "mode": (mode, ("enforce", "monitor")),
                "low_turnout": (low_turnout, ("keep", "aggregate")),
                "on_other_state": (on_other_state, ("refuse", "fresh")),
            }
        )
        bounds = {"min_elected": min_elected, "max_examples": max_examples, "max_share": max_share, "rounds": rounds}
        refuse_bad_settings(buffers, bounds)
        refuse_bad_share("min_answers", min_answers)
        refuse_bad_history(models, keep_models)
        refuse_lone_key(audit, audit_key)
        self.defense = SnowballPlus() if defense is None else defense
        refuse_unusable_defense(self.defense)
        self.mode, self.min_elected, self.max_examples, self.rounds = mode, min_elected, max_examples, rounds
        self.min_answers, self.low_turnout, self.on_other_state = min_answers, low_turnout, on_other_state
        self.max_share = max_share
        self.log = open_audit(audit, audit_key) if audit is not None else None
        self.names = WatchedFile(Path(names), parse_names) if names is not None else None
        self.decisions = WatchedFile(Path(decisions), parse_decisions) if decisions is not None else None
        self.models = ModelHistory(Path(models) if models is not None else None, keep_models)
        self.buffers = frozenset(buffers)
        self.seed = secrets.randbits(63) if seed is None else seed
        self.round = 0
        self.state: Mapping[str, Any] | None = None
        self.layout: Layout | None = None
        self._loaded = False
        self.known_names: Names = {}
        self.alerts = Alerts(build_listeners(listeners), patience)

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
        started = perf_counter()
        base, invited, (answers, unreadable) = read_model(model), list_asked(asked), list_replies(replies)
        layout = Layout.from_tensors(select_parameters(base, self.buffers))
        self._adopt_layout(layout)
        self.round += 1
        admitted = admit_clients(
            answers,
            invited,
            [*list_failures(failed), *unreadable],
            self._read_names(),
            self.decisions.read() if self.decisions else (),
        )
        unjudged = [name for name in base if name not in layout.columns and base[name].is_floating_point()]
        valid, invalid = validate_replies(admitted.replies, base, admitted.asked, self.max_examples, unjudged)
        valid, seatless = drop_seatless(valid, base, layout.names, self._draw_lot)
        entry = self._open_entry(base, admitted, [reply.client for reply in valid], [*invalid, *seatless])
        judgement = self._judge_or_keep(base, layout, valid, admitted, entry)
        entry["seconds"] = round(perf_counter() - started, 3)
        averaged = tuple(admitted.ids[client] for client in judgement.averaged)
        examples = {admitted.ids[client]: count for client, count in judgement.examples.items()}
        return replace(judgement, averaged=averaged, examples=examples)

    def record(self, judgement: Judgement, after: Arrays) -> RecordedRound:
        """Write the round's line with the hash of the new global model, and tell the listeners about the round."""
        tensors = {name: convert_to_tensor(tensor, name) for name, tensor in after.items()}
        entry: RecordedRound = {**judgement.entry, "model_after": hash_model(tensors)}
        self._save(entry, "the global model", partial(self.models.add, entry["round"], entry["model_after"], tensors))
        if self.log is not None:
            self._save(entry, "its line of the audit", partial(self.log.append, entry))
        self.alerts.report_round(entry)
        return entry

    def state_dict(self) -> dict[str, Any]:
        """Return the guard's state as nested dicts and lists of tensors, numbers and strings."""
        return self._collect_state().plain()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another guard; see `on_other_state`."""
        self._take_state(parse_state(state))

    def save(self, path: str | Path) -> None:
        """Write the state to a file, whole or not at all; the state before stays beside it, as `FILE.before`."""
        write_state(path, self._collect_state())

    def load(self, path: str | Path) -> bool:
        """Continue from the state in a file; return False if there is no such file. See `on_other_state`.

        If the file is damaged, the state before it takes its place, with a warning.
        """
        with explain_os_errors(Path(path)):
            if not Path(path).exists():
                return False
        remove_leftovers(Path(path).parent)
        state = read_state(path, restore=True)
        try:
            self._take_state(state)
        except RunError as error:
            raise RunError(f"{path} cannot be used: {error}") from error
        return True

    def _save(self, entry: JudgedRound, content: str, write: Callable[[], None]) -> None:
        """Write a file of a round; one that cannot be written is an alert."""
        try:
            write()
        except Exception as error:  # the federation matters more than its files
            self.alerts.report_unsaved(entry, content, error)

    def _collect_state(self) -> GuardState:
        return GuardState(
            self.round,
            self.seed,
            self.state,
            name_defense(self.defense),
            encode_settings(self.defense),
            version("snowball-fl"),
            self.models.hashes,
            self.known_names,
            self.alerts.streaks,
            self.layout,
            self.log.last if self.log else None,
        )

    def _take_state(self, state: GuardState) -> None:
        fitting = fit_state(state, self.defense, self.on_other_state)
        if fitting is not state:
            logger.warning("%s starts with an empty memory after round %d", name_defense(self.defense), state.round)
        self.round, self.seed, self.state = fitting.round, fitting.seed, fitting.defense
        self.models.hashes, self.known_names, self.alerts.streaks = fitting.models, fitting.names, fitting.streaks
        self.layout, self._loaded = fitting.layout, True
        if self.log is not None:
            self.log.last, self.log.resumed = fitting.audit, True

    def _adopt_layout(self, layout: Layout) -> None:
        """Remember the model's layout; in the first round after loading, refuse or empty a state of another model."""
        if self._loaded and layout != self.layout:
            fitting = fit_state(self._collect_state(), self.defense, self.on_other_state, layout)
            self.state = fitting.defense
        self.layout, self._loaded = layout, False

    def _read_names(self) -> Names:
        """Return the operator's names; a site that gets a new one takes its history along."""
        if self.names is None:
            return {}
        before, self.known_names = self.known_names, self.names.read()
        renames = find_renames(before, self.known_names)
        self.state = rename_clients(self.state, renames)
        self.alerts.streaks = rename_streaks(self.alerts.streaks, renames)
        return self.known_names

    def _draw_lot(self, client: str) -> int:
        """Return the lot of a client in this round, as the defense's context draws it."""
        return derive(self.seed, "lot", "round", self.round, client)

    def _open_entry(
        self, base: Tensors, admitted: Admitted, valid: Sequence[str], invalid: Sequence[Dropped]
    ) -> JudgedRound:
        """Return the round's line of the audit as far as it is known before the defense judges."""
        dropped = [*admitted.dropped, *invalid]
        answered = {*valid, *(fault.client for fault in dropped if fault.reason != "error")}
        return {
            "round": self.round,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": version("snowball-fl"),
            "defense": find_defense_name(self.defense),
            "settings": describe_settings(self.defense),
            "mode": self.mode,
            "outcome": "kept",  # until there is a new model
            "asked": admitted.asked,
            "answered": sorted(answered),
            "silent": sorted(set(admitted.asked or ()) - answered - {fault.client for fault in dropped}),
            "dropped": [fault.plain() for fault in dropped],
            "reason": None,
            "elected": [],
            "left_out": [],
            "suspects": [],
            "clarity": None,
            "averaged": [],
            "shares": {},
            "decisions": [admitted.decisions[client] for client in sorted(admitted.decisions)],
            "ids": {name: client for name, client in sorted(admitted.ids.items()) if name != client},
            "facts": {},
            "seconds": None,
            "model_before": hash_model(base),
        }

    def _judge_or_keep(
        self, base: Tensors, layout: Layout, valid: Sequence[ValidReply], admitted: Admitted, entry: JudgedRound
    ) -> Judgement:
        """Judge the valid replies, or keep the old global model whatever goes wrong."""
        try:
            if not valid:
                raise UpdateError(explain_no_reply(entry))
            self._check_turnout(len(valid), admitted, entry)
            return self._judge_valid(base, layout, valid, admitted.decisions, entry)
        except Exception as error:  # fail closed: whatever a defense raises, the federation goes on
            entry |= {"outcome": "kept", "reason": explain_failure(error), "shares": {}}
        return Judgement({name: tensor.clone() for name, tensor in base.items()}, (), entry)

    def _check_turnout(self, valid: int, admitted: Admitted, entry: JudgedRound) -> None:
        """Refuse a round with too few valid replies; where it is aggregated all the same, say so."""
        fault = explain_low_turnout(valid, admitted.expected, self.min_answers, self.defense)
        if fault is None:
            return
        if self.mode == "enforce" and self.low_turnout == "keep":
            raise UpdateError(f"{fault}; low_turnout='aggregate' would average them")
        setting = "mode='monitor'" if self.mode == "monitor" else "low_turnout='aggregate'"
        entry["reason"] = f"{fault}; they are averaged all the same, because of {setting}"

    def _judge_valid(
        self,
        base: Tensors,
        layout: Layout,
        valid: Sequence[ValidReply],
        decisions: Mapping[str, Decision],
        entry: JudgedRound,
    ) -> Judgement:
        """Let the defense judge, and return the new model."""
        received = convert_replies(base, layout, valid, self.max_share)
        rounds = self.rounds and max(self.rounds, self.round)  # a federation may run longer than announced
        make_base = partial(layout.to_row, {name: base[name] for name in layout.names})
        context = Context(round=self.round, rounds=rounds, base=make_base, seed=self.seed, state=self.state)
        decide = partial(self._decide, entry, decisions)
        overwrite = has_fresh_deltas(self.defense)
        outcome = judge_round(received, decide, context, select_buffers(base, layout), overwrite)
        entry["dropped"] += [fault.plain() for fault in outcome.dropped]
        if outcome.kept is not None:
            raise UpdateError(outcome.kept)
        tensors = layout.rebuild_model(base, outcome.base, outcome.buffers)
        self.state = outcome.state
        entry |= {"outcome": "aggregated", "averaged": select_clients(outcome.updates.clients, outcome.elected)}
        return Judgement(tensors, tuple(entry["averaged"]), entry, share_examples(outcome.updates, outcome.elected))

    def _decide(
        self, entry: JudgedRound, decisions: Mapping[str, Decision], updates: Updates, context: Context
    ) -> Verdict:
        """Return the defense's verdict, or everybody's average in monitor mode, with the decisions of people."""
        verdict = self._ask_defense(entry, updates, context)
        if self.mode == "monitor":
            verdict = average_everybody(verdict, updates, decisions)
        else:
            verdict = apply_decisions(verdict, updates, context, self.defense, decisions)
        entry["shares"] = read_shares(verdict, updates.clients)
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
            fault = f"the defense could not judge: {explain_failure(error)}"
            entry["reason"] = "; ".join(filter(None, (entry["reason"], fault)))
            return Verdict(torch.zeros(updates.layout.width), elect_everyone(updates), {}, context.state)
        return verdict
