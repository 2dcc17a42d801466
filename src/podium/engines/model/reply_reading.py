"""Parse the tool calls in the text of a reply before the reply is recorded.

The recorded reply contains these calls, so that a resumed run does not parse the text again and behaves the same.
"""

from __future__ import annotations

from msgspec import structs

from ...values.event import ModelReplied, ToolUse
from .model_wire import ModelCall
from .not_done import NOT_DONE
from .tool_emulation import decode_answer, decode_not_done
from .written_call import WrittenReply, read_written_reply, was_shown


def read_reply(replied: ModelReplied, call: ModelCall, *, so_far: str, is_emulated: bool) -> ModelReplied:
    """Return the reply with the calls that its text contains. If there are none, return it unchanged.

    `so_far` is the text of the replies that this one continues. If `is_emulated`, the reply should be a JSON object:
    if it contains an answer, the answer becomes the text.
    """
    if replied.calls:
        return replied
    if any(tool.name == NOT_DONE for tool in call.tools) and (why := decode_not_done(replied.text)) is not None:
        use = ToolUse(id=f"call-{len(call.messages)}-1", name=NOT_DONE, arguments={"why": why}, is_from_text=True)
        return structs.replace(replied, text="", calls=(use,))
    is_own_form = is_emulated and (call.tools or call.schema is None)
    if is_own_form and (answer := decode_answer(replied.text)) is not None:
        return structs.replace(replied, text=answer)
    if not call.tools:
        return replied
    # With an output schema, JSON in the text is the answer and not a call, unless tools are emulated. A model may still
    # write a call to the tool that the schema replaces.
    if call.schema is not None and not is_emulated and not call.schema_tool:
        return replied
    written = find_unshown_calls(so_far + replied.text, call)
    if written is None:
        return replied
    uses = tuple(
        ToolUse(
            id=f"call-{len(call.messages)}-{number}",
            name=one.name,
            arguments=one.arguments,
            unreadable=one.unreadable,
            is_from_text=True,
            is_emulated=is_emulated,
        )
        for number, one in enumerate(written.calls)
    )
    usage = structs.replace(replied.usage, tool_calls=len(uses))
    return structs.replace(replied, text=written.prose, calls=uses, usage=usage)


def find_unshown_calls(text: str, call: ModelCall) -> WrittenReply | None:
    """Return the tool calls that a model wrote as text, or None if there are none.

    Also return None if one of the calls appears in the prompt, because quoted calls are never run.
    """
    written = read_written_reply(text, {tool.name: tool.parameters for tool in call.tools})
    if written is None:
        return None
    shown = [message.text for message in call.messages if message.role != "assistant"]
    return None if any(was_shown(one, shown) for one in written.calls) else written
