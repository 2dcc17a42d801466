"""LangGraph: a node that plans, one that gets each worker's task, and one that answers; nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import add
from typing import Annotated, Any, TypedDict

from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]  # it is in an environment of its own
from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]  # likewise
from langgraph.types import Send  # type: ignore[import-not-found]  # likewise

from ..child import MODEL, Call, make_calls_job, serve
from ..heap import warm_up_heap
from ..team_scenario import LEAD, parse_assignments, planning_prompt, synthesis_prompt, task_prompt, worker_prompt


class State(TypedDict, total=False):
    """The state passed between nodes. Nodes that run in parallel add their results in the order of the plan."""

    plan: str
    found: Annotated[list[str], add]
    answer: str


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    model = ChatOpenAI(model=MODEL, base_url=url, api_key="none", streaming=True, stream_usage=True)

    async def plan(state: State) -> dict[str, Any]:
        reply = await model.ainvoke([("system", LEAD), ("user", planning_prompt())])
        return {"plan": str(reply.content)}

    def send_tasks(state: State) -> list[Any]:
        return [Send("worker", assignment) for assignment in parse_assignments(state["plan"])]

    async def worker(assignment: dict[str, str]) -> dict[str, Any]:
        reply = await model.ainvoke(
            [("system", worker_prompt(assignment["worker"])), ("user", task_prompt(assignment))]
        )
        return {"found": [str(reply.content)]}

    async def answer(state: State) -> dict[str, Any]:
        asked = synthesis_prompt(parse_assignments(state["plan"]), state["found"])
        said = [("system", LEAD), ("user", planning_prompt()), ("assistant", state["plan"]), ("user", asked)]
        return {"answer": str((await model.ainvoke(said)).content)}

    graph = StateGraph(State)
    graph.add_node("plan", plan)
    graph.add_node("worker", worker)
    graph.add_node("answer", answer)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", send_tasks, ["worker"])
    graph.add_edge("worker", "answer")
    graph.add_edge("answer", END)
    compiled = graph.compile()

    async def call() -> str:
        return str((await compiled.ainvoke({}))["answer"])

    yield call


if __name__ == "__main__":
    warm_up_heap()
    serve(calls=make_calls_job(open_caller))
