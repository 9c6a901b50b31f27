"""Lets the attackers of a round adapt their memory before the clients train."""

from collections.abc import Sequence

from torch import Tensor

from snowball.attacks import AdaptationView, AdaptingAttack, AttackSetup, Memory
from snowball.buffers import Buffers
from snowball.models import draw_from
from snowball.records.checkpoint import RunState
from snowball.rng import stream
from snowball.sim.federation import Federation
from snowball.sim.training.client import StandardisingModel


class Adaptation:
    """Renews the memory of an attack that adapts; leaves that of others unchanged.

    Attributes:
        attack: the attack; None if it does not adapt.
    """

    def __init__(self, federation: Federation, device: str = "cpu") -> None:
        self.federation, self.device = federation, device
        self.attack = federation.attack if isinstance(federation.attack, AdaptingAttack) else None

    def __call__(self, state: RunState, cohort: Sequence[int], round: int) -> Memory | None:
        """Return the memory of the attack in a round; that of the state if nobody in the cohort attacks."""
        memory: Memory | None = state.attack
        clients = [client for client in cohort if self.federation.is_attacking(client, round)]
        if self.attack is None or not clients or not (setup := self.federation.recall_setup(memory)):
            return memory
        view, seed = self.build_view(setup, state.base, state.buffers, clients, round), self.federation.experiment.seed
        with draw_from(stream(seed, "adapt", "round", round, "dropout"), self.device):
            return self.attack.adapt(view, stream(seed, "adapt", "round", round))

    def build_view(
        self, setup: AttackSetup, base: Tensor, buffers: Buffers, clients: Sequence[int], round: int
    ) -> AdaptationView:
        """Build the view of the attackers of a round, with a model of their own."""
        federation = self.federation
        model = StandardisingModel(federation.dataset, federation.build_model()).to(self.device)
        model.load(federation.layout, base, buffers)
        return AdaptationView(
            setup=setup,
            model=model.eval(),
            base=base.clone(),
            layout=federation.layout,
            round=round,
            clients=tuple(clients),
            samples=tuple(federation.select_samples(client) for client in clients),
            device=self.device,
        )
