from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.workers.wire.line_socket import BadFrame
from podium.workers.wire.wire_message import (
    Cancel,
    FromCommander,
    FromWorker,
    Handshake,
    HandshakeAck,
    PermissionRequest,
    Pong,
    decode_from_commander,
    decode_from_worker,
    encode_message,
    stamp_message,
)
from podium.workers.worker_process import WorkerConfig

PAGE = Path(__file__).parents[3] / "docs" / "wire.md"


def make_line(**fields: Any) -> bytes:
    return json.dumps({"id": "1", "timestamp": 1, **fields}).encode()


def test_a_message_is_one_line_and_comes_back_as_it_was() -> None:
    asked = stamp_message(PermissionRequest(request="q1"), id="a1", timestamp=5)
    ordered = stamp_message(Cancel(reason="a\nb"), id="a2", timestamp=6)

    assert encode_message(ordered).count(b"\n") == 1
    assert decode_from_worker(encode_message(asked)) == asked
    assert decode_from_commander(encode_message(ordered)) == ordered


def test_the_line_contains_the_envelope() -> None:
    sent = json.loads(encode_message(stamp_message(Cancel(reason="enough"), id="c1", timestamp=1700000000000)))

    assert sent == {"type": "cancel", "id": "c1", "timestamp": 1700000000000, "reason": "enough"}


def test_fields_that_are_not_known_are_ignored() -> None:
    assert decode_from_worker(make_line(type="pong", later={"a": [1]})) == Pong(id="1", timestamp=1)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        make_line(type="pong")[:-1],
        make_line(type="nonsense"),
        make_line(type=7),
        make_line(type="handshake", worker="w1"),
        make_line(type="permission_request", request=7),
        make_line(type="permission_request", request="x").replace(b'"x"', b'"\xff"'),
        make_line(type="permission_request"),
        make_line(type="permission_request", request=""),
        make_line(type="permission_request", request="x" * 129),
        make_line(type="pong", id=""),
        make_line(type="pong", id="x" * 129),
        make_line(type="pong", timestamp=0),
        make_line(type="pong", timestamp="now"),
        b'{"type":"pong","id":"1"}',
        b'{"type":"pong","timestamp":1}',
        b'{"type":"pong","type":"nonsense","id":"1","timestamp":1}',
        b'{"type":"pong","id":"1","timestamp":1,"deep":' + b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_message_is_reported_in_one_sentence(bad: bytes) -> None:
    with pytest.raises(BadFrame) as caught:
        decode_from_worker(bad)

    assert str(caught.value).startswith("received an invalid message: ")
    assert str(caught.value).isprintable()


def test_a_worker_cannot_send_the_messages_of_a_commander_nor_the_other_way_round() -> None:
    with pytest.raises(BadFrame):
        decode_from_worker(encode_message(stamp_message(Cancel(), id="a", timestamp=1)))
    with pytest.raises(BadFrame):
        decode_from_commander(encode_message(stamp_message(PermissionRequest(request="q"), id="a", timestamp=1)))


def test_an_error_does_not_repeat_what_the_line_held() -> None:
    with pytest.raises(BadFrame) as caught:
        decode_from_worker(make_line(type="handshake", worker=7, token="canary"))

    assert "canary" not in str(caught.value)


def test_tokens_and_keys_are_not_shown() -> None:
    assert "canary" not in repr(Handshake(worker="w", token="canary"))
    assert "canary" not in repr(HandshakeAck(accepted=True, config={"key": "canary"}))


def test_a_text_that_is_not_unicode_is_refused_before_it_is_sent() -> None:
    with pytest.raises(BadFrame, match="cannot send the cancel message"):
        encode_message(Cancel(reason="caf\udce9"))


@given(st.binary(max_size=200))
def test_random_bytes_are_bad_frames_and_nothing_worse(data: bytes) -> None:
    for decode in (decode_from_worker, decode_from_commander):
        with pytest.raises(BadFrame):
            decode(data)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_fits_into_a_line(text: str) -> None:
    sent = stamp_message(Cancel(reason=text), id="1", timestamp=1)

    assert decode_from_commander(encode_message(sent)) == sent
    assert b"\n" not in encode_message(sent)[:-1]


# The documentation page


def examples() -> list[bytes]:
    blocks = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text.encode() for block in blocks for text in block.splitlines()]


def fields_by_kind(union: Any) -> dict[str, set[str]]:
    return {str(one.__struct_config__.tag): set(one.__struct_fields__) for one in get_args(union)}


def test_every_message_has_a_valid_example() -> None:
    from_worker, from_commander = fields_by_kind(FromWorker), fields_by_kind(FromCommander)

    seen = []
    for example in examples():
        kind = json.loads(example)["type"]
        decode_from_worker(example) if kind in from_worker else decode_from_commander(example)
        seen.append(kind)

    assert sorted(set(seen)) == sorted(from_worker | from_commander)


def test_every_kind_has_a_section_and_every_field_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    kinds = fields_by_kind(FromWorker) | fields_by_kind(FromCommander)
    fields = {field for found in kinds.values() for field in found}

    assert [name for name in sorted(fields) if f"`{name}`" not in page] == []
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == set(kinds)


USUAL_KINDS = (
    *("handshake", "permission_request", "status_update", "task_complete", "task_error", "log", "pong"),
    *("handshake_ack", "permission_response", "cancel", "pause", "resume", "inject_context", "ping", "heartbeat"),
)
"""Message kinds that protocols between a coordinator and its workers commonly have."""


def test_the_page_says_for_every_usual_kind_what_does_its_work() -> None:
    page = PAGE.read_text(encoding="utf-8")
    section = page[page.index("## How each kind of message is sent") :]
    table = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE))
    on_the_wire = fields_by_kind(FromWorker) | fields_by_kind(FromCommander)

    assert set(table) == set(USUAL_KINDS)
    assert {kind for kind, means in table.items() if means == "wire"} == set(on_the_wire)


def test_the_page_shows_the_configuration_that_a_worker_gets() -> None:
    configs = [config for one in examples() if (config := json.loads(one).get("config"))]
    table = PAGE.read_text(encoding="utf-8").partition("`config` has these fields:")[2].partition("```")[0]

    assert [msgspec.convert(one, WorkerConfig).task.branch for one in configs] == ["feat/auth"]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(WorkerConfig.__struct_fields__)
