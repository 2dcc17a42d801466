"""An agent that is written with the public SDK. It asks before it writes `made.txt`, and says whether it did."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import acp
from acp import schema


class SdkAgent:
    """Answers each prompt after one permission request."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **rest: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **rest: Any) -> schema.NewSessionResponse:
        self.folders["sdk-1"] = Path(cwd)
        return schema.NewSessionResponse(session_id="sdk-1")

    async def cancel(self, session_id: str, **rest: Any) -> None:
        pass

    async def prompt(self, session_id: str, prompt: list[Any], **rest: Any) -> schema.PromptResponse:
        path = self.folders[session_id] / "made.txt"
        await self.client.session_update(session_id, acp.update_agent_message_text("I will write. "))
        call = schema.ToolCallUpdate(
            tool_call_id="one",
            title="Write made.txt",
            kind="edit",
            status="pending",
            content=[acp.tool_diff_content(str(path), "hello\n")],
        )
        options = [
            schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
            schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        answer = await self.client.request_permission(session_id=session_id, tool_call=call, options=options)
        is_allowed = getattr(answer.outcome, "option_id", "") == "yes"
        if is_allowed:
            path.write_text("hello\n")
        end = acp.update_tool_call("one", status="completed" if is_allowed else "failed")
        await self.client.session_update(session_id, end)
        said = f"{prompt[-1].text.splitlines()[-1]}: {'done' if is_allowed else 'not done'}"
        await self.client.session_update(session_id, acp.update_agent_message_text(said))
        return schema.PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    # The SDK's protocol also has methods that it treats as optional.
    asyncio.run(acp.run_agent(SdkAgent()))  # type: ignore[arg-type]
