"""What a timeline says about where a run's files are."""

from __future__ import annotations

from podium.values.action import Action
from podium.values.event import (
    ActionBegan,
    Entry,
    Event,
    PushFailed,
    ToolAnswered,
    TurnEnded,
    WorkerPlaced,
    WorkMoved,
    WorkPushed,
)
from podium.views.travelled_work import MOST_STEPS, derive_travelled_work, describe_move

PLACED = WorkerPlaced(path="/a", branch="b", base="0f", host="laptop")


def make_entries(*events: tuple[str, Event]) -> list[Entry]:
    return [
        Entry(run="r", seq=number, at=float(number), scope=scope, event=event)
        for number, (scope, event) in enumerate(events, 1)
    ]


def began(tool: str, *, is_repeatable: bool = False, **arguments: str) -> ActionBegan:
    outputs = {arguments["path"]: "hash"} if "path" in arguments else {}
    action = Action(run="r", agent="a", tool=tool, arguments=dict(arguments), outputs=outputs)
    return ActionBegan(action=action, allowed_by="a rule", is_repeatable=is_repeatable)


def answered() -> ToolAnswered:
    return ToolAnswered(id="1", text="done")


def pushed(through: int) -> WorkPushed:
    return WorkPushed(commit="c1", head="h1", ref="refs/podium/runs/r/2", through=through)


def test_a_step_that_ended_after_the_last_push_is_not_pushed() -> None:
    work = derive_travelled_work(
        make_entries(
            ("", PLACED),
            ("turn#1/call#1/tool#1", began("write_file", path="one.txt")),
            ("turn#1/call#1/tool#1", answered()),
            ("turn#1/call#2/tool#1", began("bash", command="make")),
            ("", pushed(4)),
            ("turn#1/call#2/tool#1", answered()),
        )
    )

    assert work.unpushed == ("bash make",)
    assert (work.host, work.path, work.base) == ("laptop", "/a", "0f")


def test_a_step_that_never_ended_is_not_pushed_even_if_it_began_before_the_push() -> None:
    work = derive_travelled_work(
        make_entries(("", PLACED), ("t/tool#1", began("bash", command="make")), ("", pushed(2)))
    )

    assert work.unpushed == ("bash make",)


def test_the_end_of_a_turn_ends_the_actions_of_an_external_agent() -> None:
    work = derive_travelled_work(
        make_entries(
            ("turn#1/act#1", began("edit", path="one.txt")),
            ("turn#1", TurnEnded(outcome="succeeded", text="done")),
            ("", pushed(2)),
        )
    )

    assert work.unpushed == ()


def test_repeatable_actions_change_no_files_and_are_left_out() -> None:
    work = derive_travelled_work(make_entries(("t", began("run_checks", is_repeatable=True)), ("t", answered())))

    assert work.unpushed == ()


def test_a_failed_push_is_known_until_the_next_one_succeeds() -> None:
    failed = make_entries(("", pushed(1)), ("", PushFailed(reason="no route")))

    assert derive_travelled_work(failed).push_failure == "no route"
    assert derive_travelled_work([*failed, *make_entries(("", pushed(3)))]).push_failure == ""


def test_the_last_move_says_where_the_files_are() -> None:
    work = derive_travelled_work(make_entries(("", PLACED), ("", WorkMoved(host="server", path="/b", commit="c1"))))

    assert (work.host, work.path, work.base) == ("server", "/b", "0f")


def test_many_unpushed_steps_are_counted() -> None:
    events = [(f"t/tool#{number}", began("bash", command=str(number))) for number in range(MOST_STEPS + 3)]

    assert derive_travelled_work(make_entries(*events)).unpushed[-2:] == (f"bash {MOST_STEPS - 1}", "and 3 more")


def test_the_agent_is_told_what_is_missing() -> None:
    lost = describe_move(WorkMoved(host="h", path="/b", unpushed=("write_file one.txt",), ignored=("build/",)))
    whole = describe_move(WorkMoved(host="h", path="/b", commit="0123456789abcdef"))

    assert "the files as they were when the work began" in lost
    assert "- write_file one.txt" in lost
    assert "nested repositories: build/" in lost
    assert "commit 0123456789ab" in whole
    assert "contains the changes made by all finished steps" in whole
