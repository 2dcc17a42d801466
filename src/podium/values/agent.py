"""Define agents: their prompts, models, tools and limits, and the agents that they work with.

An agent lists only the agents that it calls or hands off to directly; the whole workflow follows from
these references at run time. The roster reads agents from files and checks their references.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Struct, structs

from .errors import BadAgent
from .json import JsonSchema
from .key import Key
from .plain_text import split_at_commas

Source = Literal["built-in", "user", "repo", "code"]
Isolation = Literal["shared", "worktree", "process", "together"]
"""Where an agent works; `together` means a checkout that its team's members share."""
Edge = Literal["handoff", "route", "advice", "member", "tool"]


class Router(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a router: an agent that chooses another agent to answer, instead of answering itself.

    If `is_choice_only` is true, the choice is the answer, and the chosen agent is not called.
    """

    destinations: Annotated[tuple[str, ...], Key(kind="agent names")] = ()
    fallback: Annotated[str | None, Key(kind="agent name")] = None
    max_turns: Annotated[int, Key()] = 1
    is_choice_only: bool = False


DEFAULT_REQUIRE: Literal["none"] = "none"
"""How many advisors must succeed if the agent's definition does not specify a number."""


class Advisors(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Agents whose advice is collected before the agent that they advise starts."""

    agents: Annotated[tuple[str, ...], Key(kind="agent names")]
    require: Annotated[Literal["all", "any", "none"] | int, Key(kind="required count")] = "any"
    """How many advisors must succeed.

    Stored agents omit the default value, so it must never change. Advisors that are given in a file, or as a list or
    mapping in code, get DEFAULT_REQUIRE instead.
    """
    timeout: Annotated[float, Key()] = 120.0


class Member(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member of a team: its agent, and the fields that the team overrides."""

    agent: Annotated[str, Key(kind="agent name")]
    name: Annotated[str, Key(kind="line")] = ""
    role: Annotated[str, Key(kind="line")] = ""
    capabilities: Annotated[tuple[str, ...], Key(kind="words")] = ()
    model: Annotated[str, Key(kind="line")] = ""
    prompt: Annotated[str, Key(kind="prose")] = ""
    weight: Annotated[float, Key()] = 1.0
    """How much the member's vote counts in a weighted decision."""


EVALUATOR = Key("the agent that judges the work", "an agent other than the lead", kind="agent name")


class Team(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The team that an agent leads; `options` contains the keys for its mode, as written; see `TeamOptions`.

    `mode` is one of Podium's own modes, or the name of a pattern. In code, it can be the pattern itself.
    """

    mode: Annotated[
        str,
        Key(
            "how the team works",
            default="`discuss` if `termination` or `max_rounds` is given, otherwise `orchestrate`",
            kind="mode",
        ),
    ]
    members: Annotated[
        tuple[Member, ...],
        Key(
            "the agents in the team",
            "names, or mappings with `agent`, `name`, `role`, `capabilities`, `model`, `prompt` and `weight`",
            kind="members",
        ),
    ]
    evaluator: Annotated[str | None, EVALUATOR] = None
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        """Convert members given only by name, and mode names from other systems."""
        put = structs.force_setattr
        members: Iterable[Any] = self.members
        put(self, "members", tuple(Member(agent=one) if isinstance(one, str) else one for one in members))
        # Imported here to keep start-up fast: few runs have teams.
        from .team_modes import MODE_ALIASES

        if self.mode in MODE_ALIASES:
            put(self, "mode", MODE_ALIASES[self.mode])


MAX_LIMIT = 10**12
"""The highest limit that a budget accepts. For no limit, omit the key."""


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits on usage; None means no limit."""

    usd: Annotated[float | None, Key("the costs in US dollars", "an amount")] = None
    tokens: Annotated[int | None, Key("the tokens of all model calls")] = None
    seconds: Annotated[float | None, Key("the time")] = None
    turns: Annotated[int | None, Key("the model calls")] = None
    files_changed: Annotated[int | None, Key("the changed files", least=0)] = None


def override_limits(budget: Budget | None, limits: Budget) -> Budget:
    """Return a copy of `budget` where the limits that are set in `limits` replace the old ones."""
    if budget is None:
        return limits
    return structs.replace(
        budget, **{name: limit for name, limit in structs.asdict(limits).items() if limit is not None}
    )


def format_limits(budget: Budget | None) -> str:
    """Format the limits of a budget in command-line syntax. Without limits, return `none`."""
    limits = {} if budget is None else structs.asdict(budget)
    return ",".join(f"{name}={limit:.15g}" for name, limit in limits.items() if limit is not None) or "none"


class Permissions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Permission rules as text, grouped by decision."""

    allow: Annotated[tuple[str, ...], Key(kind="allow rules", scope="user")] = ()
    ask: Annotated[tuple[str, ...], Key(kind="ask rules")] = ()
    deny: Annotated[tuple[str, ...], Key(kind="deny rules")] = ()


class Reference(Struct, frozen=True):
    """An edge of the workflow: an agent that another agent uses, and how it is used."""

    kind: Edge
    name: str


AgentMode = Literal["", "plan", "dont-ask"]
"""The permission mode of an agent; empty means the run's mode. Only stricter modes can be set."""


Expectation = Literal["", "changes"]
"""What an agent must do to succeed, in addition to answering: `changes` means that it must change files."""


MemoryPlace = Literal["", "project", "user"]
"""Where an agent keeps notes for later runs: in the repository or in the user's home folder. Empty means nowhere."""


class Agent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent, read from a file or built in code.

    In code, fields that are mappings in a file, such as `team`, can be given as mappings. `advisors` can be a list
    of names, `router` can be True, and `tools` can contain functions. The models in `fallback_models` are tried in
    order if `model` cannot answer. `max_tokens` limits the length of each reply. If `expects` is set, the
    agent's work counts as failed if no files were changed. The skills in `skills` are loaded from the start; the agent
    can load other skills itself. `pattern` is the name of a pattern that does the agent's work; in code, it can be the
    pattern itself. If `memory` is set, the agent keeps notes for its later runs.
    """

    name: Annotated[
        str,
        Key(
            "lower-case letters, digits and hyphens; at most 64 characters, not starting with a hyphen",
            default="the file's name without `.md` or `.agent.md`",
            kind="line",
        ),
    ]
    description: Annotated[
        str,
        Key(
            "one line, shown to people, team leads and routers", default="the first sentence of the prompt", kind="line"
        ),
    ] = ""
    prompt: str = ""
    display_name: str = ""
    model: Annotated[
        str,
        Key(
            "`provider:model`, a [model role](settings.md#models-and-roles) from the settings, an alias such as "
            "`sonnet`, or `inherit`",
            default="the model from the settings",
            kind="line",
        ),
    ] = ""
    engine: Annotated[
        str,
        Key(
            "the [engine](engines.md) that produces the agent's replies: `model`, `scripted`, `rehearsal`, a "
            "[coding agent](engines.md#coding-agents) such as `goose`, or the name of an engine that your program or a "
            "[plug-in](plugins.md) provides",
            kind="line",
        ),
    ] = "model"
    tools: Annotated[
        tuple[str, ...] | None,
        Key(
            "[tools](tools.md), as a list or a comma-separated string; `Agent(name)` in `tools` has the same effect as "
            "`name` in `agents`",
            default="the read-only tools and [a few others](tools.md)",
            kind="tools",
        ),
    ] = None
    disallowed_tools: Annotated[tuple[str, ...], Key("tools that are taken away from `tools`", kind="tools")] = ()
    role: Annotated[
        str,
        Key(
            "a short description of what the agent does in a team, shown to the lead during planning; not related to "
            "model roles",
            kind="line",
        ),
    ] = ""
    capabilities: Annotated[
        tuple[str, ...],
        Key("what the agent can do, shown to the lead during planning as the member's expertise", kind="words"),
    ] = ()
    permissions: Annotated[
        Permissions | None,
        Key(
            "lists of [rules](permissions.md#rules) under `ask` and `deny`; each rule is a string or `{rule, match, "
            "not_match}`. `allow` is ignored with a warning, because an agent's file can only make the rules stricter",
            kind="agent permissions",
        ),
    ] = None
    agents: Annotated[
        tuple[str, ...], Key("agents offered as tools; with `router: true`, the destinations", kind="agent names")
    ] = ()
    handoff: Annotated[
        str | None,
        Key("the agent that gives the final answer instead of this one; a single name, not a list", kind="handoff"),
    ] = None
    router: Annotated[
        Router | None,
        Key(
            "`true`, or a mapping with `destinations`, `fallback` (an agent) and `max_turns`, the maximum number of "
            "model calls for one choice (default 1); if it is greater than 1, the router can use the tools that its "
            "file lists before it chooses",
            kind="router",
        ),
    ] = None
    advisors: Annotated[
        Advisors | None,
        Key(
            "a list of agents, or a mapping with `agents`, `require` (`none`, `any`, `all` or a number; default "
            "`none`) and `timeout` (in seconds; default 120); `consult` is accepted as an alias for `advisors`, with a "
            "warning",
            kind="advisors",
        ),
    ] = None
    team: Annotated[Team | None, Key("makes the agent the lead of a [team](teams.md); see below", kind="team")] = None
    input: Annotated[
        Literal["text", "markdown"] | JsonSchema,
        Key(
            "`text`, `markdown`, a JSON schema, or the path of a `.json` file that contains a schema, relative to the "
            "agent's folder",
            kind="data format",
        ),
    ] = "text"
    output: Annotated[Literal["text", "markdown"] | JsonSchema, Key("as `input`", kind="data format")] = "text"
    max_turns: Annotated[int | None, Key("maximum number of model calls per request to the agent", default="50")] = None
    timeout: Annotated[float | None, Key("maximum time in seconds")] = None
    budget: Annotated[
        Budget | None,
        Key(
            "limits: a mapping with `usd`, `tokens`, `seconds`, `turns` and `files_changed`",
            default="the budget of the model role that `model` refers to, if any",
        ),
    ] = None
    isolation: Annotated[
        Isolation,
        Key(
            "`shared`: the agent works in the run's own checkout. `worktree` or `process`: whenever another agent "
            "starts it, it runs as a [worker](workers.md#agents-that-delegate) with its own checkout and process",
            choices=("shared", "worktree", "process"),
        ),
    ] = "shared"
    fallback_models: Annotated[
        tuple[str, ...],
        Key(
            "models that are tried in order if `model` is not available or fails, see "
            "[Fallback models](engines.md#fallback-models)",
            default="the `fallbackModels` of its team, if any",
            kind="words",
        ),
    ] = ()
    permission_mode: Annotated[
        AgentMode,
        Key(
            "`plan`: neither this agent nor the agents that it starts can change anything. `dontAsk`: permission "
            "requests are denied. `acceptEdits` and `bypassPermissions` are not accepted, because an agent's file can "
            "only make the rules stricter. They cause an error in Podium's own agent files, and a warning in the agent "
            "files of other programs",
            default="the mode of the run",
            kind="permission mode",
        ),
    ] = ""
    max_tokens: Annotated[int | None, Key("maximum length of each reply, in tokens")] = None
    expects: Annotated[
        Expectation,
        Key(
            "`changes`: the agent must change files. If it changes none, it fails. Only what a commit of its work would"
            " contain counts, so caches such as `__pycache__` do not"
        ),
    ] = ""
    skills: Annotated[
        tuple[str, ...],
        Key(
            "[skills](skills.md) that are included in the agent's prompt from the start. An agent with this key can "
            "also load other skills, even if its `tools` key does not list `Skill`",
            kind="words",
        ),
    ] = ()
    pattern: Annotated[
        str,
        Key(
            "the name of a [pattern](patterns.md#writing-a-pattern) from a [plug-in](plugins.md) or your own program: a"
            " function that handles the agent's requests in place of Podium's default",
            kind="line",
        ),
    ] = ""
    memory: Annotated[
        MemoryPlace,
        Key(
            "`project` or `user`: where the agent keeps notes for its later runs, see [Memory](memory.md)",
            kind="memory",
        ),
    ] = ""
    other: dict[str, Any] = {}
    source: Source = "code"
    path: str = ""

    if TYPE_CHECKING:
        # The argument types that code can use; `__post_init__` converts them to the field types.
        def __init__(
            self,
            *,
            name: str,
            description: str = "",
            prompt: str = "",
            display_name: str = "",
            model: str = "",
            engine: str = "model",
            tools: str | Sequence[str | Callable[..., object]] | None = None,
            disallowed_tools: str | Sequence[str] = (),
            role: str = "",
            capabilities: str | Sequence[str] = (),
            permissions: Permissions | Mapping[str, Any] | None = None,
            permission_mode: AgentMode = "",
            agents: str | Sequence[str] = (),
            handoff: str | None = None,
            router: Router | Mapping[str, Any] | bool | None = None,
            advisors: Advisors | Mapping[str, Any] | Sequence[str] | None = None,
            team: Team | Mapping[str, Any] | None = None,
            input: Literal["text", "markdown"] | JsonSchema = "text",
            output: Literal["text", "markdown"] | JsonSchema = "text",
            max_turns: int | None = None,
            timeout: float | None = None,
            budget: Budget | Mapping[str, Any] | None = None,
            isolation: Isolation = "shared",
            fallback_models: str | Sequence[str] = (),
            max_tokens: int | None = None,
            expects: Expectation = "",
            skills: str | Sequence[str] = (),
            pattern: str | Callable[..., Any] = "",
            memory: MemoryPlace = "",
            other: dict[str, Any] = ...,
            source: Source = "code",
            path: str = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        """Convert fields that have a short form, such as a comma-separated string, to their types."""
        put = structs.force_setattr
        for field in ("tools", "disallowed_tools", "capabilities", "agents", "fallback_models", "skills"):
            value = getattr(self, field)
            if isinstance(value, list):
                put(self, field, tuple(value))
            elif isinstance(value, str):
                put(self, field, tuple(word for one in split_at_commas(value) if (word := one.strip())))
        for field, kind in _MAPPING_FIELDS.items():
            if isinstance(value := getattr(self, field), Mapping):
                put(self, field, _parse_mapping(value, kind, of=f"agent {self.name}: {field}"))
        advisors: Any = self.advisors
        if isinstance(advisors, list | tuple):
            put(self, "advisors", Advisors(agents=tuple(advisors), require=DEFAULT_REQUIRE))
        router: Any = self.router
        if isinstance(router, bool):
            put(self, "router", Router(destinations=self.agents) if router else None)

    @property
    def destinations(self) -> tuple[str, ...]:
        """The agents that this agent can route to, including its fallback; empty if it is not a router."""
        if self.router is None:
            return ()
        named = self.router.destinations or self.agents
        fallback = self.router.fallback
        return named if fallback is None or fallback in named else (*named, fallback)

    def references(self) -> Iterator[Reference]:
        """Yield every agent that this one uses, in the order in which a run uses them."""
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
        """Whether the agent's own answer is final: the agent neither hands off nor routes."""
        return self.handoff is None and self.router is None

    @property
    def expects_changes(self) -> bool:
        """Whether the agent, or the team that it leads, must change files."""
        return self.expects == "changes" or (self.team is not None and self.team.options.get("expects") == "changes")


_MAPPING_FIELDS: Mapping[str, type[Struct]] = {
    "router": Router,
    "advisors": Advisors,
    "team": Team,
    "budget": Budget,
    "permissions": Permissions,
}

S = TypeVar("S", bound=Struct)


def _parse_mapping(written: Mapping[str, Any], kind: type[S], *, of: str) -> S:
    """Convert a mapping, as in a file, to `kind`; a team's unknown keys become options for its mode."""
    keys = kind.__struct_fields__
    given = dict(written)
    if kind is Team and "options" not in given:
        from .team_modes import MODE_ALIASES, choose_default_mode  # imported here to keep start-up fast

        given = {key: value for key, value in written.items() if key in keys}
        options = given["options"] = {key: value for key, value in written.items() if key not in keys}
        given.setdefault("mode", choose_default_mode(options))
        given["mode"] = MODE_ALIASES.get(given["mode"], given["mode"])
        members = given.get("members", ())
        given["members"] = [{"agent": one} if isinstance(one, str) else one for one in members]
    if kind is Advisors:
        given.setdefault("require", DEFAULT_REQUIRE)
    if unknown := [key for key in given if key not in keys]:
        raise BadAgent(f"{of}: unknown key {unknown[0]!r}; available: {', '.join(keys)}")
    function = given.get("mode")
    if kind is Team and callable(function):
        given["mode"] = getattr(function, "__name__", "")
    try:
        parsed = msgspec.convert(given, kind)
        if callable(function):
            structs.force_setattr(parsed, "mode", function)
        return parsed
    except msgspec.ValidationError as error:
        raise BadAgent(f"{of}: {error}") from None


def as_budget(value: Budget | Mapping[str, Any]) -> Budget:
    """Return `value` as a budget. Raise BadAgent for an invalid key or value."""
    return value if isinstance(value, Budget) else _parse_mapping(value, Budget, of="budget")


def collect_agent_names(agents: Iterable[Agent]) -> list[str]:
    """Return all names that these agents can have: their own, and those that teams assign to members."""
    given = list(agents)
    members = [member.name for agent in given if agent.team is not None for member in agent.team.members]
    return list(dict.fromkeys([*(agent.name for agent in given), *(name for name in members if name)]))
