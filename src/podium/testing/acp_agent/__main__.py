"""Run the scripted coding agent on this process's standard input and output."""

from __future__ import annotations

import argparse
from pathlib import Path

import anyio
import msgspec

from ...engines.script import parse_script
from .scripted_agent import ScriptedAgent


def main() -> None:
    """Parse the options and serve the client until it closes the connection."""
    parser = argparse.ArgumentParser(
        prog="python -m podium.testing.acp_agent",
        description="Act as a coding agent that follows a script. Without --script, the first prompt of a session must "
        "contain the script.",
    )
    parser.add_argument("--script", type=Path, metavar="FILE", help="JSON list of steps")
    parser.add_argument(
        "--after-denial",
        choices=["goes_on", "ends_turn", "ignores"],
        default="goes_on",
        help="what the agent does when an action is denied: go on, end the turn, or act anyway",
    )
    parser.add_argument("--unasked", action="store_true", help="act without asking for permission")
    parser.add_argument("--forgetful", action="store_true", help="do not advertise support for loading sessions")
    parser.add_argument(
        "--steering",
        nargs="?",
        const="accepts",
        choices=["accepts", "silent"],
        help="support messages that arrive during a prompt; with the value silent, never reply to them",
    )
    parser.add_argument("--no-http", action="store_true", help="connect to MCP servers only over stdio")
    parser.add_argument("--no-mcp", action="store_true", help="do not connect to MCP servers")
    parser.add_argument(
        "--marked-mcp",
        action="store_true",
        help="report MCP tool calls as commands marked in _meta, and leave their details out of permission requests",
    )
    options = parser.parse_args()
    script = () if options.script is None else parse_script(msgspec.json.decode(options.script.read_bytes()))
    agent = ScriptedAgent(
        script,
        after_denial=options.after_denial,
        is_asking=not options.unasked,
        can_load=not options.forgetful,
        steering=options.steering,
        has_http=not options.no_http,
        has_mcp=not options.no_mcp,
        is_marking_mcp=options.marked_mcp,
    )
    anyio.run(agent.run)


if __name__ == "__main__":
    main()
