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

from ...config.repo_proposal import SERVER, of_key, proposals
from ...config.settings_document import layered
from ...config.settings_files import IGNORED, Files, read_files
from ...config.trust import Kind, Trust
from ...mcp_client.tool_definition import offered_name
from ...setup.settings import home_folder
from ...system.locations import find_repo
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ...values.mcp_server import trusted_tool
from ..terminal.attendance import is_attended
from ..terminal.measure import counted
from ..terminal.request_prompt import Terminal
from ..terminal.say import say
from ..terminal.text import as_json, visible
from .config import as_object, in_repo

State = Literal["new", "changed", "trusted"]

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


class Item(Struct, frozen=True, kw_only=True):
    """Something to trust, as it is and as it was when it was trusted; both are JSON."""

    key: str
    state: State
    where: str
    kind: Kind
    name: str
    digest: str
    content: str
    was: str = ""


class Found(Struct, frozen=True, kw_only=True):
    """What there is to trust here; `ignored` never holds, whoever trusts the repository."""

    repo: Path
    items: tuple[Item, ...]
    ignored: tuple[str, ...]

    @property
    def open(self) -> tuple[Item, ...]:
        """Those that the person has yet to decide on."""
        return tuple(item for item in self.items if item.state != "trusted")


@click.command("trust")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "is_list", is_flag=True, help="Only show what there is.")
@click.option("--all", "is_all", is_flag=True, help="Trust everything that is listed, without being asked.")
@click.option("--revoke", "revoked", metavar="NAME", multiple=True, help="Trust this no longer; may be repeated.")
@in_repo
@as_object
def command(
    names: tuple[str, ...], is_list: bool, is_all: bool, revoked: tuple[str, ...], repo: Path | None, is_json: bool
) -> None:
    """Show what this repository would start or change, and ask for each thing whether you trust it.

    With NAME (such as mcpServers.files, or only files) or --all, that is trusted without a question.
    Trust holds in this repository and for exactly what was shown; whatever changes is asked about anew.
    """
    if is_list and (is_all or names or revoked):
        raise click.UsageError("--list changes nothing, and goes with no name, --all or --revoke")
    home = home_folder()
    place = (repo or find_repo(Path.cwd(), home=home)).absolute()
    trust = Trust.load(home)
    found = look(read_files(home, place), place, trust)
    for name in revoked:
        revoke(name, found, trust)
    is_look = is_list or is_json or not (names or is_all or revoked or found.open)
    if names or is_all:
        for item in found.open if is_all else [named(name, found.items) for name in names]:
            accept(item, trust)
    elif not is_look and not revoked:
        ask(found, trust)
    found = look(read_files(home, place), place, trust)
    if is_json:
        click.echo(as_json(for_programs(found)))
    else:
        click.echo(visible("\n".join([*(listed(found) if is_look else ()), summed(found)])))


def look(files: Files, repo: Path, trust: Trust) -> Found:
    """Everything that can be trusted in a repository, and how that stands. Raises Mistake for files with errors."""
    if files.errors:
        raise Mistake(f"{files.errors[0]}; podium config validate shows all that is wrong")
    # What is trusted by now is part of what the repository decides; nothing else of it can be proposed.
    everything = layered(files.repo, files.proposed)
    items = []
    for one in proposals(everything, repo):
        known = trust.known(one.kind, one.name)
        state: State = "new" if known is None else "trusted" if known.digest == one.digest else "changed"
        items.append(
            Item(
                key=one.key,
                state=state,
                where=files.repo_lines.get(one.key, ""),
                kind=one.kind,
                name=one.name,
                digest=one.digest,
                content=one.content,
                was=known.content if known is not None and state == "changed" else "",
            )
        )
    ignored = tuple(key for key in files.proposed.said_keys() if key in IGNORED)
    return Found(repo=repo, items=(*items, *_changed_tools(files, repo, trust)), ignored=ignored)


def _changed_tools(files: Files, repo: Path, trust: Trust) -> Iterator[Item]:
    """The tools that their servers described otherwise when they were last used."""
    servers = files.proposed.mcp_servers | files.repo.mcp_servers | files.user.mcp_servers
    changed = trust.changed()
    for server in servers.values():
        beginning = trusted_tool(server, repo, "")
        for name, now in changed.items():
            if name.startswith(beginning):
                known = trust.known("tool", name)
                yield Item(
                    key=offered_name(server.name, name.removeprefix(beginning)),
                    state="changed",
                    where="",
                    kind="tool",
                    name=name,
                    digest=now.digest,
                    content=now.content,
                    was=known.content if known is not None else "",
                )


def named(name: str, items: Sequence[Item]) -> Item:
    """The one item that a name means."""
    found = meant(name, items)
    if len(found) == 1:
        return found[0]
    if found:
        raise Mistake(f"{name!r} may mean {' or '.join(item.key for item in found)}; name one of them in full")
    there = f"there are {', '.join(item.key for item in items)}" if items else "there is nothing to trust"
    raise Mistake(f"the repository proposes no {name!r}; {there}")


def meant(name: str, items: Sequence[Item]) -> list[Item]:
    """The items of a name, which is a key, or a key without its beginning."""
    exact = [item for item in items if item.key == name]
    return exact or [item for item in items if item.key.partition(".")[2].removesuffix(".base_url") == name]


def accept(item: Item, trust: Trust) -> None:
    """Trust an item as it was shown."""
    trust.trust(item.kind, item.name, item.digest, content=item.content)
    say(f"trusted: {_one_line(item.key)}")


def revoke(name: str, found: Found, trust: Trust) -> None:
    """Trust something no longer, be it still proposed or not."""
    keys = [item.key for item in meant(name, found.items)] or [name]
    gone = [key for key in keys if trust.revoke(*of_key(key, found.repo))]
    if not gone:
        held = ", ".join(item.key for item in found.items if item.state == "trusted")
        raise Mistake(f"{name!r} is not trusted here; {f'trusted are {held}' if held else 'nothing is'}")
    say(f"no longer trusted: {', '.join(map(_one_line, gone))}")


def ask(found: Found, trust: Trust) -> None:
    """Ask the person at the terminal about each thing that is not decided yet."""
    if not is_attended():
        raise Mistake(
            f"{counted(len(found.open), 'thing')} would have to be asked about, and there is no terminal; "
            "name them, or use --all, or only look with --list"
        )

    async def ask_each() -> None:
        keyboard = Terminal()
        for number, item in enumerate(found.open, 1):
            keyboard.forget()
            say("\n".join(["", f"{number} of {len(found.open)}, in {_one_line(str(found.repo))}", *described(item)]))
            say("[y] trust it  [n] not now  [q] leave")
            while (key := (await keyboard.key()).lower()) not in ("y", "n", "q"):
                pass
            if key == "q":
                return
            if key == "y":
                accept(item, trust)

    anyio.run(ask_each)


def listed(found: Found) -> Iterator[str]:
    """Everything there is, for people."""
    for item in found.items:
        yield from described(item)
    if found.ignored:
        yield f"ignored whatever you trust: {', '.join(found.ignored)}"


def summed(found: Found) -> str:
    """How much there is, in one line."""
    words = [(sum(item.state == state for item in found.items), state) for state in ("trusted", "changed", "new")]
    states = ", ".join(f"{number} {state}" for number, state in words if number)
    return f"{_one_line(str(found.repo))}: {states or 'nothing to trust'}"


def described(item: Item) -> Iterator[str]:
    """One thing in full, with what it was where it changed."""
    yield f"{item.state}: {_one_line(item.key)}{f' ({item.where})' if item.where else ''}"
    yield f"  {next(words for beginning, words in MEANINGS.items() if item.key.startswith(beginning))}"
    if item.state == "changed":
        yield "  it was:"
        yield from (f"    {line}" for line in (_spelled(item, item.was) if item.was else ["not kept"]))
        yield "  it is now:"
    yield from (f"    {line}" for line in _spelled(item, item.content))


def _spelled(item: Item, content: str) -> list[str]:
    """JSON in lines that nothing in it can break."""
    value = _value(item, content)
    if not isinstance(value, dict):
        return [json.dumps(value)]
    return [f"{_one_line(key)}: {json.dumps(inner)}" for key, inner in value.items()]


def _value(item: Item, content: str) -> Any:
    """What a content of an item says, without what the key says already."""
    value = json.loads(content)
    if item.kind != "server":
        return value
    return {key: inner for key, inner in value.items() if key not in ("name", "source")}


def _one_line(text: str) -> str:
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def for_programs(found: Found) -> dict[str, Any]:
    """The same as values."""
    items = [
        {
            "key": item.key,
            "state": item.state,
            "where": item.where,
            "value": _value(item, item.content),
            "was": _value(item, item.was) if item.was else None,
        }
        for item in found.items
    ]
    return {"schema": SCHEMA, "repo": str(found.repo), "items": items, "ignored": found.ignored}
