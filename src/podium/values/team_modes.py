"""Define the team modes: for each, the keys that it has under `team:`, in addition to `mode` and `members`.

A mode is a class here and an entry in MODES. The function `run_MODE` in `patterns/MODE.py` runs a team. The defaults
apply to the teams recorded in existing runs, so they never change; newer defaults are set when a run starts.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from msgspec import Struct, structs

from .agent import EVALUATOR
from .json import JsonObject
from .key import Key

Mode = Literal["broadcast", "sequential", "orchestrate", "reflect", "discuss", "collaborate"]

MODE_ALIASES = {"orchestrator": "orchestrate", "orchestrator-reflect": "reflect"}
"""Names that other systems use for some of the modes."""

_CHECKS = Key("commands that must pass on a clean checkout of the work", "a list of commands", kind="checks")
WorkerTimeout = Annotated[float, Key("the time limit for one member")]
CollectionTimeout = Annotated[float, Key("the time limit for all members together")]
MaxConcurrent = Annotated[
    int | None, Key("how many members work at the same time", default="all members; 4 in collaborate")
]
Routing = Annotated[
    str, Key("text that the lead or the planner gets when it plans, to say who does what", kind="prose")
]


class TeamOptions(Struct, frozen=True, kw_only=True):
    """The options that a team has in every mode."""

    expects: Annotated[
        Literal["", "changes"], Key("the team must change files; if it changes none, it fails", "`changes`")
    ] = ""
    worktrees: Annotated[
        Literal["shared", "team", "lead", "each"],
        Key("which [checkout](teams.md#where-a-team-works) the team works in"),
    ] = "shared"
    shared_context: Annotated[str, Key("text that every member gets", kind="prose")] = ""
    prompts: Annotated[dict[str, str], Key("your own [prompt templates](teams.md#prompts)")] = {}
    decide_by: Annotated[Literal["lead", "person"], Key("who decides if a vote is inconclusive")] = "lead"
    vote: Annotated[
        str, Key("the rule for [votes](decisions.md)", "`majority`, `unanimous`, `weighted` or `quorum:N`", kind="line")
    ] = "majority"
    vote_window: Annotated[float, Key("how long a vote is open")] = 120.0
    fallback_models: Annotated[
        tuple[str, ...],
        Key(
            "[fallback models](engines.md#fallback-models) for the lead, the members and the evaluator; an agent whose "
            "file lists its own uses those instead",
            "a list of models",
            kind="words",
        ),
    ] = ()

    @property
    def member_worktrees(self) -> str:
        """The checkouts that the members work in."""
        return self.worktrees

    @classmethod
    def choose_new_defaults(cls, options: JsonObject) -> dict[str, bool]:
        """Return the defaults for a new run with these options, if they differ from those of the fields."""
        return {}

    def find_problem(self) -> str:
        """Return what is wrong with the options together, as the end of a sentence that begins with the lead's name."""
        return ""


class BroadcastOptions(TeamOptions, frozen=True, kw_only=True):
    """The options of a team that sends the request to every member."""

    evaluator: Annotated[str | None, structs.replace(EVALUATOR, needs="choose")] = None
    checks: Annotated[tuple[str, ...], structs.replace(_CHECKS, needs="choose")] = ()
    worker_timeout: WorkerTimeout = 600.0
    collection_timeout: CollectionTimeout = 900.0
    max_concurrent: MaxConcurrent = None
    choose: Annotated[
        Literal["", "checks", "judge", "person"], Key("how the [best answer](teams.md#best-of-several) is chosen")
    ] = ""

    @property
    def member_worktrees(self) -> str:
        """The checkouts that the members work in. Members that do the same task must not see each other's work."""
        return "each" if self.choose and self.worktrees == "shared" else self.worktrees

    def find_problem(self) -> str:
        if self.choose == "checks" and not self.checks:
            return "leads a team with choose: checks, but the team has no checks; add checks: [COMMAND]"
        return ""


class SequentialOptions(TeamOptions, frozen=True, kw_only=True):
    """The options of a team whose members work one after another."""

    worker_timeout: WorkerTimeout = 600.0


class OrchestrateOptions(TeamOptions, frozen=True, kw_only=True):
    """The options of a team whose lead plans and writes the answer."""

    worker_timeout: WorkerTimeout = 600.0
    collection_timeout: CollectionTimeout = 900.0
    max_concurrent: MaxConcurrent = None
    routing: Routing = ""
    dispatch: Annotated[
        Literal["ask", "force"],
        Key(
            "`force`: a [plan](teams.md#plans) that assigns nothing sends the request to all members, instead of "
            "failing"
        ),
    ] = "ask"
    answer_directly: Annotated[
        bool, Key("whether the lead may answer instead of planning", default="true in orchestrate, false in reflect")
    ] = False

    @classmethod
    def choose_new_defaults(cls, options: JsonObject) -> dict[str, bool]:
        return {} if options.get("dispatch") == "force" else {"answer_directly": True}


class ReflectOptions(OrchestrateOptions, frozen=True, kw_only=True):
    """The options of a team that works until the goal is met."""

    evaluator: Annotated[str | None, EVALUATOR] = None
    checks: Annotated[tuple[str, ...], _CHECKS] = ()
    max_iterations: Annotated[int, Key("the maximum number of iterations")] = 5
    participation: Annotated[
        Literal["any", "all"], Key("`all`: the work is complete only after every member has been given a task")
    ] = "any"
    adjust: Annotated[Literal["ask", "auto"], Key("`auto`: proposed changes are applied to the next iteration")] = "ask"
    keep: Annotated[
        Literal["last", "best"], Key("the [iteration](teams.md#the-best-iteration) whose files are kept")
    ] = "last"
    fresh: Annotated[bool, Key("true: a member that gets another task begins a new conversation", default="false")] = (
        True
    )

    @classmethod
    def choose_new_defaults(cls, options: JsonObject) -> dict[str, bool]:
        return {"fresh": False}


class DiscussOptions(TeamOptions, frozen=True, kw_only=True):
    """The options of a team that talks in rounds."""

    max_concurrent: MaxConcurrent = None
    termination: Annotated[
        Literal["consensus", "max_rounds", "coordinator_decides"],
        Key(
            "when a discussion ends",
            "`consensus`, `max_rounds` or `coordinator_decides`; `maxRounds` and `coordinatorDecides` are accepted too,"
            " and the key may be spelled `terminationMode`",
            kind="termination",
        ),
    ] = "consensus"
    max_rounds: Annotated[int, Key("the maximum number of rounds")] = 10
    round_timeout: Annotated[float, Key("the time limit for a round")] = 300.0


class CollaborateOptions(TeamOptions, frozen=True, kw_only=True):
    """The options of a team that plans, works in steps and reviews them."""

    checks: Annotated[tuple[str, ...], _CHECKS] = ()
    worker_timeout: WorkerTimeout = 600.0
    max_concurrent: MaxConcurrent = None
    routing: Routing = ""
    approve_plan: Annotated[Literal["lead", "person"], Key("`person`: the plan waits for your approval")] = "lead"
    review_by: Annotated[Literal["member", "person"], Key("`person`: you review every step")] = "member"
    adr: Annotated[bool, Key("true: every decision is also written to a file in `docs/adr` on the result branch")] = (
        False
    )
    lockout: Annotated[bool, Key("true: if a step is not accepted, a member other than its author revises it")] = False
    max_attempts: Annotated[int, Key("how many times a step is attempted")] = 2
    constraints: Annotated[
        tuple[str, ...],
        Key("requirements for the planner, the owners and the reviewers; `podium run --constraint` adds more"),
    ] = ()
    needs: Annotated[tuple[str, ...], Key("roles and capabilities that the work requires", kind="words")] = ()

    def find_problem(self) -> str:
        if self.worktrees == "lead":
            return (
                "leads a collaborating team with worktrees: lead, but the lead of such a team changes no files and "
                "needs no checkout of its own; use team, each or shared"
            )
        return ""


MODES: Mapping[str, type[TeamOptions]] = {
    "broadcast": BroadcastOptions,
    "sequential": SequentialOptions,
    "orchestrate": OrchestrateOptions,
    "reflect": ReflectOptions,
    "discuss": DiscussOptions,
    "collaborate": CollaborateOptions,
}
"""The team modes, each with its options."""


def choose_default_mode(options: Collection[str]) -> Mode:
    """Return the default mode: `discuss` if `termination` or `max_rounds` is set, otherwise `orchestrate`."""
    return "discuss" if "termination" in options or "max_rounds" in options else "orchestrate"
