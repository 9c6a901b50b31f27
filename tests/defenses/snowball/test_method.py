from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from snowball.defenses import Context, Snowball, SnowballMinus, VAESettings
from snowball.defenses.snowball.judges import JUDGES
from snowball.errors import RunError, SettingError
from snowball.records.rounds import CODES
from snowball.testing import make_toy_round
from snowball.updates import Updates


def infected_seats(verdict: Any, infected: int) -> int:
    """How many of the last rows, which are infected, were elected."""
    return int(verdict.elected[-infected:].sum())


def far_attackers(seed: int, distance: float = 3.0) -> Updates:
    """Forty honest rows of plain noise, and ten that lie `distance` deviations away in every column."""
    rows = torch.randn(50, 40, generator=torch.Generator().manual_seed(seed))
    rows[40:] += distance
    return Updates.from_layers({"w": rows[:, None]})


def groups(centres: int, rows: int = 60, width: int = 30) -> Updates:
    """Rows in well-parted groups of equal size."""
    rng = torch.Generator().manual_seed(3)
    middle = torch.randn(centres, width, generator=rng) * 10
    return Updates.from_layers(
        {"w": middle[torch.arange(rows) % centres][:, None] + torch.randn(rows, 1, width, generator=rng)}
    )


def test_three_lines_elect_the_honest_and_say_why() -> None:
    updates = make_toy_round(clients=40, infected=8, distance=12.0)
    verdict = Snowball(grow_after=0)(updates, Context(round=1))
    assert verdict.elected.sum() == 20
    assert infected_seats(verdict, 8) == 0
    facts = verdict.facts
    for name in (
        "votes",
        "votes.first.weight",
        "clarity.last.weight",
        "weight.last.weight",
        "order",
        "score",
        "margin",
    ):
        assert isinstance(facts[name], Tensor)
        assert facts[name].shape == (40,)
    assert {"clusters", "seconds.bottom_up", "seconds.top_down"} <= facts.keys()
    assert torch.equal(facts["order"] >= 0, verdict.elected)
    seated = facts["order"] == 0
    assert torch.equal(facts["score"][seated], facts["votes"][seated])
    assert (facts["margin"][verdict.elected] >= 0).all()


@pytest.mark.parametrize(("judge", "clients", "told"), [("vae", 12, True), ("distance", 12, False), ("vae", 4, False)])
def test_a_vae_that_has_learned_says_where_it_sees_each_update(judge: Any, clients: int, told: bool) -> None:
    updates = make_toy_round(clients=clients, infected=0)
    quick = VAESettings(first_epochs=2, tune_epochs=1, hidden=8, latent=4, samples=2)
    settings = Snowball(grow_after=0, first_share=0.25, judge=judge, clusters=3, vae=quick)
    facts = settings(updates, Context(round=1)).facts
    assert [name in facts for name in CODES] == [told, told]
    if told:
        order = torch.arange(clients).flip(0)
        names = tuple(updates.clients[row] for row in order)
        moved = settings(
            Updates(updates.values[order], updates.examples[order], names, updates.layout), Context(round=1)
        )
        for name in CODES:
            torch.testing.assert_close(moved.facts[name], facts[name])


def test_the_judge_computes_on_the_device_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def appoint(*given: Any) -> Any:
        asked.append(given[-1])
        return JUDGES["distance"](*given)

    monkeypatch.setattr("snowball.defenses.snowball.method.JUDGES", {"vae": appoint})
    Snowball(grow_after=0, judge="vae")(make_toy_round(), Context(round=1, device="cuda"))
    Snowball(grow_after=0, judge="vae")(make_toy_round(), Context(round=1))
    assert asked == ["cuda", "cpu"]


@pytest.mark.parametrize("seed", range(3))
def test_far_attackers_take_every_seat_of_the_paper_and_none_with_a_floor(seed: int) -> None:
    paper = SnowballMinus(clusters=11, ballot_floor=0.0)(far_attackers(seed), Context(round=1))
    assert paper.facts["weight.w"][:40].max() < 1e-12  # every honest ballot ties at the lowest clarity
    assert infected_seats(paper, 10) == 5
    guarded = SnowballMinus(clusters=11)(far_attackers(seed), Context(round=1))
    assert infected_seats(guarded, 10) == 0


@pytest.mark.parametrize("judge", ["distance", "vae-span"])
@pytest.mark.parametrize("far", [1.0, 1e10, 1e18, 1e36])
def test_one_huge_update_does_not_blind_the_election(far: float, judge: Any) -> None:
    rows = torch.randn(50, 200, generator=torch.Generator().manual_seed(0)) * 1e-2
    rows[40:, :20] += 0.03
    rows[49] *= far
    quick = VAESettings(first_epochs=30, tune_epochs=3)
    updates = Updates.from_layers({"w": rows[:, None]}, examples=[1.0] * 40 + [100.0] * 10)
    verdict = Snowball(clusters=8, grow_after=0, judge=judge, vae=quick)(updates, Context(round=1))
    assert verdict.elected.sum() == 25
    assert infected_seats(verdict, 10) == 0


@pytest.mark.parametrize(
    ("rows", "elected", "grown"), [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 1, 2), (7, 1, 3), (10, 1, 5)]
)
def test_small_cohorts_are_defined(rows: int, elected: int, grown: int) -> None:
    updates = make_toy_round(clients=rows, infected=0)
    assert Snowball()(updates, Context(round=1, rounds=100)).elected.sum() == elected
    assert Snowball()(updates, Context(round=99, rounds=100)).elected.sum() == grown


@pytest.mark.parametrize(
    ("settings", "context", "grows"),
    [
        ({}, Context(round=25, rounds=100), False),
        ({}, Context(round=26, rounds=100), True),
        ({}, Context(round=25), False),  # of unknown rounds a quarter is 25
        ({}, Context(round=26), True),
        ({"grow_after": 3}, Context(round=3, rounds=100), False),
        ({"grow_after": 3}, Context(round=4, rounds=100), True),
        ({"grow_after": 0}, Context(round=1, rounds=100), True),
        ({"grow_after": 1.0}, Context(round=100, rounds=100), False),
    ],
)
def test_growth_starts_after_its_round(settings: dict[str, Any], context: Context, grows: bool) -> None:
    verdict = Snowball(**settings)(make_toy_round(), context)
    assert verdict.elected.sum() == (10 if grows else 2)


def test_shares_of_a_cohort_are_the_papers_numbers() -> None:
    verdict = Snowball(grow_after=0)(make_toy_round(clients=50, infected=0), Context(round=1))
    order = verdict.facts["order"]
    assert isinstance(order, Tensor)
    assert [int((order == turn).sum()) for turn in range(12)] == [5, *[2] * 10, 0]


def test_the_number_of_clusters_is_found_once_and_kept() -> None:
    first = SnowballMinus()(groups(5), Context(round=1))
    assert first.state == {"clusters": 5}
    later = SnowballMinus()(groups(9), Context(round=2, state=first.state))
    assert later.facts["clusters"] == 5
    assert later.state == first.state


def test_a_small_round_does_not_change_what_is_kept() -> None:
    verdict = SnowballMinus()(make_toy_round(clients=8), Context(round=2, state={"clusters": 11}))
    assert verdict.facts["clusters"] == 4
    assert verdict.state == {"clusters": 11}
    assert SnowballMinus()(make_toy_round(clients=2), Context(round=3, state={"clusters": 11})).state == {
        "clusters": 11
    }


def families(*centres: tuple[float, float]) -> Updates:
    """Rows in families of four groups each: the gap peaks at the number of families, and higher at that of groups."""
    corners = torch.cartesian_prod(torch.tensor([-1.0, 1.0]), torch.tensor([-1.0, 1.0]))
    groups = torch.stack([torch.tensor(centre) + corners for centre in centres]).flatten(0, 1)
    noise = 0.05 * torch.randn(96, 2, generator=torch.Generator().manual_seed(5))
    return Updates.from_layers({"w": (groups[torch.arange(96) % len(groups)] + noise)[:, None]})


TWO, THREE = families((0, 0), (10, 0)), families((0, 0), (10, 0), (0, 10))


def plain_gap(updates: Updates, least: int, most: int) -> tuple[int, int]:
    """What both rules find, by the letter: on the rows themselves, with scikit-learn's K-means."""
    rows, draw, references = updates.values.double().numpy(), np.random.default_rng(0), 10

    def scatters(points: np.ndarray) -> list[float]:
        return [
            float(np.log(KMeans(k, n_init=10, random_state=0).fit(points).inertia_)) for k in range(least, most + 2)
        ]

    drawn = np.array([scatters(draw.uniform(rows.min(0), rows.max(0), rows.shape)) for _ in range(references)])
    gap = dict(enumerate(drawn.mean(0) - scatters(rows), least))
    error = dict(enumerate(drawn.std(0) * np.sqrt(1 + 1 / references), least))
    searched = range(least, most + 1)
    first = next((k for k in searched if gap[k] >= gap[k + 1] - error[k + 1]), most)
    return first, max(searched, key=lambda k: gap[k])


@pytest.mark.parametrize(
    ("updates", "least", "most", "first", "largest"),
    [
        (groups(4), 2, 6, 4, 4),
        (TWO, 2, 9, 2, 8),
        (TWO, 3, 9, 3, 8),
        (TWO, 2, 6, 2, 2),
        (THREE, 2, 6, 3, 3),
    ],
)
def test_both_rules_of_the_gap_statistic(updates: Updates, least: int, most: int, first: int, largest: int) -> None:
    assert plain_gap(updates, least, most) == (first, largest)
    for rule, found in {"first": first, "largest": largest}.items():
        settings: Any = {"gap_from": least, "gap_to": most, "gap_rule": rule}
        assert SnowballMinus(**settings)(updates, Context(round=1)).state == {"clusters": found}


@pytest.mark.parametrize(
    ("settings", "clients", "found"),
    [
        ({"gap_from": 2, "gap_to": 2}, 20, 2),
        ({"gap_from": 7, "gap_to": 7}, 20, 7),
        ({"gap_from": 12}, 20, 10),  # half of them, whatever is asked for
        ({"gap_from": 12}, 4, 3),
    ],
)
def test_the_gap_statistic_stays_within_its_range_and_half_of_the_updates(
    settings: dict[str, Any], clients: int, found: int
) -> None:
    verdict = SnowballMinus(**settings)(make_toy_round(clients=clients), Context(round=1))
    assert verdict.facts["clusters"] == found


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"first_share": 0.0}, r"first_share must lie in \(0, 1\], got 0"),
        ({"target_share": 1.1}, r"target_share must lie in \(0, 1\], got 1.1"),
        ({"step_share": float("nan")}, r"step_share must lie in \(0, 1\], got nan"),
        ({"first_share": 0.6}, "target_share 0.5 is below first_share 0.6"),
        ({"clusters": 1}, "clusters must be 2 or more, or 'gap', got 1"),
        ({"ballot_floor": -0.1}, r"ballot_floor must lie in \[0, 1\], got -0.1"),
        ({"grow_after": -1}, "grow_after .* got -1"),
        ({"grow_after": 1.5}, "grow_after .* got 1.5"),
        ({"grow_after": float("nan")}, "grow_after .* got nan"),
        ({"clusters": "11"}, "clusters must be 2 or more, or 'gap', got '11'"),
        ({"clusters": 3.0}, "clusters must be 2 or more, or 'gap', got 3.0"),
        ({"gap_from": 1}, "gap_from must be a number of clusters, 2 or more, got 1"),
        ({"gap_to": 4.0}, "gap_to must be a number of clusters, 2 or more, got 4.0"),
        ({"gap_from": 9, "gap_to": 8}, "gap_to 8 is below gap_from 9"),
        ({"gap_rule": "last"}, "gap_rule 'last' is not one of first, largest"),
        ({"judge": "jury"}, "judge 'jury' is not one of vae, vae-updates, vae-span, distance"),
        ({"clusters": 20}, "20 clusters need over 20 updates, got 20"),
        ({"layers": ("middle",)}, "layer 'middle' is not in the model, whose layers are first.weight, middle.bias"),
        ({"layers": "first"}, "layers must be 'ends', 'all' or names of layers, got 'first'"),
        ({"layers": ()}, "layers must be"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        Snowball(**settings)(make_toy_round(), Context(round=1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0, 1, -4, "abc", None, [3], 2.5])
def test_a_state_that_no_election_left_is_refused(kept: Any) -> None:
    with pytest.raises(RunError, match="lacks the number of clusters that the first round found"):
        Snowball()(make_toy_round(), Context(round=2, state={"clusters": kept}))


def test_a_state_of_nothing_is_a_first_round() -> None:
    assert (
        Snowball()(make_toy_round(), Context(round=2, state={})).state
        == Snowball()(make_toy_round(), Context(round=2)).state
    )
