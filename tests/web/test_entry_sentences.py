"""What people read about an entry is one sentence: the terminal, the API, its stream and the page show the same."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from playwright.sync_api import expect

from podium.cli.root import podium
from podium.store.reader import StoreReader
from podium.values.event import KINDS, Entry, TurnStarted, decode_entry, encode_entry
from podium.views.event_text import STREAMED, describe_entry
from podium.web.api.sent_entry import add_sentence

from .api_client import ApiClient
from .conftest import Site, Visitor
from .run_timelines import Step, write_timeline

SAMPLE = Path(__file__).parents[1] / "samples" / "timeline-2.jsonl"
RUN = "5a3b1e000000"

READ_LINES = """async () => {
  const list = document.querySelector(".run-entries");
  const lines = {};
  for (let top = 0; top <= list.scrollHeight; top += 300) {
    list.scrollTop = top;
    for (let frames = 0; frames < 3; frames += 1) await new Promise(requestAnimationFrame);
    for (const row of list.querySelectorAll(".run-entry")) {
      lines[row.querySelector(".run-entry-seq").textContent] = row.querySelector(".run-entry-text").textContent;
    }
  }
  return lines;
}"""


@pytest.fixture(scope="module")
def entries(site: Site) -> list[Entry]:
    """Return the entries of a run that has almost every kind of event."""
    sample = [decode_entry(line) for line in SAMPLE.read_bytes().splitlines()]
    write_timeline(site, RUN, [Step(entry.at - sample[0].at, entry.operation, entry.event) for entry in sample])
    with StoreReader(site.store) as reader:
        return reader.read_entries(RUN)


def list_sentences(entries: list[Entry]) -> dict[int, str]:
    return {entry.seq: text for entry in entries if (text := describe_entry(entry)) is not None}


def test_the_api_and_its_stream_send_each_entry_with_its_sentence(site: Site, entries: list[Entry]) -> None:
    with ApiClient(site) as client:
        listed = client.read(f"/api/runs/{RUN}/entries")["entries"]
        single = [client.read(f"/api/runs/{RUN}/entries/{entry.seq}")["entry"] for entry in entries]
        streamed: list[dict[str, object]] = []
        with client.follow("", runs=RUN) as events:
            while len(streamed) < len(entries):
                event = next(events)
                streamed += event.data if event.name == "entries" else []

    assert listed == single == streamed
    assert {entry["seq"]: entry["text"] for entry in listed if "text" in entry} == list_sentences(entries)
    assert [msgspec.convert(entry, Entry) for entry in listed] == entries


def test_the_terminal_shows_the_sentence_of_each_entry(site: Site, entries: list[Entry]) -> None:
    own = {"PODIUM_HOME": str(site.studio.settings.home), "PODIUM_STORE": str(site.store)}
    kinds = [word for kind in KINDS.values() for word in ("--kind", kind)]

    lines = CliRunner().invoke(podium, ["logs", RUN, *kinds], env=own).stdout.splitlines()

    parts = [re.fullmatch(r" *(\d+)  [\d:]{8}  (.*)", line) for line in lines]
    shown = {int(part[1]): part[2] for part in parts if part is not None}
    sentences = list_sentences(entries)
    assert shown.keys() == sentences.keys()
    assert all(shown[seq].endswith(sentence) for seq, sentence in sentences.items())


def test_the_page_shows_the_sentence_of_each_entry_and_streamed_text_itself(
    site: Site, visitor: Visitor, entries: list[Entry]
) -> None:
    page = visitor.open(site, f"/run/{RUN}")
    page.get_by_role("tab", name="Log", exact=True).click()
    page.get_by_label("Show streamed text").check()
    expect(page.get_by_role("list", name=f"{len(entries)} entries")).to_be_visible()

    lines = page.evaluate(READ_LINES)

    pieces = {entry.seq: entry.event.text for entry in entries if isinstance(entry.event, STREAMED)}
    assert {int(seq): text for seq, text in lines.items()} == list_sentences(entries) | pieces


def test_an_entry_that_this_version_cannot_read_is_sent_as_it_is_stored() -> None:
    known = encode_entry(Entry(run="r", seq=1, at=1.0, scope="", event=TurnStarted(agent="a", engine="e", prompt="")))
    newer = known.replace(b"turn_started", b"turn_imagined")

    assert add_sentence(known, "turn_started", user="").endswith(b',"text":"calling e"}')
    assert add_sentence(newer, "turn_imagined", user="") == newer


def test_white_space_after_a_stored_entry_does_not_break_what_is_sent() -> None:
    stored = encode_entry(Entry(run="r", seq=1, at=1.0, scope="", event=TurnStarted(agent="a", engine="e", prompt="")))

    sent = msgspec.json.decode(add_sentence(stored + b" \n", "turn_started", user=""))

    assert sent == {**msgspec.json.decode(stored), "text": "calling e"}
