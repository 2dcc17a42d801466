"""An agent: who it is, what it thinks with, and how it works with others.

An agent names only its own next neighbours; the whole workflow emerges when it runs. Reading
agents from files and checking that they fit together belongs to the roster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct, structs

Source = Literal["built-in", "user", "repo", "code"]
Mode = Literal["broadcast", "sequential", "orchestrate", "reflect", "discuss", "collaborate"]
Isolation = Literal["shared", "worktree", "process", "together"]
"""Where an agent works; `together` is in a checkout that the members of its team have in common."""
Edge = Literal["handoff", "route", "advice", "member", "tool"]


class Router(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent chooses who answers instead of answering itself."""

    destinations: tuple[str, ...] = ()
    fallback: str | None = None
    max_turns: int = 1


class Advisors(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Agents that are heard before the agent itself begins."""

    agents: tuple[str, ...]
    require: Literal["all", "any", "none"] | int = "any"
    timeout: float = 120.0


class Member(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent's place in a team, with what the team changes about it."""

    agent: str
    name: str = ""
    role: str = ""
    capabilities: tuple[str, ...] = ()
    model: str = ""
    prompt: str = ""


class Team(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent leads others; `options` are the keys of its mode, as written."""

    mode: Mode
    members: tuple[Member, ...]
    evaluator: str | None = None
    options: dict[str, Any] = {}


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits; None is no limit."""

    usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    turns: int | None = None
    files_changed: int | None = None


class Permissions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rule texts by what they decide."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Reference(Struct, frozen=True):
    """One edge of the workflow: how this agent needs another."""

    kind: Edge
    name: str


class Agent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent, from a file or built in code.

    In code, `advisors` may be a list of names and `router` may be True, as in a file.
    """

    name: str
    description: str = ""
    prompt: str = ""
    display_name: str = ""
    model: str = ""
    engine: str = "model"
    tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    role: str = ""
    capabilities: tuple[str, ...] = ()
    permissions: Permissions | None = None
    agents: tuple[str, ...] = ()
    handoff: str | None = None
    router: Router | None = None
    advisors: Advisors | None = None
    team: Team | None = None
    input: Literal["text", "markdown"] | dict[str, Any] = "text"
    output: Literal["text", "markdown"] | dict[str, Any] = "text"
    max_turns: int | None = None
    timeout: float | None = None
    budget: Budget | None = None
    isolation: Isolation = "shared"
    other: dict[str, Any] = {}
    source: Source = "code"
    path: str = ""

    def __post_init__(self) -> None:
        """Bring the short forms of code and files into the one form that the rest reads."""
        put = structs.force_setattr
        for field in ("tools", "disallowed_tools", "capabilities", "agents"):
            if isinstance(value := getattr(self, field), list):
                put(self, field, tuple(value))
        advisors: Any = self.advisors
        if isinstance(advisors, list | tuple):
            put(self, "advisors", Advisors(agents=tuple(advisors)))
        router: Any = self.router
        if isinstance(router, bool):
            put(self, "router", Router(destinations=self.agents) if router else None)

    @property
    def destinations(self) -> tuple[str, ...]:
        """Where this agent may route to, its fallback last; nothing for an agent that is no router."""
        if self.router is None:
            return ()
        named = self.router.destinations or self.agents
        fallback = self.router.fallback
        return named if fallback is None or fallback in named else (*named, fallback)

    def references(self) -> Iterator[Reference]:
        """Every agent that this one needs, in the order in which a run would meet them."""
        for name in self.advisors.agents if self.advisors else ():
            yield Reference("advice", name)
        for name in self.destinations:
            yield Reference("route", name)
        if self.router is None:
            for name in self.agents:
                yield Reference("tool", name)
        for tool in self.tools or ():
            if tool.startswith("Agent(") and tool.endswith(")"):
                yield Reference("tool", tool[len("Agent(") : -1].strip())
        if self.team is not None:
            for member in self.team.members:
                yield Reference("member", member.agent)
            if self.team.evaluator is not None:
                yield Reference("member", self.team.evaluator)
        if self.handoff is not None:
            yield Reference("handoff", self.handoff)

    @property
    def is_terminal(self) -> bool:
        """Whether its answer is its own, and not that of an agent it hands to or routes to."""
        return self.handoff is None and self.router is None


def working_names(agents: Iterable[Agent]) -> list[str]:
    """The names under which agents work: their own, and those that teams give their members."""
    given = list(agents)
    members = [member.name for agent in given if agent.team is not None for member in agent.team.members]
    return list(dict.fromkeys([*(agent.name for agent in given), *(name for name in members if name)]))
