"""`podium delegate`: have a worker do a task on a branch of its own, in the background."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import click
from msgspec import structs

from ..agent import Agent, Budget, Permissions
from ..config.role import ROLES, Role
from ..errors import Mistake
from ..event import SCHEMA
from ..roster.discover import load
from ..roster.place import find_repo
from ..settings import Settings
from .budget_text import BudgetText
from .say import say
from .spoken import spoken
from .text import as_json

AGENT = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a worker is hired with."""

    agent: str
    model: str | None
    engine: str | None
    role: str | None
    max_turns: int | None
    budget: Budget | None
    timeout: float | None
    is_reader: bool


@click.command("delegate")
@click.argument("branch")
@click.argument("task")
@click.option("--agent", default=AGENT, show_default=True, help="The agent that does it.")
@click.option("--model", help="What it thinks with, such as openai:gpt-5-mini.")
@click.option("--provider", help="The provider of --model, where that does not name one.")
@click.option("--engine", help="The engine that it thinks with.")
@click.option("--role", help=f"A role of the settings, or one of {', '.join(ROLES)}.")
@click.option("--auto-approve", "approved", metavar="TOOL,…", help="What it may do without asking: tools, or rules.")
@click.option("--after", multiple=True, metavar="BRANCH", help="Begin when the worker of this branch has succeeded.")
@click.option("--base", default="", help="What the branch begins at; by default what is checked out.")
@click.option("--timeout", type=click.FloatRange(min=1), help="Seconds until it is ended with what there is.")
@click.option("--max-turns", type=click.IntRange(min=1), help="So many model calls at most.")
@click.option("--budget", type=BudgetText(), help="What it may use, such as usd=2,tokens=200000.")
@click.option("--read-only", "is_reader", is_flag=True, help="It only reads, and needs no checkout.")
@click.option(
    "--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The repository to work in."
)
@click.option("--json", "is_json", is_flag=True, help="Print the worker as JSON.")
def command(
    branch: str,
    task: str,
    approved: str | None,
    provider: str | None,
    after: tuple[str, ...],
    base: str,
    repo: Path | None,
    is_json: bool,
    **terms: Any,
) -> None:
    """Have a worker do TASK on BRANCH, in a process and a checkout of its own. Returns at once with its id.

    A TASK of - is read from standard input. What the worker may not do by itself waits in the inbox:
    podium approvals. podium workers shows how it stands.
    """
    if provider is not None and terms["model"] is None:
        raise click.UsageError("--provider says whose --model it is; give both")
    if provider is not None and ":" not in terms["model"]:
        terms["model"] = f"{provider}:{terms['model']}"
    place = find_repo(repo or Path())
    # A reader's whole team only reads, whatever tools its members have.
    mode = "plan" if terms["is_reader"] else None
    settings = _allowing(Settings.load(repo=place, permission_mode=mode), approved)
    words = spoken(task)
    run = anyio.run(_hired, settings, place, branch, words, after, base, Terms(**terms))
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "id": run, "branch": branch}))
    else:
        click.echo(run)
        say(f"{branch}: a worker is on it; podium workers shows how it stands, podium approvals what it asks")


async def _hired(
    settings: Settings, place: Path, branch: str, task: str, after: tuple[str, ...], base: str, terms: Terms
) -> str:
    from ..app import App  # here, because the help needs none of it
    from ..processes.delegation import delegate, start_commander

    team = load(place, settings.home).team(terms.agent)
    agent = suited(team[0], terms, settings)
    async with App(settings) as app:
        run = await delegate(
            app,
            agent,
            task,
            at=place,
            branch=branch,
            base=base,
            follows=after,
            role=terms.role or "",
            is_reader=terms.is_reader,
            agents=team[1:],
        )
    start_commander(settings)
    return run


def suited(agent: Agent, terms: Terms, settings: Settings) -> Agent:
    """The agent as it is hired. Raises Mistake for a role that there is not."""
    changes: dict[str, Any] = {"isolation": "shared"}
    if terms.role is not None:
        changes |= _in_role(agent, terms.role, settings)
    if terms.model is not None:
        changes["model"] = terms.model
    if terms.engine is not None:
        changes["engine"] = terms.engine
    if terms.max_turns is not None:
        changes["max_turns"] = terms.max_turns
    if terms.is_reader:
        changes["tools"] = None
    budget = terms.budget or changes.get("budget") or agent.budget
    if terms.timeout is not None:
        budget = structs.replace(budget or Budget(), seconds=terms.timeout)
    return structs.replace(agent, **(changes | {"budget": budget}))


def _in_role(agent: Agent, name: str, settings: Settings) -> dict[str, Any]:
    role: Role | None = settings.models.get(name)
    if role is not None:
        return {"model": name}
    if name not in ROLES:
        there = ", ".join(dict.fromkeys([*settings.models, *ROLES]))
        raise Mistake(f"there is no role {name!r}; there are {there}")
    role = ROLES[name]
    return {"prompt": f"{agent.prompt}\n\n{role.rules}", "budget": role.budget}


def _allowing(settings: Settings, approved: str | None) -> Settings:
    rules = tuple(filter(None, map(str.strip, (approved or "").split(","))))
    if not rules:
        return settings
    from ..policy.rule import parse  # here, because most delegations bring no rules

    for rule in rules:
        parse(rule)
    mine = settings.permissions
    return structs.replace(settings, permissions=Permissions(allow=(*mine.allow, *rules), ask=mine.ask, deny=mine.deny))
