"""Define the document that represents the content of a settings file, and merge two documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from msgspec import Struct, structs

from ..values.agent import Budget, Permissions
from ..values.hook import HookTable
from ..values.mcp_server import McpServer
from .model_role import Role

PermissionMode = Literal["default", "accept-edits", "plan", "dont-ask", "bypass"]
MODES: tuple[PermissionMode, ...] = ("default", "accept-edits", "plan", "dont-ask", "bypass")

SPELLED = {
    "mcp_servers": "mcpServers",
    "permission_mode": "permissions.mode",
    "approval_seconds": "approvals.timeout",
    "day_budget": "budget.per_day",
    "repository_day_budget": "budget.per_repository_day",
}
"""The key in settings files for each field that has a different name there."""

DAILY_BUDGETS = ("day_budget", "repository_day_budget")
"""The budgets for which a repository can set lower limits than the user, but not higher ones."""

S = TypeVar("S", bound=Struct)


class Launch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A coding agent's program with its arguments and environment variables.

    `mode` is the mode that makes the agent ask for permission. `sandbox` says whether the agent runs in the sandbox,
    where it can reach `hosts` and read the folders in `readable`. An entry without a command configures an
    agent that Podium itself supports.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    mode: str = ""
    sandbox: bool = True
    hosts: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()

    def without_access(self) -> Launch:
        """Return this entry without the access that only the user can grant.

        Only the user can grant access to hosts and readable folders, and let an agent run without the sandbox.
        """
        return structs.replace(self, sandbox=True, hosts=(), readable=())


class NotifyCommand(Struct, frozen=True, kw_only=True):
    """A program that notifies the user, with its arguments."""

    command: tuple[str, ...]


NotifyTarget = str | NotifyCommand
"""How to notify the user: one of `NOTIFY_WORDS`, the URL of a webhook, or a command."""
NOTIFY_WORDS = ("bell", "title", "desktop")
"""The kinds of notifications that a terminal can show."""


def describe_notify_target(target: NotifyTarget) -> str:
    """Describe a notification target, without its arguments or path, which may be secret."""
    from urllib.parse import urlsplit  # imported here to keep start-up fast: few commands show the settings

    if isinstance(target, NotifyCommand):
        return f"command {target.command[0]}"
    url = urlsplit(target)
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}/…" if url.netloc else target


class WorktreeSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings for workers' worktrees. An empty field is not set.

    `setup` runs in a worktree after it is created, and `teardown` before it is removed. `folder` is the pattern for a
    worktree's path, and `quota` is the maximum number of bytes for all worktrees of a store.
    """

    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()
    folder: str = ""
    quota: int | None = None

    def explicit_fields(self) -> dict[str, tuple[str, ...] | str | int]:
        """Return the fields that are set."""
        return {key: value for key, value in structs.asdict(self).items() if value}


class ProviderLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A provider's URL, limits on calls and replies, timeouts in seconds, and how its models call tools.

    A field that is None is not set.
    """

    base_url: str | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    first_token_timeout: float | None = None
    silence_timeout: float | None = None
    max_tokens: int | None = None
    tool_calls: Literal["auto", "native", "text"] | None = None


class LimitSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings that apply if a provider accepts no calls for a long time. A field that is None or empty is not set.

    `max_wait` is the longest time in seconds that a call waits for a provider. If the provider's limit resets later
    than that, the agent uses one of `fallback_models`. If there are no fallback models, the agent's run waits until the
    limit resets.
    """

    max_wait: float | None = None
    fallback_models: tuple[str, ...] = ()


class InstallSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings for commands that change the programs in the user's checkout. A field that is None or empty is not set.

    If `ask` is false, every command can change the folders of programs. `hosts` lists the hosts that an installation
    can reach if the user allows it.
    """

    ask: bool | None = None
    hosts: tuple[str, ...] = ()


class SettingsDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a settings file. A field that is None or empty is not set.

    `store` is `local`, a path or a PostgreSQL URL. `approval_seconds` is infinite if requests never time out.
    """

    model: str | None = None
    models: dict[str, Role] = {}
    engines: dict[str, Launch] = {}
    mcp_servers: dict[str, McpServer] = {}
    permissions: Permissions = Permissions()
    permission_mode: PermissionMode | None = None
    sandbox: bool | None = None
    network: tuple[str, ...] = ()
    store: str | None = None
    placement: str | None = None
    workers: int | None = None
    max_restarts: int | None = None
    labels: tuple[str, ...] = ()
    budget: Budget | None = None
    day_budget: Budget | None = None
    repository_day_budget: Budget | None = None
    notify: tuple[NotifyTarget, ...] = ()
    checks: dict[str, tuple[str, ...]] = {}
    worktrees: WorktreeSettings = WorktreeSettings()
    providers: dict[str, ProviderLimits] = {}
    limits: LimitSettings = LimitSettings()
    installs: InstallSettings = InstallSettings()
    approval_seconds: float | None = None
    squad_inbox: bool | None = None
    hooks: HookTable = {}
    squad_history: bool | None = None
    forge: Literal["github", "gitlab"] | None = None

    def iter_explicit_keys(self) -> Iterator[str]:
        """Yield every key that is set, as spelled in files. A mapping entry is spelled like `models.fast`."""
        for name, value in iter_explicit_fields(self):
            key = SPELLED.get(name, name)
            if name == "providers":
                yield from (
                    f"{key}.{entry}.{limit}"
                    for entry, limits in value.items()
                    for limit, _ in iter_explicit_fields(limits)
                )
            elif isinstance(value, dict):
                yield from (f"{key}.{entry}" for entry in value)
            elif isinstance(value, Struct):
                yield from (f"{key}.{entry}" for entry, _ in iter_explicit_fields(value))
            else:
                yield key


def merge_documents(low: SettingsDocument, high: SettingsDocument) -> SettingsDocument:
    """Merge two documents. `high` takes precedence.

    Mappings, budgets, limits and worktree settings are merged entry by entry. Any other value that `high` sets
    replaces the value in `low` completely. The hooks of both documents run, those of `low` first.
    """
    merged: dict[str, Any] = dict(iter_explicit_fields(low)) | dict(iter_explicit_fields(high))
    for name in ("models", "engines", "mcp_servers", "checks"):
        merged[name] = getattr(low, name) | getattr(high, name)
    merged["hooks"] = low.hooks | {event: low.hooks.get(event, ()) + hooks for event, hooks in high.hooks.items()}
    merged["worktrees"] = _merge_fields(low.worktrees, high.worktrees)
    merged["limits"] = _merge_fields(low.limits, high.limits)
    merged["installs"] = _merge_fields(low.installs, high.installs)
    merged["providers"] = low.providers | {
        name: _merge_fields(low.providers.get(name, ProviderLimits()), limits)
        for name, limits in high.providers.items()
    }
    for name in ("budget", *DAILY_BUDGETS):
        if getattr(low, name) is not None and getattr(high, name) is not None:
            merged[name] = _merge_fields(getattr(low, name), getattr(high, name))
    return SettingsDocument(**merged)


def without_looser_budgets(document: SettingsDocument, other: SettingsDocument) -> SettingsDocument:
    """Return the document without the daily budget limits that are higher than those in `other`."""
    kept: dict[str, Budget] = {}
    for name, limit in iter_looser_limits(document, other):
        kept[name] = structs.replace(kept.get(name) or getattr(document, name), **{limit: None})
    return structs.replace(document, **kept)


def iter_looser_limits(document: SettingsDocument, other: SettingsDocument) -> Iterator[tuple[str, str]]:
    """Yield the budget name and limit name for each daily limit that is higher in the document than in `other`."""
    for name in DAILY_BUDGETS:
        mine, theirs = getattr(document, name), getattr(other, name)
        for limit, value in () if mine is None or theirs is None else iter_explicit_fields(mine):
            lower = getattr(theirs, limit)
            if lower is not None and lower < value:
                yield name, limit


def _merge_fields(low: S, high: S) -> S:
    return structs.replace(low, **dict(iter_explicit_fields(high)))


def iter_explicit_fields(value: Struct) -> Iterator[tuple[str, Any]]:
    """Yield the fields that are set: those whose value is neither the default nor empty."""
    # msgspec.structs.fields would also resolve types, which takes longer than reading most files.
    for name, default in zip(value.__struct_fields__, value.__struct_defaults__, strict=True):
        found = getattr(value, name)
        if found != default and found not in ({}, ()):
            yield name, found
