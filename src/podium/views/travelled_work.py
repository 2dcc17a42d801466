"""Use a run's timeline to determine which machine has its files, and which of its steps have not been pushed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..values.action import Action
from ..values.event import (
    ActionBegan,
    Entry,
    PushFailed,
    ToolAnswered,
    TurnEnded,
    WorkerPlaced,
    WorkMoved,
    WorkPushed,
)
from ..values.plain_text import escape_unprintable, truncate_text

LONGEST_STEP = 100
MOST_STEPS = 30
"""The maximum number of unpushed steps to list. Further steps are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TravelledWork:
    """The location of a run's files, and its last push.

    `host` and `path` are the machine and the folder of its last checkout, and `base` is the commit that its branch
    started from. `host` is empty if the run cannot move. `pushed` is the last push, and `push_failure` says why a later
    push failed. `unpushed` describes the steps that are not in the last push, in order.
    """

    host: str = ""
    path: str = ""
    base: str = ""
    pushed: WorkPushed | None = None
    push_failure: str = ""
    unpushed: tuple[str, ...] = ()


def derive_travelled_work(entries: Iterable[Entry]) -> TravelledWork:
    """Determine from a run's entries where its files are."""
    host, path, base, push_failure = "", "", "", ""
    pushed: WorkPushed | None = None
    open_steps: dict[str, int] = {}
    """The sequence number of the entry that began each unfinished step, keyed by scope."""
    steps: dict[int, str] = {}
    ended_at: dict[int, int] = {}
    for entry in entries:
        match entry.event:
            case WorkerPlaced() as event:
                host, path, base = event.host, event.path, event.base
            case WorkMoved() as event:
                host, path = event.host, event.path
            case WorkPushed() as event:
                pushed, push_failure = event, ""
            case PushFailed() as event:
                push_failure = event.reason
            case ActionBegan(is_repeatable=False, action=action):
                steps[entry.seq] = _describe_step(action)
                open_steps[entry.scope] = entry.seq
            case ToolAnswered() if entry.scope in open_steps:
                ended_at[open_steps.pop(entry.scope)] = entry.seq
            case TurnEnded():
                for scope in [one for one in open_steps if one.startswith(f"{entry.scope}/")]:
                    ended_at[open_steps.pop(scope)] = entry.seq
    through = 0 if pushed is None else pushed.through
    left = [text for step, text in steps.items() if step not in ended_at or ended_at[step] > through]
    return TravelledWork(
        host=host,
        path=path,
        base=base,
        pushed=pushed,
        push_failure=push_failure,
        unpushed=tuple(left) if len(left) <= MOST_STEPS else (*left[:MOST_STEPS], f"and {len(left) - MOST_STEPS} more"),
    )


def _describe_step(action: Action) -> str:
    """Describe a step that may have changed files: its tool, and the files or the command."""
    about = ", ".join(action.outputs) or str(action.arguments.get("command") or action.arguments.get("path") or "")
    return truncate_text(escape_unprintable(f"{action.tool} {about}".strip()), LONGEST_STEP)


def describe_move(moved: WorkMoved) -> str:
    """Return the message to the agent whose run has moved to another machine."""
    start = f"the files of commit {moved.commit[:12]}" if moved.commit else "the files as they were when the work began"
    text = f"This work continues on another machine, in a new checkout with {start}."
    if moved.unpushed:
        steps = "\n".join(f"- {step}" for step in moved.unpushed)
        text += (
            " The changes made by these steps were not pushed before the previous machine stopped, so the new checkout "
            f"does not contain them. Check the files, and redo what is missing:\n{steps}"
        )
    else:
        text += " The new checkout contains the changes made by all finished steps."
    if moved.ignored:
        text += (
            "\nThe new checkout does not contain these paths, because git ignores them or they are nested "
            f"repositories: {', '.join(moved.ignored)}"
        )
    return text
