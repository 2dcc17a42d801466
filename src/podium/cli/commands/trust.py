"""`podium trust`: show the programs that a repository would start and the settings that it would change.

The command records which of these items the user trusts.

Each item is shown in full, as ASCII JSON, so that it cannot control the terminal or imitate Podium's
own output. Trust covers the content that was shown, not later versions of the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import click

from ...files.agent_trust import SERVERS
from ...files.discovery import load_roster
from ...files.settings_files import read_settings_files
from ...files.trust import Trust
from ...files.trust_proposal import SERVER
from ...runs.queries.trust_overview import (
    TrustItem,
    TrustOverview,
    build_trust_overview,
    build_trust_report,
    find_item,
    parse_content,
    revoke_trust,
    trust_item,
)
from ...system.locations import find_home_folder, find_repo
from ...values.errors import Mistake
from ...values.plain_text import format_count
from ..output.command_options import json_option, repo_option
from ..output.request_prompt import TerminalKeyboard
from ..output.terminal_input import is_attended
from ..output.text import as_json, escape_for_terminal, print_to_stderr

MEANINGS = {
    "yours.mcpServers.": "a tool server of your own that uses files of this checkout; it runs in the sandbox",
    "yours.hooks.": "a hook of your own that uses files of this checkout; it runs in the sandbox",
    SERVER: "a tool server, which Podium starts or connects to for agents that use its tools",
    "engines.": "a program that runs in place of model calls",
    "checks.": "a command that agents can run as a check",
    "worktrees.folder": "the folder on this machine in which workers' checkouts are created",
    "worktrees.quota": "the disk space that workers' worktrees can use; at this limit, no new worktrees are created",
    "worktrees.": "a command that runs in workers' checkouts, after they are created or before they are removed",
    "providers.": "the address of a model provider, to which agents' prompts and your key are sent",
    "model": "a model on a local server, to which agents' prompts are sent",
    "hooks.": "commands that Podium starts when events occur in a run",
    "agents.": "commands that Podium starts when an agent calls a tool or asks for permission",
    "mcp__": "a tool whose description was changed by its server after you trusted the tool",
}
"""Descriptions of the items, by prefix of their keys. The first prefix that matches an item's key applies."""


@click.command("trust")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "is_list", is_flag=True, help="Only list the items; change nothing.")
@click.option("--all", "is_all", is_flag=True, help="Trust every listed item without asking.")
@click.option("--revoke", "revoked", metavar="NAME", multiple=True, help="Stop trusting NAME; can be repeated.")
@repo_option
@json_option
def trust_command(
    names: tuple[str, ...], is_list: bool, is_all: bool, revoked: tuple[str, ...], repo: Path | None, is_json: bool
) -> None:
    """Show the programs this repository would start and the settings it would change, and ask whether you trust each.

    With NAME (e.g. mcpServers.files, or just files) or --all, items are trusted without asking.
    Trust applies to this repository and to exactly what was shown; an item that changes must be trusted again.
    """
    if is_list and (is_all or names or revoked):
        raise click.UsageError("--list only shows the items; it cannot be combined with a name, --all or --revoke")
    home = find_home_folder()
    place = (repo or find_repo(Path.cwd(), home=home)).absolute()
    trust = Trust.load(home)
    agents = load_roster(place, home).agents.values()
    overview = build_trust_overview(read_settings_files(home, place), place, trust, agents)
    for name in revoked:
        revoked_keys = revoke_trust(name, overview, trust)
        print_to_stderr(f"no longer trusted: {', '.join(map(_escape_line_breaks, revoked_keys))}")
    is_look = is_list or is_json or not (names or is_all or revoked or overview.open_items)
    if names or is_all:
        for item in overview.open_items if is_all else [find_item(name, overview.items) for name in names]:
            _trust_and_report(item, trust)
    elif not is_look and not revoked:
        _prompt_for_trust(overview, trust)
    overview = build_trust_overview(read_settings_files(home, place), place, trust, agents)
    if is_json:
        click.echo(as_json(build_trust_report(overview)))
    else:
        click.echo(
            escape_for_terminal(
                "\n".join([*(format_overview(overview) if is_look else ()), _format_state_counts(overview)])
            )
        )


def _trust_and_report(item: TrustItem, trust: Trust) -> None:
    """Trust an item and confirm this on standard error."""
    trust_item(item, trust)
    print_to_stderr(f"trusted: {_escape_line_breaks(item.key)}")


def _prompt_for_trust(overview: TrustOverview, trust: Trust) -> None:
    """Ask the user at the terminal about each undecided item. Raise Mistake if there is no terminal."""
    if not is_attended():
        count = len(overview.open_items)
        raise Mistake(
            f"{format_count(count, 'item')} {'needs' if count == 1 else 'need'} a decision, but there is no terminal "
            "for prompts; name the items to trust, or use --all or --list"
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
                        *_format_item(item),
                    ]
                )
            )
            print_to_stderr("[y] trust it  [n] not now  [q] quit")
            while (key := (await keyboard.read_key()).lower()) not in ("y", "n", "q"):
                pass
            if key == "q":
                return
            if key == "y":
                _trust_and_report(item, trust)

    anyio.run(prompt_for_each)


def format_overview(overview: TrustOverview) -> Iterator[str]:
    """Yield the lines for all items."""
    for item in overview.items:
        yield from _format_item(item)
    if overview.ignored:
        yield f"never applied, even if trusted: {', '.join(overview.ignored)}"


def _format_state_counts(overview: TrustOverview) -> str:
    """Return the number of items in each state, as one line."""
    words = [(sum(item.state == state for item in overview.items), state) for state in ("trusted", "changed", "new")]
    states = ", ".join(f"{number} {state}" for number, state in words if number)
    return f"{_escape_line_breaks(str(overview.repo))}: {states or 'nothing to trust'}"


def _format_item(item: TrustItem) -> Iterator[str]:
    """Yield lines that show one item in full. If the item has changed, also show the content that was trusted."""
    yield f"{item.state}: {_escape_line_breaks(item.key)}{f' ({item.where})' if item.where else ''}"
    yield f"  {_find_meaning(item.key)}"
    if item.state == "changed":
        yield "  trusted content:"
        yield from (f"    {line}" for line in (_format_content(item, item.was) if item.was else ["not recorded"]))
        yield "  current content:"
    yield from (f"    {line}" for line in _format_content(item, item.content))


def _find_meaning(key: str) -> str:
    if key.startswith("agents.") and key.endswith(SERVERS):
        return "tool servers from your own settings, which Podium starts for an agent of the repository"
    return next(words for beginning, words in MEANINGS.items() if key.startswith(beginning))


def _format_content(item: TrustItem, content: str) -> list[str]:
    """Format JSON content as one line for each key. Line breaks are escaped."""
    value = parse_content(item, content)
    if not isinstance(value, dict):
        return [json.dumps(value)]
    return [f"{_escape_line_breaks(key)}: {json.dumps(inner)}" for key, inner in value.items()]


def _escape_line_breaks(text: str) -> str:
    return escape_for_terminal(text).replace("\n", "\\n").replace("\t", "\\t")
