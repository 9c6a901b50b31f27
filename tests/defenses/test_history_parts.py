"""The functions that a defense's memory of clients is made of, by hand."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.defenses import Context, history
from snowball.defenses.history import (
    MAX_STATE_NUMBER,
    check_bounds,
    check_numbers,
    compute_inner_products,
    count_mebibytes,
    extend_barred,
    is_row,
    keep_recent,
    read_entries,
    rename_clients,
)
from snowball.errors import RunError

ENTRIES: dict[str, Any] = {name: {"round": round} for round, name in enumerate("abcd", start=1)}


def find_kept(forget_after: int | None, remember: int | None) -> str:
    kept = keep_recent(ENTRIES, Context(round=4), forget_after, remember)
    assert all(kept[client] is ENTRIES[client] for client in kept)
    return "".join(kept)


def test_clients_are_kept_by_their_last_round_up_to_the_bound() -> None:
    assert find_kept(None, None) == "abcd"
    assert find_kept(1, None) == "d"
    assert find_kept(3, None) == "bcd"
    assert find_kept(None, 4) == "abcd"
    assert find_kept(None, 3) == "bcd"
    assert find_kept(3, 1) == "d"


def test_the_smallest_bounds_are_one() -> None:
    check_bounds(1, 1)
    check_bounds(None, None)


def test_more_clients_found_than_fit_are_barred_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_BARRED_CLIENTS", 20)
    names = [f"client-{number:02}" for number in range(30)]
    assert extend_barred(["client-00"], names[::-1], Context(round=1)) == names[:20]
    assert extend_barred(iter(["b", "a", "b"]), iter(["c", "a"]), Context(round=1)) == ["a", "b", "c"]


@pytest.mark.parametrize(("last", "fine"), [(0, False), (1, True), (5, True), (6, False), (True, False), (1.0, False)])
def test_a_client_was_last_seen_in_a_round_that_has_been(last: Any, fine: bool) -> None:
    state = {"clients": {"a": {"round": last, "row": torch.ones(3)}}}
    if fine:
        assert read_entries(state, "row", 3, 5) is state["clients"]
    else:
        with pytest.raises(RunError, match="in which of 5 rounds client 'a' was last seen"):
            read_entries(state, "row", 3, 5)


def test_new_names_reach_every_part_of_a_state() -> None:
    part = {"clients": {"1": "first", "2": "second"}, "blacklist": ["2", "3", 7]}
    renamed = {"clients": {"one": "first", "2": "second"}, "blacklist": ["2", "three", 7]}
    names = {"1": "one", "3": "three"}
    assert rename_clients({**part, "members": [part, None], "other": 5}, names) == {
        **renamed,
        "members": [renamed, None],
        "other": 5,
    }
    assert rename_clients(part, {}) is part
    assert rename_clients(None, names) is None
    assert rename_clients({}, names) == {}


def test_what_is_known_under_a_new_name_stays() -> None:
    assert rename_clients({"clients": {"1": "old", "one": "new"}}, {"1": "one"}) == {"clients": {"one": "new"}}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_row_is_floating_point_numbers_in_memory(dtype: torch.dtype) -> None:
    row = torch.ones(3, dtype=dtype)
    assert is_row(row, 3)
    for other in (row.int(), row[None], row[:2], row.to_sparse(), row.to("meta"), row.tolist(), None):
        assert not is_row(other, 3)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf, 1e39])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_numbers_that_are_not_finite_or_far_too_large_are_refused(number: float, dtype: torch.dtype) -> None:
    check_numbers([torch.zeros(0), torch.tensor([MAX_STATE_NUMBER, -MAX_STATE_NUMBER], dtype=torch.float32)])
    with pytest.raises(RunError, match="NaN, infinite or far too large"):
        check_numbers([torch.ones(3), torch.tensor([1.0, number]).to(dtype)])


def test_the_memory_of_a_state_is_that_of_its_tensors() -> None:
    mebibyte = torch.zeros(2**18)
    assert count_mebibytes(mebibyte) == 1
    assert count_mebibytes({"rows": [mebibyte, mebibyte.double()], "mean": mebibyte[: 2**17], "round": 3}) == 3.5


@pytest.mark.parametrize(("elements", "width"), [(1, 1), (3, 1), (12, 4)])
def test_inner_products_are_added_up_in_blocks(monkeypatch: pytest.MonkeyPatch, elements: int, width: int) -> None:
    seen: list[int] = []
    add_up = history.sum_products

    def note_widths(rows: int, blocks: Iterable[Tensor]) -> Tensor:
        kept = list(blocks)
        seen.extend(block.shape[1] for block in kept)
        return add_up(rows, kept)

    monkeypatch.setattr(history, "sum_products", note_widths)
    monkeypatch.setattr(history, "BLOCK_ELEMENTS", elements)
    rows = torch.arange(24.0).reshape(3, 8)
    assert torch.equal(compute_inner_products(list(rows)), rows.double() @ rows.double().T)
    assert seen == [width] * (8 // width)
