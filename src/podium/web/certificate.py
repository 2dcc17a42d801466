"""Create or read the server's certificate, for connections from other machines.

Certificates that Podium creates are self-signed, so a browser shows a warning on the first visit. The user compares the
fingerprint that the server prints with the one that the browser shows. Podium's own client stores the fingerprint and
accepts no other certificate.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ..system.file_lock import hold_file_lock
from ..system.owned_files import make_private_folder
from ..system.whole_file import replace_file
from ..values.errors import Mistake

FILE_NAME = "serve-certificate.pem"
VALID_DAYS = 365
RENEW_DAYS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCertificate:
    """A certificate and its private key, in one file."""

    file: Path
    fingerprint: str
    """SHA-256 of the certificate, as browsers show it: `AB:CD:…`."""


def load_certificate(home: Path, names: Sequence[str]) -> ServerCertificate:
    """Return the certificate in the home directory.

    Create a new one if it is missing, expires soon or does not cover these names.
    """
    file = home / FILE_NAME
    make_private_folder(home)
    with hold_file_lock(home / f"{FILE_NAME}.lock", protects=file):
        found = _read_certificate(file)
        if found is None or not _covers(found, names):
            found, data = make_certificate(names)
            replace_file(file, data)
    return ServerCertificate(file=file, fingerprint=_format_fingerprint(found.fingerprint(hashes.SHA256())))


def read_given_certificate(file: Path) -> ServerCertificate:
    """Return the user's own certificate, whose key is in the same file. Raise Mistake if it cannot be used."""
    try:
        found = x509.load_pem_x509_certificate(file.read_bytes())
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(file)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise Mistake(f"{file} is not a PEM file with a certificate and its key ({error})") from error
    return ServerCertificate(file=file, fingerprint=_format_fingerprint(found.fingerprint(hashes.SHA256())))


def _format_fingerprint(digest: bytes) -> str:
    """Return a fingerprint as browsers show it."""
    return ":".join(f"{byte:02X}" for byte in digest)


def find_lan_address() -> str:
    """Return this machine's address on the local network. Raise Mistake if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: this only asks which address would be used
            address = str(probe.getsockname()[0])
        except OSError:
            address = "127.0.0.1"
    if address.startswith("127."):
        raise Mistake("this machine has no network address; connect it to a network, or use --host ADDRESS")
    return address


def make_certificate(names: Sequence[str]) -> tuple[x509.Certificate, bytes]:
    """Return a new certificate for these names and addresses, and the PEM data of the certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Podium")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([_as_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made, private + made.public_bytes(serialization.Encoding.PEM)


def _as_general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return x509.DNSName(name)


def _read_certificate(file: Path) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        return None


def _covers(found: x509.Certificate, names: Sequence[str]) -> bool:
    """Return whether a certificate covers these names and does not expire soon."""
    if found.not_valid_after_utc < datetime.now(UTC) + timedelta(days=RENEW_DAYS):
        return False
    try:
        known = set(found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return False
    return {_as_general_name(name) for name in names} <= known
