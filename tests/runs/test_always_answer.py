from __future__ import annotations

from pathlib import Path

from podium.files.always_allow_rules import load_allowed_rules
from podium.runs.answers import save_always_answer

from ..studio import Studio


async def test_a_run_without_a_repository_saves_a_rule_only_for_everywhere(studio: Studio, tmp_path: Path) -> None:
    studio.agent("lead", says=("done",))
    run = (await studio.run("lead", "go")).run_id
    home, store = tmp_path / "person", studio.settings.store

    for_the_run = save_always_answer(home, store, rule="Bash(make *)", run=run, by="ada")
    saved = load_allowed_rules(home)
    everywhere = save_always_answer(home, store, rule="Bash(make *)", run=run, by="ada", is_everywhere=True)

    assert for_the_run is None
    assert saved == ()
    assert everywhere is not None
    assert everywhere.repo == ""
