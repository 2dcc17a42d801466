"""A real model for tests: the smallest one of the catalogue, fetched once into the user's cache folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podium.engines.local.engine_process import LocalEngine
from podium.engines.local.model_folder import InstalledModel, ModelFolder

SMALLEST = "smollm2-135m"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podium-tests" / "models"


@pytest.fixture(scope="session")
def small_model() -> InstalledModel:
    """Return the smallest model, fetched with `podium models add`; skip the test if it cannot be fetched."""
    folder = ModelFolder(CACHE)
    if (there := folder.find_model(SMALLEST)) is not None:
        return there
    command = [sys.executable, "-m", "podium", "models", "add", SMALLEST]
    environment = {**os.environ, "PODIUM_MODELS": str(CACHE)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    if (there := folder.find_model(SMALLEST)) is None:
        pytest.skip(f"{SMALLEST} cannot be fetched: {done.stderr.strip()}")
    return there


@pytest.fixture(scope="module")
def model_folder(small_model: InstalledModel, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """Make a folder in which the smallest model is installed, with an engine of its own."""
    folder = ModelFolder(tmp_path_factory.mktemp("models"))
    for place in (ModelFolder.weights_path, ModelFolder.record_path):
        place(folder, small_model.name).symlink_to(place(ModelFolder(CACHE), small_model.name))
    return folder


MakeEngine = Callable[..., LocalEngine]


@pytest.fixture(scope="module")
def make_engine(model_folder: ModelFolder) -> Iterator[MakeEngine]:
    """Return a function that returns the engine of the smallest model. The engine ends with the module's tests."""

    def make(**options: float) -> LocalEngine:
        return LocalEngine(folder=model_folder, name=SMALLEST, environ=os.environ, **options)

    yield make
    make().ask_to_end()
