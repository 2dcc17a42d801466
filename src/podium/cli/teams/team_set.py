"""`podium team set`: change the model or prompt of a team member."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ...engines.model.providers import parse_model
from ...files.model_role import resolve_models
from ...files.presets import PRESETS_FILE
from ...files.settings import Settings
from ...files.squad_agents import is_model_name
from ...files.team_definition import change_team_member, find_team
from ...runs import find
from ...runs.queries.run_lookup import open_reader
from ...runs.run_steering import MemberChange, change_member
from ...system.locations import format_path
from ...values.errors import Mistake
from ...values.located_yaml import quote_text
from ..output.command_options import get_command_actor, read_text_argument, repo_option
from ..output.text import print_to_stderr
from .teams import load_team_context, print_overridden_builtin

DEFAULT_MODEL_WORD = "default"


@click.command("set")
@click.argument("name")
@click.argument("member", metavar="MEMBER", required=False)
@click.option("--model", help="Model for the member, e.g. sonnet; 'default' removes the member's own setting.")
@click.option("--prompt", metavar="TEXT", help="Prompt for the member; - reads it from standard input.")
@repo_option
def team_set_command(name: str, member: str | None, model: str | None, prompt: str | None, repo: Path | None) -> None:
    """Change the model or the prompt of MEMBER in the stored definition of the team NAME.

    If the team is a squad, the member's charter is edited; if it is a preset, the preset is edited. If the team is
    built in, a changed copy with the same name is saved as a team of your own. Agent files are not changed; edit them
    yourself. With RUN/MEMBER instead of NAME and MEMBER, change the member only in that unfinished run, starting with
    its next task.
    """
    if member is None and "/" not in name:
        raise click.UsageError("give the team and the member, or RUN/MEMBER")
    if model is None and prompt is None:
        raise click.UsageError("give --model, --prompt, or both")
    context = load_team_context(repo)
    if member is None:
        if model == DEFAULT_MODEL_WORD:
            raise Mistake("--model default cannot be used for a run; give the name of a model")
        words = "" if prompt is None else read_text_argument(prompt)
        _change_running_member(
            name, model="" if model is None else validate_model_name(model, context.repo), prompt=words
        )
        return
    found = find_team(name, context.roster, repo=context.repo, home=context.home)
    changed_kind = change_team_member(
        found,
        member,
        repo=context.repo,
        home=context.home,
        model=None if model is None else validate_model_name(model, context.repo),
        prompt=None if prompt is None else read_text_argument(prompt),
    )
    where = format_path(context.home / PRESETS_FILE) if changed_kind == "preset" else found.lead.path.rpartition("/")[0]
    print_to_stderr(f"changed: {member} of {found.name} in {where}")
    if found.kind == "built-in":
        print_overridden_builtin(found.name, context)


def validate_model_name(model: str, repo: Path) -> str:
    """Return the model name, or an empty string for the default model. Raise Mistake if the name is not valid."""
    if model == DEFAULT_MODEL_WORD:
        return ""
    if not is_model_name(model):
        raise Mistake(f"{quote_text(model)} is not a model name; use e.g. sonnet or openai:gpt-5-mini")
    settings = Settings.load(os.environ, repo)
    for one in resolve_models(model, settings.models).models:
        parse_model(one)
    return model


def _change_running_member(name: str, *, model: str, prompt: str) -> None:
    """Change the member RUN/MEMBER of an unfinished run. Raise Mistake if the member cannot be changed."""
    store = Settings.load().store
    with open_reader(store) as reader:
        found = find.resolve(reader, name, wanted="agent")
        summary = reader.read_summary(found.run)
    change = MemberChange(member=found.agent, model=model, prompt=prompt)
    print_to_stderr(change_member(store, summary, change, by=get_command_actor()).text)
