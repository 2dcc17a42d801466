"""The scenario of the tool loop benchmark: a tool, and a request whose script has the model call it before answering.

The script is part of the request, so every program that sends it gets the same conversation. Peers import
this module in their own environments, so it needs only the standard library.
"""

from __future__ import annotations

import json

HARBOURS = ("Cuxhaven", "Brunsbuettel", "Helgoland", "Wilhelmshaven", "Emden")
"""One for each call, because Podium stops a model that repeats the same call."""
QUESTIONS = len(HARBOURS)
PROMPT = "You are a pilot who looks depths up before he speaks."
ANSWER = "Cuxhaven is deep enough for us at any tide, and there is room at the long pier. " * 4
PIECES = 20

_QUESTIONS = [{"calls": [{"name": "depth", "arguments": {"harbour": harbour}}]} for harbour in HARBOURS]
_SCRIPT = json.dumps([*_QUESTIONS, {"says": ANSWER, "pieces": PIECES}])
REQUEST = f"Where can we lie tonight?\n\n```script\n{_SCRIPT}\n```"


async def depth(harbour: str) -> str:
    """How deep the water is in a harbour."""
    return f"{harbour}: 7.5 m at low water"


TOOL = {
    "type": "function",
    "function": {
        "name": "depth",
        "description": depth.__doc__,
        "parameters": {"type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]},
    },
}
"""The tool in the format of OpenAI's API, for programs that build requests themselves."""
