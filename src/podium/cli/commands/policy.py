"""`podium policy`: show what the permission rules say about an action, and why."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from ...files.always_allow_rules import FILE as ALLOWED_FILE
from ...files.always_allow_rules import AllowedRule, load_allowed_rules, revoke_allowed_rule
from ...files.discovery import list_agent_files as agent_files
from ...files.discovery import list_agent_folders, load_roster
from ...files.settings import Settings
from ...files.settings_document import MODES, PermissionMode
from ...files.settings_files import REPO_FILE, USER_FILE, read_settings_files
from ...policy import Mode, Rules, Verdict, check, generalised, narrow_rules
from ...policy.rule_entry import find_rule_entries, parse_rule_entry
from ...policy.rule_evaluation import Decision
from ...policy.shell_command import parse_command as read_command
from ...runs.answers import publish_saved_rules
from ...system.locations import find_home_folder, find_repo, format_path
from ...values.action import Action
from ...values.column import DocumentPart
from ...values.errors import Mistake, PodiumError, StoreFailed
from ...values.event import SCHEMA
from ...values.located_yaml import MalformedText, MappingNode
from ...values.plain_text import format_count
from ..output import exit_codes
from ..output.command_options import json_option, repo_option
from ..output.text import align_columns, as_json, escape_for_terminal

NO_RULES = "No rules are saved. To save one, use podium approve ID --always."


@click.command("list")
@json_option
def policy_list_command(is_json: bool) -> None:
    """List the rules that were saved by "always" answers, with their numbers and the repositories they apply to."""
    rules = load_allowed_rules(find_home_folder())
    if is_json:
        found = [_describe_rule(number, one) for number, one in enumerate(rules, 1)]
        click.echo(as_json({"schema": SCHEMA, "rules": found}))
        return
    rows = [[str(number), one.rule, _format_place(one), _format_day(one)] for number, one in enumerate(rules, 1)]
    lines = ["  ".join(row).rstrip() for row in align_columns(rows)] if rows else [NO_RULES]
    click.echo(escape_for_terminal("\n".join(lines)))


@click.command("revoke")
@click.argument("rule", metavar="RULE-OR-NUMBER")
@repo_option
@json_option
def policy_revoke_command(rule: str, repo: Path | None, is_json: bool) -> None:
    """Delete a saved rule, given by its text or by its number in podium policy list.

    Actions that only this rule allowed need permission again.
    """
    home = find_home_folder()
    revoked = revoke_allowed_rule(home, rule, repo or find_repo(Path.cwd(), home=home))
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "revoked": _describe_rule(None, revoked)}))
    else:
        click.echo(escape_for_terminal(f"{revoked.rule} is no longer allowed {_format_place(revoked)}."))
    try:
        publish_saved_rules(home, Settings.load().store)
    except PodiumError as error:
        raise StoreFailed(
            f"{revoked.rule} is revoked on this machine, but the store could not be updated ({error}), so the rule "
            "still applies to your workers on hosts; Podium updates the store the next time you delegate a task or "
            "revoke a rule"
        ) from error


def _describe_rule(number: int | None, rule: AllowedRule) -> dict[str, object]:
    shown: dict[str, object] = {
        "rule": rule.rule,
        "repo": rule.repo or None,
        "at": rule.at,
        "by": rule.by,
        "run": rule.run,
    }
    return shown if number is None else {"number": number, **shown}


def _format_day(rule: AllowedRule) -> str:
    return f"{datetime.fromtimestamp(rule.at).astimezone():%Y-%m-%d}"


def _format_place(rule: AllowedRule) -> str:
    return f"in {format_path(Path(rule.repo))}" if rule.repo else "everywhere"


EXITS = {"allow": exit_codes.GOAL_MET, "ask": exit_codes.ASKS, "deny": exit_codes.DENIED}
MOST_SHOWN = 50
agent_option = click.option("--agent", help="Also apply the rules in this agent's file.")
mode_option = click.option(
    "--mode", type=click.Choice(MODES), help="Permission mode; default: the one in the settings."
)
command_argument = click.argument("words", metavar="-- COMMAND", nargs=-1, type=click.UNPROCESSED)


@click.group("policy")
def policy_command() -> None:
    """Show whether the rules allow a command or tool, test the rules' examples, and list or revoke saved rules."""


policy_command.add_command(policy_list_command)
policy_command.add_command(policy_revoke_command)


class LocatedVerdict(DocumentPart, frozen=True, kw_only=True):
    """A verdict on an action, with the locations of the rule that decided it."""

    decision: Decision
    rule: str | None
    where: tuple[str, ...]
    reason: str


class PartVerdict(LocatedVerdict, frozen=True, kw_only=True):
    """The verdict on a part of a command."""

    command: str
    words: tuple[str, ...]


class Explanation(LocatedVerdict, frozen=True, kw_only=True):
    """The verdict on a command and on each of its parts, and the rule that "always" would save."""

    parts: list[PartVerdict]
    carried: list[PartVerdict]
    odd: str
    writes: Sequence[str]
    mentions: Sequence[str]
    always: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveRules:
    """The effective rules, the permission mode, and where each rule is defined."""

    rules: Rules
    mode: Mode
    places: Mapping[str, tuple[str, ...]]

    def check_action(self, what: str | Action) -> LocatedVerdict:
        """Return the verdict on an action, with the locations of the rule that decided it."""
        verdict = check(what, self.rules, self.mode)
        return LocatedVerdict.of(verdict, where=self._rule_places(verdict))

    def _rule_places(self, verdict: Verdict) -> tuple[str, ...]:
        # If there is nobody to ask, an ask rule denies the action.
        kinds = (verdict.decision, "ask") if verdict.decision == "deny" else (verdict.decision,)
        return next((found for kind in kinds if (found := self.places.get(f"permissions.{kind}.{verdict.rule}"))), ())


def _load_effective_rules(repo: Path | None, agent: str | None, mode: PermissionMode | None) -> EffectiveRules:
    """Load and combine the rules from the user, the repository and the agent."""
    home = find_home_folder()
    place = repo or find_repo(Path.cwd(), home=home)
    files = read_settings_files(home, place)
    settings = Settings.from_files(files, os.environ, place)
    always = {
        f"permissions.allow.{one.rule}": format_path(home / ALLOWED_FILE)
        for one in load_allowed_rules(home)
        if one.applies_in(place)
    }
    rules, sources = settings.build_rules(), [files.user_lines, always, _without_allow_rules(files.repo_lines)]
    if agent is not None:
        roster = load_roster(place, home)
        one = roster.get(agent)
        if (own := one.permissions) is not None:
            rules = narrow_rules(rules, Rules(ask=own.ask, deny=own.deny))
        lines = roster.lines.get(one.path, {})
        sources.append(_without_allow_rules({key: f"{one.path}:{line}" for key, line in lines.items()}))
    places: dict[str, tuple[str, ...]] = {}
    for source in sources:
        for key, where in source.items():
            places[key] = (*places.get(key, ()), where)
    return EffectiveRules(rules=rules, mode=mode or settings.permission_mode, places=places)


def _without_allow_rules(lines: Mapping[str, str]) -> dict[str, str]:
    """Return `lines` without allow rules, which have no effect in files that can only tighten permissions."""
    return {key: where for key, where in lines.items() if not key.startswith("permissions.allow.")}


@policy_command.command("check")
@command_argument
@click.option("--tool", help="Check a tool instead of a command, e.g. edit_file.")
@click.option("--path", help="Value of the tool's path argument; requires --tool.")
@click.option("--url", help="Value of the tool's url argument; requires --tool.")
@agent_option
@mode_option
@repo_option
@json_option
def policy_check_command(
    words: tuple[str, ...],
    tool: str | None,
    path: str | None,
    url: str | None,
    agent: str | None,
    mode: PermissionMode | None,
    repo: Path | None,
    is_json: bool,
) -> int:
    """Show whether a command or tool call is allowed, needs permission or is denied, and by which rule.

    The exit code is 0 if it is allowed, 3 if it needs permission and 4 if it is denied.
    """
    if (tool is None) == (not words) or (tool is None and (path or url)):
        raise click.UsageError("give either a command after -- or --tool, not both; --path and --url require --tool")
    effective = _load_effective_rules(repo, agent, mode)
    arguments = {key: value for key, value in (("path", path), ("url", url)) if value is not None}
    what = Action(run="", agent="", tool=tool, arguments=arguments) if tool else join_command(words)
    verdict = effective.check_action(what)
    if is_json:
        asked: dict[str, Any] = {"command": what} if isinstance(what, str) else {"tool": tool, "arguments": arguments}
        asked |= {"agent": agent, "mode": effective.mode}
        click.echo(as_json({"schema": SCHEMA, **asked, **structs.asdict(verdict)}))
    else:
        click.echo(escape_for_terminal("\n".join(_format_verdict(verdict))))
    return EXITS[verdict.decision]


def join_command(words: tuple[str, ...]) -> str:
    """Join words into a command line, with quotes where needed. A single word is returned unchanged."""
    return words[0] if len(words) == 1 else shlex.join(words)


def _format_verdict(verdict: LocatedVerdict) -> Iterator[str]:
    """Yield the lines of a verdict."""
    yield f"{verdict.decision}: {verdict.reason}"
    if verdict.rule is not None:
        yield f"rule: {verdict.rule}{''.join(f', {where}' for where in verdict.where)}"


@policy_command.command("explain")
@command_argument
@agent_option
@mode_option
@repo_option
@json_option
def policy_explain_command(
    words: tuple[str, ...], agent: str | None, mode: PermissionMode | None, repo: Path | None, is_json: bool
) -> None:
    """Show how a command is parsed: its parts, each with its verdict, and the rule that "always" would save."""
    if not words:
        raise click.UsageError("give a command after --")
    effective, text = _load_effective_rules(repo, agent, mode), join_command(words)
    explained = _build_explanation(effective, text)
    if is_json:
        asked = {"schema": SCHEMA, "command": text, "agent": agent, "mode": effective.mode}
        click.echo(as_json(asked | structs.asdict(explained)))
        return
    # Besides its parts, a command can contain text that a program may run as a command. If the command can be parsed,
    # such text is shown only if a rule matches it.
    carried = [one for one in explained.carried if one.rule or not explained.parts]
    rows = [[one.decision, one.command, one.reason] for one in (*explained.parts, *carried)]
    lines = (
        ["  ".join(row) for row in align_columns([[_escape_line_breaks(cell) for cell in row] for row in rows])]
        if rows
        else []
    )
    if explained.odd:
        lines.append(f"needs approval: {explained.odd}")
    if explained.writes:
        lines.append(f"would write: {', '.join(map(_escape_line_breaks, explained.writes))}")
    lines += ["", *_format_verdict(explained)]
    lines.append(f'"always" would save: {explained.always or "nothing, because no safe rule covers exactly this"}')
    click.echo(escape_for_terminal("\n".join(lines).lstrip("\n")))


def _build_explanation(effective: EffectiveRules, text: str) -> Explanation:
    """Return the parts of a command with their verdicts, and the verdict on the whole command."""
    found = read_command(text)
    carried = [words for words in found.candidates if words not in found.parts][:MOST_SHOWN]
    return Explanation.of(
        effective.check_action(text),
        parts=[_check_part(effective, words) for words in found.parts],
        carried=[_check_part(effective, words) for words in carried],
        odd=found.odd,
        writes=found.writes[:MOST_SHOWN],
        mentions=found.mentions[:MOST_SHOWN],
        always=generalised(text),
    )


def _check_part(effective: EffectiveRules, words: tuple[str, ...]) -> PartVerdict:
    text = shlex.join(words)
    return PartVerdict.of(effective.check_action(text), command=text, words=words)


def _escape_line_breaks(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t")


@policy_command.command("test")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@repo_option
@json_option
def policy_test_command(file: Path | None, repo: Path | None, is_json: bool) -> int:
    """Test the examples of all rules, or only of the rules in FILE.

    Without FILE, the rules in your own settings, in the repository's settings and in all agent files are tested.
    The exit code is 1 if an example fails or a rule is invalid.
    """
    tried = RuleTestRun()
    for path, root in ((file, None),) if file is not None else _find_rule_files(find_home_folder(), repo):
        tried.try_file(path, root)
    failed = tried.failed
    if is_json:
        fields = {"rules": tried.rules, "examples": tried.examples, "failed": failed}
        click.echo(as_json({"schema": SCHEMA, **fields}))
    else:
        lines = [f"{one['path']}:{one['line']}: {one['message']}" for one in failed]
        summed = f"{format_count(tried.rules, 'rule')}, {format_count(tried.examples, 'example')}"
        held = f"{len(failed)} failed" if failed else "all passed"
        click.echo(escape_for_terminal("\n".join([*lines, f"{summed}: {held}"])))
    return exit_codes.GOAL_NOT_MET if failed else exit_codes.GOAL_MET


class RuleTestRun:
    """The results of testing the rules in one or more files."""

    def __init__(self) -> None:
        self.rules = 0
        self.examples = 0
        self.failed: list[dict[str, Any]] = []

    def try_file(self, path: Path, root: Path | None) -> None:
        """Test all rules in a file. If `root` is given, the file must be inside `root` after symlinks are resolved."""
        name = format_path(path)
        for kind, written in find_rule_entries(_read_mapping(path, root)):
            self.rules += 1
            place: dict[str, Any] = {"path": name, "line": written.line, "kind": kind}
            try:
                entry = parse_rule_entry(written, kind)
            except Mistake as mistake:
                self.failed.append({**place, "rule": None, "example": None, "message": str(mistake)})
                continue
            for example in entry.check_examples():
                self.examples += 1
                if example.wrong:
                    found = {"rule": entry.rule, "example": example.text, "message": example.wrong}
                    self.failed.append({**place, **found})


def _find_rule_files(home: Path, repo: Path | None) -> Iterator[tuple[Path, Path | None]]:
    """Yield every file that can contain rules, each with the folder that must contain it.

    Symbolic links are resolved before a file's location is checked. The folder is None if the file can be anywhere.
    """
    place = repo or find_repo(Path.cwd(), home=home)
    for path, root in ((home / USER_FILE, None), (place / REPO_FILE, place)):
        if path.exists():
            yield path, root
    for folder in list_agent_folders(place, home):
        try:
            yield from ((path, folder.repo) for path in agent_files(folder))
        except OSError as error:
            raise Mistake(f"{format_path(folder.path)} cannot be read: {error.strerror or error}") from error


def _read_mapping(path: Path, root: Path | None) -> MappingNode:
    """Parse a settings file, or the frontmatter of an agent file, and return its mapping."""
    from ...files import agent_file  # imported here to keep start-up fast: only `policy test` reads files
    from ...system import whole_file as bounded_file
    from ...values.yaml_parser import parse_yaml_mapping

    try:
        text = bounded_file.read_text_file(path, root=root)
        if path.suffix != ".md":
            return parse_yaml_mapping(text)
        halves = agent_file.split_frontmatter(text)
        return parse_yaml_mapping(halves.frontmatter if halves else "", first_line=agent_file.FIRST_LINE)
    except bounded_file.UnreadableFile as error:
        raise Mistake(f"{format_path(path)} {error}") from error
    except MalformedText as error:
        raise Mistake(f"{format_path(path)}:{error.line}: {error}") from error
