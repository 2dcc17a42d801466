"""The view of a run is the same in Python and in the browser, for every pattern and at every entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from podium.store.fault_injection import refuse_after
from podium.values.agent import Advisors
from podium.values.errors import Failure
from podium.values.event import (
    KINDS,
    Decision,
    Entry,
    Evaluated,
    Event,
    OperationEnded,
    OperationStarted,
    PermissionAsked,
    PlannedAssignment,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionRevived,
    TeamPlanned,
    TextStreamed,
    TextSuperseded,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    decode_entry,
    encode_entry,
    event_kind,
)
from podium.values.request import Part, Request
from podium.views.run_view import RunView
from podium.views.run_view_fields import run_view_fields
from podium.web.dashboard.event_kinds import FILE, generate_module

from ..collaboration import Play, add_team, make_plan, make_step, use_tool
from ..patterns.test_discuss import broadcast_move
from ..patterns.test_router import routes_to
from ..patterns.test_teams import AGAIN, DONE, add_lead, plan, ready_moves
from ..studio import Studio
from .conftest import Site, Visitor

SAMPLES = Path(__file__).parents[1] / "samples"
SMALL = 120
"""Timelines with at most so many entries are compared at every entry."""

FOLD = """
async (timelines) => {
  const { EMPTY_VIEW, apply, applyAll, runViewFields } = await import("/run_view.mjs");
  return timelines.map(({ entries, small }) => {
    if (!small) return [runViewFields(applyAll(EMPTY_VIEW, entries))];
    const views = [];
    entries.reduce((view, entry) => (views.push(apply(view, entry)), views.at(-1)), EMPTY_VIEW);
    // The fields are read only now: a view that a later entry had changed would differ from the one in Python.
    const first = applyAll(EMPTY_VIEW, entries.slice(0, entries.length >> 1));
    const whole = applyAll(first, entries.slice(entries.length >> 1));
    return [...views, whole].map(runViewFields);
  });
}
"""

FOLDED_KINDS = """async () => (await import("/run_view.mjs")).FOLDED_KINDS"""
"""The kinds of entries that change a view."""


def set_up_handoff(studio: Studio) -> None:
    studio.agent("lead", says=["a draft"], handoff="editor")
    studio.agent("editor", says=["the edited words"])


def set_up_router(studio: Studio) -> None:
    studio.agent("billing", says=["paid"])
    studio.agent("support", says=["fixed"])
    studio.agent("lead", says=[routes_to("nobody"), routes_to("billing")], router=True, agents=["billing", "support"])


def set_up_advisors(studio: Studio) -> None:
    studio.agent("legal", says=["may be sold"])
    studio.agent("risk", says=[{"fails": {"status": 400, "message": "no paper"}}])
    studio.agent("lead", says=["sell it"], advisors=Advisors(agents=("legal", "risk")))


def set_up_broadcast(studio: Studio) -> None:
    studio.agent("broken", says=[{"fails": {"status": 400, "message": "broken"}}])
    add_lead(studio, "broadcast", "a", "broken", "b")


def set_up_sequential(studio: Studio) -> None:
    add_lead(studio, "sequential", "a", "b")


def set_up_orchestrate(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", "b", says=[plan(("a", "x"), ("b", "y")), "the whole"])


def set_up_reflect(studio: Studio) -> None:
    add_lead(studio, "reflect", "a", says=[plan(("a", "x")), f"one\n{AGAIN}", plan(("a", "y")), f"two\n{DONE}"])


def set_up_reflect_at_its_limit(studio: Studio) -> None:
    says = [plan(("a", "x")), f"one\n{AGAIN}", plan(("a", "y")), f"two\n{AGAIN}"]
    add_lead(studio, "reflect", "a", says=says, max_iterations=2)


def set_up_discuss(studio: Studio) -> None:
    for name in ("a", "b"):
        studio.agent(name, says=[broadcast_move(f"{name} speaks"), "ok", *ready_moves()])
    add_lead(studio, "discuss", "a", "b", says=["go on", "tea it is"])


def set_up_collaborate(studio: Studio) -> None:
    blocked = use_tool("raise_blocker", topic="Which colour?", options=["red", "blue"], evidence="both work")
    play = Play(
        plan=make_plan(make_step("s1", "ada"), make_step("s2", "bob", "s1")),
        step__s1=[blocked, "done"],
        vote="VOTE: red\nREASON: it is warm",
        review__s2=["1: NOT MET - wrong", "1: MET"],
    )
    add_team(studio, play, "ada", "bob")


def set_up_failure(studio: Studio) -> None:
    studio.agent("lead", says=[{"fails": {"status": 400, "message": "no client"}}])


def set_up_refused_tool(studio: Studio) -> None:
    write = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}
    studio.agent("lead", says=[write, "done"], tools=("Write",))


SETUPS: list[Callable[[Studio], None]] = [
    set_up_handoff,
    set_up_router,
    set_up_advisors,
    set_up_broadcast,
    set_up_sequential,
    set_up_orchestrate,
    set_up_reflect,
    set_up_reflect_at_its_limit,
    set_up_discuss,
    set_up_collaborate,
    set_up_failure,
    set_up_refused_tool,
]


def record_patterns(site: Site, folder: Path) -> list[list[Entry]]:
    """Run every pattern once and return the timelines."""
    timelines = []
    for set_up in SETUPS:
        studio = Studio(folder / set_up.__name__)
        set_up(studio)
        timelines.append(studio.entries(site.portal.call(studio.run, "lead", "go")))
    return timelines


def record_interrupted_run(site: Site, folder: Path) -> list[Entry]:
    """Return the timeline of a run whose process died and that another one resumed."""
    studio = Studio(folder / "interrupted")
    set_up_orchestrate(studio)

    async def run_and_resume() -> str:
        died = await studio.run("lead", "go", fault=refuse_after(12))
        studio.expire_leases()
        return (await studio.resume(died.run_id)).run_id

    return studio.entries(site.portal.call(run_and_resume))


def record_requests(site: Site, folder: Path) -> list[list[Entry]]:
    """Return the timelines of runs that ask for permission, then ask a question: waiting, answered and aborted."""
    studio = Studio(folder / "requests")
    write = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}
    ask = {"calls": [{"name": "ask_person", "arguments": {"question": "Which?", "choices": ["a", "b"]}}]}

    async def record(decision: Decision | None) -> list[Entry]:
        lead = studio.agent("lead", says=[write, ask, "done"], tools=("Write", "ask_person"))
        found = []
        async with studio.app() as app, app.start(lead, "go", repo=site.repo, is_attended=True) as run:
            with run.entries() as entries:
                async for entry in entries:
                    found.append(entry)
                    match entry.event:
                        case PermissionAsked() if decision is None:
                            await run.stop()
                        case PermissionAsked(id=id):
                            await run.answer(id, decision or "deny", by="ada")
                        case QuestionAsked(id=id):
                            await run.reply(id, "a", by="ada")
        return found

    return [site.portal.call(record, decision) for decision in (None, "once", "deny", "abort")]


def write_interrupted_text() -> list[Entry]:
    """Return a timeline in which streamed text is discarded in every way, and a run that is paused and fails."""
    request, failure = Request(text="go"), Failure(kind="engine", agent="lead", message="gone")
    said = TextStreamed(text="some text")
    events: list[Event] = [
        OperationStarted(agent="lead", trigger="request", request=request),
        *(TurnStarted(agent="lead", engine="scripted", prompt="go"), said, said, TurnResumed()),
        *(said, TextSuperseded(), said, SessionRevived(agent="lead", reason="empty reply"), said),
        TeamPlanned(assignments=(PlannedAssignment(worker="a", task="x"),)),
        *(Evaluated(iteration=1, score=0.5), said, RunPaused(), RunResumed(host="here", pid=1)),
        *(TurnEnded(outcome="failed", failure=failure), OperationEnded(outcome="failed", failure=failure)),
        RunEnded(outcome="failed", failure=failure, parts=(Part(agent="lead", outcome="failed", failure=failure),)),
    ]
    whole = [RunStarted(agent="lead", request=request), *events]
    own = [not isinstance(event, RunStarted | RunPaused | RunResumed | RunEnded) for event in whole]
    return [
        Entry(run="text", seq=number, at=float(number), scope=path, operation=path, event=event)
        for number, (event, is_own) in enumerate(zip(whole, own, strict=True), 1)
        for path in ["lead" if is_own else ""]
    ]


def read_samples() -> list[list[Entry]]:
    return [
        [decode_entry(line) for line in path.read_bytes().splitlines()]
        for path in sorted(SAMPLES.glob("timeline-*.jsonl"))
    ]


def fold_in_python(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the view after every entry and after the last, or only after the last if there are many."""
    if len(entries) > SMALL:
        return [as_json(run_view_fields(RunView.from_entries(entries)))]
    view, found = RunView(), []
    for entry in entries:
        view.apply(entry)
        found.append(as_json(run_view_fields(view)))
    return [*found, found[-1]]


def as_json(fields: dict[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(fields))
    return decoded


def test_the_browser_folds_every_timeline_into_the_view_that_python_has(
    site: Site, visitor: Visitor, tmp_path: Path
) -> None:
    timelines = [
        *read_samples(),
        *record_patterns(site, tmp_path),
        record_interrupted_run(site, tmp_path),
        *record_requests(site, tmp_path),
        write_interrupted_text(),
    ]
    page = visitor.open(site, signs_in=False)

    given = [
        {"entries": [json.loads(encode_entry(entry)) for entry in entries], "small": len(entries) <= SMALL}
        for entries in timelines
    ]
    folded = page.evaluate(FOLD, given)

    kinds = {event_kind(entry.event) for entries in timelines for entry in entries}
    assert not {kind for kind in KINDS.values() if kind not in kinds} & set(page.evaluate(FOLDED_KINDS))
    for entries, views in zip(timelines, folded, strict=True):
        expected = fold_in_python(entries)
        assert len(views) == len(expected)
        for number, (ours, theirs) in enumerate(zip(expected, views, strict=True)):
            assert theirs == ours, f"{entries[0].run} differs at entry {number + 1}"


def test_the_types_of_the_page_are_those_of_the_timeline() -> None:
    assert FILE.read_text() == generate_module(), "run: python -m podium.web.dashboard.event_kinds"
