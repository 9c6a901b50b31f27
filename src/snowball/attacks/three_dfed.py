"""3DFed: backdoored updates that look honest, hide behind noise, and learn from the server which of them passed.

Li, Ye, Hu, Li, Wang, Fu, Shi: 3DFed: Adaptive and Extensible Framework for Covert Backdoor Attack in Federated
Learning, S&P 2023.

The attackers train near the global model and make their updates as long as honest ones. In groups, they add noise to
the output neurons of other classes, which cancels out in the group's mean. Each plants an indicator, a large value in a
weight that hardly matters. The next global model shows which updates were accepted, clipped or rejected. The weight of
hiding, against a short update, is then drawn again near that of the accepted groups. If all were rejected, an attacker
becomes a decoy: an honest model with one conspicuous weight, for a defense to find instead of the others.

Deviations: who attacks differs from round to round, so groups are formed again each time. Each attacker trains a model
of its own; the published code adds noise to copies of one. The noise is drawn, and only its size is optimised; it
cancels out exactly. Indicators are as large as `planted` says, and feedback is relative to the share of an update in a
plain average; the published code multiplies by 100,000 and has an absolute threshold. Idle weights are those of least
curvature and, among these, of least change; there, in the other order. A noisy server is looked for again in every
round. Decoys are attackers, not further clients, so at most half of them; their weight is moved, not trained.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from snowball.attacks.base import AttackerView, AttackSetup, Knowledge, LocalSession, Memory
from snowball.attacks.cba import CBA
from snowball.attacks.indicators import (
    choose_idle_columns,
    classify_feedback,
    count_decoys,
    count_entries,
    draw_weights,
    find_accepted_groups,
    find_indicator_layer,
    is_noisy,
    measure_curvature,
    measure_feedback,
)
from snowball.attacks.memory import AdaptationView
from snowball.attacks.noise_masks import choose_neurons, choose_scale, draw_masks
from snowball.attacks.poisoning import check_count, check_not_negative, check_positive, check_share
from snowball.errors import RunError, SettingError
from snowball.layout import Layout

DECOY = -1
"""The group of a decoy."""


@dataclass(frozen=True)
class ThreeDFed(CBA):
    """All malicious clients hide a backdoor behind noise that cancels out, and adapt to what the server accepts.

    Attributes:
        constrain: weight of staying near the global model, relative to the loss.
        longest: largest factor by which an update that is too short is made as long as an honest one.
        group: attackers whose noise cancels out.
        neurons: output neurons of other classes with noise, at most.
        least_weight: least weight of hiding against the length of the noise that is drawn (the paper's alpha).
        planted: size of an indicator, as a multiple of the updates' median length.
        candidates: idle weights per attacker among which the least changed one carries the indicator.
        samples: samples of all attackers together on which curvature is measured.
        decoy_shift: change of a decoy's conspicuous weight, as a multiple of the honest update's length.
    """

    knowledge: ClassVar[Knowledge] = "colluders"
    constrain: float = 0.4
    longest: float = 5.0
    group: int = 2
    neurons: int = 8
    least_weight: float = 0.0
    planted: float = 0.3
    candidates: int = 10
    samples: int = 200
    decoy_shift: float = 10.0

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        for name in ("group", "neurons", "candidates", "samples"):
            check_count(name, getattr(self, name))
        for name in ("longest", "planted"):
            check_positive(name, getattr(self, name))
        check_not_negative("decoy_shift", self.decoy_shift)
        check_share("least_weight", self.least_weight)
        if not 0 <= self.constrain < 1:
            raise SettingError(f"constrain must lie in [0, 1), got {self.constrain}")

    def adapt(self, view: AdaptationView, rng: torch.Generator) -> Memory:
        """Read the indicators of the last attack, and decide this round's roles, weights and idle weights."""
        hiding, decoys = self._read_feedback(view, rng)
        shuffled = torch.randperm(len(view.clients), generator=rng).tolist()
        groups = {str(view.clients[slot]): DECOY for slot in shuffled[:decoys]}
        rest = shuffled[decoys:]
        for place, slot in enumerate(rest):
            groups[str(view.clients[slot])] = place * len(hiding) // len(rest)
        return {"groups": groups, "hiding": hiding, "decoys": decoys, "columns": self._find_idle(view, rng)}

    def _read_feedback(self, view: AdaptationView, rng: torch.Generator) -> tuple[list[float], int]:
        """Return the weight of hiding in each of this round's groups, and the number of decoys."""
        attackers, planted = len(view.clients), (view.setup.memory or {}).get("planted")
        accepted, all_accepted, decoys = [], False, 0
        if planted is not None:
            after = view.base[planted["columns"]]
            feedback = measure_feedback(planted["before"], after, planted["values"], planted["shares"])
            if is_noisy(feedback, planted["shares"]):
                return [max(self.least_weight, 0.01)] * count_groups(attackers, self.group), 0
            results, groups = classify_feedback(feedback), planted["groups"]
            passed = find_accepted_groups(results, groups)
            accepted = [planted["hiding"][number] for number in passed]
            all_accepted = len(passed) == len({number for number in groups.tolist() if number != DECOY})
            decoys = min(count_decoys(planted["decoys"], results, groups == DECOY), attackers // 2)
        number = count_groups(attackers - decoys, self.group)
        return draw_weights(accepted, all_accepted, number, self.least_weight, rng), decoys

    def _find_idle(self, view: AdaptationView, rng: torch.Generator) -> Tensor:
        """Return the columns of the weights with the least curvature, on clean and on stamped samples."""
        pooled, name = view.pool_samples(), find_indicator_layer(view.layout)
        chosen = torch.randperm(len(pooled), generator=rng)[: self.samples]
        raw, labels = pooled.inputs[chosen], pooled.labels[chosen].to(view.device)
        weight = dict(zip(view.layout.names, view.model.parameters(), strict=True))[name]
        curvature = torch.zeros(count_entries(view.layout, name), device=view.device)
        for inputs, wanted in ((raw, labels), (view.setup.trigger.stamp(raw), torch.full_like(labels, self.target))):
            if len(chosen):
                scaled = view.setup.dataset.scale(inputs.to(view.device))
                curvature += measure_curvature(view.model, weight, scaled, wanted)
        ranked = curvature.abs().cpu().argsort(stable=True)[: self.candidates * len(view.clients)]
        columns: Tensor = ranked + view.layout.columns[name].start
        return columns

    def train(self, session: LocalSession) -> Tensor:
        """Return the backdoored model near the global one, as far from it as an honest one; a decoy is honest."""

        def pull_back(weights: Tensor, gradient: Tensor) -> None:
            away = weights - session.start
            length = torch.linalg.vector_norm(away).clamp(min=1e-12)
            gradient.mul_(1 - self.constrain).add_(away / length, alpha=self.constrain)

        honest = session.train(clean=True) - session.start
        backdoored = session.train(before=pull_back) - session.start
        groups: Mapping[str, int] = (session.memory or {}).get("groups", {})
        length = torch.linalg.vector_norm(honest)
        if groups.get(str(session.client)) == DECOY:
            return session.start.add(shift_idle_weight(honest, backdoored, self.decoy_shift * length, session.layout))
        factor = length / torch.linalg.vector_norm(backdoored).clamp(min=1e-12)
        return session.start.add(factor.clamp(1, self.longest) * backdoored)

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        """Return the updates with the groups' noise and with indicators; unchanged without a memory of the round."""
        rows = view.rows.clone()
        if view.memory is None:
            return rows
        groups = self._find_groups(view)
        for number, weight in enumerate(view.memory["hiding"]):
            members = (groups == number).nonzero()[:, 0]
            if len(members) > 1:
                self._add_noise(rows, members, weight, view.layout, rng)
        columns = choose_idle_columns(view.rows, view.memory["columns"])
        rows[torch.arange(len(columns)), columns] = self.planted * torch.linalg.vector_norm(view.rows, dim=1).median()
        return rows

    def _find_groups(self, view: AttackerView) -> Tensor:
        """Return the group of each row, (m,); `DECOY` for decoys and for whoever has none."""
        groups: Mapping[str, int] = (view.memory or {})["groups"]
        return torch.tensor([groups.get(str(client), DECOY) for client in view.clients])

    def _add_noise(self, rows: Tensor, members: Tensor, weight: float, layout: Layout, rng: torch.Generator) -> None:
        """Add noise that cancels out to the output neurons of some other classes, in place."""
        name = layout.weights[-1]
        shape, columns = layout.shapes[layout.names.index(name)], layout.columns[name]
        neurons = choose_neurons(shape[0], self.target, self.neurons, rng)
        if not len(neurons):
            return
        outputs = rows[members, columns].view(len(members), shape[0], -1)
        masks = draw_masks(len(members), len(neurons), outputs.shape[2], rng)
        outputs[:, neurons] += (choose_scale(outputs[:, neurons], masks, weight) * masks).to(rows.dtype)
        rows[members, columns] = outputs.view(len(members), -1)

    def remember(self, view: AttackerView, sent: Tensor) -> Memory:
        """Return the memory with the indicators that were sent, for the next attack to read."""
        if view.memory is None:
            return {}
        columns = choose_idle_columns(view.rows, view.memory["columns"])
        slots = torch.arange(len(columns))
        planted = {
            "columns": columns,
            "values": sent[slots, columns],
            "before": view.base[columns],
            "shares": view.examples[slots] / view.total_examples,
            "groups": self._find_groups(view)[slots],
            "hiding": view.memory["hiding"],
            "decoys": view.memory["decoys"],
        }
        return {**view.memory, "planted": planted}

    def check_memory(self, memory: Memory, setup: AttackSetup, layout: Layout) -> None:
        """Refuse a memory without the roles of a round, or with indicators that do not fit together."""
        planted: Any = memory.get("planted")
        if not isinstance(memory.get("groups"), Mapping) or not isinstance(memory.get("hiding"), list):
            raise describe_damage("it does not hold the groups of a round")
        columns: Any = [memory.get("columns"), *([planted.get("columns")] if isinstance(planted, Mapping) else [])]
        if not all(are_columns(part, layout.width) for part in columns):
            raise describe_damage(f"its columns are not among {layout.width}")
        if planted is not None and not is_planted(planted):
            raise describe_damage("its indicators do not fit together")


def count_groups(attackers: int, size: int) -> int:
    """Return the number of groups of at least `size` attackers; one if there are fewer."""
    return max(1, attackers // size)


def shift_idle_weight(honest: Tensor, backdoored: Tensor, shift: Tensor, layout: Layout) -> Tensor:
    """Return the honest update with one weight of the output layer changed: the one where both updates agree most."""
    columns = layout.columns[layout.weights[-1]]
    place = int((backdoored - honest)[columns].abs().argmin()) + columns.start
    decoy = honest.clone()
    decoy[place] += shift
    return decoy


def are_columns(value: Any, width: int) -> bool:
    """Return whether a value holds numbers of columns."""
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.ndim != 1:
        return False
    return bool(((value >= 0) & (value < width)).all())


def is_planted(planted: Any) -> bool:
    """Return whether a value holds indicators: as many finite numbers of each kind."""
    if not isinstance(planted, Mapping) or not isinstance(planted.get("hiding"), list):
        return False
    count = len(planted["columns"])
    parts: list[Any] = [planted.get(name) for name in ("values", "before", "shares", "groups")]
    fitting = all(isinstance(part, Tensor) and part.shape == (count,) and part.isfinite().all() for part in parts)
    return fitting and type(planted.get("decoys")) is int and max(parts[3].tolist(), default=0) < len(planted["hiding"])


def describe_damage(fault: str) -> RunError:
    """Return the error for a memory that no round can have left."""
    return RunError(f"the attack's memory is damaged or of another federation: {fault}; start again without it")
