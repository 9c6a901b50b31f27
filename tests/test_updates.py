from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snowball import arrays
from snowball import products as products_module
from snowball.defenses import Verdict
from snowball.differences import Differences
from snowball.errors import UpdateError
from snowball.layout import Layout, select_parameters
from snowball.products import multiply_by_itself
from snowball.shares import limit_shares
from snowball.testing import make_toy_round
from snowball.updates import Updates


def test_layout_takes_a_model_apart_and_together() -> None:
    tensors = {"w": torch.arange(6.0).view(2, 3), "b": torch.tensor([7.0]), "s": torch.tensor(8.0)}
    layout = Layout.from_tensors(tensors)
    row = layout.flatten(dict(reversed(tensors.items())))
    assert row.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    assert layout.width == 8
    for name, tensor in layout.split(row).items():
        assert torch.equal(tensor, tensors[name])


def test_weights_are_the_tensors_of_two_or_more_dimensions() -> None:
    assert Layout(("a", "b", "c"), ((2, 2), (2,), (1, 2, 2))).weights == ("a", "c")
    assert Layout(("a", "b"), ((2,), (3,))).weights == ("a", "b")


def test_the_head_is_the_last_weight_layer_with_its_bias() -> None:
    names, shapes = ("in.weight", "in.bias", "out.weight", "out.bias", "norm.bias"), ((2, 2), (2,), (1, 2), (1,), (1,))
    assert Layout(names, shapes).head == ("out.weight", "out.bias")
    assert Layout(("a", "b"), ((2, 2), (2,))).head == ("a", "b")  # of a model that is one layer


@given(seed=st.integers(0, 100), block=st.sampled_from([1, 7, 64, 1 << 22]))
def test_gram_is_the_inner_products_of_centred_rows_whatever_the_block(seed: int, block: int) -> None:
    updates = make_toy_round(seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products_module, "BLOCK_ELEMENTS", block)
        whole = updates.gram()
        first = updates.gram("first.weight")
    rows = updates.values.double().numpy()
    rows = rows - rows.mean(0)
    np.testing.assert_allclose(whole, rows @ rows.T, atol=1e-15)
    part = rows[:, updates.layout.columns["first.weight"]]
    np.testing.assert_allclose(first, part @ part.T, atol=1e-15)


def test_gram_keeps_small_differences_beside_a_large_common_part() -> None:
    common = torch.full((1, 1000), 1000.0)
    small = torch.randn(6, 1000, generator=torch.Generator().manual_seed(0)) * 1e-3
    rows = (common + small).double()  # what float32 holds of it is what must come out
    updates = Updates.from_layers({"w": rows.float()[:, None]})
    exact = rows.float().double().numpy()
    exact = exact - exact.mean(0)
    np.testing.assert_allclose(updates.gram(), exact @ exact.T, rtol=1e-9, atol=1e-12)


def test_gram_and_mean_do_not_depend_on_row_order_to_the_last_bit() -> None:
    updates = make_toy_round(clients=33, seed=5)
    order = torch.randperm(33, generator=torch.Generator().manual_seed(1))
    moved = Updates(
        updates.values[order], updates.examples[order], tuple(updates.clients[i] for i in order), updates.layout
    )
    assert torch.equal(updates.gram(), moved.gram())
    assert torch.equal(updates.mean(updates.examples), moved.mean(moved.examples))


def test_mean_is_the_weighted_average_and_reads_no_row_of_weight_zero() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[1.0], [2.0], [9.0]])}, examples=[1, 3, 4])
    assert updates.mean(updates.examples).item() == 5.375
    assert updates.mean(torch.tensor([1.0, 3.0, 0.0])).item() == 1.75


def test_mean_does_not_overflow() -> None:
    updates = Updates.from_layers({"w": torch.full((3, 1), 3e38)}, examples=[1e308] * 3)
    assert updates.mean(updates.examples).item() == pytest.approx(3e38)


def test_rows_are_in_the_order_of_client_ids() -> None:
    rows = torch.tensor([[2.0, 20], [4, 40], [1, 10], [3, 30]])
    updates = Updates.from_layers({"w": rows}, examples=[5, 9, 6, 8], clients=["b", "d", "a", "c"])
    assert updates.clients == ("a", "b", "c", "d")
    assert updates.examples.tolist() == [6, 5, 8, 9]
    assert updates.values[:, 0].tolist() == [row[0].item() for row in updates.rows] == [1, 2, 3, 4]
    assert updates.read_columns(slice(1, 2))[:, 0].tolist() == [10, 20, 30, 40]
    assert updates.read_columns(torch.tensor([1, 0]))[2].tolist() == [30, 3]
    assert updates.squared_norms.sqrt().argsort().tolist() == [0, 1, 2, 3]
    assert updates.dot(torch.tensor([1.0, 0])).tolist() == [1, 2, 3, 4]
    assert updates.combine(torch.tensor([0, 0, 1, 0])).tolist() == [3, 30]
    assert [row.data_ptr() for row in updates.rows] == [rows[slot].data_ptr() for slot in (2, 0, 3, 1)]


def test_a_layer_is_selected_without_a_copy() -> None:
    rows = torch.arange(12.0).view(3, 4)
    updates = Updates.from_layers({"w": rows}, clients=["c", "a", "b"], examples=[3, 1, 2])
    layer = updates.select_layer("w")
    assert (layer.clients, layer.examples.tolist()) == (("a", "b", "c"), [1, 2, 3])
    assert layer.rows[2].data_ptr() == rows.data_ptr()
    two = make_toy_round()
    assert torch.equal(two.select_layer("last.weight").values, two.values[:, two.layout.columns["last.weight"]])
    assert two.select_layer("last.weight").layout == Layout(("last.weight",), ((1, 2),))


def test_unnamed_clients_sort_as_they_are_numbered() -> None:
    updates = Updates.from_layers({"w": torch.arange(12.0)[:, None]})
    assert updates.clients[:2] + updates.clients[-1:] == ("00", "01", "11")
    assert updates.values[:, 0].tolist() == list(range(12))


def test_a_copy_of_columns_may_be_changed() -> None:
    rows = torch.ones(2, 3, dtype=torch.float64)
    updates = Updates.from_layers({"w": rows})
    updates.read_columns(slice(0, 2)).zero_()
    updates.read_columns(torch.tensor([0])).zero_()
    updates.products().zero_()
    assert (rows == 1).all()
    assert torch.equal(updates.products(), Updates.from_layers({"w": rows}).products())


def test_from_states_subtracts_the_global_model_and_leaves_counters_out() -> None:
    base = {"w": np.ones((2, 2), np.float32), "steps": np.array(3)}
    states = [{"w": torch.full((2, 2), 3.0), "steps": torch.tensor(4)}, {"w": np.zeros((2, 2), np.float32), "steps": 1}]
    updates = Updates.from_states(base, states, examples=[1, 2], clients=["x", "y"])
    assert updates.values.tolist() == [[2.0] * 4, [-1.0] * 4]
    assert updates.layout.names == ("w",)


def test_from_layers_uses_one_memory_mapped_layer_in_place(tmp_path: Path) -> None:
    file = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(4, 100))
    file[:] = np.arange(400).reshape(4, 100)
    updates = Updates.from_layers({"w": file})
    assert updates.values.data_ptr() == file.ctypes.data
    assert torch.equal(updates.gram(), Updates.from_layers({"w": torch.tensor(np.array(file))}).gram())


def test_products_keep_distances_beside_a_row_that_is_far_away() -> None:
    rows = torch.randn(9, 50, generator=torch.Generator().manual_seed(0)) * 1e-2
    exact = torch.cdist(rows[:8].double(), rows[:8].double()) ** 2
    rows[8] *= 1e18
    products = Updates.from_layers({"w": rows}).products()[:8, :8]
    squares = products.diagonal()
    np.testing.assert_allclose(squares[:, None] + squares - 2 * products, exact, rtol=1e-9, atol=1e-15)


def test_tensors_in_training_are_taken_without_their_history() -> None:
    model = torch.nn.Linear(3, 2)
    updates = Updates.from_states(dict(model.named_parameters()), [dict(torch.nn.Linear(3, 2).named_parameters())] * 2)
    assert not updates.values.requires_grad
    assert not Updates.from_layers({"w": torch.ones(2, 3, requires_grad=True)}).mean(torch.ones(2)).requires_grad


def test_half_precision_states_are_subtracted_in_single_precision() -> None:
    base, state = {"w": torch.tensor([2048.0]).half()}, {"w": torch.tensor([-1.0]).half()}
    assert Updates.from_states(base, [state]).values.item() == -2049


def test_a_file_that_must_not_be_written_is_read_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((3, 4), np.float32))
    assert len(Updates.from_layers({"w": np.load(tmp_path / "rows.npy", mmap_mode="r")})) == 3


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "the state of client 'x' must be a mapping of names to tensors, got NoneType"),
        ({"w": None}, "'w' of client 'x' cannot be read as numbers"),
        ({"w": "text"}, "'w' of client 'x' cannot be read as numbers"),
        ({"w": [1.0, [2.0]]}, "'w' of client 'x' cannot be read as numbers"),
        ({"w": np.array([object()])}, "'w' of client 'x' cannot be read as numbers"),
        ({"w": torch.ones(1, dtype=torch.complex64)}, "'w' of client 'x' must be a plain array of real numbers"),
        ({"w": torch.ones(1).to_sparse()}, "'w' of client 'x' must be a plain array of real numbers"),
    ],
)
def test_whatever_a_client_sends_is_refused_by_name(state: Any, said: str) -> None:
    with pytest.raises(UpdateError, match=said) as caught:
        Updates.from_states({"w": torch.zeros(1)}, [state], clients=["x"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ({}, "none of the global model's 0 tensors is trained"),
        ({"n": torch.tensor([1])}, "none of the global model's 1 tensors is trained"),
        ({"w": torch.tensor([torch.nan])}, "the global model holds NaN"),
    ],
)
def test_a_global_model_without_numbers_is_refused(base: Any, said: str) -> None:
    with pytest.raises(UpdateError, match=said):
        Updates.from_states(base, [base])


def test_a_matrix_is_used_in_place_with_its_layers() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    updates = Updates.from_matrix(rows, clients=["b", "a", "c"], examples=[1, 2, 3], layers={"w": (1, 3), "b": 1})
    assert updates.rows[1].data_ptr() == rows.ctypes.data
    assert (updates.clients, updates.examples.tolist()) == (("a", "b", "c"), [2, 1, 3])
    assert updates.layout == Layout(("w", "b"), ((1, 3), (1,)))
    assert updates.read_columns(updates.layout.columns["b"])[:, 0].tolist() == [7, 3, 11]
    assert Updates.from_matrix(torch.zeros(2, 5)).layout == Layout(("row",), ((5,),))


@pytest.mark.parametrize(
    ("values", "layers", "said"),
    [
        ({"w": torch.zeros(2, 3)}, None, "values must be a matrix of clients by columns, got dict"),
        (make_toy_round(), None, "values must be a matrix of clients by columns, got Updates"),
        (torch.zeros(3), None, r"floating-point matrix of clients by columns, got torch.float32 \(3,\)"),
        (torch.tensor(1.0), None, r"floating-point matrix of clients by columns, got torch.float32 \(\)"),
        (torch.zeros(2, 3), ["w"], "layers must be a mapping of names to numbers of columns, got list"),
        (torch.zeros(2, 3), {"w": 2}, "rows have 3 columns, the layout has 2"),
    ],
)
def test_what_is_not_a_matrix_is_refused(values: Any, layers: Any, said: str) -> None:
    with pytest.raises(UpdateError, match=said):
        Updates.from_matrix(values, layers=layers)


MODEL = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))


@pytest.mark.parametrize(
    ("base", "states", "said"),
    [
        (
            MODEL,
            [],
            r"the global model must be a mapping of names to tensors, got Sequential: pass its state_dict\(\)$",
        ),
        ([torch.zeros(2)], [], r"the global model must be a mapping of names to tensors, got list$"),
        (MODEL.state_dict(), MODEL.state_dict(), "states must be a list with one state per client, got OrderedDict"),
        (MODEL.state_dict(), MODEL, "states must be a list with one state per client, got Sequential"),
        (MODEL.state_dict(), [MODEL], r"the state of client '0' must be .* got Sequential: pass its state_dict\(\)$"),
        (MODEL.state_dict(), [[torch.zeros(2)]], "the state of client '0' must be a mapping .* got list"),
        (
            MODEL.state_dict(),
            [dict(MODEL.named_parameters())],
            r"client '0' does not match .* missing \['1.num_batches",
        ),
    ],
)
def test_wrong_kinds_of_models_are_refused_in_one_sentence(base: Any, states: Any, said: str) -> None:
    with pytest.raises(UpdateError, match=said) as caught:
        Updates.from_states(base, states)
    assert "\n" not in str(caught.value)


def test_a_list_of_layers_is_refused() -> None:
    with pytest.raises(UpdateError, match=r"^layers must be a mapping of names to tensors, got list$"):
        Updates.from_layers([torch.zeros(2, 3)])  # type: ignore[arg-type]


def move_state(by: float, mean: float, steps: int) -> dict[str, torch.Tensor]:
    moved = {name: tensor + by for name, tensor in MODEL.state_dict().items()}
    return moved | {"1.running_mean": torch.full((3,), mean), "1.num_batches_tracked": torch.tensor(steps)}


def test_a_verdict_is_applied_to_the_whole_model() -> None:
    before = MODEL.state_dict()
    states = [move_state(0.5, 2.0, 7), move_state(0.25, 4.0, 5), move_state(100.0, 900.0, 900)]
    updates = Updates.from_states(before, states, examples=[1, 3, 1], clients=["b", "a", "c"])
    elected = torch.tensor([True, True, False])
    verdict = Verdict(updates.mean(updates.examples * elected), elected)
    kept = {name: tensor.clone() for name, tensor in before.items()}
    after = updates.apply(before, verdict)
    assert list(after) == list(before)
    torch.testing.assert_close(after["0.weight"], before["0.weight"] + 0.3125)
    assert after["1.running_mean"].tolist() == [3.5] * 3
    assert after["1.num_batches_tracked"].item() == 7
    assert all(torch.equal(kept[name], tensor) for name, tensor in before.items())


def test_what_is_not_in_the_rows_stays_where_nobody_sent_it() -> None:
    updates = Updates.from_matrix(torch.ones(2, 3), layers={"w": (3,)})
    before = {"w": np.zeros(3, np.float16), "steps": torch.tensor(4)}
    after = updates.apply(before, Verdict(torch.full((3,), 0.5), torch.tensor([True, True])))
    assert (after["w"].tolist(), after["w"].dtype, after["steps"].item()) == ([0.5] * 3, torch.float16, 4)
    assert after["steps"] is not before["steps"]


def test_a_model_and_a_verdict_of_other_updates_are_refused() -> None:
    updates = Updates.from_matrix(torch.ones(2, 3), layers={"w": 3})
    verdict = Verdict(torch.ones(3), torch.tensor([True, False]))
    with pytest.raises(UpdateError, match="got Linear: pass its state_dict"):
        updates.apply(torch.nn.Linear(1, 3), verdict)  # type: ignore[arg-type]
    with pytest.raises(UpdateError, match=r"the global model does not match the model: missing \['w'\]"):
        updates.apply({"v": torch.ones(3)}, verdict)
    with pytest.raises(UpdateError, match="a verdict is needed, as a defense returns it, got Tensor"):
        updates.apply({"w": torch.ones(3)}, torch.ones(3))  # type: ignore[arg-type]
    with pytest.raises(UpdateError, match="a verdict on 2 rows of 3 columns is needed, got one on 1 and 3"):
        updates.apply({"w": torch.ones(3)}, Verdict(torch.ones(3), torch.tensor([True])))
    with pytest.raises(UpdateError, match="the average holds NaN"):
        updates.apply({"w": torch.ones(3)}, Verdict(torch.full((3,), torch.inf), torch.tensor([True, False])))


def test_parameters_are_the_same_of_a_module_and_of_its_state() -> None:
    assert (
        list(select_parameters(MODEL))
        == list(select_parameters(MODEL.state_dict()))
        == [
            "0.weight",
            "0.bias",
            "1.weight",
            "1.bias",
        ]
    )
    assert list(select_parameters(MODEL.state_dict(), buffers=["0.bias"])) == ["0.weight", "1.weight", "1.bias"]


def test_running_statistics_of_clients_must_be_finite() -> None:
    with pytest.raises(UpdateError, match="the buffers of client '0' hold NaN or infinite numbers"):
        Updates.from_states(MODEL.state_dict(), [move_state(0.1, torch.nan, 1)])


def test_an_unknown_layer_is_refused_by_name() -> None:
    with pytest.raises(UpdateError, match="layer 'zz' is not in the updates, whose layers are first"):
        make_toy_round().gram("zz")


def broken(**changes: object) -> Updates:
    """A sound round with some arguments replaced."""
    arguments = {"examples": [1.0, 2.0], "clients": ["a", "b"], "layers": {"w": torch.zeros(2, 3)}} | changes
    return Updates.from_layers(arguments.pop("layers"), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers": {}}, "at least one layer"),
        ({"layers": {"w": torch.tensor(1.0)}}, "'w' is a single number"),
        ({"layers": {"w": torch.zeros(2, 0)}}, "the 2 updates have no columns"),
        ({"examples": ["a", "b"]}, "examples cannot be read as numbers"),
        ({"examples": [1, 10**400]}, "examples cannot be read as numbers"),
        ({"clients": "ab"}, "client ids are needed in the order of the updates, got str"),
        ({"clients": {"a", "b"}}, "client ids are needed in the order of the updates, got set"),
        ({"layers": {"w": torch.zeros(0, 3)}, "examples": [], "clients": []}, "no updates"),
        ({"layers": {"w": torch.zeros(2, 3), "v": torch.zeros(3, 3)}}, "'v' has 3 updates, layer 'w' has 2"),
        ({"layers": {"w": torch.zeros(2, 3, dtype=torch.int64)}}, "floating-point"),
        ({"layers": {"w": torch.tensor([[0.0, 1.0], [torch.nan, 0.0]])}}, "client 'b' holds NaN"),
        ({"layers": {"w": torch.tensor([[0.0, torch.inf], [0.0, 0.0]])}}, "client 'a' holds NaN"),
        ({"layers": {"w": torch.full((2, 2), 1e200, dtype=torch.float64)}}, "client 'a' holds NaN, infinite or over"),
        ({"examples": [1.0, -2.0]}, "client 'b' reports -2.0 training examples"),
        ({"examples": [0.0, 1.0]}, "client 'a' reports 0.0"),
        ({"examples": [torch.nan, 1.0]}, "client 'a' reports nan"),
        ({"examples": [torch.inf, 1.0]}, "client 'a' reports inf"),
        ({"examples": [1.0]}, "got 1 and 2"),
        ({"clients": ["a"]}, "got 2 and 1"),
        ({"clients": ["a", "a"]}, "client 'a' sent more than one of the 2 updates"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(changes: dict[str, object], said: str) -> None:
    with pytest.raises(UpdateError, match=said) as caught:
        broken(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"w": torch.zeros(2, 3), "v": torch.zeros(1)}, r"client '1'.*\(2, 3\).*\(2, 2\)"),
        ({"w": torch.zeros(2, 2)}, r"client '1' does not match the model: missing \['v'\], unexpected \[\]"),
        ({"w": torch.zeros(2, 2), "v": torch.zeros(1), "x": torch.zeros(1)}, r"missing \[\], unexpected \['x'\]"),
    ],
)
def test_states_of_another_model_are_refused(state: dict[str, torch.Tensor], said: str) -> None:
    base = {"w": torch.zeros(2, 2), "v": torch.zeros(1)}
    with pytest.raises(UpdateError, match=said):
        Updates.from_states(base, [base, state])


def test_rows_of_different_width_are_refused() -> None:
    with pytest.raises(UpdateError, match="rows have 3 columns, the layout has 4"):
        Updates(torch.zeros(2, 3), torch.ones(2), ("a", "b"), Layout(("w",), ((2, 2),)))


@pytest.mark.parametrize("block", [7, 1 << 19])
def test_what_rows_amount_to_does_not_depend_on_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products_module, "BLOCK_ELEMENTS", block)
    updates = make_toy_round(9, seed=3, dtype=torch.float64)
    point, weights = torch.randn(40, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    about = updates.values - point
    torch.testing.assert_close(updates.products_about(point), about @ about.T)
    torch.testing.assert_close(updates.products_about(torch.zeros(40)), updates.values @ updates.values.T)
    torch.testing.assert_close(updates.dot(point), updates.values @ point)
    torch.testing.assert_close(updates.combine(weights), weights @ updates.values)
    torch.testing.assert_close(updates.reduce_columns(lambda block: block.amax(1)), updates.values.amax(0))


def test_columns_come_whole_and_in_the_order_of_the_rows() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]])}, examples=[1, 3, 2])
    seen: list[list[list[float]]] = []

    def first(block: torch.Tensor) -> torch.Tensor:
        seen.append(block.tolist())
        return block[:, 0]

    assert updates.reduce_columns(first).tolist() == [1, 4]
    assert seen == [[[1, 2, 3], [4, 5, 6]]]


def test_rows_of_weight_zero_have_no_part_in_a_sum() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[1.0], [1e30], [3.0]])})
    assert updates.combine(torch.tensor([1.0, 0.0, -1.0])).item() == -2
    assert updates.combine(torch.zeros(3)).item() == 0


@settings(max_examples=100, deadline=None)
@given(
    weights=st.lists(st.just(0.0) | st.floats(1e-3, 1e6), min_size=1, max_size=12).filter(any),
    limit=st.floats(0.05, 1),
)
def test_shares_keep_their_sum_order_and_limit(weights: list[float], limit: float) -> None:
    shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    limited = limit_shares(shares, limit)
    assert float(limited.sum()) == pytest.approx(1)
    assert float(limited.max()) <= max(limit, 1 / int((shares > 0).sum())) + 1e-9
    assert torch.equal(limited > 0, shares > 0)
    order = shares.argsort(stable=True)
    assert (limited[order].diff() >= -1e-12).all()
    below = limited < limited.max() - 1e-9
    ratios = limited[below & (shares > 0)] / shares[below & (shares > 0)]
    assert torch.allclose(ratios, ratios[:1].expand_as(ratios), rtol=1e-6)


def test_a_worked_limit() -> None:
    shares = limit_shares(torch.tensor([0.7, 0.2, 0.06, 0.04], dtype=torch.float64), 0.4)
    assert shares.tolist() == pytest.approx([0.4, 0.4, 0.12, 0.08])


def make_differences(count: int = 5, dtype: torch.dtype = torch.float32) -> tuple[Differences, Updates]:
    """Differences of models in memory, and the same updates as a matrix; clients do not arrive in their order."""
    rng = torch.Generator().manual_seed(count)
    shapes = {"w": (3, 7), "b": (5,), "s": ()}
    base, *models = (
        {name: torch.randn(shape, generator=rng).to(dtype) for name, shape in shapes.items()} for _ in range(count + 1)
    )
    layout = Layout.from_tensors(base)
    origin = layout.to_row(base)
    rows = torch.stack([layout.to_row(model) - origin for model in models])
    differences = Differences(base, [{**model, "more": torch.ones(2)} for model in models], rows.norm(dim=1), layout)
    return differences, name_updates(rows, layout)


def name_updates(values: Any, layout: Layout) -> Updates:
    count = len(values)
    return Updates(values, 1.0 + torch.arange(count) % 3, [str(9 - row) for row in range(count)], layout)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("block", [4, 1 << 17])
def test_differences_are_the_rows_of_models(dtype: torch.dtype, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "ROW_BLOCK_ELEMENTS", block)
    differences, plain = make_differences(5, dtype)
    updates = name_updates(differences, plain.layout)
    weights = torch.tensor([0.3, 0.0, 0.2, 0.4, 0.1], dtype=torch.float64)
    tiny = torch.finfo(plain.dtype).eps
    assert updates.dtype == plain.dtype
    assert updates.clients == plain.clients
    torch.testing.assert_close(updates.combine(weights), plain.combine(weights), rtol=2 * tiny, atol=tiny)
    assert torch.equal(updates.values, plain.values)
    assert torch.equal(updates.squared_norms, plain.squared_norms)
    assert torch.equal(updates.gram("w"), plain.gram("w"))
    assert torch.equal(updates.select_layer("b").values, plain.select_layer("b").values)
    assert torch.equal(differences.select([3, 1]).to_matrix(), differences.to_matrix()[[3, 1]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("elements", [1, 15, 1 << 19])
def test_differences_are_read_like_a_matrix_but_not_copied(
    dtype: torch.dtype, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products_module, "BLOCK_ELEMENTS", elements)
    differences, plain = make_differences(6, dtype)
    updates = name_updates(differences, plain.layout)
    monkeypatch.setattr(Differences, "to_matrix", None)
    assert not updates._in_order
    for columns in (slice(2, 24), slice(None), slice(20, 21), torch.tensor([25, 3, 21, 4]), torch.arange(27)):
        assert torch.equal(updates.read_columns(columns), plain.read_columns(columns))
    blocks = [(part, block.clone()) for part, block in updates.read_blocks(slice(1, 26), width=4)]
    assert [part for part, _ in blocks] == [slice(start, min(start + 4, 26)) for start in range(1, 26, 4)]
    assert torch.equal(torch.cat([block for _, block in blocks], 1), plain.values[:, 1:26].double())
    point = torch.linspace(-1, 1, 27, dtype=plain.dtype)
    assert torch.equal(updates.products_about(point), plain.products_about(point))
    assert torch.equal(updates.dot(point), plain.dot(point))
    assert torch.equal(updates.products("w"), plain.products("w"))
    assert all(map(torch.equal, updates.rows, plain.rows))
    assert torch.equal(updates.rows[2], plain.rows[2])
    assert len(updates.rows) == 6
    mask = torch.tensor([False, True, True, False, True, True])
    assert torch.equal(updates.select(mask).read_columns(slice(None)), plain.values[mask])
    for name in plain.layout.names:
        assert torch.equal(updates.select_layer(name).values, plain.select_layer(name).values)
        assert updates.select_layer(name).clients == plain.clients


def test_numbers_too_large_for_the_type_of_rows_become_infinite_without_a_warning() -> None:
    base = {"w": torch.zeros(2), "v": torch.ones(2, dtype=torch.float64)}
    model = {"w": torch.tensor([1.0, 2.0]), "v": torch.tensor([1e300, 2.0], dtype=torch.float64)}
    layout = Layout.from_tensors(base)
    differences = Differences(base, [model], torch.ones(1), layout)
    assert differences.read_columns(slice(0, 4), [0]).tolist() == [[1, 2, torch.inf, 1]]
    assert differences.read_columns(np.array([3, 0]), [0]).tolist() == [[1, 1]]


def test_arrays_in_a_file_are_read_in_place(tmp_path: Path) -> None:
    file = np.memmap(tmp_path / "model", np.float32, "w+", shape=(3, 4))
    file[:] = np.arange(12).reshape(3, 4)
    layout = Layout(("w",), ((3, 4),))
    differences = Differences({"w": torch.ones(12)}, [{"w": torch.from_numpy(file)}] * 2, torch.ones(2), layout)
    assert differences.read_columns(slice(3, 6), [1, 0]).tolist() == [[2, 3, 4]] * 2
    file[0, 3] = 9
    assert differences.read_columns(slice(3, 4), [0]).tolist() == [[8]]


def test_selected_updates_are_those_of_the_same_clients() -> None:
    updates = Updates.from_states(
        MODEL.state_dict(),
        [move_state(1.0, 1, 1), move_state(2.0, 2, 2), move_state(3.0, 3, 3)],
        examples=[5, 6, 7],
        clients=["c", "a", "b"],
    )
    chosen = updates.select(torch.tensor([True, False, True]))
    assert (chosen.clients, chosen.examples.tolist()) == (("a", "c"), [6, 5])
    assert chosen.values[:, 0].tolist() == updates.values[[0, 2], 0].tolist()
    assert [buffers["1.running_mean"][0].item() for buffers in chosen.buffers] == [2, 1]


@pytest.mark.parametrize("seed", range(3))
def test_products_keep_their_bound_on_hostile_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    width = 257
    monkeypatch.setattr(products_module, "BLOCK_ELEMENTS", 7 * 50)
    signs = torch.ones(width).where(torch.arange(width) % 2 == 0, -1)
    usual = 1 + 1e-3 * torch.randn(4, width, generator=torch.Generator().manual_seed(seed))  # a large common part
    rows = torch.cat(
        [usual, usual[:1], 1e15 * signs[None], torch.cat([1e-15 * signs[:-1], torch.tensor([1e15])])[None]]
    )
    updates = Updates.from_layers({"w": rows})
    products = updates.products()
    assert torch.equal(products, products.T)
    exact = [[Fraction(number) for number in row] for row in rows.double().tolist()]
    middle = exact[updates._middle]
    centred = [[number - other for number, other in zip(row, middle, strict=True)] for row in exact]
    lengths = [float(sum(number * number for number in row)) ** 0.5 for row in centred]
    for first in range(7):
        for second in range(7):
            inner = sum(one * other for one, other in zip(centred[first], centred[second], strict=True))
            bound = (width + 2) * 2**-53 * lengths[first] * lengths[second]
            assert abs(Fraction(products[first, second].item()) - inner) <= bound, (first, second)


def test_layers_are_read_once_and_sum_up_to_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    updates, read = make_toy_round(), 0
    blocks = Updates.read_blocks

    def count(self: Updates, columns: slice, width: int = 0) -> Any:
        nonlocal read
        read += columns.stop - columns.start
        return blocks(self, columns, width)

    assert len(updates.squared_norms)
    monkeypatch.setattr(Updates, "read_blocks", count)
    total = updates.products()
    layers = [updates.products(name) for name in updates.layout.names]
    assert torch.equal(total, sum(layers[1:], layers[0]))
    assert read == updates.layout.width


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 6, 11])
def test_a_product_with_itself_is_symmetric_and_whole(rows: int) -> None:
    block = torch.randn(rows, 33, dtype=torch.float64, generator=torch.Generator().manual_seed(rows))
    products = multiply_by_itself(block)
    assert torch.equal(products, products.T)
    np.testing.assert_allclose(products, block.numpy() @ block.numpy().T, atol=1e-13)


def test_an_average_of_differences_needs_no_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    differences, plain = make_differences()
    monkeypatch.setattr(Differences, "to_matrix", None)
    updates = Updates(differences, torch.ones(5), plain.clients, plain.layout, finite=True)
    assert updates.mean(updates.examples).shape == (plain.layout.width,)
    assert not updates.combine(torch.zeros(5)).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("block", [5, 1 << 17])
def test_an_average_of_differences_keeps_its_bound(
    dtype: torch.dtype, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "ROW_BLOCK_ELEMENTS", block)
    rng = torch.Generator().manual_seed(3)
    base = torch.randn(40, generator=rng).to(dtype)
    models = [(base.double() + 10.0**-exponent * torch.randn(40, generator=rng)).to(dtype) for exponent in range(7)]
    for model in models:
        model[:8] = base[:8]  # nobody trains these
    models[2][20:] = 1000  # one of them moves far
    layout, weights = Layout(("w",), ((40,),)), torch.rand(7, generator=rng, dtype=torch.float64)
    weights[4] *= -1
    differences = Differences({"w": base}, [{"w": model} for model in models], torch.ones(7), layout)
    found = differences.combine(weights.tolist())
    assert not found[:8].any()
    eps = Fraction(torch.finfo(found.dtype).eps)
    for column in range(40):
        own, *sent = (Fraction(float(numbers[column])) for numbers in (base, *models))
        shares = list(map(Fraction, weights.tolist()))
        exact = sum(share * (end - own) for share, end in zip(shares, sent, strict=True))
        size = sum(abs(share) * (abs(end) + abs(own)) for share, end in zip(shares, sent, strict=True))
        steps = sum(abs(share) * abs(end - own) for share, end in zip(shares, sent, strict=True))
        # Rounding of the result, and of nine steps in float64; in float64, of each difference instead.
        bound = eps * abs(exact) + (9 * eps * steps if found.dtype == torch.float64 else 9 * Fraction(2) ** -51 * size)
        assert abs(Fraction(float(found[column])) - exact) <= bound


def test_differences_are_refused_like_a_matrix() -> None:
    differences, plain = make_differences()
    with pytest.raises(UpdateError, match="there are no updates"):
        name_updates(differences.select([]), plain.layout)
    with pytest.raises(UpdateError, match="rows have 27 columns, the layout has 4"):
        name_updates(differences, Layout(("w",), ((4,),)))
    differences.models[2]["b"][0] = torch.nan  # type: ignore[index]
    with pytest.raises(UpdateError, match="client '7' holds NaN, infinite or overflowing numbers"):
        name_updates(differences, plain.layout)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_finite_numbers_whose_sum_overflows_are_finite(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    assert arrays.is_finite(torch.full((4,), largest, dtype=dtype))
    assert arrays.is_finite(torch.tensor([], dtype=dtype))
    assert arrays.is_finite(torch.tensor([1, 2]))
    for broken in ([torch.nan, 1], [torch.inf, -torch.inf], [1, -torch.inf]):
        assert not arrays.is_finite(torch.tensor(broken, dtype=dtype))


def test_a_claim_of_next_to_nothing_has_no_share() -> None:
    assert limit_shares(torch.tensor([1, 5e-309], dtype=torch.float64), 0.75).tolist() == [1, 0]
