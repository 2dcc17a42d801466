"""The tools that agents get from well-behaved servers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import anyio
import pytest

from podium.core.gate import InvalidCall
from podium.mcp_client.server_table import McpServer
from podium.values.action import Action
from podium.values.event import ToolUse

from .bench import RAW, SDK, Bench, call_tool, find_tool, make_tool_use, python_server


async def test_a_tool_of_a_server_is_offered_and_answers(bench: Bench) -> None:
    async with bench.servers(python_server("bench", SDK)) as servers:
        add = await find_tool(servers, "mcp__bench__add")

        answer = await call_tool(add, a=1, b=2)

    assert (answer.text, answer.is_error) == ("3", False)
    assert (add.name, add.description, add.timeout) == ("mcp__bench__add", "Adds two numbers.", 60.0)
    assert add.parameters["required"] == ["a", "b"]
    assert bench.notices == []


async def test_all_agents_of_a_run_share_one_process(bench: Bench) -> None:
    pids: list[str] = []

    async with bench.servers(python_server("bench", SDK)) as servers:

        async def agent() -> None:
            pids.append((await call_tool(await find_tool(servers, "mcp__bench__pid"))).text)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(agent)

    assert len(pids) == 5
    assert len(set(pids)) == 1


async def test_an_agent_gets_the_tools_that_its_list_selects(bench: Bench) -> None:
    async with bench.servers(python_server("raw", RAW), python_server("other", RAW)) as servers:

        async def list_names(*tool_names: str, disallowed: tuple[str, ...] = ()) -> list[str]:
            return [acting.name for acting in await servers.acting(tool_names, disallowed=disallowed)]

        everything = ["mcp__raw__say", "mcp__raw__again", "mcp__raw__change"]
        assert await list_names("mcp__raw") == everything
        assert await list_names("mcp__raw__*") == everything
        assert await list_names("mcp__raw__s*", "mcp__raw__say", "Read") == ["mcp__raw__say"]
        assert await list_names("mcp__raw", disallowed=("mcp__raw__s*", "mcp__other")) == everything[1:]
        assert await list_names("mcp__raw", disallowed=("mcp__raw",)) == []
        assert await list_names("mcp__other__say", "mcp__raw__say") == ["mcp__other__say", "mcp__raw__say"]


async def test_an_unknown_server_or_tool_gives_a_notice(bench: Bench) -> None:
    async with bench.servers(python_server("raw", RAW)) as servers:
        found = await servers.acting(["mcp__rwa", "mcp__raw__shout", "mcp__raw__say"])

    assert [acting.name for acting in found] == ["mcp__raw__say"]
    assert bench.notices == [
        "MCP server 'rwa' not found; available: raw",
        "the MCP server 'raw' has no tool 'shout'; available: say, again, change",
    ]


async def test_names_that_models_do_not_accept_are_replaced_and_still_called(bench: Bench) -> None:
    async with bench.servers(python_server("raw", RAW, "rename")) as servers:
        found = await servers.acting(["mcp__raw"])
        answers = [await call_tool(acting, text="hello") for acting in found]
        (by_its_own_name,) = await servers.acting(["mcp__raw__say.it"])

    assert len({acting.name for acting in found}) == 4
    assert all(len(acting.name) <= 64 for acting in found)
    assert [answer.text for answer in answers] == ["hello"] * 4
    assert by_its_own_name.name == found[0].name


async def test_tools_that_cannot_be_offered_are_left_out_with_a_notice(bench: Bench) -> None:
    async with bench.servers(python_server("raw", RAW, "flawed")) as servers:
        found = await servers.acting(["mcp__raw"])

    assert [acting.name for acting in found] == ["mcp__raw__say"]
    assert bench.notices[0] == "the MCP server raw has two tools named mcp__raw__say; the first is used"
    assert bench.notices[1].startswith(
        "the tool mcp__raw__odd is not available to agents: its schema is not valid: 5 is not"
    )


async def test_results_become_text(bench: Bench) -> None:
    async with bench.servers(python_server("bench", SDK)) as servers:
        figures = await call_tool(await find_tool(servers, "mcp__bench__figures"))
        gallery = await call_tool(await find_tool(servers, "mcp__bench__gallery"))
        failed = await call_tool(await find_tool(servers, "mcp__bench__fail"))
        much = await call_tool(await find_tool(servers, "mcp__bench__much"), size=1_000_000)

    assert figures.text == '{"sum":3,"of":[1,2]}'
    assert gallery.text.splitlines() == [
        "first",
        "[an image, image/png, 1,000 bytes, not shown]",
        "[the resource note://one, text/plain, 11 bytes, not shown]",
    ]
    assert failed.is_error
    assert "[… 737,864 bytes left out …]" in much.text
    assert much.text.startswith("beginxxx")
    assert much.text.endswith("xxxend")
    assert len(much.text) < 263_000


async def test_invalid_arguments_are_reported_before_anything_is_asked_or_done(bench: Bench) -> None:
    async with bench.servers(python_server("bench", SDK)) as servers:
        add = await find_tool(servers, "mcp__bench__add")

        with pytest.raises(InvalidCall) as caught:
            await add.prepare(make_tool_use(add, a="one"))
        with pytest.raises(InvalidCall, match="not a JSON object"):
            await add.prepare(ToolUse(id="1", name=add.name, unreadable="{"))

    assert str(caught.value) == (
        "Invalid arguments for mcp__bench__add: a: 'one' is not of type 'integer'; 'b' is a required property."
    )


async def test_a_servers_claims_about_its_tools_make_no_call_read_only(bench: Bench) -> None:
    async with bench.servers(python_server("bench", SDK)) as servers:
        add = await find_tool(servers, "mcp__bench__add")

        prepared = await add.prepare(make_tool_use(add, a=1, b=2))

    assert not prepared.is_read_only
    assert not add.is_parallel


async def test_only_a_repeatable_tool_of_a_server_that_the_person_chose_is_called_again_after_a_crash(
    bench: Bench,
) -> None:
    began = Action(run="r", agent="a", tool="t")
    mine, theirs = python_server("mine", RAW), python_server("theirs", RAW, source="repo")
    async with bench.servers(mine, theirs) as servers:
        bench.trust(theirs)

        repeatable = await (await find_tool(servers, "mcp__mine__again")).recover(began)
        unknown = await (await find_tool(servers, "mcp__mine__say")).recover(began)
        foreign = await (await find_tool(servers, "mcp__theirs__again")).recover(began)

    assert repeatable is None
    assert unknown is not None
    assert "was interrupted" in unknown.text
    assert foreign is not None


async def test_a_program_gets_its_own_variables_and_little_of_our_environment(bench: Bench) -> None:
    server = python_server("bench", SDK, env={"TOKEN": "${SEARCH_KEY}", "ZONE": "UTC"})
    environ = {"SEARCH_KEY": "canary-123456", "OPENAI_API_KEY": "canary-654321", "HOME": "/nowhere"}

    async with bench.servers(server, environ=environ) as servers:
        environment = await find_tool(servers, "mcp__bench__environment")
        names = (await call_tool(environment)).text.split()
        token = await call_tool(environment, name="TOKEN")
        zone = await call_tool(environment, name="ZONE")

    assert set(names) - {"LC_CTYPE"} == {"HOME", "PATH", "TOKEN", "ZONE", "PYTHONSAFEPATH", "PODIUM_REPO"}
    assert token.text == "${SEARCH_KEY}"
    assert zone.text == "UTC"
    assert "canary" not in (bench.home / "trust.json").read_text(encoding="utf-8")


async def test_cancelling_a_call_notifies_the_server_which_stays_usable(bench: Bench) -> None:
    async with bench.servers(python_server("bench", SDK)) as servers:
        hang = await find_tool(servers, "mcp__bench__hang")

        with anyio.move_on_after(0.1) as scope:
            await call_tool(hang)
        answer = await call_tool(await find_tool(servers, "mcp__bench__was_cancelled"))
        total = await call_tool(await find_tool(servers, "mcp__bench__add"), a=2, b=2)

    assert scope.cancelled_caught
    assert answer.text == "it was cancelled"
    assert total.text == "4"


def test_without_mcp_tools_the_sdk_is_not_imported() -> None:
    program = """
import sys, anyio
from pathlib import Path
from podium.mcp_client.server_table import McpServer
from podium.mcp_client.run_servers import Servers
from podium.files.trust import Trust

async def main():
    server = McpServer(name="a", command="false")
    trust = Trust.load(Path("nowhere"))
    async with Servers({"a": server}, checkouts=[], environ={}, trust=trust, notice=print) as servers:
        assert await servers.acting(["Read", "Agent(x)"]) == []

anyio.run(main)
print("mcp" in sys.modules, "jsonschema" in sys.modules)
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "False False\n"


# Over HTTP


@pytest.fixture
def address() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, SDK, "--http"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_server_at_an_address_is_called_with_its_headers(bench: Bench, address: str) -> None:
    server = McpServer(name="bench", url=address, headers={"X-Token": "Bearer ${SEARCH_TOKEN}"})

    async with bench.servers(server, environ={"SEARCH_TOKEN": "canary-123456"}) as servers:
        total = await call_tool(await find_tool(servers, "mcp__bench__add"), a=20, b=22)
        header = await call_tool(await find_tool(servers, "mcp__bench__header"), name="X-Token")

    assert total.text == "42"
    assert header.text == "Bearer ${SEARCH_TOKEN}"


async def test_cancelling_a_call_over_http_leaves_the_server_usable(bench: Bench, address: str) -> None:
    async with bench.servers(McpServer(name="bench", url=address)) as servers:
        hang = await find_tool(servers, "mcp__bench__hang")

        with anyio.move_on_after(0.1):
            await call_tool(hang)
        answer = await call_tool(await find_tool(servers, "mcp__bench__was_cancelled"))

    assert answer.text == "it was cancelled"


async def test_a_server_at_an_address_that_exits_is_reported_and_tried_again(bench: Bench, address: str) -> None:
    async with bench.servers(McpServer(name="bench", url=address)) as servers:
        die = await find_tool(servers, "mcp__bench__die")

        answers = [await call_tool(die, code=1) for _ in range(3)]

    assert all(answer.is_error for answer in answers)
    assert answers[0].text.startswith("the MCP server bench is not available: ")
    assert "it cannot be reached" in answers[1].text
    assert answers[2].text.endswith("it will not be restarted in this run")


async def test_an_unreachable_address_gives_a_notice(bench: Bench) -> None:
    async with bench.servers(McpServer(name="bench", url="http://127.0.0.1:9/mcp")) as servers:
        found = await servers.acting(["mcp__bench"])

    assert found == []
    assert bench.notices[0].startswith("the MCP server 'bench' cannot be used: it cannot be reached")
