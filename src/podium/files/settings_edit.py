"""Set the default model and the notification targets in a settings file without changing its other lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ..system.locations import format_path
from ..system.whole_file import UnreadableFile, decode_text, read_file_bytes, replace_file
from ..values.errors import Mistake, filter_errors
from .settings_document import NOTIFY_WORDS, SettingsDocument
from .settings_reading import parse_settings_text

_LINE = re.compile(
    r"""^model[ \t]*:(?:[ \t]+(?:"[^"\r\n]*"|'[^'\r\n]*'|[^\s"'#][^\r\n]*?))?([ \t]+\#[^\r\n]*)?[ \t]*(?=\r?$)""", re.M
)
_NOTIFY_LINE = re.compile(r"^notify[ \t]*:[ \t]*\[([^\]#]*)\][ \t]*(?=\r?$)", re.M)
_NOTIFY_BLOCK = re.compile(r"^notify[ \t]*:[ \t]*(\r?\n)((?:(?:[ \t]*-|[ \t]+\S)[^\r\n]*(?:\r?\n|\Z))+)", re.M)
_WORD_ITEM = re.compile(rf"[ \t]*-[ \t]+(?:{'|'.join(NOTIFY_WORDS)})[ \t]*\r?$", re.M)


def set_model(path: Path, model: str) -> None:
    """Set `model` in the file at `path`. Raise Mistake if that would change anything else."""
    _edit_settings(
        path,
        lambda text: replace_model_line(text, model),
        lambda document: document.replace(model=model),
        advice=f"edit the file yourself and set the key model to {model}",
    )


def set_notify_words(path: Path, words: Collection[str]) -> None:
    """Set the keywords, such as `bell`, in the `notify` list of the file at `path`. Keep its webhooks and commands.

    Raise Mistake if the edit would change any other setting.
    """
    chosen = [word for word in NOTIFY_WORDS if word in words]
    unwanted = [word for word in NOTIFY_WORDS if word not in words]
    steps = [f"{verb} {', '.join(those)}" for verb, those in (("include", chosen), ("leave out", unwanted)) if those]

    def set_words(document: SettingsDocument) -> SettingsDocument:
        others = [target for target in document.notify if target not in NOTIFY_WORDS]
        return document.replace(notify=(*chosen, *others))

    _edit_settings(
        path,
        lambda text: _replace_notify_words(text, chosen),
        set_words,
        advice=f"edit the notify list yourself: {'; '.join(steps)}",
    )


def _edit_settings(
    path: Path,
    edit: Callable[[str], str],
    change: Callable[[SettingsDocument], SettingsDocument],
    *,
    advice: str,
) -> None:
    """Edit the text of a settings file. Raise Mistake if the edit would not make exactly the intended change."""
    name = format_path(path)
    try:
        data = read_file_bytes(path) if path.exists() else b""
        before = parse_settings_text(decode_text(data), path_shown=name)
    except UnreadableFile as error:
        raise Mistake(f"{name} {error}") from error
    if broken := filter_errors(before.diagnostics):
        raise Mistake(str(broken[0]))
    after = edit(data.decode("utf-8"))
    # Parse the new text before writing it: some YAML layouts cannot be edited line by line.
    if parse_settings_text(decode_text(after.encode()), path_shown=name).document != change(before.document):
        raise Mistake(f"{name} has a layout that cannot be edited automatically; {advice}")
    replace_file(path, after.encode())


def _replace_notify_words(text: str, words: Sequence[str]) -> str:
    """Return `text` with the keywords from `NOTIFY_WORDS` in its `notify` list replaced by `words`.

    Other items of the list are kept. If `text` has no `notify` list, one with `words` is appended.
    """

    def replace_inline(match: re.Match[str]) -> str:
        items = [item.strip() for item in match[1].split(",")]
        kept = [item for item in items if item and item not in NOTIFY_WORDS]
        return f"notify: [{', '.join([*words, *kept])}]"

    def replace_block(match: re.Match[str]) -> str:
        kept = [line for line in match[2].splitlines(keepends=True) if not _WORD_ITEM.match(line)]
        if not words and not kept:
            return f"notify: []{match[1]}"
        indent = match[2][: len(match[2]) - len(match[2].lstrip(" \t"))]
        return "".join([f"notify:{match[1]}", *(f"{indent}- {word}{match[1]}" for word in words), *kept])

    for pattern, replace in ((_NOTIFY_LINE, replace_inline), (_NOTIFY_BLOCK, replace_block)):
        if pattern.search(text):
            return pattern.sub(replace, text, count=1)
    return _append_line(text, f"notify: [{', '.join(words)}]")


def replace_model_line(text: str, model: str) -> str:
    """Replace the `model:` line of `text`, preserving its comment. If there is no such line, append one."""
    line = f"model: {json.dumps(model)}"
    if _LINE.search(text):
        return _LINE.sub(lambda match: f"{line}{match[1] or ''}", text, count=1)
    return _append_line(text, line)


def _append_line(text: str, line: str) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text or text.endswith("\n") else end
    return f"{text}{gap}{line}{end}"
