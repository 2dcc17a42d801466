"""A squad's team as it is used: its members, and what all of them should know.

Texts are kept in the form in which a file gives them back, so that a team that was written and
read again is the same team.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct, structs

from ...values.agent import Mode
from ...values.request import replace_surrogates

ACTIVE = "Active"


class Member(Struct, frozen=True):
    """One worker. `shortened` when `prompt` is not all that its charter says."""

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
    """Members with a mode. `source` is the folder that it was read from, `notices` what a person should know."""

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
    """`text` as it can stand in a heading or in a cell of a table."""
    return " ".join(normalise_text(text).split())


def normalise_text(text: str) -> str:
    """`text` as a file gives it back: UTF-8, lines ended by `\\n`, no blank at either end."""
    text = replace_surrogates(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return re.sub(r"\A[\s\ufeff]+", "", text).rstrip()
