"""A process that leads a team whose members work on hosts.

It is started as `python -m tests.fleet.history.commander PLAN TEAM REPOSITORY`, and can be killed and started again at
any time: it resumes its run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import msgspec
from msgspec import structs

from podium import App, Settings
from podium.store.reader import StoreReader
from podium.values.agent import Agent, Member, Team
from podium.values.errors import PodiumError
from podium.values.event import RunEnded, RunStarted
from podium.values.store_address import StoreAddress

from ...workers.worker_lab import make_scripted_agent
from .run_plan import ALLOWING, HistoryPlan, TeamPlan


async def lead_team(plan: TeamPlan, repo: Path) -> None:
    """Start or resume the run of a team, and wait for its end. Raise PodiumError if the store fails."""
    settings = Settings.load(repo=repo, permissions=ALLOWING)
    run = find_run(settings.store, plan.name)
    async with App(settings, environ=os.environ) as app:
        if run:
            async with app.resume(run) as resumed:
                result = await resumed.result()
        else:
            lead, *members = make_team(plan)
            result = await app.run(lead, plan.name, repo=repo, agents=members)
    if result.outcome == "interrupted":
        sys.exit(f"commander: {result.error}")


def find_run(store: StoreAddress, request: str) -> str:
    """Return the unfinished run with this request, or an empty string. Exit if the run has ended."""
    with StoreReader(store) as reader:
        for summary in reader.read_run_list().readable:
            started = summary.first.event
            # The runs of members have the same request.
            if isinstance(started, RunStarted) and started.errand is None and started.request.text == request:
                if isinstance(summary.last.event, RunEnded):
                    sys.exit(0)
                return summary.id
    return ""


def make_team(plan: TeamPlan) -> list[Agent]:
    """Return the lead and its members. The members are workers, so hosts run them."""
    members = [
        structs.replace(make_scripted_agent(*one.moves), name=one.branch, isolation="process") for one in plan.members
    ]
    team = Team(mode="broadcast", members=tuple(Member(agent=member.name) for member in members))
    return [structs.replace(make_scripted_agent("all done"), name="lead", team=team), *members]


def main() -> None:
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=HistoryPlan)
    [team] = [team for team in plan.teams if team.name == sys.argv[2]]
    try:
        anyio.run(lead_team, team, Path(sys.argv[3]))
    except PodiumError as error:
        sys.exit(f"commander: {error}")


if __name__ == "__main__":
    main()
