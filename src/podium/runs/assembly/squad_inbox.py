"""Write the decisions made in a run to the squad's inbox when the run ends, if the settings or the team request it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from anyio import to_thread

from ...core.decision_state import DECISION_EVENTS
from ...core.timeline import Timeline
from ...files.settings import Settings
from ...values.agent import Agent
from ...values.errors import PodiumError
from ...values.event import Noticed, RunStarted
from ...values.plain_text import join_words
from ...views.decision_record import collect_decisions


def writes_inbox(settings: Settings, started: RunStarted) -> bool:
    """Return whether the decisions made in a run are written to the squad's inbox."""
    leads = [agent for agent in started.agents if agent.team is not None and _is_from_squad(agent)]
    asked = settings.squad_inbox or any(one.team is not None and one.team.options.get("adr") for one in leads)
    return bool(leads and asked and started.repo)


def _is_from_squad(agent: Agent) -> bool:
    from ...files.squad.squad_folder import LEGACY_SQUAD_FOLDER, SQUAD_FOLDER  # for start-up time: few runs have a team

    return agent.path.split("/")[0] in (SQUAD_FOLDER, LEGACY_SQUAD_FOLDER)


async def write_decisions(timeline: Timeline, started: RunStarted) -> None:
    """Write the decisions made in the run, and record a notice about the new files or about the error."""
    decisions = collect_decisions(timeline.find_entries_below(started.agent, *DECISION_EVENTS))
    if not decisions:
        return
    from ...files.squad.decision_inbox import write_inbox_decisions  # for start-up time: few runs have a squad

    try:
        written = await to_thread.run_sync(partial(write_inbox_decisions, Path(started.repo), decisions))
    except (PodiumError, OSError) as error:
        timeline.append(Noticed(text=f"The decisions were not written to the squad's inbox: {error}"), scope="")
        return
    if written:
        names = join_words([path.name for path in written])
        text = f"Written to the squad's inbox: {names}; run podium decisions merge-inbox to add them to decisions.md."
        timeline.append(Noticed(text=text), scope="")
