from __future__ import annotations

import pytest

from podium.config.model_role import Choice, Role, resolved
from podium.values.errors import Mistake

ROLES = {
    "fast": Role(model="groq:llama", fallbacks=("openai:gpt-5-mini",)),
    "tests": Role(model="fast", fallbacks=("sonnet", "groq:llama")),
}


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("anthropic:claude", Choice(models=("anthropic:claude",))),
        (" sonnet ", Choice(models=("sonnet",))),
        ("fast", Choice(models=("groq:llama", "openai:gpt-5-mini"), role="fast")),
        ("tests", Choice(models=("groq:llama", "openai:gpt-5-mini", "sonnet"), role="tests")),
    ],
)
def test_a_role_is_its_model_and_then_its_fallbacks(text: str, choice: Choice) -> None:
    assert resolved(text, ROLES) == choice


def test_roles_that_lead_back_to_themselves_are_a_mistake() -> None:
    roles = {"a": Role(model="b"), "b": Role(model="openai", fallbacks=("a",))}

    with pytest.raises(Mistake, match=r"the role a leads back to itself \(a -> b -> a\); one of them has to name a"):
        resolved("a", roles)


def test_roles_that_share_roles_stay_a_short_list() -> None:
    roles = {f"r{place}": Role(model=f"r{place + 1}", fallbacks=(f"r{place + 1}",)) for place in range(60)}

    assert resolved("r0", roles).models == ("r60",)
