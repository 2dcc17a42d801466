"""Attachments: images and text files that are sent, stored and deleted with a message.

The media type is detected from a file's content, not from its name.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from .errors import Mistake
from .plain_text import escape_unprintable, truncate_text

MAX_ATTACHMENTS = 10
MAX_ATTACHMENT_BYTES = 5_000_000
MAX_ATTACHMENT_CHARACTERS = 200_000
MAX_NAME_LENGTH = 100
TEXT_MEDIA_TYPE = "text/plain"


class Attachment(Struct, frozen=True, kw_only=True):
    """The metadata of a file that is attached to a message. `media` is its media type."""

    name: str
    media: str
    digest: str
    size: int

    @property
    def is_image(self) -> bool:
        return self.media != TEXT_MEDIA_TYPE

    @property
    def prompt_marker(self) -> str:
        """The prompt line that is replaced by the image for models that accept images."""
        return f"[image {self.name}, sha256 {self.digest}]"


class AttachedFile(NamedTuple):
    """An attachment and its content."""

    attachment: Attachment
    data: bytes


class Image(Struct, frozen=True):
    """An image to send to a model."""

    media: str
    data: bytes


def read_attachments(paths: Iterable[str | Path]) -> tuple[AttachedFile, ...]:
    """Read the files at these paths as attachments. Raise Mistake for a file that cannot be attached."""
    found = tuple(_read_attachment(Path(path)) for path in paths)
    _require_few_files(found)
    return found


def as_attached_files(files: Iterable[tuple[str, bytes]]) -> tuple[AttachedFile, ...]:
    """Return files, given as names and contents, as attachments. Raise Mistake for a file that cannot be attached."""
    found = tuple(_as_attached_file(escape_unprintable(name), data) for name, data in files)
    _require_few_files(found)
    return found


def find_image_digests(text: str) -> list[str]:
    """Return the digests of the images marked in a prompt, in order and without duplicates."""
    return list(dict.fromkeys(_IMAGE_MARKER.findall(text))) if "[image " in text else []


def detect_media_type(data: bytes) -> str:
    """Return the media type of a file's content, or an empty string if it is neither a supported image nor text."""
    for media, shape in _IMAGE_SIGNATURES.items():
        if shape.match(data):
            return media
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    return "" if "\0" in text else TEXT_MEDIA_TYPE


_IMAGE_MARKER = re.compile(r"^\[image [^\n]*, sha256 ([0-9a-f]{64})\]$", re.MULTILINE)
_IMAGE_SIGNATURES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}


def _require_few_files(files: tuple[AttachedFile, ...]) -> None:
    if len(files) > MAX_ATTACHMENTS:
        raise Mistake(f"cannot attach {len(files)} files to one message; attach at most {MAX_ATTACHMENTS}")


def _read_attachment(path: Path) -> AttachedFile:
    try:
        if not path.is_file():
            raise Mistake(f"{escape_unprintable(str(path))} cannot be attached: there is no regular file at this path")
        with path.open("rb") as file:
            data = file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        raise Mistake(f"{escape_unprintable(str(path))} cannot be attached: {error.strerror}") from error
    return _as_attached_file(escape_unprintable(path.name), data)


def _as_attached_file(name: str, data: bytes) -> AttachedFile:
    if len(data) > MAX_ATTACHMENT_BYTES:
        raise Mistake(f"{name} is too large to be attached; the limit is {MAX_ATTACHMENT_BYTES:,} bytes")
    if not data:
        raise Mistake(f"{name} is empty and cannot be attached")
    media = detect_media_type(data)
    if not media:
        raise Mistake(f"{name} cannot be attached: it is neither UTF-8 text nor an image (PNG, JPEG, GIF, WebP)")
    if media == TEXT_MEDIA_TYPE and len(data.decode()) > MAX_ATTACHMENT_CHARACTERS:
        raise Mistake(
            f"{name} is too long to be attached; the limit for text is {MAX_ATTACHMENT_CHARACTERS:,} characters"
        )
    about = Attachment(
        name=truncate_text(name, MAX_NAME_LENGTH), media=media, digest=sha256(data).hexdigest(), size=len(data)
    )
    return AttachedFile(about, data)
