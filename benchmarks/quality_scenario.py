"""The requests of the quality benchmark. Peers import this module in their own environments: standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

DESTINATIONS = {
    "billing": "Invoices, payments, refunds and prices.",
    "technical": "Errors, crashes, installation and configuration.",
    "travel": "Flights, trains, hotels and directions.",
}

ROUTES = (
    ("I was charged twice for my subscription.", "billing"),
    ("The program crashes with a segmentation fault.", "technical"),
    ("Which train goes from Paris to Lyon?", "travel"),
    ("Please send me the invoice for March.", "billing"),
    ("How do I configure the proxy?", "technical"),
    ("Book a hotel near the airport.", "travel"),
    ("Can I get a refund for my last payment?", "billing"),
    ("Installation fails on Windows with error 5.", "technical"),
    ("How do I get from the station to the museum?", "travel"),
    ("What does the yearly plan cost?", "billing"),
)
"""Requests, and the agent that each of them belongs to."""


class Edit(NamedTuple):
    """An exact edit: in a file with this content, the text `old` is replaced with `new`."""

    file: str
    content: str
    old: str
    new: str

    @property
    def request(self) -> str:
        return f"In the file {self.file}, replace the text `{self.old}` with `{self.new}`."

    @property
    def expected(self) -> str:
        return self.content.replace(self.old, self.new)


EDITS = (
    Edit("price.py", "def total(price, quantity):\n    return price\n", "return price", "return price * quantity"),
    Edit("settings.ini", "[client]\nretries = 3\ntimeout = 10\n", "retries = 3", "retries = 5"),
    Edit("greet.py", 'def greet():\n    print("Helo")\n', "Helo", "Hello"),
    Edit("limits.py", "MAX_USERS = 10\nMAX_FILES = 20\n", "MAX_USERS = 10", "MAX_USERS = 100"),
    Edit("notes.md", "# Notes\n\nVersion 1.0\n", "Version 1.0", "Version 1.1"),
)


def replace_text(path: Path, old_text: str, new_text: str) -> str:
    """Make an edit, as a tool of a peer's agent, and return the text that the agent gets."""
    content = path.read_text()
    if content.count(old_text) != 1:
        return "old_text does not occur exactly once"
    path.write_text(content.replace(old_text, new_text))
    return "done"


ROUTER_PROMPT = "You send a request to the agent whom it concerns. You do not answer it yourself."
CODER_PROMPT = (
    "You make the edit that the task asks for, with the tool edit_file, and nothing else. "
    "When the edit is done, say in one sentence what you changed."
)
