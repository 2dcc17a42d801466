"""`podium policy list` and `podium policy revoke`: list or revoke the rules saved by "always" answers."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from ...files.always_allow_rules import AllowedRule, load_allowed_rules, revoke_allowed_rule
from ...files.settings import Settings
from ...runs.always_answer import publish_saved_rules
from ...system.locations import find_home_folder, find_repo, format_path
from ...values.errors import PodiumError, StoreFailed
from ...values.event import SCHEMA
from ..terminal.command_options import json_option, repo_option
from ..terminal.text import align_columns, as_json, escape_for_terminal

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
