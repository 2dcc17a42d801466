"""Define roles and resolve them to models. A role names a model with its fallbacks, budget, prompt and rules."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Struct

from ..values.agent import Budget
from ..values.errors import Mistake
from ..values.key import Key


class Role(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model role. `model` is the name of a model or of another role; empty means the default model.

    The models in `fallbacks` are tried in order if the model cannot answer. `prompt` is added to the prompts of
    agents with this role. `rules` contains allow rules for workers with this role.
    """

    model: Annotated[str, Key()]
    fallbacks: Annotated[tuple[str, ...], Key(kind="models")] = ()
    budget: Annotated[Budget | None, Key()] = None
    prompt: Annotated[str, Key()] = ""
    rules: Annotated[tuple[str, ...], Key(kind="role rules", scope="user")] = ()


class ModelChoice(Struct, frozen=True, kw_only=True):
    """The models to try, in order. `role` is empty if a model was given directly."""

    models: tuple[str, ...]
    role: str = ""


def resolve_models(text: str, models: Mapping[str, Role]) -> ModelChoice:
    """Resolve a role name to its models. Any other name is returned as a model.

    A role can refer to other roles, including in its fallbacks. Raise Mistake if roles form a cycle.
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
            raise Mistake(f"the role {word} refers to itself ({path}); one of these roles must name a model instead")
        # Each role is expanded once, so the list stays short even if several roles refer to the same role.
        if word in done:
            return
        for named in (models[word].model, *models[word].fallbacks):
            collect_models(named, (*way, word))
        done.add(word)

    collect_models(name, ())
    return ModelChoice(models=tuple(found), role=name)


IN_ITS_CHECKOUT = ("Edit", "Write", "run_checks")
"""The tools that a worker with a built-in role can use without asking: they edit its own checkout or run checks."""

ROLES: Mapping[str, Role] = {
    "complex-feature": Role(
        model="",
        prompt=(
            "The task is large. Read all the relevant code before you start, plan in small steps, "
            "and check each step before you start the next one."
        ),
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
        prompt="The task is to write tests. Change only tests; if the code is wrong, say so in your report.",
        rules=IN_ITS_CHECKOUT,
    ),
}
"""Built-in roles for workers. They use the default model, and settings can override them."""
