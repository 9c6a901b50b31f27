"""Applies the decisions of people to a defense's verdict.

A site on probation is judged with all others, so that there is evidence about it. If the defense elects it, the defense
judges once more without it, and that aggregate counts: this also works for medians, which elect everybody. Those whom
the first verdict accuses stay out. Evidence and memory are those of the first verdict.

A site that is allowed joins the aggregate although it was not elected, with a weight by examples, and no longer than
the median update of the elected.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from snowball.defenses import Context, Defense, Verdict
from snowball.defenses.ops import compute_clip_factors
from snowball.errors import UpdateError
from snowball.records.audit import Decision, Rule
from snowball.server import ask_defense
from snowball.updates import Updates


def apply_decisions(
    verdict: Verdict, updates: Updates, context: Context, defense: Defense, decisions: Mapping[str, Decision]
) -> Verdict:
    """Return the verdict with the aggregate that the decisions of people lead to."""
    withheld = find_ruled(updates, decisions, "probation")
    if (verdict.elected & withheld).any():
        verdict = withhold_rows(verdict, updates, context, defense, withheld)
    added = find_ruled(updates, decisions, "allow") & ~verdict.elected
    return add_rows(verdict, updates, added) if added.any() else verdict


def average_everybody(verdict: Verdict, updates: Updates, decisions: Mapping[str, Decision]) -> Verdict:
    """Return the verdict with everybody's average by examples, without those on probation."""
    everybody = ~find_ruled(updates, decisions, "probation")
    if not everybody.any():
        raise UpdateError("nobody but sites on probation could be averaged")
    shares = updates.normalise(updates.examples * everybody)
    return replace_average(verdict, updates.combine(shares), everybody, shares)


def find_ruled(updates: Updates, decisions: Mapping[str, Decision], rule: Rule) -> Tensor:
    """Return an (n,) bool mask of the clients that a rule is about."""
    return torch.tensor([client in decisions and decisions[client]["rule"] == rule for client in updates.clients])


def withhold_rows(verdict: Verdict, updates: Updates, context: Context, defense: Defense, withheld: Tensor) -> Verdict:
    """Return a verdict whose aggregate the defense makes without some rows, and without those that it accused."""
    left = ~withheld if verdict.suspects is None else ~(withheld | verdict.suspects)
    if not left.any():
        raise UpdateError("nobody but sites on probation could be averaged")
    again = ask_defense(defense, updates.select(left), context)
    elected = torch.zeros_like(verdict.elected)
    elected[left] = again.elected
    return replace_average(verdict, again.delta, elected, spread_shares(again, left))


def spread_shares(verdict: Verdict, rows: Tensor) -> Tensor | None:
    """Return the (n,) shares of a verdict about some of the rows; None if it has none."""
    found = verdict.facts.get("shares")
    if not isinstance(found, Tensor) or found.shape != verdict.elected.shape:
        return None
    shares = torch.zeros(len(rows), dtype=found.dtype)
    shares[rows] = found
    return shares


def replace_average(verdict: Verdict, delta: Tensor, elected: Tensor, shares: Tensor | None) -> Verdict:
    """Return a verdict with another aggregate of other rows, and with their shares if they are known."""
    others = {name: fact for name, fact in verdict.facts.items() if name != "shares"}
    facts = others if shares is None else {**others, "shares": shares}
    return replace(verdict, delta=delta, elected=elected, facts=facts)


def add_rows(verdict: Verdict, updates: Updates, added: Tensor) -> Verdict:
    """Return a verdict with further rows in its aggregate, weighted by examples like the elected."""
    joined = verdict.elected | added
    lengths = updates.squared_norms.sqrt()
    bound = float(lengths[verdict.elected if verdict.elected.any() else added].quantile(0.5))
    weights = updates.normalise(updates.examples * joined) * added
    rest = 1 - float(weights.sum())
    delta = rest * verdict.delta + updates.combine(weights * compute_clip_factors(lengths, bound))
    shares = spread_shares(verdict, torch.ones_like(added))
    return replace_average(verdict, delta, joined, None if shares is None else rest * shares + weights)
