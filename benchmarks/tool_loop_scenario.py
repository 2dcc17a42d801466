"""What the tool loop is about: a tool, and a request whose script has the model ask for it before it answers.

The script rides in the request, so whoever sends it is played the same conversation. Peers import
this in environments of their own, so it needs nothing but the standard library.
"""

from __future__ import annotations

import json

QUESTIONS = 5
PROMPT = "You are a pilot who looks depths up before he speaks."
ANSWER = "Cuxhaven is deep enough for us at any tide, and there is room at the long pier. " * 4
PIECES = 20

_QUESTION = {"calls": [{"name": "depth", "arguments": {"harbour": "Cuxhaven"}}]}
_SCRIPT = json.dumps([_QUESTION] * QUESTIONS + [{"says": ANSWER, "pieces": PIECES}])
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
"""The tool as OpenAI's API wants it, for those who write that themselves."""
