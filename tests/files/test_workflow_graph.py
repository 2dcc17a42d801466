"""Drawing a workflow: which agents can give the final answer, as a tree and as a flowchart."""

from xml.etree import ElementTree

from podium.files.workflow_graph import (
    find_reachable_agents,
    find_terminal_agents,
    render_mermaid,
    render_svg,
    render_tree,
)
from podium.values.agent import Advisors, Agent, Member, Router, Team

SVG = "{http://www.w3.org/2000/svg}"


def index_by_name(*agents: Agent) -> dict[str, Agent]:
    return {agent.name: agent for agent in agents}


def make_agents(*names: str) -> list[Agent]:
    return [Agent(name=name) for name in names]


def test_a_plain_agent_an_advised_one_and_a_lead_own_their_answers() -> None:
    agents = index_by_name(
        Agent(name="advised", advisors=Advisors(agents=("plain",))),
        Agent(name="lead", team=Team(mode="reflect", members=(Member(agent="plain"),))),
        *make_agents("plain"),
    )

    assert [find_terminal_agents(agents, name) for name in ("plain", "advised", "lead")] == [
        ("plain",),
        ("advised",),
        ("lead",),
    ]


def test_the_last_agent_of_a_chain_owns_the_answer() -> None:
    agents = index_by_name(Agent(name="a", handoff="b"), Agent(name="b", handoff="c"), Agent(name="c"))

    assert find_terminal_agents(agents, "a") == ("c",)


def test_any_destination_of_a_router_may_own_the_answer() -> None:
    desk = Agent(name="desk", router=Router(destinations=("a", "b"), fallback="c"))
    agents = index_by_name(desk, Agent(name="a", handoff="d"), *make_agents("b", "c", "d"))

    assert find_terminal_agents(agents, "desk") == ("d", "b", "c")


def test_a_router_that_hands_off_leaves_the_answer_to_the_receiver() -> None:
    agents = index_by_name(Agent(name="desk", router=Router(destinations=("a",)), handoff="b"), *make_agents("a", "b"))

    assert find_terminal_agents(agents, "desk") == ("b",)


def test_an_endless_chain_has_no_owner() -> None:
    assert find_terminal_agents(index_by_name(Agent(name="a", handoff="b"), Agent(name="b", handoff="a")), "a") == ()


LEAD = index_by_name(
    Agent(
        name="lead",
        advisors=Advisors(agents=("doubter",)),
        team=Team(mode="reflect", members=(Member(agent="desk"), Member(agent="a")), evaluator="judge"),
    ),
    Agent(name="desk", router=Router(destinations=("a", "b"), fallback="b")),
    Agent(name="a", tools=("Agent(b)",)),
    *make_agents("b", "doubter", "judge"),
)


def test_a_tree_shows_every_edge_once_and_marks_the_agents_that_may_give_the_final_answer() -> None:
    assert render_tree(LEAD, "lead").splitlines() == [
        "lead *  [team: reflect]",
        "├─ advice → doubter",
        "├─ member → desk  [router]",
        "│  ├─ route → a",
        "│  │  └─ tool → b",
        "│  └─ route, fallback → b (see above)",
        "├─ member → a (see above)",
        "└─ evaluator → judge",
        "",
        "* may give the final answer",
    ]


def test_a_tree_of_a_router_marks_its_destinations() -> None:
    assert render_tree(LEAD, "desk").splitlines()[:4] == [
        "desk  [router]",
        "├─ route → a *",
        "│  └─ tool → b *",
        "└─ route, fallback → b * (see above)",
    ]


def test_a_flowchart_has_a_node_for_each_agent_and_a_label_on_each_edge() -> None:
    assert render_mermaid(LEAD, "desk").splitlines() == [
        "flowchart TD",
        "    %% round ends: may give the final answer",
        '    n0["desk  [router]"]',
        '    n1(["a"])',
        '    n2(["b"])',
        '    n0 -->|"route"| n1',
        '    n0 -->|"route, fallback"| n2',
        '    n1 -->|"tool"| n2',
    ]


def test_no_name_can_break_out_of_a_flowchart() -> None:
    evil = 'x"]; click n0 "javascript:alert(1)"\n<b>#`&'

    drawing = render_mermaid(index_by_name(Agent(name=evil)), evil)

    assert drawing.splitlines()[2:] == [
        '    n0(["x#quot;]; click n0 #quot;javascript:alert(1)#quot; #lt;b#gt;#35;#96;#amp;"])'
    ]


def test_missing_agents_are_drawn_as_missing() -> None:
    agents = index_by_name(Agent(name="a", handoff="ghost"))

    assert "└─ handoff → ghost (missing)" in render_tree(agents, "a")
    assert 'n1["ghost (missing)"]' in render_mermaid(agents, "a")


def test_a_cycle_and_a_very_long_chain_are_drawn_and_end() -> None:
    agents = index_by_name(*(Agent(name=f"a{place}", handoff=f"a{(place + 1) % 5000}") for place in range(5000)))

    assert len(find_reachable_agents(agents, "a0")) == 5000
    assert render_mermaid(agents, "a0").count("-->") == 5000
    assert "a40 ..." in render_tree(agents, "a0")


def test_an_svg_shows_every_agent_and_marks_those_that_may_give_the_final_answer() -> None:
    drawn = ElementTree.fromstring(render_svg(LEAD, "desk"))

    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    finals = [box for box in drawn.iter(f"{SVG}rect") if box.get("class") == "final"]  # b can be reached in two ways
    assert all(any((text or "").startswith(name) for text in texts) for name in find_reachable_agents(LEAD, "desk"))
    assert (len(finals), find_terminal_agents(LEAD, "desk")) == (3, ("a", "b"))


def test_no_name_breaks_out_of_an_svg() -> None:
    evil = '"><script>alert(1)</script>\x1b'

    drawn = ElementTree.fromstring(render_svg(index_by_name(Agent(name=evil, handoff="ghost")), evil))

    assert list(drawn.iter("script")) == []
    assert any((text.text or "").startswith("ghost (missing)") for text in drawn.iter(f"{SVG}text"))
