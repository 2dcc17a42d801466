"""Provide the tool `web_fetch`, which fetches a web page as text. Addresses that are not public are rejected."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from html import unescape
from typing import TYPE_CHECKING, Any

from anyio import fail_after, to_thread

from ..core.engine import ToolAnswer
from ..core.gate import InvalidCall, PreparedCall
from ..core.tool_call import Arguments, build_schema, parse_arguments
from ..system.public_address import is_public_address
from ..values.action import Action
from ..values.event import ToolUse

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

SECONDS = 30.0
LARGEST_PAGE = 2 * 1024 * 1024
LARGEST_ANSWER = 100_000
REDIRECTS = 5
TEXTUAL = ("text/", "application/json", "application/xml", "application/xhtml+xml", "application/javascript")


class FetchArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of web_fetch."""

    url: str


class WebFetch:
    """`web_fetch`: returns the text of a web page."""

    name = "web_fetch"
    description = "Fetch the text of a web page."
    parameters = build_schema(FetchArguments)
    is_parallel = True
    timeout = SECONDS + 10

    def __init__(self, *, allow_private: bool = False) -> None:
        self._allow_private = allow_private

    async def prepare(self, call: ToolUse) -> PreparedCall:
        url = _parse_http_url(parse_arguments(call, FetchArguments).url)

        async def fetch_url() -> ToolAnswer:
            return await self._fetch_page(url)

        return PreparedCall(arguments={"url": str(url)}, act=fetch_url)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None

    async def _fetch_page(self, url: URL) -> ToolAnswer:
        from aiohttp import ClientError  # imported here to keep start-up fast: this import is slow

        try:
            with fail_after(SECONDS):
                async with self._open_session() as session:
                    return await self._follow_redirects(session, url)
        except TimeoutError:
            return ToolAnswer(text=f"{url} could not be fetched within {SECONDS:g} s.", is_error=True)
        except (ClientError, OSError) as error:
            return ToolAnswer(text=f"{url} could not be fetched: {error or type(error).__name__}.", is_error=True)

    def _open_session(self) -> ClientSession:
        from aiohttp import ClientSession, DummyCookieJar, TCPConnector

        connector = TCPConnector(resolver=_build_resolver(self._allow_private), force_close=True)
        return ClientSession(connector=connector, cookie_jar=DummyCookieJar(), headers={"User-Agent": "podium"})

    async def _follow_redirects(self, session: ClientSession, url: URL) -> ToolAnswer:
        asked = url
        for _ in range(REDIRECTS + 1):
            self._refuse_private_address(url)
            async with session.get(url, allow_redirects=False) as response:
                where = response.headers.get("Location")
                if response.status not in (301, 302, 303, 307, 308) or where is None:
                    return await _read_page(response)
                target = _parse_http_url(str(url.join(_parse_url(where))))
                is_upgrade = (url.scheme, url.port, target.port) == ("http", 80, 443)
                if target.host != url.host or (target.port != url.port and not is_upgrade):
                    return ToolAnswer(
                        text=f"{url} redirects to {target}, which was not fetched; fetch it if you need it."
                    )
                url = target
        return ToolAnswer(text=f"{asked} redirects more than {REDIRECTS} times.", is_error=True)

    def _refuse_private_address(self, url: URL) -> None:
        """Raise InvalidCall for an IP address that is not public, or that is abbreviated, such as `127.1`.

        The resolver checks only host names.
        """
        host = url.host or ""
        is_number = ":" in host or host.replace(".", "").isdigit()
        if is_number and not self._allow_private and not is_public_address(host):
            raise InvalidCall(f"{url} does not have a public IP address; only public addresses can be fetched.")


def _parse_url(text: str) -> URL:
    from yarl import URL

    try:
        return URL(text)
    except ValueError as error:
        raise InvalidCall(f"{text!r} is not a valid address; give one that starts with https://.") from error


def _parse_http_url(text: str) -> URL:
    url = _parse_url(text)
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidCall(f"{text!r} is not an http or https address; give one that starts with https://.")
    if url.user is not None or url.password is not None:
        raise InvalidCall("`url` contains a user name or password; leave it out.")
    return url.with_fragment(None)


# Addresses


def _build_resolver(allow_private: bool) -> Any:
    """Return a resolver that rejects hosts with private addresses. Connections use only addresses it has checked."""
    from aiohttp.abc import AbstractResolver, ResolveResult
    from aiohttp.resolver import ThreadedResolver

    class PublicResolver(AbstractResolver):
        def __init__(self) -> None:
            self._inner = ThreadedResolver()

        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            found = await self._inner.resolve(host, port, family)
            if not allow_private and not all(is_public_address(one["host"]) for one in found):
                raise InvalidCall(f"{host} has an address that is not public; only public addresses can be fetched.")
            return found

        async def close(self) -> None:
            await self._inner.close()

    return PublicResolver()


# Pages


async def _read_page(response: ClientResponse) -> ToolAnswer:
    kind = response.content_type
    if not kind.startswith(TEXTUAL) and not kind.endswith(("+json", "+xml")):
        return ToolAnswer(text=f"{response.url} is {kind}, not text; it was not fetched.", is_error=True)
    body = bytearray()
    async for chunk in response.content.iter_chunked(65536):
        body += chunk
        if len(body) > LARGEST_PAGE:
            break
    try:
        text = body.decode(response.charset or "utf-8", errors="replace")
    except LookupError:
        text = body.decode(errors="replace")
    if "html" in kind:
        text = await to_thread.run_sync(extract_page_text, text)
    is_cut = len(text) > LARGEST_ANSWER or len(body) > LARGEST_PAGE
    end = "\n[the page continues; only its start is shown]" if is_cut else ""
    head = f"{response.url} [{response.status}]\n\n"
    return ToolAnswer(text=f"{head}{text[:LARGEST_ANSWER]}{end}", is_error=response.status >= 400)


UNSEEN = frozenset(("script", "style", "noscript", "template", "svg"))
"""Elements whose content is not shown."""
INLINE = frozenset(
    ("a", "abbr", "b", "code", "em", "i", "img", "kbd", "mark", "q", "s", "small", "span", "strong", "u")
)
_TAG = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_TAG_PART = re.compile(r"[^\"'>]*")


def extract_page_text(html: str) -> str:
    """Return the visible text of a page."""
    lines = (" ".join(line.split()) for line in "".join(_iter_text(html)).split("\n"))
    return "\n".join(line for line in lines if line)


def _iter_text(html: str) -> Iterator[str]:
    """Yield the text between the tags, and line breaks for tags that start a new line.

    Every character of a page is read only once. A hidden element without an end tag extends to the end of the page.
    """
    place = 0
    while (start := html.find("<", place)) >= 0:
        yield unescape(html[place:start]).replace("\n", " ")
        tag = _TAG.match(html, start)
        if html.startswith("<!--", start):
            place = _find_end(html, "-->", start + 4)
        elif tag is not None:
            name, place = tag[1].lower(), _find_tag_end(html, tag.end())
            if name in UNSEEN and html[start + 1] != "/":
                closing = re.compile(f"</{name}", re.IGNORECASE).search(html, place)
                place = len(html) if closing is None else _find_tag_end(html, closing.end())
            elif name not in INLINE:
                yield "\n"
        elif html.startswith(("<!", "<?", "</"), start):
            place = _find_end(html, ">", start)
        else:
            yield "<"
            place = start + 1
    yield unescape(html[place:]).replace("\n", " ")


def _find_end(text: str, mark: str, start: int) -> int:
    """Return the position after the next `mark`, or the length of the text if there is none."""
    found = text.find(mark, start)
    return len(text) if found < 0 else found + len(mark)


def _find_tag_end(html: str, start: int) -> int:
    """Return the position after a tag. A `>` inside quotes does not end the tag."""
    place = start
    while place < len(html):
        part = _TAG_PART.match(html, place)
        place = place if part is None else part.end()
        if place >= len(html) or html[place] == ">":
            return place + 1
        place = _find_end(html, html[place], place + 1)
    return place
