"""Every start and every resume of a run names who did it and the interface: one table of acts and interfaces.

A row does one act through one interface and names the kind of event that this records. To cover another act or another
interface, add a row. The function in a row returns the run whose timeline gets the event.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest
from msgspec import structs

import podium
from podium import Agent, App
from podium.cli.chat.slash_commands import capture_podium_output
from podium.system.identity import get_username
from podium.values.actor import Channel
from podium.values.event import (
    BudgetChanged,
    Event,
    MessageReceived,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
)
from podium.values.request import Request

from .cli.conftest import Desk
from .cli.test_chat import send_line, start_chat
from .protocols import test_acp_agent as acp
from .protocols import test_mcp_server as mcp
from .protocols.conftest import find_newest_run, write_agents
from .protocols.test_a2a_endpoint import call as call_a2a
from .web.api_client import ApiClient
from .web.conftest import Site, open_site

ME = get_username()


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A store that is served, with a repository, and everything that people use to start its runs."""

    site: Site
    desk: Desk
    folder: Path

    def write_run(self, *events: Event) -> str:
        """Write a run that no process works on, with these events after its start."""
        run = uuid4().hex[:12]
        lead = Agent(name="lead", engine="scripted")
        self.site.write_run(run, RunStarted(agent="lead", request=Request(text="go"), agents=(lead,)), *events)
        return run

    def podium(self, *arguments: str) -> None:
        """Enter a command in a shell."""
        done = self.desk.invoke(*arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.output

    def find_newest_run(self) -> str:
        return find_newest_run(self.site.store)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    write_agents(folder / "repo")
    with open_site(folder) as site:
        yield site


@pytest.fixture
def scene(site: Site, monkeypatch: pytest.MonkeyPatch) -> Scene:
    home = site.studio.settings.home
    monkeypatch.setenv("PODIUM_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(site.repo)
    desk = Desk(repo=site.repo, home=home, environment=dict(os.environ))
    return Scene(site=site, desk=desk, folder=home.parent)


# Commands and chat


def start_by_command(*words: str) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        scene.podium(*words)
        return scene.find_newest_run()

    return do


def resume_by_command(scene: Scene) -> str:
    run = scene.write_run(RunPaused())
    scene.podium("resume", run)
    return run


def copy_by_command(name: Literal["fork", "retry"], *options: str) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        scene.podium(name, scene.write_run(RunEnded(outcome="cancelled")), *options)
        return scene.find_newest_run()

    return do


def start_for_an_issue(scene: Scene) -> str:
    (scene.site.repo / "issues").mkdir()
    (scene.site.repo / "issues" / "1.md").write_text("# A bug\n")
    scene.podium("watch", "issues", "--once", "--agent", "greeter", "--in-place")
    return scene.find_newest_run()


def start_in_a_chat(scene: Scene) -> str:
    terminal = start_chat(scene.desk, "greeter")
    send_line(terminal, "hi")
    terminal.wait_for("Hello there, friend.")
    terminal.process.sendcontrol("d")
    assert terminal.wait_exit() == 0
    return scene.find_newest_run()


# The page and the HTTP API


def start_by_http(channel: Literal["page", "api"]) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        with ApiClient(scene.site, channel=channel) as client:
            return str(client.command("/api/runs", {"agent": "greeter", "request": "hi"})["id"])

    return do


def resume_by_http(channel: Literal["page", "api"]) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        run = scene.write_run(RunPaused())
        with ApiClient(scene.site, channel=channel) as client:
            client.command(f"/api/runs/{run}/resume", {})
        return run

    return do


def copy_by_http(
    channel: Literal["page", "api"], name: Literal["fork", "retry"], **options: object
) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        run = scene.write_run(RunEnded(outcome="cancelled"))
        with ApiClient(scene.site, channel=channel) as client:
            return str(client.command(f"/api/runs/{run}/{name}", options)["id"])

    return do


# Python


def act_in_python(act: Callable[[Scene, App], Awaitable[str]]) -> Callable[[Scene], str]:
    async def open_and_act(scene: Scene) -> str:
        async with scene.site.studio.app() as app:
            return await act(scene, app)

    return lambda scene: scene.site.portal.call(open_and_act, scene)


async def run_by_app(scene: Scene, app: App) -> str:
    return (await app.run(Agent(name="lead", engine="scripted"), "go")).run_id


async def start_by_app(scene: Scene, app: App) -> str:
    async with app.start(Agent(name="lead", engine="scripted"), "go", by="ada") as run:
        return run.id


def run_by_function(scene: Scene) -> str:
    async def run() -> str:
        return (await podium.run("greeter", "hi", repo=scene.site.repo, by="ada")).run_id

    return scene.site.portal.call(run)


def resume_by_app(scene: Scene) -> str:
    run = scene.write_run(RunPaused())

    async def resume(scene: Scene, app: App) -> str:
        async with app.resume(run):
            return run

    return act_in_python(resume)(scene)


def copy_by_app(name: Literal["fork", "retry"]) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        run = scene.write_run(RunEnded(outcome="cancelled"))
        return act_in_python(lambda scene, app: getattr(app, name)(run))(scene)

    return do


# Protocols


def start_in_an_mcp_client(tool: str, arguments: dict[str, Any]) -> Callable[[Scene], str]:
    async def call_tool(scene: Scene) -> None:
        async with mcp.connect(scene.folder) as client:
            await client.call_tool(tool, arguments)

    def do(scene: Scene) -> str:
        scene.site.portal.call(call_tool, scene)
        return scene.find_newest_run()

    return do


def start_in_an_editor(scene: Scene) -> str:
    async def prompt() -> None:
        async with acp.connect(scene.folder, "greeter", acp.Editor("once")) as (connection, _):
            await acp.prompt(connection, await acp.open_session(connection, scene.folder), "Hi")

    scene.site.portal.call(prompt)
    return scene.find_newest_run()


def start_by_a2a(scene: Scene) -> str:
    message = {"messageId": uuid4().hex, "parts": [{"text": "Hi"}]}
    sent = call_a2a(scene.site, "greeter", "SendMessage", {"message": message})
    return str(sent["result"]["task"]["id"])


def start_by_openai(scene: Scene) -> str:
    with ApiClient(scene.site) as client:
        chat = {"model": "greeter", "messages": [{"role": "user", "content": "Hi"}]}
        client.command("/v1/chat/completions", chat)
    return scene.find_newest_run()


@dataclass(frozen=True, kw_only=True)
class Row:
    """An act through an interface, and the kind of event that it records."""

    channel: Channel
    act: str
    kind: type[Event] = RunStarted
    do: Callable[[Scene], str]
    by: str = ME


ROWS = [
    Row(channel="command", act="run", do=start_by_command("run", "greeter", "hi")),
    Row(channel="command", act="run --detach", do=start_by_command("run", "greeter", "hi", "--detach")),
    Row(
        channel="command",
        act="decide",
        do=start_by_command("decide", "Which?", "--option", "tea", "--option", "coffee"),
    ),
    Row(channel="command", act="resume", kind=RunResumed, do=resume_by_command),
    Row(channel="command", act="fork", do=copy_by_command("fork")),
    Row(channel="command", act="resume of a fork", kind=RunResumed, do=copy_by_command("fork")),
    Row(channel="command", act="retry", do=copy_by_command("retry")),
    Row(
        channel="command",
        act="message of a fork",
        kind=MessageReceived,
        do=copy_by_command("fork", "--request", "Hurry"),
    ),
    Row(
        channel="command",
        act="budget of a retry",
        kind=BudgetChanged,
        do=copy_by_command("retry", "--budget", "turns=9"),
    ),
    Row(channel="watch", act="watch", do=start_for_an_issue),
    Row(channel="chat", act="run", do=start_in_a_chat),
    *(
        row
        for channel in ("page", "api")
        for row in (
            Row(channel=channel, act="run", do=start_by_http(channel)),
            Row(channel=channel, act="resume", kind=RunResumed, do=resume_by_http(channel)),
            Row(channel=channel, act="fork", do=copy_by_http(channel, "fork")),
            Row(channel=channel, act="resume of a fork", kind=RunResumed, do=copy_by_http(channel, "fork")),
            Row(channel=channel, act="retry", do=copy_by_http(channel, "retry")),
            Row(
                channel=channel,
                act="message of a fork",
                kind=MessageReceived,
                do=copy_by_http(channel, "fork", request="Hurry"),
            ),
            Row(
                channel=channel,
                act="budget of a retry",
                kind=BudgetChanged,
                do=copy_by_http(channel, "retry", budget={"turns": 9}),
            ),
        )
    ),
    Row(channel="api", act="App.run", do=act_in_python(run_by_app)),
    Row(channel="api", act="App.start by ada", by="ada", do=act_in_python(start_by_app)),
    Row(channel="api", act="podium.run by ada", by="ada", do=run_by_function),
    Row(channel="api", act="App.resume", kind=RunResumed, do=resume_by_app),
    Row(channel="api", act="App.fork", do=copy_by_app("fork")),
    Row(channel="api", act="App.retry", do=copy_by_app("retry")),
    Row(
        channel="mcp",
        act="run_agent",
        do=start_in_an_mcp_client("run_agent", {"agent": "greeter", "request": "Hi"}),
    ),
    Row(channel="acp", act="prompt", do=start_in_an_editor),
    Row(channel="a2a", act="SendMessage", do=start_by_a2a),
    Row(channel="openai", act="chat completion", do=start_by_openai),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.channel}-{row.act}".replace(" ", "-") for row in ROWS])
def test_a_run_names_who_started_or_resumed_it_and_through_which_interface(scene: Scene, row: Row) -> None:
    run = row.do(scene)

    event = structs.asdict(scene.site.wait_for_events(run, row.kind)[0])
    assert (event["by"], event["channel"]) == (row.by, row.channel)


def test_a_person_who_resumes_a_worker_in_a_chat_is_named(scene: Scene) -> None:
    scene.podium("run", "asker", "hi", "--detach")
    run = scene.find_newest_run()
    scene.site.wait_for_events(run, QuestionAsked)
    scene.podium("pause", run)

    capture_podium_output(["workers", "resume", run])

    resumed = [(one.by, one.channel) for one in scene.site.wait_for_events(run, RunResumed, 2)]
    assert (ME, "chat") in resumed
    scene.podium("stop", run)
