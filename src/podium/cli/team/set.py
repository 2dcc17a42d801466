"""`podium team set`: give a member of a team another model or prompt."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ...config.model_role import resolved
from ...engines.model.providers import parse_model
from ...roster.presets import FILE
from ...roster.squad_agents import is_model
from ...roster.team_definition import change, find
from ...setup.settings import Settings
from ...system.locations import shown
from ...values.errors import Mistake
from ...values.located_yaml import quoted
from ..commands.config import in_repo
from ..terminal.say import say
from ..terminal.spoken import spoken
from .team_lookup import place

DEFAULT = "default"


@click.command("set")
@click.argument("name")
@click.argument("member", metavar="MEMBER", required=False)
@click.option("--model", help="What the member thinks with, such as sonnet; default takes its model away.")
@click.option("--prompt", metavar="TEXT", help="The member's prompt; - reads it from standard input.")
@in_repo
def command(name: str, member: str | None, model: str | None, prompt: str | None, repo: Path | None) -> None:
    """Change the model or the prompt of MEMBER in the team NAME, where the team is kept.

    A squad's charter or a preset is changed. A team that ships with Podium becomes one of your own
    by the same name; agent files are yours to edit. With RUN/MEMBER in place of both, the member of a run
    that is under way is changed, from its next part on, and no definition is.
    """
    if member is None and "/" not in name:
        raise click.UsageError("name the team and the member, or RUN/MEMBER")
    if model is None and prompt is None:
        raise click.UsageError("give --model, --prompt, or both")
    here = place(repo)
    if member is None:
        from .live_change import change_live  # here, because it needs the store

        if model == DEFAULT:
            raise Mistake("a member at work can get a model and cannot lose one; name what it should think with")
        words = "" if prompt is None else spoken(prompt)
        change_live(name, model="" if model is None else checked(model, here.repo), prompt=words)
        return
    found = find(name, here.roster, repo=here.repo, home=here.home)
    kept = change(
        found,
        member,
        repo=here.repo,
        home=here.home,
        model=None if model is None else checked(model, here.repo),
        prompt=None if prompt is None else spoken(prompt),
    )
    where = shown(here.home / FILE) if kept == "preset" else found.lead.path.rpartition("/")[0]
    say(f"changed: {member} of {found.name} in {where}")


def checked(model: str, repo: Path) -> str:
    """A model that there may be; nothing for the default one. Raises Mistake for what names none."""
    if model == DEFAULT:
        return ""
    if not is_model(model):
        raise Mistake(f"{quoted(model)} is not the name of a model; sonnet or openai:gpt-5-mini would be one")
    settings = Settings.load(os.environ, repo)
    for one in resolved(model, settings.models).models:
        parse_model(one)
    return model
