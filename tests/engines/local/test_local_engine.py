"""A real model, the smallest there is, in a real engine. Its replies are checked for validity, never for content."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import anyio
import pytest
from anyio import create_task_group, run_process, to_thread

from podium import Agent, App, Settings
from podium.core.engine import Text
from podium.engines.local.engine_process import EngineState, LocalEngine, check_library, read_engine_state
from podium.engines.local.local_wire import LocalWire
from podium.engines.local.model_folder import InstalledModel, ModelFolder
from podium.engines.model.model_wire import Message, ModelCall, ReplyEnd
from podium.values.agent import Budget, Router
from podium.values.errors import DependencyMissing, OutsideFailed
from podium.values.event import Routed

from ..outside import collect_parts
from .conftest import SMALLEST, MakeEngine
from .gguf import build_gguf
from .test_model_installation import Shelf

COLOURS = ("red", "green", "blue")
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": list(COLOURS)}, "count": {"type": "integer"}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}


@asynccontextmanager
async def open_wire(engine: LocalEngine) -> AsyncIterator[LocalWire]:
    async with aiohttp.ClientSession() as client:
        yield LocalWire(lambda: client, engine)


def ask(text: str, *, max_tokens: int = 24, **fields: object) -> ModelCall:
    return ModelCall(
        agent="tester",
        model=SMALLEST,
        system="Answer in a few words.",
        messages=(Message(role="user", text=text),),
        max_tokens=max_tokens,
        **fields,  # type: ignore[arg-type]
    )


async def wait_until_ended(pid: int) -> None:
    with anyio.fail_after(30):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await anyio.sleep(0.05)


# What the engine can do


async def test_a_reply_arrives_in_pieces_with_its_usage(make_engine: MakeEngine) -> None:
    async with open_wire(make_engine()) as wire:
        parts = await collect_parts(wire, ask("Name three animals."))

    texts = [part.text for part in parts if isinstance(part, Text)]
    end = parts[-1]
    assert len(texts) > 2
    assert isinstance(end, ReplyEnd)
    assert end.stop in ("stop", "length")
    assert 0 < end.usage.output_tokens <= 24
    assert end.usage.input_tokens > 10


async def test_a_reply_under_a_schema_is_valid(make_engine: MakeEngine) -> None:
    async with open_wire(make_engine()) as wire:
        parts = await collect_parts(wire, ask("Which colour has the sky?", max_tokens=60, schema=SCHEMA))

    reply = json.loads("".join(part.text for part in parts if isinstance(part, Text)))
    assert reply["colour"] in COLOURS
    assert isinstance(reply["count"], int)


async def test_a_router_with_a_local_model_names_a_destination_or_fails(
    make_engine: MakeEngine, model_folder: ModelFolder, tmp_path: Path
) -> None:
    settings = Settings.load({}, home=tmp_path, model=f"local:{SMALLEST}", budget=Budget(tokens=1_000))
    script = '```script\n["yes"]\n```'
    animals = ("cats", "dogs")
    members = tuple(Agent(name=name, description=name, engine="scripted", prompt=script) for name in animals)
    desk = Agent(name="desk", router=Router(destinations=animals), tools=(), prompt="Choose.")
    environ = {**os.environ, "PODIUM_MODELS": str(model_folder.root)}

    async with App(settings, environ=environ) as app, app.start(desk, "My dog barks.", agents=members) as run:
        events = [entry.event async for entry in run.entries()]
        result = await run.result()

    routed = [event.agent for event in events if isinstance(event, Routed)]
    assert (result.outcome == "succeeded") == bool(routed)
    assert set(routed) <= set(animals)


def test_a_local_model_has_emulated_tool_calls_and_the_window_of_its_file(small_model: InstalledModel) -> None:
    abilities = small_model.abilities

    assert (abilities.native_calls, abilities.written_calls, abilities.json_schema) == (False, True, True)
    assert (abilities.window, abilities.concurrent) == (8192, 1)


# One engine for all


START = """
import anyio, os, sys
from pathlib import Path
from podium.engines.local.engine_process import LocalEngine
from podium.engines.local.model_folder import ModelFolder
engine = LocalEngine(folder=ModelFolder(Path(sys.argv[1])), name=sys.argv[2], environ=os.environ)
print(anyio.run(engine.ensure_running).pid)
"""


async def test_processes_that_start_an_engine_at_once_share_one(make_engine: MakeEngine) -> None:
    engine = make_engine()
    if (running := engine.find_running()) is not None:
        os.kill(running.pid, signal.SIGKILL)
        await wait_until_ended(running.pid)
    pids: list[bytes] = []

    async def start() -> None:
        done = await run_process([sys.executable, "-c", START, str(engine.folder.root), SMALLEST])
        pids.append(done.stdout)

    async with create_task_group() as group:
        for _ in range(3):
            group.start_soon(start)

    assert len(set(pids)) == 1
    assert engine.find_running() == read_engine_state(engine.state_path)


@pytest.mark.slow
async def test_calls_are_answered_one_after_the_other(make_engine: MakeEngine) -> None:
    ends: list[str] = []

    async with open_wire(make_engine()) as wire, create_task_group() as group:

        async def call(name: str, words: int) -> None:
            await collect_parts(wire, ask(f"Tell a story about {name}.", max_tokens=words))
            ends.append(name)

        group.start_soon(call, "first", 60)
        await anyio.sleep(0.3)  # the first call has to arrive first
        group.start_soon(call, "second", 1)

    assert ends == ["first", "second"]


async def test_only_the_owner_can_read_the_token_and_nothing_is_answered_without_it(make_engine: MakeEngine) -> None:
    engine = make_engine()
    state = await engine.ensure_running()

    assert stat.S_IMODE(engine.state_path.stat().st_mode) == 0o600
    assert state.url.startswith("http://127.0.0.1:")
    async with aiohttp.ClientSession() as client:
        for path in ("models", "chat/completions"):
            async with client.post(f"{state.url}/{path}", json={}, headers={"Authorization": "Bearer x"}) as answer:
                assert answer.status == 401
    assert state.token not in Path(f"/proc/{state.pid}/cmdline").read_text()
    assert state.token not in Path(f"/proc/{state.pid}/environ").read_text()


@pytest.mark.slow
async def test_the_engine_gets_no_keys(model_folder: ModelFolder, tmp_path: Path) -> None:
    environ = {**os.environ, "OPENAI_API_KEY": "sk-secret", "PODIUM_HOME": "/nowhere"}
    engine = LocalEngine(folder=model_folder, name=SMALLEST, environ=environ)
    if (running := engine.find_running()) is not None:
        engine.ask_to_end()
        await wait_until_ended(running.pid)

    state = await engine.ensure_running()

    assert "sk-secret" not in Path(f"/proc/{state.pid}/environ").read_text()


async def test_an_engine_that_was_killed_is_started_again_by_the_next_call(make_engine: MakeEngine) -> None:
    engine = make_engine()
    first = await engine.ensure_running()
    os.kill(first.pid, signal.SIGKILL)
    await wait_until_ended(first.pid)

    async with open_wire(engine) as wire:
        parts = await collect_parts(wire, ask("Hello?", max_tokens=4))

    assert isinstance(parts[-1], ReplyEnd)
    second = engine.find_running()
    assert second is not None
    assert second.pid != first.pid


@pytest.mark.slow
async def test_an_engine_that_is_killed_in_a_reply_fails_that_call_and_may_be_tried_again(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    state = await engine.ensure_running()

    async with open_wire(engine) as wire:
        with pytest.raises(OutsideFailed) as caught:
            async for _ in wire.stream(ask("Tell a long story.", max_tokens=400)):
                os.kill(state.pid, signal.SIGKILL)

    assert caught.value.retryable
    await wait_until_ended(state.pid)


@pytest.mark.slow
async def test_an_unused_engine_ends_and_leaves_no_state(make_engine: MakeEngine) -> None:
    engine = make_engine(idle_seconds=0.5)
    if (running := engine.find_running()) is not None:
        engine.ask_to_end()
        await wait_until_ended(running.pid)

    state = await engine.ensure_running()
    await wait_until_ended(state.pid)

    assert not engine.state_path.exists()
    assert engine.find_running() is None


@pytest.mark.slow
async def test_a_state_file_of_a_dead_engine_is_not_believed(make_engine: MakeEngine) -> None:
    engine = make_engine(idle_seconds=0.5)
    if (running := engine.find_running()) is not None:
        engine.ask_to_end()
        await wait_until_ended(running.pid)
    engine.state_path.write_bytes(b'{"pid": %d, "url": "http://127.0.0.1:1/v1", "token": "x"}' % os.getpid())

    assert engine.find_running() is None
    assert isinstance(await engine.ensure_running(), EngineState)


# What can be missing


async def test_a_missing_package_is_named(tmp_path: Path) -> None:
    shadow = tmp_path / "packages" / "xllamacpp"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'xllamacpp'\", name='xllamacpp')\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(shadow.parent)}

    with pytest.raises(DependencyMissing, match=r"^local models need the package xllamacpp; .*podium\[local\]"):
        await check_library(environ, ModelFolder(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other libraries")
async def test_a_missing_system_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "libgomp.so.1").write_bytes(b"")  # found first, and not a library
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}

    with pytest.raises(DependencyMissing, match=r"xllamacpp cannot be loaded: .*; install libgomp, .*libgomp1$"):
        await check_library(environ, ModelFolder(tmp_path))


async def test_a_file_that_no_model_can_be_loaded_from_fails_in_one_sentence(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    (tmp_path / "empty.gguf").write_bytes(build_gguf())
    await to_thread.run_sync(partial(shelf.installer().add_file, tmp_path / "empty.gguf"))

    with pytest.raises(OutsideFailed) as caught:
        await LocalEngine(folder=shelf.folder, name="empty", environ=os.environ).ensure_running()

    assert "\n" not in str(caught.value)
    assert "empty" in str(caught.value)
