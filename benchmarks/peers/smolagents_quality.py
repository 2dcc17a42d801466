"""smolagents at the tasks of the quality benchmark: one of three managed agents is called, and one exact edit."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import smolagents  # type: ignore[import-not-found]  # it is in an environment of its own

from ..quality_scenario import CODER_PROMPT, DESTINATIONS, ROUTER_PROMPT, replace_text


def main(task: str, request: str, folder: Path) -> None:
    model = smolagents.OpenAIServerModel(
        model_id=os.environ["QUALITY_MODEL"],
        api_base=os.environ["QUALITY_URL"],
        api_key=os.environ["QUALITY_KEY"],
        # Without a limit, the small model repeats itself up to the server's limit, which takes minutes a step.
        max_tokens=512,
    )
    chosen: list[str] = []
    agent = make_router(model, chosen) if task == "route" else make_coder(model, folder)
    prompt = ROUTER_PROMPT if task == "route" else CODER_PROMPT
    # Without a final answer within its steps, the run ends with the state max_steps_error.
    result = agent.run(f"{prompt}\n\n{request}", return_full_result=True)
    if result.state != "success":
        sys.exit(f"ended with {result.state}")
    print(json.dumps({"chosen": chosen[-1] if chosen else "", "answer": str(result.output)}))


def make_router(model: Any, chosen: list[str]) -> Any:
    def make_member(name: str, text: str) -> Any:
        member = smolagents.ToolCallingAgent(
            tools=[], model=model, name=name, description=text, max_steps=2, verbosity_level=smolagents.LogLevel.OFF
        )

        def answer(*_: Any, **__: Any) -> str:
            """Answer at once: only the choice is measured."""
            chosen.append(name)
            return "done"

        member.run = answer
        return member

    members = [make_member(name, text) for name, text in DESTINATIONS.items()]
    return smolagents.ToolCallingAgent(
        tools=[], model=model, managed_agents=members, max_steps=4, verbosity_level=smolagents.LogLevel.OFF
    )


def make_coder(model: Any, folder: Path) -> Any:
    @smolagents.tool  # type: ignore[untyped-decorator]
    def edit_file(path: str, old_text: str, new_text: str) -> str:
        """Replace old_text with new_text in a file.

        Args:
            path: The file.
            old_text: The text to replace.
            new_text: The text to put in its place.
        """
        return replace_text(folder / path, old_text, new_text)

    return smolagents.ToolCallingAgent(
        tools=[edit_file], model=model, max_steps=6, verbosity_level=smolagents.LogLevel.OFF
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
