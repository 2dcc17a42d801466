"""Run the model server from the command line: print its address, and serve until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import anyio

from ...engines.model.model_wire import ModelCall
from ...engines.script import Move, echo_request
from .server import ModelServer


def main() -> None:
    """Parse the options and serve until a signal arrives."""
    parser = argparse.ArgumentParser(prog="python -m podium.testing.model_server", description="Serve scripted models.")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; default: a free port")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="delay before every reply")
    parser.add_argument("--pieces", type=int, default=1, metavar="N", help="number of streamed pieces in a reply")
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="delay between pieces")
    parser.add_argument("--says", metavar="TEXT", help="reply if the prompt has no script; default: echo the request")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append a line of JSON for every call")
    options = parser.parse_args()

    def make_default_move(call: ModelCall) -> Move:
        says = echo_request(call).says if options.says is None else options.says
        return Move(says=says, pieces=options.pieces, pace=options.pace)

    server = ModelServer(
        otherwise=make_default_move, latency=options.latency, port=options.port, log=options.log, keeps_calls=False
    )
    anyio.run(_serve_until_signal, server, backend_options={"use_uvloop": find_spec("uvloop") is not None})


async def _serve_until_signal(server: ModelServer) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with server:
            sys.stdout.write(f"listening on {server.url}\n")
            sys.stdout.flush()
            async for _ in signals:
                return


if __name__ == "__main__":
    main()
