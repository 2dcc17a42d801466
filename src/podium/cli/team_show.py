"""`podium team show`: one team in full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..event import SCHEMA
from ..roster.definition import Definition, find
from .config import as_object, in_repo
from .measure import aligned, cut
from .team_place import place
from .text import as_json, visible

WIDEST = 72


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
        click.echo(visible("\n".join(told(fields))))
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


def told(fields: dict[str, Any]) -> Iterator[str]:
    """The same for people."""
    yield f"{fields['name']}  {fields['description']}"
    yield f"{fields['kind']}, {fields['path']}"
    yield f"mode {fields['mode']}, led with {fields['model'] or 'the default model'}"
    if fields["evaluator"]:
        yield f"judged by {fields['evaluator']}"
    for key, value in fields["options"].items():
        is_long = isinstance(value, str) and (len(value) > WIDEST or "\n" in value)
        yield f"{key}: {len(value):,} characters" if is_long else f"{key}: {value}"
    yield "members"
    rows = [
        [f"  {one['name']}", one["model"] or "default", cut(one["role"], WIDEST // 2), cut(one["prompt"], WIDEST)]
        for one in fields["members"]
    ]
    yield from ("  ".join(row).rstrip() for row in aligned(rows))
