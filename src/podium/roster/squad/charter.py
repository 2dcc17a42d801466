"""Parsing and writing `charter.md`: a worker's system prompt, with its name, role and model."""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec import Struct

from .squad_markdown import iter_section_lines, normalise_heading, parse_heading, split_lines, strip_markup
from .squad_team import normalise_text

MAX_PROMPT_LENGTH = 4000

_FIELD = re.compile(r"\s*(?:[-*+]\s+)?[*_]*([A-Za-z][A-Za-z ]{0,40}?)[*_]*\s*:[*_\s]*(\S.*)")
_BETWEEN = re.compile(r"\s[-–—|:]\s")
_REMARK = re.compile(r"\s(?:[-–—(]|<!--).*|[,;].*")
_MODEL_SECTION = "<!-- The model, as set with Podium. -->\n## Model\n\nPreferred: "


class Charter(Struct, frozen=True):
    """A charter. `prompt` is at most its first 4,000 characters; `shortened` is set if there are more."""

    name: str
    role: str
    expertise: list[str]
    model_preference: str
    reasoning_effort: str
    prompt: str
    shortened: bool

    @property
    def model(self) -> str:
        """The model to use; empty for the default, which charters call `auto`."""
        return "" if self.model_preference.casefold() in ("auto", "default") else self.model_preference


class CharterParts(NamedTuple):
    """A charter's own text, and the model that Podium appended to it."""

    body: str
    model: str | None


def parse_charter(text: str) -> Charter:
    """Parse the text of a `charter.md`."""
    body, ours = split_charter(text)
    identity: dict[str, str] = {}
    model: dict[str, str] = {}
    words: list[str] = []
    title = ""
    for _, line, above in iter_section_lines(split_lines(body)):
        titles = {normalise_heading(one.text) for one in above if one.level > 1}
        if found := parse_heading(line):
            title = title or (found.text if found.level == 1 else "")
        elif "model" in titles:
            _store_field(model, line)
            words += [strip_markup(line.strip().lstrip("-+ "))] if line.strip() else []
        elif not titles or "identity" in titles:
            _store_field(identity, line)
    called, *does = (part.strip() for part in _BETWEEN.split(title, maxsplit=1))
    alone = words[0] if len(words) == 1 and " " not in words[0] and ":" not in words[0].rstrip(":") else ""
    preferred = model.get("preferred") or model.get("model") or alone
    return Charter(
        name=identity.get("name") or called,
        role=identity.get("role") or "".join(does),
        expertise=[one.strip() for one in identity.get("expertise", "").split(",") if one.strip()],
        model_preference=ours or strip_markup(_REMARK.sub("", strip_markup(preferred))),
        reasoning_effort=strip_markup(_REMARK.sub("", model.get("reasoning effort", ""))).lower(),
        prompt=body[:MAX_PROMPT_LENGTH],
        shortened=len(body) > MAX_PROMPT_LENGTH,
    )


def _store_field(fields: dict[str, str], line: str) -> None:
    """Store the field of a line like `- **Role:** Lead`, unless it is already set."""
    if found := _FIELD.match(line):
        fields.setdefault(normalise_heading(found[1]), strip_markup(found[2]))


def split_charter(text: str) -> CharterParts:
    """Split a charter into its own text and the model section that Podium appended, if any."""
    body = normalise_text(text)
    before, ours, model = f"\n{body}".rpartition(f"\n{_MODEL_SECTION}")
    if not ours or len(model.split()) != 1:
        return CharterParts(body, None)
    return CharterParts(normalise_text(before), model)


def render_charter(body: str, model: str) -> str:
    """Render a charter for this model; a model section is added only if the text names another model."""
    if parse_charter(body).model == model:
        return f"{body}\n"
    return f"{body}\n\n{_MODEL_SECTION}{model or 'auto'}\n"


def render_generic_charter(name: str) -> str:
    """Render the charter of a worker that has no prompt."""
    return f"# {name}\n\nYou are {name}, a worker of this team. Complete the tasks that you are given thoroughly."
