"""Fetching web pages, from a real server on loopback."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from podium.core.gate import InvalidCall
from podium.system.public_address import is_public_address
from podium.tools.web_fetch import LARGEST_ANSWER, WebFetch, extract_page_text

from .doing import call_tool, make_started_action, make_tool_use

PAGE = """<!doctype html><html><head><title>Title</title><style>p {color: red}</style></head>
<body><h1>Head</h1><p>Some <b>bold</b>
text &amp; more</p><script>alert(1)</script><ul><li>one</li><li>two</li></ul></body></html>"""


@asynccontextmanager
async def serve_pages() -> AsyncIterator[str]:
    async def page(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/page":
                return web.Response(text=PAGE, content_type="text/html")
            case "/json":
                return web.json_response({"cookies": dict(request.cookies)})
            case "/image":
                return web.Response(body=b"\x89PNG", content_type="image/png")
            case "/flood":
                return web.Response(text="x" * 5_000_000)
            case "/here":
                raise web.HTTPFound("/page")
            case "/round":
                raise web.HTTPFound("/round")
            case "/away":
                raise web.HTTPFound("http://other.example/page")
            case "/port":
                raise web.HTTPFound("http://127.0.0.1:9/page")
            case "/file":
                raise web.HTTPFound("file:///etc/passwd")
            case _:
                raise web.HTTPNotFound(text="no such page")

    app = web.Application()
    app.router.add_route("GET", "/{rest:.*}", page)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port: Any = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_a_page_comes_as_the_text_that_a_reader_sees() -> None:
    async with serve_pages() as url:
        answer = await call_tool(WebFetch(allow_private=True), url=f"{url}/page#part")

        assert answer.text == f"{url}/page [200]\n\nTitle\nHead\nSome bold text & more\none\ntwo"


@pytest.mark.parametrize(
    ("path", "said", "is_error"),
    [
        ("/json", '{"cookies": {}}', False),
        ("/image", "is image/png, not text", True),
        ("/nothing", "[404]\n\nno such page", True),
        ("/here", "[200]\n\nTitle", False),
        ("/round", "redirects more than 5 times", True),
        ("/away", "redirects to http://other.example/page, which was not fetched", False),
        ("/port", "redirects to http://127.0.0.1:9/page, which was not fetched", False),
    ],
)
async def test_other_responses_are_reported(path: str, said: str, is_error: bool) -> None:
    async with serve_pages() as url:
        answer = await call_tool(WebFetch(allow_private=True), url=f"{url}{path}")

        assert said in answer.text
        assert answer.is_error is is_error


async def test_a_redirect_to_a_file_is_refused() -> None:
    async with serve_pages() as url:
        with pytest.raises(InvalidCall, match="not an http or https address"):
            await call_tool(WebFetch(allow_private=True), url=f"{url}/file")


async def test_a_long_page_is_cut() -> None:
    async with serve_pages() as url:
        answer = await call_tool(WebFetch(allow_private=True), url=f"{url}/flood")

        assert len(answer.text) < LARGEST_ANSWER + 200
        assert answer.text.endswith("[the page continues; only its start is shown]")


async def test_an_unreachable_server_is_reported() -> None:
    answer = await call_tool(WebFetch(allow_private=True), url="http://127.0.0.1:1/")

    assert answer.is_error
    assert "could not be fetched" in answer.text


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1"],
)
async def test_addresses_of_this_machine_and_its_networks_are_refused(host: str) -> None:
    async with serve_pages() as url:
        port = url.rpartition(":")[2]

        with pytest.raises(InvalidCall, match="only public"):
            await call_tool(WebFetch(), url=f"http://{host}:{port}/page")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("2002:7f00:1::", False),
        ("1.1.1.1", True),
        ("169.254.169.254", False),  # the metadata server of most clouds
        ("fd00:ec2::254", False),  # AWS
        ("168.63.129.16", False),  # Azure
        ("100.100.100.200", False),  # Alibaba
        ("192.0.0.192", False),  # Oracle
        ("192.0.0.9", False),
        ("192.88.99.1", False),
        ("198.18.0.1", False),
        ("0.1.2.3", False),
        ("255.255.255.255", False),
        ("240.0.0.1", False),
        ("::", False),
        ("::1", False),
        ("::7f00:1", False),
        ("::5db8:d822", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("::ffff:a83f:8110", False),
        ("::ffff:0:10.0.0.1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b:1::5db8:d822", False),
        ("64:ff9b:1:ffff::1", False),
        ("fec0::1", False),
        ("feff::1", False),
        ("febf::1", False),
        ("fdff::1", False),
        ("ff02::1", False),
        ("ff0e::1", False),
        ("100::1", False),
        ("2001::1", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),  # Teredo
        ("2001:2::1", False),
        ("2001:10::1", False),
        ("2001:db8::1", False),
        ("2002:a83f:8110::1", False),
        ("2002:a00:1::1", False),
        ("2002:5db8:d822::1", True),
        ("3fff::1", False),
        ("3ffe::1", False),
        ("4000::1", False),
        ("5f00::1", False),
        ("2606:2800:220:1:0:5efe:a00:1", False),  # ISATAP
        ("2606:4700:4700::1111", True),
        ("2a00:1450:4001:830::200e", True),
        ("no address", False),
        ("10.0.0", False),
    ],
)
def test_public_addresses_are_distinguished_from_others(number: str, expected: bool) -> None:
    assert is_public_address(number) is expected


@pytest.mark.parametrize(
    "url", ["ftp://example.com", "file:///etc/passwd", "example.com", "http://", "http://u:p@example.com/"]
)
async def test_an_address_that_cannot_be_fetched_is_refused_before_anything_happens(url: str) -> None:
    tool = WebFetch()

    with pytest.raises(InvalidCall):
        await tool.prepare(make_tool_use(tool, url=url))


async def test_a_fetch_is_not_read_only_and_may_be_repeated() -> None:
    tool = WebFetch()

    prepared = await tool.prepare(make_tool_use(tool, url="https://EXAMPLE.com/a b#c"))

    assert prepared.arguments == {"url": "https://example.com/a%20b"}
    assert not prepared.is_read_only
    assert await tool.recover(make_started_action(tool, prepared)) is None


def test_broken_pages_are_read_as_far_as_they_go() -> None:
    assert extract_page_text("<p>a<script>b</p>") == "a"
    assert extract_page_text("<div>a</script>b") == "a\nb"


@pytest.mark.parametrize("piece", ["<!--", "<a ", "</", "<a b='", "<![CDATA[", "<?", "<script>", "&#", "<", "<p>"])
def test_a_hostile_page_is_read_in_the_time_that_its_length_takes(piece: str) -> None:
    started = time.process_time()

    extract_page_text(piece * (2_000_000 // len(piece)))

    assert time.process_time() - started < 10


def test_the_text_of_a_page_is_what_a_browser_shows() -> None:
    page = (
        "<!DOCTYPE html><html><head><title>T</title><STYLE>p {}</Style></head><body><!-- no -->"
        "<p title='a > b' class=\"c\">One &amp; two<br/>three <b>four</b></p><p>5 < 6</p><svg><path/></svg>end"
    )

    assert extract_page_text(page) == "T\nOne & two\nthree four\n5 < 6\nend"
