"""LangGraph: a graph of one node that calls the model through LangChain, streamed; nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]  # it is in an environment of its own
from langgraph.graph import END, START, MessagesState, StateGraph  # type: ignore[import-not-found]  # likewise

from ..child import MODEL, PROMPT, REQUEST, Call, make_calls_job, serve


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    model = ChatOpenAI(model=MODEL, base_url=url, api_key="none", streaming=True, stream_usage=True)

    async def poet(state: Any) -> dict[str, Any]:
        return {"messages": [await model.ainvoke([("system", PROMPT), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("poet", poet)
    graph.add_edge(START, "poet")
    graph.add_edge("poet", END)
    compiled = graph.compile()

    async def call() -> str:
        state = await compiled.ainvoke({"messages": [("user", REQUEST)]})
        return str(state["messages"][-1].content)

    yield call


if __name__ == "__main__":
    serve(calls=make_calls_job(open_caller))
