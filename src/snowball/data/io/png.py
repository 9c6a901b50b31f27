"""Raw images as PNG files: 8 bits a channel, grey or in colour. The format is ISO/IEC 15948."""

import struct
import zlib
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, COLOUR = 0, 2  # the format's numbers for images of one channel and of three
GAP, BACKGROUND = 2, 128  # pixels around each image of a strip, and what they are


def encode(image: Tensor) -> bytes:
    """A (channels, height, width) uint8 image as a file; three channels are colours, of others the first is shown."""
    shown = image if len(image) == 3 else image[:1]
    channels, height, width = shown.shape
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR if channels == 3 else GREY, 0, 0, 0)
    lines = pad(shown.permute(1, 2, 0).reshape(height, -1), (1, 0))  # each starts with its filter, 0 for none
    pixels = zlib.compress(lines.cpu().numpy().tobytes(), 9)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def enlarge(image: Tensor, times: int) -> Tensor:
    """Every pixel of (..., height, width) as a square of so many."""
    return image.repeat_interleave(times, -2).repeat_interleave(times, -1)


def strip(images: Sequence[Tensor]) -> Tensor:
    """Images side by side on grey, at the top where they differ in height."""
    tallest = max(image.shape[-2] for image in images)
    edges = [(GAP, GAP, GAP, GAP + tallest - image.shape[-2]) for image in images]
    return torch.cat([pad(image, edge, value=BACKGROUND) for image, edge in zip(images, edges, strict=True)], -1)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
