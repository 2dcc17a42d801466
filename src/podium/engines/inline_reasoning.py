"""Reasoning that a model writes into the text of its reply: it is separated from the reply before anybody reads it.

Many servers pass on the text of reasoning models as it is, with the reasoning in a `<think>` block at the beginning or,
if the chat template contains the opening tag, with only a closing tag after the reasoning.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

import msgspec

from ..core.engine import Reasoning, Text

_NAMES = ("think", "thinking", "reasoning")
_NAME = "|".join(_NAMES)
_BLOCK_START = re.compile(rf"\s*<({_NAME})\s{{0,20}}>", re.IGNORECASE)
_TAG = re.compile(rf"<(/?)({_NAME})\s{{0,20}}>", re.IGNORECASE)
_CLOSING = {name: re.compile(rf"</{name}\s{{0,20}}>", re.IGNORECASE) for name in _NAMES}
_ANY_CLOSING = re.compile(rf"</(?:{_NAME})\s{{0,20}}>", re.IGNORECASE)
_FENCE_LINE = re.compile(r"^[ \t]{0,20}(?:```|~~~)", re.MULTILINE)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»"}
_MOST_BLOCKS = 20
_MOST_TAGS = 200
_LONGEST_TAG = len("</reasoning>") + 20


class SeparatedReply(NamedTuple):
    """The text of a reply, and the reasoning that stood before it."""

    reasoning: str
    text: str


def separate_reasoning(said: str) -> SeparatedReply:
    """Separate what a model wrote into its reasoning and its reply.

    Reasoning is a block at the beginning, whether it is closed or not, and everything before a closing tag that has no
    opening tag. A reply that writes about such tags, in quotes, in code, or with both tags in a sentence, keeps them.
    """
    if "<" not in said:
        return SeparatedReply("", said)
    thoughts: list[str] = []
    place = 0
    for _ in range(_MOST_BLOCKS):
        if (start := _BLOCK_START.match(said, place)) is None:
            break
        end = _find_block_end(said, start.end(), start[1])
        thoughts.append(said[start.end() : end.start() if end else len(said)])
        place = end.end() if end else len(said)
    if (closing := _find_closing_tag(said, place)) is not None:
        thoughts.append(said[place : closing.start()])
        place = closing.end()
    if not thoughts:
        return SeparatedReply("", said)
    return SeparatedReply("\n".join(filter(None, map(str.strip, thoughts))), said[place:].lstrip())


class MessageText:
    """The text of messages that arrive in pieces, each of which may begin with reasoning."""

    def __init__(self) -> None:
        self.written = 0
        self._ended = ""
        self._thoughts: list[str] = []
        self._open: list[str] = []
        self._splitter = ReasoningSplitter()

    @property
    def text(self) -> str:
        """The text of all messages, without reasoning."""
        return self._ended + separate_reasoning("".join(self._open)).text

    @property
    def reasoning(self) -> str:
        return "\n".join(filter(None, (*self._thoughts, separate_reasoning("".join(self._open)).reasoning)))

    @property
    def is_shown(self) -> bool:
        """Whether the pieces that `add_text` returned as the reply are the text of the message."""
        return self._splitter.shown == separate_reasoning("".join(self._open)).text

    def add_text(self, text: str) -> list[Text | Reasoning]:
        """Add a piece of a message, and return the pieces that it completes."""
        self.written += len(text)
        self._open.append(text)
        return self._splitter.add_text(text)

    def end_message(self) -> None:
        """End a message: the next piece begins another one."""
        reasoning, text = separate_reasoning("".join(self._open))
        self._thoughts.append(reasoning)
        self._ended += text
        self._open, self._splitter = [], ReasoningSplitter()


class ReasoningSplitter:
    """Splits the text of a reply into reasoning and reply while it arrives.

    Reasoning in a block at the beginning is recognised at once. Reasoning without an opening tag is recognised only
    when the reply is complete, by `separate_reasoning`; `shown` is the text that was returned as the reply until then.
    """

    def __init__(self) -> None:
        self._held = ""
        self._block = ""
        self._is_reply = False
        self._shown: list[str] = []

    @property
    def shown(self) -> str:
        return "".join(self._shown)

    def add_text(self, text: str) -> list[Text | Reasoning]:
        """Add a piece of the text, and return the pieces that it completes."""
        if self._is_reply:
            return [self._show(text)]
        self._held += text
        pieces: list[Text | Reasoning] = []
        while not self._is_reply:
            if self._block:
                if (end := _find_block_end(self._held, 0, self._block)) is None:
                    pieces += self._take_thought()
                    break
                pieces.append(Reasoning(self._held[: end.start()]))
                self._block, self._held = "", self._held[end.end() :].lstrip()
            elif (start := _BLOCK_START.match(self._held)) is not None:
                self._block, self._held = start[1], self._held[start.end() :]
            elif _may_become_block(self._held):
                break
            else:
                self._is_reply = True
                pieces.append(self._show(self._held))
                self._held = ""
        return pieces

    def _show(self, text: str) -> Text:
        self._shown.append(text)
        return Text(text)

    def _take_thought(self) -> list[Text | Reasoning]:
        """Return the held reasoning, without an end that may be the beginning of the closing tag."""
        tag = self._held.find("<", max(0, len(self._held) - _LONGEST_TAG))
        end = len(self._held) if tag < 0 else tag
        thought, self._held = self._held[:end], self._held[end:]
        return [Reasoning(thought)]


def _find_block_end(said: str, place: int, name: str) -> re.Match[str] | None:
    """Return the closing tag of a block: the first one with its name or, if there is none, the first of any name."""
    return _CLOSING[name.lower()].search(said, place) or _ANY_CLOSING.search(said, place)


def _may_become_block(text: str) -> bool:
    start = text.lstrip().lower()
    return any(f"<{name}".startswith(start) or start.rstrip() == f"<{name}" for name in _NAMES)


def _find_closing_tag(said: str, place: int) -> re.Match[str] | None:
    """Return the closing tag after reasoning that has no opening tag, or None if there is none."""
    if "</" not in said or _is_json(said, place):
        return None
    for tag in islice(_TAG.finditer(said, place), _MOST_TAGS):
        if _is_quoted(said, place, tag):
            continue
        if tag[1]:
            # A closing tag that continues a sentence is mentioned, not used.
            return None if said[tag.end() : tag.end() + 1] in tuple(".,;:!?)") else tag
        if said[place : tag.start()].rpartition("\n")[2].strip():
            return None  # an opening tag inside a sentence: the reply writes about the tags
    return None


def _is_json(said: str, place: int) -> bool:
    text = said[place:].strip()
    if not text.startswith(("{", "[")):
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_quoted(said: str, place: int, tag: re.Match[str]) -> bool:
    """Return whether a tag stands in quotes, in code or in a fenced block."""
    before = said[max(place, tag.start() - 1) : tag.start()]
    if before in _QUOTES and said[tag.end() : tag.end() + 1] == _QUOTES[before]:
        return True
    line_start = max(said.rfind("\n", place, tag.start()) + 1, place)
    line_end = said.find("\n", tag.end())
    rest = said[tag.end() : line_end if line_end >= 0 else len(said)]
    if said.count("`", line_start, tag.start()) % 2 and "`" in rest:
        return True
    return len(_FENCE_LINE.findall(said, place, tag.start())) % 2 == 1
