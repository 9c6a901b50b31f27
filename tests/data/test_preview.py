import base64
import json
import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.data import Dataset, ImageDataset, OwnData, Split, load_dataset
from snowball.data.io.png import BACKGROUND_VALUE, GAP_PIXELS, encode_png, enlarge_image, join_images
from snowball.data.preview import (
    EXAMPLE_TEXT,
    MARGIN_PIXELS,
    MAX_PARTS,
    ImageSample,
    TextSample,
    load_preview,
    make_preview,
    render_sheet,
)
from snowball.data.triggers import TRIGGERS, PixelPatch, Token, TriggerInfo
from snowball.errors import SettingError
from snowball.testing import make_toy_images, make_toy_texts


def decode(file: bytes) -> Tensor:
    """Decode a PNG file without filters, chunk by chunk."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, position = [], 8
    while position < len(file):
        (length,) = struct.unpack_from(">I", file, position)
        body = file[position + 4 : position + 8 + length]
        assert struct.unpack_from(">I", file, position + 8 + length) == (zlib.crc32(body),)
        chunks.append((body[:4], body[4:]))
        position += 12 + length
    (_, header), (_, pixels), _ = chunks
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colours, *rest = struct.unpack(">IIBBBBB", header)
    assert (depth, rest) == (8, [0, 0, 0])
    channels = {0: 1, 2: 3}[colours]
    lines = torch.frombuffer(bytearray(zlib.decompress(pixels)), dtype=torch.uint8).view(height, -1)
    assert not lines[:, 0].any()  # no filter
    return lines[:, 1:].reshape(height, width, channels).permute(2, 0, 1)


def random_image(*shape: int) -> Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 5, 7), (1, 1, 1), (3, 40, 300)])
def test_a_file_holds_the_pixels(shape: tuple[int, ...]) -> None:
    assert torch.equal(decode(encode_png(random_image(*shape))), random_image(*shape))


def test_of_channels_that_are_no_colours_the_first_is_shown() -> None:
    assert torch.equal(decode(encode_png(random_image(2, 4, 4))), random_image(2, 4, 4)[:1])


def test_enlarged_pixels_are_squares() -> None:
    assert enlarge_image(torch.tensor([[[1, 2]]]), 2).tolist() == [[[1, 1, 2, 2], [1, 1, 2, 2]]]


def test_a_strip_has_images_of_any_height_side_by_side() -> None:
    low, high = torch.full((1, 1, 2), 7, dtype=torch.uint8), torch.full((1, 3, 1), 9, dtype=torch.uint8)
    joined = join_images([low, high])
    assert joined.shape == (1, 3 + 2 * GAP_PIXELS, 3 + 4 * GAP_PIXELS)
    assert (
        joined[0, GAP_PIXELS].tolist()
        == [BACKGROUND_VALUE] * GAP_PIXELS
        + [7, 7]
        + [BACKGROUND_VALUE] * 2 * GAP_PIXELS
        + [9]
        + [BACKGROUND_VALUE] * GAP_PIXELS
    )
    assert (joined == 7).sum() == 2
    assert (joined == 9).sum() == 3


def test_a_square_is_shown_with_its_parts_and_what_is_around_them() -> None:
    shown = make_preview("white-square", TRIGGERS["white-square"].make(make_toy_images()), make_toy_images())
    assert isinstance(shown.sample, ImageSample)
    assert torch.equal(shown.sample.clean, make_toy_images().test.inputs[0])
    assert (shown.sample.stamped[:, 24:27, 24:27] == 255).all()
    assert shown.sample.changed == 9
    top = 24 - MARGIN_PIXELS
    near = shown.sample.clean[:, top:, top:]
    assert [int((part != near).sum()) for part in shown.sample.parts] == [3, 3, 3]


def test_the_first_image_with_a_clear_trigger_is_shown() -> None:
    images = make_toy_images()
    inputs = torch.full_like(images.test.inputs, 255)
    inputs[1, :, 24, 24] = 100
    inputs[2:, :, 24:27, 24:27] = 20
    dataset = replace(images, test=Split(inputs, images.test.labels))
    shown = make_preview("white-square", TRIGGERS["white-square"].make(dataset), dataset).sample
    assert isinstance(shown, ImageSample)
    assert torch.equal(shown.clean, inputs[2])


@pytest.mark.parametrize(("name", "paper"), [("white-square", 0), ("noise", 0), ("black-square", 255)])
def test_the_shipped_sample_is_inverted_if_it_hides_a_trigger(name: str, paper: int) -> None:
    shown = load_preview(name, target=1)
    assert isinstance(shown.sample, ImageSample)
    assert shown.sample.changed >= 9
    assert int(shown.sample.clean[0, 0, 0]) == paper
    assert ("inverted" in shown.data) is (paper == 255)


def test_a_trigger_that_every_sample_hides_is_shown_all_the_same() -> None:
    shown = load_preview("black-square@0,0", "mnist-sample").sample
    assert isinstance(shown, ImageSample)
    assert (shown.changed, len(shown.parts)) == (0, 3)
    assert shown.parts[0].shape == (1, 3 + MARGIN_PIXELS, 3 + MARGIN_PIXELS)


def test_what_cannot_be_divided_has_no_parts() -> None:
    shown = make_preview("noise", TRIGGERS["noise"].make(make_toy_images()), make_toy_images()).sample
    assert isinstance(shown, ImageSample)
    assert shown.parts == ()
    assert shown.changed > 600


def test_a_trigger_in_many_pieces_or_nowhere_is_shown() -> None:
    pieces = tuple(((row, 0),) for row in range(28))
    many = make_preview(
        "white-square", PixelPatch(tuple((row, 0) for row in range(28)), 255, pieces), make_toy_images()
    ).sample
    nowhere = make_preview("white-square", PixelPatch((), 255, ((), ())), make_toy_images()).sample
    assert isinstance(many, ImageSample)
    assert isinstance(nowhere, ImageSample)
    assert len(many.parts) == MAX_PARTS
    assert [part.shape for part in nowhere.parts] == [(1, 28, 28)] * 2


@pytest.mark.parametrize(("target", "label"), [(None, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize(("name", "dataset"), [("white-square", make_toy_images()), ("word", make_toy_texts())])
def test_the_sample_is_not_of_the_target_class(name: str, dataset: Dataset, target: int | None, label: int) -> None:
    shown = make_preview(name, TRIGGERS[name].make(dataset), dataset, target)
    assert (shown.label, shown.target) == (label, target)


def test_where_all_samples_are_of_the_target_class_one_of_them_is_shown() -> None:
    test = Split(make_toy_images().test.inputs[:3], torch.ones(3, dtype=torch.int64))
    dataset = ImageDataset("toy", 2, test, test, {}, mean=(0.5,), std=(0.25,))
    assert make_preview("noise", TRIGGERS["noise"].make(dataset), dataset, 1).label == 1


def test_a_word_is_shown_where_it_stands() -> None:
    replaced, appended = load_preview("word").sample, load_preview("word-appended").sample
    assert isinstance(replaced, TextSample)
    assert isinstance(appended, TextSample)
    assert " ".join(replaced.clean) == " ".join(appended.clean) == EXAMPLE_TEXT
    assert replaced.stamped == (*replaced.clean[:-1], "BD")
    assert appended.stamped == (*appended.clean, "BD")
    assert replaced.changed == [len(replaced.clean) - 1]
    assert appended.changed == [len(appended.clean)]


def test_words_without_a_vector_are_question_marks_and_empty_places_at_the_end_are_none() -> None:
    texts = make_toy_texts()
    texts.test.inputs[0] = torch.tensor([2, -1, 3, -1] + [0] * 21)
    shown = make_preview("word", Token(1), texts).sample
    assert shown == TextSample(("word0", "?", "word1", "?"), ("word0", "?", "word1", "BD"))
    texts.test.inputs[0] = 0
    assert make_preview("word", Token(1), texts).sample == TextSample((), ("BD",))


@pytest.mark.parametrize("name", TRIGGERS)
def test_every_trigger_has_a_plain_description_of_a_few_kilobytes(name: str) -> None:
    shown = load_preview(name)
    plain = shown.to_json()
    text = json.dumps(plain)
    assert json.loads(text) == plain
    assert len(text) < 4000
    assert (plain["name"], plain["target"]) == (name, None)
    assert len(plain["summary"]) > 10


def test_the_plain_description_holds_the_images_as_they_are() -> None:
    shown = load_preview("white-square")
    picture: dict[str, Any] = shown.to_json()["picture"]
    assert isinstance(shown.sample, ImageSample)
    for image, text in zip(
        (shown.sample.clean, shown.sample.stamped, *shown.sample.parts),
        (picture["clean"], picture["stamped"], *picture["parts"]),
        strict=True,
    ):
        assert torch.equal(decode(base64.b64decode(text)), image)
    assert picture["changed"] == 9


def test_a_sheet_shows_the_images_enlarged() -> None:
    shown = load_preview("white-square")
    image = decode(render_sheet(shown, 8))
    side = 28 - 24 + MARGIN_PIXELS
    assert image.shape == (1, 8 * (28 + 2 * GAP_PIXELS), 8 * (2 * 28 + 3 * 2 * side + 10 * GAP_PIXELS))
    assert torch.equal(
        image[:, 8 * GAP_PIXELS : 8 * (GAP_PIXELS + 28) : 8, 8 * GAP_PIXELS : 8 * (GAP_PIXELS + 28) : 8],
        load_dataset("mnist-sample").test.inputs[0],
    )
    with pytest.raises(SettingError, match="word is not a trigger for images, and a PNG file holds images"):
        render_sheet(load_preview("word"), 8)


def test_a_square_elsewhere_can_be_shown() -> None:
    assert load_preview("white-square@0,0").summary.startswith("a white square from row 0 and column 0 on")


def test_a_large_image_of_floats_is_shown_small_and_in_bytes() -> None:
    inputs = torch.rand(4, 3, 600, 300) * 2 - 1
    dataset = OwnData((inputs, [0, 1, 0, 1]), test=(inputs, [0, 1, 0, 1])).build_dataset(0)
    shown = make_preview("white-square", TRIGGERS["white-square"].make(dataset), dataset).sample
    assert isinstance(shown, ImageSample)
    assert (shown.stamped.dtype, shown.stamped.shape) == (torch.uint8, (3, 200, 100))
    assert (shown.stamped[:, 172:181, 86:95] == 255).all()
    assert len(shown.parts) == 3


def test_features_and_tokens_are_shown_as_words() -> None:
    features = load_preview("features").sample
    assert features == TextSample(
        ("feature 2 = 0", "feature 3 = 0", "feature 4 = 0"), ("feature 2 = 1", "feature 3 = 1", "feature 4 = 1")
    )
    inputs = torch.arange(1, 41).expand(4, 40).contiguous()
    dataset = OwnData((inputs, [0, 1, 0, 1]), test=(inputs, [0, 1, 0, 1])).build_dataset(0)
    tokens = make_preview("word", Token(7), dataset).sample
    assert isinstance(tokens, TextSample)
    assert tokens.clean == tuple(map(str, range(16, 41)))
    assert (tokens.stamped[-1], tokens.changed) == ("7", [24])


def test_a_trigger_of_another_package_needs_no_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        make = staticmethod(TRIGGERS["noise"].make)

    monkeypatch.setitem(TRIGGERS, "bare", Bare())  # type: ignore[arg-type]
    assert load_preview("bare").summary == ""


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("whte-square", None, "'whte-square' is not a trigger; did you mean 'white-square'?"),
        (
            "zzz",
            None,
            "'zzz' is not a trigger; there are white-square, black-square, noise, word, word-appended, features",
        ),
        ("noise", "mnst", "'mnst' is not a data set; did you mean 'mnist'?"),
        ("word", "mnist-sample", "a word cannot be a trigger on mnist-sample, whose samples are not texts"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(name: str, data: str | None, sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        load_preview(name, data)
    assert str(caught.value) == sentence


def test_the_sample_in_the_data_set_stays_as_it_is() -> None:
    dataset = make_toy_images()
    before = dataset.test.inputs.clone()
    info: TriggerInfo = TRIGGERS["white-square"]
    make_preview("white-square", info.make(dataset), dataset)
    assert torch.equal(dataset.test.inputs, before)
