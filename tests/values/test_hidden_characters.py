"""Characters that a reader cannot see, and marks that hide others, are shown as their codes, here and in the page."""

from __future__ import annotations

import json
import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest

from podium.policy.risk_facts import find_risk_facts
from podium.values.action import Action
from podium.values.hidden_characters import escape_hidden, find_hidden
from podium.values.plain_text import escape_for_terminal, escape_unprintable
from podium.web.dashboard.page_characters import FILE, generate_table

HIDDEN = [
    *"\u17b4\u17b5\U00016fe4\U0001d159\ufffc\u2800\u3164\uffa0\u115f\u1160\u180e\u034f\u200b\u2064\u206a\ufeff\ufff0",
    *"\U000e0001\U000e0041\U000e007f\U000e0fff\U0001bca0\U0001d173\u00ad\u061c\u202e\x1b\x7f\x85",
    *(chr(code) for code in (*range(0x334, 0x339), *range(0x20D0, 0x20F1), 0x488, 0x489)),
]
HONEST = [
    "Cafe\u0301 re\u0301sume\u0301",
    unicodedata.normalize("NFD", "Tiếng Việt, Nguyễn, Đặng"),
    "हिन्दी, क्षत्रिय, ज़रूर",
    "ภาษาไทย ที่นี่ น้ำ",
    "العَرَبِيَّة، مُحَمَّد",
    "שָׁלוֹם",
    "བསྒྲུབས",
    "日本語の「名前」",
    "naïve – “quoted” … €5 ½ 🎉",
]


@pytest.mark.parametrize("character", HIDDEN, ids=ascii)
def test_a_hidden_character_is_shown_as_its_code_and_flagged(character: str) -> None:
    text = f"rm a{character}b"

    for shown in (escape_hidden(text), escape_for_terminal(text), escape_unprintable(text)):
        assert character not in shown
        assert f"{ord(character):x}" in shown
    risks = find_risk_facts(Action(run="r", agent="a", tool="Bash", arguments={"command": text}))
    assert ("control_characters", (escape_hidden(character),)) in [(risk.kind, risk.examples) for risk in risks]


@pytest.mark.parametrize("text", HONEST)
def test_accents_and_vowel_signs_of_names_stay_readable(text: str) -> None:
    assert escape_hidden(text) == text
    assert find_hidden(text) == []
    assert escape_for_terminal(text) == text


def test_emoji_and_wide_spaces_stay_in_prose_and_are_shown_in_requests() -> None:
    text = "❤\ufe0f\u3000空"

    assert escape_for_terminal(text) == text
    assert escape_hidden(text) == "❤\\ufe0f\\u3000空"


def test_a_stack_of_marks_does_not_reach_into_other_lines() -> None:
    shown = escape_hidden("a" + "\u0301" * 40 + "b")

    assert shown == "a" + "\u0301" * 4 + r"\u0301" * 36 + "b"


@pytest.mark.parametrize("base", ["", " ", "/", ";", "\n", "\u200b"], ids=ascii)
def test_a_mark_without_a_letter_below_it_is_shown_as_its_code(base: str) -> None:
    assert escape_hidden(f"{base}\u0301\u0302").endswith(r"\u0301\u0302")


def test_the_page_has_the_table_of_the_command_line() -> None:
    assert FILE.read_text() == generate_table(), "run: python -m podium.web.dashboard.page_characters"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_page_shows_the_same_codes(tmp_path: Path) -> None:
    texts = [
        *(f"rm a{one}b" for one in HIDDEN),
        *HONEST,
        "a" + "\u0301" * 9,
        "/\u0301\u0302",
        "\u0301",
        "a\u0338\u0301",
    ]
    script = tmp_path / "shown.mjs"
    script.write_text(
        f'import {{ plain }} from "{FILE.parent / "plain_text.mjs"}";\n'
        f"console.log(JSON.stringify({json.dumps(texts)}.map(plain)));\n"
    )

    shown = subprocess.run(["node", script], check=True, capture_output=True).stdout

    assert json.loads(shown) == list(map(escape_hidden, texts))
