import torch

from benchmarks.measuring.operations import count_step_operations
from benchmarks.speed.step import BATCH, PARTS, build_network, count_traffic


def test_the_parts_have_all_operations_and_every_weight() -> None:
    model, inputs = build_network(), torch.zeros(BATCH, 1, 28, 28)
    work = count_traffic(model, inputs)
    weights = sum(weight.numel() for weight in model.parameters())
    assert set(work) < set(PARTS)
    assert sum(done for done, _ in work.values()) == count_step_operations(model, inputs)
    assert work["SGD"] == (0, 5 * weights)
    assert work["dense layers"][1] > 3 * sum(model.get_parameter(f"fc{n}.weight").numel() for n in (1, 2))
