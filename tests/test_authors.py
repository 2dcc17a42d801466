"""Every event that a person causes names the person and the interface: one table of acts and interfaces.

A row does one act through one interface and names the kind of event that this records. To cover another act or another
interface, add a row. The function in a row returns the run whose timeline gets the event.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest
from anyio import create_task_group, sleep
from msgspec import structs

from podium import Agent, Budget, Run
from podium.cli.chat.slash_commands import capture_podium_output
from podium.cli.output.status_screen import GUARD_SECONDS, StatusScreen
from podium.core.timeline import Timeline
from podium.runs.run_steering import stop_run
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.store.worker_index import build_worker_insert
from podium.testing import calls
from podium.values.action import Action
from podium.values.actor import Actor, Channel
from podium.values.event import (
    BudgetChanged,
    Event,
    MemberChanged,
    MessageReceived,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunStarted,
    StopAsked,
    WorkerPlaced,
)
from podium.values.request import Request
from podium.values.worker_task import WorkerTask

from .cli.conftest import Desk
from .cli.test_chat import send_line, start_chat
from .cli.test_status import Clock
from .cli.test_terminal import Terminal
from .protocols import test_acp_agent as acp
from .protocols import test_mcp_server as mcp
from .protocols.conftest import find_newest_run, write_agents
from .protocols.test_a2a_endpoint import call as call_a2a
from .web.api_client import ApiClient
from .web.conftest import Site, open_site

ME = getpass.getuser()


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A store that is served, with a repository, and everything that people use to reach its runs."""

    site: Site
    desk: Desk
    folder: Path

    def write_run(self, *asked: PermissionAsked | QuestionAsked) -> str:
        """Write a run with open requests. No process works on it, so it reads its mail when it is stopped."""
        run = uuid4().hex[:12]
        lead, helper = Agent(name="lead", engine="scripted"), Agent(name="helper", engine="scripted")
        started = RunStarted(agent="lead", request=Request(text="go"), agents=(lead, helper))
        self.site.write_run(run, started, *asked)
        return run

    def write_permission_request(self) -> tuple[str, str]:
        """Write a run that asks for permission. Return the run and the id of the request."""
        id = uuid4().hex[:12]
        action = Action(run="r", agent="lead", tool="bash", arguments={"command": id})
        return self.write_run(PermissionAsked(id=id, action=action, reason="no rule allows it")), id

    def write_question(self) -> tuple[str, str]:
        """Write a run that asks a question. Return the run and the id of the question."""
        id = uuid4().hex[:12]
        return self.write_run(QuestionAsked(id=id, text="Which colour?", digest="d1")), id

    def write_worker(self) -> str:
        """Write the run of a worker. No process works on it."""
        run = uuid4().hex[:12]
        task = WorkerTask(root=str(self.site.repo), branch=f"feat/{run}", path=str(self.folder / run))

        async def write() -> None:
            async with RunStore(self.site.store) as store:
                timeline = Timeline(run, store.begin_run(run, build_worker_insert(run, task)))
                lead = Agent(name="lead", engine="scripted")
                started = RunStarted(agent="lead", request=Request(text="go"), agents=(lead,), errand=task)
                timeline.append(started, scope="")
                timeline.append(WorkerPlaced(branch=task.branch, path=task.path, base="0" * 40), scope="")
                await timeline.wait_written()

        self.site.portal.call(write)
        return run

    def podium(self, *arguments: str) -> None:
        """Enter a command in a shell."""
        done = self.desk.invoke(*arguments)
        assert done.exit_code == 0, done.output

    def open_api(self, channel: Literal["page", "api"]) -> AbstractContextManager[ApiClient]:
        return ApiClient(self.site, channel=channel)

    def find_event(self, run: str, kind: type[Event]) -> Event:
        """Return the first event of a kind on the timeline. A run that no process works on reads its mail now."""
        return self.site.portal.call(self._find_event, run, kind)

    async def _find_event(self, run: str, kind: type[Event]) -> Event:
        while True:
            with StoreReader(self.site.store) as reader:
                summary = reader.read_summary(run)
            found = self.site.studio.events(run, kind)
            if found:
                event: Event = found[0]
                return event
            assert not summary.is_over, f"the run has ended without {kind.__name__}"
            if summary.phase != "running":
                async with self.site.studio.app() as app:
                    await stop_run(app.runs, run, by=Actor(name="the test", channel="rule"))
            await sleep(0.02)


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


# Commands and the terminal


def steer_by_command(*words: str) -> Callable[[Scene], str]:
    """Enter a command about a run; RUN stands for the run."""

    def do(scene: Scene) -> str:
        run = scene.write_run()
        scene.podium(*(word.replace("RUN", run) for word in words))
        return run

    return do


def decide_by_command(*words: str) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        run, id = scene.write_permission_request()
        scene.podium(*words, id)
        return run

    return do


def answer_by_command(scene: Scene) -> str:
    run, id = scene.write_question()
    scene.podium("answer", id, "red")
    return run


def approve_at_a_prompt(scene: Scene) -> str:
    terminal = Terminal(scene.desk, "run", "writer", "go")
    terminal.wait_for("[y] once")
    terminal.process.send("y")
    assert terminal.wait_exit() == 0
    return find_newest_run(scene.site.store)


def answer_at_a_prompt(scene: Scene) -> str:
    terminal = Terminal(scene.desk, "run", "asker", "go")
    terminal.wait_for("Your answer:")
    terminal.process.send("red\r")
    assert terminal.wait_exit() == 0
    return find_newest_run(scene.site.store)


def approve_on_the_status_screen(scene: Scene) -> str:
    run, id = scene.write_permission_request()

    async def press() -> None:
        clock = Clock()
        screen = StatusScreen(scene.site.store, clock=clock)
        async with screen.run_test(size=(100, 60)) as pilot:
            await pilot.pause()
            while screen._selected_id() != id:
                await pilot.press("down")
                await pilot.pause()
            clock.now += GUARD_SECONDS
            await pilot.press("y")
            await pilot.pause()

    scene.site.portal.call(press)
    return run


# Chat


def approve_in_a_chat(scene: Scene) -> str:
    terminal = start_chat(scene.desk, "writer")
    send_line(terminal, "write")
    terminal.wait_for("[y] once")
    terminal.process.send("y")
    terminal.wait_for("Wrote it.")
    terminal.process.sendcontrol("d")
    assert terminal.wait_exit() == 0
    return find_newest_run(scene.site.store)


def talk_in_a_chat(words: str) -> Callable[[Scene], str]:
    """Send a message to an agent that is working, or stop it with Ctrl-C if there are no words."""

    def do(scene: Scene) -> str:
        terminal = start_chat(scene.desk, "stuck")
        send_line(terminal, "go")
        terminal.wait_for("(stuck is thinking")
        if words:
            send_line(terminal, words)
            terminal.wait_for("the agent will receive your message")
        terminal.process.sendcontrol("c")
        terminal.wait_for("  stopped")
        if words:  # the line that the agent did not receive is in the input again
            terminal.process.sendcontrol("c")
            terminal.wait_for("press Ctrl-C again")
        terminal.process.sendcontrol("d")
        assert terminal.wait_exit() == 0
        return find_newest_run(scene.site.store)

    return do


def decide_by_slash_command(name: str) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        run, id = scene.write_permission_request()
        capture_podium_output([name, id])
        return run

    return do


def cancel_by_slash_command(scene: Scene) -> str:
    run = scene.write_worker()
    capture_podium_output(["workers", "cancel", run])
    return run


# The page and the HTTP API


def steer_by_http(channel: Literal["page", "api"], what: str, body: dict[str, Any]) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        run = scene.write_run()
        with ApiClient(scene.site, channel=channel) as client:
            client.command(f"/api/runs/{run}/{what}", body)
        return run

    return do


def review_by_http(channel: Literal["page", "api"]) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        run = scene.write_worker()
        with ApiClient(scene.site, channel=channel) as client:
            client.command(f"/api/workers/{run}/review", {"note": "Rename it."})
        return run

    return do


def decide_by_http(channel: Literal["page", "api"]) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        run, id = scene.write_permission_request()
        with ApiClient(scene.site, channel=channel) as client:
            shown = client.read(f"/api/requests/{id}")["action_id"]
            client.command(f"/api/requests/{id}/answer", {"shown": shown, "decision": "once"})
        return run

    return do


def answer_by_http(channel: Literal["page", "api"]) -> Callable[[Scene], str]:
    def do(scene: Scene) -> str:
        run, id = scene.write_question()
        with ApiClient(scene.site, channel=channel) as client:
            client.command(f"/api/requests/{id}/answer", {"shown": "d1", "text": "red"})
        return run

    return do


# Python


def control_run(act: Callable[[Run], Any]) -> Callable[[Scene], str]:
    """Act on a run of this process, whose agent waits for permission."""

    async def run_and_act(scene: Scene) -> str:
        studio = scene.site.studio
        write = calls("write_file", path="x", content="x")
        lead = studio.agent("lead", says=(write, "done"), tools=("Write",), handoff="helper")
        helper = studio.agent("helper")
        async with (
            studio.app() as app,
            app.start(lead, "go", agents=[helper], repo=scene.site.repo, is_attended=True) as run,
        ):
            async for entry in run.entries():
                if isinstance(entry.event, PermissionAsked):
                    await act(run)
                    break
        return run.id

    return lambda scene: scene.site.portal.call(run_and_act, scene)


async def approve_in_python(run: Run) -> None:
    async for entry in run.entries():
        if isinstance(entry.event, PermissionAsked):
            await run.answer(entry.event.id, "once")
            return


def leave_a_run(scene: Scene) -> str:
    """Leave the block of a run that has not ended, which stops the run."""

    async def start_and_leave() -> str:
        async with scene.site.studio.app() as app, app.start("stuck", "go", repo=scene.site.repo, by="ada") as run:
            return run.id

    return scene.site.portal.call(start_and_leave)


def stop_by_app(scene: Scene) -> str:
    run = scene.write_run()

    async def stop() -> None:
        async with scene.site.studio.app() as app:
            await app.stop(run)

    scene.site.portal.call(stop)
    return run


# Protocols


def approve_in_an_mcp_client(scene: Scene) -> str:
    async def run_agent() -> None:
        async with mcp.connect(scene.folder, elicitation_callback=mcp.answer(["once"], [])) as client:
            await client.call_tool("run_agent", {"agent": "writer", "request": "Write"})

    scene.site.portal.call(run_agent)
    return find_newest_run(scene.site.store)


def cancel_a_call_of_an_mcp_client(scene: Scene) -> str:
    async def run_and_cancel() -> str:
        async with mcp.connect(scene.folder) as client:
            known = find_newest_run(scene.site.store)
            async with create_task_group() as group:
                group.start_soon(client.call_tool, "run_agent", {"agent": "stuck", "request": "Hang"})
                while (run := find_newest_run(scene.site.store)) == known:  # noqa: ASYNC110 - the store is a file
                    await sleep(0.02)
                group.cancel_scope.cancel()
            while not scene.site.studio.events(run, RunEnded):  # noqa: ASYNC110 - the store is a file
                await sleep(0.02)
        return run

    return scene.site.portal.call(run_and_cancel)


def approve_in_an_editor(scene: Scene) -> str:
    async def prompt() -> None:
        async with acp.connect(scene.folder, "writer", acp.Editor("once")) as (connection, _):
            await acp.prompt(connection, await acp.open_session(connection, scene.folder), "Write")

    scene.site.portal.call(prompt)
    return find_newest_run(scene.site.store)


def cancel_in_an_editor(scene: Scene) -> str:
    async def prompt_and_cancel() -> None:
        editor = acp.Editor("")
        async with acp.connect(scene.folder, "writer", editor) as (connection, _), create_task_group() as group:
            session = await acp.open_session(connection, scene.folder)
            group.start_soon(acp.prompt, connection, session, "Write")
            await editor.has_asked.wait()
            await connection.cancel(session_id=session)

    scene.site.portal.call(prompt_and_cancel)
    return find_newest_run(scene.site.store)


def use_a2a(is_cancelled: bool) -> Callable[[Scene], str]:
    """Send a second message to a task of an A2A client, or cancel the task."""

    def do(scene: Scene) -> str:
        parts = {"messageId": uuid4().hex, "parts": [{"text": "Write"}]}
        now = {"returnImmediately": True}
        sent = call_a2a(scene.site, "writer", "SendMessage", {"message": parts, "configuration": now})
        task = str(sent["result"]["task"]["id"])
        if is_cancelled:
            call_a2a(scene.site, "writer", "CancelTask", {"id": task})
        else:
            more = {"messageId": uuid4().hex, "parts": [{"text": "Hurry"}], "taskId": task}
            call_a2a(scene.site, "writer", "SendMessage", {"message": more, "configuration": now})
            scene.site.wait_for_events(task, MessageReceived)
            call_a2a(scene.site, "writer", "CancelTask", {"id": task})
        return task

    return do


def disconnect_from_openai(scene: Scene) -> str:
    from .protocols.test_openai_endpoint import connect, user  # the client's package is slow to import

    with connect(scene.site) as client:
        chat = client.chat.completions.create(model="stuck", messages=[user("Hang")], stream=True)
        with chat as chunks:
            next(iter(chunks))
    return find_newest_run(scene.site.store)


@dataclass(frozen=True, kw_only=True)
class Row:
    """An act through an interface, and the kind of event that it records."""

    channel: Channel
    act: str
    kind: type[Event]
    do: Callable[[Scene], str]
    by: str = ME


ROWS = [
    Row(channel="command", act="send", kind=MessageReceived, do=steer_by_command("send", "RUN", "Hurry")),
    Row(channel="command", act="pause", kind=PauseAsked, do=steer_by_command("pause", "RUN")),
    Row(channel="command", act="stop", kind=StopAsked, do=steer_by_command("stop", "RUN")),
    Row(channel="command", act="budget", kind=BudgetChanged, do=steer_by_command("budget", "RUN", "turns=9")),
    Row(
        channel="command",
        act="member",
        kind=MemberChanged,
        do=steer_by_command("team", "set", "RUN/helper", "--prompt", "Be brief."),
    ),
    Row(channel="command", act="approve", kind=PermissionAnswered, do=decide_by_command("approve")),
    Row(channel="command", act="deny", kind=PermissionAnswered, do=decide_by_command("deny")),
    Row(channel="command", act="deny and stop", kind=StopAsked, do=decide_by_command("deny", "--stop")),
    Row(channel="command", act="answer", kind=QuestionAnswered, do=answer_by_command),
    Row(channel="terminal", act="approve", kind=PermissionAnswered, do=approve_at_a_prompt),
    Row(channel="terminal", act="answer", kind=QuestionAnswered, do=answer_at_a_prompt),
    Row(channel="terminal", act="approve on screen", kind=PermissionAnswered, do=approve_on_the_status_screen),
    Row(channel="chat", act="approve", kind=PermissionAnswered, do=approve_in_a_chat),
    Row(channel="chat", act="send", kind=MessageReceived, do=talk_in_a_chat("Hurry")),
    Row(channel="chat", act="stop", kind=StopAsked, do=talk_in_a_chat("")),
    Row(channel="chat", act="/approve", kind=PermissionAnswered, do=decide_by_slash_command("approve")),
    Row(channel="chat", act="/workers cancel", kind=StopAsked, do=cancel_by_slash_command),
    Row(channel="chat", act="/deny", kind=PermissionAnswered, do=decide_by_slash_command("deny")),
    *(
        row
        for channel in ("page", "api")
        for row in (
            Row(
                channel=channel,
                act="send",
                kind=MessageReceived,
                do=steer_by_http(channel, "messages", {"text": "Hurry"}),
            ),
            Row(channel=channel, act="pause", kind=PauseAsked, do=steer_by_http(channel, "pause", {})),
            Row(channel=channel, act="stop", kind=StopAsked, do=steer_by_http(channel, "stop", {})),
            Row(channel=channel, act="budget", kind=BudgetChanged, do=steer_by_http(channel, "budget", {"usd": 2})),
            Row(channel=channel, act="review", kind=MessageReceived, do=review_by_http(channel)),
            Row(channel=channel, act="approve", kind=PermissionAnswered, do=decide_by_http(channel)),
            Row(channel=channel, act="answer", kind=QuestionAnswered, do=answer_by_http(channel)),
        )
    ),
    Row(channel="api", act="Run.send", kind=MessageReceived, do=control_run(lambda run: run.send("Hurry"))),
    Row(channel="api", act="Run.pause", kind=PauseAsked, do=control_run(lambda run: run.pause())),
    Row(channel="api", act="Run.stop", kind=StopAsked, do=control_run(lambda run: run.stop())),
    Row(
        channel="api",
        act="Run.change_budget",
        kind=BudgetChanged,
        do=control_run(lambda run: run.change_budget(Budget(turns=9))),
    ),
    Row(
        channel="api",
        act="Run.change_member",
        kind=MemberChanged,
        do=control_run(lambda run: run.change_member("helper", prompt="Be brief.")),
    ),
    Row(channel="api", act="Run.answer", kind=PermissionAnswered, do=control_run(approve_in_python)),
    Row(
        channel="api",
        act="Run.send by ada",
        by="ada",
        kind=MessageReceived,
        do=control_run(lambda run: run.send("x", by="ada")),
    ),
    Row(channel="api", act="leave App.start by ada", by="ada", kind=StopAsked, do=leave_a_run),
    Row(channel="api", act="App.stop", kind=StopAsked, do=stop_by_app),
    Row(channel="mcp", act="approve", kind=PermissionAnswered, do=approve_in_an_mcp_client),
    Row(channel="mcp", act="stop", kind=StopAsked, do=cancel_a_call_of_an_mcp_client),
    Row(channel="acp", act="approve", kind=PermissionAnswered, do=approve_in_an_editor),
    Row(channel="acp", act="stop", kind=StopAsked, do=cancel_in_an_editor),
    Row(channel="a2a", act="send", kind=MessageReceived, do=use_a2a(is_cancelled=False)),
    Row(channel="a2a", act="stop", kind=StopAsked, do=use_a2a(is_cancelled=True)),
    Row(channel="openai", act="stop", kind=StopAsked, do=disconnect_from_openai),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.channel}-{row.act}".replace(" ", "-") for row in ROWS])
def test_an_event_names_who_caused_it_and_through_which_interface(scene: Scene, row: Row) -> None:
    run = row.do(scene)

    event = scene.find_event(run, row.kind)
    fields = structs.asdict(event)
    assert (fields["by"], fields["channel"]) == (row.by, row.channel)
