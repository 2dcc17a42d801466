"""A model that counts the tokens it receives: `python -m benchmarks.children.counting_model FILE`.

The file gets a line for every call: the requested model, the number of tokens that are new to it, and the number
of tokens that repeat an earlier conversation. The members' model says something new each time; the other model
coordinates, and gives its answer when the prompt says that the discussion is over.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from itertools import count

import anyio
from msgspec import structs

from podium.engines.model.model_wire import Message, ModelCall
from podium.engines.script import Move, compute_move_usage, last_request
from podium.testing.model_server import ModelServer

from ..discussion_scenario import ANSWER, GO_ON, IS_OVER, MEMBER, make_message

Words = tuple[tuple[str, str], ...]
"""Messages of a conversation: the role and the text."""


class Conversations:
    """All conversations so far, to distinguish repeated text from new text."""

    def __init__(self) -> None:
        self._numbers = count()
        self._seen: set[tuple[str, Words]] = set()

    def answer(self, call: ModelCall) -> tuple[Move, int, int]:
        """Return the reply to a call, and how many of the call's tokens are new and how many repeated."""
        move = Move(says=self._choose_reply(call))
        sent = compute_move_usage(move, call).input_tokens
        before = _messages_up_to_last_reply(call)
        is_known = (call.system, _role_texts(before)) in self._seen
        repeated = compute_move_usage(move, structs.replace(call, messages=before)).input_tokens if is_known else 0
        self._seen.add((call.system, (*_role_texts(call.messages), ("assistant", move.says))))
        return move, sent - repeated, repeated

    def _choose_reply(self, call: ModelCall) -> str:
        if call.model == MEMBER:
            return make_message(next(self._numbers))
        return ANSWER if last_request(call).startswith(IS_OVER) else GO_ON


def _messages_up_to_last_reply(call: ModelCall) -> tuple[Message, ...]:
    place = max((place for place, one in enumerate(call.messages, 1) if one.role == "assistant"), default=0)
    return call.messages[:place]


def _role_texts(messages: tuple[Message, ...]) -> Words:
    return tuple((one.role, one.text) for one in messages)


async def main(path: str) -> None:
    """Serve until the process is ended."""
    conversations = Conversations()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def answer_and_count(call: ModelCall) -> Move:
        move, new, repeated = conversations.answer(call)
        os.write(file, f"{call.model} {new} {repeated}\n".encode())
        return move

    async with ModelServer(otherwise=answer_and_count, keeps_calls=False) as server:
        print(f"listening on {server.url}", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], backend_options={"use_uvloop": find_spec("uvloop") is not None})
