from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from snowball.defenses.snowball import judges, vae_steps
from snowball.defenses.snowball.judges import JUDGES, _subtract_pairs
from snowball.defenses.snowball.top_down import grow_elected
from snowball.defenses.snowball.vae import VAE, VAESettings
from snowball.errors import SettingError
from snowball.rng import stream
from snowball.threads import use_threads
from snowball.updates import Updates

POINTS = [0, 0.1, 0.2, 0.5, 0.9, 1.5, 4, 5]
LOTS = torch.arange(8)
QUICK = VAESettings(first_epochs=20, tune_epochs=5, hidden=32, latent=8)


def line(points: Sequence[float] = POINTS) -> Updates:
    return Updates.from_layers({"w": torch.tensor(points)[:, None]})


def mask(size: int, *chosen: int) -> Tensor:
    return torch.isin(torch.arange(size), torch.tensor(chosen))


def squares(points: Tensor, elected: Tensor, candidates: Tensor) -> Tensor:
    return (points[candidates, None] - points[elected]).square().sum(1)


def test_the_worked_example_of_growth() -> None:
    points = torch.tensor(POINTS)
    growth = grow_elected(mask(8, 0, 1), 5, 2, lambda elected, candidates: squares(points, elected, candidates), LOTS)
    assert growth.order.tolist() == [0, 0, 1, 1, 2, -1, -1, -1]
    assert growth.elected.tolist() == [True] * 5 + [False] * 3


def test_evidence_of_each_pick() -> None:
    points = torch.tensor(POINTS, dtype=torch.float64)
    growth = grow_elected(mask(8, 0, 1), 5, 2, lambda elected, candidates: squares(points, elected, candidates), LOTS)
    torch.testing.assert_close(growth.score[2:4], torch.tensor([0.05, 0.41], dtype=torch.float64))
    runner_up = 0.9**2 + 0.8**2  # of the first step
    torch.testing.assert_close(growth.margin[2:4], runner_up - growth.score[2:4])
    assert growth.score[:2].isnan().all()
    assert growth.margin[[0, 1, 5, 6, 7]].isnan().all()
    assert growth.score[5:].isfinite().all()


def test_rows_may_arrive_in_any_order() -> None:
    order = torch.tensor([5, 2, 7, 0, 1, 6, 3, 4])
    updates = line()
    moved = Updates(
        updates.values[order], updates.examples, tuple(updates.clients[row] for row in order), updates.layout
    )
    for name in JUDGES:
        here = grow_elected(mask(8, 0, 1), 5, 2, JUDGES[name](updates, ("w",), QUICK, stream(1)), LOTS)
        there = grow_elected(mask(8, 0, 1), 5, 2, JUDGES[name](moved, ("w",), QUICK, stream(1)), LOTS)
        assert torch.equal(here.order, there.order)


def test_everybody_can_be_elected_without_a_runner_up() -> None:
    points = torch.tensor(POINTS)
    growth = grow_elected(mask(8, 0), 8, 3, lambda elected, candidates: squares(points, elected, candidates), LOTS)
    assert growth.elected.all()
    assert growth.margin[-1].isnan()


def test_more_selectees_than_the_target_stay() -> None:
    assert (
        grow_elected(mask(8, 0, 1, 2), 2, 1, lambda elected, candidates: candidates, LOTS).order.tolist()
        == [0] * 3 + [-1] * 5
    )


def test_equal_scores_join_by_lot() -> None:
    lots = torch.tensor([0, 0, 5, 4, 3, 9, 1, 2])
    growth = grow_elected(mask(8, 0, 1), 6, 2, lambda elected, candidates: torch.zeros(len(candidates)), lots)
    assert growth.order.tolist() == [0, 0, -1, 2, 2, -1, 1, 1]


def test_distance_is_the_mean_square_over_the_layers_together() -> None:
    rows = torch.tensor([[0.0, 0], [3, 4], [1, 0], [0, 2]])
    updates = Updates.from_layers({"a": rows[:, None, :1], "b": rows[:, None, 1:]})
    scores = JUDGES["distance"](updates, ("a", "b"), QUICK, stream(1))(torch.tensor([0, 2]), torch.tensor([1, 3]))
    torch.testing.assert_close(scores, torch.tensor([(25 + 20) / 2, (4 + 5) / 2], dtype=torch.float64))


@pytest.mark.parametrize("name", JUDGES)
def test_every_judge_prefers_what_resembles_the_elected(name: str) -> None:
    rows = torch.randn(12, 30, generator=torch.Generator().manual_seed(0)) * 0.1
    rows[9:] += 1.0
    updates = Updates.from_layers({"w": rows[:, None]})
    judge = JUDGES[name](updates, ("w",), QUICK, stream(1))
    assert grow_elected(mask(12, 0, 1, 2), 9, 2, judge, torch.arange(12)).elected.tolist() == [True] * 9 + [False] * 3


@pytest.mark.parametrize("name", JUDGES)
def test_one_selectee_picks_its_nearest(name: str) -> None:
    judge = JUDGES[name](line(), ("w",), QUICK, stream(1))
    assert grow_elected(mask(8, 3), 2, 1, judge, LOTS).order.tolist() == [-1, -1, 1, 0, -1, -1, -1, -1]


@pytest.mark.parametrize("name", [name for name in JUDGES if name != "distance"])
def test_codes_part_what_the_rows_part(name: str) -> None:
    rows = torch.randn(12, 30, generator=torch.Generator().manual_seed(0)) * 0.1
    rows[9:] += 1.0
    updates = Updates.from_layers({"w": rows[:, None]}, clients=[f"{row:02}" for row in range(12)])
    judge = JUDGES[name](updates, ("w",), QUICK, stream(1))
    elected = torch.arange(3)
    judge(elected, torch.arange(3, 12))
    places = judge.places(elected)  # type: ignore[attr-defined]
    assert places.shape == (12, 2)
    low, high = places[:9, 0], places[9:, 0]
    assert low.max() < high.min() or high.max() < low.min()


@pytest.mark.parametrize("name", [name for name in JUDGES if name != "distance"])
def test_a_vae_computes_on_its_device_and_gives_its_scores_on_the_cpu(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors without numbers: one on another device than "meta" cannot be combined with those that are there."""
    monkeypatch.setattr(vae_steps, "adam", lambda *lists, **settings: None)  # it is not fused there
    monkeypatch.setattr(judges, "project_rows", lambda products: products)
    elected, candidates, one = torch.arange(3), torch.arange(3, 8), torch.arange(1)
    made: Any = JUDGES[name](line(), ("w",), QUICK, stream(1), "cpu")
    with FakeTensorMode(allow_non_fake_inputs=True):
        vae = VAE(made.rows.shape[1], QUICK, stream(1), made.vae.batch, made.vae.bounded, "meta")
        judge = type(made)(made.rows, vae)
        assert {tensor.device.type for tensor in (judge.rows, *vae.parameters())} == {"meta"}
        given = judge(elected, candidates), judge(one, candidates), judge.places(elected)
        assert [(tuple(each.shape), each.device.type) for each in given] == [((5,), "cpu")] * 2 + [((8, 8), "cpu")]


@pytest.mark.parametrize("name", [name for name in JUDGES if name != "distance"])
def test_a_judge_appoints_its_vae_for_the_device(name: str) -> None:
    judge: Any = JUDGES[name](line(), ("w",), QUICK, stream(1), "meta")
    assert {tensor.device.type for tensor in (judge.rows, *judge.vae.parameters())} == {"meta"}


def noting_threads(work: Any, used: list[int]) -> Any:
    def wrapped(*given: Any) -> Any:
        used.append(torch.get_num_threads())
        return work(*given)

    return wrapped


@pytest.mark.parametrize("name", [name for name in JUDGES if name != "distance"])
def test_a_vae_computes_on_one_thread_of_torch_whatever_is_set(name: str) -> None:
    judge: Any = JUDGES[name](line(), ("w",), replace(QUICK, cpu_threads=2), stream(1))
    used: list[int] = []
    for method in ("learn", "errors", "codes"):
        setattr(judge.vae, method, noting_threads(getattr(judge.vae, method), used))
    with use_threads(3):
        judge(torch.arange(3), torch.arange(3, 8))
        judge.places(torch.arange(3))
        assert torch.get_num_threads() == 3
    assert len(used) == 2 + 5 + 8
    assert set(used) == {1}


def test_a_vae_taught_updates_learns_the_elected_and_sees_a_row_alone() -> None:
    judge = JUDGES["vae-updates"](line(), ("w",), QUICK, stream(1))
    learned = []
    judge.vae.learn = lambda rows, epochs: learned.append((rows.flatten().tolist(), epochs))  # type: ignore[attr-defined]
    judge.vae.errors = lambda rows: rows[:, 0]  # type: ignore[attr-defined]
    scores = judge(torch.tensor([0, 5]), torch.tensor([2, 7]))
    assert learned == [([0.0, 1.5], 20), ([0.0, 1.5], 5)]
    torch.testing.assert_close(scores, torch.tensor([0.2, 5.0]))


def test_the_span_has_the_distances_of_the_rows() -> None:
    rows = torch.randn(9, 40, generator=torch.Generator().manual_seed(0))
    updates = Updates.from_layers({"a": rows[:, None, :15], "b": rows[:, None, 15:]})
    judge = JUDGES["vae-span"](updates, ("a", "b"), QUICK, stream(1))
    ratio = torch.cdist(judge.rows, judge.rows) / torch.cdist(rows, rows).fill_diagonal_(1)  # type: ignore[attr-defined]
    torch.testing.assert_close(ratio[~torch.eye(9, dtype=torch.bool)], ratio[0, 1].expand(72), rtol=1e-4, atol=0)


def test_differences_are_of_all_ordered_pairs() -> None:
    assert sorted(_subtract_pairs(torch.tensor([[0.0], [1], [5]])).flatten().tolist()) == [-5, -4, -1, 1, 4, 5]


def test_the_vae_learns_and_scores_without_touching_the_global_generator() -> None:
    before = torch.get_rng_state()
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)) @ torch.randn(3, 20)
    torch.set_rng_state(before)
    vae = VAE(20, VAESettings(hidden=32, latent=8), stream(1), batch=8, bounded=False)
    untrained = vae.errors(rows).mean()
    vae.learn(rows, 60)
    assert vae.errors(rows).mean() < 0.5 * untrained
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("threads", [0, -1, 1025, 2.0])
def test_threads_that_no_machine_has_are_refused(threads: Any) -> None:
    with pytest.raises(SettingError, match=f"vae.cpu_threads must be a number from 1 to 1024, got {threads}"):
        VAESettings(cpu_threads=threads)


@pytest.mark.parametrize("name", ["first_epochs", "tune_epochs", "hidden", "latent", "samples", "lr"])
def test_settings_of_no_network_are_refused(name: str) -> None:
    with pytest.raises(SettingError, match=f"vae.{name} must be a positive number, got 0"):
        VAESettings(**{name: 0})
