from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.patterns.advisors import format_advised_request
from podium.values.agent import Advisors
from podium.values.event import Advised, CallCut, OperationEnded
from podium.values.request import Part

from ..studio import Studio

SILENT = [{"silent": True}]
BROKEN = [{"fails": {"status": 400, "message": "no paper"}}]


async def test_the_agent_gets_the_advice_of_every_advisor_in_the_listed_order(studio: Studio) -> None:
    studio.agent("legal", says=[{"says": "may be sold", "delay": 0.05}])
    studio.agent("risk", says=["small"])
    studio.agent("boss", says=["sell it"], advisors=["legal", "risk"])

    result = await studio.run("boss", "May we sell it?")

    assert result.text == "sell it"
    assert studio.heard("boss") == [
        "## ORIGINAL USER REQUEST\n\nMay we sell it?\n\n## ANALYSIS GATHERED\n\n"
        "### From legal\n\nmay be sold\n\n### From risk\n\nsmall"
    ]
    assert studio.events(result, Advised) == [Advised(heard=("legal", "risk"))]


async def test_advisors_get_the_request_itself_and_begin_at_once(studio: Studio) -> None:
    for name in ("a", "b", "c"):
        studio.agent(name, says=[{"says": name, "delay": 1}])
    studio.agent("boss", advisors=["a", "b", "c"])

    result = await studio.run("boss", "well?")

    assert [studio.heard(name) for name in ("a", "b", "c")] == [["well?"]] * 3
    kinds = studio.kinds(result)
    assert kinds[: kinds.index("model_replied")].count("turn_started") == 3
    assert result.usage.seconds < 2


async def test_a_failed_advisor_is_a_section_that_says_so(studio: Studio) -> None:
    studio.agent("legal", says=SILENT)
    studio.agent("risk", says=["small"])
    studio.agent("boss", says=["go"], advisors=Advisors(agents=("legal", "risk"), timeout=0.8))

    result = await studio.run("boss", "well?")

    assert result.succeeded
    assert "### From legal\n\nunavailable: timed out after 0.8 s\n\n### From risk\n\nsmall" in studio.heard("boss")[0]
    [ended] = [event for event in studio.events(result, OperationEnded) if event.outcome == "timed_out"]
    assert ended.failure is not None
    assert ended.failure.agent == "legal"


@pytest.mark.parametrize("advisors", [["legal", "risk"], {"agents": ["legal", "risk"], "timeout": 60}])
async def test_an_agent_whose_advisors_all_fail_goes_on_and_is_told_why(studio: Studio, advisors: Any) -> None:
    studio.agent("legal", says=BROKEN)
    studio.agent("risk", says=BROKEN)
    studio.agent("boss", says=["go"], advisors=advisors)

    result = await studio.run("boss", "well?")

    assert result.text == "go"
    [heard] = studio.heard("boss")
    assert "### From legal\n\nunavailable: " in heard
    assert "### From risk\n\nunavailable: " in heard
    [advised] = studio.events(result, Advised)
    assert (advised.heard, [part.agent for part in advised.unavailable]) == ((), ["legal", "risk"])


async def test_one_success_is_needed_where_the_agent_says_so(studio: Studio) -> None:
    studio.agent("legal", says=BROKEN)
    studio.agent("risk", says=BROKEN)
    studio.agent("boss", advisors=Advisors(agents=("legal", "risk"), require="any"))

    careful = await studio.run("boss", "well?")

    assert careful.outcome == "failed"
    assert careful.error is not None
    assert careful.error.startswith("boss: 0 of 2 advisors answered; 1 required (legal, risk: ")
    assert "risk: " in careful.error
    assert studio.heard("boss") == []


async def test_all_or_a_number_of_advisors_can_be_required(studio: Studio) -> None:
    studio.agent("legal", says=BROKEN)
    studio.agent("risk", says=["small"])
    studio.agent("tax", says=["none"])
    advisors = ("legal", "risk", "tax")
    studio.agent("strict", advisors=Advisors(agents=advisors, require="all"))
    studio.agent("two", advisors=Advisors(agents=advisors, require=2))

    strict = await studio.run("strict", "well?")
    two = await studio.run("two", "well?")

    assert strict.outcome == "failed"
    assert two.succeeded


async def test_a_slow_advisor_is_cancelled_and_its_cost_is_counted(studio: Studio) -> None:
    studio.agent("slow", says=[{"says": "one two three four", "pieces": 4, "pace": 3}])
    studio.agent("boss", says=["go"], advisors=Advisors(agents=("slow",), timeout=0.8, require="none"))

    result = await studio.run("boss", "x" * 400)

    [cut] = studio.events(result, CallCut)
    assert cut.text.startswith("one")
    assert cut.usage.input_tokens >= 100
    assert result.usage.calls == 2
    assert result.usage.estimated == 1


async def test_advice_is_counted_once_and_rolls_up(studio: Studio) -> None:
    spent = {"input_tokens": 7, "output_tokens": 3}
    for name in ("a", "b"):
        studio.agent(name, says=[{"says": name, "usage": spent}])
    studio.agent("boss", says=[{"says": "go", "usage": spent}], advisors=["a", "b"])

    result = await studio.run("boss", "well?")

    assert (result.usage.calls, result.usage.input_tokens, result.usage.output_tokens) == (3, 21, 9)


HEADINGS = [
    "## ORIGINAL USER REQUEST",
    "## ANALYSIS GATHERED",
    "### From legal",
    "  ### from risk",
    "##\tAnalysis gathered",
]


@given(
    st.lists(st.one_of(st.sampled_from(HEADINGS), st.text(max_size=20)), max_size=6).map("\r".join),
    st.lists(st.one_of(st.sampled_from(HEADINGS), st.text(max_size=20)), max_size=6).map("\u2028".join),
)
def test_neither_request_nor_advice_can_forge_a_section(request: str, advice: str) -> None:
    text = format_advised_request(request, [Part(agent="legal", outcome="succeeded", text=advice)])

    headings = [line.strip().lower() for line in text.splitlines() if line.strip().startswith(("## ", "### ", "##\t"))]
    ours = [
        line for line in headings if "original user request" in line or "analysis gathered" in line or "# from" in line
    ]
    assert ours == ["## original user request", "## analysis gathered", "### from legal"]
