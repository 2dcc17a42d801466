"""A document: all that one settings file says. Documents lie in layers; later ones win."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from msgspec import Struct, structs

from ..values.agent import Budget, Permissions
from ..values.mcp_server import McpServer
from .model_role import Role

PermissionMode = Literal["default", "accept-edits", "plan", "dont-ask", "bypass"]
MODES: tuple[PermissionMode, ...] = ("default", "accept-edits", "plan", "dont-ask", "bypass")

NEEDS_TRUST = ("engines", "mcp_servers", "permission_mode", "sandbox", "store", "checks", "worktrees", "notify")
"""What a repository cannot decide by itself, besides `permissions.allow` and the addresses of providers."""

SPELLED = {
    "mcp_servers": "mcpServers",
    "permission_mode": "permissions.mode",
    "approval_seconds": "approvals.timeout",
}
"""How a field is called in files, where that is not its name."""

S = TypeVar("S", bound=Struct)


class Launch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program with its arguments and variables."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class WorktreeSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the worktrees of workers are kept; empty is not said.

    `setup` is run in a worktree when it is made, `teardown` before it goes. `folder` is the pattern of where
    it is made, `quota` how many bytes all of a store may take.
    """

    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()
    folder: str = ""
    quota: int | None = None

    def explicit_fields(self) -> dict[str, tuple[str, ...] | str | int]:
        """What is said, by its key."""
        return {key: value for key, value in structs.asdict(self).items() if value}


class ProviderLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a provider is, and how much may be asked of it; None is not said."""

    base_url: str | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None


class SettingsDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a file says; None or empty is not said.

    `store` is `local` or a path. `approval_seconds` is infinite where an answer is waited for always.
    """

    model: str | None = None
    models: dict[str, Role] = {}
    engines: dict[str, Launch] = {}
    mcp_servers: dict[str, McpServer] = {}
    permissions: Permissions = Permissions()
    permission_mode: PermissionMode | None = None
    sandbox: bool | None = None
    store: str | None = None
    workers: int | None = None
    max_restarts: int | None = None
    budget: Budget | None = None
    notify: tuple[str, ...] = ()
    checks: dict[str, tuple[str, ...]] = {}
    worktrees: WorktreeSettings = WorktreeSettings()
    providers: dict[str, ProviderLimits] = {}
    approval_seconds: float | None = None

    def iter_explicit_keys(self) -> Iterator[str]:
        """Every key that it says something about, as files spell it, entries of a mapping as `models.fast`."""
        for name, value in _iter_explicit_fields(self):
            key = SPELLED.get(name, name)
            if name == "providers":
                yield from (
                    f"{key}.{entry}.{limit}"
                    for entry, limits in value.items()
                    for limit, _ in _iter_explicit_fields(limits)
                )
            elif isinstance(value, dict):
                yield from (f"{key}.{entry}" for entry in value)
            elif isinstance(value, Struct):
                yield from (f"{key}.{entry}" for entry, _ in _iter_explicit_fields(value))
            else:
                yield key

    def select_proposed(self) -> SettingsDocument:
        """The part that a repository may not decide by itself."""
        moved = {
            name: ProviderLimits(base_url=limits.base_url)
            for name, limits in self.providers.items()
            if limits.base_url is not None
        }
        return SettingsDocument(
            permissions=Permissions(allow=self.permissions.allow),
            providers=moved,
            **{name: value for name, value in _iter_explicit_fields(self) if name in NEEDS_TRUST},
        )

    def without_proposed(self) -> SettingsDocument:
        """The rest of it, in which permissions only narrow."""
        own: dict[str, Any] = {name: value for name, value in _iter_explicit_fields(self) if name not in NEEDS_TRUST}
        own["permissions"] = structs.replace(self.permissions, allow=())
        limits = {name: structs.replace(limits, base_url=None) for name, limits in self.providers.items()}
        own["providers"] = {name: one for name, one in limits.items() if one != ProviderLimits()}
        return SettingsDocument(**own)


def merge_documents(low: SettingsDocument, high: SettingsDocument) -> SettingsDocument:
    """Both documents as one. What `high` says wins, entry by entry."""
    merged: dict[str, Any] = dict(_iter_explicit_fields(low)) | dict(_iter_explicit_fields(high))
    for name in ("models", "engines", "mcp_servers", "checks"):
        merged[name] = getattr(low, name) | getattr(high, name)
    merged["worktrees"] = _merge_fields(low.worktrees, high.worktrees)
    merged["providers"] = low.providers | {
        name: _merge_fields(low.providers.get(name, ProviderLimits()), limits)
        for name, limits in high.providers.items()
    }
    if low.budget is not None and high.budget is not None:
        merged["budget"] = _merge_fields(low.budget, high.budget)
    return SettingsDocument(**merged)


def _merge_fields(low: S, high: S) -> S:
    return structs.replace(low, **dict(_iter_explicit_fields(high)))


def _iter_explicit_fields(value: Struct) -> Iterator[tuple[str, Any]]:
    """The fields that say something; each of them has a default, which says nothing."""
    # Not with msgspec's own list of fields: that finds out their types, which takes longer than reading most files.
    for name, default in zip(value.__struct_fields__, value.__struct_defaults__, strict=True):
        found = getattr(value, name)
        if found != default and found not in ({}, ()):
            yield name, found
