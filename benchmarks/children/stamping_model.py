"""A model that stamps each piece with its sending time: `python -m benchmarks.children.stamping_model PIECES PACE`.

The model server that Podium ships writes the whole reply before it sends the first piece, so it cannot do that.
The prompt makes no difference here. Each reply starts a little later than the one before, so
that the pieces of many replies arrive evenly and not all at once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import count
from typing import overload

import anyio

from podium.testing.model_server.http_connection import (
    STREAM_END,
    STREAM_HEAD,
    Connection,
    ConnectionTracker,
    RequestHead,
    TimedResponse,
    encode,
    encode_chunk,
)

from ..child import MODEL
from ..stream import make_stamped_piece

GOLDEN = 0.618034
"""The fractional parts of its multiples are spread evenly, however many there are."""


class StampedParts(Sequence[bytes]):
    """The parts of a reply, each made just before it is sent."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces

    def __len__(self) -> int:
        return self._pieces

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        part = _encode_event({"index": 0, "delta": {"content": make_stamped_piece()}, "finish_reason": None})
        if place == 0:
            part = STREAM_HEAD + part
        if place == len(self) - 1:
            part += _encode_event({"index": 0, "delta": {}, "finish_reason": "stop"}) + _END
        return part


def _encode_event(*choices: object, **more: object) -> bytes:
    document = {"id": "stamped", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": choices}
    return encode_chunk(b"data: %b\n\n" % encode(document | more))


_USAGE = {"prompt_tokens": 20, "completion_tokens": 20, "total_tokens": 40}
_END = _encode_event(usage=_USAGE) + encode_chunk(b"data: [DONE]\n\n") + STREAM_END


async def main(pieces: int, pace: float) -> None:
    """Serve until the process is ended."""
    numbers = count()

    def answer(head: RequestHead, body: bytes) -> TimedResponse:
        return TimedResponse(parts=StampedParts(pieces), delay=next(numbers) * GOLDEN % 1 * pace, pace=pace)

    traffic = ConnectionTracker()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(traffic, answer), "127.0.0.1", 0, backlog=4096)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    anyio.run(
        main, int(sys.argv[1]), float(sys.argv[2]), backend_options={"use_uvloop": find_spec("uvloop") is not None}
    )
