"""Define the requests to agents, and the agents' answers.

An attachment's media type is detected from a file's content, not from its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from .errors import Failure, Mistake
from .plain_text import escape_unprintable, truncate_text
from .usage import NO_USAGE, Usage


class Result(Struct, frozen=True, kw_only=True):
    """The result of a run.

    `parts` contains the contributions of individual agents. If the run has no answer, these contributions are its only
    output. If `outcome` is `interrupted`, the run has not ended and can be resumed. `unproved` is the reason why the
    work of a run that succeeded is unproved, or None: its last check or call failed or was refused, or its last edit
    changed nothing.
    """

    run_id: str
    outcome: Outcome
    succeeded: bool
    text: str = ""
    data: Any = None
    parts: tuple[Part, ...] = ()
    usage: Usage = NO_USAGE
    error: str | None = None
    unproved: str | None = None


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


_IMAGE_MARKER = re.compile(r"^\[image [^\n]*, sha256 ([0-9a-f]{64})\]$", re.MULTILINE)
_IMAGE_SIGNATURES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}

Outcome = Literal["succeeded", "failed", "timed_out", "cancelled", "paused", "interrupted"]
_OUTCOME_PHRASES: dict[Outcome, str] = {
    "timed_out": "timed out",
    "cancelled": "was cancelled",
    "paused": "was paused",
    "interrupted": "was interrupted",
}


def describe_outcome(outcome: Outcome) -> str:
    """Return an outcome as the predicate of a sentence, such as `failed` or `was cancelled`."""
    return _OUTCOME_PHRASES.get(outcome, outcome)


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Context for a request: a heading, and the text quoted below it."""

    title: str
    text: str = ""


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to an agent.

    `text` reaches the agent unchanged, except for lines that look like Podium's headings. `origin` is the user's
    original request. It is empty if `text` is that request, and set if `text` is, for example, another agent's answer
    or the request with advice added.
    """

    text: str
    origin: str = ""
    notes: tuple[Note, ...] = ()

    @property
    def original(self) -> str:
        """The user's original request."""
        return self.origin or self.text

    def prompt(self) -> str:
        """Return the prompt for the agent: the text, then each note in its own block.

        Quoted lines all start with "> ", so that nothing in them can imitate one of Podium's headings. A
        line in the text that looks like such a heading gets a backslash. The headings say that they are not part of
        the conversation with the user, because small models repeat them otherwise.
        """
        return "\n\n".join(
            [
                escape_headings(self.text, _BLOCK) if "[" in self.text else self.text,
                *(f"[context for you only: {note.title}]{quote_lines(note.text)}" for note in self.notes),
            ]
        )


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent's contribution to an answer, or the reason why the contribution is missing."""

    agent: str
    outcome: Outcome
    text: str = ""
    failure: Failure | None = None


class Answer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent's answer."""

    text: str
    data: Any = None
    parts: tuple[Part, ...] = ()


LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""All characters that some programs treat as line breaks."""
_BLOCK = r"\[(?:context:|context for you only:|message from )"


def escape_headings(text: str, heading: str) -> str:
    """Put a backslash before each line that looks like one of Podium's headings, in upper or lower case."""
    pattern = rf"(^|[{LINE_BREAKS}])([^\S{LINE_BREAKS}]*)({heading})"
    return re.sub(pattern, r"\1\2\\\3", text, flags=re.IGNORECASE)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with the replacement character."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def quote_lines(text: str) -> str:
    """Return the lines of `text`, each preceded by a line break and the prefix "> "."""
    return "".join(f"\n> {line}" for line in text.splitlines())


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
