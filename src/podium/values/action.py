"""An action: what a tool is about to do, in the one form that is shown, approved, recorded and carried out.

Its `id` covers everything, so that nothing but the approved action can run in its name; its
`digest` leaves out times and nonce, so that the same wish can be recognised when it comes again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct, structs


class Action(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of one tool by one agent of one run."""

    run: str
    agent: str
    tool: str
    arguments: dict[str, Any] = {}
    directory: str = ""
    environment: dict[str, str] = {}
    sandbox: str = ""
    inputs: dict[str, str] = {}
    """What the files that it changes hold now, by path: a hash each, empty where there is no file."""
    outputs: dict[str, str] = {}
    """What they will hold, so that a crash in the middle leaves no doubt."""
    diff: str = ""
    asked_at: float = 0.0
    expires_at: float = 0.0
    nonce: str = ""
    version: int = 1

    @property
    def id(self) -> str:
        """What an approval is for: the hash of all of it."""
        return _hash_action(self)

    @property
    def digest(self) -> str:
        """What identical wishes share: the hash of all but times and nonce."""
        return _hash_action(structs.replace(self, asked_at=0.0, expires_at=0.0, nonce=""))

    @property
    def repeat_key(self) -> str:
        """What an approval for the whole run covers: the same again, whatever the files that it reads hold."""
        same = structs.replace(self, asked_at=0.0, expires_at=0.0, nonce="")
        return _hash_action(same if self.outputs else structs.replace(same, inputs={}))

    @property
    def effect_hash(self) -> str:
        """What the same effect has in common whoever wants it: the hash of tool, arguments and directory."""
        return sha256(msgspec.json.encode((self.tool, self.arguments, self.directory), order="sorted")).hexdigest()


def _hash_action(action: Action) -> str:
    return sha256(msgspec.json.encode(structs.asdict(action), order="sorted")).hexdigest()
