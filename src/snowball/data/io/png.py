"""Raw images as PNG files: 8 bits per channel, grey or colour. The format is ISO/IEC 15948."""

import struct
import zlib
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, COLOUR = 0, 2  # colour types of the format: one channel and three
GAP_PIXELS, BACKGROUND_VALUE = 2, 128  # around each of several joined images


def encode_png(image: Tensor) -> bytes:
    """Encode a (channels, height, width) uint8 image. Three channels are colours, otherwise the first is shown."""
    shown = image if len(image) == 3 else image[:1]
    channels, height, width = shown.shape
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR if channels == 3 else GREY, 0, 0, 0)
    lines = pad(shown.permute(1, 2, 0).reshape(height, -1), (1, 0))  # each line starts with its filter type, 0 for none
    pixels = zlib.compress(lines.cpu().numpy().tobytes(), 9)
    return SIGNATURE + _make_chunk(b"IHDR", header) + _make_chunk(b"IDAT", pixels) + _make_chunk(b"IEND", b"")


def enlarge_image(image: Tensor, times: int) -> Tensor:
    """Magnify an image (..., height, width) by an integer factor."""
    return image.repeat_interleave(times, -2).repeat_interleave(times, -1)


def join_images(images: Sequence[Tensor]) -> Tensor:
    """Join images side by side on grey, aligned at the top."""
    tallest = max(image.shape[-2] for image in images)
    edges = [(GAP_PIXELS, GAP_PIXELS, GAP_PIXELS, GAP_PIXELS + tallest - image.shape[-2]) for image in images]
    return torch.cat([pad(image, edge, value=BACKGROUND_VALUE) for image, edge in zip(images, edges, strict=True)], -1)


def _make_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
