"""Squads: read as data, and written back without losing anything."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from podium.files.squad import (
    Member,
    Noted,
    Ownership,
    Route,
    Team,
    agent_name,
    delete,
    derive_role,
    discover,
    discover_with_notices,
    parse_charter,
    parse_decisions,
    parse_modules,
    parse_routing,
    parse_team,
    slug,
    write,
)
from podium.values.errors import Mistake

TEAM = """# Mission Control

> Failure is not an option.

## Coordinator

| Name | Role | Notes |
|------|------|-------|
| Squad | Coordinator | Routes work. |

## Members

| Name | Role | Charter | Status |
|------|------|---------|--------|
| Flight | Lead | `.squad/agents/flight/charter.md` | ✅ Active |
| EECOM | Core Dev | `.squad/agents/eecom/charter.md` | ✅ Active |
| Name | Role | Charter | Status |
| Fact Checker | Devil's Advocate | `.squad/agents/fact-checker/charter.md` | 🔍 Reviewer |
| Scribe | Session Logger | `.squad/agents/scribe/charter.md` | 📋 Silent |
| Ralph | Work Monitor | — | 🔄 Monitor |
| Guard | Looks | — | 🛡️ RAI |
| Vera | Proves | — | Verifier |
| Old | Gone | — | Inactive |

## Coding Agent

<!-- copilot-auto-assign: false -->

| Name | Role | Charter | Status |
|------|------|---------|--------|
| @copilot | Coding Agent | — | 🤖 Coding Agent |

## Project Context

| Member | Role |
|--------|------|
| nobody | none |

- **Owner:** somebody
"""

CHARTER = """# Flight — Lead

> Decisions compound.

## Identity

- **Name:** Flight
- **Role:** Lead
- **Expertise:** Product vision, architecture
- **Style:** Decisive.

## Model

- **Preferred:** claude-opus-4.5 (for code)
- **Fallback:** Standard chain
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return write_squad(tmp_path / "repo")


def write_squad(repo: Path, folder: str = ".squad", team: str = TEAM) -> Path:
    write_file(repo / folder / "team.md", team)
    write_file(repo / folder / "agents/flight/charter.md", CHARTER)
    write_file(repo / folder / "agents/flight/history.md", "what flight learned")
    write_file(repo / folder / "agents/eecom/charter.md", "You are a core developer. You write code.\r\n")
    write_file(repo / folder / "agents/scribe/charter.md", "You log.")
    write_file(repo / folder / "agents/_alumni/rabin/charter.md", "I left.")
    write_file(repo / folder / "decisions/inbox/one.md", "to be decided")
    write_file(repo / folder / "skills/x/SKILL.md", "a skill")
    write_file(repo / folder / "decisions.md", "# Decisions\n\n## Use async\n\nAlways.\n")
    write_file(repo / folder / "routing.md", "# Routing\n\nAsk EECOM.\n")
    return repo


def write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def discover_team(repo: Path) -> Team:
    team = discover(repo)
    assert team is not None
    return team


def read_files(repo: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(repo)): path.read_bytes()
        for path in repo.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def member_names(team: Team) -> list[str]:
    return [member.name for member in team.members]


# --- reading


def test_a_squad_is_a_team(repo: Path) -> None:
    team = discover_team(repo)

    assert (team.name, team.mode, member_names(team)) == ("Mission Control", "reflect", ["Flight", "EECOM"])
    assert team.shared_context == "# Decisions\n\n## Use async\n\nAlways."
    assert team.routing_context == "# Routing\n\nAsk EECOM."
    assert team.source == repo / ".squad"
    assert team.notices == ()
    assert team.members[0] == Member("Flight", "Lead", CHARTER.strip(), "claude-opus-4.5", "✅ Active", False)
    assert team.members[1].prompt == "You are a core developer. You write code."


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_other_line_endings_read_the_same(tmp_path: Path, end: str) -> None:
    one, other = write_squad(tmp_path / "a" / "repo"), write_squad(tmp_path / "b" / "repo")
    for path in (other / ".squad").rglob("*.md"):
        lines = path.read_bytes().decode().split("\n")
        ends = [end, "\n"] if end == "\r\n" else [end]
        mixed = "".join(f"{line}{ends[place % len(ends)]}" for place, line in enumerate(lines))
        path.write_bytes(mixed.encode())

    assert structs.replace(discover_team(other), source=None) == structs.replace(discover_team(one), source=None)


def test_the_newer_folder_is_preferred_and_the_older_understood(tmp_path: Path) -> None:
    write_squad(tmp_path, ".ai-team", TEAM.replace("Mission Control", "Older"))

    assert discover_team(tmp_path).name == "Older"
    assert discover_team(tmp_path / ".ai-team").name == "Older"
    write_squad(tmp_path)
    assert discover_team(tmp_path).name == "Mission Control"


def test_without_folder_or_team_or_agents_there_is_no_team(tmp_path: Path) -> None:
    assert discover(tmp_path / "nowhere") is None
    write_file(tmp_path / ".squad/agents/x/charter.md", "You are x.")
    assert discover(tmp_path) is None
    write_file(tmp_path / ".squad/team.md", "# Team\n\n## Members\n\n| Name | Role |\n|---|---|\n| Scribe | Logger |\n")
    assert discover(tmp_path) is None


def test_without_a_list_the_members_are_those_with_charters(tmp_path: Path) -> None:
    write_file(tmp_path / ".squad/team.md", "# Team\n")
    write_file(tmp_path / ".squad/agents/tester/charter.md", "You are a tester of things. Test.")
    write_file(tmp_path / ".squad/agents/scribe/charter.md", "You log.")

    assert discover_team(tmp_path).members == (
        Member("tester", "tester of things", "You are a tester of things. Test."),
    )


@pytest.mark.parametrize(
    "text",
    [
        "# T\n\n## Team Roster\n\n| Name | Role | Charter | Status |\n|-|-|-|-|\n| a | A | x | Active |\n| b | B | | |",
        "# T\n\n## Roster\n\n| Name | Role | Charter | Status |\n|-|-|-|-|\n| a | A | x | Active |\n| b | B | | |",
        "# T\n\n## 👥 Team Members\n\n| Agent | Emoji | Role |\n|-|-|-|\n| a | 🔧 | A |\n| b | 🧪 | B |\n\nMore | text",
        "# T\n| Member | Role |\n|---|---|\n| a | A |\n| b | B |",
        "# T\n## Members\n| Name | Role | Charter |\n|---|---|\n| a | A | x |\n<!-- more -->\n| b | B | y |\nAll.",
        "# T\n## Roster\n| Name | Role |\n| a | A |\n| b | B |",
        "# T\n## Members\n### Core\n| Name | Role |\n|-|-|\n| a | A |\n\n### More\n| Role | Name |\n|-|-|\n| B | b |",
        "# T\n\n## 👥 Members\n| Name | Role |\n|:--|--:|\n| **a** | A |\n| Member | Role |\n|---|---|\n| `b` | B |\n",
        "# T\n```\n## Members\n|Name|Role|\n|-|-|\n|x|X|\n```\n## Members\n|Name|Role|\n|-|-|\n|a|A|\n|[b](b.md)|B|",
    ],
)
def test_rosters_of_every_form_are_read(text: str) -> None:
    team = parse_team(text)

    assert [(one.name, one.role) for one in team.members] == [("a", "A"), ("b", "B")]
    assert team.name == "T"


def test_the_roster_of_another_team_is_not_read_where_members_are_listed() -> None:
    text = "# T\n## Roster\n| Name | Role |\n|-|-|\n| x | X |\n## Members\n| Name | Role |\n|-|-|\n| a | A |\n"

    assert [one.name for one in parse_team(text).members] == ["a"]


def test_people_and_accounts_among_the_members_are_not_workers(repo: Path) -> None:
    rows = (
        "| @copilot | Coding Agent | — | Active |\n"
        "| Cody | Codes | — | 🤖 Coding Agent |\n"
        "| Ann | Owner | — | 👤 Human |\n"
    )
    write_squad(repo, team=TEAM.replace("| Scribe |", f"{rows}| Scribe |"))
    team = discover_team(repo)

    write(team, repo)

    assert member_names(team) == member_names(discover_team(repo)) == ["Flight", "EECOM"]
    assert rows in (repo / ".squad/team.md").read_text()


def test_an_unknown_layout_is_noticed_with_what_was_looked_for(repo: Path) -> None:
    write_file(repo / ".squad/team.md", "# T\n\n## The Crew\n\n- **Flight**: Lead\n- **EECOM**: Core Dev\n")

    team = discover_team(repo)

    assert member_names(team) == ["eecom", "flight"]
    assert team.notices == (
        ".squad/team.md lists no members: expected a table under ## Members, ## Team Members, ## Roster or "
        "## Team Roster, or one with the columns Name and Role; using the agents that have a charter",
    )


def test_an_unknown_layout_without_charters_is_no_team_and_gives_a_notice(tmp_path: Path) -> None:
    write_file(tmp_path / ".squad/team.md", "# T\n\n## The Crew\n\n- **Flight**: Lead\n")
    (tmp_path / ".squad/agents").mkdir()

    found = discover_with_notices(tmp_path)

    assert found.team is None
    assert found.notices[0].startswith(".squad/team.md lists no members: expected a table under ## Members, ")
    assert found.notices[0].endswith("; there are no agents with a charter")


def test_a_folder_without_agents_is_no_team_and_gives_a_notice(repo: Path) -> None:
    shutil.rmtree(repo / ".squad/agents")

    found = discover_with_notices(repo)

    assert (found.team, discover(repo)) == (None, None)
    assert found.notices == (
        ".squad has a team.md but no agents folder, so it is not a team; create .squad/agents/NAME/charter.md",
    )


def test_a_squad_without_agents_does_not_hide_the_older_folder(repo: Path) -> None:
    write_squad(repo, ".ai-team", TEAM.replace("Mission Control", "Older"))
    shutil.rmtree(repo / ".squad/agents")

    assert discover_team(repo).name == "Older"


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("mode: broadcast", "broadcast"),
        ("Mode: Sequential", "sequential"),
        ("**Mode:** orchestrator", "orchestrate"),
        ("- mode: `orchestrator-reflect`", "reflect"),
        ("mode: reflect", "reflect"),
        ("mode: discuss", "discuss"),
        ("mode: wild", "reflect"),
        ("", "reflect"),
    ],
)
def test_a_line_may_give_the_mode(line: str, mode: str) -> None:
    assert parse_team(f"# T\n{line}\n").mode == mode


def test_an_unknown_mode_is_noticed(tmp_path: Path) -> None:
    write_squad(tmp_path, team=TEAM.replace("> Failure", "mode: wild\n> Failure"))

    assert "wild" in discover_team(tmp_path).notices[0]


def test_a_long_charter_is_shortened_with_a_notice(repo: Path) -> None:
    write_file(repo / ".squad/agents/eecom/charter.md", "x" * 5000)
    write_file(repo / ".squad/decisions.md", "d" * 9000)

    team = discover_team(repo)

    assert (len(team.members[1].prompt), team.members[1].shortened) == (4000, True)
    assert len(team.shared_context) == 8000
    assert [notice.split()[0] for notice in team.notices] == [".squad/agents/eecom/charter.md", ".squad/decisions.md"]


def test_a_member_without_a_charter_is_a_generic_worker(repo: Path) -> None:
    (repo / ".squad/agents/eecom/charter.md").unlink()

    assert discover_team(repo).members[1] == Member("EECOM", "Core Dev", status="✅ Active")


def test_nothing_in_a_squad_makes_us_read_another_file(tmp_path: Path) -> None:
    write_file(tmp_path / "secret.md", "SECRET")
    rows = "| ../../secret | A | `../secret.md` | |\n| b | B | `../../secret.md` | |"
    write_file(
        tmp_path / "repo/.squad/team.md",
        f"# T\n\n## Members\n\n| Name | Role | Charter | Status |\n|-|-|-|-|\n{rows}\n",
    )
    (tmp_path / "repo/.squad/agents").mkdir()

    assert "SECRET" not in repr(discover_team(tmp_path / "repo"))


@pytest.mark.parametrize("link", ["agents/eecom/charter.md", "agents/eecom", "agents", "decisions.md"])
def test_a_link_out_of_the_repository_is_refused_with_a_notice(tmp_path: Path, link: str) -> None:
    repo = write_squad(tmp_path / "repo")
    outside = write_squad(tmp_path / "outside")
    write_file(outside / ".squad/agents/eecom/charter.md", "SECRET")
    write_file(outside / ".squad/decisions.md", "SECRET")
    (repo / ".squad" / link).rename(tmp_path / "away")
    (repo / ".squad" / link).symlink_to(outside / ".squad" / link)

    team = discover_team(repo)

    assert "SECRET" not in repr(team)
    assert link == "agents" or any("is outside the repository" in notice for notice in team.notices)


def test_a_squad_that_is_elsewhere_is_no_team_and_gives_a_notice(tmp_path: Path) -> None:
    write_squad(tmp_path / "outside")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/.squad").symlink_to(tmp_path / "outside/.squad")

    assert discover(tmp_path / "repo") is None
    assert "is outside the repository" in discover_with_notices(tmp_path / "repo").notices[0]
    with pytest.raises(Mistake, match="is outside the repository"):
        write(Team("T", members=(Member("a"),)), tmp_path / "repo")


def test_a_charter_gives_the_name_role_expertise_and_model() -> None:
    charter = parse_charter(CHARTER)

    assert (charter.name, charter.role) == ("Flight", "Lead")
    assert charter.expertise == ["Product vision", "architecture"]
    assert (charter.model_preference, charter.reasoning_effort) == ("claude-opus-4.5", "")
    assert parse_charter(f"{CHARTER}- **Reasoning Effort:** High (for code)\n").reasoning_effort == "high"
    assert (charter.prompt, charter.shortened) == (CHARTER.strip(), False)


@pytest.mark.parametrize(
    ("line", "models"),
    [
        ("- **Fallback:** claude-sonnet-4.5", ["claude-sonnet-4.5"]),
        (
            "- **Fallback:** `claude-sonnet-4.5` → `gpt-5.1`, openai:gpt-5-mini (cheap)",
            ["claude-sonnet-4.5", "gpt-5.1", "openai:gpt-5-mini"],
        ),
        ("Fallbacks: opus -> sonnet then haiku — in this order", ["opus", "sonnet", "haiku"]),
        ("- **Fallback model:** auto", []),
        ("- **Fallback:** Standard chain", []),
        ("- **Fallback:** Standard chain — the coordinator handles fallback automatically", []),
        ("- **Rationale:** opus, for code", []),
    ],
)
def test_a_charter_names_the_models_to_fall_back_to(line: str, models: list[str]) -> None:
    charter = parse_charter(f"# A\n\n## Model\n\n- **Preferred:** claude-opus-4.5\n{line}\n")

    assert (charter.model_preference, charter.fallbacks) == ("claude-opus-4.5", models)


def test_settings_of_a_charter_that_have_no_effect_are_noticed(repo: Path) -> None:
    write_file(
        repo / ".squad/agents/eecom/charter.md",
        "You code.\n\n## Model\n\n- Preferred: auto\n- Reasoning Effort: High\n- Fallback: whatever is cheap\n",
    )

    assert discover_team(repo).notices == (
        ".squad/agents/eecom/charter.md asks for the reasoning effort high, which has no effect; "
        "the provider's default is used",
        '.squad/agents/eecom/charter.md has the fallback "whatever is cheap", which lists no model and has no effect; '
        "use model names, separated by commas",
    )


def test_expertise_may_be_a_section_of_its_own() -> None:
    assert parse_charter("# A\n\n## Expertise\n\n- **React**\n- CSS, layouts\n\n## Style\n\n- terse\n").expertise == [
        "React",
        "CSS",
        "layouts",
    ]


@pytest.mark.parametrize("section", ["Preferred: auto", "- **Preferred:** `auto`", "auto"])
def test_auto_is_the_default_model(repo: Path, section: str) -> None:
    write_file(repo / ".squad/agents/eecom/charter.md", f"You are a dev.\n\n## Model\n\n{section}\n")

    assert discover_team(repo).members[1].model == ""
    assert parse_charter(f"## Model\n{section}").model_preference == "auto"


@pytest.mark.parametrize("title", ["## Routing Table", "## Work Type → Agent", "## Work Type -> Agent"])
def test_routes_are_read_under_both_headings(title: str) -> None:
    text = (
        f"# R\n\n{title}\n\n| Work Type | Route To | Examples |\n|--|--|--|\n"
        '| Bugs | A, `B` | "crash, again", broken |\n|  |  |  |\n| Docs | C | — |\n\n'
        "## Other\n| x | y | z |\n|-|-|-|\n| 1 | 2 | 3 |"
    )

    assert parse_routing(text) == [Route("Bugs", ["A", "B"], ["crash, again", "broken"]), Route("Docs", ["C"], [])]


def test_an_emoji_beside_a_name_in_a_routing_is_not_part_of_the_name() -> None:
    text = (
        "## Routing Table\n| Work Type | Route To | Examples |\n|--|--|--|\n"
        "| Build 🏗️ | Ada 🔧, ⚛️ **Steve Rogers** | `🔧 fix` |\n"
        "## Module Ownership\n| Module | Primary | Secondary |\n|-|-|-|\n| src/ | Ada 🔧 | 👩🏽\u200d🔧 Grace |\n"
    )

    assert parse_routing(text) == [Route("Build 🏗️", ["Ada", "Steve Rogers"], ["🔧 fix"])]
    assert parse_modules(text) == [Ownership("src/", "Ada", "Grace")]


def test_modules_have_owners() -> None:
    rows = "| `SRC\\Core` | A | — |\r\n| docs/ | B | C |"
    text = f"## Module Ownership\r\n| Module | Primary | Secondary |\r\n|-|-|-|\r\n{rows}"

    assert parse_modules(text) == [Ownership("src/core", "A", None), Ownership("docs/", "B", "C")]


def test_decisions_have_headings_of_two_levels() -> None:
    text = (
        "# Decisions\nintro\n## Use async\n**Date:** 2026-01-02\n**Author:** Ann\nAlways.\n"
        "### 2026-02-03: Split it\n**By:** Bob\n\n```\n## no heading\n```\n# Archive\nold\n"
    )

    assert parse_decisions(text) == [
        Noted("Use async", 2, "2026-01-02", "Ann", "**Date:** 2026-01-02\n**Author:** Ann\nAlways."),
        Noted("Split it", 3, "2026-02-03", "Bob", "**By:** Bob\n\n```\n## no heading\n```"),
    ]


def test_names_are_slugs_without_their_teams() -> None:
    assert slug("  Fact Checker! ") == "fact-checker"
    assert agent_name("Code Review Team-worker-1", "Code Review Team") == "worker-1"
    assert agent_name("CODE REVIEW TEAM", "Code Review Team") == "agent"
    assert agent_name("Teamster", "Team") == "teamster"
    assert agent_name("日本", "") == "agent"


def test_a_role_is_how_the_prompt_begins() -> None:
    assert derive_role("x", "You are a security expert. Look.") == "security expert"
    assert derive_role("x", "you are THE boss") == "boss"
    assert len(derive_role("x", "You are an " + "very " * 50)) <= 60


@pytest.mark.parametrize("prompt", [None, "", " \n", "## "])
def test_the_role_of_a_worker_without_a_prompt_is_its_name_in_words(prompt: str | None) -> None:
    assert derive_role("x", prompt) == "x"
    assert derive_role("code-reviewer_2", prompt) == "code reviewer 2"


texts = st.one_of(
    st.text(),
    st.lists(
        st.one_of(
            st.sampled_from(
                ["#", "## Members", "## Model", "\n", "\r\n", "|", "---", " ", "mode:", "Name", "Role", "<!--", "```"]
            ),
            st.sampled_from(
                ["## Routing Table", "## Module Ownership", "### 2026-01-01: x", "-->", "Preferred:", "\\|", "—"]
            ),
            st.text(max_size=3),
        ),
        max_size=30,
    ).map("".join),
)


@given(texts)
def test_any_text_can_be_read(text: str) -> None:
    parse_team(text)
    assert len(parse_charter(text).prompt) <= 4000
    parse_routing(text)
    parse_modules(text)
    parse_decisions(text)
    agent_name(text, text[:3])
    assert len(derive_role("n", text)) <= 60


@pytest.mark.parametrize("piece", ["|", "| a ", "#", " ", "-", "`", "by: x ", "a ", "|-|\n", "# x - ", "[a](", "\\|"])
@pytest.mark.parametrize(
    "before",
    ["", "## Members\n| a", "## Model\nPreferred: a", "## Model\nFallback: a", "## Routing Table\n| a", "## by: "],
)
def test_a_long_file_is_read_in_time(piece: str, before: str) -> None:
    text = f"{before}{piece * (100_000 // len(piece))}y"
    began = time.perf_counter()

    for read in (parse_team, parse_charter, parse_routing, parse_modules, parse_decisions):
        read(text)

    assert time.perf_counter() - began < 10


# --- writing


def test_a_folder_that_had_no_agents_is_a_team_once_it_is_saved(tmp_path: Path) -> None:
    write_file(tmp_path / ".squad/team.md", "# T\n\n## Members\n\n| Name | Role |\n|-|-|\n| 日本 | A |\n")

    write(Team("T", members=(Member("日本", "A"),)), tmp_path)

    assert member_names(discover_team(tmp_path)) == ["日本"]


@pytest.mark.parametrize("title", ["Roster", "Team Members", "Team Roster"])
def test_a_saved_roster_is_under_the_usual_heading(repo: Path, title: str) -> None:
    write_squad(repo, team=TEAM.replace("## Members", f"## {title}"))
    team = discover_team(repo)

    write(structs.replace(team, members=team.members[:1]), repo)

    text = (repo / ".squad/team.md").read_text()
    assert "## Members" in text
    assert f"## {title}" not in text
    assert member_names(discover_team(repo)) == ["Flight"]


def test_a_new_team_is_written_as_others_read_it(tmp_path: Path) -> None:
    workers = (
        Member("Review Team-worker-1", prompt="You are a security expert. Look closely."),
        Member("Review Team"),
        Member("Worker 1!", "Tester | Breaker", "Test."),
        Member("scribe"),
    )

    folder = write(Team("Review Team", "orchestrate", workers, "Know this.", ""), tmp_path)

    assert folder == tmp_path / ".squad"
    assert (folder / "team.md").read_text() == (
        "# Review Team\n\nmode: orchestrator\n\n## Members\n\n"
        "| Name | Role | Charter | Status |\n|------|------|---------|--------|\n"
        "| worker-1 | security expert | `.squad/agents/worker-1/charter.md` | Active |\n"
        "| agent | agent | `.squad/agents/agent/charter.md` | Active |\n"
        "| worker-1-2 | Tester \\| Breaker | `.squad/agents/worker-1-2/charter.md` | Active |\n"
        "| scribe-2 | scribe 2 | `.squad/agents/scribe-2/charter.md` | Active |\n"
    )
    assert (folder / "agents/worker-1/charter.md").read_text() == "You are a security expert. Look closely.\n"
    assert "agent" in (folder / "agents/agent/charter.md").read_text()
    assert (folder / "decisions.md").read_text() == "Know this.\n"
    assert not (folder / "routing.md").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".squad"]
    team = discover_team(tmp_path)
    assert member_names(team) == ["worker-1", "agent", "worker-1-2", "scribe-2"]
    assert [one.prompt for one in team.members] == ["You are a security expert. Look closely.", "", "Test.", ""]
    assert (team.mode, team.shared_context) == ("orchestrate", "Know this.")


def test_saving_what_was_found_changes_no_byte(repo: Path) -> None:
    before = read_files(repo)

    write(discover_team(repo), repo)

    assert read_files(repo) == before


def test_nothing_shortened_is_written_back_even_when_other_things_change(repo: Path) -> None:
    long = write_file(repo / ".squad/agents/eecom/charter.md", "x" * 5000)
    decisions = write_file(repo / ".squad/decisions.md", "d" * 9000)
    team = discover_team(repo)
    members = (structs.replace(team.members[0], prompt="New."), structs.replace(team.members[1], role="Other"))

    write(structs.replace(team, members=members), repo)

    assert long.read_text() == "x" * 5000
    assert decisions.read_text() == "d" * 9000
    assert [one.role for one in discover_team(repo).members] == ["Lead", "Other"]
    long.write_text("y" * 5000)
    write(team, repo)
    assert long.read_text() == "y" * 5000


def test_a_model_for_a_long_charter_leaves_its_text_whole(repo: Path) -> None:
    long = write_file(repo / ".squad/agents/eecom/charter.md", "x" * 5000)
    team = discover_team(repo)
    changed = structs.replace(
        team, members=(team.members[0], structs.replace(team.members[1], model="anthropic:claude-sonnet-4-5"))
    )

    write(changed, repo)

    assert long.read_text().startswith("x" * 5000)
    assert discover_team(repo) == changed


def test_a_charter_that_cannot_be_read_is_left_alone(repo: Path) -> None:
    path = repo / ".squad/agents/eecom/charter.md"
    path.write_bytes(b"\xff\xfe\x00binary")

    write(discover_team(repo), repo)

    assert path.read_bytes() == b"\xff\xfe\x00binary"


def test_removed_members_move_to_the_alumni_and_everything_unknown_stays(repo: Path) -> None:
    write_file(repo / ".squad/agents/_alumni/flight/charter.md", "an earlier one")
    before = read_files(repo)
    team = discover_team(repo)

    write(structs.replace(team, members=(team.members[1], Member("tester", "Tester", "You test."))), repo)

    after = read_files(repo)
    assert member_names(discover_team(repo)) == ["EECOM", "tester"]
    moved = ".squad/agents/_alumni/flight-2/"
    assert after[f"{moved}charter.md"] == before[".squad/agents/flight/charter.md"]
    assert after[f"{moved}history.md"] == before[".squad/agents/flight/history.md"]
    kept = {path for path in before if not path.startswith(".squad/agents/flight/") and path != ".squad/team.md"}
    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}
    text = after[".squad/team.md"].decode()
    assert "| Scribe | Session Logger |" in text
    assert text.partition("## Members")[0] == TEAM.partition("## Members")[0]
    assert text.partition("## Coding Agent")[2] == TEAM.partition("## Coding Agent")[2]


def test_an_older_squad_is_saved_as_a_newer_one_and_stays(tmp_path: Path) -> None:
    write_squad(
        tmp_path, ".ai-team", "# Old\n| Member | Role |\n|---|---|\n| flight | Lead |\n| eecom | Dev |\n\nSome words.\n"
    )
    write_file(tmp_path / ".ai-team/agents/eecom/charter.md", "x" * 5000)
    before = read_files(tmp_path)
    team = discover_team(tmp_path)

    write(team, tmp_path)

    after = read_files(tmp_path)
    assert {path: after[path] for path in before} == before
    assert structs.replace(discover_team(tmp_path), source=team.source, notices=team.notices) == team
    assert after[".squad/agents/eecom/charter.md"] == b"x" * 5000
    assert after[".squad/skills/x/SKILL.md"] == b"a skill"
    text = after[".squad/team.md"].decode()
    assert "## Members\n\n| Name | Role | Charter | Status |\n" in text
    assert text.endswith("\nSome words.\n")


def test_a_long_text_goes_whole_to_another_repository(repo: Path, tmp_path: Path) -> None:
    write_file(repo / ".squad/agents/eecom/charter.md", "x" * 5000)
    write_file(repo / ".squad/routing.md", "r" * 9000)
    (tmp_path / "other").mkdir()

    write(discover_team(repo), tmp_path / "other")

    assert (tmp_path / "other/.squad/agents/eecom/charter.md").read_text() == "x" * 5000 + "\n"
    assert (tmp_path / "other/.squad/routing.md").read_text() == "r" * 9000 + "\n"


def test_a_team_from_elsewhere_does_not_empty_what_it_does_not_know(repo: Path) -> None:
    write(Team("Mission Control", members=(Member("Flight"),)), repo)

    assert "Use async" in discover_team(repo).shared_context
    write(structs.replace(discover_team(repo), shared_context=""), repo)
    assert discover_team(repo).shared_context == ""


def test_crlf_stays_crlf(repo: Path) -> None:
    write_file(repo / ".squad/team.md", TEAM.replace("\n", "\r\n"))
    team = discover_team(repo)

    write(structs.replace(team, members=(*team.members, Member("tester", "Tester", "You test."))), repo)

    assert (repo / ".squad/team.md").read_bytes().replace(b"\r\n", b"").count(b"\n") == 0
    assert member_names(discover_team(repo)) == ["Flight", "EECOM", "tester"]


def test_nothing_is_written_through_a_link(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (repo / ".squad/agents/eecom").rename(tmp_path / "away")
    (repo / ".squad/agents/eecom").symlink_to(tmp_path / "outside")
    before = read_files(repo)
    team = discover_team(repo)

    with pytest.raises(Mistake, match="is a link"):
        write(structs.replace(team, members=(structs.replace(team.members[1], prompt="New."),)), repo)

    assert read_files(repo) == before
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_team_without_members_is_not_saved(repo: Path) -> None:
    with pytest.raises(Mistake, match="no members"):
        write(Team("Empty"), repo)


def test_links_pipes_and_modes_in_a_squad_survive(repo: Path) -> None:
    os.mkfifo(repo / ".squad/pipe")
    (repo / ".squad/link").symlink_to("skills")
    (repo / ".squad/skills").chmod(0o750)
    (repo / ".squad/team.md").chmod(0o640)

    write(structs.replace(discover_team(repo), name="Other"), repo)

    assert (repo / ".squad/pipe").is_fifo()
    assert (repo / ".squad/link").readlink() == Path("skills")
    assert (repo / ".squad/skills").stat().st_mode & 0o777 == 0o750
    assert (repo / ".squad/team.md").stat().st_mode & 0o777 == 0o640


lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n`*[]"), max_size=20)
roles = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
    lambda text: bool(text.strip(" \0\ufeff"))
)
models = st.sampled_from(["", "opus", "anthropic:claude-sonnet-4-5"])
members = st.builds(
    Member,
    st.sampled_from(["tester", "builder", "a-b", "x1", "Flight", "EECOM", "writer"]),
    roles.map(lambda role: f"r{role}"),
    st.one_of(st.text(st.characters(codec="utf-8"), max_size=50), st.just(CHARTER)),
    models,
)
teams = st.builds(
    Team,
    lines.map(lambda name: f"T{name}"),
    st.sampled_from(["broadcast", "sequential", "orchestrate", "reflect", "discuss", "collaborate"]),
    st.lists(members, min_size=1, max_size=5, unique_by=lambda one: one.name.lower()).map(tuple),
    st.text(st.characters(codec="utf-8"), max_size=50),
    st.text(st.characters(codec="utf-8"), max_size=50),
)


def written_name(member: Member, before: Iterator[str]) -> str:
    return member.name if member.name in before else slug(member.name)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(teams, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_what_is_discovered_changed_and_saved_is_discovered_again(
    changes: list[Team], is_old: bool, is_crlf: bool
) -> None:
    with TemporaryDirectory() as name:
        repo = write_squad(
            Path(name), ".ai-team" if is_old else ".squad", TEAM.replace("\n", "\r\n") if is_crlf else TEAM
        )
        unknown = {
            path: data for path, data in read_files(repo / ("." if is_old else ".squad")).items() if "x/" in path
        }
        for change in changes:
            now = discover_team(repo)
            listed = member_names(now)
            kept = tuple(structs.replace(one, name=written_name(one, iter(listed))) for one in change.members)
            changed = structs.replace(change, members=kept, source=repo / ".squad", notices=())

            write(structs.replace(changed, source=now.source), repo)

            assert discover_team(repo) == changed
            assert discover_team(repo / ".squad") == changed
            write(changed, repo)
            assert discover_team(repo) == changed
        after = read_files(repo if is_old else repo / ".squad")
        assert {path: after[path] for path in unknown} == unknown
        assert b"what flight learned" in after.values()


def test_only_a_squad_of_the_repository_is_deleted(repo: Path, tmp_path: Path) -> None:
    team = discover_team(repo)
    (tmp_path / "other").mkdir()
    (repo / "squad").mkdir()

    for wrong in (structs.replace(team, source=None), structs.replace(team, source=repo / "squad")):
        with pytest.raises(Mistake, match="only teams stored there can be deleted"):
            delete(wrong, repo)
    with pytest.raises(Mistake, match="only teams stored there can be deleted"):
        delete(team, tmp_path / "other")
    delete(team, repo)

    assert discover(repo) is None
    assert [path.name for path in repo.iterdir()] == ["squad"]


# --- crashes

DRIVER = """
import json, os, shutil, signal, sys
from pathlib import Path
from msgspec import structs
from podium.files.squad import Member, discover, write

WATCHED = ("open", "os.", "shutil.", "ctypes.")
repo, copy = Path(sys.argv[1]), Path(sys.argv[2])
old = discover(repo)
new = structs.replace(old, name="New", members=(old.members[1], Member("tester", "Tester", "You test.")))

def state():
    team = discover(repo)
    kind = "old" if team == old else "new" if (team.name, len(team.members)) == ("New", 2) else "broken"
    texts = sorted(p.read_text() for p in repo.rglob("*.md") if ".saving" not in str(p))
    return [kind, sum("what flight learned" in one for one in texts), sum(one == "a skill" for one in texts)]

def attempt(limit):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        if event.startswith(WATCHED):
            seen += 1
            if seen == limit:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    write(new, repo)
    os._exit(0)

found, limit = [], 0
while True:
    limit += 1
    child = os.fork()
    if child == 0:
        attempt(limit)
    _, status = os.waitpid(child, 0)
    found.append(state())
    if not os.WIFSIGNALED(status):
        break
    if found[-1][0] == "new":
        write(new, repo)
        assert not list(repo.glob(".squad.*"))
        shutil.rmtree(repo / ".squad")
        shutil.copytree(copy / ".squad", repo / ".squad")
print(json.dumps([found, state(), sorted(p.name for p in repo.iterdir())]))
"""


@pytest.mark.slow
def test_a_crash_leaves_the_old_folder_or_the_new(tmp_path: Path) -> None:
    repo, copy = write_squad(tmp_path / "repo"), write_squad(tmp_path / "copy")

    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(repo), str(copy)], capture_output=True, check=True, text=True
    )

    states, last, left = json.loads(done.stdout)
    assert len(states) > 50
    assert {state[0] for state in states} == {"old", "new"}
    assert all(state[1:] == [1, 1] for state in states)
    assert (last[0], left) == ("new", [".squad"])


def test_a_save_cut_short_between_two_renames_is_found_and_finished(repo: Path) -> None:
    before = discover_team(repo)
    (repo / ".squad").rename(repo / ".squad.before")

    assert discover_team(repo) == before
    write(structs.replace(before, name="New"), repo)
    assert discover_team(repo).name == "New"
    assert sorted(path.name for path in repo.iterdir()) == [".squad"]


def test_a_save_that_fails_leaves_the_old_folder(repo: Path) -> None:
    before = read_files(repo)

    with pytest.raises(Mistake, match="1 MiB"):
        write(Team("T", members=(Member("a", prompt="x"), Member("b", prompt="x" * 2_000_000))), repo)

    assert read_files(repo) == before
