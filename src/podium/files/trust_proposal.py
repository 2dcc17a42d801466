"""Find proposals: repository settings that take effect only if the user trusts them.

Trust applies to the exact value, in that repository only. A changed value is a new proposal. This
module does not ask the user; the user interfaces do.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from ..system.checkouts import find_checkouts
from ..system.unsandboxed_program import REPO_VARIABLE
from ..values.agent import Permissions
from ..values.errors import Mistake
from ..values.hook import Hook, HookTable
from ..values.local_provider import find_local_provider
from ..values.mcp_server import McpServer, build_trust_name, qualify_with_directory
from .model_role import Role
from .program_start import ProgramStart, plan_start
from .settings_document import SPELLED, ProviderLimits, SettingsDocument, iter_explicit_fields, make_document
from .settings_keys import find_scope
from .trust import Trust

SERVER = "mcpServers."
PROGRAMS = ("engines.", SERVER)
"""The beginnings of the keys of programs that agents use."""
OWN = "yours."
"""The beginning of the keys of the user's own definitions that use files of a repository."""

_SCOPES = {SPELLED.get(name, name): name for name in SettingsDocument.__struct_fields__ if name != "explicit"}
NEEDS_TRUST = frozenset(name for key, name in _SCOPES.items() if find_scope(key) != "repository")
"""The fields of a document that a repository cannot set by itself: they need the user's trust, or only the user can set
them. The same applies to `permissions.allow`, provider URLs and local models, which are selected separately."""

CAN_BE_TRUSTED = tuple(name for key, name in _SCOPES.items() if find_scope(key) == "trust")
"""The fields that a repository can set if the user trusts it."""

Value = McpServer | Struct | tuple[str, ...] | tuple[Hook, ...] | HookTable | str | int


class Proposal(Struct, frozen=True, kw_only=True):
    """A setting that a repository proposes: its key, and its value as JSON in `content`.

    If the user trusts the value, its `digest` is recorded under `name`.
    """

    key: str
    kind: Literal["server", "settings"]
    name: str
    digest: str
    content: str


def select_proposed(document: SettingsDocument) -> SettingsDocument:
    """Return only the settings that need the user's trust, or that a repository cannot set at all."""
    moved = {
        name: ProviderLimits(base_url=limits.base_url)
        for name, limits in document.providers.items()
        if limits.base_url is not None
    }
    roles = _find_local_roles(document.models)
    kept = {name: value for name, value in document.iter_values() if name in NEEDS_TRUST}
    if document.engines:
        kept["engines"] = {name: one.without_access() for name, one in document.engines.items() if one.command}
    return make_document(
        permissions=Permissions(allow=document.permissions.allow),
        providers=moved,
        model=document.model if _is_local(document.model, roles) else None,
        models=roles,
        **kept,
    )


def without_proposed(document: SettingsDocument) -> SettingsDocument:
    """Return only the settings that a repository can set by itself. These do not include allow rules."""
    own = {name: value for name, value in document.iter_values() if name not in NEEDS_TRUST}
    own["permissions"] = structs.replace(document.permissions, allow=())
    limits = {name: structs.replace(limits, base_url=None) for name, limits in document.providers.items()}
    own["providers"] = {name: one for name, one in limits.items() if one != ProviderLimits()}
    roles = _find_local_roles(document.models)
    own["models"] = {name: role for name, role in document.models.items() if name not in roles}
    own["model"] = None if _is_local(document.model, roles) else document.model or None
    return make_document(**own)


def _find_local_roles(models: Mapping[str, Role]) -> dict[str, Role]:
    """Return the roles that use a model on a local server, even indirectly."""
    found: dict[str, Role] = {}
    is_complete = False
    while not is_complete:
        more = {
            name: role
            for name, role in models.items()
            if name not in found and any(_is_local(model, found) for model in (role.model, *role.fallbacks))
        }
        found |= more
        is_complete = not more
    return found


def _is_local(model: str, roles: Collection[str]) -> bool:
    """Return whether `model` is a model on a local server, or the name of a role in `roles`.

    `roles` contains the names of the roles that use a model on a local server.
    """
    return find_local_provider(model) is not None or model.strip() in roles


def list_own_servers(servers: Mapping[str, McpServer], repo: Path) -> Iterator[Proposal]:
    """Yield the user's own servers that use files of a repository, and therefore need the user's trust."""
    for name, server in servers.items():
        known = server.fill_in_known_variables(os.environ)
        plan = _plan_in_repository((known.command, *known.args), known.cwd, known.env, repo)
        if plan.is_dependent:
            yield _make_own_proposal(f"mcpServers.{name}", server, server.digest, plan, repo)


def list_own_hooks(table: HookTable, repo: Path) -> Iterator[Proposal]:
    """Yield the user's own hooks outside the sandbox that use files of a repository."""
    for event, hooks in table.items():
        for hook in hooks:
            plan = _plan_in_repository(hook.command, hook.cwd, {}, repo) if needs_no_sandbox(hook) else ProgramStart()
            if plan.is_dependent:
                key, digest = identify_hook(event, hook)
                yield _make_own_proposal(key, hook, digest, plan, repo)


def needs_no_sandbox(hook: Hook) -> bool:
    """Return whether a hook is a command for which the user turned the sandbox off."""
    return bool(hook.command) and not hook.sandbox


def identify_hook(event: str, hook: Hook) -> tuple[str, str]:
    """Return the key and the hash of a definition of a hook for an event."""
    digest = sha256(msgspec.json.encode(hook, order="sorted")).hexdigest()
    return f"hooks.{event}.{digest[:8]}", digest


def _make_own_proposal(key: str, value: McpServer | Hook, digest: str, plan: ProgramStart, repo: Path) -> Proposal:
    return Proposal(
        key=f"{OWN}{key}",
        kind="settings",
        name=build_own_trust_name(key, repo),
        digest=plan.compute_digest(digest),
        content=_encode_with_files(value, plan),
    )


def _plan_in_repository(command: Sequence[str], cwd: str, env: Mapping[str, str], repo: Path) -> ProgramStart:
    """Return where a command starts and what it depends on. A command that is refused depends on nothing."""
    variables = {**os.environ, REPO_VARIABLE: str(repo)}
    try:
        return plan_start(command, cwd=cwd, env=env, repo=repo, checkouts=find_checkouts(repo), variables=variables)
    except Mistake:
        return ProgramStart()


def _encode_with_files(value: McpServer | Hook, plan: ProgramStart) -> str:
    """Return a definition as JSON, with the hashes of the files that it depends on."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    files = {"files": dict(plan.content)} if plan.content else {}
    return msgspec.json.encode({**fields, **files}, order="sorted").decode()


def build_own_trust_name(key: str, repo: Path | None) -> str:
    """Return the name under which trust in a definition of the user's own that uses files of a repository is stored."""
    return qualify_with_directory(f"{OWN}{key}", repo)


def list_proposals(document: SettingsDocument, repo: Path) -> tuple[Proposal, ...]:
    """Return the settings in a repository's document that take effect only if the user trusts them, programs first."""
    found = (make_proposal(key, value, repo) for key, value in _iter_values(document))
    return tuple(sorted(found, key=lambda one: not one.key.startswith(PROGRAMS)))


def trust_id_for_key(key: str, repo: Path) -> tuple[Literal["server", "settings"], str]:
    """Return the kind and name used to record the user's trust in a repository's key."""
    if key.startswith(SERVER):
        return "server", qualify_with_directory(key.removeprefix(SERVER), repo)
    return "settings", qualify_with_directory(key, repo)


def find_trusted_keys(document: SettingsDocument, repo: Path, trust: Trust) -> frozenset[str]:
    """Return the keys whose current values the user trusts."""
    found = list_proposals(document, repo)
    return frozenset(one.key for one in found if trust.is_trusted(one.kind, one.name, one.digest))


def select_keys(document: SettingsDocument, keys: Collection[str]) -> SettingsDocument:
    """Return a document with only these keys."""
    kept = _select_fields(document, keys)
    moved = {name: ProviderLimits(base_url=document.providers[name].base_url) for name in kept.pop("providers")}
    return make_document(providers=moved, **kept)


def without_keys(document: SettingsDocument, keys: Collection[str]) -> SettingsDocument:
    """Return the document without these keys."""
    others = {key for key, _ in _iter_values(document)} - set(keys)
    return document.replace(**_select_fields(document, others))


def _select_fields(document: SettingsDocument, keys: Collection[str]) -> dict[str, Any]:
    """Return the fields that need the user's trust, with only the entries whose keys are in `keys`."""
    kept: dict[str, Any] = {
        "model": document.model if "model" in keys else None,
        "models": {name: one for name, one in document.models.items() if f"models.{name}" in keys},
        "providers": {name: one for name, one in document.providers.items() if f"providers.{name}.base_url" in keys},
    }
    for name in CAN_BE_TRUSTED:
        value, key = getattr(document, name), SPELLED.get(name, name)
        if isinstance(value, dict):
            kept[name] = {entry: one for entry, one in value.items() if f"{key}.{entry}" in keys}
        elif isinstance(value, Struct):
            own = {field: one for field, one in iter_explicit_fields(value) if f"{key}.{field}" in keys}
            kept[name] = type(value)(**own)
        else:
            kept[name] = value if key in keys else None
    return kept


def _iter_values(document: SettingsDocument) -> Iterator[tuple[str, Value]]:
    local = select_proposed(document)
    if local.model:
        yield "model", local.model
    for name, role in local.models.items():
        yield f"models.{name}", role
    for name, value in document.iter_values():
        if name in CAN_BE_TRUSTED:
            yield from _iter_entries(SPELLED.get(name, name), value)
    for name, limits in document.providers.items():
        if limits.base_url is not None:
            yield f"providers.{name}.base_url", limits.base_url


def _iter_entries(key: str, value: Any) -> Iterator[tuple[str, Value]]:
    """Yield each part of a setting that can be trusted by itself: an entry of a mapping, or the whole setting."""
    if isinstance(value, dict):
        yield from ((f"{key}.{entry}", one) for entry, one in value.items())
    elif isinstance(value, Struct):
        yield from ((f"{key}.{field}", one) for field, one in iter_explicit_fields(value))
    else:
        yield key, value


def make_proposal(key: str, value: Value, repo: Path) -> Proposal:
    """Return the proposal of the repository `repo` to set `key` to `value`."""
    if isinstance(value, McpServer):
        known = value.fill_in_known_variables(os.environ)
        plan = _plan_in_repository((known.command, *known.args), known.cwd, known.env, repo)
        name, content = build_trust_name(value, repo), _encode_with_files(value, plan)
        return Proposal(key=key, kind="server", name=name, digest=plan.compute_digest(value.digest), content=content)
    content = msgspec.json.encode(value, order="sorted").decode()
    digest = sha256(content.encode()).hexdigest()
    return Proposal(key=key, kind="settings", name=qualify_with_directory(key, repo), digest=digest, content=content)
