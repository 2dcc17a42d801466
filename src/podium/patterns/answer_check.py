"""Require answers of agents, and recognise replies that are not answers: tool calls as text, sentinels and echoes.

After such a reply, the agent is asked once more in the same conversation. If its next reply is not an answer either,
the agent has failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..core.operation import Operation
from ..core.session import Reply, Session
from ..engines.model.written_call import is_machine_text
from ..values.agent import Agent
from .member_tasks import list_aliases
from .plan_drafting import is_plan, read_plan_reply
from .verdict import is_only_sentinels

ASK_AGAIN = (
    "Your last reply is not an answer: {why}. Do what was asked, and then answer in your own words, in plain sentences."
)
SECOND_PLAN = "the reply assigns tasks, but the workers have finished and nothing is left to assign"
LEAST_WORDS = 5
"""The minimum number of words in an echo. A shorter reply can be an answer even if it repeats words from the request,
such as the option that it chooses."""

_NOTE = re.compile(r"^\[context(?: for you only)?: (?P<title>[^\]\n]*)\]$", re.MULTILINE)
_REQUEST_HEADING = re.compile(r"^#+ .*\b(?:topic|request|task)\b.*$", re.IGNORECASE | re.MULTILINE)
_HEADING = re.compile(r"^#+ ", re.MULTILINE)
_QUOTE_MARK = re.compile(r"^>[ \t]?", re.MULTILINE)
_NOT_WORDS = re.compile(r"[\W_]+")
_ARTICLES = frozenset(("a", "an", "the"))


async def ask_without_plan(op: Operation, session: Session, prompt: str, workers: Mapping[str, Agent]) -> str:
    """Ask a lead for the answer after its workers have finished. Return the text of its answer.

    If the reply assigns tasks instead, ask once more. Raise AgentFailed if the second reply assigns tasks, too.
    """
    for words in (prompt, ASK_AGAIN.format(why=SECOND_PLAN)):
        reply = await session.ask(words)
        names, aliases = list(workers), list_aliases(workers)
        if not is_plan(reply.text, names, aliases=aliases):
            return read_plan_reply(reply.text, names, aliases=aliases).answer
    raise op.make_error("failed", f"it gave no answer, even when it was asked again: {SECOND_PLAN}")


async def require_answer(
    op: Operation, session: Session, prompt: str, reply: Reply, *, may_reply_by_tool: bool = False
) -> Reply:
    """Return the agent's reply to the prompt if it is an answer. Otherwise, ask again and return the second reply.

    Raise AgentFailed if that is not an answer either. With `may_reply_by_tool`, the agent can reply by calling a tool,
    and the text after such a call does not matter.
    """
    if (may_reply_by_tool and reply.calls) or (why := describe_non_answer(reply.text, prompt)) is None:
        return reply
    reply = await session.ask(ASK_AGAIN.format(why=why))
    if (may_reply_by_tool and reply.calls) or (why := describe_non_answer(reply.text, prompt)) is None:
        return reply
    raise op.make_error("failed", f"it gave no answer, even when it was asked again: {why}")


def describe_non_answer(text: str, prompt: str) -> str | None:
    """Return the reason why a reply is not an answer to the prompt, or None if it is an answer or empty."""
    if is_machine_text(text):
        return "the reply contains only a tool call or a tool description, written as text"
    if is_only_sentinels(text):
        return "the reply contains only a marker"
    return "the reply only repeats the request" if is_echo(text, prompt) else None


def is_echo(text: str, prompt: str) -> bool:
    """Return whether the text only repeats the prompt, or a part of the prompt that states the request."""
    if len(text) > 2 * len(prompt):
        return False
    words = _split_words(text)
    if len(words) < LEAST_WORDS or not set(words[:LEAST_WORDS]) <= set(_split_words(prompt)):
        return False
    return any(words == _split_words(part) for part in _iter_requests(prompt))


def _split_words(text: str) -> list[str]:
    return [word for word in _NOT_WORDS.sub(" ", text).casefold().split() if word not in _ARTICLES]


def _iter_requests(prompt: str) -> Iterator[str]:
    """Yield the whole prompt, and then each part of the prompt that states the request.

    These parts are the text before the notes, the note with the original request, and the sections whose headings
    mention a topic, a request or a task. After a handoff, the text before the notes is not included: another agent
    wrote that text, and repeating it unchanged can be correct.
    """
    yield prompt
    notes = list(_NOTE.finditer(prompt))
    if notes and not any(note["title"].startswith("handoff from ") for note in notes):
        yield prompt[: notes[0].start()]
    for place, note in enumerate(notes):
        if note["title"] == "original request":
            end = notes[place + 1].start() if place + 1 < len(notes) else len(prompt)
            yield _QUOTE_MARK.sub("", prompt[note.end() : end])
    for heading in _REQUEST_HEADING.finditer(prompt):
        rest = prompt[heading.end() :]
        following = _HEADING.search(rest)
        section = rest[: following.start()] if following else rest
        yield section
        yield section.strip().partition("\n\n")[0]
