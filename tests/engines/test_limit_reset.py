"""When a provider's limit resets, according to what it sends, and which model replied."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from podium.engines.model.http_wire import find_reset_seconds
from podium.engines.model.reply_recorder import is_same_model

NOW = 1_794_970_000.0


@pytest.mark.parametrize(
    ("headers", "error", "seconds"),
    [
        ({"retry-after": "7200"}, {}, 7200),
        ({"retry-after-ms": "1500", "retry-after": "2"}, {}, 1.5),
        ({"retry-after": "9", "x-ratelimit-reset": str(NOW + 500)}, {}, 9),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h2m3.5s"}, {}, 3723.5),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "6m0s"}, {}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20ms"}, {}, 0.02),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": datetime.fromtimestamp(NOW + 400, UTC).isoformat(),
                "anthropic-ratelimit-requests-remaining": "9",
                "anthropic-ratelimit-requests-reset": "2027-01-01T00:00:00Z",
            },
            {},
            400,
        ),
        (
            {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-reset": str(int(NOW + 900)),
            },
            {},
            900,
        ),
        ({"x-ratelimit-reset": str((NOW + 60) * 1000)}, {}, 60),
        ({"ratelimit-reset": "42"}, {}, 42),
        ({}, {"resets_at": NOW + 3600}, 3600),
        ({}, {"resets_in_seconds": 77}, 77),
        ({}, {"details": [{"retryDelay": "34s"}]}, 34),
        ({}, {"message": "Rate limit reached. Please try again in 7m12s."}, 432),
        ({}, {"metadata": {"headers": {"X-RateLimit-Reset": str(NOW + 30), "X-RateLimit-Remaining": "0"}}}, 30),
        ({}, {"message": "no credit left"}, None),
        ({"retry-after": "soon"}, {"resets_at": "whenever", "retry_after": True}, None),
    ],
)
def test_the_time_of_a_reset_is_found_wherever_the_provider_puts_it(
    headers: dict[str, str], error: dict[str, object], seconds: float | None
) -> None:
    found = find_reset_seconds(429, headers, json.dumps({"error": error}).encode(), now=NOW)

    assert found == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("body", [b"", b"\xff\x00", b"[" * 3000, b'{"error": null}', b"<html>"])
def test_a_body_that_cannot_be_read_names_no_time(body: bytes) -> None:
    assert find_reset_seconds(429, {}, body, now=NOW) is None


@pytest.mark.parametrize(
    ("asked", "replied"),
    [
        ("gpt-5-mini", "gpt-5-mini-2025-08-07"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5-20260401"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("llama3", "llama3:latest"),
        ("x/y:free", "y"),
        ("mistral-medium-latest", "mistral-medium-2508"),
        ("gemini-flash-latest", "models/gemini-2.5-flash"),
        ("openrouter/auto", "anthropic/claude-opus"),
        ("default", "/models/qwen.gguf"),
        ("Qwen3", "qwen3.gguf"),
        ("gpt-5", ""),
    ],
)
def test_an_alias_and_its_snapshot_are_the_same_model(asked: str, replied: str) -> None:
    assert is_same_model(asked, replied)


@pytest.mark.parametrize(
    ("asked", "replied"),
    [
        ("gpt-5", "gpt-5-mini"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini-2025-10-01"),
        ("qwen3:8b", "qwen3:4b"),
        ("claude-3", "claude-3-5"),
        ("mistral-medium-latest", "mistral-small-2508"),
    ],
)
def test_another_size_version_or_date_is_another_model(asked: str, replied: str) -> None:
    assert not is_same_model(asked, replied)
