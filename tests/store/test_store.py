from __future__ import annotations

import os
import re
import socket
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from anyio import Event, create_task_group, to_thread, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from podium import __version__
from podium.core.journal_rows import find_chain_break
from podium.core.timeline import Timeline
from podium.store import run_leases
from podium.store.follower import PAGE, Follower
from podium.store.mailbox import MailboxMessage, post_to_mailbox
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.store.sqlite.commit import SqliteCommitter
from podium.store.sqlite.schema import APPLICATION, MIGRATIONS
from podium.store.store_connection import open_connection
from podium.store.wakeup import ensure_socket_folder
from podium.values.errors import LeaseLost, NoSuchRun, RunHeld, StoreCorrupt, StoreFailed
from podium.values.event import Noticed, QuestionAnswered, RunEnded, RunPaused, RunStarted, StopAsked
from podium.values.request import Request
from podium.values.store_address import StoreAddress

from ..studio import expire_leases


def append_notice(timeline: Timeline, text: str = "x") -> None:
    timeline.append(Noticed(text=text), scope="")


def count_rows(path: StoreAddress, run: str = "r") -> int:
    with StoreReader(path) as reader:
        return len(reader.read_rows(run))


async def test_written_entries_are_visible_to_every_other_process(tmp_path: Path) -> None:
    async with RunStore(tmp_path / "s.db") as store:
        timeline = Timeline("r", store.begin_run("r"))
        for number in range(300):
            append_notice(timeline, str(number))
        await timeline.wait_written()

        seen = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys, pathlib\nfrom podium.store.reader import StoreReader\n"
                "print(len(StoreReader(pathlib.Path(sys.argv[1])).read_rows('r')))",
                str(store.path),
            ],
            capture_output=True,
            text=True,
            check=True,
        )

    assert seen.stdout.strip() == "300"


async def test_a_thousand_runs_share_transactions_and_keep_their_order(address: StoreAddress) -> None:
    async with RunStore(address) as store:

        async def work(name: str) -> None:
            timeline = Timeline(name, store.begin_run(name))
            for number in range(3):
                append_notice(timeline, str(number))
                await timeline.wait_written()

        async with create_task_group() as group:
            for number in range(1000):
                group.start_soon(work, f"r{number}")

    with StoreReader(address) as reader:
        assert all(find_chain_break(reader.read_rows(f"r{number}")) is None for number in range(1000))
        assert sum(len(reader.read_rows(f"r{number}")) for number in range(1000)) == 3000


async def test_a_run_that_a_live_process_owns_is_not_taken_and_its_owner_is_named(address: StoreAddress) -> None:
    async with RunStore(address) as one, RunStore(address) as two:
        timeline = Timeline("r", one.begin_run("r"))
        append_notice(timeline)
        await timeline.wait_written()

        with pytest.raises(RunHeld, match=f"process {os.getpid()} on "):
            await two.claim_run("r")


async def test_of_many_stores_that_claim_a_run_one_gets_it(address: StoreAddress) -> None:
    async with RunStore(address) as first:
        timeline = Timeline("r", lease := first.begin_run("r"))
        append_notice(timeline)
        first.release_run(lease)
        await timeline.wait_written()
    got: list[int] = []

    async def claim() -> None:
        async with RunStore(address) as store:
            try:
                got.append((await store.claim_run("r")).epoch)
            except RunHeld:
                return
            await barrier.wait()

    barrier = Event()
    async with create_task_group() as group:
        for _ in range(10):
            group.start_soon(claim)
        await wait_all_tasks_blocked()
        while not got:
            await wait_all_tasks_blocked()
        barrier.set()

    assert got[0] == 2


def execute_sql(store: StoreAddress, sql: str) -> list[Any]:
    """Execute a statement in the database of a store, and return its rows."""
    with closing(open_connection(store, create=False)) as connection:
        rows = connection.execute(sql)
        return rows.fetchall() if sql.startswith("SELECT") else []


async def test_of_several_claims_on_a_run_in_one_process_one_succeeds(address: StoreAddress) -> None:
    async with RunStore(address) as store:
        lease = store.begin_run("r")
        append_notice(Timeline("r", lease))
        store.release_run(lease)
        await lease.wait_written()
        epochs, refused = [], []

        async def claim() -> None:
            try:
                epochs.append((await store.claim_run("r")).epoch)
            except RunHeld as error:
                refused.append(error)

        async with create_task_group() as group:
            for _ in range(3):
                group.start_soon(claim)

        assert epochs == [2]
        assert len(refused) == 2


async def test_a_released_run_has_no_owner_once_the_release_is_written(address: StoreAddress) -> None:
    async with RunStore(address) as store:
        lease = store.begin_run("r")
        Timeline("r", lease).append(RunStarted(agent="a", request=Request(text="go")), scope="")
        await lease.wait_written()

        store.release_run(lease)
        await lease.wait_written()

        with StoreReader(store.path) as reader:
            assert reader.read_summary("r").owner is None


async def test_a_late_writer_with_an_old_epoch_is_refused_and_writes_nothing_more(address: StoreAddress) -> None:
    async with RunStore(address) as slow:
        late = Timeline("r", slow.begin_run("r"))
        append_notice(late)
        await late.wait_written()
        expire_leases(address)
        async with RunStore(address) as quick:
            lease = await quick.claim_run("r")
            timeline = Timeline("r", lease)
            timeline.load(await quick.read_rows("r"))
            append_notice(timeline, "taken over")
            await timeline.wait_written()

            append_notice(late, "too late")
            with pytest.raises(LeaseLost, match="taken over by another process"):
                await late.wait_written()
            with pytest.raises(LeaseLost):
                append_notice(late, "again")

            quick.release_run(lease)
            await lease.wait_written()

    with StoreReader(address) as reader:
        texts = [entry.event.text for entry in reader.read_entries("r") if isinstance(entry.event, Noticed)]
        assert texts == ["x", "taken over"]
        assert find_chain_break(reader.read_rows("r")) is None


async def test_an_error_of_one_run_does_not_affect_another(address: StoreAddress) -> None:
    async with RunStore(address) as store:
        lost, fine = Timeline("lost", store.begin_run("lost")), Timeline("fine", store.begin_run("fine"))
        append_notice(lost)
        append_notice(fine)
        await fine.wait_written()
        execute_sql(address, "UPDATE run SET epoch = 9 WHERE id = 'lost'")

        append_notice(lost)
        append_notice(fine)
        await fine.wait_written()
        with pytest.raises(LeaseLost):
            await lost.wait_written()

    assert (count_rows(address, "lost"), count_rows(address, "fine")) == (1, 2)


async def test_a_run_of_an_exited_process_can_be_claimed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    script = (
        "import asyncio, os, pathlib, sys\n"
        "from podium.values.event import Noticed\n"
        "from podium.core.timeline import Timeline\n"
        "from podium.store.run_store import RunStore\n"
        "async def main():\n"
        "    async with RunStore(pathlib.Path(sys.argv[1])) as store:\n"
        "        timeline = Timeline('r', store.begin_run('r'))\n"
        "        timeline.append(Noticed(text='x'), scope='')\n"
        "        await timeline.wait_written()\n"
        "        os._exit(9)\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)

    async with RunStore(path) as store:
        lease = await store.claim_run("r")

    assert lease.epoch == 2


async def test_a_lease_that_is_not_renewed_ends_by_itself_on_another_machine(tmp_path: Path) -> None:
    here = run_leases.Owner(id="x", host="elsewhere", boot="b", pid=1, process_start="1", until=2**40)

    assert here.is_alive
    assert not run_leases.Owner(id="x", host="elsewhere", boot="b", pid=1, process_start="1", until=1).is_alive


async def test_a_mailbox_message_reaches_the_owner_at_once_and_is_taken_with_its_entry(address: StoreAddress) -> None:
    received: list[MailboxMessage] = []
    async with RunStore(address) as store:
        lease = store.begin_run("r")
        timeline = Timeline("r", lease)
        append_notice(timeline)
        await timeline.wait_written()
        arrived = Event()

        def deliver(message: MailboxMessage) -> None:
            received.append(message)
            timeline.append(message.event, scope="", mail=message.id)
            arrived.set()

        lease.deliver = deliver
        assert await to_thread.run_sync(post_to_mailbox, address, "r", StopAsked(by="me"))
        await arrived.wait()
        await timeline.wait_written()
        await store.deliver_mail(lease)

    assert [message.event for message in received] == [StopAsked(by="me")]
    assert execute_sql(address, "SELECT taken FROM mail") == [(2,)]


async def test_the_mailbox_keeps_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "canary-4f1d-9a0c")
    async with RunStore(tmp_path / "s.db") as store:
        store.begin_run("r")

        post_to_mailbox(tmp_path / "s.db", "r", QuestionAnswered(id="q", text="it is canary-4f1d-9a0c"), ref="q")

        files = [path.read_bytes() for path in tmp_path.glob("s.db*") if path.is_file()]
    assert any(b"[SHOP_API_KEY]" in data for data in files)
    assert not any(b"canary-4f1d-9a0c" in data for data in files)


async def test_a_mailbox_message_to_a_run_without_an_owner_waits_for_the_next_one(address: StoreAddress) -> None:
    async with RunStore(address) as store:
        lease = store.begin_run("r")
        timeline = Timeline("r", lease)
        append_notice(timeline)
        store.release_run(lease)
        await timeline.wait_written()
    post_to_mailbox(address, "r", StopAsked(by="me"))

    received: list[MailboxMessage] = []
    async with RunStore(address) as store:
        lease = await store.claim_run("r")
        lease.deliver = received.append
        await store.deliver_mail(lease)

    assert [message.event for message in received] == [StopAsked(by="me")]


async def test_of_two_answers_to_one_question_the_first_is_the_decision(address: StoreAddress) -> None:
    async with RunStore(address) as store:
        append_notice(timeline := Timeline("r", store.begin_run("r")))
        await timeline.wait_written()

        assert post_to_mailbox(address, "r", StopAsked(by="one"), ref="question-1")
        assert not post_to_mailbox(address, "r", StopAsked(by="two"), ref="question-1")


async def test_a_follower_sees_past_and_new_entries_until_the_end(address: StoreAddress) -> None:
    seen: list[str] = []
    async with RunStore(address) as store:
        timeline = Timeline("r", store.begin_run("r"))
        append_notice(timeline, "before")
        await timeline.wait_written()

        async def follow() -> None:
            with Follower(address, "r") as follower:
                async for entry in follower:
                    seen.append(getattr(entry.event, "text", "end"))
                    if seen == ["before"]:
                        for number in range(3):
                            append_notice(timeline, str(number))
                            await timeline.wait_written()
                        timeline.append(RunEnded(outcome="succeeded"), scope="")

        await follow()

    assert seen == ["before", "0", "1", "2", "end"]


async def test_many_followers_that_come_at_any_moment_miss_nothing(address: StoreAddress) -> None:
    counts: list[int] = []
    async with RunStore(address) as store:
        timeline = Timeline("r", store.begin_run("r"))
        append_notice(timeline)
        await timeline.wait_written()

        async def follow() -> None:
            with Follower(address, "r") as follower:
                counts.append(len([entry async for entry in follower]))

        async with create_task_group() as group:
            for _ in range(20):
                group.start_soon(follow)
                for _ in range(5):
                    append_notice(timeline)
                    await timeline.wait_written()
                    await checkpoint()
            timeline.append(RunEnded(outcome="succeeded"), scope="")

    assert counts == [102] * 20


async def test_a_follower_of_a_resumed_run_does_not_take_an_old_pause_for_the_end(
    address: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RunStore(address) as store:
        timeline = Timeline("r", store.begin_run("r"))
        for number in range(PAGE - 1):
            append_notice(timeline, str(number))
        timeline.append(RunPaused(), scope="")
        append_notice(timeline, "going on")
        timeline.append(RunEnded(outcome="succeeded"), scope="")
        await timeline.wait_written()

    with Follower(address, "r") as follower:
        seen = [entry.seq async for entry in follower]

    assert seen[-1] == PAGE + 2


async def test_an_unreadable_entry_is_reported_as_corruption(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path) as store:
        append_notice(timeline := Timeline("r", store.begin_run("r")))
        await timeline.wait_written()
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entry_stays")
    connection.execute("UPDATE entry SET line = x'00'")
    connection.commit()
    connection.close()

    newer = f"it is damaged, or was written by a newer version of Podium than this one ({__version__})"
    with (
        StoreReader(path) as reader,
        pytest.raises(StoreCorrupt, match=rf"in run r cannot be read .*: {re.escape(newer)};"),
    ):
        reader.list_runs()


async def test_an_entry_of_a_newer_release_names_its_run_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path) as store:
        append_notice(timeline := Timeline("r", store.begin_run("r")))
        await timeline.wait_written()
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entry_stays")
    connection.execute("UPDATE entry SET line = CAST(replace(CAST(line AS TEXT), 'noticed', 'foreseen') AS BLOB)")
    connection.commit()
    connection.close()

    with StoreReader(path) as reader, pytest.raises(StoreCorrupt) as raised:
        reader.list_runs()

    assert str(raised.value) == (
        "entry 1 of run r cannot be read (Invalid value 'foreseen' - at `$.event.type`): it is damaged, or was "
        f"written by a newer version of Podium than this one ({__version__}); run podium verify r to see whether it "
        "is damaged; if it is not, update Podium"
    )


async def test_a_store_whose_path_is_too_long_for_a_socket_works(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 90) / "s.db"

    async with RunStore(path) as store:
        append_notice(timeline := Timeline("r", store.begin_run("r")))
        timeline.append(RunEnded(outcome="succeeded"), scope="")
        await timeline.wait_written()
        with Follower(path, "r") as follower:
            assert len([entry async for entry in follower]) == 2


@pytest.mark.parametrize("version", [0, 1])
def test_a_file_of_another_program_is_left_as_it_is(tmp_path: Path, version: int) -> None:
    path = tmp_path / "s.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE contact (name TEXT)")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreCorrupt, match="belongs to another program"):
        open_connection(path, create=True)

    assert path.read_bytes() == before


async def test_a_deleted_lease_is_restored_by_the_next_renewal(address: StoreAddress) -> None:
    async with RunStore(address) as store:
        append_notice(timeline := Timeline("r", store.begin_run("r")))
        await timeline.wait_written()
        execute_sql(address, "DELETE FROM owner")

        store._renew_leases()
        append_notice(timeline)
        await timeline.wait_written()

        async with RunStore(address) as other:
            with pytest.raises(RunHeld):
                await other.claim_run("r")


async def test_a_process_in_another_pid_namespace_is_judged_by_its_lease_alone(tmp_path: Path) -> None:
    elsewhere = run_leases.Owner(
        id="x", host=socket.gethostname(), boot="another space", pid=2**22 + 1, process_start="1", until=2**40
    )

    assert elsewhere.is_alive


async def test_a_mailbox_message_waits_until_the_lease_accepts_messages(address: StoreAddress) -> None:
    async with RunStore(address) as store:
        lease = store.begin_run("r")
        append_notice(timeline := Timeline("r", lease))
        await timeline.wait_written()
        post_to_mailbox(address, "r", StopAsked())
        await store.deliver_mail(lease)

        received: list[MailboxMessage] = []
        lease.deliver = received.append
        await store.deliver_mail(lease)

    assert len(received) == 1


async def test_an_unreadable_mailbox_message_does_not_block_the_next(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path) as store:
        lease = store.begin_run("r")
        append_notice(timeline := Timeline("r", lease))
        await timeline.wait_written()
        connection = sqlite3.connect(path)
        connection.execute("INSERT INTO mail (run, ref, at, line) VALUES ('r', 'x', 0, x'7b7d')")
        connection.commit()
        connection.close()
        post_to_mailbox(path, "r", StopAsked())
        received: list[MailboxMessage] = []
        lease.deliver = received.append
        await store.deliver_mail(lease)

    assert [message.event for message in received] == [StopAsked()]


async def test_a_closed_store_refuses_instead_of_waiting_for_ever(address: StoreAddress) -> None:
    async with RunStore(address) as store:
        timeline = Timeline("r", store.begin_run("r"))

    with pytest.raises(StoreFailed, match="closed"):
        append_notice(timeline)


async def test_the_store_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with RunStore(tmp_path / "home" / "s.db") as store:
            append_notice(timeline := Timeline("r", store.begin_run("r")))
            await timeline.wait_written()
            files = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "home").iterdir() if path.is_file()}
            folders = {
                stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "home", ensure_socket_folder(store.path))
            }
    finally:
        os.umask(before)

    assert folders == {0o700}
    assert files == {0o600}


def test_a_file_that_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"this is a letter to my aunt" * 200)

    with pytest.raises(StoreCorrupt, match="not a readable store"):
        StoreReader(path)

    assert path.read_bytes() == b"this is a letter to my aunt" * 200


@pytest.mark.parametrize(
    ("release", "writer"), [("99.1.0", "Podium 99.1.0"), (__version__, "a newer Podium"), ("", "a newer Podium")]
)
async def test_a_store_of_a_newer_release_says_which_one_wrote_it(tmp_path: Path, release: str, writer: str) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path) as store:
        timeline = Timeline("r", store.begin_run("r"))
        timeline.append(RunStarted(agent="a", request=Request(text="go"), version=release), scope="")
        await timeline.wait_written()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    for open_store in (StoreReader, partial(open_connection, create=True)):
        with pytest.raises(StoreFailed) as raised:
            open_store(path)

        assert str(raised.value) == (
            f"{path} was written by {writer} (store version 99); this is Podium {__version__}, which supports versions "
            f"up to {len(MIGRATIONS)}; update it with pip install --upgrade podium, or set PODIUM_STORE to another file"
        )


def test_a_newer_store_with_other_tables_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(StoreFailed, match=r"written by a newer Podium \(store version 99\)"):
        StoreReader(path)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a read-only file system")
def test_an_older_store_on_a_read_only_file_system_says_that_it_must_be_updated(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    open_connection(path, create=True).close()
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE attachment")
    connection.execute("PRAGMA user_version = 4")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    program = "import pathlib, sys\nfrom podium.store.reader import StoreReader\nStoreReader(pathlib.Path(sys.argv[1]))"
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$4"'
    arguments = ["sh", str(tmp_path), sys.executable, program, str(path)]

    said = subprocess.run(["unshare", "--mount", "sh", "-c", script, *arguments], capture_output=True, text=True)

    assert said.stderr.splitlines()[-1] == (
        f"podium.values.errors.StoreFailed: {path} was written by an older Podium (store version 4). Podium "
        f"{__version__} must update it to version {len(MIGRATIONS)}, but the file is read-only; make it writable, or "
        "copy it and set PODIUM_STORE to the copy"
    )


LEAVES_A_LOG = """
import asyncio, os, sys
from pathlib import Path
from podium.core.timeline import Timeline
from podium.store.run_store import RunStore
from podium.values.event import RunStarted
from podium.values.request import Request

async def main():
    store = RunStore(Path(sys.argv[1]))
    async with store:
        timeline = Timeline("r", store.begin_run("r"))
        timeline.append(RunStarted(agent="lead", request=Request(text="go")), scope="")
        await timeline.wait_written()
        if sys.argv[2] == "killed":
            os._exit(0)

asyncio.run(main())
"""
LISTS_AS_NOBODY = """
import os, pathlib, sys
import podium.store.sqlite.connection
from podium.store.reader import StoreReader
os.setuid(65534)
with StoreReader(pathlib.Path(sys.argv[1])) as reader:
    print(*reader.list_run_ids())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to read a store as another user")
@pytest.mark.parametrize("end", ["ended", "killed"])
def test_a_store_that_cannot_be_written_to_is_readable_with_and_without_a_write_ahead_log(end: str) -> None:
    # Not in pytest's own folder, which other users cannot enter.
    with TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        path = Path(above) / "home" / "s.db"
        path.parent.mkdir()
        subprocess.run([sys.executable, "-c", LEAVES_A_LOG, str(path), end], check=True)
        path.with_name("s.db-shm").unlink(missing_ok=True)
        for one in path.parent.glob("s.db*"):
            one.chmod(0o444 if one.is_file() else 0o555)
        path.parent.chmod(0o555)
        assert path.with_name("s.db-wal").exists() == (end == "killed")

        said = subprocess.run([sys.executable, "-c", LISTS_AS_NOBODY, str(path)], capture_output=True, text=True)

        assert said.stdout == "r\n", said.stderr
        path.parent.chmod(0o755)


DIES_WHILE_IT_CREATES_A_STORE = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
for number in range(50):
    connection.execute(f"CREATE TABLE t{number} (content text)")
os._exit(0)
"""


def test_a_store_whose_creation_was_cut_short_is_readable_and_is_then_created(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    subprocess.run([sys.executable, "-c", DIES_WHILE_IT_CREATES_A_STORE, str(path)], check=True)
    assert path.with_name("s.db-journal").stat().st_size > 0

    with StoreReader(path) as reader:
        runs = reader.list_run_ids()

    assert runs == []
    open_connection(path, create=True).close()


def test_reading_a_missing_store_does_not_create_it(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="no store at"):
        StoreReader(tmp_path / "nowhere" / "s.db")

    assert list(tmp_path.iterdir()) == []


async def test_a_run_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path) as store:
        for name in ("abc1", "abd2"):
            append_notice(timeline := Timeline(name, store.begin_run(name)))
            await timeline.wait_written()

    with StoreReader(path) as reader:
        assert reader.find_run("abc") == "abc1"
        with pytest.raises(NoSuchRun, match="several runs: ab"):
            reader.find_run("ab")
        with pytest.raises(NoSuchRun, match="run 'x' not found"):
            reader.find_run("x")
        with pytest.raises(NoSuchRun):
            reader.find_run("")


async def test_entries_cannot_be_changed_through_the_store(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path) as store:
        append_notice(timeline := Timeline("r", store.begin_run("r")))
        await timeline.wait_written()
    connection = sqlite3.connect(path)

    with pytest.raises(sqlite3.IntegrityError, match="entries never change"):
        connection.execute("UPDATE entry SET line = x'00'")
    connection.close()


async def test_a_full_disk_refuses_before_anything_follows_and_recovers(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path) as store:
        lease = store.begin_run("r")
        timeline = Timeline("r", lease)
        append_notice(timeline)
        await timeline.wait_written()
        full = store.writer._committer
        assert isinstance(full, SqliteCommitter)
        pages = full._loop_connection.execute("PRAGMA page_count").fetchone()[0]
        for connection in (full._loop_connection, full._thread_connection):
            connection.execute(f"PRAGMA max_page_count = {pages}")

        append_notice(timeline, "y" * 100_000)
        with pytest.raises(StoreFailed, match="disk is full"):
            await timeline.wait_written()

    async with RunStore(path) as store:
        lease = await store.claim_run("r")
        again = Timeline("r", lease)
        again.load(await store.read_rows("r"))
        append_notice(again, "room again")
        await again.wait_written()

    with StoreReader(path) as reader:
        assert find_chain_break(reader.read_rows("r")) is None
        assert len(reader.read_rows("r")) == 2
