"""Set the default model in a settings file without changing its other lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

from msgspec import structs

from ..system.atomic_file import replace_file
from ..system.bounded_file import UnreadableFile, decode_text, read_file_bytes
from ..system.locations import format_path
from ..values.diagnostic import filter_errors
from ..values.errors import Mistake
from .settings_reading import parse_settings_text

_LINE = re.compile(
    r"""^model[ \t]*:(?:[ \t]+(?:"[^"\r\n]*"|'[^'\r\n]*'|[^\s"'#][^\r\n]*?))?([ \t]+\#[^\r\n]*)?[ \t]*(?=\r?$)""", re.M
)


def set_model(path: Path, model: str) -> None:
    """Set `model` in the file at `path`. Raise Mistake if that would change anything else."""
    name = format_path(path)
    try:
        data = read_file_bytes(path) if path.exists() else b""
        before = parse_settings_text(decode_text(data), path_shown=name)
    except UnreadableFile as error:
        raise Mistake(f"{name} {error}") from error
    if broken := filter_errors(before.diagnostics):
        raise Mistake(str(broken[0]))
    after = replace_model_line(data.decode("utf-8"), model)
    wanted = structs.replace(before.document, model=model)
    # Parse the new text before writing it: some YAML layouts cannot be edited line by line.
    if parse_settings_text(decode_text(after.encode()), path_shown=name).document != wanted:
        raise Mistake(f"{name} has a layout that cannot be edited automatically; set model: {model} in it yourself")
    replace_file(path, after.encode())


def replace_model_line(text: str, model: str) -> str:
    """Replace the `model:` line of `text`, preserving its comment. If there is no such line, append one."""
    line = f"model: {json.dumps(model)}"
    if _LINE.search(text):
        return _LINE.sub(lambda match: f"{line}{match[1] or ''}", text, count=1)
    end = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text or text.endswith("\n") else end
    return f"{text}{gap}{line}{end}"
