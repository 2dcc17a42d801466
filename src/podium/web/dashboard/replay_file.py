"""Write a page that replays one run from a file, without a server or other files.

The page is the dashboard's run screen with the run's changes and entries. It cannot connect to anything.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from posixpath import dirname, join, normpath

from ...core.journal_rows import GENESIS
from ...store.reader import StoreReader
from ...system.identity import get_username
from ...values.event import SCHEMA, decode_entry
from ...views.run_state.page_state import PageState
from ..api.sent_entry import add_sentence
from .static_files import StaticFile, load_static_files

IMPORT = re.compile(r'((?:\bfrom|\bimport)\s*)"(\.{1,2}/[^"]+)"')
STYLES = ("app.css", "run.css", "screens.css")
FIRST = "replay.mjs"

PAGE = """\
<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <meta http-equiv="Content-Security-Policy"
      content="default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'">
    <title>{title}</title>
    <style>{style}
      .run-commands, .run-composer, .run-waiting {{ display: none; }}</style>
    <script type="application/json" id="run">{run}</script>
    <script type="importmap">{imports}</script>
  </head>
  <body>
    <div id="app"></div>
    <script type="module">import "podium/{first}";</script>
  </body>
</html>
"""


def write_replay_page(reader: StoreReader, run: str) -> str:
    """Return the page that replays a run."""
    summary, rows, user = reader.read_summary(run), reader.read_rows(run), get_username()
    changes = b",".join(PageState().apply_all(decode_entry(row.line, run=run) for row in rows))
    entries = b",".join(add_sentence(row.line, row.kind, user=user) for row in rows)
    head = {
        "schema": SCHEMA,
        "run": run,
        # Nothing moves in a file, so no process works on the run that it shows.
        "state": "resumable" if summary.phase == "running" else summary.phase,
        "hashes": [GENESIS.hex(), *(row.hash.hex() for row in rows)],
    }
    data = f'{json.dumps(head)[:-1]},"changes":[{changes.decode()}],"entries":[{entries.decode()}]}}'
    files = load_static_files()
    return PAGE.format(
        title=escape(f"{summary.started.agent}: {summary.started.request.text[:60]}"),
        style="\n".join(files[name].content.decode() for name in STYLES),
        run=data.replace("<", "\\u003c"),
        imports=json.dumps({"imports": _collect_modules(files)}),
        first=FIRST,
    )


def _collect_modules(files: Mapping[str, StaticFile]) -> dict[str, str]:
    """Return the modules that the page needs as data URLs. A module in a data URL can import another only by a name."""
    found: dict[str, str] = {}
    waiting = [FIRST]
    while waiting:
        name = waiting.pop()
        if f"podium/{name}" in found:
            continue

        def name_import(match: re.Match[str], folder: str = dirname(name)) -> str:
            target = normpath(join(folder, match[2]))
            waiting.append(target)
            return f'{match[1]}"podium/{target}"'

        source = IMPORT.sub(name_import, files[name].content.decode())
        found[f"podium/{name}"] = f"data:text/javascript;base64,{b64encode(source.encode()).decode()}"
    return found
