"""Build the messages of a conversation with a model, from the timeline if necessary.

If a conversation outgrows the model's context window, a summary replaces its first messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from msgspec import structs

from ...core.engine import PastTurn
from ...core.person_message import find_delivered_messages
from ...core.scope import Scope
from ...values.event import CallFailed, ContextCompacted, ModelAskedAgain, ModelReplied, ToolAnswered, ToolUse
from ...values.request import Image, detect_media_type, find_image_digests
from .model_wire import IMAGE_CHARACTERS, Message

CHARACTERS_A_TOKEN = 4
LONGEST_KEPT_REQUEST = 8000

CUT_OFF = "length"
"""The stop reason of a reply that was cut off at its token limit."""

CONTINUE = (
    "Your last reply was cut off at the token limit. Continue exactly where it ends, without repeating anything and "
    "without a remark about it. Be brief."
)
USE_TOOL_INTERFACE = (
    "Your last reply was a tool call written as text, so no tool was called and nothing was done. Call tools through "
    "the tool interface, or answer in words."
)


class Conversation:
    """The messages of one conversation."""

    def __init__(self, history: Iterable[PastTurn] = ()) -> None:
        self.messages: list[Message] = []
        self.left_out = 0
        """The number of replies that were left out of the conversation, because they could not be used."""
        self._is_corrected = False
        """Whether a refused reply has just been removed from the end of the conversation.

        If so, and if the last message is now a user message, the next prompt is appended to that message.
        """
        for past in history:
            self._add_past_turn(past)

    def add_user_message(self, text: str, place: Scope | None = None) -> None:
        """Add a prompt or a later user message. Images marked in the text are read from the timeline of `place`."""
        images = () if place is None else _load_images(text, place)
        if self._is_corrected and self.messages[-1].role == "user":
            # Some models accept only alternating roles, so the correction is appended to the previous user message.
            refused = self.messages.pop()
            text, images = f"{refused.text}\n\n{text}", (*refused.images, *images)
        self._is_corrected = False
        self.messages.append(Message(role="user", text=text, images=images))

    def add_reply(self, reply: ModelReplied) -> None:
        """Add a reply from the model."""
        self.messages.append(
            Message(role="assistant", text=reply.text, calls=reply.calls, sealed=reply.sealed, model=reply.model)
        )

    def add_follow_up(self, reply: ModelReplied, asked: ModelAskedAgain | None) -> None:
        """Add the prompt that followed a reply within the turn. `asked` is None for older logs, which lack it."""
        text = asked.prompt if asked is not None else CONTINUE if reply.stop == CUT_OFF else USE_TOOL_INTERFACE
        self.messages.append(Message(role="user", text=text))

    def messages_for_model(self, model: str) -> tuple[Message, ...]:
        """Return the messages for a call to this model, without sealed data from other models."""
        return tuple(
            structs.replace(message, sealed="") if message.sealed and message.model != model else message
            for message in self.messages
        )

    def add_tool_answer(self, call: ToolUse, text: str) -> None:
        """Add the result of a tool call."""
        self.messages.append(Message(role="tool", text=text, answers=call.id))

    def compact(self, compacted: ContextCompacted) -> None:
        """Replace the summarised messages with the summary. Keep the first and last request, shortened if necessary."""
        asked = [message.text for message in self.messages[: compacted.replaced] if message.role == "user"]
        first, last = (
            _truncate_middle(asked[0], LONGEST_KEPT_REQUEST),
            _truncate_middle(asked[-1], LONGEST_KEPT_REQUEST),
        )
        text = f"{first}\n\n[summary of the conversation so far]\n{compacted.summary}\n[end of the summary; continue]"
        if len(asked) > 1:
            text += f"\n\n[last message]\n{last}"
        self.messages[: compacted.replaced] = [Message(role="user", text=text)]

    def count_tokens(self, system: str = "") -> int:
        """Estimate the number of tokens in the conversation."""
        return -(-(len(system) + sum(map(count_characters, self.messages))) // CHARACTERS_A_TOKEN)

    def count_replaceable(self, room: int) -> int:
        """Return how many messages at the start to replace with a summary, so that at most `room` tokens remain.

        The remaining messages start with a reply from the model, so that no tool result is separated from its call.
        """
        kept = 0
        best = len(self.messages)
        for place in range(len(self.messages) - 1, 0, -1):
            kept += count_characters(self.messages[place])
            if kept > room * CHARACTERS_A_TOKEN:
                break
            if self.messages[place].role == "assistant":
                best = place
        return best

    def format_transcript(self, messages: int, longest: int) -> str:
        """Format the first messages as a transcript. Cut out its middle if it is longer than `longest` characters."""
        return _truncate_middle("\n\n".join(map(_format_message, self.messages[:messages])), longest)

    def _add_past_turn(self, past: PastTurn) -> None:
        """Add the messages of a finished turn, read from its steps on the timeline."""
        self.add_user_message(past.prompt, past.scope)
        before = len(self.messages)
        last: ModelReplied | None = None
        asked: ModelAskedAgain | None = None
        for number in count(1):
            place = past.scope.child(f"call#{number}")
            reply = _recall_reply(place)
            if last is not None and reply is not None and (asked is not None or not last.calls):
                self.add_follow_up(last, asked)
            if said := find_delivered_messages(place):
                self.add_user_message(said, place)
            if (compacted := place.child("compaction").find_outcome(ContextCompacted)) is not None:
                self.compact(compacted)
            if reply is None:
                break
            last, asked = reply, place.child("model_asked_again#1").find_outcome(ModelAskedAgain)
            self.add_reply(reply)
            for position, call in enumerate(reply.calls, 1):
                answered = place.child(f"tool#{position}").child("tool_answered#1").find_outcome(ToolAnswered)
                self.add_tool_answer(call, answered.text if answered else "")
        if past.is_refused:
            self._remove_reply(before)
        elif self.messages[-1].role == "user":
            self.messages.append(Message(role="assistant", text=past.reply))

    def _remove_reply(self, before: int) -> None:
        """Remove the refused reply at the end of a turn. Earlier tool calls and their results stay.

        The first `before` messages and the user's messages also stay. The next prompt asks for a correction.
        """
        while len(self.messages) > before and self.messages[-1].role == "tool":
            self.messages.pop()  # the result of a tool call that was the refused reply
        kept: list[Message] = []
        while len(self.messages) > before and self.messages[-1].role != "tool":
            message = self.messages.pop()
            if message.role == "assistant":
                self.left_out += 1
            elif message.text not in (CONTINUE, USE_TOOL_INTERFACE):
                kept.insert(0, message)
        self.messages += kept
        self._is_corrected = True


def _load_images(text: str, place: Scope) -> tuple[Image, ...]:
    found = map(place.timeline.links.read_attachment, find_image_digests(text))
    return tuple(Image(detect_media_type(data), data) for data in found if data is not None)


def _recall_reply(place: Scope) -> ModelReplied | None:
    """Return the recorded reply to the model call at this scope, or None if no attempt has succeeded."""
    for attempt in count(1):
        outcome = place.for_attempt(attempt).find_outcome(ModelReplied, CallFailed)
        if isinstance(outcome, ModelReplied):
            return outcome
        if outcome is None:
            return None
    return None


def _truncate_middle(text: str, longest: int) -> str:
    """Return the text. If it is longer than `longest` characters, cut out its middle."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def count_characters(message: Message) -> int:
    """Return the size of a message in characters, counting each image at a fixed size."""
    shown = len(message.text) + IMAGE_CHARACTERS * len(message.images)
    for call in message.calls:
        shown += len(call.name) + len(str(call.arguments))
    return shown


def _format_message(message: Message) -> str:
    match message.role:
        case "user":
            return f"Asked: {message.text}"
        case "tool":
            return f"The tool said: {message.text}"
        case _:
            calls = "".join(f"\n(called {call.name} with {call.arguments})" for call in message.calls)
            return f"Replied: {message.text}{calls}"
