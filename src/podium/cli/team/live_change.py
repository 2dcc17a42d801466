"""Changing a member of a team that is at work: it holds from that member's next part on."""

from __future__ import annotations

from ...roster.agent_name import joined
from ...runs.run_lookup import looking
from ...runs.run_state import state
from ...setup.settings import Settings
from ...store.sqlite.mailbox import post
from ...store.sqlite.reader import Summary
from ...values.agent import working_names
from ...values.errors import Mistake
from ...values.event import MemberChanged, RunStarted
from ..commands.send import addressee
from ..terminal.say import say


def change_live(name: str, *, model: str, prompt: str) -> None:
    """Tell the owner of a run, which is named as RUN/MEMBER. Raises Mistake where there is no such member."""
    prefix, _, member = name.partition("/")
    store = Settings.load().store
    with looking(store) as reader:
        summary = reader.summary(reader.find(prefix))
    to = addressee(summary, member)
    _must_have_another_part(to, summary)
    post(store, summary.id, MemberChanged(member=to, model=model, prompt=prompt))
    when = "from its next part on" if state(summary) == "running" else f"when podium resume {summary.id} goes on"
    say(f"changed: {to} of run {summary.id}, {when}")


def _must_have_another_part(name: str, summary: Summary) -> None:
    """Refuse to change whom the run was given to, whose part began with it. Raises Mistake."""
    started = summary.first.event
    assert isinstance(started, RunStarted)
    if name != started.agent:
        return
    others = [one for one in working_names(started.agents) if one != name]
    instead = f"{joined(others)} can be" if others else "change its file, and begin another run"
    raise Mistake(f"{name} has only one part in run {summary.id}, and cannot be changed while it works; {instead}")
