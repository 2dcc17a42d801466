"""Evaluate rules to decide whether an action is allowed, needs approval or is denied, and why.

A verdict depends only on the action, the rules and the mode, not on files, the time or the environment. Deny
takes precedence over ask, and ask over allow, however specific a rule is. An action that rules cannot judge needs
approval. Asking a person, saving the answer and setting up the sandbox are done in other modules.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from msgspec import Struct

from ..values.action import Action
from ..values.errors import Mistake
from ..values.tool_table import (
    AGENT_RULE,
    CHANGING_RULES,
    CHECKED_ARGUMENTS,
    COORDINATION_RULES,
    PATH_ARGUMENTS,
    READING_RULES,
)
from .command_words import Words, split_names
from .path_rules import escape_path, is_protected, is_sensitive, locate_path
from .possible_commands import find_possible_commands
from .rule import CommandRule, Rule, Subject, normalise_tool_name, parse_host, parse_rule
from .shell_command import ShellCommand, join_words, parse_command
from .shell_program import (
    COPIERS,
    INTERPRETER,
    WRAPPERS,
    WRITERS,
    find_mentioned_paths,
    find_risks,
    get_program_name,
    is_read_only,
)

__all__ = [
    "Mode",
    "Rules",
    "Verdict",
    "check",
    "escape_path",
    "find_ignored_rules",
    "generalised",
    "narrow_rules",
    "parse_rules",
]

Mode = Literal["default", "accept-edits", "plan", "dont-ask", "bypass"]
Decision = Literal["allow", "ask", "deny"]

LARGE_DIFF = 400
"""Diffs with more changed lines than this need approval."""


class Rules(Struct, frozen=True):
    """Rules as strings, grouped by decision."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Verdict(Struct, frozen=True):
    """A decision, its reason, and the rule that it is based on, if any."""

    decision: Decision
    rule: str | None
    reason: str


RulesLike = Rules | Mapping[str, Sequence[str | Mapping[str, Any]]]
"""Permission rules: a `Rules` object, or a mapping from allow, ask and deny to lists of rules, as in the settings."""


def check(
    what: str | Action,
    rules: RulesLike,
    mode: Mode = "default",
    *,
    changed_lines: int = 0,
    large_diff: int = LARGE_DIFF,
    guard: str = "",
) -> Verdict:
    """Return the verdict on an action, or on a shell command. Raise Mistake if the mode or a rule is invalid.

    `changed_lines` is the number of changed lines in the action's diff. Above `large_diff`, the action needs approval.
    `guard` is a reason why the action needs approval even if a rule or the mode allows it.
    """
    if mode not in _MODES:
        raise Mistake(f'unknown permission mode "{mode}"; available: {", ".join(_MODES)}')
    compiled = _compile_rules(rules if isinstance(rules, Rules) else parse_rules(rules, "the rules"))
    verdict = _judge_subject(_make_subject(what), compiled, mode, is_large=changed_lines > large_diff, guard=guard)
    if mode == "dont-ask" and verdict.decision == "ask":
        return Verdict("deny", verdict.rule, f"{verdict.reason}; dont-ask mode denies instead of asking")
    return verdict


_MODES: tuple[str, ...] = get_args(Mode)


def narrow_rules(rules: Rules, by: Rules) -> Rules:
    """Return `rules` with the ask and deny rules from `by` added. The allow rules from `by` are ignored."""
    return Rules(rules.allow, _remove_duplicates(rules.ask + by.ask), _remove_duplicates(rules.deny + by.deny))


def find_ignored_rules(rules: Rules, by: Rules) -> tuple[str, ...]:
    """Return the allow rules from `by` that `narrow_rules` ignores, for a warning."""
    return tuple(text for text in _remove_duplicates(by.allow) if text not in rules.allow)


def _remove_duplicates(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


# Verdicts --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CompiledRules:
    allow: tuple[Rule, ...]
    ask: tuple[Rule, ...]
    deny: tuple[Rule, ...]


@lru_cache(maxsize=256)
def _compile_rules(rules: Rules) -> _CompiledRules:
    return _CompiledRules(
        *(tuple(parse_rule(text) for text in texts) for texts in (rules.allow, rules.ask, rules.deny))
    )


def _judge_subject(subject: Subject, rules: _CompiledRules, mode: Mode, *, is_large: bool, guard: str) -> Verdict:
    """Return the first verdict that applies, from the strictest check to the most permissive."""
    for rule in rules.deny:
        if rule.catches(subject):
            return Verdict("deny", rule.text, f"{rule.text} denies it")
    if mode == "plan" and (refused := _judge_in_plan_mode(subject)) is not None:
        return refused
    for rule in rules.ask:
        if rule.catches(subject):
            return Verdict("ask", rule.text, f"{rule.text} requires permission")
    if (rules.deny or rules.ask) and subject.command and find_possible_commands(subject.command).is_too_much:
        return Verdict("ask", None, "it may run more commands than deny and ask rules can be checked against")
    if why := guard or _find_guard_reason(subject):
        return Verdict("ask", None, f"{why}; no rule can allow that")
    if mode == "bypass":
        return Verdict("allow", None, "no rule forbids it, and bypass mode skips permission requests")
    if why := _find_escalation_reason(subject, is_large=is_large):
        return Verdict("ask", None, f"{why}; a person has to decide")
    if subject.command is not None:
        return _judge_command(subject.command, rules.allow)
    for rule in rules.allow:
        if rule.permits(subject):
            return Verdict("allow", rule.text, f"{rule.text} allows it")
    return _judge_without_rule(subject, mode)


def _judge_in_plan_mode(subject: Subject) -> Verdict | None:
    """Return plan mode's verdict, or None if plan mode does not restrict the action."""
    if subject.tool in READING_RULES or subject.tool in COORDINATION_RULES or subject.tool == "WebFetch":
        return None
    command = subject.command
    if command is not None and command.parts and all(is_read_only(words) for words in command.parts):
        return None
    if command is not None or subject.tool in CHANGING_RULES or subject.tool == "run_checks":
        return Verdict("deny", None, "plan mode allows only reading")
    return Verdict("ask", None, f"plan mode allows only reading, and {subject.tool} is not known to be read-only")


def _find_guard_reason(subject: Subject) -> str:
    """Return why this action needs a person's approval in every mode, or an empty string if it does not."""
    command = subject.command
    if command is None:
        changes = subject.locations if subject.tool in CHANGING_RULES else ()
        return next((f"{where.path} is protected" for where in changes if is_protected(where.path)), "")
    if command.unread:
        return command.unread
    if not command.names_protected:
        return ""
    if command.folders and (entered := next((path for path in command.writes if is_protected(path)), "")):
        return f"{entered} is protected"
    changing = (words for words in command.candidates if not is_read_only(words))
    named = (path for words in changing for path in find_mentioned_paths(words, get_program_name(words)))
    return next((f"{path} is protected" for path in (*command.writes, *named) if is_protected(path)), "")


def _find_escalation_reason(subject: Subject, *, is_large: bool) -> str:
    """Return why this action needs approval even if a rule allows it, or an empty string if it does not."""
    if subject.unclear:
        return subject.unclear
    if is_large:
        return "its diff is very large"
    if (command := subject.command) is not None:
        if command.odd or not command.folders:
            return command.odd
        secret = next((path for path in command.mentions if is_protected(path) or is_sensitive(path)), None)
        return "" if secret is None else f"{secret} is protected or may contain secrets"
    secret = next((where.path for where in subject.locations if is_sensitive(where.path)), None)
    return "" if secret is None else f"{secret} may contain secrets"


def _judge_command(command: ShellCommand, allow: tuple[Rule, ...]) -> Verdict:
    """Return the verdict on a shell command. Each of its parts must be read-only or allowed by a rule."""
    used: dict[str, None] = {}
    for words in command.parts:
        objections: list[str] = []
        said = join_words(words)
        for rule in allow:
            if isinstance(rule, CommandRule) and rule.pattern.matches(said):
                if not (objection := rule.find_objection(words)):
                    used[rule.text] = None
                    break
                objections.append(f"{rule.text} covers it, but {objection}")
        else:
            if is_read_only(words) and not find_risks(words):
                continue
            named = shlex.join(words) if len(command.parts) > 1 else "it"
            return Verdict("ask", None, objections[0] if objections else f"no rule allows {named}")
    if not used:
        return Verdict("allow", None, "it only reads inside the checkout")
    return Verdict("allow", next(iter(used)), f"{' and '.join(used)} {'allows' if len(used) == 1 else 'allow'} it")


def _judge_without_rule(subject: Subject, mode: Mode) -> Verdict:
    """Return the verdict on an action that no rule covers."""
    is_inside = all(where.is_inside for where in subject.locations)
    if subject.tool in READING_RULES and is_inside:
        return Verdict("allow", None, "it only reads inside the checkout")
    if subject.tool in COORDINATION_RULES:
        return Verdict("allow", None, "it only exchanges messages with people and other agents")
    if subject.tool in CHANGING_RULES and is_inside and mode == "accept-edits":
        return Verdict("allow", None, "accept-edits mode allows edits inside the checkout")
    if not is_inside:
        return Verdict("ask", None, "it accesses a path outside the checkout, and no rule allows that")
    return Verdict("ask", None, "no rule allows it")


# Subjects --------------------------------------------------------------------------------------------


def _make_subject(what: str | Action) -> Subject:
    if isinstance(what, str):
        return Subject(tool="Bash", command=parse_command(what))
    tool, arguments = normalise_tool_name(what.tool), what.arguments
    unclear = "it sets environment variables" if what.environment else ""
    if other := arguments.keys() - CHECKED_ARGUMENTS.get(tool, arguments.keys()):
        unclear = f"{what.tool} was called with the argument {min(other)}, which rules cannot check"
    match tool:
        case "Bash":
            text = arguments.get("command")
            if not isinstance(text, str):
                return Subject(tool=tool, command=parse_command(""), unclear="its command is not a string")
            return Subject(tool=tool, command=parse_command(text), unclear=unclear)
        case "WebFetch":
            url = arguments.get("url")
            if not isinstance(url, str) or parse_host(url) is None:
                unclear = "the host of its URL is ambiguous"
            return Subject(tool=tool, url=str(url), unclear=unclear)
        case "Agent":
            return Subject(tool=tool, agent=str(arguments.get("name", "")), unclear=unclear)
    if tool in PATH_ARGUMENTS:
        needs_path = tool == "Read" or tool in CHANGING_RULES
        paths = [arguments.get(key) for key in PATH_ARGUMENTS[tool] if needs_path or arguments.get(key)]
        texts = [path for path in paths if isinstance(path, str) and path]
        if len(texts) < len(paths):
            unclear = "it has no path"
        return Subject(tool=tool, locations=tuple(locate_path(path) for path in texts), unclear=unclear)
    return Subject(tool=tool, unclear=unclear)


# Parsing rules ---------------------------------------------------------------------------------------


def parse_rules(value: Any, where: str) -> Rules:
    """Parse the lists under allow, ask and deny. An item is a string or a mapping with rule, match and not_match.

    Raise Mistake, with `where` in the message, if a rule is invalid or contradicts its examples.
    """
    if value is None:
        return Rules()
    if not isinstance(value, Mapping) or (unknown := [key for key in value if key not in _KINDS]):
        found = f"has the unknown key {unknown[0]}" if isinstance(value, Mapping) else f"is {value!r}"
        raise Mistake(f"{where} {found}; expected lists of rules under allow, ask and deny")
    return Rules(**{kind: _parse_rule_list(value.get(kind), kind, where) for kind in _KINDS})


_KINDS: tuple[Decision, ...] = ("allow", "ask", "deny")


def _parse_rule_list(entries: Any, kind: Decision, where: str) -> tuple[str, ...]:
    if entries is None:
        return ()
    if not isinstance(entries, list | tuple):
        raise Mistake(f"{where}: expected a list of rules under {kind}, got {entries!r}")
    return tuple(_parse_verified_rule(entry, kind, where) for entry in entries)


def _parse_verified_rule(entry: Any, kind: Decision, where: str) -> str:
    """Return a rule as a string. Raise Mistake if it does not parse or contradicts its examples."""
    written = {"rule": entry} if isinstance(entry, str) else entry
    if not isinstance(written, Mapping) or not isinstance(text := written.get("rule"), str):
        raise Mistake(
            f"{where}: {entry!r} under {kind} is not a rule; "
            "a rule is a string, or a mapping with rule, match and not_match"
        )
    if unknown := [key for key in written if key not in ("rule", "match", "not_match")]:
        raise Mistake(f'{where}: the rule "{text}" has the unknown key {unknown[0]}; it can have match and not_match')
    try:
        rules = Rules(**{kind: (text,)})
        _compile_rules(rules)
    except Mistake as mistake:
        raise Mistake(f"{where}: {mistake}") from mistake
    for key, wanted in (("match", True), ("not_match", False)):
        examples = written.get(key, [])
        for example in examples if isinstance(examples, list) else [examples]:
            if not isinstance(example, str):
                raise Mistake(f'{where}: the rule "{text}" has {example!r} under {key}; an example must be a string')
            if (check(_make_example_action(text, example), rules).rule == text) is not wanted:
                said = "does not cover" if wanted else "covers"
                raise Mistake(
                    f'{where}: the rule "{text}" under {kind} {said} its example "{example}"; change one or the other'
                )
    return text


def _make_example_action(text: str, example: str) -> Action:
    """Return the action for an example, which is a command, a path, a URL or a name."""
    tool = normalise_tool_name(text.partition("(")[0])
    key = {"Bash": "command", "WebFetch": "url", "Agent": "name"}.get(tool, "path")
    if tool not in CHECKED_ARGUMENTS and tool != AGENT_RULE:
        return Action(run="", agent="", tool=example)
    return Action(run="", agent="", tool=tool, arguments={key: example})


# Suggested rules -------------------------------------------------------------------------------------


def generalised(what: str | Action) -> str | None:
    """Return the rule that the answer "always" would save for an action, or None if no rule is suitable."""
    text = _suggest_rule(_make_subject(what))
    if text is None:
        return None
    try:
        is_enough = check(what, Rules(allow=(text,))).rule == text
    except Mistake:
        return None
    return text if is_enough else None


def _suggest_rule(subject: Subject) -> str | None:
    command = subject.command
    if command is not None:
        return _suggest_command_rule(command.parts[0]) if len(command.parts) == 1 else None
    if subject.tool in READING_RULES or subject.tool in CHANGING_RULES:
        rule = "Read" if subject.tool in READING_RULES else "Edit"
        path = subject.locations[0].path if len(subject.locations) == 1 else "."
        return f"{rule}({escape_path(path)})" if path != "." else None
    if subject.tool == "WebFetch":
        return f"WebFetch(domain:{parse_host(subject.url)})"
    return f"Agent({subject.agent})" if subject.tool == "Agent" else subject.tool


def _suggest_command_rule(words: Words) -> str | None:
    """Suggest a rule: for a common command, its first words and a wildcard; for any other command, the exact command.

    Return None if no rule should be suggested, for example for a program that runs other commands.
    """
    name = get_program_name(words)
    if name in WRAPPERS | UNREPEATED | WRITERS | COPIERS or INTERPRETER.fullmatch(name):
        return None
    if any(risk.kind == "deed" for risk in find_risks(words)):
        return None
    if words[0] in GENERAL:
        return f"Bash({words[0]} *)"
    if len(words) > 1 and words[1] in GENERAL_PAIRS.get(words[0], ()):
        return f"Bash({words[0]} {words[1]} *)"
    if words[0] in ("npm", "pnpm", "yarn") and words[1:2] == ("run",) and len(words) > 2:
        return f"Bash({shlex.join(words[:3])} *)"
    return f"Bash({shlex.join(words)})"


GENERAL = split_names("ls cat head tail wc grep rg find pytest echo pwd stat tree diff mypy")
GENERAL_PAIRS = {
    "git": split_names("status log diff show ls-files blame describe shortlog rev-parse add commit"),
    "npm": split_names("test"),
    "cargo": split_names("test check"),
    "go": split_names("test vet"),
    "ruff": split_names("check"),
}
UNREPEATED = split_names(
    "curl wget nc ncat telnet ftp sftp docker podman kubectl helm terraform aws gcloud az gh kill pkill killall reboot "
    "shutdown mount umount mkfs passwd useradd crontab systemctl service apt apt-get dnf yum brew pip pip3 uv poetry "
    "awk gawk mawk sed tar make cd pushd popd deno bun sqlite3 psql mysql vi vim nvim emacs less more man sleep"
)
"""Programs for which no rule is suggested, because every argument matters or a person should approve each use."""
