"""Changing a member of a team that is at work: it holds from that member's next part on."""

from __future__ import annotations

from ...roster.agent_name import join_words
from ...runs.run_lookup import open_reader
from ...runs.run_state import derive_run_state
from ...setup.settings import Settings
from ...store.sqlite.mailbox import post_to_mailbox
from ...store.sqlite.reader import RunSummary
from ...values.agent import collect_agent_names
from ...values.errors import Mistake
from ...values.event import MemberChanged, RunStarted
from ..commands.send import resolve_recipient
from ..terminal.say import print_to_stderr


def change_running_member(name: str, *, model: str, prompt: str) -> None:
    """Tell the owner of a run, which is named as RUN/MEMBER. Raises Mistake where there is no such member."""
    prefix, _, member = name.partition("/")
    store = Settings.load().store
    with open_reader(store) as reader:
        summary = reader.read_summary(reader.find_run(prefix))
    to = resolve_recipient(summary, member)
    _require_not_first_agent(to, summary)
    post_to_mailbox(store, summary.id, MemberChanged(member=to, model=model, prompt=prompt))
    when = (
        "from its next part on"
        if derive_run_state(summary) == "running"
        else f"when podium resume {summary.id} goes on"
    )
    print_to_stderr(f"changed: {to} of run {summary.id}, {when}")


def _require_not_first_agent(name: str, summary: RunSummary) -> None:
    """Refuse to change whom the run was given to, whose part began with it. Raises Mistake."""
    started = summary.first.event
    assert isinstance(started, RunStarted)
    if name != started.agent:
        return
    others = [one for one in collect_agent_names(started.agents) if one != name]
    instead = f"{join_words(others)} can be" if others else "change its file, and begin another run"
    raise Mistake(f"{name} has only one part in run {summary.id}, and cannot be changed while it works; {instead}")
