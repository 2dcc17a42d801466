"""Sign in with a one-time code, and list and revoke tokens."""

from __future__ import annotations

from litestar import delete, get, post
from litestar.exceptions import NotAuthorizedException, TooManyRequestsException
from litestar.params import FromPath, JSONBody
from msgspec import Struct

from ....values.actor import AccessScope
from ....values.column import Document, DocumentPart
from ..access_tokens import FAILURE_SECONDS, MOST_FAILURES, SESSION_SECONDS
from ..route_parameters import Server
from ..scopes import ApiRequest, get_token, may_act, may_read, require_scope


class Login(Struct, forbid_unknown_fields=True):
    """A one-time code to exchange for a token. If `remember` is set, the token is valid until it is revoked."""

    code: str
    name: str = "browser"
    remember: bool = False


class NewToken(Struct):
    """A token for the Authorization header. `expires` is 0 if the token is valid until it is revoked."""

    id: str
    token: str
    scopes: list[AccessScope]
    expires: float


class TokenItem(DocumentPart, frozen=True, kw_only=True):
    """A token in a list, without its secret. `expires` is 0 if it is valid until it is revoked."""

    id: str
    name: str
    scopes: tuple[AccessScope, ...]
    created: float
    expires: float
    last_used: float


class Session(Document, frozen=True, kw_only=True):
    """The token with its scopes, the user's name, and the server's repository and home folder."""

    token: TokenItem
    user: str
    repo: str
    home: str


class TokenList(Document, frozen=True, kw_only=True):
    """The valid tokens."""

    tokens: list[TokenItem]


class RevokedToken(Struct, frozen=True, kw_only=True):
    """The id of a token that was revoked."""

    revoked: str


@post("/api/login", status_code=200, sync_to_thread=False)
def sign_in(data: JSONBody[Login], request: ApiRequest, server: Server) -> NewToken:
    """Exchange a one-time code for a token.

    After many wrong codes from one address, no code is accepted from that address for a minute.
    """
    client = "" if request.client is None else request.client.host
    if server.codes.is_blocked(client):
        raise TooManyRequestsException(
            f"this address sent {MOST_FAILURES} wrong codes in {FAILURE_SECONDS:g} seconds; try again in a minute"
        )
    scopes = server.codes.redeem_code(data.code, client=client)
    if scopes is None:
        raise NotAuthorizedException(
            "the code is unknown, already used or expired; press Enter in the terminal where podium serve "
            "is running to get a new address"
        )
    name = "".join(one for one in data.name if one.isprintable())[:60] or "browser"
    seconds = 0.0 if data.remember else SESSION_SECONDS
    secret, token = server.tokens.create_token(name, scopes, seconds=seconds, channel="page")
    return NewToken(id=token.id, token=secret, scopes=list(token.scopes), expires=token.expires)


@get("/api/session", guards=[may_read], sync_to_thread=False)
def read_session(request: ApiRequest, server: Server) -> Session:
    """Return the token with its scopes, the user's name, and the server's repository and home folder."""
    token, home = TokenItem.of(get_token(request)), str(server.settings.home)
    return Session(token=token, user=server.user, repo=str(server.repo), home=home)


@post("/api/session/end", guards=[may_read], sync_to_thread=False)
def sign_out(request: ApiRequest, server: Server) -> RevokedToken:
    """Revoke the token used for this request."""
    return RevokedToken(revoked=server.tokens.revoke_token(get_token(request).id).id)


@get("/api/tokens", guards=[may_act], sync_to_thread=False)
def list_tokens(server: Server) -> TokenList:
    """List the valid tokens, without their secrets."""
    return TokenList(tokens=[TokenItem.of(one) for one in server.tokens.list_tokens()])


@delete("/api/tokens/{token_id:str}", guards=[may_act], status_code=200, sync_to_thread=False)
def revoke_token(token_id: FromPath[str], request: ApiRequest, server: Server) -> RevokedToken:
    """Revoke a token. A token that may approve can be revoked only by another one that may."""
    found = server.tokens.get_token(token_id)
    if "approve" in found.scopes and found.id != get_token(request).id:
        require_scope(request, "approve", to="revoking a token that may approve")
    return RevokedToken(revoked=server.tokens.revoke_token(found.id).id)


ROUTES = (sign_in, read_session, sign_out, list_tokens, revoke_token)
