"""Attachments: images and text files that come with a message, travel with it, and are dropped with it.

What a file is, is seen from what is in it, whatever its name says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from .errors import Mistake
from .plain_text import cut, plain

MOST = 10
MOST_BYTES = 5_000_000
MOST_CHARACTERS = 200_000
LONGEST_NAME = 100
TEXT = "text/plain"


class Attachment(Struct, frozen=True, kw_only=True):
    """What is known of a file that came with a message. `media` is its media type."""

    name: str
    media: str
    digest: str
    size: int

    @property
    def is_image(self) -> bool:
        return self.media != TEXT

    @property
    def mark(self) -> str:
        """The line of a prompt in whose place a model that can see is shown the image."""
        return f"[image {self.name}, sha256 {self.digest}]"


class Attached(NamedTuple):
    """A file that comes with a message, and what is in it."""

    about: Attachment
    data: bytes


class Image(Struct, frozen=True):
    """An image as it is shown to a model."""

    media: str
    data: bytes


def attached(paths: Iterable[str | Path]) -> tuple[Attached, ...]:
    """The files at these paths, to go with a message. Raises Mistake for what cannot."""
    found = tuple(_read(Path(path)) for path in paths)
    if len(found) > MOST:
        raise Mistake(f"{len(found)} files are too many for one message; {MOST} may go with it")
    return found


def marked(text: str) -> list[str]:
    """The digests of the images that a prompt has marks of, in their order."""
    return list(dict.fromkeys(_MARK.findall(text))) if "[image " in text else []


def media_of(data: bytes) -> str:
    """The media type of what can be attached; empty for anything else."""
    for media, shape in _IMAGES.items():
        if shape.match(data):
            return media
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    return "" if "\0" in text else TEXT


_MARK = re.compile(r"^\[image [^\n]*, sha256 ([0-9a-f]{64})\]$", re.MULTILINE)
_IMAGES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}


def _read(path: Path) -> Attached:
    name = plain(path.name)
    try:
        if not path.is_file():
            raise Mistake(f"{plain(str(path))} is no file that could be attached; name a file that is there")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Mistake(f"{plain(str(path))} cannot be attached: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise Mistake(f"{name} is too large to be attached; up to {MOST_BYTES:,} bytes would do")
    if not data:
        raise Mistake(f"{name} is empty, and there is nothing to attach")
    media = media_of(data)
    if not media:
        raise Mistake(f"{name} is neither text in UTF-8 nor an image (PNG, JPEG, GIF, WebP), and cannot be attached")
    if media == TEXT and len(data.decode()) > MOST_CHARACTERS:
        raise Mistake(f"{name} is too long for a message; up to {MOST_CHARACTERS:,} characters of text would do")
    about = Attachment(name=cut(name, LONGEST_NAME), media=media, digest=sha256(data).hexdigest(), size=len(data))
    return Attached(about, data)
