"""`podium team show`: one team in full."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ...roster.team_definition import Definition, find
from ...values.event import SCHEMA
from ..commands.config import as_object, in_repo
from ..terminal.measure import aligned, cut, fitted, width
from ..terminal.text import as_json, visible
from .team_lookup import place

WIDEST = 72
NARROWEST = 12


@click.command("show")
@click.argument("name")
@in_repo
@as_object
def command(name: str, repo: Path | None, is_json: bool) -> None:
    """Show the team NAME: its mode, its members with their models and prompts, and what they share."""
    here = place(repo)
    fields = described(find(name, here.roster, repo=here.repo, home=here.home))
    if is_json:
        click.echo(as_json({"schema": SCHEMA, **fields, "notices": here.notices()}))
    else:
        click.echo("\n".join(told(fields, most=shutil.get_terminal_size().columns)))
        here.tell()


def described(found: Definition) -> dict[str, Any]:
    """Everything about a team."""
    lead = found.lead
    assert lead.team is not None
    members = [
        {
            "name": (member.name or member.agent).rpartition(":")[2],
            "agent": member.agent,
            "role": member.role or agent.role or agent.description,
            "model": member.model or agent.model,
            "prompt": agent.prompt if found.kind in ("squad", "preset") else member.prompt or agent.prompt,
            "path": agent.path,
        }
        for member, agent in zip(lead.team.members, found.members, strict=True)
    ]
    return {
        "name": lead.name,
        "title": found.name,
        "kind": found.kind,
        "source": lead.source,
        "path": lead.path,
        "description": lead.description,
        "mode": lead.team.mode,
        "model": lead.model,
        "prompt": lead.prompt,
        "evaluator": lead.team.evaluator,
        "members": members,
        "options": lead.team.options,
    }


def told(fields: dict[str, Any], *, most: int) -> Iterator[str]:
    """The same for people."""
    yield visible(f"{fields['name']}  {fields['description']}")
    yield visible(f"{fields['kind']}, {fields['path']}")
    yield visible(f"mode {fields['mode']}, led with {fields['model'] or 'the default model'}")
    if fields["evaluator"]:
        yield visible(f"judged by {fields['evaluator']}")
    for key, value in fields["options"].items():
        is_long = isinstance(value, str) and (len(value) > WIDEST or "\n" in value)
        yield visible(f"{key}: {len(value):,} characters" if is_long else f"{key}: {value}")
    yield "members"
    yield from _members(fields["members"], most=most)


def _members(members: list[dict[str, Any]], *, most: int) -> list[str]:
    """A line for each; its role and its prompt share what the terminal leaves of them."""
    named = [[f"  {visible(one['name'])}", visible(one["model"] or "default")] for one in members]
    room = most - max((sum(map(width, row)) for row in aligned([[*row, ""] for row in named])), default=0) - 6
    roles = [cut(visible(one["role"]), max(room // 2, NARROWEST)) for one in members]
    rows = [[*row, role, visible(one["prompt"])] for row, role, one in zip(named, roles, members, strict=True)]
    return fitted(rows, most=most, least=NARROWEST)
