"""Define actions. The same `Action` represents a tool call when it is shown, approved, recorded and executed.

An action's `id` covers every field, so that an approval applies to exactly that action. Its `digest` excludes the
timestamps and the nonce, so that an identical action is recognised when it is requested again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, structs

RiskKind = Literal["deletes", "outside", "network", "protected_path", "control_characters", "unknown_program"]
RISK_KINDS: tuple[RiskKind, ...] = get_args(RiskKind)


class RiskFact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fact about an action. `examples` lists some paths, hosts, programs or characters; `more` counts the rest."""

    kind: RiskKind
    examples: tuple[str, ...] = ()
    more: int = 0


class Action(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call to one tool by one agent in one run."""

    run: str
    agent: str
    tool: str
    arguments: dict[str, Any] = {}
    directory: str = ""
    environment: dict[str, str] = {}
    sandbox: str = ""
    inputs: dict[str, str] = {}
    """The hash of each file that the action changes or that its command refers to, keyed by path.

    The hash is empty if the file does not exist.
    """
    outputs: dict[str, str] = {}
    """The hash of each changed file after the action. After a crash, it shows whether the action was executed."""
    diff: str = ""
    asked_at: float = 0.0
    expires_at: float = 0.0
    nonce: str = ""
    version: int = 1

    @property
    def id(self) -> str:
        """The hash of all fields; an approval applies to exactly this id."""
        return _hash_action(self)

    @property
    def digest(self) -> str:
        """The hash of all fields except times and nonce; it is the same for identical actions."""
        return _hash_action(structs.replace(self, asked_at=0.0, expires_at=0.0, nonce=""))

    @property
    def repeat_key(self) -> str:
        """A hash that ignores times, the nonce, and the content of files that are only read.

        An approval for the rest of the run covers every action with the same hash.
        """
        same = structs.replace(self, asked_at=0.0, expires_at=0.0, nonce="")
        return _hash_action(same if self.outputs else structs.replace(same, inputs={}))

    @property
    def effect_hash(self) -> str:
        """A hash of the tool, the arguments and the directory, the same for every agent."""
        return sha256(msgspec.json.encode((self.tool, self.arguments, self.directory), order="sorted")).hexdigest()


def _hash_action(action: Action) -> str:
    return sha256(msgspec.json.encode(structs.asdict(action), order="sorted")).hexdigest()
