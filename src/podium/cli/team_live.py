"""Changing a member of a team that is at work: it holds from that member's next part on."""

from __future__ import annotations

from ..event import MemberChanged
from ..settings import Settings
from ..store.mailbox import post
from .looking import looking
from .say import say
from .send import addressee
from .state import state


def change_live(name: str, *, model: str, prompt: str) -> None:
    """Tell the owner of a run, which is named as RUN/MEMBER. Raises Mistake where there is no such member."""
    prefix, _, member = name.partition("/")
    store = Settings.load().store
    with looking(store) as reader:
        summary = reader.summary(reader.find(prefix))
    to = addressee(summary, member)
    post(store, summary.id, MemberChanged(member=to, model=model, prompt=prompt))
    when = "from its next part on" if state(summary) == "running" else f"when podium resume {summary.id} goes on"
    say(f"changed: {to} of run {summary.id}, {when}")
