"""`podium policy`: what the rules say about something that an agent might do, and why."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ...config.allowed_rules import FILE as ALLOWED_FILE
from ...config.allowed_rules import allowed
from ...config.settings_document import MODES, PermissionMode
from ...config.settings_files import REPO_FILE, USER_FILE, read_files, shown
from ...policy import Mode, Rules, Verdict, check, generalised, narrowed
from ...policy.rule_entry import entries, read_entry
from ...policy.shell_command import read as read_command
from ...roster.discovery import files as agent_files
from ...roster.discovery import folders, load
from ...setup.settings import Settings, home_folder
from ...system.locations import find_repo
from ...values.action import Action
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ...values.located_yaml import Fields, Malformed, compose
from ..terminal import exit_codes
from ..terminal.measure import aligned, counted
from ..terminal.text import as_json, visible
from .config import as_object, in_repo

EXITS = {"allow": exit_codes.GOAL_MET, "ask": exit_codes.ASKS, "deny": exit_codes.DENIED}
MOST_SHOWN = 50

for_agent = click.option("--agent", help="Also apply the rules of this agent's file.")
in_mode = click.option("--mode", type=click.Choice(MODES), help="The permission mode; by default the settings'.")
words_given = click.argument("words", metavar="-- COMMAND", nargs=-1, type=click.UNPROCESSED)


@click.group("policy")
def command() -> None:
    """Ask what the rules say about a command or a tool, and try the rules' own examples. Nothing is run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The rules that hold here, in which mode, and where each of them stands."""

    rules: Rules
    mode: Mode
    places: Mapping[str, tuple[str, ...]]

    def judge(self, what: str | Action) -> dict[str, Any]:
        """The verdict, with the places of the rule behind it."""
        verdict = check(what, self.rules, self.mode)
        return {
            "decision": verdict.decision,
            "rule": verdict.rule,
            "where": list(self._where(verdict)),
            "reason": verdict.reason,
        }

    def _where(self, verdict: Verdict) -> tuple[str, ...]:
        # Where nobody is asked, a rule that asks denies.
        kinds = (verdict.decision, "ask") if verdict.decision == "deny" else (verdict.decision,)
        return next((found for kind in kinds if (found := self.places.get(f"permissions.{kind}.{verdict.rule}"))), ())


def standing(repo: Path | None, agent: str | None, mode: PermissionMode | None) -> Standing:
    """The rules of the person, of the repository, and of the agent."""
    home = home_folder()
    place = repo or find_repo(Path.cwd(), home=home)
    files = read_files(home, place)
    settings = Settings.of(files, os.environ, place)
    always = {f"permissions.allow.{one.rule}": shown(home / ALLOWED_FILE) for one in allowed(home)}
    rules, sources = settings.rules(), [files.user_lines, always, _tightening(files.repo_lines)]
    if agent is not None:
        roster = load(place, home)
        one = roster.get(agent)
        if (own := one.permissions) is not None:
            rules = narrowed(rules, Rules(ask=own.ask, deny=own.deny))
        lines = roster.lines.get(one.path, {})
        sources.append(_tightening({key: f"{one.path}:{line}" for key, line in lines.items()}))
    places: dict[str, tuple[str, ...]] = {}
    for source in sources:
        for key, where in source.items():
            places[key] = (*places.get(key, ()), where)
    return Standing(rules=rules, mode=mode or settings.permission_mode, places=places)


def _tightening(lines: Mapping[str, str]) -> dict[str, str]:
    """What counts of a file that may only tighten."""
    return {key: where for key, where in lines.items() if not key.startswith("permissions.allow.")}


@command.command("check")
@words_given
@click.option("--tool", help="Ask about a tool instead of a command, such as edit_file.")
@click.option("--path", help="With --tool: the path that it is given.")
@click.option("--url", help="With --tool: the address that it is given.")
@for_agent
@in_mode
@in_repo
@as_object
def check_command(
    words: tuple[str, ...],
    tool: str | None,
    path: str | None,
    url: str | None,
    agent: str | None,
    mode: PermissionMode | None,
    repo: Path | None,
    is_json: bool,
) -> int:
    """Say whether a command, or the use of a tool, is allowed, asked about or denied, and by which rule.

    The exit code is 0 for allowed, 3 for asked about and 4 for denied.
    """
    if (tool is None) == (not words) or (tool is None and (path or url)):
        raise click.UsageError("give a command after --, or --tool with --path or --url")
    holds = standing(repo, agent, mode)
    arguments = {key: value for key, value in (("path", path), ("url", url)) if value is not None}
    what = Action(run="", agent="", tool=tool, arguments=arguments) if tool else spoken(words)
    judged = holds.judge(what)
    if is_json:
        asked = {"command": what} if isinstance(what, str) else {"tool": tool, "arguments": arguments}
        click.echo(as_json({"schema": SCHEMA, **asked, "agent": agent, "mode": holds.mode, **judged}))
    else:
        click.echo(visible("\n".join(told(judged))))
    return EXITS[judged["decision"]]


def spoken(words: tuple[str, ...]) -> str:
    """The command: one word is its whole text, several are its words."""
    return words[0] if len(words) == 1 else shlex.join(words)


def told(judged: Mapping[str, Any]) -> Iterator[str]:
    """A verdict for people."""
    yield f"{judged['decision']}: {judged['reason']}"
    if judged["rule"] is not None:
        yield f"rule: {judged['rule']}{''.join(f', {where}' for where in judged['where'])}"


@command.command("explain")
@words_given
@for_agent
@in_mode
@in_repo
@as_object
def explain_command(
    words: tuple[str, ...], agent: str | None, mode: PermissionMode | None, repo: Path | None, is_json: bool
) -> None:
    """Show how a command is understood: its parts, each with its own verdict, and what "always" would save."""
    if not words:
        raise click.UsageError("give a command after --")
    holds, text = standing(repo, agent, mode), spoken(words)
    explained = explanation(holds, text)
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "command": text, "agent": agent, "mode": holds.mode, **explained}))
        return
    # Whatever may be a command is looked for in the rest; of a plain one only what a rule means is of interest.
    carried = [one for one in explained["carried"] if one["rule"] or not explained["parts"]]
    rows = [[one["decision"], one["command"], one["reason"]] for one in (*explained["parts"], *carried)]
    lines = ["  ".join(row) for row in aligned([[_line(cell) for cell in row] for row in rows])] if rows else []
    if explained["odd"]:
        lines.append(f"left to a person: {explained['odd']}")
    if explained["writes"]:
        lines.append(f"would write: {', '.join(map(_line, explained['writes']))}")
    lines += ["", *told(explained)]
    lines.append(f'"always" would save: {explained["always"] or "nothing, because no rule says just this safely"}')
    click.echo(visible("\n".join(lines).lstrip("\n")))


def explanation(holds: Standing, text: str) -> dict[str, Any]:
    """How a command is read, part by part, and what follows from all of it."""
    found = read_command(text)
    carried = [words for words in found.heard if words not in found.parts][:MOST_SHOWN]
    return {
        "parts": [_judged(holds, words) for words in found.parts],
        "carried": [_judged(holds, words) for words in carried],
        "odd": found.odd,
        "writes": found.writes[:MOST_SHOWN],
        "mentions": found.mentions[:MOST_SHOWN],
        **holds.judge(text),
        "always": generalised(text),
    }


def _judged(holds: Standing, words: tuple[str, ...]) -> dict[str, Any]:
    text = shlex.join(words)
    return {"command": text, "words": words, **holds.judge(text)}


def _line(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t")


@command.command("test")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@in_repo
@as_object
def test_command(file: Path | None, repo: Path | None, is_json: bool) -> int:
    """Try the examples of all rules, or of those in FILE; the exit code is 1 when one does not hold.

    Without FILE, your own settings, the repository's and all agent files are looked at.
    """
    tried = Tried()
    for path, root in ((file, None),) if file is not None else _rule_files(home_folder(), repo):
        tried.try_file(path, root)
    failed = tried.failed
    if is_json:
        fields = {"rules": tried.rules, "examples": tried.examples, "failed": failed}
        click.echo(as_json({"schema": SCHEMA, **fields}))
    else:
        lines = [f"{one['path']}:{one['line']}: {one['message']}" for one in failed]
        summed = f"{counted(tried.rules, 'rule')}, {counted(tried.examples, 'example')}"
        held = f"{len(failed)} wrong" if failed else "all hold"
        click.echo(visible("\n".join([*lines, f"{summed}: {held}"])))
    return exit_codes.GOAL_NOT_MET if failed else exit_codes.GOAL_MET


class Tried:
    """What came of trying the rules of some files."""

    def __init__(self) -> None:
        self.rules = 0
        self.examples = 0
        self.failed: list[dict[str, Any]] = []

    def try_file(self, path: Path, root: Path | None) -> None:
        """Try all rules of a file, which may not lead out of `root`."""
        name = shown(path)
        for kind, written in entries(_mapping(path, root)):
            self.rules += 1
            place: dict[str, Any] = {"path": name, "line": written.line, "kind": kind}
            try:
                entry = read_entry(written, kind)
            except Mistake as mistake:
                self.failed.append({**place, "rule": None, "example": None, "message": str(mistake)})
                continue
            for example in entry.tried():
                self.examples += 1
                if example.wrong:
                    found = {"rule": entry.rule, "example": example.text, "message": example.wrong}
                    self.failed.append({**place, **found})


def _rule_files(home: Path, repo: Path | None) -> Iterator[tuple[Path, Path | None]]:
    """Every file here that may have rules, and the folder that it may not lead out of."""
    place = repo or find_repo(Path.cwd(), home=home)
    for path, root in ((home / USER_FILE, None), (place / REPO_FILE, place)):
        if path.exists():
            yield path, root
    for folder in folders(place, home):
        try:
            yield from ((path, folder.repo) for path in agent_files(folder))
        except OSError as error:
            raise Mistake(f"{shown(folder.path)} cannot be looked into: {error.strerror or error}") from error


def _mapping(path: Path, root: Path | None) -> Fields:
    """The keys of a settings file, or of an agent's."""
    from ...config import settings_reading
    from ...roster import agent_file, bounded_file

    try:
        if path.suffix != ".md":
            return compose(settings_reading.decoded(settings_reading.contents(path, root)))
        halves = agent_file.split(bounded_file.text(path, root=root))
        return compose(halves.frontmatter if halves else "", first_line=agent_file.FIRST_LINE)
    except (settings_reading.Unreadable, bounded_file.Unreadable) as error:
        raise Mistake(f"{shown(path)} {error}") from error
    except Malformed as error:
        raise Mistake(f"{shown(path)}:{error.line}: {error}") from error
