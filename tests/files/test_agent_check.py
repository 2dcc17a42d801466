"""Whether agents fit together: one clear error for every violated rule."""

from typing import Any

import pytest

from podium.files import agent_check
from podium.files.agent_check import find_schema_mismatches
from podium.values.agent import Agent, Member, Router, Team
from podium.values.team_modes import Mode


def index_by_name(*agents: Agent) -> dict[str, Agent]:
    return {agent.name: agent for agent in agents}


def team(*members: str, mode: Mode = "orchestrate", evaluator: str | None = None) -> Team:
    return Team(mode=mode, members=tuple(Member(agent=name) for name in members), evaluator=evaluator)


def check_messages(*agents: Agent) -> list[str]:
    return [str(diagnostic) for diagnostic in agent_check.check_agents(index_by_name(*agents))]


def test_agents_that_fit_together_give_no_diagnostics() -> None:
    lead = Agent(name="lead", team=team("builder", "builder-2", evaluator="judge"), agents=("helper",))
    names = ("builder", "builder-2", "judge", "helper")

    assert check_messages(lead, *(Agent(name=name) for name in names)) == []


@pytest.mark.parametrize(
    ("planner", "key"),
    [
        (Agent(name="planner", handoff="tester"), "handoff"),
        (Agent(name="planner", agents=("tester",)), "agents"),
        (Agent(name="planner", tools=("Read", "Agent(tester)")), "tools"),
        (Agent(name="planner", router=Router(destinations=("tester",))), "router.destinations"),
        (Agent(name="planner", router=Router(destinations=("builder",), fallback="tester")), "router.fallback"),
        (Agent(name="planner", team=team("tester")), "team.members"),
        (Agent(name="planner", team=team("builder", evaluator="tester")), "team.evaluator"),
    ],
)
def test_a_missing_agent_is_an_error_with_the_known_names(planner: Agent, key: str) -> None:
    others = Agent(name="builder"), Agent(name="taster")

    assert check_messages(planner, *others) == [
        f'agent planner: {key}: agent "tester" not found; available: taster and builder'
    ]


def test_missing_agents_beyond_the_limit_are_counted() -> None:
    found = check_messages(Agent(name="lead", team=team(*(f"ghost-{number}" for number in range(100_000)))))

    assert len(found) == agent_check.MAX_MISSING + 1
    assert found[-1] == "agent lead: 99980 more agents listed here were not found"


def test_without_other_agents_the_error_says_how_to_write_one() -> None:
    [sentence] = check_messages(Agent(name="planner", handoff="tester"))

    assert sentence.endswith("none are available; create one as .podium/agents/NAME.md")


def test_an_agent_whose_file_is_broken_is_not_missing() -> None:
    assert agent_check.check_agents(index_by_name(Agent(name="planner", handoff="tester")), broken={"tester"}) == ()


def test_a_cycle_is_reported_once_with_its_whole_path_whatever_its_edges_are() -> None:
    found = check_messages(
        Agent(name="a", handoff="b"),
        Agent(name="b", agents=("c",)),
        Agent(name="c", router=Router(destinations=("d",))),
        Agent(name="d", team=team("e")),
        Agent(name="e", tools=("Agent(a)",)),
    )

    assert found == [
        "agent a: handoff: agents form a cycle: a -> b -> c -> d -> e -> a; remove one of these references"
    ]


def test_two_cycles_are_two_errors() -> None:
    found = check_messages(
        Agent(name="a", agents=("b", "c")), Agent(name="b", agents=("a",)), Agent(name="c", handoff="c")
    )

    assert ["a -> b -> a" in found[0], "c -> c" in found[1], len(found)] == [True, True, 2]


def test_one_agent_that_is_referenced_twice_is_no_cycle() -> None:
    assert check_messages(Agent(name="a", agents=("b", "c")), Agent(name="b", handoff="c"), Agent(name="c")) == []


def test_the_lead_of_a_discussion_may_be_one_of_its_members_and_no_other_lead_may() -> None:
    assert check_messages(Agent(name="a", team=team("a", "b", mode="discuss")), Agent(name="b")) == []
    assert "a -> a" in check_messages(Agent(name="a", team=team("a", "b")), Agent(name="b"))[0]


def test_cycles_beyond_the_limit_are_cut_short() -> None:
    names = [f"a{number}" for number in range(12)]

    found = check_messages(*(Agent(name=name, agents=tuple(names)) for name in names))

    assert len(found) == agent_check.MAX_CYCLES + 1
    assert found[-1].endswith("more than 50 cycles; break the reported ones first")


@pytest.mark.parametrize(
    ("lead", "key", "message"),
    [
        (
            Agent(name="lead", router=Router(destinations=("a",)), agents=("b",)),
            "router",
            "both router and agents list",
        ),
        (
            Agent(name="lead", router=Router(destinations=("a",)), team=team("b")),
            "router",
            "cannot be a router and lead a team",
        ),
        (Agent(name="lead", router=Router()), "router", "a router needs at least one destination"),
        (
            Agent(name="lead", team=team("a", evaluator="lead")),
            "team.evaluator",
            "the lead cannot evaluate its own work",
        ),
        (
            Agent(name="lead", team=team("a"), handoff="b"),
            "handoff",
            "a team lead cannot hand off, because it gives the",
        ),
        (Agent(name="lead", team=team()), "team.members", "a team needs at least one member"),
        (
            Agent(name="lead", team=team("a", "a")),
            "team.members",
            "duplicate member names: a; give each member a",
        ),
    ],
)
def test_keys_that_exclude_each_other_are_rejected(lead: Agent, key: str, message: str) -> None:
    [diagnostic] = agent_check.check_agents(index_by_name(lead, Agent(name="a"), Agent(name="b")))

    assert diagnostic.severity == "error"
    assert diagnostic.key == key
    assert message in diagnostic.message


def test_a_router_may_hand_off_what_its_destination_says() -> None:
    router = Agent(name="desk", router=Router(destinations=("a",)), handoff="b")

    assert check_messages(router, Agent(name="a"), Agent(name="b")) == []


def chain(length: int, **last: Any) -> list[Agent]:
    agents = [Agent(name=f"a{place}", handoff=f"a{place + 1}") for place in range(length - 1)]
    return [*agents, Agent(name=f"a{length - 1}", **last)]


def test_agents_may_be_nested_sixteen_deep_and_not_deeper() -> None:
    assert check_messages(*chain(16)) == []

    [sentence] = check_messages(*chain(17))

    assert sentence.startswith("agent a0: agents are nested 17 levels deep, but the maximum is 16: a0 -> a1 -> a2")


def test_a_chain_of_thousands_of_agents_is_only_a_long_message() -> None:
    [too_deep] = check_messages(*chain(5000))
    [cycle] = check_messages(*chain(5000, handoff="a0"))

    assert "nested 5000 levels deep" in too_deep
    assert cycle.count(" -> ") == 5000


def object_schema(*required: str, **properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": {name: {"type": kind} for name, kind in properties.items()},
    }


def test_an_output_that_does_not_fit_the_input_of_the_next_stage_is_an_error() -> None:
    planner = Agent(name="planner", handoff="builder", output=object_schema("plan", plan="string"))
    builder = Agent(name="builder", input=object_schema("plan", "files", plan="string", files="array"))

    assert check_messages(planner, builder) == [
        "agent planner: handoff: the output of planner does not match the input of builder: "
        'the input requires the property "files", but the output schema does not declare it'
    ]


def test_the_output_of_a_router_is_that_of_its_destinations() -> None:
    desk = Agent(name="desk", router=Router(destinations=("a", "b")), handoff="end", output=object_schema())
    a = Agent(name="a", output=object_schema("x", x="integer"))
    b = Agent(name="b", handoff="c")
    c = Agent(name="c", output=object_schema("x", x="string"))
    end = Agent(name="end", input=object_schema("x", x="number"))

    [sentence] = check_messages(desk, a, b, c, end)

    assert 'the output of c does not match the input of end: the property "x" is string, but' in sentence


def test_a_schema_on_one_side_only_claims_nothing() -> None:
    assert check_messages(Agent(name="a", handoff="b", output=object_schema("x")), Agent(name="b")) == []
    assert check_messages(Agent(name="a", handoff="b"), Agent(name="b", input=object_schema("x"))) == []


@pytest.mark.parametrize(
    ("output", "needed", "misfit"),
    [
        (object_schema("x", x="string"), object_schema("x", x="string"), None),
        (object_schema("x", "y", x="string", y="null"), object_schema("x", x="string"), None),
        (object_schema("x", x="integer"), object_schema("x", x="number"), None),
        (
            object_schema("x", x="number"),
            object_schema("x", x="integer"),
            'the property "x" is integer or number, but must be integer',
        ),
        (
            object_schema(x="string"),
            object_schema("x"),
            'the input requires the property "x", but it is optional in the output schema; ',
        ),
        ({"type": "string"}, object_schema(), "the output is string, but must be object"),
        ({"type": ["string", "null"]}, {"type": "string"}, "the output is null or string, but must be string"),
        ({"anyOf": [object_schema()]}, object_schema("x"), None),
        (object_schema("x"), {"$ref": "#/x"}, None),
        (
            {"type": "array", "items": object_schema(x="string")},
            {"type": "array", "items": object_schema(x="object")},
            'the property "[].x" is string, but must be object',
        ),
        ({"properties": 5, "required": "x", "type": 7}, {"properties": [], "required": [1], "type": {}}, None),
    ],
)
def test_schemas_are_compared_by_required_properties_and_plain_types(
    output: dict[str, Any], needed: dict[str, Any], misfit: str | None
) -> None:
    found = next(find_schema_mismatches(output, needed), None)

    assert (found is None) if misfit is None else (found is not None and found.startswith(misfit))
