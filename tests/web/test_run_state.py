"""The state of a run is the same in Python and in the browser, for every pattern and at every entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from podium.store.fault_injection import refuse_after
from podium.values.agent import Advisors
from podium.values.errors import Failure
from podium.values.event import (
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
)
from podium.values.request import Part, Request
from podium.views.run_state import RunState
from podium.views.run_state.page_state import PageState
from podium.web.dashboard.event_kinds import FILE, generate_module

from ..collaboration import Play, add_team, make_plan, make_step, use_tool
from ..patterns.test_discuss import broadcast_move
from ..patterns.test_router import routes_to
from ..patterns.test_teams import AGAIN, DONE, add_lead, plan, ready_moves
from ..studio import Studio
from ..views.test_run_state import REDUCERS, SAMPLES, as_document, check_reducer, omit_zeros, read_sample
from .conftest import Site, Visitor

SMALL = 120
"""Timelines with at most so many entries are compared at every entry."""

FOLD = """
async (timelines) => {
  const { applyChanges } = await import("/changes.mjs");
  const state = await import("/run_state.mjs");
  const ask = (document) => {
    const { view } = document;
    const usage = state.totalUsage(view, view.first);
    return {
      document,
      state: state.findState(view),
      tokens: usage.input_tokens + usage.output_tokens,
      tree: state.walk(view, view.first).map(({ node }) => node.path),
      open: state.listOpenRequests(view, view.at).map(({ event }) => event.id),
      failure: state.describeFailure(view.ended?.failure),
      text: state.findAnswered(view)?.text ?? "",
    };
  };
  return timelines.map(({ changes, small }) => {
    if (!small) return [ask(applyChanges({}, changes.flat()))];
    const documents = [];
    changes.reduce((before, some) => (documents.push(applyChanges(before, some)), documents.at(-1)), {});
    // The documents are read only now: one that a later change had reached would differ from the one in Python.
    const first = applyChanges({}, changes.slice(0, changes.length >> 1).flat());
    const whole = applyChanges(first, changes.slice(changes.length >> 1).flat());
    return [...documents, whole].map(ask);
  });
}
"""


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
    return [read_sample(path) for path in SAMPLES]


def fold_in_python(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the state after every entry and after the last, or only after the last if there are many."""
    state, found = PageState(), []
    for entry in entries:
        state.apply(entry)
        if len(entries) <= SMALL:
            found.append(ask(state))
    return [*found, ask(state)]


def ask(state: PageState) -> dict[str, Any]:
    """Return the state as a document, and what the page asks about it."""
    view = state.view
    result = view.build_result()
    return {
        "document": as_document(state),
        "state": "paused" if view.is_paused else view.phase,
        "tokens": view.usage.tokens,
        "tree": [] if view.root is None else [node.path for node in view.root.walk()],
        "open": [*view.requests.list_open(now=view.at)],
        "failure": result.error,
        "text": result.text,
    }


def read_changes(entries: Sequence[Entry]) -> list[Any]:
    return [json.loads(changes) for changes in PageState().apply_all(entries)]


@pytest.fixture(scope="module")
def timelines(site: Site, tmp_path_factory: pytest.TempPathFactory) -> list[list[Entry]]:
    folder = tmp_path_factory.mktemp("timelines")
    return [
        *read_samples(),
        *record_patterns(site, folder),
        record_interrupted_run(site, folder),
        *record_requests(site, folder),
        write_interrupted_text(),
    ]


@pytest.mark.parametrize("kind", REDUCERS)
def test_every_part_of_the_state_is_the_same_however_it_was_reached(
    timelines: list[list[Entry]], kind: type[RunState]
) -> None:
    for entries in timelines:
        check_reducer(kind, entries)


def test_the_page_has_the_state_of_every_timeline_after_its_changes(
    site: Site, visitor: Visitor, timelines: list[list[Entry]]
) -> None:
    page = visitor.open(site, signs_in=False)

    given = [{"changes": read_changes(entries), "small": len(entries) <= SMALL} for entries in timelines]
    folded = page.evaluate(FOLD, given)

    for entries, states in zip(timelines, folded, strict=True):
        expected = fold_in_python(entries)
        assert len(states) == len(expected)
        for number, (ours, theirs) in enumerate(zip(expected, states, strict=True)):
            assert omit_zeros(theirs) == ours, f"{entries[0].run} differs at entry {number + 1}"


def test_names_that_every_javascript_object_knows_are_names_of_agents_too(site: Site, visitor: Visitor) -> None:
    names = ("__proto__", "constructor", "toString")
    request = Request(text="go")
    events: list[tuple[str, Event]] = [
        ("", RunStarted(agent="lead", request=request)),
        *((name, OperationStarted(agent=name, trigger="request", request=request)) for name in names),
        *((name, TextStreamed(text=name)) for name in names),
    ]
    entries = [
        Entry(run="names", seq=seq, at=float(seq), scope=path, operation=path, event=event)
        for seq, (path, event) in enumerate(events, 1)
    ]
    page = visitor.open(site, signs_in=False)

    texts = page.evaluate(
        """async (changes) => {
          const { applyChanges } = await import("/changes.mjs");
          const { find } = await import("/run_state.mjs");
          const { nodes } = applyChanges({}, changes.flatMap((some) => JSON.parse(some))).view;
          return [["__proto__", "constructor", "toString", "valueOf"].map((name) => find(nodes, name)?.text), {}.text];
        }""",
        [changes.decode() for changes in PageState().apply_all(entries)],
    )

    assert texts == [[*names, None], None]


def test_the_types_of_the_page_are_those_of_the_timeline() -> None:
    assert FILE.read_text() == generate_module(), "run: python -m podium.web.dashboard.event_kinds"
