"""Answering requests: what an answer must be, what it is bound to, and which answer counts."""

from __future__ import annotations

import pytest
from msgspec import structs

from podium import Agent
from podium.core.timeline import Timeline
from podium.runs.answers import NewAnswer, answer_request
from podium.store.mailbox import read_mailbox
from podium.store.run_store import RunStore
from podium.store.store_connection import open_connection
from podium.values.action import Action
from podium.values.actor import Actor
from podium.values.errors import AlreadyAnswered, Mistake
from podium.values.event import PermissionAnswered, PermissionAsked, QuestionAnswered, QuestionAsked, RunStarted
from podium.values.request import Request
from podium.values.store_address import StoreAddress

from ..studio import Studio

ADA = Actor(name="ada", channel="terminal")
ACTION = Action(run="r1", agent="lead", tool="bash", arguments={"command": "make"})
PLAN = QuestionAsked(id="q1", text="Approve?", kind="plan", shown="The plan", digest="d1")
DECISION = QuestionAsked(id="q2", text="Which?", kind="decision", choices=("tea", "coffee"), digest="d2")
PERMISSION = PermissionAsked(id="p1", action=ACTION, reason="a rule asks")


async def ask(studio: Studio, *asked: PermissionAsked | QuestionAsked) -> StoreAddress:
    """Write a run that asks these requests."""
    async with RunStore(studio.settings.store) as store:
        timeline = Timeline("r1", store.begin_run("r1"))
        timeline.append(RunStarted(agent="lead", request=Request(text="go"), agents=(Agent(name="lead"),)), scope="")
        for one in asked:
            timeline.append(one, scope="lead", operation="lead")
        await timeline.wait_written()
    return studio.settings.store


def read_mail(store: StoreAddress) -> list[object]:
    connection = open_connection(store, create=False)
    try:
        return [message.event for message in read_mailbox(connection, "r1", 0)]
    finally:
        connection.close()


async def test_an_answer_is_bound_to_the_text_that_was_shown(studio: Studio) -> None:
    store = await ask(studio, PLAN)

    with pytest.raises(Mistake, match="q1 has changed since it was shown"):
        answer_request(store, "r1", PLAN, NewAnswer(shown="d0", text="approve"), by=ADA, home=None)
    answer_request(store, "r1", PLAN, NewAnswer(shown="d1", text="approve"), by=ADA, home=None)

    assert read_mail(store) == [QuestionAnswered(id="q1", text="approve", by="ada", digest="d1", channel="terminal")]


async def test_an_answer_is_bound_to_the_action_that_was_shown(studio: Studio) -> None:
    store = await ask(studio, PERMISSION)

    with pytest.raises(Mistake, match="p1 is for a different action than the one that was shown"):
        answer_request(store, "r1", PERMISSION, NewAnswer(shown="other", decision="once"), by=ADA, home=None)

    assert read_mail(store) == []


async def test_the_first_answer_counts_and_a_later_one_is_told_which_it_was(studio: Studio) -> None:
    store = await ask(studio, PERMISSION)
    denial = NewAnswer(shown=ACTION.id, decision="deny", comment="not now")
    answer_request(store, "r1", PERMISSION, denial, by=ADA, home=None)

    with pytest.raises(AlreadyAnswered, match=r"deny.*ada \(terminal\)|ada \(terminal\).*deny"):
        answer_request(store, "r1", PERMISSION, NewAnswer(shown=ACTION.id, decision="once"), by=ADA, home=None)

    [counts] = read_mail(store)
    assert isinstance(counts, PermissionAnswered)
    assert (counts.decision, counts.comment, counts.by, counts.channel) == ("deny", "not now", "ada", "terminal")


@pytest.mark.parametrize(
    ("asked", "answer", "why"),
    [
        (PERMISSION, NewAnswer(shown=ACTION.id, text="yes"), "give a decision, e.g. with podium approve"),
        (PLAN, NewAnswer(shown="d1", decision="once"), "give a text, e.g. with podium answer q1 TEXT"),
        (
            DECISION,
            NewAnswer(shown="d2", text="juice"),
            r"'juice' is not one of the choices for q2; choose from 1 \(tea",
        ),
    ],
)
async def test_an_answer_of_the_wrong_kind_is_a_mistake(
    studio: Studio, asked: PermissionAsked | QuestionAsked, answer: NewAnswer, why: str
) -> None:
    store = await ask(studio, asked)

    with pytest.raises(Mistake, match=why):
        answer_request(store, "r1", asked, answer, by=ADA, home=None)


async def test_an_option_of_a_decision_is_chosen_by_its_number_or_its_name(studio: Studio) -> None:
    others = [structs.replace(DECISION, id=id) for id in ("q3", "q4")]
    store = await ask(studio, *others)

    for asked, text in zip(others, ("2", " Coffee"), strict=True):
        answer_request(store, "r1", asked, NewAnswer(shown="d2", text=text), by=ADA, home=None)

    assert [answered.text for answered in read_mail(store) if isinstance(answered, QuestionAnswered)] == ["coffee"] * 2


async def test_always_is_refused_if_no_rule_can_be_saved_and_nothing_is_answered(studio: Studio) -> None:
    store = await ask(studio, PERMISSION)
    answer = NewAnswer(shown=ACTION.id, decision="always")

    with pytest.raises(Mistake, match="no safe rule covers it"):
        answer_request(store, "r1", PERMISSION, answer, by=ADA, home=studio.settings.home)

    assert read_mail(store) == []
