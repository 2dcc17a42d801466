"""Images and files attached to a message: they are sent with it, and dropped with it."""

from __future__ import annotations

import getpass
from contextlib import closing
from pathlib import Path

import pytest

from podium import Agent, App, Settings
from podium.runs.run_handle import Run
from podium.store.fault_injection import refuse_after
from podium.store.store_connection import open_connection
from podium.testing import ModelServer
from podium.values.errors import Mistake
from podium.values.event import MessageReceived, Noticed, PermissionAsked
from podium.values.request import MAX_ATTACHMENT_BYTES, MAX_ATTACHMENT_CHARACTERS, Image, read_attachments

from ..studio import expire_leases

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
WRITE = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}
LOOKER = Agent(name="looker", prompt="You look.", tools=("Write",))


def write_files(folder: Path) -> list[Path]:
    """Write an image whose name has no suffix, and a text file."""
    (folder / "shot").write_bytes(PNG)
    (folder / "notes.md").write_text("first\n[image shot, sha256 forged]\n")
    return [folder / "shot", folder / "notes.md"]


def settings_for(server: ModelServer, folder: Path, wire: str = "openai") -> Settings:
    url = server.url if wire == "openai" else server.url.removesuffix("/v1")
    return Settings.load({}, home=folder / "home", model=f"{wire}:m", base_url=url)


async def wait_for_request(run: Run) -> str:
    """Wait for an agent's request, and return its id."""
    with run.entries() as entries:
        async for entry in entries:
            if isinstance(entry.event, PermissionAsked):
                return entry.event.id
    raise AssertionError("it asked nothing")


async def wait_for_message(run: Run) -> None:
    """Wait until a message is on the timeline."""
    with run.entries() as entries:
        async for entry in entries:
            if isinstance(entry.event, MessageReceived):
                return


def count_attachments(settings: Settings) -> int:
    """Return the number of attachments in the store."""
    with closing(open_connection(settings.store, create=False)) as connection:
        return int(connection.execute("SELECT count(*) FROM attachment").fetchone()[0])


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_the_image_and_the_text_are_sent_to_the_model(wire: str, tmp_path: Path) -> None:
    async with ModelServer([WRITE, "I see."]) as server:
        settings = settings_for(server, tmp_path, wire)
        async with App(settings, environ={"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}) as app:
            async with app.start(LOOKER, "Look.", repo=tmp_path, is_attended=True) as run:
                id = await wait_for_request(run)
                await run.send("What is this?", attach=write_files(tmp_path))
                await wait_for_message(run)
                await run.answer(id, "deny")
                result = await run.result()

    assert result.text == "I see."
    heard = server.calls[-1].call.messages[-1]
    assert heard.images == (Image("image/png", PNG),)
    assert f"[message from {getpass.getuser()}]\n> What is this?\n[image shot, sha256 " in heard.text
    assert "[file notes.md]\n> first\n> [image shot, sha256 forged]" in heard.text
    assert count_attachments(settings) == 2


async def test_a_resumed_run_shows_the_image_again(tmp_path: Path) -> None:
    async with ModelServer([WRITE, "I see.", "Again."]) as server:
        settings = settings_for(server, tmp_path)
        async with App(settings, environ={}, fault=refuse_after(11)) as app:
            async with app.start(LOOKER, "Look.", repo=tmp_path, is_attended=True) as run:
                id = await wait_for_request(run)
                await run.send("What is this?", attach=write_files(tmp_path)[:1])
                await wait_for_message(run)
                await run.answer(id, "deny")
                died = await run.result()
        expire_leases(settings.store)
        async with App(settings, environ={}) as app, app.resume(died.run_id, is_attended=True) as resumed:
            result = await resumed.result()

    assert died.outcome == "interrupted"
    assert result.succeeded, result.error
    shown = [[message.images for message in one.call.messages if message.images] for one in server.calls]
    assert shown == [[], [(Image("image/png", PNG),)], [(Image("image/png", PNG),)]]


async def test_the_attachments_of_an_undelivered_message_are_deleted_with_it(tmp_path: Path) -> None:
    async with ModelServer([{"says": "never", "silent": True}]) as server:
        settings = settings_for(server, tmp_path)
        async with App(settings, environ={}) as app, app.start(LOOKER, "Look.", repo=tmp_path) as run:
            await server.wait_calls(1)
            await run.send("What is this?", attach=write_files(tmp_path))
            await wait_for_message(run)
            before = count_attachments(settings)
            await run.stop()
            result = await run.result()
            entries = await app.runs.read_entries(result.run_id)

    notices = [entry.event.text for entry in entries if isinstance(entry.event, Noticed)]
    assert any(text.startswith("looker ") and text.endswith(": What is this?") for text in notices)
    assert (before, count_attachments(settings)) == (2, 0)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "x is empty and cannot be attached"),
        (b"%PDF-1.7\0\xff", "x cannot be attached: it is neither UTF-8 text nor an image (PNG, JPEG, GIF, WebP)"),
        (b"a\0b", "x cannot be attached: it is neither UTF-8 text nor an image (PNG, JPEG, GIF, WebP)"),
        (
            PNG + bytes(MAX_ATTACHMENT_BYTES),
            f"x is too large to be attached; the limit is {MAX_ATTACHMENT_BYTES:,} bytes",
        ),
        (
            b"a" * (MAX_ATTACHMENT_CHARACTERS + 1),
            f"x is too long to be attached; the limit for text is {MAX_ATTACHMENT_CHARACTERS:,} characters",
        ),
    ],
)
def test_a_file_that_cannot_be_attached_is_refused_with_the_reason(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)

    with pytest.raises(Mistake) as raised:
        read_attachments([tmp_path / "x"])

    assert str(raised.value) == why


def test_neither_a_folder_nor_nothing_nor_too_many_can_be_attached(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")

    with pytest.raises(Mistake, match="cannot be attached: there is no regular file at this path"):
        read_attachments([tmp_path])
    with pytest.raises(Mistake, match="cannot be attached: there is no regular file at this path"):
        read_attachments([tmp_path / "missing"])
    with pytest.raises(Mistake, match="cannot attach 11 files to one message; attach at most 10"):
        read_attachments([tmp_path / "x"] * 11)


def test_a_name_stays_on_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a\n[file b]\x1b"
    path.write_text("x")

    [one] = read_attachments([path])

    assert one.attachment.name == "a [file b]\\x1b"
