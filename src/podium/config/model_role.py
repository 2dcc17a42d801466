"""A role: a name for what agents think with, and what comes with it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..values.agent import Budget
from ..values.errors import Mistake


class Role(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What agents of a role think with: a model, or another role.

    `fallbacks` are tried in order where the model cannot answer. `prompt` is text for the prompts of
    its agents. `rules` is what a worker that is hired for the role may do without asking.
    """

    model: str
    fallbacks: tuple[str, ...] = ()
    budget: Budget | None = None
    prompt: str = ""
    rules: tuple[str, ...] = ()


class ModelChoice(Struct, frozen=True, kw_only=True):
    """The models to ask, the first one first; `role` is empty where a model was named itself."""

    models: tuple[str, ...]
    role: str = ""


def resolve_models(text: str, models: Mapping[str, Role]) -> ModelChoice:
    """What is meant by the name of a role, or by any other text, which stands for itself.

    A role may name roles, in its fallbacks too. Raises Mistake where they lead back to themselves.
    """
    name = text.strip()
    if name not in models:
        return ModelChoice(models=(name,))
    found: dict[str, None] = {}
    done: set[str] = set()

    def collect_models(word: str, way: tuple[str, ...]) -> None:
        if word not in models:
            found[word] = None
            return
        if word in way:
            path = " -> ".join((*way[way.index(word) :], word))
            raise Mistake(f"the role {word} leads back to itself ({path}); one of them has to name a model")
        # What a role stands for is in the list once, so that roles that share roles stay a short list.
        if word in done:
            return
        for named in (models[word].model, *models[word].fallbacks):
            collect_models(named, (*way, word))
        done.add(word)

    collect_models(name, ())
    return ModelChoice(models=tuple(found), role=name)


IN_ITS_CHECKOUT = ("Edit", "Write", "run_checks")
"""What a worker may do in the roles that come along: change files of its own checkout, and check them."""

ROLES: Mapping[str, Role] = {
    "complex-feature": Role(
        model="",
        prompt="The task is large. Read widely before you begin, plan in small steps, and check each before the next.",
        rules=IN_ITS_CHECKOUT,
    ),
    "simple-fix": Role(
        model="",
        budget=Budget(turns=40),
        prompt="The task is small. Change as little as possible, and add a test that would have failed before.",
        rules=IN_ITS_CHECKOUT,
    ),
    "tests": Role(
        model="",
        prompt="The task is to write tests. Change no code but tests; where the code is wrong, say so in your report.",
        rules=IN_ITS_CHECKOUT,
    ),
}
"""Roles that workers may have where the settings say nothing of them; they think with the default model."""
