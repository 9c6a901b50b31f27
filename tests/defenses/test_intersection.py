from dataclasses import dataclass

import pytest
import torch

from snowball.defenses import CRFL, Context, DnC, FedAvg, FLTrust, Ideal, Intersection, Krum, Snowball, Verdict
from snowball.defenses.ops import elect_everyone
from snowball.errors import SettingError
from snowball.sim.experiment import Experiment
from snowball.sim.presets import load_experiment
from snowball.testing import check_defense, make_toy_round, run_two_rounds
from snowball.updates import Updates


@dataclass(frozen=True)
class Counting:
    """Elects as many clients, by name, as it has seen rounds."""

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        rounds = (context.state or {"rounds": 0})["rounds"] + 1
        elected = torch.tensor([client < f"c{rounds:02}" for client in updates.clients])
        return Verdict(torch.zeros(updates.layout.width), elected, {"rounds": rounds}, {"rounds": rounds})


def test_what_all_elect_is_averaged() -> None:
    updates = make_toy_round()
    verdict = Intersection((Ideal({"c00", "c01"}), Ideal({"c01", "c02"})))(updates, Context(round=1))
    elected = torch.tensor([client not in {"c00", "c01", "c02"} for client in updates.clients])
    assert torch.equal(verdict.elected, elected)
    assert verdict.facts["agreed"] == 17
    torch.testing.assert_close(verdict.delta, updates.mean(updates.examples * elected))


def test_where_they_agree_on_nobody_the_first_decides() -> None:
    updates = make_toy_round(4, 0)
    members = (Ideal({"c00", "c01"}), Ideal({"c02", "c03"}))
    verdict = Intersection(members)(updates, Context(round=1))
    assert verdict.elected.tolist() == [False, False, True, True]
    assert verdict.facts["agreed"] == 0


def test_every_member_has_its_own_state_and_facts() -> None:
    first, second = run_two_rounds(Intersection((Counting(), FedAvg(), Counting())), make_toy_round())
    assert (int(first.elected.sum()), int(second.elected.sum())) == (1, 2)
    assert second.facts["rounds.1"] == second.facts["rounds.3"] == 2
    assert torch.equal(second.facts["elected.2"], elect_everyone(make_toy_round()))


@pytest.mark.parametrize("members", [(Snowball(), Krum()), (Snowball(), DnC(), FedAvg())])
def test_intersections_pass_every_check(members: tuple[object, ...]) -> None:
    check_defense(Intersection(members), examples=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ((Snowball(),), "at least 2 members, got 1"),
        ((Snowball(), CRFL()), "CRFL trains or predicts beside electing"),
        ((FLTrust(), Snowball()), "FLTrust trains or predicts beside electing"),
    ],
)
def test_members_that_do_not_fit_are_refused(members: tuple[object, ...], fault: str) -> None:
    with pytest.raises(SettingError, match=fault):
        Intersection(members)  # type: ignore[arg-type]


def chosen(members: str) -> Experiment:
    return load_experiment("demo", ["defense.name=intersection", f"defense.members={members}"])


def test_members_are_settings_by_name_or_by_section() -> None:
    experiment = chosen('["snowball-minus", {name = "krum", tolerate = 4}, "ideal"]')
    defense = experiment.defense.build({"7"})
    assert isinstance(defense, Intersection)
    assert [type(member).__name__ for member in defense.members] == ["SnowballMinus", "Krum", "Ideal"]
    assert defense.members[1] == Krum(tolerate=4)
    assert defense.members[2] == Ideal({"7"})
    assert Experiment.parse(experiment.dump_settings()) == experiment


def test_without_members_it_is_the_default_pair() -> None:
    experiment = load_experiment("demo", ["defense.name=intersection"])
    assert experiment.defense.build() == Intersection()
    assert Experiment.parse(experiment.dump_settings()) == experiment


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ('["snowbal", "krum"]', "defense.members = 'snowbal' is not known; did you mean 'snowball'?"),
        ('[{name = "krum", tolerat = 3}, "dnc"]', "defense.members.tolerat is not a setting of krum; did you mean"),
        ("[3]", "defense.members must be a list of names, or of sections with a name, got 3"),
        ('"krum"', "an intersection needs at least 2 members, got 1"),
        ('[{tolerate = 3}, "krum"]', "defense.members must be a list of names, or of sections with a name"),
    ],
)
def test_faults_in_members_are_said_in_one_sentence(members: str, fault: str) -> None:
    with pytest.raises(SettingError) as caught:
        chosen(members)
    assert fault in str(caught.value)
