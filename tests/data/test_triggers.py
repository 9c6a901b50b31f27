import pytest
import torch

from snowball.data.triggers import WHITE_SQUARE, WHITE_SQUARE_PARTS, PixelPatch, square
from snowball.errors import SettingError


def test_the_square_is_three_by_three_at_24_to_26() -> None:
    expected = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
    expected[:, :, 24:27, 24:27] = 255
    assert torch.equal(WHITE_SQUARE.stamp(torch.zeros_like(expected)), expected)


def test_the_parts_are_disjoint_and_make_up_the_square() -> None:
    pixels = [pixel for part in WHITE_SQUARE_PARTS for pixel in part.pixels]
    assert len(pixels) == len(set(pixels)) == 9
    assert set(pixels) == set(WHITE_SQUARE.pixels)
    assert all(part.value == WHITE_SQUARE.value for part in WHITE_SQUARE_PARTS)


def test_the_parts_are_the_published_ones() -> None:
    assert [set(part.pixels) for part in WHITE_SQUARE_PARTS] == [
        {(25, 24), (26, 24), (26, 25)},
        {(24, 24), (25, 25), (26, 26)},
        {(24, 25), (24, 26), (25, 26)},
    ]


def test_stamping_copies_and_touches_only_the_patch_in_every_channel() -> None:
    inputs = torch.randint(1, 255, (3, 2, 5, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    before = inputs.clone()
    stamped = PixelPatch(((0, 5), (4, 1)), value=0).stamp(inputs)
    assert torch.equal(inputs, before)
    changed = (stamped != inputs).nonzero()[:, 2:].unique(dim=0).tolist()
    assert changed == [[0, 5], [4, 1]]
    assert (stamped != inputs).sum() == 3 * 2 * 2
    assert stamped.dtype == torch.uint8


def test_no_pixels_and_no_samples_are_fine() -> None:
    inputs = torch.ones(2, 1, 4, 4, dtype=torch.uint8)
    assert torch.equal(PixelPatch(()).stamp(inputs), inputs)
    assert len(square(0, 1).stamp(inputs[:0])) == 0


def test_a_patch_off_the_image_is_refused() -> None:
    with pytest.raises(SettingError, match=r"pixel \(26, 26\) is off an image of 20x28"):
        WHITE_SQUARE.stamp(torch.zeros(1, 1, 20, 28, dtype=torch.uint8))
    with pytest.raises(SettingError, match="count from 0"):
        PixelPatch(((-1, 2),))


@pytest.mark.parametrize("value", [-1, 256])
def test_a_value_that_no_pixel_has_is_refused(value: int) -> None:
    with pytest.raises(SettingError, match=str(value)):
        square(0, 1, value)
