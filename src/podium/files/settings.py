"""Load the settings from files, the environment and code.

The sources are, in increasing precedence: the repository's file, confirmed server addresses, the user's own
file, the environment, and arguments. Daily budgets are an exception: the lower of the limits in the two files applies.
The modules `settings_document`, `settings_files` and `settings_keys` define the format of the files and read them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import structs

if TYPE_CHECKING:
    from ..policy import Rules

from ..engines.local.model_folder import choose_default_model, find_models_folder, has_library
from ..engines.model.providers import (
    LOCAL,
    PROVIDERS,
    REHEARSAL,
    find_configured_provider,
    find_provider,
    parse_model,
    resolve_base_url,
    without_credentials,
)
from ..system.locations import find_home_folder, find_repo
from ..values.agent import Agent, Budget, Permissions
from ..values.errors import Mistake
from ..values.json import Json, JsonObject
from ..values.store_address import StoreAddress, is_postgres_url, make_postgres_address, require_known_queue
from ..values.usage import DEFAULT_TURN_LIMITS, TurnLimits, Unattended
from .always_allow_rules import load_allowed_rules
from .confirmed_model_servers import load_confirmed_servers
from .model_role import Role, resolve_models
from .settings_document import (
    MODES,
    FileSettings,
    PermissionMode,
    ProviderLimits,
    SettingsDocument,
    make_document,
    merge_documents,
    without_looser_budgets,
)
from .settings_files import SettingsFiles, read_settings_files

Origin = Literal["default", "repository file", "confirmed server", "user file", "environment", "local model", "flag"]

NO_RULES = Permissions()


class Settings(FileSettings, frozen=True, kw_only=True):
    """The effective configuration of Podium: the settings that files can contain, and what is derived from them.

    `model` is the model for agents that do not specify one, as `provider:model` or a role in `models`; empty if none is
    configured, and `rehearsal` to simulate all replies. `base_url` is the address of its provider. Keys are not
    settings: they stay in the environment and are never stored. `permissions` contains the user's rules, and
    `narrowing` the rules that the repository adds. `proposed` contains the settings that would apply only if the
    repository were trusted. `sources` maps every key with a non-default value to its origin.
    """

    home: Path
    store: StoreAddress
    base_url: str = ""
    patience: TurnLimits = DEFAULT_TURN_LIMITS
    narrowing: Permissions = NO_RULES
    unattended: Unattended = "deny"
    proposed: SettingsDocument = SettingsDocument()
    notices: tuple[str, ...] = ()
    sources: dict[str, Origin] = msgspec.field(default_factory=dict)

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ, repo: Path | None = None, **given: Any) -> Settings:
        """Load the settings for this environment and repository. Arguments take precedence."""
        return cls.from_files(
            read_settings_files(find_home_folder(environ, given.get("home")), repo), environ, repo, **given
        )

    @classmethod
    def from_files(
        cls, files: SettingsFiles, environ: Mapping[str, str], repo: Path | None = None, **given: Any
    ) -> Settings:
        """Build the settings from these files. If the files contain errors, raise Mistake with the first one."""
        files.require_no_errors()
        given = {key: value for key, value in given.items() if value is not None}
        home = find_home_folder(environ, given.get("home"))
        layers: dict[Origin, SettingsDocument] = {
            "repository file": files.repo.replace(permissions=NO_RULES),
            "confirmed server": _read_confirmed_addresses(home),
            "user file": without_looser_budgets(files.user, files.repo),
            "environment": _read_environment(environ),
            "flag": make_document(**{key: given[key] for key in FLAGS & given.keys()}),
        }
        said, sources = SettingsDocument(), dict[str, Origin]()
        for origin, document in layers.items():
            said = merge_documents(said, document)
            sources |= dict.fromkeys(document.iter_explicit_keys(), origin)
        if kept := tuple(one.rule for one in load_allowed_rules(home) if one.applies_in(repo)):
            mine = structs.replace(said.permissions, allow=(*said.permissions.allow, *kept))
            said = said.replace(permissions=mine)
        if not said.model and (found := _detect_model(environ, home)) is not None:
            said, sources["model"] = said.replace(model=found[0]), found[1]
        _validate_document(said, files, sources, repo)
        values = dict(said.iter_values())
        values |= {
            "store": _choose_store(said.store, home, repo, sources),
            "narrowing": structs.replace(files.repo.permissions, allow=()),
            "proposed": files.proposed,
            "notices": tuple(str(finding) for finding in files.diagnostics),
            "sources": sources,
        }
        sources |= {"home": "environment"} if environ.get("PODIUM_HOME") else {}
        for key in given.keys() - FLAGS:
            values[key], sources[key] = given[key], "flag"
        settings = cls(**(values | {"home": home}))
        return settings if settings.base_url else settings.with_own_address(environ)

    def add_provider_addresses(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment plus the provider addresses from the settings. Existing variables take precedence."""
        moved = {
            find_provider(name).url_name: limits.base_url
            for name, limits in self.providers.items()
            if limits.base_url is not None and not environ.get(find_provider(name).host_name or "")
        }
        return moved | {key: value for key, value in environ.items() if value or key not in moved}

    def with_own_address(self, environ: Mapping[str, str]) -> Settings:
        """Return the settings with `base_url` set to the address that they name for the model's provider."""
        first = resolve_models(self.model, self.models).models[0]
        if first in ("", REHEARSAL):
            return self
        one = parse_model(first)[0]
        is_moved = any(environ.get(name) for name in (one.url_name, one.host_name or ""))
        origin = "environment" if is_moved else self.sources.get(f"providers.{one.name}.base_url", "default")
        url = resolve_base_url(one, self.add_provider_addresses(environ))
        return structs.replace(self, base_url=url, sources={**self.sources, "base_url": origin})

    def role_of(self, agent: Agent) -> Role | None:
        """Return the role that an agent uses as its model, or None if it uses no role."""
        named = agent.model if agent.model not in ("", "inherit") else self.model
        return self.models.get(named)

    def apply_role_budget(self, agent: Agent) -> Agent:
        """Return the agent with the budget of its role, unless the agent sets its own budget."""
        role = self.role_of(agent)
        if role is None or role.budget is None or agent.budget is not None:
            return agent
        return structs.replace(agent, budget=role.budget)

    def build_system_prompt(self, agent: Agent) -> str:
        """Return the agent's system prompt: its own prompt, followed by the prompt of its role."""
        role = self.role_of(agent)
        return agent.prompt if role is None or not role.prompt else f"{agent.prompt}\n\n{role.prompt}"

    def build_turn_limits(self) -> TurnLimits:
        """Return the turn limits, including the time limit for answering requests."""
        return structs.replace(self.patience, approval=self.approval_seconds)

    def build_rules(self) -> Rules:
        """Return the combined rules of the user and the repository; the strictest rule applies."""
        from ..policy import Rules, narrow_rules  # imported here to keep start-up fast: most commands evaluate no rules

        mine = self.permissions
        rules = Rules(allow=mine.allow, ask=mine.ask, deny=mine.deny)
        return narrow_rules(rules, Rules(ask=self.narrowing.ask, deny=self.narrowing.deny))

    def to_record(self) -> dict[str, Json]:
        """Return the settings that a run records so that it resumes unchanged. They contain no secrets."""
        kept = {key: msgspec.to_builtins(getattr(self, key)) for key in RECORDED_FIELDS}
        seconds = None if math.isinf(self.approval_seconds) else self.approval_seconds
        return kept | {"base_url": without_credentials(self.base_url), "approval_seconds": seconds}

    def with_record(self, recorded: JsonObject) -> Settings:
        """Return these settings, overridden by those that a run recorded. Current ask and deny rules still apply."""
        mine = structs.replace(self, base_url=without_credentials(self.base_url))
        then = {key: msgspec.convert(recorded[key], kind) for key, kind in RECORDED_FIELDS.items() if key in recorded}
        other = {key: value for key, value in then.items() if value != getattr(mine, key)}
        if other.keys() & {"permissions", "narrowing"}:
            other["narrowing"] = merge_restrictions(then.get("narrowing", NO_RULES), self.narrowing, self.permissions)
        if "permission_mode" in other and not self._may_keep_mode(other["permission_mode"]):
            del other["permission_mode"]
        return structs.replace(self, **other) if other else self

    def _may_keep_mode(self, mode: PermissionMode) -> bool:
        """Return whether a resumed run keeps its recorded mode.

        It does, unless that mode is `bypass` or the current settings set a mode explicitly.
        """
        return mode != "bypass" and "permissions.mode" not in self.sources


FLAGS = frozenset(FileSettings.__struct_fields__)
"""The arguments of `Settings.load` that are merged with the settings in files.

Any other argument replaces a whole field of `Settings`.
"""

RECORDED_FIELDS: dict[str, Any] = {
    "model": str,
    "base_url": str,
    "patience": TurnLimits,
    "models": dict[str, Role],
    "budget": Budget | None,
    "permission_mode": PermissionMode,
    "checks": dict[str, tuple[str, ...]],
    "permissions": Permissions,
    "narrowing": Permissions,
}
"""The settings that a run records."""


def _read_environment(environ: Mapping[str, str]) -> SettingsDocument:
    """Return the settings in environment variables. Empty variables are ignored."""
    mode, store = environ.get("PODIUM_PERMISSION_MODE") or None, environ.get("PODIUM_STORE") or None
    if mode is not None and mode not in MODES:
        raise Mistake(f"PODIUM_PERMISSION_MODE is {mode!r}, which is not a mode; available: {', '.join(MODES)}")
    if store is not None and "://" in store and not is_postgres_url(store):
        raise Mistake(
            "PODIUM_STORE is an address of an unsupported kind; use local, the path of a file or postgresql://…"
        )
    placement = environ.get("PODIUM_PLACEMENT") or None
    if placement is not None:
        try:
            require_known_queue(placement)
        except Mistake as error:
            raise Mistake(f"PODIUM_PLACEMENT is not valid: {error}") from None
    return make_document(
        model=environ.get("PODIUM_MODEL") or None, permission_mode=mode, store=store, placement=placement
    )


def _read_confirmed_addresses(home: Path) -> SettingsDocument:
    """Return the addresses of the servers that the user confirmed."""
    found = {
        one.provider: ProviderLimits(base_url=one.url)
        for one in load_confirmed_servers(home)
        if one.provider in PROVIDERS
    }
    return make_document(providers=found)


def _detect_model(environ: Mapping[str, str], home: Path) -> tuple[str, Origin] | None:
    """Choose a model if none is configured: by API key, from a confirmed server, or from the installed models."""
    if (by_key := find_configured_provider(environ)) is not None:
        return f"{by_key.name}:{by_key.default_model}", "environment"
    agreed = [one for one in load_confirmed_servers(home) if one.provider in PROVIDERS]
    if agreed:
        return f"{agreed[-1].provider}:{agreed[-1].model}", "confirmed server"
    installed = choose_default_model(find_models_folder(environ, home).load_models())
    if installed is None or not has_library():
        return None
    return f"{LOCAL}:{installed.name}", "local model"


def _choose_store(named: str, home: Path, repo: Path | None, sources: Mapping[str, Origin]) -> StoreAddress:
    if not named:
        return home / "podium.db"
    if is_postgres_url(named):
        return make_postgres_address(named, home)
    if named == "local":
        return (repo or find_repo(Path.cwd(), home=home)).absolute() / ".podium" / "podium.db"
    base = home if sources["store"] == "user file" else Path()
    return (base / Path(named).expanduser()).absolute()


def merge_restrictions(*rules: Permissions) -> Permissions:
    """Return the ask and deny rules from all the arguments."""
    return Permissions(
        ask=tuple(dict.fromkeys(rule for one in rules for rule in one.ask)),
        deny=tuple(dict.fromkeys(rule for one in rules for rule in one.deny)),
    )


def _validate_document(
    said: SettingsDocument, files: SettingsFiles, sources: Mapping[str, Origin], repo: Path | None
) -> None:
    """Raise Mistake for unknown models, roles or providers, or a worktree folder inside the repository."""

    def locate_key(key: str) -> str:
        lines = {"user file": files.user_lines, "repository file": files.repo_lines}.get(sources.get(key, ""), {})
        return f"{lines[key]}: {key}: " if key in lines else ""

    for name in said.providers:
        key = next(key for key in sources if key.startswith(f"providers.{name}."))
        try:
            find_provider(name)
        except Mistake as error:
            raise Mistake(f"{locate_key(key)}{error}") from None
    if said.worktrees.folder and repo is not None:
        try:
            _validate_worktree_folder(said.worktrees.folder, repo)
        except Mistake as error:
            raise Mistake(f"{locate_key('worktrees.folder')}{error}") from None
    named = [("model", said.model)] if said.model else []
    named += [("limits.fallback_models", model) for model in said.limits.fallback_models]
    for key, text in (*named, *((f"models.{name}", name) for name in said.models)):
        try:
            for model in resolve_models(text, said.models).models:
                if model != REHEARSAL:
                    parse_model(model)
        except Mistake as error:
            raise Mistake(f"{locate_key(key)}{error}") from None


def _validate_worktree_folder(folder: str, repo: Path) -> None:
    """Raise Mistake if a folder pattern is invalid or does not place worktrees outside the repository."""
    from ..workspace.worktrees.worktree_folder import resolve_worktree_folder  # imported here to keep start-up fast

    main = repo.resolve()
    # Workers are unlikely to be used outside a repository, or in a repository that contains the whole home folder, so
    # the folder is not checked there.
    if (main / ".git").exists() and not Path(os.path.expanduser("~")).is_relative_to(main):  # noqa: PTH111
        resolve_worktree_folder(folder, main=main, branch="{branch}")
