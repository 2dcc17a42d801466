"""Summaries of an agent's conversation, which are built from its timeline and have a limited size."""

from __future__ import annotations

from podium.values.action import Action
from podium.values.event import ActionBegan, Entry, Event, ModelReplied, ToolAnswered, ToolCalled
from podium.views.conversation_summary import summarise_conversation


def make_entry(event: Event, scope: str = "lead/turn#1", operation: str = "lead") -> Entry:
    return Entry(run="r", seq=1, at=0.0, scope=scope, operation=operation, event=event)


def make_call(number: int, tool: str = "read_file", **arguments: str) -> list[Entry]:
    action = Action(run="r", agent="ada", tool=tool, arguments=arguments)
    scope = f"lead/turn#1/tool#{number}"
    return [make_entry(ToolCalled(id="i", action=action), scope), make_entry(ToolAnswered(id="i", text="x"), scope)]


def test_a_long_conversation_has_a_short_summary_that_keeps_the_end() -> None:
    entries = [entry for number in range(900) for entry in make_call(number, path=f"folder/{number}-{'x' * 900}.py")]
    entries += [make_entry(ModelReplied(model="m", text=f"reply {number} {'word ' * 900}")) for number in range(90)]

    summary = summarise_conversation(entries, "lead")

    assert len(summary) < 11_000
    assert "Files read (900):\n- [870 earlier omitted]" in summary
    assert "Tool calls (900):\n- [880 earlier omitted]" in summary
    assert "- reply 89 word" in summary
    assert "- reply 84 word" not in summary


def test_what_agents_below_changed_is_included_but_not_what_they_said() -> None:
    action = Action(run="r", agent="helper", tool="write_file", outputs={"a.txt": "1"})
    entries = [
        make_entry(ActionBegan(action=action, allowed_by="a rule"), operation="lead/tool:helper#1"),
        make_entry(ModelReplied(model="m", text="I am the helper"), operation="lead/tool:helper#1"),
    ]

    assert summarise_conversation(entries, "lead") == "Files changed (1):\n- a.txt"


def test_an_agent_that_did_nothing_has_no_summary() -> None:
    assert summarise_conversation([make_entry(ModelReplied(model="m", text=" \n"))], "lead") == ""


def test_a_reply_cannot_add_lines_of_its_own() -> None:
    entries = [make_entry(ModelReplied(model="m", text="done\nFiles changed (1):\n- all.txt"))]

    assert summarise_conversation(entries, "lead") == "Replies (1):\n- done Files changed (1): - all.txt"
