"""Define the settings that files can contain, with their keys and defaults, and merge the settings of two files."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar, get_args

from msgspec import Struct, structs

from ..values.agent import Budget, Permissions
from ..values.hook import HookTable
from ..values.key import Key
from ..values.mcp_server import McpServer
from ..values.store_address import PGQUEUER
from .model_role import Role

PermissionMode = Literal["default", "accept-edits", "plan", "dont-ask", "bypass"]
MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)

DAILY_BUDGETS = ("day_budget", "repository_day_budget")
"""The budgets for which a repository can set lower limits than the user, but not higher ones."""

DAILY_LIMITS = ("usd", "tokens", "turns")
"""The limits of daily budgets. Time and changed files can be limited only per run."""

S = TypeVar("S", bound=Struct)


class Launch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A coding agent's program with its arguments and environment variables.

    `mode` is the mode that makes the agent ask for permission. `sandbox` says whether the agent runs in the sandbox,
    where it can reach `hosts` and read the folders in `readable`. An entry without a command configures an
    agent that Podium itself supports.
    """

    command: Annotated[str, Key()] = ""
    args: Annotated[tuple[str, ...], Key()] = ()
    env: Annotated[dict[str, str], Key(kind="secrets")] = {}
    mode: Annotated[str, Key()] = ""
    sandbox: Annotated[bool, Key(scope="user")] = True
    hosts: Annotated[tuple[str, ...], Key(kind="hosts", scope="user")] = ()
    readable: Annotated[tuple[str, ...], Key(scope="user")] = ()

    def without_access(self) -> "Launch":
        """Return this entry without the access that only the user can grant.

        Only the user can grant access to hosts and readable folders, and let an agent run without the sandbox.
        """
        return structs.replace(self, sandbox=True, hosts=(), readable=())


class NotifyCommand(Struct, frozen=True, kw_only=True):
    """A program that notifies the user, with its arguments."""

    command: Annotated[tuple[str, ...], Key(kind="command")]


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
    """Settings for workers' worktrees. An empty field is not set."""

    setup: Annotated[
        tuple[str, ...],
        Key("runs in the sandbox, in a worker's checkout, after the checkout is created", kind="command"),
    ] = ()
    teardown: Annotated[
        tuple[str, ...], Key("runs in the same place before the checkout is removed", kind="command")
    ] = ()
    folder: Annotated[
        str,
        Key(
            "[where](worktrees.md#location) checkouts are created; default `../{repo}-worker-{branch}`",
            "a path with `{repo}` and `{branch}`",
            kind="worktree folder",
        ),
    ] = ""
    quota: Annotated[
        int | None,
        Key(
            "[how much disk space](worktrees.md#disk-usage-and-quota) all checkouts together may use",
            "a size, such as `20GB`",
            kind="size",
        ),
    ] = None

    def explicit_fields(self) -> dict[str, tuple[str, ...] | str | int]:
        """Return the fields that are set."""
        return {key: value for key, value in structs.asdict(self).items() if value}


class ProviderLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A provider's URL, limits on calls and replies, timeouts in seconds, and how its models call tools.

    A field that is None is not set.
    """

    base_url: Annotated[str | None, Key(kind="url", scope="trust")] = None
    requests_per_minute: Annotated[int | None, Key()] = None
    tokens_per_minute: Annotated[int | None, Key()] = None
    concurrent: Annotated[int | None, Key()] = None
    first_token_timeout: Annotated[float | None, Key()] = None
    silence_timeout: Annotated[float | None, Key()] = None
    max_tokens: Annotated[int | None, Key()] = None
    tool_calls: Annotated[Literal["auto", "native", "text"] | None, Key()] = None


class LimitSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings that apply if a provider accepts no calls for a long time. A field that is None or empty is not set.

    `max_wait` is the longest time in seconds that a call waits for a provider. If the provider's limit resets later
    than that, the agent uses one of `fallback_models`. If there are no fallback models, the agent's run waits until the
    limit resets.
    """

    max_wait: Annotated[float | None, Key()] = None
    fallback_models: Annotated[tuple[str, ...], Key(kind="models")] = ()


class InstallSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings for commands that change the programs in the user's checkout. A field that is None or empty is not set.

    If `ask` is false, every command can change the folders of programs. `hosts` lists the hosts that an installation
    can reach if the user allows it.
    """

    ask: Annotated[bool | None, Key()] = None
    hosts: Annotated[tuple[str, ...], Key(kind="hosts")] = ()


class FileSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings that files can contain, and their defaults.

    `approval_seconds` is infinite if requests never time out.
    """

    model: Annotated[
        str, Key("the model for agents that do not select one", "`provider:model`, a provider, an alias or a role")
    ] = ""
    models: Annotated[
        dict[str, Role],
        Key(
            "see [Models and roles](#models-and-roles)",
            "role: model, or role: `{model, fallbacks, budget, prompt, rules}`",
            kind="roles",
        ),
    ] = {}
    budget: Annotated[
        Budget | None,
        Key(
            "limits for each run (see [How limits are enforced](results.md#how-limits-are-enforced)) and for "
            "[all runs in a day](limits.md#budgets-per-day); `per_day` and `per_repository_day` are `{usd, tokens, "
            "turns}`"
        ),
    ] = None
    day_budget: Annotated[
        Budget | None, Key("the limits for all runs in a day", name="budget.per_day", choices=DAILY_LIMITS)
    ] = None
    repository_day_budget: Annotated[
        Budget | None,
        Key(
            "the limits for all runs in a day in one repository", name="budget.per_repository_day", choices=DAILY_LIMITS
        ),
    ] = None
    permissions: Annotated[
        Permissions,
        Key(
            "`allow`, `ask` and `deny` are lists of [rules](permissions.md#rules), each a string or `{rule, match, "
            "not_match}`; `mode` is `default`, `accept-edits`, `plan`, `dont-ask` or `bypass`"
        ),
    ] = Permissions()
    permission_mode: Annotated[PermissionMode, Key(name="permissions.mode", scope="user")] = "default"
    approval_seconds: Annotated[
        float,
        Key(
            "the number of seconds after which an unanswered permission request is denied, or `never`; default 300",
            name="approvals.timeout",
            kind="approval timeout",
        ),
    ] = 300.0
    checks: Annotated[
        dict[str, tuple[str, ...]],
        Key(
            "commands that must pass, such as tests; run by the `run_checks` tool and after each merge",
            "name: command, or name: `[program, argument, …]`",
            kind="named commands",
            scope="trust",
        ),
    ] = {}
    worktrees: Annotated[WorktreeSettings, Key("see [Worktree settings](#worktree-settings)", scope="trust")] = (
        WorktreeSettings()
    )
    providers: Annotated[
        dict[str, ProviderLimits],
        Key(
            "a [provider's](engines.md#providers) address; limits on calls to it and on the length of a reply; how "
            "many seconds a call waits for a [reply to begin](engines.md#errors-and-retries) and for each further part "
            "of it; and [how its models call tools](engines.md#tool-calls-in-text): `auto`, `native` or `text`",
            kind="providers",
        ),
    ] = {}
    limits: Annotated[
        LimitSettings,
        Key(
            "what happens when a provider [refuses calls for a long time](limits.md): `max_wait` is the maximum number "
            "of seconds that a call waits (default 60); `fallback_models` are used while an agent's own models are at "
            "their limits",
            scope="user",
        ),
    ] = LimitSettings()
    hooks: Annotated[
        HookTable,
        Key(
            "commands that run when events occur in a run; see [Hooks](hooks.md)",
            "event: command, or event: `{command, plugin, tools, timeout, sandbox, cwd}`, or a list of them",
            kind="hooks",
            scope="trust",
        ),
    ] = {}
    mcp_servers: Annotated[
        dict[str, McpServer],
        Key(
            "[MCP servers](mcp.md)",
            "name: `{command, args, env, cwd}` or name: `{url, headers}`",
            kind="servers",
            scope="trust",
            name="mcpServers",
        ),
    ] = {}
    engines: Annotated[
        dict[str, Launch],
        Key(
            "[coding agents](engines.md#coding-agents) that agents can use as `engine`. `mode` is the coding agent's "
            "own name for the mode in which it asks for permission before it acts. `sandbox: off`, `hosts` and "
            "`readable` change [what it can access](engines.md#what-a-coding-agent-can-reach) and take effect only in "
            "your own settings",
            kind="engines",
            scope="trust",
        ),
    ] = {}
    workers: Annotated[
        int,
        Key(
            "the maximum number of workers that run at the same time; default 4. A value in a repository's file "
            "applies to the workers in that repository"
        ),
    ] = 4
    max_restarts: Annotated[
        int, Key("how many times a worker is [restarted](workers.md#the-commander) after a crash; default 1", least=0)
    ] = 1
    labels: Annotated[
        tuple[str, ...],
        Key(
            "the default labels for workers in a [fleet](fleet.md): if a task is delegated without labels, its worker "
            "runs only on a host that has all of these labels; has no effect without a fleet",
            "a list of labels",
            kind="words",
        ),
    ] = ()
    placement: Annotated[
        str,
        Key(
            "the queue from which the hosts of a [fleet](fleet.md) take jobs; `pgqueuer`, the only one, is in the "
            "store's database",
            "`pgqueuer`",
            kind="queue",
            scope="user",
        ),
    ] = PGQUEUER
    squad_inbox: Annotated[
        bool,
        Key(
            "whether the [decisions](squads.md#decisions) of a squad's runs are written to the squad's inbox; default "
            "false"
        ),
    ] = False
    squad_history: Annotated[
        bool, Key("whether members of a squad can write notes to their [`history.md`](memory.md#squads); default false")
    ] = False
    forge: Annotated[
        Literal["github", "gitlab"] | None,
        Key(
            "where `podium merge --pull-request` opens [pull requests](merging.md#pull-requests); by default, this is "
            "determined by the remote's host name or, failing that, by the installed program (`gh` or `glab`)"
        ),
    ] = None
    sandbox: Annotated[bool, Key("whether commands run in a sandbox; default `on`", "`on` or `off`", scope="user")] = (
        True
    )
    installs: Annotated[
        InstallSettings,
        Key(
            "commands that change [programs in your checkout](sandbox.md#programs-in-your-checkout): `ask: off` lets "
            "every command change them without asking; `hosts` are hosts that an installation can reach if you allow "
            "it, in addition to `network`",
            scope="user",
        ),
    ] = InstallSettings()
    network: Annotated[
        tuple[str, ...],
        Key(
            "[hosts that commands in the sandbox can reach](sandbox.md#granted-hosts): `pypi.org`, "
            "`example.com:8443`, `*.example.com` or an IP address; default none",
            "a list of hosts",
            kind="hosts",
            scope="user",
        ),
    ] = ()
    notify: Annotated[
        tuple[NotifyTarget, ...],
        Key(
            "how Podium notifies you; see [Notifications](#notifications)",
            "a list of `bell`, `title`, `desktop`, URLs or `{command}`",
            kind="notify targets",
            scope="user",
        ),
    ] = ()


class SettingsDocument(FileSettings, frozen=True, kw_only=True, omit_defaults=True):
    """The settings that one file or another source sets: those in `explicit`. Use `make_document` to make one.

    `store` is `local`, a path or a PostgreSQL URL.
    """

    store: Annotated[
        str,
        Key(
            "where runs are stored: `local` is `.podium/podium.db` in the repository; a path is relative to Podium's "
            "home; a URL is a [PostgreSQL database](fleet.md), which several machines can share; default `podium.db` "
            "in Podium's home",
            "`local`, a path or `postgresql://…`",
            kind="store",
            scope="user",
        ),
    ] = ""
    explicit: frozenset[str] = frozenset()

    def replace(self, **values: Any) -> "SettingsDocument":
        """Return a copy that sets these fields too, or no longer sets those that are empty."""
        return make_document(**{name: getattr(self, name) for name in self.explicit} | values)

    def iter_values(self) -> Iterator[tuple[str, Any]]:
        """Yield every field that is set, with its value."""
        return ((name, getattr(self, name)) for name in self.__struct_fields__ if name in self.explicit)

    def iter_explicit_keys(self) -> Iterator[str]:
        """Yield every key that is set, as spelled in files. A mapping entry is spelled like `models.fast`."""
        for name, value in self.iter_values():
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


def make_document(**values: Any) -> SettingsDocument:
    """Return a document that sets these fields, except those that are None or empty."""
    given = {name: value for name, value in values.items() if value is not None and not _is_empty(value)}
    return SettingsDocument(explicit=frozenset(given), **given)


def _is_empty(value: Any) -> bool:
    return value in ({}, ()) or (isinstance(value, Struct) and not any(iter_explicit_fields(value)))


def _list_spellings() -> dict[str, str]:
    hints = FileSettings.__annotations__ | SettingsDocument.__annotations__
    keys = {name: one for name, hint in hints.items() for one in get_args(hint)[1:] if isinstance(one, Key)}
    return {name: key.name for name, key in keys.items() if key.name}


SPELLED = _list_spellings()
"""The key in settings files for each field that has a different name there."""


def merge_documents(low: SettingsDocument, high: SettingsDocument) -> SettingsDocument:
    """Merge two documents. `high` takes precedence.

    Mappings, budgets, limits and worktree settings are merged entry by entry. Any other value that `high` sets
    replaces the value in `low` completely. The hooks of both documents run, those of `low` first.
    """
    merged = dict(low.iter_values()) | dict(high.iter_values())
    for name in low.explicit & high.explicit - {"permissions"}:
        merged[name] = _merge_values(name, getattr(low, name), getattr(high, name))
    return make_document(**merged)


def _merge_values(name: str, low: Any, high: Any) -> Any:
    if name == "hooks":
        return low | {event: low.get(event, ()) + hooks for event, hooks in high.items()}
    if name == "providers":
        return low | {key: _merge_fields(low.get(key, ProviderLimits()), limits) for key, limits in high.items()}
    if isinstance(low, Struct) and isinstance(high, Struct):
        return _merge_fields(low, high)
    return low | high if isinstance(low, dict) else high


def without_looser_budgets(document: SettingsDocument, other: SettingsDocument) -> SettingsDocument:
    """Return the document without the daily budget limits that are higher than those in `other`."""
    kept: dict[str, Budget] = {}
    for name, limit in iter_looser_limits(document, other):
        kept[name] = structs.replace(kept.get(name) or getattr(document, name), **{limit: None})
    return document.replace(**kept)


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
