"""Decide what follows a reply without tool calls: the turn ends, the model is asked again, or the turn fails."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ...core.engine import CUT_OFF_MARK, EngineSessionSpec, Finished, Piece, Superseded, Text, Tool, ToolAnswer
from ...core.proof import CHECKING_TOOL, COMMAND_TOOL
from ...values.errors import AgentFailed, Failure, FailureKind
from ...values.event import ModelAskedAgain, ModelReplied, ToolUse
from ...values.tool_table import CHANGING_TOOLS
from .conversation import CONTINUE, CUT_OFF
from .model_caller import make_refusal_failure
from .model_wire import LONGEST_REPLY
from .not_done_tool import NOT_DONE, make_not_done_tool
from .reply_recorder import ENDLESS, REPETITION
from .written_call import find_unreadable_call, is_machine_text, read_written_reply

MOST_IDENTICAL_CALLS = 3
"""The number of consecutive identical calls after which the model may call no more tools and must write a report."""
LONGEST_CYCLE = 4
"""The maximum number of calls in a cycle, such as reading a file and running a check in turn."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
"""Numbers in answers, such as durations, differ although nothing has changed."""


class RepeatedCalls:
    """Tracks the calls in a turn. A call is a repeat if the call directly before it was identical.

    Several calls that are made in turn, with the same answers each time apart from numbers, are a cycle. Calls to
    polling tools, whose answers can change on their own, are never repeats and not part of a cycle.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.identical_calls = 0
        """The number of identical calls in a row, ending with the last call."""
        self._tools = tools
        self._last_call: ToolUse | None = None
        self._last_answer = ToolAnswer(text="")
        self._recent: deque[tuple[ToolUse, str]] = deque(maxlen=LONGEST_CYCLE * MOST_IDENTICAL_CALLS)
        """The last calls, with their answers without numbers."""

    @property
    def is_looping(self) -> bool:
        """Whether the model made the same call, or the same cycle of calls, too many times in a row."""
        return self.identical_calls >= MOST_IDENTICAL_CALLS or self.cycle_length > 0

    @property
    def cycle_length(self) -> int:
        """How many calls the cycle has with which the turn's calls end, or 0 if there is none."""
        recent = list(self._recent)
        for length in range(2, LONGEST_CYCLE + 1):
            last = recent[-length * MOST_IDENTICAL_CALLS :]
            is_whole = len(last) == length * MOST_IDENTICAL_CALLS
            if is_whole and all(_is_same(last[place], last[place - length]) for place in range(length, len(last))):
                return length
        return 0

    def find_repeats(self, calls: Sequence[ToolUse]) -> set[int]:
        """Return the positions, counted from 1, of the calls that repeat the call before them."""
        repeats: set[int] = set()
        last = self._last_call
        for number, call in enumerate(calls, 1):
            if last is not None and self._is_repeat(call, last):
                repeats.add(number)
            last = call
        return repeats

    def add_answers(self, calls: Sequence[ToolUse], answers: Mapping[int, ToolAnswer]) -> list[ToolAnswer]:
        """Return the results of all calls in order. `answers` maps positions to the results of the calls that were run.

        A repeat gets the result of the call that it repeats, with a note.
        """
        found: list[ToolAnswer] = []
        for number, call in enumerate(calls, 1):
            answer = answers.get(number)
            if answer is None:
                self.identical_calls += 1
                answer = replace(self._last_answer, text=_describe_repeat(call.name, self._last_answer))
            else:
                self.identical_calls = 1
                self._last_answer = answer
            self._last_call = call
            self._remember(call, answer)
            found.append(answer)
        return found

    def _remember(self, call: ToolUse, answer: ToolAnswer) -> None:
        tool = self._tools.get(call.name)
        if tool is not None and tool.is_polling:
            self._recent.clear()
        else:
            self._recent.append((call, _NUMBER.sub("", answer.text)))

    def _is_repeat(self, call: ToolUse, last: ToolUse) -> bool:
        tool = self._tools.get(call.name)
        is_same = call.name == last.name and call.arguments == last.arguments and call.unreadable == last.unreadable
        return is_same and (tool is None or not tool.is_polling)


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
NOTHING_DONE = (
    "None of your calls has worked, so nothing is done: {tool} failed with this message:\n{answer}\n"
    "Call a tool that does what was asked, or say with not_done why it is not done."
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
        self._is_continued = self._has_acted = False
        self._is_corrected = False
        self._failed_call: tuple[str, str] | None = None
        """The tool and the answer of the last failed call that should change something, until another call works."""
        self._must_prove = False
        """Whether the model must call a tool, or say why the task is not done."""
        self._offered = {tool.name: tool for tool in spec.tools}
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
        elif self._is_unproved and not is_last:
            assert self._failed_call is not None
            tool, answer = self._failed_call
            self._must_prove, self.so_far = True, ""
            yield Superseded()
            prompt = NOTHING_DONE.format(tool=tool, answer=answer)
            yield ModelAskedAgain(reason="none of its calls worked, but it gave an answer", prompt=prompt)
        else:
            if reply.stop == CUT_OFF and self._spec.schema is None:
                yield Text(CUT_OFF_MARK)
            yield Finished(reply.stop, by_tool=self.has_replied)

    @property
    def _is_unproved(self) -> bool:
        """Whether nothing that the model tried has worked, and it was not asked about that yet."""
        is_free = not (self._must_prove or self.looping_tool or self.has_replied)
        return self._failed_call is not None and is_free and self._spec.schema is None

    def add_call(self, call: ToolUse, answer: ToolAnswer, *, is_begun: bool, is_refused: bool) -> None:
        """Take note of a call's answer, to see whether none of the calls that should do something has worked.

        `is_begun` says whether the gate recorded the start of the call, which it does not for calls that only read. A
        refused call counts as one that worked, because the model was told to go on without it. A command or a check
        that fails counts as neither: its failure can be the answer.
        """
        tool = self._offered.get(call.name)
        if is_refused or (not answer.is_error and (is_begun or (tool is not None and not tool.is_step))):
            self._has_acted, self._failed_call, self._must_prove = True, None, False
        elif answer.is_error and not self._has_acted and call.is_emulated and self._should_act(call.name, is_begun):
            # Only a model whose tools are emulated can be kept from answering in words.
            self._failed_call = call.name, answer.text

    def _should_act(self, name: str, is_begun: bool) -> bool:
        """Return whether a failed call should have done something. A call to a tool that does not exist may have."""
        if name not in self._offered:
            return any(tool in self._offered for tool in CHANGING_TOOLS)
        return name in CHANGING_TOOLS or (is_begun and name not in (COMMAND_TOOL, CHECKING_TOOL))

    def list_offered_tools(self) -> tuple[Tool, ...]:
        """Return the tools for the next call."""
        if self.looping_tool:
            return ()
        return (*self._spec.tools, make_not_done_tool()) if self._must_prove else self._spec.tools

    def require_doing(self, calls: Iterable[ToolUse]) -> None:
        """Raise AgentFailed if the model says with one of these calls that the task is not done."""
        if self._must_prove and (said := next((call for call in calls if call.name == NOT_DONE), None)) is not None:
            why = str(said.arguments.get("why") or "it gave no reason")
            message = f"its calls failed, and it says that the task is not done: {why}"
            raise AgentFailed(Failure(kind="failed", agent=self._spec.agent.name, message=message))

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


def _is_same(one: tuple[ToolUse, str], other: tuple[ToolUse, str]) -> bool:
    return (one[0].name, one[0].arguments, one[1]) == (other[0].name, other[0].arguments, other[1])


def _describe_repeat(name: str, answer: ToolAnswer) -> str:
    failed = " and failed" if answer.is_error else ""
    return (
        f"{name} was already called with these arguments{failed}, so the call was not repeated. Continue with the "
        f"next step, or report what was done. The earlier answer was:\n{answer.text}"
    )
