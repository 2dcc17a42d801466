"""Define the facts about an action that a person should notice before approving it."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

RiskKind = Literal["deletes", "outside", "network", "protected_path", "control_characters", "unknown_program"]
RISK_KINDS: tuple[RiskKind, ...] = get_args(RiskKind)


class RiskFact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fact about an action. `examples` lists some paths, hosts, programs or characters; `more` counts the rest."""

    kind: RiskKind
    examples: tuple[str, ...] = ()
    more: int = 0
