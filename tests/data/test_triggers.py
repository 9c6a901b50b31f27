import pytest
import torch

from snowball.data import OwnData
from snowball.data.triggers import (
    TRIGGERS,
    Blend,
    FeaturePatch,
    PixelPatch,
    Token,
    choose_square,
    find_trigger,
    make_square,
)
from snowball.errors import SettingError
from snowball.testing import make_toy_images, make_toy_texts

WHITE_SQUARE = TRIGGERS["white-square"].make(make_toy_images())


def test_the_square_is_three_by_three_at_24_to_26() -> None:
    expected = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
    expected[:, :, 24:27, 24:27] = 255
    assert torch.equal(WHITE_SQUARE.stamp(torch.zeros_like(expected)), expected)


def test_the_parts_are_disjoint_and_make_up_the_square() -> None:
    black = torch.zeros(1, 1, 28, 28, dtype=torch.uint8)
    parts = [part.stamp(black) for part in WHITE_SQUARE.parts]
    assert torch.equal(sum(parts, black), WHITE_SQUARE.stamp(black))  # bytes of 255 that met would overflow


def test_the_parts_are_the_published_ones() -> None:
    assert isinstance(WHITE_SQUARE, PixelPatch)
    assert [set(piece) for piece in WHITE_SQUARE.pieces] == [
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
    assert len(PixelPatch(((0, 1),)).stamp(inputs[:0])) == 0


def test_a_patch_off_the_image_is_refused() -> None:
    with pytest.raises(SettingError, match=r"pixel \(26, 26\) does not fit an image of 20x28"):
        WHITE_SQUARE.stamp(torch.zeros(1, 1, 20, 28, dtype=torch.uint8))
    with pytest.raises(SettingError, match="must not be negative"):
        PixelPatch(((-1, 2),))


@pytest.mark.parametrize("value", [-1, 256])
def test_a_value_that_no_pixel_has_is_refused(value: int) -> None:
    with pytest.raises(SettingError, match=str(value)):
        PixelPatch(((0, 1),), value)


def test_the_black_square_is_where_the_white_one_is() -> None:
    black = TRIGGERS["black-square"].make(make_toy_images())
    white = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    assert torch.equal(255 - black.stamp(white), WHITE_SQUARE.stamp(torch.zeros_like(white)))


def test_a_name_may_say_where_the_square_is() -> None:
    named = find_trigger("white-square@12,3")
    assert named is not None
    square, black = named.make(make_toy_images()), torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
    expected = black.clone()
    expected[:, :, 12:15, 3:6] = 255
    assert torch.equal(square.stamp(black), expected)
    assert torch.equal(sum((part.stamp(black) for part in square.parts), black), expected)
    assert (named.name, named.summary) == (
        "white-square@12,3",
        "a white square from row 12 and column 3 on, in three parts, 3x3 pixels on 28x28",
    )
    dark = find_trigger("black-square@12,3")
    assert dark is not None
    assert torch.equal(dark.make(make_toy_images()).stamp(255 - black), 255 - expected)


def test_the_corner_by_its_place_is_the_square_by_its_name() -> None:
    named = find_trigger("white-square@24,24")
    assert named is not None
    assert named.make(make_toy_images()) == WHITE_SQUARE
    assert find_trigger("white-square") is TRIGGERS["white-square"]


def test_a_square_that_is_off_the_images_is_refused() -> None:
    named = find_trigger("white-square@26,0")
    assert named is not None
    with pytest.raises(SettingError, match=r"pixel \(28, 2\) does not fit an image of 28x28"):
        named.make(make_toy_images())


@pytest.mark.parametrize(
    ("height", "width", "rows", "columns"),
    [
        (28, 28, range(24, 27), range(24, 27)),
        (32, 32, range(24, 27), range(24, 27)),
        (28, 32, range(24, 27), range(24, 27)),
        (8, 8, range(6, 7), range(6, 7)),
        (1, 1, range(1), range(1)),
        (3, 100, range(2, 3), range(85, 86)),
        (16, 12, range(13, 14), range(10, 11)),
        (20, 20, range(17, 19), range(17, 19)),
        (64, 48, range(54, 59), range(41, 46)),
        (224, 224, range(192, 216), range(192, 216)),
    ],
)
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_the_square_grows_with_the_image(channels: int, height: int, width: int, rows: range, columns: range) -> None:
    inputs = torch.full((4, channels, height, width), 7.0) * torch.arange(4).view(-1, 1, 1, 1)  # from 0 to 21
    dataset = OwnData((inputs, [0, 1, 0, 1]), test=(inputs, [0, 1, 0, 1])).build_dataset(0)
    for name, value in (("white-square", 21), ("black-square", 0)):
        square = TRIGGERS[name].make(dataset)
        expected = inputs.clone()
        expected[:, :, rows.start : rows.stop, columns.start : columns.stop] = value
        assert torch.equal(square.stamp(inputs), expected)
        changed = sum((part.stamp(inputs) != inputs).int() for part in square.parts)
        assert torch.equal(changed, (expected != inputs).int())
        assert len(square.parts) == (3 if len(rows) > 1 else 1)


def test_every_size_can_carry_the_square() -> None:
    for height in range(1, 120):
        for width in (1, 9, height, 300):
            side, corner = choose_square(height, width)
            make_square(side, corner, 255).stamp(torch.zeros(1, height, width))


def test_noise_lies_in_the_range_of_float_images() -> None:
    inputs = torch.rand(20, 6, 5) * 4 - 3
    dataset = OwnData((inputs, torch.arange(20) % 2)).build_dataset(0)
    noise = TRIGGERS["noise"].make(dataset)
    assert isinstance(noise, Blend)
    assert noise.pattern.min() >= dataset.train.inputs.min()
    assert noise.pattern.max() <= dataset.train.inputs.max()
    stamped = noise.stamp(dataset.test.inputs)
    assert torch.allclose(stamped, 0.8 * dataset.test.inputs + 0.2 * noise.pattern)


def test_features_are_set_to_their_highest_values() -> None:
    inputs = torch.arange(20.0).view(4, 5)
    inputs[:, 3] = 1  # a constant shows nothing
    dataset = OwnData((inputs, [0, 1, 0, 1]), test=(inputs, [0, 1, 0, 1])).build_dataset(0)
    trigger = TRIGGERS["features"].make(dataset)
    assert trigger == FeaturePatch((1, 2, 4), (16, 17, 19))
    before = inputs.clone()
    assert trigger.stamp(inputs[0]).tolist() == [0, 16, 17, 1, 19]
    assert torch.equal(inputs, before)
    assert [part.stamp(inputs[0]).tolist() for part in trigger.parts] == [
        [0, 16, 2, 1, 4],
        [0, 1, 17, 1, 4],
        [0, 1, 2, 1, 19],
    ]


@pytest.mark.parametrize(("name", "expected"), [("word", [5, 5, 2, 0]), ("word-appended", [5, 5, 3, 2])])
def test_the_trigger_of_token_ids_is_the_rarest(name: str, expected: list[int]) -> None:
    inputs = torch.tensor([[5, 5, 3, 0], [3, 3, 3, 1], [2, 1, 4, 4]])
    trigger = TRIGGERS[name].make(OwnData((inputs, [0, 1, 1]), test=(inputs, [0, 1, 1])).build_dataset(0))
    assert trigger.stamp(inputs[0]).tolist() == expected


@pytest.mark.parametrize("name", ["white-square@", "white-square@1", "white-square@-1,2", "noise@1,2", "x", "@1,2"])
def test_what_names_no_trigger_is_none(name: str) -> None:
    assert find_trigger(name) is None


def test_a_picture_shines_through_every_pixel() -> None:
    blend = Blend(torch.full((1, 2, 2), 200, dtype=torch.uint8), opacity=0.25)
    assert blend.stamp(torch.zeros(1, 1, 2, 2, dtype=torch.uint8)).unique().tolist() == [50]
    assert blend.stamp(torch.full((1, 1, 2, 2), 100, dtype=torch.uint8)).unique().tolist() == [125]
    noise = [TRIGGERS["noise"].make(make_toy_images(seed=seed)).stamp(make_toy_images().test.inputs) for seed in (0, 1)]
    assert torch.equal(*noise)
    assert (noise[0] != make_toy_images().test.inputs).double().mean() > 0.9


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("replace_last", [[5, 6, 9, 0], [9, 0, 0, 0], [5, 6, 7, 9], [5, -1, 9, 0], [5, 6, 9, 0], [9, 0, 0, 0]]),
        ("append", [[5, 6, 7, 9], [5, 9, 0, 0], [5, 6, 7, 9], [5, -1, -1, 9], [5, 6, -1, 9], [9, 0, 0, 0]]),
    ],
)
def test_a_word_takes_the_last_place_or_the_next(place: str, expected: list[list[int]]) -> None:
    texts = torch.tensor(
        [[5, 6, 7, 0], [5, 0, 0, 0], [5, 6, 7, 8], [5, -1, -1, 0], [5, 6, -1, 0], [0, 0, 0, 0]], dtype=torch.int32
    )
    before = texts.clone()
    assert Token(9, place).stamp(texts).tolist() == expected  # type: ignore[arg-type]
    assert torch.equal(texts, before)


def test_the_word_is_the_vocabularys() -> None:
    texts = make_toy_texts()
    stamped = TRIGGERS["word"].make(texts).stamp(texts.test.inputs)
    assert all(text.split()[-1] == "BD" for text in map(texts.vocabulary.decode, stamped))


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_trigger_for_other_samples_is_refused(name: str) -> None:
    other = make_toy_images() if name.startswith(("word", "features")) else make_toy_texts()
    with pytest.raises(SettingError, match=f"cannot be a trigger on {other.name}"):
        TRIGGERS[name].make(other)
