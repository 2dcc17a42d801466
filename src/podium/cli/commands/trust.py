"""`podium trust`: what a repository would start or change here, and which of it the person trusts.

Whatever is asked about is shown in full, and as JSON in ASCII, so that nothing in it acts on the
terminal or passes for a line of ours. What is trusted is what was shown, and not what the files say later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import click

from ...config.repo_proposal import SERVER
from ...config.settings_files import read_settings_files
from ...config.trust import Trust
from ...setup.settings import find_home_folder
from ...setup.trust_overview import (
    TrustItem,
    TrustOverview,
    _parse_content,
    build_trust_overview,
    find_item,
    overview_fields,
    revoke_trust,
    trust_item,
)
from ...system.locations import find_repo
from ...values.errors import Mistake
from ...values.plain_text import format_count
from ..terminal.options import json_option, repo_option
from ..terminal.prompting import is_attended
from ..terminal.request_prompt import TerminalKeyboard
from ..terminal.text import as_json, escape_for_terminal, print_to_stderr

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
        revoked_keys = revoke_trust(name, overview, trust)
        print_to_stderr(f"no longer trusted: {', '.join(map(_escape_line_breaks, revoked_keys))}")
    is_look = is_list or is_json or not (names or is_all or revoked or overview.open_items)
    if names or is_all:
        for item in overview.open_items if is_all else [find_item(name, overview.items) for name in names]:
            trust_and_report(item, trust)
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


def trust_and_report(item: TrustItem, trust: Trust) -> None:
    """Trust an item, and say so on standard error."""
    trust_item(item, trust)
    print_to_stderr(f"trusted: {_escape_line_breaks(item.key)}")


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
                trust_and_report(item, trust)

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


def _escape_line_breaks(text: str) -> str:
    return escape_for_terminal(text).replace("\n", "\\n").replace("\t", "\\t")
