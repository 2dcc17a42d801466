"""Patterns inside patterns: every pattern can contain every other."""

from __future__ import annotations

from msgspec import structs

from podium.values.agent import Advisors
from podium.values.event import OperationStarted
from podium.values.usage import Usage
from podium.views.run_state.tree import RunView

from ..studio import Studio
from .test_router import routes_to


async def test_an_advised_agent_hands_its_answer_on(studio: Studio) -> None:
    studio.agent("legal", says=["fine"])
    studio.agent("boss", says=["decided"], advisors=["legal"], handoff="clerk")
    studio.agent("clerk", says=["filed"])

    result = await studio.run("boss", "well?")

    assert result.text == "filed"
    assert studio.heard("clerk") == [
        "decided\n\n[context for you only: original request]\n> well?\n\n[context for you only: handoff from boss]"
    ]


async def test_the_destinations_answer_is_what_a_router_hands_off(studio: Studio) -> None:
    studio.agent("desk", says=[routes_to("billing")], router=True, agents=["billing"], handoff="editor")
    studio.agent("billing", says=["paid"])
    studio.agent("editor", says=["Dear customer, it is paid."])

    result = await studio.run("desk", "refund?")

    assert result.text == "Dear customer, it is paid."
    assert studio.heard("editor")[0].startswith("paid\n\n")


async def test_an_advisor_may_itself_be_a_router_with_a_chain_behind_it(studio: Studio) -> None:
    studio.agent("boss", says=["go"], advisors=["desk"])
    studio.agent("desk", says=[routes_to("tax")], router=True, agents=["tax"])
    studio.agent("tax", says=["draft"], handoff="senior")
    studio.agent("senior", says=["no tax"])

    result = await studio.run("boss", "well?")

    assert result.text == "go"
    assert "### From desk\n\nno tax" in studio.heard("boss")[0]
    assert [(event.agent, event.trigger) for event in studio.events(result, OperationStarted)] == [
        ("boss", "request"),
        ("desk", "advice"),
        ("tax", "route"),
        ("senior", "handoff"),
    ]


async def test_a_router_with_advisors_routes_the_request_it_was_given_not_the_advice(studio: Studio) -> None:
    studio.agent("hint", says=["billing, I think"])
    studio.agent("desk", says=[routes_to("billing")], router=True, agents=["billing"], advisors=["hint"])
    studio.agent("billing", says=["paid"])

    await studio.run("desk", "refund?")

    assert "### From hint" in studio.heard("desk")[0]
    assert studio.heard("billing")[0].startswith(
        "refund?\n\n[context for you only: why you were chosen for this request]"
    )


async def test_a_router_in_the_middle_of_a_chain_routes_the_answer_before_it(studio: Studio) -> None:
    studio.agent("intake", says=["a clean summary"], handoff="desk")
    studio.agent("desk", says=[routes_to("billing")], router=True, agents=["billing"])
    studio.agent("billing", says=["paid"])

    result = await studio.run("intake", "well, you see")

    assert result.text == "paid"
    assert studio.heard("billing") == [
        "a clean summary\n\n[context for you only: original request]\n> well, you see\n\n"
        "[context for you only: handoff from intake]\n\n"
        "[context for you only: why you were chosen for this request]\n> it fits"
    ]


async def test_a_failure_deep_inside_an_advisor_is_one_section_with_its_place(studio: Studio) -> None:
    studio.agent("boss", says=["go"], advisors=Advisors(agents=("desk",), require="none"))
    studio.agent("desk", says=["first"], handoff="senior")
    studio.agent("senior", says=[{"fails": {"status": 400, "message": "asleep"}}])

    result = await studio.run("boss", "well?")

    assert result.succeeded
    section = studio.heard("boss")[0].partition("### From desk\n\n")[2]
    assert section.startswith("unavailable: handoff stage 2 of 2 (senior): ")
    assert "asleep" in section


async def test_usage_rolls_up_the_tree_exactly_once(studio: Studio) -> None:
    spent = {"input_tokens": 5, "output_tokens": 2}
    studio.agent("boss", says=[{"says": "go", "usage": spent}], advisors=["desk", "risk"], handoff="clerk")
    studio.agent("desk", says=[structs.replace(routes_to("tax"), usage=Usage(**spent))], router=True, agents=["tax"])
    for name in ("tax", "risk", "clerk"):
        studio.agent(name, says=[{"says": name, "usage": spent}])

    result = await studio.run("boss", "well?")

    run_view = RunView.from_entries(studio.entries(result))
    assert run_view.root is not None
    by_agent = {node.agent: node.usage.input_tokens for node in run_view.root.walk()}
    assert by_agent == {"boss": 25, "desk": 10, "tax": 5, "risk": 5, "clerk": 5}
    assert result.usage.input_tokens == run_view.usage.input_tokens == 25
    assert result.usage.calls == 5
