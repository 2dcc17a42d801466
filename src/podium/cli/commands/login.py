"""`podium login`: sign in to a server on another machine, for `podium --server`."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import click
from msgspec import structs

from ...system.locations import find_home_folder
from ...values.errors import Mistake
from ...web.client.known_servers import (
    KnownServer,
    find_server,
    forget_server,
    load_servers,
    parse_address,
    save_server,
)
from ..terminal import exit_codes
from ..terminal.terminal_input import is_attended
from ..terminal.text import align_columns, escape_for_terminal, print_to_stderr


@click.command("login")
@click.argument("address", required=False)
@click.option("--code", help="Code from the address that podium serve prints, if ADDRESS does not contain it.")
@click.option(
    "--token",
    help="Token created with podium serve tokens --create, to sign in without a code; use - to read it from standard "
    "input.",
)
@click.option(
    "--fingerprint",
    help="Expected SHA-256 fingerprint of the certificate; required if this machine does not trust the certificate and "
    "there is no terminal to confirm it.",
)
@click.option("--forget", "is_forgotten", is_flag=True, help="Sign out, and delete the token.")
def login_command(
    address: str | None, code: str | None, token: str | None, fingerprint: str | None, is_forgotten: bool
) -> int:
    """Sign in to a server on another machine. Without ADDRESS, list the known servers.

    ADDRESS is the address that podium serve prints on that machine. Once you are signed in, use podium --server
    ADDRESS COMMAND to run commands there. The token and the fingerprint of the certificate are saved in Podium's
    home folder.
    """
    home = find_home_folder()
    if address is None:
        list_servers(home)
        return exit_codes.GOAL_MET
    # Imported here to keep start-up fast: the list does not need it.
    from ...web.client.server_client import ServerClient

    if is_forgotten:
        known = find_server(home, address)
        forget_server(home, known.address)
        ServerClient(known).read("POST", "/api/session/end")
        print_to_stderr(f"signed out of {known.address}")
        return exit_codes.GOAL_MET
    place, found_code = parse_address(address)
    if token is not None and (code or found_code):
        raise Mistake("use a code or a token, not both")
    server = KnownServer(address=place, token="", fingerprint=choose_fingerprint(place, fingerprint))
    if token is None:
        given = {"code": code or found_code or ask_for_code(), "name": f"podium on {socket.gethostname()}"}
        token = str(ServerClient(server).read("POST", "/api/login", {**given, "remember": True})["token"])
    server = structs.replace(server, token=sys.stdin.readline().strip() if token == "-" else token)
    session = ServerClient(server).read("GET", "/api/session")
    save_server(home, server)
    where = escape_for_terminal(f"user {session['user']}, repository {session['repo']}")
    print_to_stderr(f"signed in to {place} ({where}); use it with: podium --server {place} ps")
    return exit_codes.GOAL_MET


def list_servers(home: Path) -> None:
    """Print the known servers with the fingerprints of their certificates."""
    rows = [(one.address, one.fingerprint) for one in load_servers(home).values()]
    for row in align_columns(rows) if rows else ():
        click.echo("  ".join(row).rstrip())
    if not rows:
        print_to_stderr("no known servers; sign in to one with podium login ADDRESS")


def choose_fingerprint(address: str, expected: str | None) -> str:
    """Return the fingerprint that the certificate must have from now on, as given or confirmed by the user.

    It is empty if connections are not encrypted, or if `expected` is None and this machine trusts the certificate.
    Raise Mistake if the certificate does not have the expected fingerprint, or if the user does not confirm it.
    """
    from ...web.client.server_client import read_certificate  # imported here to keep start-up fast

    seen = read_certificate(address)
    if seen is None or (seen.is_trusted and expected is None):
        return ""
    says = f"the certificate of {address} has the SHA-256 fingerprint {seen.fingerprint}"
    if expected is not None:
        if seen.fingerprint.replace(":", "") != expected.replace(":", "").strip().upper():
            raise Mistake(f"{says}, not {expected}; use the fingerprint that podium serve printed on the server")
        return seen.fingerprint
    if not is_attended():
        raise Mistake(
            f"{says}; check that podium serve printed the same fingerprint on the server, then pass it with "
            "--fingerprint"
        )
    print_to_stderr(says)
    if not click.confirm("Did podium serve print the same fingerprint on the server?", err=True):
        raise Mistake("not signed in, because the fingerprint is not the one that podium serve printed")
    return seen.fingerprint


def ask_for_code() -> str:
    """Return the code that the user types. Raise Mistake if there is no terminal."""
    if not is_attended():
        raise Mistake(
            "the address contains no sign-in code; use the whole address that podium serve prints, or pass --code or "
            "--token"
        )
    return str(click.prompt("Code that follows #code= in the address that podium serve printed", err=True)).strip()
