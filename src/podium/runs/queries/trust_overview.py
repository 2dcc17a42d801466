"""List a repository's settings, hooks and MCP tools that need the user's trust, with the trust state of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ...files.agent_trust import find_own_servers, propose_agent_hooks, propose_agent_servers, read_agent_hooks
from ...files.settings_document import merge_documents
from ...files.settings_files import SettingsFiles
from ...files.settings_keys import find_scope
from ...files.trust import Kind, Trust
from ...files.trust_proposal import OWN, list_own_hooks, list_own_servers, list_proposals, trust_id_for_key
from ...mcp_client.tool_definition import build_mcp_tool_name
from ...values.agent import Agent
from ...values.column import Document, DocumentPart
from ...values.errors import Mistake
from ...values.mcp_server import build_tool_trust_name

TrustState = Literal["new", "changed", "trusted"]


class TrustItem(Struct, frozen=True, kw_only=True):
    """An item that the user can trust. `content` is its current content and `was` is the trusted content, as JSON."""

    key: str
    state: TrustState
    where: str
    kind: Kind
    name: str
    digest: str
    content: str
    was: str = ""


class TrustOverview(Struct, frozen=True, kw_only=True):
    """The settings, hooks and changed MCP tools of a repository that need the user's trust.

    `ignored` contains the keys of settings that have no effect in a repository's settings file.
    """

    repo: Path
    items: tuple[TrustItem, ...]
    ignored: tuple[str, ...]

    @property
    def open_items(self) -> tuple[TrustItem, ...]:
        """The items that are new, or that have changed since the user trusted them."""
        return tuple(item for item in self.items if item.state != "trusted")


def build_trust_overview(files: SettingsFiles, repo: Path, trust: Trust, agents: Iterable[Agent] = ()) -> TrustOverview:
    """Return the settings, hooks and changed MCP tools of a repository that need the user's trust.

    `agents` contains the agents that can be used in the repository. Their hooks, and the use of the user's servers by
    the repository's agents, are included. Raise Mistake if the settings files have errors.
    """
    files.require_no_errors()
    # List all proposals: those that the user trusts are in `files.repo`, and the others are in `files.proposed`.
    everything = merge_documents(files.repo, files.proposed)
    places = [(one, files.repo_lines.get(one.key, "")) for one in list_proposals(everything, repo)]
    mine = (*list_own_servers(files.user.mcp_servers, repo), *list_own_hooks(files.user.hooks, repo))
    places += [(one, files.user_lines.get(one.key.removeprefix(OWN), "")) for one in mine]
    own = find_own_servers(files.user.mcp_servers.values())
    for agent in agents:
        found = (propose_agent_hooks(agent, repo), propose_agent_servers(agent, own, repo))
        places += [(one, agent.path) for one in found if one is not None]
        if agent.source == "user":
            places += [(one, agent.path) for one in list_own_hooks(read_agent_hooks(agent), repo)]
    items = []
    for one, where in places:
        record = trust.find_record(one.kind, one.name)
        state: TrustState = "new" if record is None else "trusted" if record.digest == one.digest else "changed"
        items.append(
            TrustItem(
                key=one.key,
                state=state,
                where=where,
                kind=one.kind,
                name=one.name,
                digest=one.digest,
                content=one.content,
                was=record.content if record is not None and state == "changed" else "",
            )
        )
    ignored = tuple(key for key in files.proposed.iter_explicit_keys() if find_scope(key) == "user")
    return TrustOverview(repo=repo, items=(*items, *_iter_changed_tools(files, repo, trust)), ignored=ignored)


def _iter_changed_tools(files: SettingsFiles, repo: Path, trust: Trust) -> Iterator[TrustItem]:
    """Yield an item for each tool whose description had changed when its server was last used."""
    servers = files.proposed.mcp_servers | files.repo.mcp_servers | files.user.mcp_servers
    changed = trust.list_changed_tools()
    for server in servers.values():
        beginning = build_tool_trust_name(server, repo, "")
        for name, now in changed.items():
            if name.startswith(beginning):
                record = trust.find_record("tool", name)
                yield TrustItem(
                    key=build_mcp_tool_name(server.name, name.removeprefix(beginning)),
                    state="changed",
                    where="",
                    kind="tool",
                    name=name,
                    digest=now.digest,
                    content=now.content,
                    was=record.content if record is not None else "",
                )


def find_item(name: str, items: Sequence[TrustItem]) -> TrustItem:
    """Return the item that matches a name. Raise Mistake unless exactly one matches."""
    matches = _match_items(name, items)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise Mistake(f"{name!r} is ambiguous: {' or '.join(item.key for item in matches)}; give the full name")
    available = f"available: {', '.join(item.key for item in items)}" if items else "there is nothing to trust"
    raise Mistake(f"the repository has no item {name!r} to trust; {available}")


def _match_items(name: str, items: Sequence[TrustItem]) -> list[TrustItem]:
    """Return the items whose key is `name`. If there are none, compare `name` with the keys without their sections.

    For example, `github` matches `mcpServers.github`, and `openai` matches `providers.openai.base_url`.
    """
    exact = [item for item in items if item.key == name]
    return exact or [item for item in items if item.key.partition(".")[2].removesuffix(".base_url") == name]


def trust_item(item: TrustItem, trust: Trust) -> None:
    """Record that the user trusts this item with exactly this content."""
    trust.trust(item.kind, item.name, item.digest, content=item.content)


def revoke_trust(name: str, overview: TrustOverview, trust: Trust) -> list[str]:
    """Revoke trust in the items that match a name, and return their keys. Raise Mistake if none was trusted."""
    keys = [item.key for item in _match_items(name, overview.items)] or [name]
    revoked_keys = [key for key in keys if trust.revoke(*trust_id_for_key(key, overview.repo))]
    if not revoked_keys:
        trusted_keys = ", ".join(item.key for item in overview.items if item.state == "trusted")
        raise Mistake(
            f"{name!r} is not trusted; {f'trusted: {trusted_keys}' if trusted_keys else 'nothing is trusted'}"
        )
    return revoked_keys


class TrustReportItem(DocumentPart, frozen=True, kw_only=True):
    """An item with its content and, if it has changed, the content that the user trusts."""

    key: str
    state: TrustState
    where: str
    value: Any
    was: Any


class TrustReport(Document, frozen=True, kw_only=True):
    """An overview as it is sent."""

    repo: str
    items: list[TrustReportItem]
    ignored: tuple[str, ...]


def build_trust_report(overview: TrustOverview) -> TrustReport:
    """Return an overview as it is sent."""
    items = [
        TrustReportItem.of(
            item,
            value=parse_content(item, item.content),
            was=parse_content(item, item.was) if item.was else None,
        )
        for item in overview.items
    ]
    return TrustReport.of(overview, repo=str(overview.repo), items=items)


def parse_content(item: TrustItem, content: str) -> Any:
    """Parse the JSON content of an item. For a server, omit the fields `name` and `source`."""
    value = json.loads(content)
    if item.kind != "server":
        return value
    return {key: inner for key, inner in value.items() if key not in ("name", "source")}
