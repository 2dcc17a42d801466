"""`podium trust`: what a repository would start or change here, and which of it the person trusts.

Whatever is asked about is shown in full, and as JSON in ASCII, so that nothing in it acts on the
terminal or passes for a line of ours. What is trusted is what was shown, and not what the files say later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import click
from msgspec import Struct

from ...config.repo_proposal import SERVER, list_proposals, trust_id_for_key
from ...config.settings_document import merge_documents
from ...config.settings_files import IGNORED, SettingsFiles, read_settings_files
from ...config.trust import Kind, Trust
from ...mcp_client.tool_definition import build_mcp_tool_name
from ...setup.settings import find_home_folder
from ...system.locations import find_repo
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ...values.mcp_server import build_tool_trust_name
from ..terminal.prompting import is_attended
from ..terminal.request_prompt import TerminalKeyboard
from ..terminal.text import as_json, escape_for_terminal, format_count, print_to_stderr
from .config import json_option, repo_option

TrustState = Literal["new", "changed", "trusted"]

MEANINGS = {
    SERVER: "a server of tools, started or called for the agents that have its tools",
    "engines.": "a program that is started to think in place of a model",
    "checks.": "a command that agents may run as a check",
    "worktrees.folder": "where the checkouts of workers are made, and so where on this machine things are written",
    "worktrees.quota": "how much disk the worktrees of all workers may take, before no more are made",
    "worktrees.": "a command that is run in the checkouts of workers, when they are made or before they go",
    "providers.": "where a provider of models is said to be: it gets what agents ask, and your key",
    "mcp__": "a tool of a server, which describes it otherwise than when it was trusted",
}
"""What trusting a thing means, by the beginning of its key."""


class TrustItem(Struct, frozen=True, kw_only=True):
    """Something to trust, as it is and as it was when it was trusted; both are JSON."""

    key: str
    state: TrustState
    where: str
    kind: Kind
    name: str
    digest: str
    content: str
    was: str = ""


class TrustOverview(Struct, frozen=True, kw_only=True):
    """What there is to trust here; `ignored` never holds, whoever trusts the repository."""

    repo: Path
    items: tuple[TrustItem, ...]
    ignored: tuple[str, ...]

    @property
    def open_items(self) -> tuple[TrustItem, ...]:
        """Those that the person has yet to decide on."""
        return tuple(item for item in self.items if item.state != "trusted")


@click.command("trust")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "is_list", is_flag=True, help="Only show what there is.")
@click.option("--all", "is_all", is_flag=True, help="Trust everything that is listed, without being asked.")
@click.option("--revoke", "revoked", metavar="NAME", multiple=True, help="Trust this no longer; may be repeated.")
@repo_option
@json_option
def trust_command(
    names: tuple[str, ...], is_list: bool, is_all: bool, revoked: tuple[str, ...], repo: Path | None, is_json: bool
) -> None:
    """Show what this repository would start or change, and ask for each thing whether you trust it.

    With NAME (such as mcpServers.files, or only files) or --all, that is trusted without a question.
    Trust holds in this repository and for exactly what was shown; whatever changes is asked about anew.
    """
    if is_list and (is_all or names or revoked):
        raise click.UsageError("--list changes nothing, and goes with no name, --all or --revoke")
    home = find_home_folder()
    place = (repo or find_repo(Path.cwd(), home=home)).absolute()
    trust = Trust.load(home)
    overview = build_trust_overview(read_settings_files(home, place), place, trust)
    for name in revoked:
        revoke_trust(name, overview, trust)
    is_look = is_list or is_json or not (names or is_all or revoked or overview.open_items)
    if names or is_all:
        for item in overview.open_items if is_all else [find_item(name, overview.items) for name in names]:
            trust_item(item, trust)
    elif not is_look and not revoked:
        prompt_for_trust(overview, trust)
    overview = build_trust_overview(read_settings_files(home, place), place, trust)
    if is_json:
        click.echo(as_json(overview_fields(overview)))
    else:
        click.echo(
            escape_for_terminal(
                "\n".join([*(format_overview(overview) if is_look else ()), format_state_counts(overview)])
            )
        )


def build_trust_overview(files: SettingsFiles, repo: Path, trust: Trust) -> TrustOverview:
    """Everything that can be trusted in a repository, and how that stands. Raises Mistake for files with errors."""
    if files.errors:
        raise Mistake(f"{files.errors[0]}; podium config validate shows all that is wrong")
    # What is trusted by now is part of what the repository decides; nothing else of it can be proposed.
    everything = merge_documents(files.repo, files.proposed)
    items = []
    for one in list_proposals(everything, repo):
        record = trust.find_record(one.kind, one.name)
        state: TrustState = "new" if record is None else "trusted" if record.digest == one.digest else "changed"
        items.append(
            TrustItem(
                key=one.key,
                state=state,
                where=files.repo_lines.get(one.key, ""),
                kind=one.kind,
                name=one.name,
                digest=one.digest,
                content=one.content,
                was=record.content if record is not None and state == "changed" else "",
            )
        )
    ignored = tuple(key for key in files.proposed.iter_explicit_keys() if key in IGNORED)
    return TrustOverview(repo=repo, items=(*items, *_iter_changed_tools(files, repo, trust)), ignored=ignored)


def _iter_changed_tools(files: SettingsFiles, repo: Path, trust: Trust) -> Iterator[TrustItem]:
    """The tools that their servers described otherwise when they were last used."""
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
    """The one item that a name means."""
    matches = match_items(name, items)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise Mistake(f"{name!r} may mean {' or '.join(item.key for item in matches)}; name one of them in full")
    available = f"there are {', '.join(item.key for item in items)}" if items else "there is nothing to trust"
    raise Mistake(f"the repository proposes no {name!r}; {available}")


def match_items(name: str, items: Sequence[TrustItem]) -> list[TrustItem]:
    """The items of a name, which is a key, or a key without its beginning."""
    exact = [item for item in items if item.key == name]
    return exact or [item for item in items if item.key.partition(".")[2].removesuffix(".base_url") == name]


def trust_item(item: TrustItem, trust: Trust) -> None:
    """Trust an item as it was shown."""
    trust.trust(item.kind, item.name, item.digest, content=item.content)
    print_to_stderr(f"trusted: {_escape_line_breaks(item.key)}")


def revoke_trust(name: str, overview: TrustOverview, trust: Trust) -> None:
    """Trust something no longer, be it still proposed or not."""
    keys = [item.key for item in match_items(name, overview.items)] or [name]
    revoked_keys = [key for key in keys if trust.revoke(*trust_id_for_key(key, overview.repo))]
    if not revoked_keys:
        trusted_keys = ", ".join(item.key for item in overview.items if item.state == "trusted")
        raise Mistake(
            f"{name!r} is not trusted here; {f'trusted are {trusted_keys}' if trusted_keys else 'nothing is'}"
        )
    print_to_stderr(f"no longer trusted: {', '.join(map(_escape_line_breaks, revoked_keys))}")


def prompt_for_trust(overview: TrustOverview, trust: Trust) -> None:
    """Ask the person at the terminal about each thing that is not decided yet."""
    if not is_attended():
        raise Mistake(
            f"{format_count(len(overview.open_items), 'thing')} would have to be asked about, and "
            "there is no terminal; "
            "name them, or use --all, or only look with --list"
        )

    async def prompt_for_each() -> None:
        keyboard = TerminalKeyboard()
        for number, item in enumerate(overview.open_items, 1):
            keyboard.discard_input()
            print_to_stderr(
                "\n".join(
                    [
                        "",
                        f"{number} of {len(overview.open_items)}, in {_escape_line_breaks(str(overview.repo))}",
                        *format_item(item),
                    ]
                )
            )
            print_to_stderr("[y] trust it  [n] not now  [q] leave")
            while (key := (await keyboard.read_key()).lower()) not in ("y", "n", "q"):
                pass
            if key == "q":
                return
            if key == "y":
                trust_item(item, trust)

    anyio.run(prompt_for_each)


def format_overview(overview: TrustOverview) -> Iterator[str]:
    """Everything there is, for people."""
    for item in overview.items:
        yield from format_item(item)
    if overview.ignored:
        yield f"ignored whatever you trust: {', '.join(overview.ignored)}"


def format_state_counts(overview: TrustOverview) -> str:
    """How much there is, in one line."""
    words = [(sum(item.state == state for item in overview.items), state) for state in ("trusted", "changed", "new")]
    states = ", ".join(f"{number} {state}" for number, state in words if number)
    return f"{_escape_line_breaks(str(overview.repo))}: {states or 'nothing to trust'}"


def format_item(item: TrustItem) -> Iterator[str]:
    """One thing in full, with what it was where it changed."""
    yield f"{item.state}: {_escape_line_breaks(item.key)}{f' ({item.where})' if item.where else ''}"
    yield f"  {next(words for beginning, words in MEANINGS.items() if item.key.startswith(beginning))}"
    if item.state == "changed":
        yield "  it was:"
        yield from (f"    {line}" for line in (_format_content(item, item.was) if item.was else ["not kept"]))
        yield "  it is now:"
    yield from (f"    {line}" for line in _format_content(item, item.content))


def _format_content(item: TrustItem, content: str) -> list[str]:
    """JSON in lines that nothing in it can break."""
    value = _parse_content(item, content)
    if not isinstance(value, dict):
        return [json.dumps(value)]
    return [f"{_escape_line_breaks(key)}: {json.dumps(inner)}" for key, inner in value.items()]


def _parse_content(item: TrustItem, content: str) -> Any:
    """What a content of an item says, without what the key says already."""
    value = json.loads(content)
    if item.kind != "server":
        return value
    return {key: inner for key, inner in value.items() if key not in ("name", "source")}


def _escape_line_breaks(text: str) -> str:
    return escape_for_terminal(text).replace("\n", "\\n").replace("\t", "\\t")


def overview_fields(overview: TrustOverview) -> dict[str, Any]:
    """The same as values."""
    items = [
        {
            "key": item.key,
            "state": item.state,
            "where": item.where,
            "value": _parse_content(item, item.content),
            "was": _parse_content(item, item.was) if item.was else None,
        }
        for item in overview.items
    ]
    return {"schema": SCHEMA, "repo": str(overview.repo), "items": items, "ignored": overview.ignored}
