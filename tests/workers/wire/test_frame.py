from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from podium.workers.wire.line_socket import FrameDecoder, FrameTooLong, Line


def decode_pieces(pieces: list[bytes], limit: int) -> list[bytes | str]:
    frames = FrameDecoder(limit)
    found: list[Line] = []
    for piece in pieces:
        found += frames.feed(piece)
        assert frames.pending_bytes <= limit
    return ["too long" if isinstance(line, FrameTooLong) else line for line in found]


def test_a_line_ends_where_its_newline_is() -> None:
    frames = FrameDecoder()

    assert frames.feed(b"one\ntw") == [b"one"]
    assert frames.feed(b"o\nthree") == [b"two"]
    assert frames.feed(b"\n") == [b"three"]


def test_a_character_that_is_split_over_two_packets_stays_whole() -> None:
    word = "Grüße 🎼\n".encode()

    assert all(decode_pieces([word[:cut], word[cut:]], 100) == [word[:-1]] for cut in range(len(word)))


def test_a_line_of_the_limit_is_fine_and_one_byte_more_is_not() -> None:
    assert decode_pieces([b"12345678\n"], 8) == [b"12345678"]
    assert decode_pieces([b"123456789\n"], 8) == ["too long"]


def test_blank_lines_are_ignored() -> None:
    assert decode_pieces([b"\n\none\n", b"\r\n \t\n", b"\n\n", b" two\n\n"], 8) == [b"one", b" two"]


def test_a_line_that_is_too_long_is_reported_once_and_nothing_comes_after_it() -> None:
    pieces = [b"a\n", *[b"x" * 5] * 100, b'{"type":"pong"}' * 3, b"\nb\n"]

    assert decode_pieces(pieces, 8) == [b"a", "too long"]


def test_nothing_is_held_of_a_line_that_never_ends() -> None:
    frames = FrameDecoder(1000)

    told = [line for _ in range(1000) for line in frames.feed(b"y" * 900)]

    assert len(told) == 1
    assert frames.pending_bytes == 0


@st.composite
def streams_in_pieces(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    stream = draw(st.lists(st.one_of(st.binary(max_size=12), st.just(b"\n")), max_size=30).map(b"".join))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    return stream, [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(streams_in_pieces(), st.integers(1, 20))
def test_any_stream_gives_the_same_lines_however_it_is_split(split: tuple[bytes, list[bytes]], limit: int) -> None:
    stream, pieces = split

    whole = decode_pieces([stream], limit)

    assert decode_pieces(pieces, limit) == whole
    ended, rest = stream.split(b"\n")[:-1], stream.split(b"\n")[-1]
    fitting = list(takewhile(lambda line: len(line) <= limit, ended))
    expected: list[bytes | str] = [line for line in fitting if line.strip()]
    assert whole == expected + (["too long"] if len(fitting) < len(ended) or len(rest) > limit else [])
