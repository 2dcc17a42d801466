"""A collaborating team whose members reply by what they are asked, however the calls are ordered."""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from typing import Any

from podium.engines.model.model_wire import ModelCall
from podium.engines.script import Move, last_request
from podium.testing import calls
from podium.values.agent import Member, Team

from .studio import Studio

KINDS = {
    r"^You plan a piece of work": "plan",
    r"^This plan cannot be used": "plan",
    r"^Your plan was reviewed": "plan",
    r"^Review this plan": "review_plan",
    r"^You own one step.*## Your step: (\S+)": "step",
    r"^.*Continue with step (\S+)\.": "step",
    r"^Review one step.*## Step (\S+), by": "review",
    r"^That reply gives no verdict": "review",
    r"^The team has finished": "report",
    r"^Vote on|## Options": "vote",
}
DEFAULTS: dict[str, Any] = {"review_plan": "ACCEPT", "step": "done", "review": "1: MET", "report": "the report"}


class Play:
    """The replies of a team, by what is asked: `plan`, `review_plan`, `step:s1`, `review:s1`, `vote`, `report`.

    A key with a member's name, such as `ada/step:s1`, goes before the one without. A list is used up reply by reply,
    and its last reply is repeated. A call that is made again under the same key gets the same reply.
    """

    def __init__(self, **replies: Any) -> None:
        self.replies: dict[str, Any] = {key.replace("__", ":"): value for key, value in replies.items()}
        self.kinds: list[str] = []
        self.called = threading.Condition()
        """Notified at every call."""
        self._given: dict[str, Move] = {}
        self._used: defaultdict[str, int] = defaultdict(int)

    def __call__(self, call: ModelCall) -> Move:
        if call.key not in self._given:
            self._given[call.key] = self._choose(call)
        return self._given[call.key]

    def _choose(self, call: ModelCall) -> Move:
        kind, subject = find_kind(last_request(call))
        with self.called:
            self.kinds.append(f"{call.agent} {kind}{f':{subject}' if subject else ''}")
            self.called.notify_all()
        for key in (f"{call.agent}/{kind}:{subject}", f"{call.agent}/{kind}", f"{kind}:{subject}", kind):
            if key in self.replies:
                said = self.replies[key]
                if isinstance(said, list):
                    place = min(self._used[key], len(said) - 1)
                    self._used[key] += 1
                    said = said[place]
                return said if isinstance(said, Move) else Move(says=said)
        return Move(says=DEFAULTS.get(kind, "ok"))


def find_kind(prompt: str) -> tuple[str, str]:
    for pattern, kind in KINDS.items():
        if (found := re.search(pattern, prompt, re.DOTALL)) is not None:
            return kind, found[1] if found.groups() else ""
    return "other", ""


use_tool = calls


def make_plan(*steps: dict[str, Any]) -> str:
    return json.dumps({"steps": steps})


def make_step(id: str, owner: str, *depends_on: str, **keys: Any) -> dict[str, Any]:
    step = {"id": id, "owner": owner, "description": f"do {id}", "depends_on": depends_on, "acceptance": ["it works"]}
    return step | keys


def add_team(
    studio: Studio, play: Play, *members: str | Member, agents: dict[str, Any] | None = None, **options: Any
) -> None:
    """Add a lead with a collaborating team of these members, who reply by the play."""
    studio.respond = play
    listed = [Member(agent=one) if isinstance(one, str) else one for one in members]
    for member in listed:
        studio.agent(member.agent, **(agents or {}).get(member.agent, {}))
    studio.agent("lead", team=Team(mode="collaborate", members=tuple(listed), options=options))
    studio.scripts.clear()
