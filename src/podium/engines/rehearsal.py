"""The rehearsal: a model without weights that plays every protocol right and answers nothing.

It follows rules, is instant, and says the same bytes every time. Whatever it says carries the
label, so that nobody takes a rehearsal for an answer.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

from ..mind import Tool
from .model.wire import Call, Heard
from .scripted import Cue, Move, ToolCall, last_request, place_of, play

LABEL = "[rehearsed]"
LONGEST_QUOTE = 120

_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    _WORD.findall(
        "a an and any are as at be by can do does for from has have how i if in is it its me my not of on or our "
        "please so than that the their them then there these this to us was we what when which who will with you your"
    )
)


class RehearsalWire:
    """A model that plays its part by rules."""

    def stream(self, call: Call) -> AsyncGenerator[Heard, None]:
        return play(lambda call: Cue(move=rehearsed(call), place=place_of(call)), call)


def rehearsed(call: Call) -> Move:
    """What a rehearsal says to this call."""
    request = last_request(call)
    is_open = bool(call.messages) and call.messages[-1].role == "user"
    router = next((tool for tool in call.tools if tool.name == "route_to"), None)
    if router is not None and is_open:
        return routed(router, request)
    helpers = [tool.name for tool in call.tools if tool.parameters.get("required") == ["request"]]
    if helpers and is_open:
        return Move(
            says=f"{LABEL} ask {', '.join(helpers)}",
            calls=tuple(ToolCall(name=name, arguments={"request": _quoted(request)}) for name in helpers),
        )
    return Move(says=f"{LABEL} {call.agent} was asked: {_quoted(request)}\nNo model was asked, so this is no answer.")


def routed(router: Tool, request: str) -> Move:
    """The route to the destination whose description has most words in common with the request.

    Between equals the name decides, and then the order in which they are listed.
    """
    asked = _words(request)

    def fit(name: str) -> tuple[int, int]:
        return len(asked & _words(_description(router, name))), len(asked & _words(name))

    names: list[str] = router.parameters["properties"]["agent"]["enum"]
    chosen = max(names, key=fit)
    shared = sorted(asked & (_words(_description(router, chosen)) | _words(chosen)))
    reason = f"{LABEL} words in common with the request: {', '.join(shared) or 'none'}"
    return Move(
        says=f"{LABEL} route to {chosen}",
        calls=(ToolCall(name=router.name, arguments={"agent": chosen, "reason": reason}),),
    )


def _description(router: Tool, name: str) -> str:
    mark = f"- {name}:"
    return next((line.removeprefix(mark) for line in router.description.splitlines() if line.startswith(mark)), "")


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold())) - _COMMON


def _quoted(request: str) -> str:
    """What was asked first, below headings and behind what others have rehearsed."""
    lines = (line.strip() for line in request.splitlines())
    line = next((line for line in lines if line and not line.startswith("#")), "")
    if line.startswith(LABEL):
        line = line.rpartition(" was asked: ")[2]
    return line if len(line) <= LONGEST_QUOTE else f"{line[: LONGEST_QUOTE - 1]}…"
