from __future__ import annotations

from podium.values.event import ContextCompacted, Entry, Event, ModelReplied, OperationEnded, TurnStarted
from podium.values.usage import Usage
from podium.views.run_state.model_usage import ContextUse, RunUsage


def start_turn(agent: str = "coder", model: str = "openai:gpt-5-mini") -> TurnStarted:
    return TurnStarted(agent=agent, engine=model, prompt="go")


def reply(tokens: int, model: str = "gpt-5-mini") -> ModelReplied:
    usage = Usage(calls=1, input_tokens=tokens - 10, cached_tokens=tokens // 2, output_tokens=10) if tokens else Usage()
    return ModelReplied(model=model, usage=usage)


def find_largest(*events: Event | tuple[str, Event]) -> ContextUse | None:
    """Return the largest conversation after these events; an event of an operation other than `lead` is a pair."""
    builder = RunUsage()
    for seq, one in enumerate(events, 1):
        operation, event = one if isinstance(one, tuple) else ("lead", one)
        builder.apply(Entry(run="r", seq=seq, at=0.0, scope=operation, operation=operation, event=event))
    return builder.largest_context


def test_the_last_call_says_how_large_a_conversation_is() -> None:
    expected = ContextUse(agent="coder", model="openai:gpt-5-mini", tokens=3000)

    assert find_largest(start_turn(), reply(1000), reply(3000)) == expected
    assert find_largest(start_turn(), reply(3000), OperationEnded(outcome="succeeded")) == expected


def test_of_several_agents_the_one_with_the_largest_conversation_counts_while_it_works() -> None:
    events = (start_turn(), reply(1000), ("lead/b#1", start_turn("tester")), ("lead/b#1", reply(5000)))

    largest, later = find_largest(*events), find_largest(*events, ("lead/b#1", OperationEnded(outcome="succeeded")))

    assert largest is not None
    assert later is not None
    assert (largest.agent, largest.tokens) == ("tester", 5000)
    assert (later.agent, later.tokens) == ("coder", 1000)


def test_nothing_is_known_before_a_call_after_a_summary_and_for_a_model_without_provider_or_counts() -> None:
    assert find_largest(start_turn()) is None
    assert find_largest(start_turn(), reply(9000), ContextCompacted(summary="s", replaced=4)) is None
    assert find_largest(start_turn(), reply(9000), reply(50, model="another")) is None
    assert find_largest(start_turn(), reply(0)) is None
