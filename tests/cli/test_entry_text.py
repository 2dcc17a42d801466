from __future__ import annotations

import json

import pytest

from podium.cli.output.entry_lines import format_entry, format_entry_json
from podium.system.identity import get_username
from podium.values.action import Action
from podium.values.event import (
    ActionRefused,
    CallCut,
    Event,
    Noticed,
    QuestionAsked,
    RunEnded,
    RunStarted,
    TextStreamed,
    ToolAnswered,
    TurnEnded,
    event_kind,
)
from podium.values.operation_path import parse_agent_name
from podium.values.request import Request
from podium.views.event_text import describe_entry, is_detail

from ..views.test_event_text import SENTENCES, STREAMED_PIECES, make_entry


@pytest.mark.parametrize("event", [event for event, _ in SENTENCES if not is_detail(event)])
def test_the_terminal_shows_the_sentence_of_an_event_after_its_subject(event: Event) -> None:
    line = format_entry(make_entry(event)) or ""

    sentence = (describe_entry(make_entry(event)) or "").replace("\x1b", "\\x1b")
    assert line in (sentence, f"law: {sentence}", f"run 3f2a: {sentence}")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (RunEnded(outcome="succeeded"), "run 3f2a: succeeded"),
        (QuestionAsked(id="6a", text="Which?"), 'law: asks you (6a): "Which?"'),
        (ActionRefused(action=Action(run="r", agent="law", tool="bash"), reason="no"), "law: bash refused: no"),
        (Noticed(text="be careful"), "notice: be careful"),
        (TurnEnded(outcome="succeeded", text="\x1b[31myes"), 'law: says "\\x1b[31myes"'),
        (ToolAnswered(id="1", text="fine"), None),
        (TextStreamed(text="x"), None),
    ],
)
def test_an_event_is_formatted_as_one_line(event: Event, line: str | None) -> None:
    assert format_entry(make_entry(event)) == line


def test_a_detail_has_a_line_only_on_request() -> None:
    cut = make_entry(CallCut(model="m"))

    assert (format_entry(cut), format_entry(cut, has_details=True)) == (None, "law: model call cancelled")
    assert format_entry(make_entry(TextStreamed(text="x")), has_details=True) is None


def test_only_another_user_is_named_as_the_one_who_started_a_run() -> None:
    own, other = (
        make_entry(RunStarted(agent="lead", request=Request(text="do it"), by=name, channel="command"))
        for name in (get_username(), "somebody else")
    )

    assert format_entry(own) == 'run 3f2a: started; request to lead: "do it"'
    assert format_entry(other) == 'run 3f2a: started by somebody else (command); request to lead: "do it"'


@pytest.mark.parametrize("event", [*(event for event, _ in SENTENCES), *STREAMED_PIECES])
def test_every_entry_is_one_object_with_its_kind_on_top(event: Event) -> None:
    fields = json.loads(format_entry_json(make_entry(event)))

    assert (fields["type"], fields["seq"], fields["schema"]) == (event_kind(event), 4, 1)
    assert fields["operation"] == "lead/advice:law#1"


def test_an_operation_is_named_for_its_agent() -> None:
    assert [
        parse_agent_name("lead"),
        parse_agent_name("lead/advice:law#1"),
        parse_agent_name("a/route:builtin:b#12"),
    ] == [*("lead", "law", "builtin:b")]
