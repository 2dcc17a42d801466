"""`podium delegate`: have a worker do a task on a branch of its own, in the background."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import anyio
import click

from ...config.model_role import ROLES
from ...roster.discovery import load
from ...setup.settings import Settings
from ...system.locations import find_repo
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ...workers.worker_options import Terms, permitting, suited
from ..terminal.attendance import is_told_not_to_ask, no_input
from ..terminal.budget_text import BudgetText
from ..terminal.say import say
from ..terminal.spoken import spoken
from ..terminal.text import as_json

AGENT = "worker"


class Seconds(click.FloatRange):
    """A time that ends: neither infinite nor no number at all."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        return seconds if isfinite(seconds) else self.fail(f"{value!r} is no number of seconds", param, ctx)


@click.command("delegate")
@click.argument("branch")
@click.argument("task")
@click.option("--agent", default=AGENT, show_default=True, help="The agent that does it.")
@click.option("--model", help="What it thinks with, such as openai:gpt-5-mini.")
@click.option("--provider", help="The provider of --model: P and M are together P:M.")
@click.option("--engine", help="The engine that it thinks with.")
@click.option("--role", help=f"A role of the settings, or one of {', '.join(ROLES)}.")
@click.option("--auto-approve", "approved", metavar="TOOL,…", help="What it may do without asking: tools, or rules.")
@click.option("--after", multiple=True, metavar="BRANCH", help="Begin when the worker of this branch has succeeded.")
@click.option("--base", default="", help="What the branch begins at; by default what is checked out.")
@click.option("--timeout", type=Seconds(min=1), help="Seconds until it is ended with what there is.")
@click.option("--max-turns", type=click.IntRange(min=1), help="So many model calls at most.")
@click.option("--budget", type=BudgetText(), help="What it may use, such as usd=2,tokens=200000.")
@click.option("--max-restarts", type=click.IntRange(min=0), help="Start it so often again after a crash.")
@click.option("--read-only", "is_reader", is_flag=True, help="It only reads, and needs no checkout.")
@no_input
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
    max_restarts: int | None,
    agent: str,
    repo: Path | None,
    is_json: bool,
    **agreed: Any,
) -> None:
    """Have a worker do TASK on BRANCH, in a process and a checkout of its own. Returns at once with its id.

    A TASK of - is read from standard input. What the worker may not do by itself waits in the inbox:
    podium approvals. podium workers shows how it stands.
    """
    if agreed["model"] is not None and not agreed["model"].strip():
        raise click.UsageError("--model is empty; name one, or leave it out for what the agent has anyway")
    if provider is not None and agreed["model"] is None:
        raise click.UsageError("--provider says whose --model it is; give both")
    if provider is not None and not agreed["model"].startswith(f"{provider}:"):
        agreed["model"] = f"{provider}:{agreed['model']}"
    place = find_repo(repo or Path())
    terms = Terms(**agreed, approved=tuple(filter(None, map(str.strip, (approved or "").split(",")))))
    must_be_tools(terms.approved)
    # A reader's whole team only reads, whatever tools its members have.
    mode = "plan" if terms.is_reader else None
    settings = Settings.load(repo=place, permission_mode=mode)
    if terms.model and not settings.model:
        # A model that was asked for by name is refused where it cannot be reached, and not rehearsed.
        settings = Settings.load(repo=place, permission_mode=mode, model=terms.model)
    settings = permitting(settings, terms)
    placed = {"branch": branch, "base": base, "follows": after, "max_restarts": max_restarts}
    hired = partial(_hired, settings, place, agent, spoken(task), terms, placed)
    run = anyio.run(hired)
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "id": run, "branch": branch}))
    else:
        click.echo(run)
        say(f"{branch}: a worker is on it; podium workers shows how it stands, podium approvals what it asks")


def must_be_tools(rules: Sequence[str]) -> None:
    """Refuse rules about tools that there are not. Raises Mistake."""
    if not rules:
        return
    from ...policy.rule import TOOLS  # here, because most workers bring no rules
    from ...tools.toolset import DELEGATING, IN_A_CHECKOUT, PLAIN

    others = [name for name in (*IN_A_CHECKOUT, *PLAIN, *DELEGATING) if name not in TOOLS]
    names = dict.fromkeys(rule.partition("(")[0] for rule in rules)
    known = [name for name in names if name.lower() in TOOLS or name in others or name.startswith("mcp__")]
    if unknown := [name for name in names if name not in known]:
        there_are = ", ".join(dict.fromkeys((*TOOLS.values(), *others)))
        raise Mistake(
            f"--auto-approve names {', '.join(unknown)}, and there is no such tool; there are {there_are}, and "
            "mcp__SERVER__TOOL for tools of MCP servers"
        )


async def _hired(
    settings: Settings,
    place: Path,
    named: str,
    task: str,
    terms: Terms,
    placed: dict[str, Any],
) -> str:
    from ...app import App  # here, because the help needs none of it
    from ...workers.delegate import delegate, start_commander
    from ...workers.key_promise import promised

    team = load(place, settings.home).team(named)
    agent = suited(team[0], terms, settings)
    async with App(settings) as app:
        with promised(settings.store) as promise:
            run = await delegate(
                app,
                agent,
                task,
                at=place,
                **placed,
                role=terms.role or "",
                is_reader=terms.is_reader,
                is_unattended=is_told_not_to_ask(),
                run=promise.run,
                agents=team[1:],
            )
            start_commander(settings, promise=promise)
    return run
