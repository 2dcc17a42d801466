from __future__ import annotations

import pytest

from podium.files.model_role import ModelChoice, Role, resolve_models
from podium.values.errors import Mistake

ROLES = {
    "fast": Role(model="groq:llama", fallbacks=("openai:gpt-5-mini",)),
    "tests": Role(model="fast", fallbacks=("sonnet", "groq:llama")),
}


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("anthropic:claude", ModelChoice(models=("anthropic:claude",))),
        (" sonnet ", ModelChoice(models=("sonnet",))),
        ("fast", ModelChoice(models=("groq:llama", "openai:gpt-5-mini"), role="fast")),
        ("tests", ModelChoice(models=("groq:llama", "openai:gpt-5-mini", "sonnet"), role="tests")),
    ],
)
def test_a_role_is_its_model_and_then_its_fallbacks(text: str, choice: ModelChoice) -> None:
    assert resolve_models(text, ROLES) == choice


def test_roles_that_lead_back_to_themselves_are_a_mistake() -> None:
    roles = {"a": Role(model="b"), "b": Role(model="openai", fallbacks=("a",))}

    with pytest.raises(
        Mistake, match=r"the role a refers to itself \(a -> b -> a\); one of these roles must name a model"
    ):
        resolve_models("a", roles)


def test_roles_that_share_roles_stay_a_short_list() -> None:
    roles = {f"r{place}": Role(model=f"r{place + 1}", fallbacks=(f"r{place + 1}",)) for place in range(60)}

    assert resolve_models("r0", roles).models == ("r60",)
