"""The worker protocol on real sockets: what is accepted, and what is refused."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from anyio import (
    BrokenResourceError,
    EndOfStream,
    Event,
    IncompleteRead,
    create_task_group,
    fail_after,
    move_on_after,
    to_thread,
)

from podium.workers.wire.line_socket import MAX_FRAME_BYTES, BadFrame, ConnectionClosed, FrameTooLong
from podium.workers.wire.link import HandshakeRejected, Link, LinkLimits
from podium.workers.wire.wire_message import (
    Cancel,
    Handshake,
    Order,
    PermissionRequest,
    Report,
    encode_message,
    stamp_message,
)
from podium.workers.wire.worker_connection import WorkerTokens, connect_to_commander, serve_workers

from .meeting import LONG, RawPeer, connect_raw_peer, encode_fields, short_path, start_recording_commander

ENDS = (EndOfStream, BrokenResourceError, IncompleteRead)


def make_handshake(token: str, worker: str = "w1") -> Handshake:
    return Handshake(worker=worker, token=token, branch="feat/auth", task="do it")


async def wait_closed(peer: RawPeer) -> None:
    """Wait until the commander closes the connection, ignoring earlier messages."""
    with fail_after(LONG), suppress(*ENDS):
        while True:
            await peer.stream.receive()


# Accepted messages


async def test_a_worker_is_accepted_with_its_token_and_gets_its_configuration() -> None:
    async with (
        start_recording_commander() as commander,
        connect_to_commander(commander.path, make_handshake(commander.issue_token(key="k"))) as link,
    ):
        assert await link.wait_accepted() == {"key": "k"}

        worker, handshake = await commander.next_note()

        assert (worker, handshake.branch, handshake.task) == ("w1", "feat/auth", "do it")
        assert handshake.token == ""


async def test_messages_arrive_in_order_and_the_last_one_before_the_end_too() -> None:
    async with start_recording_commander() as commander:
        async with connect_to_commander(commander.path, make_handshake(commander.issue_token())) as link:
            await link.wait_accepted()
            for number in range(500):
                await link.send(PermissionRequest(request=str(number)))
        await commander.next_note()

        received = [(await commander.next_note())[1].request for _ in range(500)]

        assert received == [str(number) for number in range(500)]
        assert await commander.next_note() == ("w1", "ended: the other side closed the connection")


async def test_messages_sent_before_the_handshake_is_answered_are_kept_and_sent_in_order() -> None:
    with short_path() as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        async with connect_to_commander(path, make_handshake("t")) as link:
            for number in range(100):
                await link.send(PermissionRequest(request=str(number)))
            accepted, _ = await to_thread.run_sync(listener.accept)
            with accepted, accepted.makefile("rb") as commander:
                accepted.settimeout(LONG)
                there = accepted.recv(MAX_FRAME_BYTES)
                accepted.sendall(encode_fields(type="handshake_ack", accepted=True))
                await link.wait_accepted()
                await link.send(PermissionRequest(request="100"))
                rest = [await to_thread.run_sync(commander.readline) for _ in range(101)]

    assert there.count(b"\n") == 1
    assert b'"handshake"' in there
    assert [f'"request":"{number}"'.encode() in line for number, line in enumerate(rest)] == [True] * 101


async def test_an_order_reaches_the_worker_that_it_is_meant_for() -> None:
    async def cancel_asking(link: Link[Report, Order], handshake: Handshake) -> None:
        async for message in link:
            if isinstance(message, PermissionRequest):
                await link.send(Cancel(reason=f"{handshake.worker} asked {message.request}"))

    async with (
        start_recording_commander(handle=cancel_asking) as commander,
        connect_to_commander(commander.path, make_handshake(commander.issue_token("w1"))) as link,
        connect_to_commander(commander.path, make_handshake(commander.issue_token("w2"))) as other,
    ):
        await other.send(PermissionRequest(request="q8"))
        await link.send(PermissionRequest(request="q7"))

        orders = [await link.receive(), await other.receive()]

    assert [order.reason for order in orders if isinstance(order, Cancel)] == ["w1 asked q7", "w2 asked q8"]


async def test_a_message_of_the_limit_goes_through_and_one_byte_more_is_not_sent() -> None:
    empty = stamp_message(Cancel(), id="0" * 16, timestamp=1_700_000_000_000)
    room = MAX_FRAME_BYTES - (len(encode_message(empty)) - 1)

    async def send_long(link: Link[Report, Order], _: Handshake) -> None:
        await link.send(Cancel(reason="x" * room))
        with pytest.raises(FrameTooLong):
            await link.send(Cancel(reason="x" * (room + 1)))
        await link.send(Cancel(reason="short"))

    async with (
        start_recording_commander(handle=send_long) as commander,
        connect_to_commander(commander.path, make_handshake(commander.issue_token())) as link,
    ):
        assert [len(order.reason) async for order in link] == [room, 5]


async def test_a_character_that_is_split_over_two_packets_arrives_whole() -> None:
    async with start_recording_commander() as commander, connect_raw_peer(commander.path) as peer:
        await peer.send_handshake(commander.issue_token())
        await commander.next_note()
        whole = encode_fields(type="permission_request", request="Grüße 🎼")

        for place in range(len(whole)):
            await peer.send(whole[place : place + 1])

        assert (await commander.next_note())[1].request == "Grüße 🎼"


async def test_many_workers_send_at_once_and_each_under_its_own_name() -> None:
    async with start_recording_commander() as commander:

        async def work(name: str) -> None:
            async with connect_to_commander(
                commander.path, make_handshake(commander.issue_token(name), worker="somebody else")
            ) as link:
                await link.wait_accepted()
                for _ in range(5):
                    await link.send(PermissionRequest(request=name))

        async with create_task_group() as group:
            for number in range(50):
                group.start_soon(work, f"w{number}")
        notes = [await commander.next_note() for _ in range(50 * 7)]

    assert all(worker == note.request for worker, note in notes if isinstance(note, PermissionRequest))
    assert {worker for worker, _ in notes} == {f"w{number}" for number in range(50)}


# Refused connections


async def read_refusal(peer: RawPeer) -> str:
    ack = await peer.receive_message()
    assert (ack["type"], ack["accepted"], ack["config"]) == ("handshake_ack", False, {})
    await wait_closed(peer)
    return str(ack["error"])


async def test_an_unknown_token_is_refused() -> None:
    async with start_recording_commander() as commander:
        commander.issue_token()
        async with connect_to_commander(commander.path, make_handshake("guessed")) as link:
            with pytest.raises(HandshakeRejected, match="unknown token"):
                await link.wait_accepted()
            with pytest.raises(HandshakeRejected):
                await link.send(PermissionRequest(request="idle"))
            with pytest.raises(HandshakeRejected):
                await link.receive()

        assert [worker for worker, _ in commander.errors] == [""]


async def test_a_token_counts_once() -> None:
    async with start_recording_commander() as commander:
        token = commander.issue_token()
        async with connect_raw_peer(commander.path) as first, connect_raw_peer(commander.path) as second:
            assert (await first.send_handshake(token))["accepted"]

            await second.send_message(type="handshake", worker="w1", token=token)

            assert "used only once" in await read_refusal(second)
            await commander.next_note()
            await first.send_message(type="permission_request", request="idle")
            assert (await commander.next_note())[0] == "w1"


async def test_a_replaced_or_revoked_token_cannot_be_used() -> None:
    async with start_recording_commander() as commander:
        old = commander.issue_token()
        commander.issue_token()
        gone = commander.issue_token("w2")
        commander.tokens.revoke_token("w2")

        for token in (old, gone):
            async with connect_raw_peer(commander.path) as peer:
                assert not (await peer.send_handshake(token))["accepted"]


async def test_a_name_that_was_forged_is_replaced_by_the_tokens_own() -> None:
    async with start_recording_commander() as commander, connect_raw_peer(commander.path) as peer:
        commander.issue_token("victim", secret="the victim's")

        ack = await peer.send_handshake(commander.issue_token("w1", secret="mine"), worker="victim")

        assert ack["config"] == {"secret": "mine"}
        worker, handshake = await commander.next_note()
        assert (worker, handshake.worker) == ("w1", "w1")


@pytest.mark.parametrize(
    "first",
    [
        encode_fields(type="permission_request", request="idle"),
        encode_fields(type="permission_response", request_id="q", result={"type": "approve"}),
        encode_fields(type="handshake"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\xff\n",
        b"x" * (MAX_FRAME_BYTES + 1) + b"\n",
        b'{"type":' + b"[" * 100_000 + b"\n",
    ],
    ids=["report", "answer", "half", "http", "bytes", "long", "deep"],
)
async def test_a_first_line_that_is_no_handshake_is_refused_and_the_connection_closed(first: bytes) -> None:
    async with start_recording_commander() as commander, connect_raw_peer(commander.path) as peer:
        token = commander.issue_token()

        await peer.send(first)

        assert "the first message was not a handshake" in await read_refusal(peer)
        async with connect_raw_peer(commander.path) as good:
            assert (await good.send_handshake(token))["accepted"]


async def test_a_peer_that_sends_no_handshake_in_time_is_refused() -> None:
    async with (
        start_recording_commander(limits=LinkLimits(handshake=0.05)) as commander,
        connect_raw_peer(commander.path) as silent,
        connect_raw_peer(commander.path) as slow,
    ):
        await slow.send(encode_fields(type="handshake", worker="w1", token=commander.issue_token())[:-1])

        assert "no handshake within" in await read_refusal(silent)
        assert "no handshake within" in await read_refusal(slow)


async def test_a_peer_that_disconnects_before_its_handshake_does_not_affect_others() -> None:
    async with start_recording_commander() as commander:
        for _ in range(20):
            async with connect_raw_peer(commander.path) as peer:
                await peer.send(b'{"type":"hand')

        async with connect_raw_peer(commander.path) as good:
            assert (await good.send_handshake(commander.issue_token()))["accepted"]


async def test_unauthenticated_connections_in_any_number_keep_no_worker_out() -> None:
    async with (
        start_recording_commander(limits=LinkLimits(unauthenticated=4, handshake=600.0)) as commander,
        connect_raw_peer(commander.path) as first,
    ):
        strangers = []
        for _ in range(300):
            stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            await to_thread.run_sync(stranger.connect, str(commander.path))
            strangers.append(stranger)

        async with connect_to_commander(commander.path, make_handshake(commander.issue_token())) as link:
            assert await link.wait_accepted() == {}

        await wait_closed(first)
        for stranger in strangers:
            stranger.close()


STRANGER = """
import os, socket, sys

os.setuid(65534)
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
    peer.connect(sys.argv[1])
    print(peer.makefile().readline())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
async def test_another_user_is_refused_even_where_the_directory_would_let_it_in() -> None:
    async def handle(*_: object) -> None:
        raise AssertionError("a stranger was let in")

    with TemporaryDirectory(prefix="podium-") as folder:
        path = Path(folder, "open")
        Path(folder).chmod(0o755)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            path.chmod(0o777)
            listener.listen()
            async with create_task_group() as group:
                group.start_soon(serve_workers, listener, WorkerTokens(), handle)
                done = await to_thread.run_sync(
                    lambda: subprocess.run(
                        [sys.executable, "-S", "-c", STRANGER, str(path)], capture_output=True, text=True, timeout=LONG
                    )
                )
                group.cancel_scope.cancel()

    assert "is from another user" in done.stdout, done.stderr


async def test_connecting_without_a_commander_fails() -> None:
    with short_path() as path:
        with pytest.raises(ConnectionClosed, match="no commander can be reached"):
            async with connect_to_commander(path, make_handshake("t")):
                pass


async def test_a_handshake_that_is_not_answered_times_out() -> None:
    with short_path() as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        async with connect_to_commander(path, make_handshake("t"), limits=LinkLimits(handshake=0.05)) as link:
            await link.send(PermissionRequest(request="early"))

            with pytest.raises(ConnectionClosed, match="not answered within"):
                await link.wait_accepted()


# What ends a connection, and what does not


async def test_a_bad_line_is_reported_and_skipped_and_a_good_one_resets_the_count() -> None:
    async with start_recording_commander() as commander, connect_raw_peer(commander.path) as peer:
        await peer.send_handshake(commander.issue_token())
        await commander.next_note()

        for _ in range(5):
            await peer.send(b"rubbish\n" + b"z" * MAX_FRAME_BYTES + b"\n")
            await peer.send_message(type="permission_request", request="thinking")
            assert (await commander.next_note())[1].request == "thinking"

        assert [worker for worker, _ in commander.errors] == ["w1"] * 10


async def test_blank_lines_are_no_errors_before_the_handshake_or_after_it() -> None:
    async with start_recording_commander() as commander, connect_raw_peer(commander.path) as peer:
        await peer.send(b"\n\r\n\n  \n")
        assert (await peer.send_handshake(commander.issue_token()))["accepted"]
        await commander.next_note()

        await peer.send(b"\n" * 1000)
        await peer.send_message(type="permission_request", request="q")

        assert (await commander.next_note())[1].request == "q"
        assert commander.errors == []


async def test_a_line_of_100_megabytes_is_refused_and_ends_the_connection_in_bounded_memory() -> None:
    piece = b"x" * 2**20
    async with start_recording_commander() as commander, connect_raw_peer(commander.path) as good:
        await good.send_handshake(commander.issue_token("good"))
        await commander.next_note()
        async with connect_raw_peer(commander.path) as peer:
            await peer.send_handshake(commander.issue_token("bad"))
            await commander.next_note()
            tracemalloc.start()
            with fail_after(LONG), pytest.raises(ENDS):
                for _ in range(100):
                    await peer.send(piece)
            _, most_bytes = tracemalloc.get_traced_memory()
            tracemalloc.stop()

        assert await commander.next_note() == ("bad", f"ended: the other side sent a line of more than {2**20} bytes")
        assert [worker for worker, _ in commander.errors] == ["bad"]
        assert most_bytes < 4 * MAX_FRAME_BYTES
        await good.send_message(type="permission_request", request="q")
        assert (await commander.next_note())[1].request == "q"


async def test_three_bad_lines_in_a_row_close_the_connection() -> None:
    async with start_recording_commander() as commander, connect_raw_peer(commander.path) as peer:
        await peer.send_handshake(commander.issue_token())
        await commander.next_note()

        await peer.send(b"one\ntwo\n\xff\n" + encode_fields(type="permission_request", request="complete"))

        assert await commander.next_note() == ("w1", "ended: the other side sent 3 bad lines in a row")
        assert len(commander.errors) == 3
        await wait_closed(peer)


async def test_a_worker_cannot_answer_its_own_request_nor_send_a_second_handshake() -> None:
    async with start_recording_commander() as commander, connect_raw_peer(commander.path) as peer:
        token = commander.issue_token()
        await peer.send_handshake(token)
        await commander.next_note()

        await peer.send_message(
            type="permission_response", request_id="q", result={"type": "approve", "scope": "always"}
        )
        await peer.send_message(type="handshake", worker="w2", token=commander.issue_token("w2"))
        await peer.send_message(type="permission_request", request="idle")

        assert (await commander.next_note())[1].request == "idle"
        assert [worker for worker, _ in commander.errors] == ["w1", "w1"]
        assert commander.tokens.redeem_token(token) is None


async def test_random_bytes_end_a_connection_and_no_other() -> None:
    async with start_recording_commander() as commander, connect_raw_peer(commander.path) as good:
        await good.send_handshake(commander.issue_token("good"))
        await commander.next_note()
        for seed in range(30):
            async with connect_raw_peer(commander.path) as peer:
                if seed % 2:
                    await peer.send_handshake(commander.issue_token("bad"))
                with pytest.raises(ENDS):
                    while True:
                        await peer.send(random.Random(seed).randbytes(50_000) + b"\n")

        await good.send_message(type="permission_request", request="idle")

        while (note := await commander.next_note())[0] != "good":
            assert "bad lines in a row" in str(note[1]) or isinstance(note[1], Handshake)
        assert note[1].request == "idle"


async def test_half_a_message_is_never_delivered() -> None:
    async with start_recording_commander() as commander:
        async with connect_raw_peer(commander.path) as peer:
            await peer.send_handshake(commander.issue_token())
            await peer.send(encode_fields(type="permission_request", request="complete")[:-1])
        await commander.next_note()

        assert await commander.next_note() == ("w1", "ended: the other side closed the connection")


async def test_a_peer_that_does_not_read_blocks_its_sender_and_is_then_disconnected() -> None:
    sent, ended = [], Event()

    async def flood(link: Link[Report, Order], _: Handshake) -> None:
        try:
            while True:
                await link.send(Cancel(reason="x" * 100_000))
                sent.append(1)
        finally:
            ended.set()

    async with (
        start_recording_commander(limits=LinkLimits(unread=0.1), handle=flood) as commander,
        connect_raw_peer(commander.path) as peer,
    ):
        await peer.send_handshake(commander.issue_token())

        with fail_after(LONG):
            await ended.wait()

        assert 1 <= len(sent) < 20
        async with connect_raw_peer(commander.path) as other:
            assert (await other.send_handshake(commander.issue_token()))["accepted"]


async def test_a_sender_whose_messages_are_not_read_yet_loses_none_and_does_not_count_as_silent() -> None:
    sent: list[str] = []
    all_sent = Event()

    async def send_all(link: Link[Report, Order], _: Handshake) -> None:
        for number in range(100):
            await link.send(Cancel(reason=f"{number}{'x' * 50_000}"))
            sent.append(str(number))
        all_sent.set()
        await link.receive()

    async with (
        start_recording_commander(handle=send_all) as commander,
        connect_to_commander(
            commander.path, make_handshake(commander.issue_token()), limits=LinkLimits(silence=1.0)
        ) as link,
    ):
        with move_on_after(1.2):  # longer than the allowed silence
            await all_sent.wait()
        assert len(sent) < 100

        with fail_after(LONG):
            received = [(await link.receive()).reason.rstrip("x") for _ in range(100)]

    assert received == sent == [str(number) for number in range(100)]


async def test_a_sender_that_is_cancelled_leaves_no_half_line() -> None:
    stuck, go_on = Event(), Event()

    async def handle(link: Link[Report, Order], _: Handshake) -> None:
        async with create_task_group() as group:

            async def fill() -> None:
                while True:
                    await link.send(Cancel(reason="x" * 300_000))

            group.start_soon(fill)
            await link.receive()
            group.cancel_scope.cancel()
        stuck.set()
        await go_on.wait()
        await link.send(Cancel(reason="enough"))

    async with start_recording_commander(handle=handle) as commander, connect_raw_peer(commander.path) as peer:
        await peer.send_handshake(commander.issue_token())
        await peer.send_message(type="permission_request", request="idle")
        await stuck.wait()
        go_on.set()

        while len((received := await peer.receive_message())["reason"]) == 300_000:
            assert received["type"] == "cancel"

    assert received["reason"] == "enough"


async def test_a_silent_worker_is_disconnected_after_a_while() -> None:
    async with (
        start_recording_commander(limits=LinkLimits(ping=0.02, silence=1.0)) as commander,
        connect_raw_peer(commander.path) as peer,
    ):
        await peer.send_handshake(commander.issue_token())
        await commander.next_note()

        assert await commander.next_note() == ("w1", "ended: the other side sent nothing for 1 s")
        assert (await peer.receive_message())["type"] == "ping"


async def test_a_worker_that_answers_pings_stays_connected() -> None:
    async with (
        start_recording_commander(limits=LinkLimits(ping=0.05, silence=1.5)) as commander,
        connect_raw_peer(commander.path) as peer,
    ):
        await peer.send_handshake(commander.issue_token())
        await commander.next_note()

        for _ in range(40):
            assert (await peer.receive_message())["type"] == "ping"
            await peer.send_message(type="pong")
        await peer.send_message(type="permission_request", request="idle")

        assert (await commander.next_note())[1].request == "idle"


async def test_a_worker_answers_pings_by_itself_and_sees_none() -> None:
    with short_path() as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        async with connect_to_commander(path, make_handshake("t")) as link:
            accepted, _ = await to_thread.run_sync(listener.accept)
            with accepted, accepted.makefile("rwb") as commander:
                accepted.settimeout(LONG)
                commander.write(
                    encode_fields(type="handshake_ack", accepted=True)
                    + encode_fields(type="ping")
                    + encode_fields(type="cancel", reason="enough")
                )
                commander.flush()

                assert (await link.receive()).reason == "enough"
                assert b'"handshake"' in await to_thread.run_sync(commander.readline)
                assert b'"pong"' in await to_thread.run_sync(commander.readline)


async def test_a_silent_commander_is_disconnected_after_a_while() -> None:
    async with start_recording_commander() as commander:
        async with connect_to_commander(
            commander.path, make_handshake(commander.issue_token()), limits=LinkLimits(silence=1.0)
        ) as link:
            await link.wait_accepted()

            assert [message async for message in link] == []

            assert link.end_reason == "the other side sent nothing for 1 s"


async def test_messages_of_a_commander_before_its_handshake_answer_are_ignored() -> None:
    bad: list[BadFrame] = []
    with short_path() as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        async with connect_to_commander(path, make_handshake("t"), on_bad=bad.append) as link:
            accepted, _ = await to_thread.run_sync(listener.accept)
            with accepted:
                accepted.sendall(
                    encode_fields(type="cancel", reason="early")
                    + encode_fields(type="handshake_ack", accepted=True)
                    + encode_fields(type="cancel", reason="later")
                )

                assert (await link.receive()).reason == "later"

    assert len(bad) == 1


async def test_an_exception_of_the_worker_itself_is_propagated_unchanged() -> None:
    async with start_recording_commander() as commander:
        with pytest.raises(ZeroDivisionError):
            async with connect_to_commander(commander.path, make_handshake(commander.issue_token())) as link:
                await link.wait_accepted()
                raise ZeroDivisionError
