"""A model that plays a collaborating team: `python -m benchmarks.children.collaborating_model`."""

from __future__ import annotations

from importlib.util import find_spec

import anyio

from podium.engines.model.model_wire import ModelCall
from podium.engines.script import Move, last_request
from podium.testing.model_server import ModelServer

from ..collaboration_scenario import choose_reply


def answer_call(call: ModelCall) -> Move:
    """Return the reply to a call."""
    return Move(says=choose_reply(last_request(call)))


async def main() -> None:
    """Serve until the process is ended."""
    async with ModelServer(otherwise=answer_call, keeps_calls=False) as server:
        print(f"listening on {server.url}", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": find_spec("uvloop") is not None})
