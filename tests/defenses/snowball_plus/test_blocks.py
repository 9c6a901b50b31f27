"""Reading block by block gives the same as the whole matrix, and needs the memory of one block."""

from math import prod

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from snowball.defenses import Context, SnowballPlus
from snowball.defenses.snowball_plus import evidence as module
from snowball.defenses.snowball_plus.ballots import rank_disagreement
from snowball.defenses.snowball_plus.evidence import gather_evidence, read_blocks
from snowball.defenses.snowball_plus.memory import combine_rows
from snowball.defenses.snowball_plus.statistics import rank_group, rank_groups
from snowball.rng import stream
from snowball.updates import Updates

SHAPES = {"conv.weight": (6, 2, 3, 3), "conv.bias": (6,), "wide.weight": (3, 70), "last.weight": (5, 3), "scale": ()}
ROWS = 7
CLOSE = {"rtol": 1e-6, "atol": 1e-6}
"""Rounding of float32."""


def make_updates(shapes: dict[str, tuple[int, ...]] = SHAPES, rows: int = ROWS) -> Updates:
    rng = stream(2, "blocks")
    layers = {name: torch.randn(rows, *shape, generator=rng) for name, shape in shapes.items()}
    return Updates.from_layers(layers, clients=[f"c{(3 * row) % rows}" for row in range(rows)])


def read_layer(updates: Updates, name: str) -> Tensor:
    """(n, outputs, inputs) a layer."""
    shape = updates.layout.shapes[updates.layout.names.index(name)]
    rows = updates.values[:, updates.layout.columns[name]].double()
    return rows.view(len(updates), shape[0] if shape else 1, prod(shape[1:]))


@pytest.mark.parametrize("width", [1, 2, 3, 17, 18, 19, 40, 70, 75, 1000])
def test_blocks_cover_every_column_once_and_hold_whole_outputs_or_a_part_of_one(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", width * ROWS)
    updates = make_updates()
    for name, shape in SHAPES.items():
        blocks = [(columns, inside, block.double()) for columns, inside, block in read_blocks(updates, name)]
        inputs = prod(shape[1:])
        torch.testing.assert_close(torch.cat([block for *_, block in blocks], 1), read_layer(updates, name).flatten(1))
        for columns, inside, block in blocks:
            assert block.shape == (ROWS, columns.stop - columns.start)
            assert block.shape[1] <= width
            assert inside.start == columns.start - updates.layout.columns[name].start
            first, last = inside.start // inputs, (inside.stop - 1) // inputs
            assert first == last or (inside.start % inputs == 0 and inside.stop % inputs == 0)


@pytest.mark.parametrize("width", [1, 2, 5, 18, 40, 1000])
def test_evidence_is_that_of_the_whole_matrix(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", width * ROWS)
    updates = make_updates()
    base = torch.randn(updates.layout.width, generator=stream(2, "base"))
    found = gather_evidence(updates, base, None)
    for name in ("conv.weight", "wide.weight"):
        energy = read_layer(updates, name).square().sum(1)
        torch.testing.assert_close(found.inputs[name], (energy / energy.sum(1, keepdim=True)).sqrt(), **CLOSE)
        lengths = read_layer(updates, name).flatten(1).norm(dim=1)
        torch.testing.assert_close(found.layer_lengths[name], lengths, **CLOSE)
    assert found.leans is not None
    sums = read_layer(updates, "last.weight").sum(2)
    leans = torch.nn.functional.normalize(sums - sums.mean(1, keepdim=True), dim=1)
    torch.testing.assert_close(found.leans, leans, **CLOSE)
    rows = updates.values.double()
    torch.testing.assert_close(found.alignment, -torch.cosine_similarity(rows, base.double()[None]), **CLOSE)
    weights = torch.arange(ROWS).double()
    expected = (weights @ read_layer(updates, "wide.weight").flatten(1)).float()
    torch.testing.assert_close(combine_rows(updates, "wide.weight", weights), expected, **CLOSE)


@pytest.mark.parametrize("name", ["hidden", "all", "hidden.weight"])
def test_a_layer_may_have_any_name(name: str) -> None:
    updates = make_updates({name: (8, 6), "last.weight": (5, 8)})
    plain = make_updates({"first.weight": (8, 6), "last.weight": (5, 8)})
    assert torch.equal(
        gather_evidence(updates, None, None).directions[name],
        gather_evidence(plain, None, None).directions["first.weight"],
    )


@pytest.mark.parametrize(
    "shapes",
    [
        {"positions": (8, 6), "last.weight": (5, 8)},
        {"positions": (4, 2, 3, 3), "fc.weight": (8, 36), "last.weight": (5, 8)},
    ],
    ids=["without positions of an image", "with positions of an image"],
)
def test_a_layer_may_be_called_positions(shapes: dict[str, tuple[int, ...]]) -> None:
    plain = {name.replace("positions", "first.weight"): shape for name, shape in shapes.items()}
    verdicts = []
    seen = [gather_evidence(make_updates(each, rows=20), None, None).inputs for each in (shapes, plain)]
    assert [each.shape for each in seen[0].values()] == [each.shape for each in seen[1].values()]
    for each in (shapes, plain):
        state = None
        for round in (1, 2):
            verdict = SnowballPlus()(make_updates(each, rows=20), Context(round=round, state=state))
            state = verdict.state
        verdicts.append(verdict)
    assert torch.equal(verdicts[0].elected, verdicts[1].elected)
    assert torch.equal(verdicts[0].delta, verdicts[1].delta)


def test_groups_are_ranked_together_as_one_by_one() -> None:
    rng = stream(2, "ranks")
    values = torch.randint(0, 9, (30,), generator=rng).double()
    groups = torch.rand(40, 30, generator=rng) < torch.linspace(0.2, 0.8, 40)[:, None]
    groups[0], groups[-1] = False, True
    together = rank_groups(values, groups)
    assert together.tolist() == [rank_group(values, group) for group in groups]
    assert (together[0], together[-1]) == (0, 0)
    for group, rank in zip(groups[1:-1], together[1:-1].tolist(), strict=True):
        inside, outside = values[group].tolist(), values[~group].tolist()
        wins = sum((one > other) + (one == other) / 2 for one in inside for other in outside)
        pairs = len(inside) * len(outside)
        assert rank == pytest.approx((wins / pairs - 0.5) / (31 / (12 * pairs)) ** 0.5)


def test_disagreement_takes_the_memory_of_the_looks_and_not_of_their_pairs() -> None:
    looks = torch.randn(20, 150, generator=stream(2, "looks"), dtype=torch.float64)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        rank_disagreement(looks)
    events = watched.events()
    assert events is not None
    assert max(event.cpu_memory_usage for event in events) < 20 * looks.numel() * looks.element_size()


@pytest.mark.parametrize("shapes", [{"a": (600, 1000), "b": (10, 600)}, {"a": (20, 50), "b": (60, 10000)}])
def test_a_round_makes_no_second_copy_of_the_updates(shapes: dict[str, tuple[int, ...]]) -> None:
    updates = make_updates(shapes, rows=20)
    shared = 3 * updates.rows[0]
    for row in updates.rows[:4]:
        row += shared
    base = torch.randn(updates.layout.width, generator=stream(2, "base"))
    state = SnowballPlus()(updates, Context(round=1, rounds=2, base=base)).state
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        verdict = SnowballPlus()(updates, Context(round=2, rounds=2, base=base, state=state))
    assert "charge" in verdict.facts
    matrix = sum(row.numel() * row.element_size() for row in updates.rows)
    events = watched.events()
    assert events is not None
    assert max(event.cpu_memory_usage for event in events) < matrix / 4
