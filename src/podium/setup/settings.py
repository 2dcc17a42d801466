"""Settings: what the person configured, in files, in the environment or in code.

A repository's file, the addresses that the person agreed to, the person's own file, the environment
and what is given lie over each other in this order; later ones win. What a file may say and how it
is read belongs to `config`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, structs

if TYPE_CHECKING:
    from ..policy import Rules

from ..config.allowed_rules import allowed
from ..config.confirmed_servers import confirmed
from ..config.launch import Launch
from ..config.model_role import Role, resolved
from ..config.settings_document import MODES, Document, PermissionMode, ProviderLimits, layered
from ..config.settings_files import Files, read_files
from ..config.worktree_settings import WorktreeSettings
from ..engines.model.providers import PROVIDERS, base_url, configured, parse_model, provider, without_credentials
from ..engines.names import REHEARSAL
from ..values.agent import Agent, Budget, Permissions
from ..values.errors import Mistake
from ..values.limits import PATIENCE, Patience, Unattended
from ..values.mcp_server import McpServer

Origin = Literal["default", "repository file", "confirmed server", "user file", "environment", "flag"]

NO_RULES = Permissions()


class Settings(Struct, frozen=True, kw_only=True):
    """How Podium works here.

    `model` is what agents think with that name nothing themselves, as `provider:model` or a role of
    `models`; empty where nothing is configured, and `rehearsal` where nothing shall be asked.
    `base_url` is where its provider is. Keys are not settings: they stay in the environment and are
    never stored. `permissions` are the person's, `narrowing` is what the repository adds to them.
    `proposed` is what the repository would do if it were trusted, and does not do. `sources` has the
    origin of every key that is not left to its default.
    """

    home: Path
    store: Path
    model: str = ""
    base_url: str = ""
    patience: Patience = PATIENCE
    models: dict[str, Role] = {}
    permissions: Permissions = NO_RULES
    narrowing: Permissions = NO_RULES
    permission_mode: PermissionMode = "default"
    budget: Budget | None = None
    checks: dict[str, tuple[str, ...]] = {}
    worktrees: WorktreeSettings = WorktreeSettings()
    mcp_servers: dict[str, McpServer] = {}
    engines: dict[str, Launch] = {}
    providers: dict[str, ProviderLimits] = {}
    approval_seconds: float = 300.0
    unattended: Unattended = "deny"
    sandbox: bool = True
    workers: int = 4
    max_restarts: int = 1
    notify: tuple[str, ...] = ()
    proposed: Document = Document()
    notices: tuple[str, ...] = ()
    sources: dict[str, Origin] = {}

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ, repo: Path | None = None, **given: Any) -> Settings:
        """The settings of this environment and repository; what is given wins."""
        return cls.of(read_files(home_folder(environ, given.get("home")), repo), environ, repo, **given)

    @classmethod
    def of(cls, files: Files, environ: Mapping[str, str], repo: Path | None = None, **given: Any) -> Settings:
        """The settings that follow from these files. Raises Mistake, with the first of their errors."""
        _must_be_right(files)
        given = {key: value for key, value in given.items() if value is not None}
        home = home_folder(environ, given.get("home"))
        layers: dict[Origin, Document] = {
            "repository file": structs.replace(files.repo, permissions=NO_RULES),
            "confirmed server": _addresses(home),
            "user file": files.user,
            "environment": _said_in(environ),
            "flag": Document(**{key: given[key] for key in FLAGS & given.keys()}),
        }
        said, sources = Document(), dict[str, Origin]()
        for origin, document in layers.items():
            said = layered(said, document)
            sources |= dict.fromkeys(document.said_keys(), origin)
        if kept := tuple(one.rule for one in allowed(home)):
            mine = structs.replace(said.permissions, allow=(*said.permissions.allow, *kept))
            said = structs.replace(said, permissions=mine)
        if said.model is None and (found := _found(environ, home)) is not None:
            said, sources["model"] = structs.replace(said, model=found[0]), found[1]
        _must_mean_something(said, files, sources, repo)
        values: dict[str, Any] = {name: getattr(said, name) for name in said.__struct_fields__}
        values = {name: value for name, value in values.items() if value is not None}
        values |= {
            "store": _store(said.store, home, repo, sources),
            "narrowing": structs.replace(files.repo.permissions, allow=()),
            "proposed": files.proposed,
            "notices": tuple(str(finding) for finding in files.findings),
            "sources": sources,
        }
        sources |= {"home": "environment"} if environ.get("PODIUM_HOME") else {}
        for key in given.keys() - FLAGS:
            values[key], sources[key] = given[key], "flag"
        settings = cls(**(values | {"home": home}))
        return settings if settings.base_url else settings._placed(environ)

    def addresses(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """The environment, with the settings' addresses of providers that it does not move itself."""
        moved = {
            PROVIDERS[name].url_name: limits.base_url
            for name, limits in self.providers.items()
            if limits.base_url is not None and not environ.get(PROVIDERS[name].host_name or "")
        }
        return moved | {key: value for key, value in environ.items() if value or key not in moved}

    def _placed(self, environ: Mapping[str, str]) -> Settings:
        """The same with the address of the model's provider."""
        first = resolved(self.model, self.models).models[0]
        if first in ("", REHEARSAL):
            return self
        one = parse_model(first)[0]
        is_moved = any(environ.get(name) for name in (one.url_name, one.host_name or ""))
        origin = "environment" if is_moved else self.sources.get(f"providers.{one.name}.base_url", "default")
        url = base_url(one, self.addresses(environ))
        return structs.replace(self, base_url=url, sources={**self.sources, "base_url": origin})

    def role_of(self, agent: Agent) -> Role | None:
        """The role that an agent thinks in; None where it names a model, or nothing."""
        named = agent.model if agent.model not in ("", "inherit") else self.model
        return self.models.get(named)

    def of_its_role(self, agent: Agent) -> Agent:
        """The agent with the budget of its role, where it has none of its own."""
        role = self.role_of(agent)
        if role is None or role.budget is None or agent.budget is not None:
            return agent
        return structs.replace(agent, budget=role.budget)

    def briefing(self, agent: Agent) -> str:
        """What the agent is told about itself: its own prompt, and that of its role."""
        role = self.role_of(agent)
        return agent.prompt if role is None or not role.prompt else f"{agent.prompt}\n\n{role.prompt}"

    def whole_patience(self) -> Patience:
        """The patience that holds, with the time that a person has for an answer."""
        return structs.replace(self.patience, approval=self.approval_seconds)

    def rules(self) -> Rules:
        """The rules of the person and of the repository; the strictest wins."""
        from ..policy import Rules, narrowed  # here, because most commands judge nothing

        mine = self.permissions
        rules = Rules(allow=mine.allow, ask=mine.ask, deny=mine.deny)
        return narrowed(rules, Rules(ask=self.narrowing.ask, deny=self.narrowing.deny))

    def recorded(self) -> dict[str, Any]:
        """What a run remembers of them, so that resuming it works the same; nothing secret."""
        kept = {key: msgspec.to_builtins(getattr(self, key)) for key in RECORDED}
        return kept | {"base_url": without_credentials(self.base_url)}

    def as_recorded(self, recorded: Mapping[str, Any]) -> Settings:
        """These settings with what a run remembers; what is forbidden by now stays forbidden."""
        mine = structs.replace(self, base_url=without_credentials(self.base_url))
        then = {key: msgspec.convert(recorded[key], kind) for key, kind in RECORDED.items() if key in recorded}
        other = {key: value for key, value in then.items() if value != getattr(mine, key)}
        if other.keys() & {"permissions", "narrowing"}:
            other["narrowing"] = _together(then.get("narrowing", NO_RULES), self.narrowing, self.permissions)
        if "permission_mode" in other and not self._may_still(other["permission_mode"]):
            del other["permission_mode"]
        return structs.replace(self, **other) if other else self

    def _may_still(self, mode: PermissionMode) -> bool:
        """Whether a run may go on in the mode that it began in: unless another is asked for, and never in `bypass`."""
        return mode != "bypass" and "permissions.mode" not in self.sources


FLAGS = frozenset(Document.__struct_fields__) - {"store"}
"""What can be given in code and lies over what files say, entry by entry."""

RECORDED: dict[str, Any] = {
    "model": str,
    "base_url": str,
    "patience": Patience,
    "models": dict[str, Role],
    "budget": Budget | None,
    "permission_mode": PermissionMode,
    "checks": dict[str, tuple[str, ...]],
    "permissions": Permissions,
    "narrowing": Permissions,
}
"""What a run remembers."""


def home_folder(environ: Mapping[str, str] = os.environ, given: Path | str | None = None) -> Path:
    """The folder of the person's own files and runs."""
    if named := given or environ.get("PODIUM_HOME"):
        return Path(named).absolute()
    try:
        return Path.home() / ".podium"
    except RuntimeError as error:
        raise Mistake("there is no home folder to keep runs in; set PODIUM_HOME to a folder of your own") from error


def _said_in(environ: Mapping[str, str]) -> Document:
    """What the environment says; a variable that is empty says nothing."""
    mode, store = environ.get("PODIUM_PERMISSION_MODE") or None, environ.get("PODIUM_STORE") or None
    if mode is not None and mode not in MODES:
        raise Mistake(f"PODIUM_PERMISSION_MODE is {mode!r}, which is no mode; {', '.join(MODES)} are")
    if store is not None and "://" in store:
        raise Mistake("PODIUM_STORE names a server, which cannot be used; local, or the path of a file, would be right")
    return Document(model=environ.get("PODIUM_MODEL") or None, permission_mode=mode, store=store)


def _addresses(home: Path) -> Document:
    """Where the servers are that the person agreed to use."""
    found = {one.provider: ProviderLimits(base_url=one.url) for one in confirmed(home) if one.provider in PROVIDERS}
    return Document(providers=found)


def _found(environ: Mapping[str, str], home: Path) -> tuple[str, Origin] | None:
    """What to think with where nothing says so: by a key, or at an address that the person agreed to."""
    if (by_key := configured(environ)) is not None:
        return f"{by_key.name}:{by_key.default_model}", "environment"
    agreed = [one for one in confirmed(home) if one.provider in PROVIDERS]
    return (f"{agreed[-1].provider}:{agreed[-1].model}", "confirmed server") if agreed else None


def _store(named: str | None, home: Path, repo: Path | None, sources: Mapping[str, Origin]) -> Path:
    if named is None:
        return home / "podium.db"
    if named == "local":
        from ..system.locations import find_repo

        return (repo or find_repo(Path.cwd(), home=home)).absolute() / ".podium" / "podium.db"
    base = home if sources["store"] == "user file" else Path()
    return (base / Path(named).expanduser()).absolute()


def _together(*rules: Permissions) -> Permissions:
    """What all of them hold back."""
    return Permissions(
        ask=tuple(dict.fromkeys(rule for one in rules for rule in one.ask)),
        deny=tuple(dict.fromkeys(rule for one in rules for rule in one.deny)),
    )


def _must_be_right(files: Files) -> None:
    if files.errors:
        more = len(files.errors) - 1
        rest = f" (and {more} more; podium config validate shows all)" if more else ""
        raise Mistake(f"{files.errors[0]}{rest}")


def _must_mean_something(said: Document, files: Files, sources: Mapping[str, Origin], repo: Path | None) -> None:
    """Every model, role and provider that is named has to be one, and workers' folders outside of the repository."""

    def place(key: str) -> str:
        lines = {"user file": files.user_lines, "repository file": files.repo_lines}.get(sources.get(key, ""), {})
        return f"{lines[key]}: {key}: " if key in lines else ""

    for name in said.providers:
        key = next(key for key in sources if key.startswith(f"providers.{name}."))
        try:
            provider(name)
        except Mistake as error:
            raise Mistake(f"{place(key)}{error}") from None
    if said.worktrees.folder and repo is not None:
        try:
            _must_suit(said.worktrees.folder, repo)
        except Mistake as error:
            raise Mistake(f"{place('worktrees.folder')}{error}") from None
    named = {"model": said.model} if said.model else {}
    for key, text in (named | {f"models.{name}": name for name in said.models}).items():
        try:
            for model in resolved(text, said.models).models:
                if model != REHEARSAL:
                    parse_model(model)
        except Mistake as error:
            raise Mistake(f"{place(key)}{error}") from None


def _must_suit(folder: str, repo: Path) -> None:
    """A pattern of folders has to name some outside of the repository. Raises Mistake."""
    from ..workspace.worktrees.worktree_folder import folder_for  # here, because hardly anybody names one

    main = repo.resolve()
    # Where no repository is, or one around the whole home folder, nobody may ever want a worker.
    if (main / ".git").exists() and not Path(os.path.expanduser("~")).is_relative_to(main):  # noqa: PTH111
        folder_for(folder, main=main, branch="{branch}")
