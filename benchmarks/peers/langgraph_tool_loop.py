"""LangGraph: its prebuilt agent with a function as its tool, streamed; nothing is stored."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]  # it is in an environment of its own
from langgraph.prebuilt import create_react_agent  # type: ignore[import-not-found]  # likewise

from ..child import MODEL, Call, make_calls_job, serve
from ..heap import warm_up_heap
from ..tool_loop_scenario import PROMPT, REQUEST, depth


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    model = ChatOpenAI(model=MODEL, base_url=url, api_key="none", streaming=True, stream_usage=True)
    with warnings.catch_warnings():
        # It warns that its successor is in another package.
        warnings.simplefilter("ignore")
        agent = create_react_agent(model, [depth], prompt=PROMPT)

    async def call() -> str:
        state = await agent.ainvoke({"messages": [("user", REQUEST)]})
        return str(state["messages"][-1].content)

    yield call


if __name__ == "__main__":
    warm_up_heap()
    serve(calls=make_calls_job(open_caller))
