import pytest
import torch

from snowball.data import ImageDataset, Split
from snowball.errors import DataError


def small_split(count: int = 4) -> Split:
    inputs = torch.arange(count * 8, dtype=torch.uint8).view(count, 2, 2, 2)
    return Split(inputs, torch.arange(count))


def test_a_split_is_selected_by_index_and_by_mask() -> None:
    split = small_split()
    chosen = split[torch.tensor([3, 1])]
    assert chosen.labels.tolist() == [3, 1]
    assert torch.equal(chosen.inputs, split.inputs[[3, 1]])
    assert split[split.labels > 1].labels.tolist() == [2, 3]
    assert len(chosen) == 2


def test_samples_and_labels_must_pair_up() -> None:
    with pytest.raises(DataError, match="4 samples need as many labels"):
        Split(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.arange(3))


def test_normalising_works_a_channel_and_leaves_the_input() -> None:
    split = small_split()
    before = split.inputs.clone()
    data = ImageDataset("toy", 4, split, split, provenance={}, mean=(0.5, 0.25), std=(0.5, 2.0))
    normal = data.normalise(torch.tensor([[[[255]], [[0]]]], dtype=torch.uint8))
    assert normal.dtype == torch.float32
    assert normal.flatten().tolist() == [1.0, -0.125]
    assert data.normalise(split.inputs).shape == split.inputs.shape
    assert torch.equal(split.inputs, before)
    assert data.input_shape == (2, 2, 2)


def test_noise_covers_all_that_a_pixel_can_be() -> None:
    split = small_split()
    data = ImageDataset("toy", 4, split, split, provenance={}, mean=(0.5, 0.25), std=(0.5, 2.0))
    noise = data.draw_inputs(500, torch.Generator().manual_seed(0))
    assert (noise.shape, noise.dtype) == ((500, 2, 2, 2), torch.uint8)
    assert noise.unique().tolist() == list(range(256))
