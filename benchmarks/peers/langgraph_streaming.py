"""LangGraph receiving streams: a graph of one node that calls the model through LangChain; nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]  # it is in an environment of its own
from langgraph.graph import END, START, MessagesState, StateGraph  # type: ignore[import-not-found]  # likewise

from ..child import MODEL, PROMPT, REQUEST
from ..stream import Call, See, StreamingJobs


@asynccontextmanager
async def open_caller(url: str, see: See | None) -> AsyncIterator[Call]:
    model = ChatOpenAI(model=MODEL, base_url=url, api_key="none", streaming=True, stream_usage=True)

    async def poet(state: Any) -> dict[str, Any]:
        return {"messages": [await model.ainvoke([("system", PROMPT), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("poet", poet)
    graph.add_edge(START, "poet")
    graph.add_edge("poet", END)
    compiled = graph.compile()

    async def call() -> str:
        said = []
        async for piece, _ in compiled.astream({"messages": [("user", REQUEST)]}, stream_mode="messages"):
            said.append(str(piece.content))
            if see is not None:
                see(said[-1])
        return "".join(said)

    yield call


if __name__ == "__main__":
    StreamingJobs(open_caller).serve()
