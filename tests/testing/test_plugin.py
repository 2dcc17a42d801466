"""The pytest plug-in as users see it: its fixtures in tests, and small projects that use them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from textwrap import dedent
from urllib.request import urlopen

import anyio
import pytest

import podium
from podium.testing import Move, Scripted, ServedModel, TurnLimits, calls, fails
from podium.values.errors import BadAgent, Mistake
from podium.values.event import CallFailed, HandedOff, LimitReached, ToolAnswered

from ..test_docs import parse_blocks

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
PYTEST_OPTIONS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-W", "error")


# Agents that a test makes


def test_a_chain_of_agents_follows_its_scripts(scripted: Scripted) -> None:
    scripted.agent("planner", says=["the plan"], handoff="builder")
    scripted.agent("builder", says="built")

    result = scripted.run("planner", "ship it")

    assert result.text == "built"
    assert "the plan" in scripted.heard("builder")[0]
    assert scripted.heard("planner") == ["ship it"]
    assert scripted.events(result, HandedOff) == [HandedOff(sender="planner", receiver="builder")]
    assert scripted.kinds(result)[0] == "run_started"
    assert [entry.seq for entry in scripted.entries(result)] == [*range(1, len(scripted.kinds(result)) + 1)]


async def test_an_async_test_awaits_the_same(scripted: Scripted) -> None:
    scripted.agent("poet", says="a haiku")

    died = await scripted.arun("poet", "write", dies_after=3)
    result = await scripted.aresume(died)

    assert (died.outcome, result.text) == ("interrupted", "a haiku")


async def test_an_async_test_is_told_what_to_await(scripted: Scripted) -> None:
    scripted.agent("poet", says="a haiku")

    with pytest.raises(Mistake, match=r"await scripted\.arun instead"):
        scripted.run("poet", "write")


def test_agents_built_elsewhere_are_scripted_too(scripted: Scripted) -> None:
    planner = podium.Agent(name="planner", handoff="builder", model="openai:gpt-5-mini")
    builder = podium.Agent(name="builder", engine="an engine that is not here")
    scripted.says("planner", "the plan")
    scripted.says("builder", "built")

    result = scripted.run(planner, "ship it", agents=[builder])

    assert result.text == "built"


def test_agents_that_ship_with_podium_are_scripted_by_name(scripted: Scripted) -> None:
    scripted.says("triage", calls("route_to", agent="answer", reason="it is a question"))
    scripted.says("answer", "it scatters")
    scripted.says("builtin:answer", "it still scatters")

    assert scripted.run("triage", "Why is the sky blue?").text == "it scatters"
    assert scripted.run("builtin:answer", "Why is the sky blue?").text == "it still scatters"


def test_an_agent_that_calls_a_tool_gets_its_answer(scripted: Scripted) -> None:
    scripted.agent("lead", says=[calls("clerk", request="count them"), "there are 7"], agents=["clerk"])
    scripted.agent("clerk", says="7")

    result = scripted.run("lead", "How many?")

    assert result.text == "there are 7"
    assert scripted.heard("lead") == ["How many?", "7"]
    assert [answer.text for answer in scripted.events(result, ToolAnswered)] == ["7"]


def test_failures_of_the_model_are_simulated_without_waiting(scripted: Scripted) -> None:
    scripted.agent("poet", says=[fails(429, times=2, then="at last", retry_after=30)])
    scripted.agent("essayist", says=[fails(429, times=2, then="in the end", retry_after=3600)])

    result = scripted.run("poet", "write")
    later = scripted.run("essayist", "write")

    assert (result.text, later.text) == ("at last", "in the end")
    assert [failed.wait for failed in scripted.events(result, CallFailed)] == [30, 30]
    assert [event.agent for event in scripted.events(later, LimitReached)] == ["essayist", "essayist"]


def test_a_silent_model_is_given_up(scripted: Scripted) -> None:
    scripted.patience = TurnLimits(thinking=0.01)
    scripted.agent("poet", says=[Move(silent=True)])

    result = scripted.run("poet", "write")

    assert result.outcome == "timed_out"


# What a test got wrong


def test_an_agent_without_a_script_fails_and_says_how_to_give_it_one(scripted: Scripted) -> None:
    scripted.says("triage", calls("route_to", agent="answer", reason="it is a question"))

    result = scripted.run("triage", "Why?")

    assert result.outcome == "failed"
    assert 'there are scripts for triage; add one with scripted.says("answer", ...)' in str(result.error)


def test_a_script_for_an_unknown_agent_is_a_mistake(scripted: Scripted) -> None:
    scripted.says("anwser", "it scatters")

    with pytest.raises(BadAgent, match='agent "anwser" not found'):
        scripted.run("answer", "Why?")


def test_asking_what_an_unknown_agent_heard_is_a_mistake(scripted: Scripted) -> None:
    scripted.agent("poet", says="a haiku")
    scripted.run("poet", "write")

    with pytest.raises(Mistake, match="agent 'peot' was not part of any run; available: poet"):
        scripted.heard("peot")


# Crashes


def test_a_run_that_dies_after_any_entry_is_resumed_to_the_same_answer(scripted: Scripted) -> None:
    scripted.agent("planner", says=["the plan"], handoff="builder")
    scripted.agent("builder", says="built")

    for number in count(1):
        died = scripted.run("planner", "ship it", dies_after=number)
        if died.outcome != "interrupted":
            break
        assert len(scripted.entries(died)) == number
        assert scripted.resume(died).text == "built"

    assert died.text == "built"
    assert number == len(scripted.entries(died))


def test_a_resumed_run_may_die_again(scripted: Scripted) -> None:
    scripted.agent("poet", says="a haiku")

    died = scripted.run("poet", "write", dies_after=2)
    again = scripted.resume(died, dies_after=1)
    result = scripted.resume(again.run_id)

    assert (again.outcome, result.text) == ("interrupted", "a haiku")
    assert scripted.kinds(result).count("run_resumed") == 2


# A model server


def test_a_plain_test_has_a_model_server(model_server: ServedModel) -> None:
    model_server.says({"says": "Paris", "fails": {"status": 429, "times": 1, "retry_after": 0}})

    result = anyio.run(podium.run, podium.Agent(name="guide"), "The capital of France?")

    assert result.text == "Paris"
    assert model_server.heard == ["The capital of France?"] * 2
    assert model_server.calls[0].headers["authorization"] == "Bearer played"


@pytest.mark.parametrize("model", ["openai:m", "anthropic:m", "gemini:m", "ollama:m"])
async def test_every_provider_is_the_model_server(model_server: ServedModel, model: str) -> None:
    model_server.says("played")
    model_server.says("played as n", model="n")

    both = [
        await podium.run(podium.Agent(name="one", model=name), "hello") for name in (model, model.replace(":m", ":n"))
    ]

    assert [result.text for result in both] == ["played", "played as n"]


@pytest.mark.parametrize(
    "fault",
    [
        fails(500, times=1, then="in the end"),
        Move(says="in the end", half=1),
        Move(says="in the end", garbled=1),
        Move(says="in the end", delay=0.01),
    ],
    ids=["500", "half a stream", "broken JSON", "late"],
)
def test_what_goes_wrong_for_a_while_goes_well_in_the_end(model_server: ServedModel, fault: Move) -> None:
    model_server.says(fault)

    assert anyio.run(podium.run, podium.Agent(name="guide"), "hello").text == "in the end"


def test_a_test_can_wait_for_calls_of_another_process(model_server: ServedModel) -> None:
    model_server.says(Move(silent=True))

    with subprocess.Popen(
        [sys.executable, "-m", "podium", "run", "answer", "hello"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as asking:
        model_server.wait_calls(1, seconds=60)
        asking.kill()

    assert model_server.heard == ["hello"]
    with pytest.raises(TimeoutError, match=r"1 of 2 calls arrived within 0\.01 s"):
        model_server.wait_calls(2, seconds=0.01)


# Projects


PROJECT_TEST = """
    from pathlib import Path

    import anyio
    import podium
    from podium.store.wakeup import ensure_socket_folder


    def test_the_reviewer_has_the_last_word(scripted, podium_home):
        scripted.says("author", "a draft")
        scripted.says("reviewer", "looks fine")
        assert scripted.run("author", "write").text == "looks fine"
        Path("bells.txt").write_text(str(ensure_socket_folder(podium_home / "podium.db")))


    def test_a_model_is_asked(model_server):
        model_server.says("hello")
        assert anyio.run(podium.run, "reviewer", "hi").text == "hello"
        Path("url.txt").write_text(model_server.url)
"""


REVIEWER_TEST = """
    def test_the_reviewer_has_the_last_word(scripted):
        scripted.says("author", "a draft")
        scripted.says("reviewer", "looks fine")
        assert scripted.run("author", "write").text == "looks fine"
"""

OTHER_REPO_CONFTEST = """
    import pytest


    @pytest.fixture
    def podium_repo(pytestconfig):
        return pytestconfig.rootpath.parent / "shared"
"""

FRONTMATTER = "---\ndescription: Of help.\n---\n"


def make_project(pytester: pytest.Pytester, tests: str) -> Path:
    """Make a repository with two agents and a separate folder with tests for them, in which pytest starts."""
    # Not in pytester's folder, which is also the home directory there, so its .podium would be the person's.
    repo = pytester.mkdir("project")
    write_file(repo / ".podium/agents/author.md", "---\nhandoff: reviewer\nmodel: sonnet\n---\nYou write.\n")
    write_file(repo / ".podium/agents/reviewer.md", f"{FRONTMATTER}You review.\n")
    write_file(repo / "tests/test_agents.py", dedent(tests))
    os.chdir(repo)  # pytester restores the folder by itself
    return repo


def write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_projects_own_agents_are_scripted_and_nothing_remains(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make_project(pytester, PROJECT_TEST)
    monkeypatch.setenv("PODIUM_HOME", str(pytester.path / "own"))
    monkeypatch.setenv("PODIUM_MODEL", "nobody:nothing")
    before = read_environment(), threading.enumerate(), count_open_files()

    result = pytester.runpytest_inprocess(*PYTEST_OPTIONS)

    result.assert_outcomes(passed=2)
    assert (read_environment(), threading.enumerate(), count_open_files()) == before
    assert sorted(path.name for path in repo.iterdir()) == [".podium", "bells.txt", "tests", "url.txt"]
    assert not (pytester.path / "own").exists()
    assert not Path((repo / "bells.txt").read_text(encoding="utf-8")).exists()
    with pytest.raises(OSError, match="refused"):
        urlopen((repo / "url.txt").read_text(encoding="utf-8"))


def read_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_repository_is_that_of_the_tests_wherever_pytest_was_started(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make_project(pytester, REVIEWER_TEST)
    elsewhere = pytester.mkdir("elsewhere")
    (elsewhere / ".podium").mkdir()
    monkeypatch.chdir(elsewhere)

    result = pytester.runpytest_inprocess(*PYTEST_OPTIONS, str(repo / "tests"))

    result.assert_outcomes(passed=1)


def test_a_project_may_name_another_repository(pytester: pytest.Pytester) -> None:
    repo = make_project(pytester, REVIEWER_TEST)
    (repo / ".podium").rename(pytester.mkdir("shared") / ".podium")
    write_file(repo / "conftest.py", dedent(OTHER_REPO_CONFTEST))

    result = pytester.runpytest_inprocess(*PYTEST_OPTIONS)

    result.assert_outcomes(passed=1)


def test_a_failing_test_shows_what_happened_in_its_run(pytester: pytest.Pytester) -> None:
    make_project(pytester, "def test_it(scripted):\n    assert scripted.run('author', 'write').succeeded")

    result = pytester.runpytest_inprocess(*PYTEST_OPTIONS)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '*outcome=*failed*there are scripts for no agent; add one with scripted.says("author", ...)*',
            "*Captured podium call*",
            'run *: started; request to author: "write"',
            "run *: failed: *author*: the agent has no script*",
        ]
    )


def test_a_mistake_points_at_the_line_of_the_test(pytester: pytest.Pytester) -> None:
    make_project(pytester, "def test_it(scripted):\n    scripted.run('nobody', 'write')")

    result = pytester.runpytest_inprocess(*PYTEST_OPTIONS)

    result.stdout.fnmatch_lines(['E *BadAgent: agent "nobody" not found*', "", "tests/test_agents.py:2: BadAgent"])
    result.stdout.no_fnmatch_line("*discovery.py*")


def test_suites_that_do_not_use_it_pay_for_nothing() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules); import podium.testing.plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["podium", "podium.testing", "podium.testing.plugin"]


def test_the_example_of_the_page_passes_as_it_stands(pytester: pytest.Pytester) -> None:
    repo = pytester.mkdir("project")
    for block in parse_blocks(PAGE):
        if block.file:
            write_file(repo / block.file, block.text)
    os.chdir(repo)

    result = pytester.runpytest_subprocess(*PYTEST_OPTIONS)

    result.assert_outcomes(passed=6)
