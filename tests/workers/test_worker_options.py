"""Worker options: roles, models, budgets, and rules that are agreed on in advance."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from podium import Agent, Settings
from podium.core.placement import WorkerOptions
from podium.files.model_role import ROLES, Role
from podium.values.agent import Budget
from podium.values.errors import Mistake
from podium.values.event import PermissionAnswered, PermissionAsked
from podium.workers.worker_options import apply_options_to_agent, apply_options_to_settings

from .worker_lab import WorkerLab, bash, make_scripted_agent, write

AGENT = Agent(name="worker", prompt="Work.", isolation="process")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    deep = Role(model="openai:m", prompt="Think.", budget=Budget(usd=2), rules=("Bash(make *)",))
    return Settings.load({"PODIUM_HOME": str(tmp_path)}, models={"deep": deep})


def test_a_role_of_the_settings_sets_model_and_budget_and_adds_its_prompt_once(settings: Settings) -> None:
    worker = apply_options_to_agent(WorkerOptions(role="deep"), AGENT, settings)

    assert (worker.model, worker.isolation, worker.budget) == ("deep", "shared", Budget(usd=2))
    assert settings.build_system_prompt(worker) == "Work.\n\nThink."


def test_another_model_keeps_all_else_of_a_role(settings: Settings) -> None:
    options = WorkerOptions(role="deep", model="openai:small")

    worker = apply_options_to_agent(options, AGENT, settings)

    assert (worker.model, worker.budget) == ("openai:small", Budget(usd=2))
    assert settings.build_system_prompt(worker) == "Work.\n\nThink."
    assert apply_options_to_settings(options, settings).permissions.allow == ("Bash(make *)",)


def test_options_of_a_worker_take_precedence_over_its_role(settings: Settings) -> None:
    agent = structs.replace(AGENT, budget=Budget(files_changed=0, turns=9))

    worker = apply_options_to_agent(WorkerOptions(role="deep", budget=Budget(turns=3), timeout=9.0), agent, settings)

    assert worker.budget == Budget(usd=2, turns=3, seconds=9.0, files_changed=0)


def test_a_reader_is_in_plan_mode_with_its_whole_team(settings: Settings) -> None:
    assert apply_options_to_settings(WorkerOptions(is_reader=True), settings).permission_mode == "plan"
    assert apply_options_to_settings(WorkerOptions(), settings).permission_mode != "plan"


@pytest.mark.parametrize("name", ROLES)
def test_built_in_roles_do_not_allow_commands(settings: Settings, name: str) -> None:
    allowed = apply_options_to_settings(WorkerOptions(role=name, approved=("WebFetch",)), settings).permissions.allow

    assert allowed == ("WebFetch", "Edit", "Write", "run_checks")
    assert apply_options_to_agent(WorkerOptions(role=name), AGENT, settings).model == ""


def test_an_unknown_role_or_an_invalid_rule_is_refused(settings: Settings) -> None:
    with pytest.raises(Mistake, match="role 'fast' not found; available: deep, complex-feature"):
        apply_options_to_agent(WorkerOptions(role="fast"), AGENT, settings)
    with pytest.raises(Mistake, match="Bash\\("):
        apply_options_to_settings(WorkerOptions(approved=("Bash(",)), settings)


def test_rules_that_a_repository_allows_for_a_role_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "podium.yaml").write_text("models:\n  deep: {model: 'openai:m', rules: [Bash]}\n")

    settings = Settings.load({"PODIUM_HOME": str(tmp_path / "home")}, repo=tmp_path)

    assert settings.models["deep"].rules == ()
    [notice] = settings.notices
    assert notice.startswith("podium.yaml:2: models.deep.rules: ignored: ")


async def test_a_worker_in_a_role_does_what_that_allows_and_asks_for_the_rest(lab: WorkerLab) -> None:
    lab.write_agent(make_scripted_agent(write("one.txt"), bash("touch two.txt"), "done"))

    done = await lab.run_podium("delegate", "feat/one", "go", "--agent", "hand", "--role", "simple-fix")

    run = done.stdout.strip()
    asked = await lab.wait_asked(run)
    assert asked.action.tool == "bash"
    lab.answer(run, asked, "once")
    assert (await lab.wait_ended(run)).outcome == "succeeded"
    assert len(lab.events(run, PermissionAsked)) == 1


async def test_with_no_input_the_requests_of_a_worker_are_denied_at_once(lab: WorkerLab) -> None:
    lab.write_agent(make_scripted_agent(bash("touch two.txt"), "done without"))

    done = await lab.run_podium("delegate", "feat/one", "go", "--agent", "hand", "--no-input")

    run = done.stdout.strip()
    assert (await lab.wait_ended(run)).outcome == "succeeded"
    [answered] = lab.events(run, PermissionAnswered)
    assert (answered.decision, answered.channel) == ("deny", "unattended")


@pytest.mark.parametrize("model", ["small:7b", "openai:small:7b"])
async def test_the_provider_option_works_with_a_model_name_that_contains_a_colon(lab: WorkerLab, model: str) -> None:
    lab.write_agent(make_scripted_agent("done"))

    done = await lab.run_podium(
        "delegate", "feat/one", "go", "--agent", "hand", "--provider", "openai", "--model", model
    )

    assert (await lab.wait_ended(done.stdout.strip())).outcome == "succeeded"
    assert [received.call.agent for received in lab.server.calls] == ["small:7b"]
