"""Find the coding agents that can be used as engines, and decide whether each runs in a sandbox.

Inside the sandbox, it reaches the network through a relay.

If Podium chooses the agent's model, the API key for the model stays outside the sandbox. An agent that uses its own
login can also reach the hosts that are listed for it. On operating systems other than Linux, or if the user's settings
say so, agents run without a sandbox.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...engines.acp.agent_program import AgentProgram
from ...files.settings import Settings

if TYPE_CHECKING:
    from ...engines.acp.agent_home import AgentModel
    from ...engines.acp.agent_process import AgentCommand, AgentSandbox
    from ...engines.coordination.coordination_router import CoordinationRouter
    from ...system.process_group import ChildProcess
    from ...workspace.relay.sandbox_relay import ModelEndpoint
import os

from msgspec import structs

from ...engines.acp.agent_program import AGENT_PROGRAMS
from ...files.settings_document import Launch
from ...values.errors import Mistake

NO_SANDBOX_NOTICE = (
    "runs without a sandbox: any action that it takes without asking can affect everything that you can access."
)


def is_in_sandbox(settings: Settings, program: AgentProgram) -> bool:
    """Return whether a coding agent runs in the sandbox."""
    return sys.platform == "linux" and settings.sandbox and program.is_sandboxed


def choose_agent_sandbox(settings: Settings, program: AgentProgram, has_model: bool) -> AgentSandbox:
    """Return the sandbox for a coding agent.

    If `has_model` is true, Podium chooses the agent's model, so the sandbox does not give the agent access to the hosts
    that it needs for its own model and login.
    """
    # Imported here to keep start-up fast: most runs use no coding agent.
    from ...engines.acp.agent_process import AgentSandbox

    if not is_in_sandbox(settings, program):
        opener = partial(_open_with_notice, program.name)
        return AgentSandbox(name="none", open_child=opener, serve_coordination=_serve_on_loopback)
    # Imported here to keep start-up fast: only agents in the sandbox need a relay.
    from ...workspace.relay.sandbox_relay import COORDINATION_URL, MODEL_URL
    from .sandbox_choice import name_sandbox

    hosts = tuple(dict.fromkeys((*settings.network, *(() if has_model else program.hosts))))
    profile = "agent, read-only" if settings.permission_mode == "plan" else "agent"
    return AgentSandbox(
        name=name_sandbox(profile, hosts),
        open_child=partial(_open_in_sandbox, settings, program, hosts),
        model_url=MODEL_URL,
        # No server is started here, because the relay serves Podium's tools inside the sandbox.
        serve_coordination=lambda router: nullcontext(COORDINATION_URL),
    )


@asynccontextmanager
async def _open_with_notice(name: str, command: AgentCommand) -> AsyncIterator[ChildProcess]:
    # Imported here to keep start-up fast: most runs use no coding agent.
    from ...engines.acp.agent_process import open_unconfined

    command.report(f"{name} {NO_SANDBOX_NOTICE}")
    async with open_unconfined(command) as child:
        yield child


@asynccontextmanager
async def _serve_on_loopback(router: CoordinationRouter) -> AsyncIterator[str]:
    """Serve Podium's tools on a free loopback port to programs that know an agent's session token."""
    from anyio import create_task_group, create_tcp_listener
    from anyio.abc import SocketAttribute

    # Imported here to keep start-up fast: most runs use no coding agent.
    from ...workspace.relay.asgi_service import serve_connections

    async with await create_tcp_listener(local_host="127.0.0.1") as listener, create_task_group() as group:
        group.start_soon(serve_connections, listener, router)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        group.cancel_scope.cancel()


@asynccontextmanager
async def _open_in_sandbox(
    settings: Settings, program: AgentProgram, hosts: tuple[str, ...], command: AgentCommand
) -> AsyncIterator[ChildProcess]:
    """Start an agent's process in the sandbox. Raise Mistake if there is no sandbox."""
    # Imported here to keep start-up fast: most runs use no coding agent.
    from ...engines.coordination.coordination_session import SHIM
    from ...workspace.relay.host_grant import HostGrant
    from ...workspace.relay.sandbox_relay import RelayConfiguration
    from ...workspace.sandbox.bubblewrap import Sandbox
    from ...workspace.sandbox.sandboxed_agent import start_agent
    from .install_choice import must_ask_for_installs
    from .sandbox_choice import find_local_store

    sandbox = await Sandbox.find(
        *command.checkouts,
        home=settings.home,
        store=find_local_store(settings.store),
        profile="read-only" if settings.permission_mode == "plan" else "workspace",
        creatable=program.creatable,
        protects_programs=must_ask_for_installs(settings, command.directory),
        report=command.report,
    )
    relay = RelayConfiguration(
        model=None if command.model is None else _make_endpoint(command.model),
        coordination=command.coordination,
        hosts=tuple(map(HostGrant.parse, hosts)),
        report=command.report,
    )
    env = {name: value for name, value in command.env.items() if name != "HOME"}  # the sandbox sets HOME itself
    readable = [*map(Path, program.readable), SHIM]
    async with start_agent(sandbox, command.argv, home=command.home, relay=relay, env=env, readable=readable) as child:
        yield child


def _make_endpoint(model: AgentModel) -> ModelEndpoint:
    """Return the model server that the relay calls, with the key that it adds."""
    from aiohttp import BasicAuth
    from yarl import URL

    # Imported here to keep start-up fast: most runs use no coding agent.
    from ...engines.model.http_wire import find_proxy
    from ...workspace.relay.sandbox_relay import ModelEndpoint

    url, headers = URL(model.url), {}
    if model.key:
        own = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(model.wire)
        headers = {own: model.key} if own else {"Authorization": f"Bearer {model.key}"}
    elif url.user:
        headers = {"Authorization": BasicAuth(url.user, url.password or "").encode()}
    return ModelEndpoint(url=str(url.with_user(None)), headers=headers, proxy=find_proxy(model.url))


def list_agent_programs(settings: Settings) -> dict[str, AgentProgram]:
    """Return the coding agents, keyed by name. An entry in the settings replaces the command of a known agent.

    Raise Mistake if an entry has no command and its name is not that of a known agent.
    """
    own = {name: _combine(name, launch) for name, launch in settings.engines.items()}
    return {**AGENT_PROGRAMS, **own}


def _combine(name: str, launch: Launch) -> AgentProgram:
    """Return the coding agent that an entry in the settings defines, based on the known agent of that name, if any."""
    known = AGENT_PROGRAMS.get(name)
    if known is None and not launch.command:
        raise Mistake(
            f"engines.{name} in your settings has no command, and {name} is not a coding agent that Podium knows; "
            "add command: PROGRAM"
        )
    known = known or AgentProgram(name=name, command=(launch.command,))
    return structs.replace(
        known,
        command=(launch.command or known.command[0], *(launch.args or known.command[1:])),
        env={**known.env, **launch.env},
        mode=launch.mode or known.mode,
        hosts=(*known.hosts, *launch.hosts),
        readable=tuple(map(os.path.expanduser, launch.readable)),
        is_sandboxed=launch.sandbox,
        is_own=bool(launch.command),
    )
