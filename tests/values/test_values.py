"""Values: stored values stay readable for years, and an approved value cannot turn into another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from podium import Agent
from podium.values.action import Action
from podium.values.agent import Advisors, Router
from podium.values.errors import Failure
from podium.values.event import KINDS, Event, ReflectEnd, ReflectEnded, decode_entry, encode_entry
from podium.values.request import Note, Outcome, Request, describe_outcome
from podium.values.usage import Usage, sum_usage

SAMPLES = Path(__file__).parents[1] / "samples"


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("timeline-*.jsonl")), ids=lambda path: path.stem)
def test_a_log_of_every_released_shape_is_still_read_and_written_the_same(sample: Path) -> None:
    lines = sample.read_bytes().splitlines()

    assert [encode_entry(decode_entry(line)) for line in lines] == lines


def test_no_event_makes_a_command_compile_its_annotations_when_it_starts() -> None:
    postponed = [
        f"{event.__name__}.{name}"
        for event in get_args(Event)
        for name, annotation in event.__annotations__.items()
        if isinstance(annotation, str)
    ]

    assert postponed == []


def test_the_newest_sample_has_every_kind_of_event() -> None:
    newest = max(SAMPLES.glob("timeline-*.jsonl"))

    kinds = {json.loads(line)["event"]["type"] for line in newest.read_text().splitlines()}

    assert kinds == set(KINDS.values())
    assert len(KINDS) == len(get_args(Event))


def test_an_entry_of_a_newer_release_with_more_fields_is_read() -> None:
    line = (
        b'{"run":"r","seq":1,"at":1.5,"scope":"","event":{"type":"noticed","text":"hi","colour":"red"},"mood":"good"}'
    )

    assert decode_entry(line).event.text == "hi"  # type: ignore[union-attr]


def test_events_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Failure(kind="engine", agent="a", message="m").message = "n"  # type: ignore[misc]


ACTION = Action(run="r", agent="a", tool="bash", arguments={"command": "ls"}, asked_at=1.0, expires_at=2.0, nonce="n")


@given(st.sampled_from(Action.__struct_fields__), st.text(min_size=1))
def test_any_change_of_an_action_changes_its_id(field: str, text: str) -> None:
    current = getattr(ACTION, field)
    changed: object = text
    if isinstance(current, dict):
        changed = {**current, "more": text}
    elif isinstance(current, float | int):
        changed = current + 1
    other = structs.replace(ACTION, **{field: changed})

    assert (other.id == ACTION.id) == (other == ACTION)


def test_the_same_action_at_another_time_has_the_same_digest_and_another_id() -> None:
    later = structs.replace(ACTION, asked_at=9.0, expires_at=10.0, nonce="other")

    assert later.digest == ACTION.digest
    assert later.id != ACTION.id


def test_an_actions_id_does_not_depend_on_the_order_of_its_arguments() -> None:
    one = structs.replace(ACTION, arguments={"a": 1, "b": {"x": 1, "y": 2}})
    other = structs.replace(ACTION, arguments={"b": {"y": 2, "x": 1}, "a": 1})

    assert one.id == other.id


def test_agents_in_code_may_be_written_as_short_as_in_files() -> None:
    agent = Agent(name="a", advisors=["b", "c"], router=True, agents=["d"], tools=["read_file"])

    assert agent.advisors == Advisors(agents=("b", "c"), require="none")
    assert agent.router == Router(destinations=("d",))
    assert agent.tools == ("read_file",)
    assert Agent(name="a", router=False).router is None


def test_an_agent_is_the_same_after_encoding_and_decoding() -> None:
    agent = Agent(name="a", prompt="You.", advisors=Advisors(agents=("b",), require=2), output={"type": "object"})

    assert msgspec.json.decode(msgspec.json.encode(agent), type=Agent) == agent


def test_only_agents_that_neither_route_nor_hand_off_own_their_answer() -> None:
    assert Agent(name="a", advisors=Advisors(agents=("b",))).is_terminal
    assert not Agent(name="a", handoff="b").is_terminal
    assert not Agent(name="a", router=Router(destinations=("b",))).is_terminal


@given(st.lists(st.builds(Usage, input_tokens=st.integers(0, 9), output_tokens=st.integers(0, 9), calls=st.just(1))))
def test_usage_adds_up(usages: list[Usage]) -> None:
    summed = sum_usage(usages)

    assert summed.calls == len(usages)
    assert summed.tokens == sum(usage.tokens for usage in usages)


@given(st.lists(st.builds(Usage, input_tokens=st.integers(0, 9), output_tokens=st.integers(0, 9), calls=st.just(1))))
def test_rehearsed_usage_adds_up_apart_from_that_of_models(usages: list[Usage]) -> None:
    summed = sum_usage([*usages, *(usage.as_rehearsed() for usage in usages)])

    assert (summed.calls, summed.tokens) == (len(usages), sum(usage.tokens for usage in usages))
    assert summed.rehearsed_calls == len(usages)
    assert summed.with_rehearsed() == sum_usage([*usages, *usages])


@given(st.text(), st.lists(st.text(), max_size=3))
def test_no_note_can_pass_for_another(text: str, notes: list[str]) -> None:
    request = Request(text="the request", notes=tuple(Note(title="n", text=note) for note in [text, *notes]))

    lines = request.prompt().split("\n")

    assert lines[0] == "the request"
    assert all(line == "" or line.startswith("> ") or line == "[context for you only: n]" for line in lines[1:])


def test_a_stored_agent_keeps_the_defaults_of_its_time() -> None:
    stored = msgspec.json.decode(b'{"name": "a", "advisors": {"agents": ["b"]}}', type=Agent)

    assert stored.advisors == Advisors(agents=("b",), require="any")
    assert Agent(name="a", advisors=["b"]).advisors == Advisors(agents=("b",), require="none")


@pytest.mark.parametrize("end", get_args(ReflectEnd))
def test_goal_met_is_the_only_successful_end_and_all_others_but_a_pause_are_cancelled(end: ReflectEnd) -> None:
    ended = ReflectEnded(end=end, iterations=1)

    assert ended.is_success == ended.is_goal_met == (end == "goal_met")
    assert ended.is_stalled == (end in ("stalled", "error_budget"))
    assert ended.is_cancelled == (end not in ("goal_met", "paused"))


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("failed", "failed"),
        ("timed_out", "timed out"),
        ("cancelled", "was cancelled"),
        ("interrupted", "was interrupted"),
    ],
)
def test_an_outcome_is_described_as_the_predicate_of_a_sentence(outcome: Outcome, said: str) -> None:
    assert describe_outcome(outcome) == said
