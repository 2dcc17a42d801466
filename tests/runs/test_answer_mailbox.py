"""Answers that are posted from a terminal to the run that asked."""

from __future__ import annotations

from podium import Agent
from podium.core.timeline import Timeline
from podium.runs.inbox import AnswerMailbox
from podium.store.mailbox import read_mailbox
from podium.store.run_store import RunStore
from podium.store.store_connection import open_connection
from podium.values.event import QuestionAnswered, QuestionAsked, RunStarted
from podium.values.request import Request

from ..studio import Studio


async def test_an_answer_is_bound_to_the_text_that_was_shown(studio: Studio) -> None:
    path = studio.settings.store
    asked = QuestionAsked(id="q1", text="Approve?", kind="plan", shown="The plan", digest="d1")
    async with RunStore(path) as store:
        timeline = Timeline("r1", store.begin_run("r1"))
        timeline.append(RunStarted(agent="lead", request=Request(text="go"), agents=(Agent(name="lead"),)), scope="")
        timeline.append(asked, scope="lead", operation="lead")
        await timeline.wait_written()
    mailbox = AnswerMailbox(path)
    mailbox.register_request("q1", "r1", asked)

    assert await mailbox.reply("q1", "approve", by="ada", channel="terminal")

    connection = open_connection(path, create=False)
    [message] = read_mailbox(connection, "r1", 0)
    connection.close()
    assert message.event == QuestionAnswered(id="q1", text="approve", by="ada", digest="d1", channel="terminal")
