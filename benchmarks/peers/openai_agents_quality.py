"""The OpenAI Agents SDK at the tasks of the quality benchmark: a handoff to one of three agents, and one exact edit."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import agents  # type: ignore[import-not-found]  # it is in an environment of its own
from openai import AsyncOpenAI

from ..quality_scenario import CODER_PROMPT, DESTINATIONS, ROUTER_PROMPT, replace_text


async def main(task: str, request: str, folder: Path) -> None:
    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=os.environ["QUALITY_URL"], api_key=os.environ["QUALITY_KEY"])
    model = agents.OpenAIChatCompletionsModel(model=os.environ["QUALITY_MODEL"], openai_client=client)
    agent = make_router(model) if task == "route" else make_coder(model, folder)
    result = await agents.Runner.run(agent, request, max_turns=6)
    name = result.last_agent.name
    print(json.dumps({"chosen": name if name in DESTINATIONS else "", "answer": str(result.final_output)}))


def make_router(model: Any) -> Any:
    members = [
        agents.Agent(name=name, handoff_description=text, instructions="Say: done.", model=model)
        for name, text in DESTINATIONS.items()
    ]
    return agents.Agent(name="desk", instructions=ROUTER_PROMPT, handoffs=members, model=model)


def make_coder(model: Any, folder: Path) -> Any:
    @agents.function_tool  # type: ignore[untyped-decorator]
    def edit_file(path: str, old_text: str, new_text: str) -> str:
        """Replace old_text with new_text in a file."""
        return replace_text(folder / path, old_text, new_text)

    return agents.Agent(name="coder", instructions=CODER_PROMPT, tools=[edit_file], model=model)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
