from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snowball.defenses import Context, PredictionDefense
from snowball.defenses.crfl import CRFL, find_majority, shorten_row
from snowball.errors import SettingError
from snowball.testing import check_defense, make_toy_round
from snowball.updates import Updates


class Linear:
    """Two classes: the sample's product with the row, against zero."""

    def __call__(self, row: Tensor, inputs: Tensor) -> Tensor:
        return torch.stack([inputs @ row, torch.zeros(len(inputs))], 1)

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        return torch.rand(count, 2, generator=rng)


def one_update(*values: float) -> Updates:
    return Updates.from_layers({"w": torch.tensor([values], dtype=torch.float32)})


def test_the_published_variant_passes_every_check() -> None:
    check_defense(CRFL(variant="published"))


def test_the_model_is_shortened_and_not_the_update() -> None:
    verdict = CRFL(bound=2, noise=0)(one_update(2, 2), Context(round=1, base=torch.tensor([1.0, 2.0])))
    torch.testing.assert_close(verdict.delta, torch.tensor([0.2, -0.4]))  # (3, 4) becomes (1.2, 1.6)
    torch.testing.assert_close(verdict.facts["clipped"], 0.4)


def test_the_published_code_shortens_the_update_and_not_the_model() -> None:
    base = torch.tensor([100.0, 0.0])
    verdict = CRFL(bound=2, noise=0, variant="published")(one_update(3, 4), Context(round=1, base=base))
    torch.testing.assert_close(verdict.delta, torch.tensor([1.2, 1.6]))
    assert verdict.state is None


def test_updates_count_alike_in_the_original_and_by_their_examples_in_the_published_code() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[1.0], [5.0]])}, examples=[1, 3])
    context = Context(round=1, base=torch.zeros(1))
    assert CRFL(noise=0)(updates, context).delta.item() == 3
    assert CRFL(noise=0, variant="published")(updates, context).delta.item() == 4


def test_the_bound_grows_to_its_limit() -> None:
    defense, context = CRFL(ramp=(0.1, 2.0), noise=0), {"base": torch.zeros(2)}
    bounds = [defense(one_update(1, 1), Context(round=round, **context)).facts["bound"] for round in (1, 50, 130, 200)]
    assert bounds == pytest.approx([2.1, 7, 15, 15])
    assert CRFL()(one_update(1, 1), Context(round=1, **context)).facts["bound"] == 15


def test_the_noise_is_in_the_next_model_and_not_in_the_one_that_predicts() -> None:
    updates, base = make_toy_round(width=2000), torch.zeros(2000)
    verdict = CRFL(bound=1e9, noise=0.5)(updates, Context(round=1, base=base))
    assert verdict.state is not None
    torch.testing.assert_close(verdict.state["clean"], updates.values.mean(0), rtol=1e-4, atol=1e-6)
    assert (verdict.delta - verdict.state["clean"]).std().item() == pytest.approx(0.5, rel=0.1)
    other = CRFL(bound=1e9, noise=0.5)(updates, Context(round=2, base=base))
    assert not torch.equal(verdict.delta, other.delta)


def using(defense: CRFL, base: Tensor, state: dict[str, Tensor] | None = None) -> Callable[[Tensor], list[int]]:
    context = Context(round=3, base=base, model=Linear(), state=state)
    return lambda inputs: defense.predict(inputs, context).tolist()


@pytest.mark.parametrize("variant", ["original", "published"])
def test_without_noise_the_vote_is_the_models_own_prediction(variant: str) -> None:
    defense = CRFL(noise=0, copies=3, variant=variant)  # type: ignore[arg-type]
    assert isinstance(defense, PredictionDefense)
    assert using(defense, torch.tensor([1.0, -1.0]))(torch.tensor([[2.0, 1.0], [1.0, 2.0]])) == [0, 1]


def test_the_clean_model_predicts_where_there_is_one() -> None:
    inputs = torch.tensor([[2.0, 1.0]])
    assert using(CRFL(noise=0), torch.tensor([-1.0, 0.0]), {"clean": torch.tensor([1.0, 0.0])})(inputs) == [0]


def test_the_copies_vote() -> None:
    inputs = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    base = torch.tensor([1.0, 0.0])
    alone, together = (using(CRFL(noise=1.0, copies=copies), base)(inputs) for copies in (1, 200))
    truth = using(CRFL(noise=0), base)(inputs)
    right = [sum(map(int.__eq__, labels, truth)) for labels in (alone, together)]
    assert right[0] < 180 < right[1]
    assert using(CRFL(noise=1.0, copies=200), base)(inputs) == together  # the same copies in the same round


def test_ties_go_to_the_lowest_class_or_to_the_first_seen() -> None:
    labels = torch.tensor([[2, 0, 0, 2], [1, 1, 2, 0], [3, 1, 1, 3]])
    assert find_majority(labels, "lowest").tolist() == [0, 1, 1]
    assert find_majority(labels, "first").tolist() == [2, 1, 3]


def test_only_what_is_too_long_is_shortened() -> None:
    row, factor = shorten_row(torch.tensor([3.0, 4.0]), 2)
    torch.testing.assert_close(row, torch.tensor([1.2, 1.6]))
    assert factor == pytest.approx(0.4)
    assert shorten_row(torch.tensor([3.0, 4.0]), 6)[1] == 1


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"bound": 0.0}, "bound 0.0"),
        ({"noise": -0.1}, "noise -0.1"),
        ({"copies": 0}, "0 copies"),
        ({"ramp": (-0.1, 2.0)}, "ramp must not fall"),
        ({"ramp": (0.1, -2.0)}, "positive in round 1"),
        ({"variant": "newest"}, "variant 'newest'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], fault: str) -> None:
    with pytest.raises(SettingError, match=fault):
        CRFL(**settings)  # type: ignore[arg-type]


def test_it_says_what_it_cannot_do_without() -> None:
    with pytest.raises(SettingError, match=r"crfl needs Context\.base"):
        CRFL()(one_update(1, 1), Context(round=1))
    with pytest.raises(SettingError, match=r"crfl needs Context\.model"):
        CRFL().predict(torch.zeros(1, 2), Context(round=1, base=torch.zeros(2)))
