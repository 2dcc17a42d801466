"""Parse a collaborating team's plan from a planner's reply, and reject an invalid plan.

A plan is a model's output, so it can only narrow what the owners of its steps are allowed to do. Its allow rules take
effect only after a person has approved the plan.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TypeVar

import msgspec

from ..core.operation import Operation
from ..core.plan_state import WorkProgress, store_artifact
from ..core.scope import Scope
from ..policy import parse_rules
from ..policy.rule import normalise_tool_name
from ..values.agent import Agent
from ..values.errors import Mistake, PodiumError
from ..values.event import ArtifactKind, Event, SnapshotTaken
from ..values.json import Json
from ..values.plain_text import truncate_text
from ..values.plan import Criterion, PlanStep, StepPolicy, WorkPlan, find_cycle
from ..values.tool_table import DEFAULT_STEP_TOOLS
from .json_output import find_json

E = TypeVar("E", bound=Event)


class WorkBoard:
    """Records the events of one team's work, and derives its progress from them."""

    def __init__(self, op: Operation) -> None:
        self._op = op
        self.progress = WorkProgress()

    def record(self, place: Scope, event: E) -> E:
        """Record an event in a scope, apply it and return it.

        If the event was already recorded before the run was resumed, apply and return the recorded event instead.
        """
        return self.apply(place.record(event))

    def apply(self, event: E) -> E:
        """Apply a recorded event. Raise InvalidTransition if the current state does not allow it."""
        self.progress = self.progress.apply(event)
        return event

    async def commit_checkout(self) -> str:
        """Commit the current state of the run's own checkout. Return the commit, or an empty string on failure."""
        with suppress(PodiumError):
            if self._op.repository is not None:
                return await self._op.repository.commit_checkout()
        return ""

    async def read_diff(self, base: str, commit: str) -> str:
        """Return the diff between two commits, or an empty string if they are equal or cannot be compared."""
        with suppress(PodiumError):
            if self._op.repository is not None and base and commit and base != commit:
                return await self._op.repository.read_diff(base, commit)
        return ""

    @asynccontextmanager
    async def open_commit(self, commit: str) -> AsyncIterator[str]:
        """Check out a commit for the duration of the block, and yield the folder of the checkout.

        Raise AgentFailed if the commit cannot be checked out.
        """
        assert self._op.repository is not None
        async with AsyncExitStack() as stack:
            try:
                folder = await stack.enter_async_context(self._op.repository.open_commit(commit))
            except PodiumError as error:
                raise self._op.make_error("failed", f"the work cannot be checked out for review: {error}") from error
            yield folder

    def store_artifact(
        self, place: Scope, kind: ArtifactKind, name: str, text: str, *, author: str = "", step: str = ""
    ) -> None:
        """Store `text` as an artifact and record the artifact. Blank text is not stored."""
        store_artifact(place, kind, name, text, author=author, step=step)

    async def take_snapshot(self, place: Scope, name: str, *, step: str = "") -> None:
        """Take a snapshot of the run's checkout and of the steps' branches. A resumed run does not take it again."""
        if self._op.repository is None:
            return
        branches = {one.branch: one.commit for one in self.progress.steps.values() if one.branch and one.commit}

        async def keep_commits() -> SnapshotTaken:
            own = await self.commit_checkout()
            commits = ({"": own} if own else {}) | branches
            await self._keep_commits(name, commits)
            return SnapshotTaken(name=name, commits=commits, step=step)

        await place.child("snapshot").step(keep_commits, SnapshotTaken)

    async def keep_commit(self, name: str, commit: str) -> None:
        """Protect a commit from git's garbage collection, even before a snapshot includes it."""
        await self._keep_commits(name, {"": commit} if commit else {})

    async def _keep_commits(self, name: str, commits: Mapping[str, str]) -> None:
        with suppress(PodiumError):
            if self._op.repository is not None and commits:
                await self._op.repository.keep_snapshot(name, commits)


MOST_STEPS = 20
LONGEST_TEXT = 4_000
MOST_CRITERIA = 20
MOST_PROBLEMS = 20
LONGEST_PROBLEM = 500
_STEP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_RESERVED_ID = re.compile(r"plan(-\d+)?", re.IGNORECASE)
"""Matches ids that are reserved for plan snapshots."""
_SPELLINGS = {
    "task": "description",
    "title": "description",
    "dependsOn": "depends_on",
    "dependencies": "depends_on",
    "depends": "depends_on",
    "acceptance_criteria": "acceptance",
    "criteria": "acceptance",
    "tool_policy": "policy",
    "toolPolicy": "policy",
}
"""Other names that models use for a step's keys."""


class InvalidPlan(Exception):
    """A plan that cannot be used. `problems` lists the reasons."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


# Reading a plan
def parse_work_plan(reply: str, goal: str) -> WorkPlan:
    """Return the plan in a reply: a JSON object with `steps`, or an array. Raise InvalidPlan if the plan is invalid."""
    data = find_json(reply)
    steps = data.get("steps") if isinstance(data, dict) else data
    if not isinstance(steps, list):
        raise InvalidPlan(["the reply contains no plan: expected a JSON object with a list of steps"])
    if len(steps) > MOST_STEPS:
        raise InvalidPlan([f"the plan has {len(steps)} steps; the maximum is {MOST_STEPS}"])
    return WorkPlan(goal=goal, steps=tuple(parse_step(step, number) for number, step in enumerate(steps, 1)))


def parse_step(written: object, number: int) -> PlanStep:
    """Return a step from its JSON object. Raise InvalidPlan if it is invalid."""
    if not isinstance(written, dict):
        raise InvalidPlan([f"step {number} is not a JSON object"])
    fields = {_SPELLINGS.get(key, key): value for key, value in written.items()}
    fields["id"] = str(fields.get("id", f"s{number}"))
    fields["acceptance"] = list(_iter_criteria(fields.get("acceptance", ())))
    known = {key: value for key, value in fields.items() if key in PlanStep.__struct_fields__ and value is not None}
    try:
        return msgspec.convert(known, PlanStep)
    except msgspec.ValidationError as error:
        raise InvalidPlan([f"step {fields['id'][:32]!r}: {error}"]) from None


def _iter_criteria(written: Json) -> Iterator[Json]:
    """Yield each criterion as an object. A model may write a string instead of an object or the whole list."""
    listed = written if isinstance(written, list) else [written] if isinstance(written, str) else []
    for one in listed:
        yield {"text": one} if isinstance(one, str) else one


# Checking a plan
def check_plan(
    plan: WorkPlan,
    members: Mapping[str, Agent],
    *,
    done: Collection[str] = (),
    may_allow: bool = False,
    can_check: bool = True,
) -> WorkPlan:
    """Return the plan with the registered names of its owners. Raise InvalidPlan with the problems, if there are any.

    `done` contains earlier steps that this plan can depend on. Set `may_allow` if a person must approve the plan:
    its steps can then have allow rules. Set `can_check` if there is a repository: criteria can then have commands.
    """
    steps = [
        msgspec.structs.replace(step, owner=find_member_name(step.owner, members) or step.owner) for step in plan.steps
    ]
    problems = [] if steps else ["the plan has no steps"]
    if len(steps) > MOST_STEPS:
        problems.append(f"the plan has {len(steps)} steps; the maximum is {MOST_STEPS}")
    ids = [step.id for step in steps]
    problems += [f"two steps have the id {id!r}" for id in dict.fromkeys(ids) if ids.count(id) > 1]
    problems += [f"step {id!r} is already done; a new step needs a different id" for id in ids if id in done]
    for step in steps:
        problems += _find_step_problems(step, members, known={*ids, *done}, may_allow=may_allow)
        if not can_check and any(one.command for one in step.acceptance):
            problems.append(f"step {step.id!r} has a criterion with a command, but there is no repository to run it in")
    if not problems and (cycle := find_cycle({step.id: step.depends_on for step in steps})):
        problems.append(f"the steps depend on each other in a cycle: {' → '.join(cycle)}")
    if problems:
        raise InvalidPlan([truncate_text(one, LONGEST_PROBLEM) for one in problems[:MOST_PROBLEMS]])
    return msgspec.structs.replace(plan, steps=tuple(steps))


def find_member_name(name: str, members: Collection[str]) -> str | None:
    """Return the registered name of the member called `name`, or None if there is no such member.

    Markup around the name is ignored. Case is ignored if there is no exact match.
    """
    bare = name.strip("@`*\"' ")
    if bare in members:
        return bare
    return next((member for member in members if member.casefold() == bare.casefold()), None)


def _find_step_problems(
    step: PlanStep, members: Mapping[str, Agent], *, known: Collection[str], may_allow: bool
) -> Iterator[str]:
    name = f"step {step.id!r}"
    if not _STEP_ID.fullmatch(step.id) or _RESERVED_ID.fullmatch(step.id):
        yield f"{step.id[:40]!r} is not a valid step id; use letters, digits, dots and dashes, but not plan or plan-N"
        return
    if step.owner not in members:
        yield f"{name} is owned by {truncate_text(step.owner)!r}, which is not a member; members: {', '.join(members)}"
    if not step.description.strip():
        yield f"{name} has no description"
    if len(step.description) > LONGEST_TEXT:
        yield f"{name} has a description of {len(step.description):,} characters; the maximum is {LONGEST_TEXT:,}"
    yield from _find_criteria_problems(name, step.acceptance)
    for other in step.depends_on:
        if other == step.id:
            yield f"{name} depends on itself"
        elif other not in known:
            yield f"{name} depends on {truncate_text(other)!r}, which is not a step of the plan"
    if step.owner in members:
        yield from _find_policy_problems(name, step.policy, members[step.owner], may_allow=may_allow)


def _find_criteria_problems(name: str, criteria: tuple[Criterion, ...]) -> Iterator[str]:
    if not any(one.text.strip() for one in criteria):
        yield f"{name} has no acceptance criteria"
    elif not all(one.text.strip() for one in criteria):
        yield f"{name} has an empty acceptance criterion"
    if len(criteria) > MOST_CRITERIA:
        yield f"{name} has {len(criteria)} acceptance criteria; the maximum is {MOST_CRITERIA}"
    if any(len(one.text) + len(one.command) > LONGEST_TEXT for one in criteria):
        yield f"{name} has an acceptance criterion of more than {LONGEST_TEXT:,} characters"


def _find_policy_problems(name: str, policy: StepPolicy, owner: Agent, *, may_allow: bool) -> Iterator[str]:
    offered = list_tool_names(owner)
    for tool in policy.tools or ():
        if normalise_tool_name(tool) not in offered:
            yield f"{name} lists the tool {truncate_text(tool)!r}, which {owner.name} does not have"
    for limit in ("seconds", "tokens", "files"):
        value = getattr(policy, limit)
        if value is not None and not 0 < value < float("inf"):
            yield f"{name} has a limit of {value} {limit}; it must be above zero"
    if policy.allow and not may_allow:
        yield f"{name} asks to allow {', '.join(policy.allow)}; only a plan that a person approves can allow anything"
    elif policy.allow:
        try:
            parse_rules({"allow": list(policy.allow)}, name)
        except Mistake as error:
            yield str(error)


# Tools
def list_tool_names(agent: Agent) -> set[str]:
    """Return the canonical names of an agent's tools, without disallowed ones. The default is DEFAULT_STEP_TOOLS."""
    listed = DEFAULT_STEP_TOOLS if agent.tools is None else agent.tools
    hidden = {_base_name(entry) for entry in agent.disallowed_tools}
    return {name for entry in listed if (name := _base_name(entry)) not in hidden}


def _base_name(entry: str) -> str:
    return normalise_tool_name(entry.partition("(")[0].strip())


def make_result_branch(run: str) -> str:
    """Return the name of the branch for the merged result of a run's work."""
    return f"podium/{run}/result"
