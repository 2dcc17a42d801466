"""Decide what follows a reply without tool calls: the turn ends, the model is asked again, or the turn fails."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.engine import CUT_OFF_MARK, EngineSessionSpec, Finished, Piece, Superseded, Text
from ...values.errors import AgentFailed, Failure, FailureKind
from ...values.event import ModelAskedAgain, ModelReplied
from .conversation import CONTINUE, CUT_OFF
from .model_caller import make_refusal_failure
from .model_wire import LONGEST_REPLY
from .repeated_calls import MOST_IDENTICAL_CALLS, RepeatedCalls
from .reply_recorder import ENDLESS, REPETITION
from .written_call import find_unreadable_call, is_machine_text, read_written_reply

UNREADABLE_CALL = (
    "Your last reply looks like a call to {tool}, but it could not be read, so nothing was done. "
    "Call the tool through the tool interface. If you cannot, reply with the call alone, as one valid JSON object that "
    "has the tool's name and its arguments as in the tool's description. If you do not want to call a tool, answer in "
    "words."
)
QUOTED_CALL = (
    "Your last reply only copies a call to {tool} from the text you were given. A copied call is never executed. "
    "Answer in your own words. If you want to quote the text, introduce the quotation with a sentence."
)
STOP_REPEATING = (
    "Your last reply kept repeating the same text, so it was cut off. Answer again, briefly and without repetition."
)
STOP_WRITING = "Your last reply did not end, so it was cut off. Answer again, briefly."
REPORT = (
    "You called {tool} with the same arguments {count} times in a row. Only the first call was executed, and repeating "
    "it changes nothing. You cannot call any more tools in this turn. Report in words what was done, what the result "
    "is, and what is left to do."
)
CYCLE_REPORT = (
    "You made the same {length} calls {count} times in turn, with the same results each time. You cannot call any more "
    "tools in this turn. Report in words what was done, what the result is, and what is left to do."
)
ADVICE = "use a model and a server that support tool calls"


class AnswerProgress:
    """Collects a turn's answer from the replies without tool calls.

    A reply that was cut off is continued once. If a reply cannot be used, the model is asked once more.
    """

    def __init__(self, spec: EngineSessionSpec) -> None:
        self.so_far = ""
        self.has_replied = False
        """Whether the agent replied through a tool. If so, it need not reply with text."""
        self.looping_tool = ""
        """The tool that the model called too often, or an empty string. If set, the next reply must have no calls."""
        self._spec = spec
        self._is_continued = False
        self._is_corrected = False
        self._tools = {tool.name: tool.parameters for tool in spec.tools}

    def judge_reply(self, reply: ModelReplied, *, is_last: bool) -> Iterator[Piece | ModelAskedAgain]:
        """Decide how to continue after a reply, and yield the resulting pieces.

        The last piece is Finished if the reply completes the answer. If not, the last piece is ModelAskedAgain, with
        the prompt for the next call. Raise AgentFailed if the reply cannot be used and the model is not asked again.
        `is_last` means that no further call is allowed.
        """
        if reply.stop == "content_filter" and not reply.text.strip():
            raise make_refusal_failure(self._spec.agent.name)
        self.so_far += reply.text
        if (rejected := self._find_fault(reply, is_last=is_last)) is not None:
            yield Superseded()
            if self._is_corrected or self.looping_tool or is_last:
                raise self._make_failure(rejected, is_last=is_last)
            self._is_corrected, self.so_far = True, ""
            yield rejected
        elif reply.stop == CUT_OFF and not self._is_continued and not is_last:
            self._is_continued = True
            yield ModelAskedAgain(reason="its reply was cut off at the token limit", prompt=CONTINUE)
        else:
            if reply.stop == CUT_OFF and self._spec.schema is None:
                yield Text(CUT_OFF_MARK)
            yield Finished(reply.stop, by_tool=self.has_replied)

    def ask_for_report(self, tool: str, repeated: RepeatedCalls) -> ModelAskedAgain:
        """Return the event that asks the model for a report, to end a loop of identical calls or of a cycle of calls.

        The next reply must contain no calls.
        """
        self.looping_tool = tool
        if length := repeated.cycle_length:
            reason = f"it made the same {length} calls {MOST_IDENTICAL_CALLS} times in turn"
            return ModelAskedAgain(reason=reason, prompt=CYCLE_REPORT.format(length=length, count=MOST_IDENTICAL_CALLS))
        count = repeated.identical_calls
        return ModelAskedAgain(
            reason=f"it called {tool} {count} times with the same arguments",
            prompt=REPORT.format(tool=tool, count=count),
        )

    def make_loop_failure(self) -> AgentFailed:
        """Return the failure for a model that keeps calling the same tool."""
        message = f"its model called {self.looping_tool} with the same arguments over and over, and gave no report"
        return AgentFailed(Failure(kind="engine", agent=self._spec.agent.name, message=message))

    def _find_fault(self, reply: ModelReplied, *, is_last: bool) -> ModelAskedAgain | None:
        """Return None if the reply can be used.

        Otherwise, return the reason why it cannot be used, with the prompt that asks the model for another reply. The
        prompt is empty if the model is not asked again.
        """
        if reply.stop == REPETITION:
            return ModelAskedAgain(reason="its model repeated the same text endlessly", prompt=STOP_REPEATING)
        if reply.stop == ENDLESS:
            reason = f"its model's reply did not end within {LONGEST_REPLY:,} characters"
            return ModelAskedAgain(reason=reason, prompt=STOP_WRITING)
        # With an output schema, JSON is a valid answer.
        if self._spec.schema is not None or not self._tools:
            return None
        if self.looping_tool and is_machine_text(self.so_far):
            return ModelAskedAgain(reason="its model wrote another call instead of a report", prompt="")
        if (written := read_written_reply(self.so_far, self._tools)) is not None:
            tool = next(call.name for call in written.calls if call.name in self._tools)
            reason = f"its model only copied a call to {tool} from its input"
            return ModelAskedAgain(reason=reason, prompt=QUOTED_CALL.format(tool=tool))
        # The caller reads a reply in a given format itself, and asks again.
        if is_last and self._spec.reply_format() is not None:
            return None
        # A call that was cut off is not rejected: it may become readable when the model continues its reply.
        can_continue = reply.stop == CUT_OFF and not self._is_continued
        if not can_continue and (named := find_unreadable_call(self.so_far, self._tools)) is not None:
            reason = f"its model wrote a call to {named} that could not be read"
            return ModelAskedAgain(reason=reason, prompt=UNREADABLE_CALL.format(tool=named))
        return None

    def _make_failure(self, rejected: ModelAskedAgain, *, is_last: bool) -> AgentFailed:
        if self.looping_tool:
            return self.make_loop_failure()
        kind: FailureKind = "engine" if self._is_corrected or not is_last else "limit"
        again = ", even when asked again" if self._is_corrected else ""
        advice = f"; {ADVICE}" if "could not be read" in rejected.reason else ""
        return AgentFailed(Failure(kind=kind, agent=self._spec.agent.name, message=f"{rejected.reason}{again}{advice}"))
