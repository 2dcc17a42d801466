"""Parse and render `charter.md`: a worker's system prompt, with the worker's name, role and model."""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec import Struct

from .squad_team import iter_section_lines, normalise_heading, normalise_text, parse_heading, split_lines, strip_markup

MAX_PROMPT_LENGTH = 4000

_FIELD = re.compile(r"\s*(?:[-*+]\s+)?[*_]*([A-Za-z][A-Za-z ]{0,40}?)[*_]*\s*:[*_\s]*(\S.*)")
_BETWEEN = re.compile(r"\s[-–—|:]\s")
_REMARK = re.compile(r"\s(?:[-–—(]|<!--).*|[,;].*")
_NEXT_MODEL = re.compile(r"[,;]|[-=]>|→|➡|\s(?:then|or)\s")
_NO_CHAIN = re.compile(r"(?:standard|default|auto|none|coordinator)\b|[-–—]*$", re.IGNORECASE)
"""Matches the start of a fallback that intentionally lists no model, such as `Standard chain`."""
MODEL_NAME = re.compile(r"[\w.:/@+-]+")
_MODEL_SECTION = "<!-- The model, as set with Podium. -->\n## Model\n\nPreferred: "


class Charter(Struct, frozen=True):
    """An agent's charter. `prompt` is its text, limited to 4,000 characters; `shortened` says whether it was cut."""

    name: str
    role: str
    expertise: list[str]
    model_preference: str
    reasoning_effort: str
    prompt: str
    shortened: bool
    fallbacks: list[str] = []
    unread_fallback: str = ""
    """The value of the fallback field if it is neither a list of models nor a word such as `default` or `none`."""

    @property
    def model(self) -> str:
        """The model to use; empty for the default, which charters call `auto`."""
        return "" if self.model_preference.casefold() in ("auto", "default") else self.model_preference


class CharterParts(NamedTuple):
    """A charter's own text, and the model in the section that Podium appended, if any."""

    body: str
    model: str | None


def parse_charter(text: str) -> Charter:
    """Parse the text of a `charter.md`."""
    body, ours = split_charter(text)
    identity: dict[str, str] = {}
    model: dict[str, str] = {}
    words: list[str] = []
    expertise: list[str] = []
    title = ""
    for _, line, above in iter_section_lines(split_lines(body)):
        titles = {normalise_heading(one.text) for one in above if one.level > 1}
        if found := parse_heading(line):
            title = title or (found.text if found.level == 1 else "")
        elif "model" in titles:
            _store_field(model, line)
            words += [strip_markup(line.strip().lstrip("-+ "))] if line.strip() else []
        elif "expertise" in titles:
            expertise.append(line.strip().lstrip("-+* "))
        elif not titles or "identity" in titles:
            _store_field(identity, line)
    called, *does = (part.strip() for part in _BETWEEN.split(title, maxsplit=1))
    alone = words[0] if len(words) == 1 and " " not in words[0] and ":" not in words[0].rstrip(":") else ""
    preferred = model.get("preferred") or model.get("model") or alone
    fallback = next(
        (model[key] for key in ("fallback", "fallbacks", "fallback model", "fallback models") if key in model), ""
    )
    fallbacks = _parse_fallbacks(fallback)
    return Charter(
        name=identity.get("name") or called,
        role=identity.get("role") or "".join(does),
        expertise=[
            word
            for part in [identity.get("expertise", ""), *expertise]
            for one in part.split(",")
            if (word := strip_markup(one))
        ],
        model_preference=ours or strip_markup(_REMARK.sub("", strip_markup(preferred))),
        reasoning_effort=strip_markup(_REMARK.sub("", model.get("reasoning effort", ""))).lower(),
        prompt=body[:MAX_PROMPT_LENGTH],
        shortened=len(body) > MAX_PROMPT_LENGTH,
        fallbacks=fallbacks,
        unread_fallback="" if fallbacks or _NO_CHAIN.match(fallback) else fallback,
    )


def _parse_fallbacks(text: str) -> list[str]:
    """Return the models in a fallback such as `opus -> sonnet (cheaper)`. If it is prose, the list is empty."""
    found = [strip_markup(_REMARK.sub("", f" {part}").strip()) for part in _NEXT_MODEL.split(text)]
    names = [one for one in found if one]
    return names if all(MODEL_NAME.fullmatch(one) for one in names) and not _NO_CHAIN.match(text) else []


def _store_field(fields: dict[str, str], line: str) -> None:
    """Parse a line such as `- **Role:** Lead` and store the field, unless it is already set."""
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
    """Render a charter for this model. A model section is added only if the text does not already specify the model."""
    if parse_charter(body).model == model:
        return f"{body}\n"
    return f"{body}\n\n{_MODEL_SECTION}{model or 'auto'}\n"


def render_generic_charter(name: str) -> str:
    """Render the charter for a worker without a prompt."""
    return f"# {name}\n\nYou are {name}, a worker of this team. Complete the tasks that you are given thoroughly."
