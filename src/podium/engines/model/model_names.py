"""Compare the model that a reply names with the model that was requested."""

from __future__ import annotations

import re

_DATE = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|\d{4}|\d{3}|\d{2}-\d{2})$")
"""Matches the date or number at the end of a snapshot's name.

Examples are -2025-08-07 in gpt-5-mini-2025-08-07, -20260401 in claude-sonnet-5-5-20260401 and -001 in
gemini-2.0-flash-001.
"""

_LATEST = re.compile(r"[-:]latest$")

ANY_MODEL = frozenset({"auto", "default"})
"""Names that let a server choose the model, such as openrouter/auto."""


def is_same_model(asked: str, replied: str) -> bool:
    """Return whether a reply that names the model `replied` answers a call for the model `asked`.

    An alias and its dated snapshot are the same model, and so are names with and without a provider prefix, a folder, a
    file extension or a tag. Two different dates are two models.
    """
    ours, theirs = _strip_place(asked), _strip_place(replied)
    if ours == theirs or not theirs or ours in ANY_MODEL:
        return True
    if _LATEST.search(ours):
        # An alias for the newest model of a family: the reply to gemini-flash-latest names gemini-2.5-flash.
        return set(_split_words(_LATEST.sub("", ours))) <= set(_split_words(theirs))
    if ":" not in ours or ":" not in theirs:
        # If only one of the names has a tag, ignore it: llama3 is the same model as llama3:latest, and x as x:free.
        ours, theirs = ours.partition(":")[0], theirs.partition(":")[0]
    return ours == theirs or _DATE.sub("", theirs) == ours or _DATE.sub("", ours) == theirs


def _strip_place(name: str) -> str:
    """Return the name in lower case, without the provider or folder before it and without a file extension."""
    return name.strip().lower().replace("\\", "/").rstrip("/").rpartition("/")[2].removesuffix(".gguf")


def _split_words(name: str) -> list[str]:
    return re.split(r"[-_.:@]", name)
