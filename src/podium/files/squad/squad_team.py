"""Define a squad's team: its members and their shared context.

Strings are normalised in the same way as when a file is read, so that a team that is written and read again is
equal to the original.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct, structs

from ...values.request import replace_surrogates
from ...values.team_options import Mode

ACTIVE = "Active"


class Member(Struct, frozen=True):
    """A member of a squad. `shortened` is set if `prompt` contains only the start of the charter."""

    name: str
    role: str = ""
    prompt: str = ""
    model: str = ""
    status: str = ACTIVE
    shortened: bool = False

    def __post_init__(self) -> None:
        put = structs.force_setattr
        put(self, "name", to_single_line(self.name))
        put(self, "role", to_single_line(self.role))
        put(self, "prompt", normalise_text(self.prompt))
        put(self, "model", to_single_line(self.model or ""))
        put(self, "status", to_single_line(self.status) or ACTIVE)


class Team(Struct, frozen=True):
    """A team. `source` is the folder that it was read from, and `notices` contains messages for the user."""

    name: str
    mode: Mode = "reflect"
    members: tuple[Member, ...] = ()
    shared_context: str = ""
    routing_context: str = ""
    source: Path | None = None
    notices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        put = structs.force_setattr
        put(self, "name", to_single_line(self.name))
        put(self, "members", tuple(self.members))
        put(self, "shared_context", normalise_text(self.shared_context or ""))
        put(self, "routing_context", normalise_text(self.routing_context or ""))
        put(self, "notices", tuple(self.notices))


def to_single_line(text: str) -> str:
    """Return `text` on one line, for a heading or a table cell."""
    return " ".join(normalise_text(text).split())


def normalise_text(text: str) -> str:
    """Normalise `text` in the same way as file content: UTF-8, `\\n` line endings, no surrounding whitespace."""
    text = replace_surrogates(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return re.sub(r"\A[\s\ufeff]+", "", text).rstrip()
