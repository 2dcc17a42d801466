"""Makes the pictures of the documents from real runs: `python docs/pictures.py`."""

from __future__ import annotations

import re
import tempfile
from io import StringIO
from pathlib import Path

import anyio
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import podium
from podium.cli.output.live_tree import draw_run_tree
from podium.cli.output.run_tree import UNICODE_SYMBOLS
from podium.files.discovery import Folder, read_folder
from podium.store.reader import StoreReader
from podium.values.event import Entry, TurnStarted
from podium.views.run_state.tree import RunView

DOCS = Path(__file__).parent
DEMO = Path(podium.__file__).parent / "builtin" / "demo"
REQUEST = "Can we cache prices for a day without leaking customers' discounts?"
WIDTH = 92


async def demo_run() -> list[Entry]:
    """The timeline of the demo's team at work."""
    read = read_folder(Folder(path=DEMO, source="repo")).entries
    agents = {name: agent for name, agent in read.items() if isinstance(agent, podium.Agent)}
    with tempfile.TemporaryDirectory() as home:
        settings = podium.Settings.load({}, home=Path(home))
        result = await podium.run(agents["lead"], REQUEST, settings=settings, agents=agents.values())
        with StoreReader(settings.store) as reader:
            return reader.read_entries(result.run_id)


def until_last_turn(entries: list[Entry]) -> list[Entry]:
    """The timeline up to the moment when the last agent begins to think."""
    last = max(place for place, entry in enumerate(entries) if isinstance(entry.event, TurnStarted))
    return entries[: last + 1]


def svg(entries: list[Entry]) -> str:
    """The live tree after these entries, as the terminal shows it."""
    console = Console(record=True, width=WIDTH, height=30, file=StringIO(), force_terminal=True)
    console.print(Text(f'$ podium run lead "{REQUEST}"', style="bold"))
    console.print(draw_run_tree(RunView.from_entries(entries), console, UNICODE_SYMBOLS, is_live=True))
    made = console.export_svg(title="podium", theme=MONOKAI, unique_id="podium")
    # The fonts that the template would fetch from elsewhere are left to the reader's system.
    return re.sub(r"@font-face\s*{[^}]*}", "", made)


def main() -> None:
    """Make them all."""
    entries = anyio.run(demo_run)
    (DOCS / "images").mkdir(exist_ok=True)
    (DOCS / "images" / "run.svg").write_text(svg(until_last_turn(entries)), encoding="utf-8")


if __name__ == "__main__":
    main()
