"""Presets: the teams that a person has saved."""

from __future__ import annotations

import json
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from podium.files.presets import (
    Preset,
    PresetWorker,
    build_workers,
    delete_preset,
    load_presets,
    preset_from_team,
    save_preset,
)
from podium.files.squad import Member, Team
from podium.values.errors import Mistake


def test_what_is_saved_is_loaded_and_what_is_deleted_is_not(tmp_path: Path) -> None:
    one = Preset(name="One", mode="discuss", lead_model="opus", workers=build_workers(["a", "b"], ["You are a."]))

    assert load_presets(tmp_path / "home").presets == ()
    save_preset(tmp_path / "home", one)
    save_preset(tmp_path / "home", Preset(name="Two"))
    assert load_presets(tmp_path / "home").presets == (one, Preset(name="Two"))
    assert delete_preset(tmp_path / "home", "one")
    assert not delete_preset(tmp_path / "home", "one")
    assert load_presets(tmp_path / "home").presets == (Preset(name="Two"),)


def test_a_preset_replaces_another_of_the_same_name(tmp_path: Path) -> None:
    for preset in (Preset(name="A"), Preset(name="B"), Preset(name="a", description="newer")):
        save_preset(tmp_path, preset)

    assert [one.name for one in load_presets(tmp_path).presets] == ["a", "B"]
    found = load_presets(tmp_path).get("A")
    assert found is not None
    assert found.description == "newer"


def test_an_unknown_stored_mode_works_as_broadcast_with_a_notice(tmp_path: Path) -> None:
    stored = [{"name": "A", "mode": "swarm"}, {"name": "B", "mode": "orchestrator-reflect"}]
    (tmp_path / "presets.json").write_text(json.dumps({"version": 1, "presets": stored}))

    found = load_presets(tmp_path)

    assert [one.mode for one in found.presets] == ["broadcast", "reflect"]
    assert "swarm" in found.notices[0]


def test_an_invalid_preset_gives_a_notice_and_stays_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "presets.json").write_text(json.dumps({"version": 1, "presets": [{"name": 7, "x": 1}, {"name": "B"}]}))

    save_preset(tmp_path, Preset(name="C"))

    assert [one.name for one in load_presets(tmp_path).presets] == ["B", "C"]
    assert "preset 1" in load_presets(tmp_path).notices[0]
    assert json.loads((tmp_path / "presets.json").read_text())["presets"][0] == {"name": 7, "x": 1}


def test_unknown_keys_stay_in_the_file(tmp_path: Path) -> None:
    one = {"name": "One", "theirs": 1, "manner": {"dispatch": "ask", "pace": 2}, "workers": []}
    one["workers"] = [{"name": "a", "prompt": "old", "colour": "red"}, {"name": "b", "colour": "blue"}, {"size": 3}]
    stored = {"version": 1, "editor": {"x": 1}, "presets": [one, {"name": "Two", "theirs": 2}]}
    (tmp_path / "presets.json").write_text(json.dumps(stored))

    save_preset(
        tmp_path,
        Preset(
            name="one", workers=(PresetWorker(name="b"), PresetWorker(name="a", prompt="new"), PresetWorker(name="c"))
        ),
    )
    save_preset(tmp_path, Preset(name="Three"))
    delete_preset(tmp_path, "two")

    assert json.loads((tmp_path / "presets.json").read_text()) == {
        "version": 1,
        "editor": {"x": 1},
        "presets": [
            {
                "name": "one",
                "theirs": 1,
                "manner": {"pace": 2},
                "workers": [
                    {"name": "b", "colour": "blue"},
                    {"name": "a", "prompt": "new", "colour": "red"},
                    {"name": "c"},
                ],
            },
            {"name": "Three"},
        ],
    }


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"version": 2, "presets": []}', b"[" * 100_000])
def test_an_invalid_presets_file_is_a_mistake_and_not_overwritten(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "presets.json").write_bytes(data)

    with pytest.raises(Mistake, match=r"presets\.json"):
        load_presets(tmp_path)
    with pytest.raises(Mistake):
        save_preset(tmp_path, Preset(name="A"))
    assert (tmp_path / "presets.json").read_bytes() == data


def test_a_preset_needs_a_name(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="name"):
        save_preset(tmp_path, Preset(name=" "))


def test_members_of_a_preset_have_roles_models_and_names_of_their_own() -> None:
    preset = Preset(
        name="P",
        workers=(*build_workers(["m1", "m2"], ["You are a tester. Go."]), PresetWorker(name="Lead", model="m3")),
    )

    members = preset.to_members(taken=["worker-1", "lead"])

    assert members == (
        Member("worker-1-2", "tester", "You are a tester. Go.", "m1"),
        Member("worker-2", "worker 2", "", "m2"),
        Member("Lead-2", "Lead 2", "", "m3"),
    )


def test_a_team_can_be_kept_as_a_preset(tmp_path: Path) -> None:
    team = Team("T", "discuss", (Member("a", "A", "You are a.", "opus"),), "know", "route", tmp_path)

    preset = preset_from_team(team)

    assert preset.to_members() == team.members
    assert (preset.mode, preset.shared_context, preset.routing_context) == ("discuss", "know", "route")
    assert preset.source == str(tmp_path)


@given(st.lists(st.text()), st.lists(st.text()))
@example(names=["\r"], taken=[""])
def test_no_member_has_a_name_that_is_taken(names: list[str], taken: list[str]) -> None:
    preset = Preset(name="T", workers=tuple(PresetWorker(name=name) for name in names))

    given = [member.name.casefold() for member in preset.to_members(taken)]

    assert len({*given}) == len(names)
    assert not {*given} & {one.casefold() for one in taken}


def save_many(home: Path, prefix: str) -> None:
    for number in range(20):
        save_preset(home, Preset(name=f"{prefix}{number}"))


def test_two_processes_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    spawn = get_context("spawn")
    savers = [spawn.Process(target=save_many, args=(tmp_path, prefix)) for prefix in "ab"]

    for one in savers:
        one.start()
    for one in savers:
        one.join()

    assert len(load_presets(tmp_path).presets) == 40
    assert sorted(path.name for path in tmp_path.iterdir()) == [".presets.lock", "presets.json"]
