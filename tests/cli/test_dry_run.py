"""`podium run --dry-run`: what the real run would use and cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podium.engines.model.model_prices import calculate_cost
from podium.values.usage import Usage

from .conftest import Desk

MINI = "openai:gpt-5-mini"
HAIKU = "anthropic:claude-haiku-5-5"


def estimate_run(desk: Desk, *arguments: str) -> dict[str, Any]:
    said = desk.invoke("run", *arguments, "--dry-run", "--json")
    assert said.exit_code == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)["estimate"]
    return found


def price_tokens(model: str, fields: dict[str, Any]) -> float:
    """Return the price of the tokens of an estimate."""
    provider, _, name = model.partition(":")
    usage = Usage(calls=1, input_tokens=fields["input_tokens"], output_tokens=fields["output_tokens"])
    usd = calculate_cost(provider, name, usage)
    assert usd is not None
    return usd


def test_the_cost_is_estimated_with_the_model_of_the_real_run(desk: Desk) -> None:
    found = estimate_run(desk, "broadcast-compare", "Tabs or spaces?", "--model", MINI)

    assert (found["calls"], [one["model"] for one in found["models"]]) == (3, [MINI])
    assert found["input_tokens"] > 1000 > found["output_tokens"] > 0
    assert found["usd"] == pytest.approx(price_tokens(MINI, found))


def test_each_agent_is_priced_with_its_own_model(desk: Desk) -> None:
    members = ["plain", "own", {"agent": "plain", "name": "other", "model": HAIKU}]
    desk.write_agent("lead", engine="model", team={"mode": "broadcast", "members": members})
    desk.write_agent("plain", engine="model")
    desk.write_agent("own", engine="model", model="fast")
    (desk.home / "config.yaml").write_text(f"models:\n  fast: {{model: {HAIKU}}}\n", encoding="utf-8")

    found = estimate_run(desk, "lead", "do it", "--model", MINI)
    forced = estimate_run(desk, "lead", "do it", "--force-model", "openai:gpt-5")

    assert {one["model"]: one["calls"] for one in found["models"]} == {MINI: 1, HAIKU: 2}
    assert [one["usd"] for one in found["models"]] == [
        pytest.approx(price_tokens(one["model"], one)) for one in found["models"]
    ]
    assert found["usd"] == pytest.approx(sum(one["usd"] for one in found["models"]))
    assert [(one["model"], one["calls"]) for one in forced["models"]] == [("openai:gpt-5", 3)]


def test_agents_that_are_never_sent_to_a_model_cost_nothing(desk: Desk) -> None:
    members = ["scripted", "rehearsed", "simulated", "real"]
    desk.write_agent("lead", engine="model", team={"mode": "broadcast", "members": members})
    desk.write_agent("scripted", "ready")
    desk.write_agent("rehearsed", engine="rehearsal")
    desk.write_agent("simulated", engine="model", model="rehearsal")
    desk.write_agent("real", engine="model")

    found = estimate_run(desk, "lead", "do it", "--model", MINI)

    assert found["calls"] == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--model", MINI], f" with {MINI}; estimated from"),
        (["--model", "openai:no-such-model"], "; the price of openai:no-such-model is not known; estimated from"),
        (["--provider", "ollama"], ", no cost for ollama:any; estimated from"),
        ([], "; no model is configured, so the cost is not known; estimated from"),
    ],
)
def test_the_last_line_says_what_the_real_run_would_cost(desk: Desk, options: list[str], sentence: str) -> None:
    said = desk.invoke("run", "answer", "Tabs or spaces?", "--dry-run", "--quiet", *options)

    [line] = said.stderr.splitlines()
    assert line.startswith("dry run: 1 model call and about ")
    assert sentence in line
    assert ("about $" in line) is (MINI in options)
    assert line.endswith("no model was called")


def test_several_models_are_listed_with_their_share(desk: Desk) -> None:
    desk.write_agent("lead", engine="model", team={"mode": "broadcast", "members": ["one", "two"]})
    desk.write_agent("one", engine="model", model=MINI)
    desk.write_agent("two", engine="model", model="openai:no-such-model")

    said = desk.invoke("run", "lead", "do it", "--dry-run", "--quiet", "--model", HAIKU)
    both = desk.invoke("run", "lead", "do it", "--dry-run", "--quiet", "--reflect", "--max", "1", "--model", HAIKU)
    bare = desk.invoke("run", "lead", "do it", "--dry-run", "--quiet", "--reflect", "--max", "1")

    assert f" with {MINI}, and the price of openai:no-such-model is not known; " in said.stderr
    assert "the price of the default model (not set) and openai:no-such-model is not known; " in bare.stderr
    assert f" with {HAIKU}, " in both.stderr
    assert f" with {MINI}), and the price of openai:no-such-model is not known; " in both.stderr


@pytest.mark.parametrize(
    "options", [["--model", "nowhere:x"], ["--model", MINI, "--force-model", MINI], ["--provider", "nowhere"]]
)
def test_options_that_a_run_refuses_are_refused_for_a_dry_run(desk: Desk, options: list[str]) -> None:
    said = desk.invoke("run", "answer", "Tabs or spaces?", "--dry-run", *options)

    assert said.exit_code == 2
    assert not desk.store.exists()


def test_the_votes_of_a_collaborating_team_are_part_of_the_estimate(desk: Desk) -> None:
    found = estimate_run(desk, "plan-build-review", "Add a --version option.", "--model", MINI)

    assert found["calls"] == 16  # 4 for the plan, 4 turns of owners, 4 votes, 3 reviews of steps and the report
