"""Triggers: patterns that an attacker stamps on samples. Attacks refer to them by name."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from snowball.data.base import Dataset
from snowball.data.features import FeatureDataset
from snowball.data.images import ImageDataset
from snowball.data.text import NO_WORD, TRIGGER_WORD, TextDataset
from snowball.data.tokens import TokenDataset
from snowball.errors import DataError, SettingError
from snowball.registry import Registry, make_instance
from snowball.rng import stream

PATCH_FEATURES = 3
"""Features that the trigger `features` sets."""


class Trigger(Protocol):
    """A pattern that can be stamped on raw samples."""

    @property
    def parts(self) -> tuple["Trigger", ...]:
        """The parts that attackers can divide among them; the trigger itself if it cannot be divided."""
        ...

    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a stamped copy of raw samples."""
        ...


@dataclass(frozen=True)
class PixelPatch:
    """Pixels set to one value in every channel.

    Attributes:
        pixels: (row, column) of each pixel.
        value: their raw value: an integer from 0 to 255 in images of bytes, any float in images of floats.
        pieces: the pixels of each part, if attackers may divide the patch among them.
    """

    pixels: tuple[tuple[int, int], ...]
    value: float = 255
    pieces: tuple[tuple[tuple[int, int], ...], ...] = ()

    def __post_init__(self) -> None:
        """Reject a patch that no image can carry."""
        if isinstance(self.value, int) and not 0 <= self.value <= 255:
            raise SettingError(f"a pixel's value must lie in 0..255, got {self.value}")
        if any(row < 0 or column < 0 for row, column in self.pixels):
            raise SettingError(f"rows and columns of a patch must not be negative, got {self.pixels}")

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """One patch per piece."""
        return tuple(PixelPatch(piece, self.value) for piece in self.pieces) or (self,)

    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a copy of raw samples (..., height, width) with the patch."""
        height, width = inputs.shape[-2:]
        rows = [row for row, _ in self.pixels]
        columns = [column for _, column in self.pixels]
        if self.pixels and (max(rows) >= height or max(columns) >= width):
            raise SettingError(
                f"a patch that extends to pixel ({max(rows)}, {max(columns)}) does not fit an image of {height}x{width}"
            )
        stamped = inputs.clone()
        stamped[..., rows, columns] = self.value
        return stamped


@dataclass(frozen=True, eq=False)
class Blend:
    """A faint pattern over the whole image.

    Attributes:
        pattern: (channels, height, width) raw pixels.
        opacity: share of the pattern in a stamped sample.
    """

    pattern: Tensor
    opacity: float = 0.2

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The whole pattern: it covers every pixel."""
        return (self,)

    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a copy of raw images with the pattern blended in."""
        mixed = inputs.float() * (1 - self.opacity) + self.pattern.float() * self.opacity
        return mixed if inputs.is_floating_point() else mixed.round().to(inputs.dtype)


@dataclass(frozen=True)
class FeaturePatch:
    """Features set to fixed values.

    Attributes:
        features: the index of each feature.
        values: their values.
    """

    features: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """One patch per feature."""
        pairs = zip(self.features, self.values, strict=True)
        return tuple(FeaturePatch((feature,), (value,)) for feature, value in pairs)

    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a copy of raw samples (..., features) with the values."""
        stamped = inputs.clone()
        stamped[..., list(self.features)] = torch.tensor(self.values, dtype=inputs.dtype, device=inputs.device)
        return stamped


@dataclass(frozen=True)
class Token:
    """A word that is inserted into texts.

    Attributes:
        number: the word's number in the vocabulary of the texts.
        position: "replace_last" replaces the last word, whether it has a vector or not, as the published experiments
            do; "append" adds the word after it, if there is room.
    """

    number: int
    position: Literal["replace_last", "append"] = "replace_last"

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The whole word: it cannot be divided."""
        return (self,)

    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a copy of raw texts (..., words) with the word in them."""
        length, is_word = inputs.shape[-1], inputs != NO_WORD
        ends = (torch.arange(length, device=inputs.device) * is_word).amax(-1, keepdim=True)  # 0 in an empty text
        if self.position == "append":
            ends = torch.where(is_word.any(-1, keepdim=True), ends + 1, ends).clamp(max=length - 1)
        return inputs.scatter(-1, ends, self.number)


@dataclass(frozen=True)
class TriggerInfo:
    """A known trigger.

    Attributes:
        make: makes the trigger for a data set, or raises a `SettingError` if its samples cannot carry it.
    """

    name: str
    summary: str
    make: Callable[[Dataset], Trigger]


def make_patch(
    colour: Literal["black", "white"], corner: tuple[int, int] | None = None
) -> Callable[[Dataset], Trigger]:
    """Return a maker of a square and its parts; its first pixel is at `corner`, or where `choose_square` puts it."""

    def make(dataset: Dataset) -> Trigger:
        images = require_images(dataset)
        side, usual_corner = choose_square(*images.input_shape[1:])
        square = make_square(side, corner or usual_corner, getattr(images, colour))
        square.stamp(dataset.test.inputs[:0])  # rejects a square that is not within the images
        return square

    return make


def choose_square(height: int, width: int) -> tuple[int, tuple[int, int]]:
    """Return the side of a square and the row and column of its first pixel on images of this size.

    The paper's images of 28x28 and 32x32 have 3x3 pixels at (24, 24); others have those of 28x28 in proportion.
    """
    if {height, width} <= {28, 32}:
        return 3, (24, 24)
    return max(1, round(min(height, width) * 3 / 28)), (height * 24 // 28, width * 24 // 28)


def make_square(side: int, corner: tuple[int, int], value: float) -> PixelPatch:
    """Make a square in three parts, below, on and above its diagonal; a single pixel has no parts."""
    cells = [(down, right) for down in range(side) for right in range(side)]
    parts = (
        [(down, right) for down, right in cells if down > right],
        [(down, right) for down, right in cells if down == right],
        [(down, right) for down, right in cells if down < right],
    )
    row, column = corner
    square, *pieces = (tuple((row + down, column + right) for down, right in part) for part in (cells, *parts))
    return PixelPatch(square, value, tuple(pieces) if side > 1 else ())


def make_noise(dataset: Dataset) -> Trigger:
    """Make a faint noise pattern, the same for all images of one shape and range."""
    images = require_images(dataset)
    noise = torch.randint(256, images.input_shape, generator=stream(0, "trigger", "noise"), dtype=torch.uint8)
    if not dataset.train.inputs.is_floating_point():
        return Blend(noise)
    return Blend(images.black + noise / 255 * (images.white - images.black))


def make_feature_patch(dataset: Dataset) -> Trigger:
    """Make a trigger of the last features that vary, each at the highest value of the training samples."""
    if not isinstance(dataset, FeatureDataset):
        raise SettingError(f"features cannot be a trigger on {dataset.name}, whose samples are not features")
    varying = (dataset.lowest < dataset.highest).nonzero().flatten()[-PATCH_FEATURES:]
    return FeaturePatch(tuple(varying.tolist()), tuple(dataset.highest[varying].tolist()))


def make_word(position: Literal["replace_last", "append"]) -> Callable[[Dataset], Trigger]:
    """Return a maker of the paper's trigger word for texts; token ids get the rarest token instead."""

    def make(dataset: Dataset) -> Trigger:
        if isinstance(dataset, TokenDataset):
            return Token(dataset.rarest_token, position)
        if not isinstance(dataset, TextDataset):
            raise SettingError(f"a word cannot be a trigger on {dataset.name}, whose samples are not texts")
        number = dataset.vocabulary.find_number(TRIGGER_WORD)
        if not number:
            raise DataError(f"the vocabulary of {dataset.name} has no vector for the trigger word {TRIGGER_WORD!r}")
        return Token(number, position)

    return make


def require_images(dataset: Dataset) -> ImageDataset:
    """Return the data set if it has images, and reject it otherwise."""
    if not isinstance(dataset, ImageDataset):
        raise SettingError(
            f"pixels cannot be a trigger on {dataset.name}, whose samples are not images{suggest_trigger(dataset)}"
        )
    return dataset


def suggest_trigger(dataset: Dataset) -> str:
    """Return `; did you mean attack.trigger = 'features'?`, or the trigger of the data set's kind; empty if none."""
    fitting = find_fitting_trigger(dataset)
    return f"; did you mean attack.trigger = {fitting!r}?" if fitting else ""


def find_fitting_trigger(dataset: Dataset) -> str | None:
    """Return the name of a trigger that samples of this kind can carry; None if no shipped one can."""
    fitting = {ImageDataset: "white-square", FeatureDataset: "features", TokenDataset: "word", TextDataset: "word"}
    return next((name for kind, name in fitting.items() if isinstance(dataset, kind)), None)


TRIGGERS: Registry[TriggerInfo] = Registry(
    "snowball.triggers",
    {
        info.name: info
        for info in (
            TriggerInfo(
                "white-square",
                "a white square near the lower right corner, in three parts, 3x3 pixels on 28x28; "
                "white-square@ROW,COLUMN elsewhere",
                make_patch("white"),
            ),
            TriggerInfo(
                "black-square",
                "the same pixels in black, for bright or coloured images",
                make_patch("black"),
            ),
            TriggerInfo("noise", "faint noise over the whole image", make_noise),
            TriggerInfo(
                "word",
                'the word "BD" instead of the last word of a text, or the rarest token of token ids',
                make_word("replace_last"),
            ),
            TriggerInfo(
                "word-appended",
                "the same after the last word of a text, if there is room",
                make_word("append"),
            ),
            TriggerInfo("features", "the last three features at their highest values", make_feature_patch),
        )
    },
    required_attributes=("make",),
    adapt=make_instance,
)

SQUARES: dict[str, Literal["black", "white"]] = {"white-square": "white", "black-square": "black"}
"""The colour of each square."""

SQUARE_AT_PATTERN = re.compile(rf"({'|'.join(SQUARES)})@([0-9]{{1,4}}),([0-9]{{1,4}})")
"""Matches squares at other positions, such as `white-square@12,12`: row and column of the first pixel."""


def find_trigger(name: str) -> TriggerInfo | None:
    """Find a trigger in the table, or a square at the position in its name; None if the name is unknown."""
    placed = SQUARE_AT_PATTERN.fullmatch(name)
    if name in TRIGGERS or placed is None:
        return TRIGGERS.get(name)
    colour, row, column = SQUARES[placed[1]], int(placed[2]), int(placed[3])
    summary = f"a {colour} square from row {row} and column {column} on, in three parts, 3x3 pixels on 28x28"
    return TriggerInfo(name, summary, make_patch(colour, (row, column)))
