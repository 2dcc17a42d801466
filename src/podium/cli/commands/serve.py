"""`podium serve`, `mcp` and `acp`: serve people and other programs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from ...files.settings import Settings
from ...system.locations import find_home_folder, find_repo
from ...system.unsandboxed_program import build_unsandboxed_environment, find_current_checkouts
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ..output import exit_codes
from ..output.terminal_input import is_attended
from ..output.text import align_columns, as_json, format_age, print_to_stderr

if TYPE_CHECKING:
    from ...web.serving import RunningServer
from functools import partial

from ...files.discovery import load_roster

DEFAULT_PORT = 8420
SCOPE_NAMES = ("read", "act", "approve")


def _parse_scopes(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    """Return the scopes in a comma-separated list. Raise BadParameter if one of them is unknown."""
    names = tuple(filter(None, map(str.strip, value.split(","))))
    if unknown := [name for name in names if name not in SCOPE_NAMES]:
        raise click.BadParameter(f"unknown scope {unknown[0]!r}; scopes: {', '.join(SCOPE_NAMES)}")
    return names


scope_option = click.option(
    "--token-scope",
    "scopes",
    default=",".join(SCOPE_NAMES),
    show_default=True,
    callback=_parse_scopes,
    metavar="SCOPE,…",
    help="What the client may do: read, act (start and steer runs), approve (answer requests).",
)


def _open_in_browser(address: str) -> None:
    """Open an address in the browser. The browser is not looked up in a checkout, where agents' commands can write."""
    environ = build_unsandboxed_environment(os.environ, find_current_checkouts(find_home_folder()))
    command = [sys.executable, "-P", "-m", "webbrowser", address]
    # The server does not wait for the process, which ends once the browser has the address.
    subprocess.Popen(command, env=environ, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@click.group("serve", invoke_without_command=True)
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in the browser.")
@click.option("--lan", "is_lan", is_flag=True, help="Let other devices on the local network connect, over TLS.")
@click.option(
    "--host", help="Address to listen on; default: 127.0.0.1. If other machines can connect, the server uses TLS."
)
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port; 0: any.")
@scope_option
@click.option(
    "--public-name",
    "public_names",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Public host name of the server behind a reverse proxy; can be repeated.",
)
@click.option(
    "--certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="PEM file with your own certificate and key.",
)
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository for new runs.")
@click.option("--json", "is_json", is_flag=True, help="Print the address as JSON.")
@click.pass_context
def serve_command(
    ctx: click.Context,
    opens: bool,
    is_lan: bool,
    host: str | None,
    port: int,
    scopes: tuple[str, ...],
    public_names: tuple[str, ...],
    certificate: Path | None,
    repo: Path | None,
    is_json: bool,
) -> int:
    """Serve the dashboard and the HTTP API for all runs in the store, until Ctrl-C.

    The printed address contains a one-time code with which a browser can sign in. Most runs have their own processes
    and continue when the server exits. The others, such as runs that were resumed in the dashboard, are interrupted and
    can be resumed again.
    """
    if ctx.invoked_subcommand is not None:
        return exit_codes.GOAL_MET
    if is_lan and host is not None:
        raise click.UsageError("--lan chooses the address itself; give --lan or --host, not both")
    _require_web_packages()
    from ...web.serving import ServeOptions, serve_until_signal  # imported here to keep start-up fast

    if is_lan:
        from ...web.certificate import find_lan_address  # imported here to keep start-up fast

        host = find_lan_address()
    place = find_repo(repo or Path())
    settings = Settings.load(repo=place)

    def announce(server: RunningServer) -> None:
        address = server.make_sign_in_address()
        if is_json:
            fields = {"address": server.address, "sign_in": address, "fingerprint": server.fingerprint or None}
            click.echo(as_json({"schema": SCHEMA, **fields}))
        else:
            _print_address(server, address)
        if opens:
            _open_in_browser(address)
        if is_attended():
            print_to_stderr("press Enter to print another address, for example for another browser")
            asyncio.get_running_loop().add_reader(sys.stdin, lambda: _print_another(server))

    options = ServeOptions(
        host=host or "127.0.0.1",
        port=port,
        scopes=scopes,  # type: ignore[arg-type]
        repo=place,
        is_remembered=is_lan,
        public_names=public_names,
        certificate=certificate,
    )
    received = anyio.run(serve_until_signal, settings, options, announce)
    return exit_codes.SIGNALLED + received if received else exit_codes.GOAL_MET


def _print_address(server: RunningServer, address: str) -> None:
    """Print a sign-in URL, with a QR code if other devices can connect, and with the certificate's fingerprint."""
    if not server.options.is_local and sys.stderr.isatty():
        import segno  # imported here to keep start-up fast

        segno.make(address, micro=False).terminal(out=sys.stderr, compact=True)
    click.echo(address)
    within = "2 minutes" if server.options.is_remembered else "10 minutes"
    print_to_stderr(f"the code in this URL can be used only once and expires in {within}; press Ctrl-C to stop serving")
    if server.fingerprint:
        print_to_stderr(
            "if your browser does not trust the certificate, accept it only if it has this SHA-256 fingerprint:"
        )
        print_to_stderr(f"  {server.fingerprint}")


def _print_another(server: RunningServer) -> None:
    if not sys.stdin.readline():
        asyncio.get_running_loop().remove_reader(sys.stdin)
        return
    _print_address(server, server.make_sign_in_address())


def _require_web_packages() -> None:
    """Raise ModuleNotFoundError if a web package is missing. The error names the extra to install."""
    from importlib.util import find_spec  # imported here to keep start-up fast

    for package in ("litestar", "uvicorn", "segno", "cryptography"):
        if find_spec(package) is None:
            raise ModuleNotFoundError(package, name=f"{package} (extra web)")


@serve_command.command("tokens")
@click.option("--create", "name", help="Create a token with this name for a program, and print it once.")
@scope_option
@click.option("--revoke", "revoked", metavar="ID", help="Revoke a token; its client is signed out at once.")
@click.option("--json", "is_json", is_flag=True, help="Print the list, or the new token, as JSON.")
def serve_tokens_command(name: str | None, scopes: tuple[str, ...], revoked: str | None, is_json: bool) -> None:
    """List the tokens for browsers and programs, or create or revoke one."""
    from ...web.api.access_tokens import TokenFile  # imported here to keep start-up fast

    if name is not None and revoked is not None:
        raise Mistake("--create and --revoke cannot be combined; give one of them")
    tokens = TokenFile(Settings.load().home)
    if name is not None:
        secret, token = tokens.create_token(name, scopes)  # type: ignore[arg-type]
        click.echo(as_json({"schema": SCHEMA, "id": token.id, "token": secret}) if is_json else secret)
        print_to_stderr(f"the token is valid until you revoke it with: podium serve tokens --revoke {token.id}")
        return
    if revoked is not None:
        print_to_stderr(f"revoked {tokens.revoke_token(revoked).name}")
        return
    found = tokens.list_tokens()
    if is_json:
        from msgspec import structs  # imported here to keep start-up fast

        listed = [{key: value for key, value in structs.asdict(one).items() if key != "digest"} for one in found]
        click.echo(as_json({"schema": SCHEMA, "tokens": listed}))
    elif not found:
        print_to_stderr("no tokens; to sign in with a browser, open the address that podium serve prints")
    else:
        now = time.time()
        rows = [
            (one.id, one.name, ",".join(one.scopes), format_age(now - one.last_used) if one.last_used else "never used")
            for one in found
        ]
        for row in align_columns(rows):
            click.echo("  ".join(row).rstrip())


@click.command("mcp")
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository to work in.")
def mcp_command(repo: Path | None) -> None:
    """Serve agents and teams as MCP tools on standard input and output, until the input ends.

    An MCP client starts this command. The tools are list_agents, run_agent, delegate_task, check_workers,
    get_result and pending_approvals. If the client supports elicitation, it shows you permission requests.
    podium approvals lists all open requests.
    """
    from ...protocols.mcp_server import serve_mcp  # imported here to keep start-up fast: the MCP package is large

    place = find_repo(repo or Path())
    anyio.run(serve_mcp, place, partial(Settings.load, repo=place))


@click.command("acp")
@click.argument("agent")
def acp_command(agent: str) -> None:
    """Serve AGENT to an editor, on standard input and output. The editor sees a team as a single agent.

    An editor that speaks the Agent Client Protocol starts this command. Permission requests are shown in the
    editor, and podium approvals lists them too; the first answer counts.
    """
    from ...protocols.acp_agent import serve_acp  # imported here for start-up time

    place = find_repo(Path())
    load_roster(place, Settings.load(repo=place).home).resolve_team(agent)
    anyio.run(serve_acp, agent, lambda folder: Settings.load(repo=folder))
