"""`charter.md`: a worker's system prompt, and what its sections say about the worker."""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec import Struct

from .squad_markdown import bare, heading, key, lines_of, sections
from .squad_team import settled

LONGEST_PROMPT = 4000

_FIELD = re.compile(r"\s*(?:[-*+]\s+)?[*_]*([A-Za-z][A-Za-z ]{0,40}?)[*_]*\s*:[*_\s]*(\S.*)")
_BETWEEN = re.compile(r"\s[-–—|:]\s")
_REMARK = re.compile(r"\s(?:[-–—(]|<!--).*|[,;].*")
_OURS = "<!-- The model, as set with Podium. -->\n## Model\n\nPreferred: "


class Charter(Struct, frozen=True):
    """A charter. `prompt` is at most its first 4,000 characters, `shortened` when there are more."""

    name: str
    role: str
    expertise: list[str]
    model_preference: str
    reasoning_effort: str
    prompt: str
    shortened: bool

    @property
    def model(self) -> str:
        """The model to use; nothing stands for the default, as `auto` does."""
        return "" if self.model_preference.casefold() in ("auto", "default") else self.model_preference


class Parts(NamedTuple):
    """A charter's text, and the model that was set beside it."""

    body: str
    model: str | None


def parse_charter(text: str) -> Charter:
    """The charter in the text of a `charter.md`."""
    body, ours = parts(text)
    identity: dict[str, str] = {}
    model: dict[str, str] = {}
    words: list[str] = []
    title = ""
    for _, line, above in sections(lines_of(body)):
        titles = {key(one.text) for one in above if one.level > 1}
        if found := heading(line):
            title = title or (found.text if found.level == 1 else "")
        elif "model" in titles:
            _note(model, line)
            words += [bare(line.strip().lstrip("-+ "))] if line.strip() else []
        elif not titles or "identity" in titles:
            _note(identity, line)
    called, *does = (part.strip() for part in _BETWEEN.split(title, maxsplit=1))
    alone = words[0] if len(words) == 1 and " " not in words[0] and ":" not in words[0].rstrip(":") else ""
    preferred = model.get("preferred") or model.get("model") or alone
    return Charter(
        name=identity.get("name") or called,
        role=identity.get("role") or "".join(does),
        expertise=[one.strip() for one in identity.get("expertise", "").split(",") if one.strip()],
        model_preference=ours or bare(_REMARK.sub("", bare(preferred))),
        reasoning_effort=bare(_REMARK.sub("", model.get("reasoning effort", ""))).lower(),
        prompt=body[:LONGEST_PROMPT],
        shortened=len(body) > LONGEST_PROMPT,
    )


def _note(fields: dict[str, str], line: str) -> None:
    """Keep what a line like `- **Role:** Lead` says, the first time."""
    if found := _FIELD.match(line):
        fields.setdefault(key(found[1]), bare(found[2]))


def parts(text: str) -> Parts:
    """The text itself, and the model that stands behind it where we set one."""
    body = settled(text)
    before, ours, model = f"\n{body}".rpartition(f"\n{_OURS}")
    if not ours or len(model.split()) != 1:
        return Parts(body, None)
    return Parts(settled(before), model)


def composed(body: str, model: str) -> str:
    """A charter of this text for this model; a section is added only where the text does not say it itself."""
    if parse_charter(body).model == model:
        return f"{body}\n"
    return f"{body}\n\n{_OURS}{model or 'auto'}\n"


def generic(name: str) -> str:
    """The charter of a worker that has no prompt of its own."""
    return f"# {name}\n\nYou are {name}, a worker of this team. Complete the tasks that you are given thoroughly."
