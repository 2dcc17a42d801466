"""A proposal: one thing that a repository would do here if the person trusted it.

What is trusted is the value as it is written, in that repository and nowhere else. Whatever
changes it makes it another proposal. Asking the person belongs to the surfaces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from ..values.mcp_server import McpServer, build_trust_name, qualify_with_directory
from .settings_document import ProviderLimits, SettingsDocument, WorktreeSettings
from .trust import Trust

SERVER = "mcpServers."

Value = McpServer | Struct | tuple[str, ...] | str | int


class Proposal(Struct, frozen=True, kw_only=True):
    """A key of the repository's files with its value; `name` and `digest` are what trust goes by."""

    key: str
    kind: Literal["server", "settings"]
    name: str
    digest: str
    content: str


def list_proposals(document: SettingsDocument, repo: Path) -> tuple[Proposal, ...]:
    """All that can be trusted of what a repository proposes."""
    return tuple(_make_proposal(key, value, repo) for key, value in _iter_values(document))


def trust_id_for_key(key: str, repo: Path) -> tuple[Literal["server", "settings"], str]:
    """The kind and the name by which trust in a key of the repository goes, whatever its value is."""
    if key.startswith(SERVER):
        return "server", qualify_with_directory(key.removeprefix(SERVER), repo)
    return "settings", qualify_with_directory(key, repo)


def find_trusted_keys(document: SettingsDocument, repo: Path, trust: Trust) -> frozenset[str]:
    """The keys whose values the person trusts as they are."""
    found = list_proposals(document, repo)
    return frozenset(one.key for one in found if trust.is_trusted(one.kind, one.name, one.digest))


def select_keys(document: SettingsDocument, keys: Collection[str]) -> SettingsDocument:
    """The part of what is proposed that goes by these keys."""
    kept = _select_fields(document, keys)
    moved = {name: ProviderLimits(base_url=document.providers[name].base_url) for name in kept.pop("providers")}
    return SettingsDocument(providers=moved, **kept)


def without_keys(document: SettingsDocument, keys: Collection[str]) -> SettingsDocument:
    """The rest of it."""
    others = {key for key, _ in _iter_values(document)} - set(keys)
    return structs.replace(document, **_select_fields(document, others))


def _select_fields(document: SettingsDocument, keys: Collection[str]) -> dict[str, Any]:
    """The fields that can be trusted, with the entries of these keys."""
    worktrees: dict[str, Any] = {
        key: value for key, value in document.worktrees.explicit_fields().items() if f"worktrees.{key}" in keys
    }
    return {
        "engines": {name: one for name, one in document.engines.items() if f"engines.{name}" in keys},
        "mcp_servers": {name: one for name, one in document.mcp_servers.items() if f"{SERVER}{name}" in keys},
        "checks": {name: one for name, one in document.checks.items() if f"checks.{name}" in keys},
        "worktrees": WorktreeSettings(**worktrees),
        "providers": {name: one for name, one in document.providers.items() if f"providers.{name}.base_url" in keys},
    }


def _iter_values(document: SettingsDocument) -> Iterator[tuple[str, Value]]:
    for name, server in document.mcp_servers.items():
        yield f"{SERVER}{name}", server
    for name, launch in document.engines.items():
        yield f"engines.{name}", launch
    for name, argv in document.checks.items():
        yield f"checks.{name}", argv
    for key, value in document.worktrees.explicit_fields().items():
        yield f"worktrees.{key}", value
    for name, limits in document.providers.items():
        if limits.base_url is not None:
            yield f"providers.{name}.base_url", limits.base_url


def _make_proposal(key: str, value: Value, repo: Path) -> Proposal:
    content = msgspec.json.encode(value, order="sorted").decode()
    if isinstance(value, McpServer):
        name = build_trust_name(value, repo)
        return Proposal(key=key, kind="server", name=name, digest=value.digest, content=content)
    digest = sha256(content.encode()).hexdigest()
    return Proposal(key=key, kind="settings", name=qualify_with_directory(key, repo), digest=digest, content=content)
