"""Hosts with another release of Podium: real processes of a package that differs only in its version."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import podium
from podium import __version__
from podium.system.identity import read_host_id
from podium.values.event import Noticed, RunStarted, WorkerPlaced

from ..workers.worker_lab import make_scripted_agent, write
from .fleet_lab import FleetLab, open_lab

OTHER = "0.0.7"
"""A release that is not compatible with this one."""


@pytest.fixture
async def lab(postgres_url: str) -> AsyncIterator[FleetLab]:
    async with open_lab(postgres_url) as lab:
        yield lab


def make_release(folder: Path, version: str) -> str:
    """Make a package that is this one but for its version, and return the folder from which to import it."""
    source = Path(podium.__file__).parent
    package = folder / f"release-{version}" / "podium"
    package.mkdir(parents=True)
    for path in source.iterdir():
        if path.name not in ("__init__.py", "__pycache__"):
            (package / path.name).symlink_to(path)
    text = (source / "__init__.py").read_text()
    (package / "__init__.py").write_text(text.replace(f'"{__version__}"', f'"{version}"'))
    return str(package.parent)


def describe_refusal(host: str, *, created: str, has: str) -> str:
    return (
        f"Host {host} cannot work on this run: it was created by Podium {created}, which is not compatible with "
        f"Podium {has} on this host"
    )


async def wait_refused(lab: FleetLab, run: str, text: str) -> None:
    await lab.wait_for_entry(run, lambda entry: isinstance(entry.event, Noticed) and entry.event.text == text)


async def test_a_host_of_another_release_refuses_a_run_and_a_host_of_the_same_release_takes_it(lab: FleetLab) -> None:
    await lab.start_host("alpha", PYTHONPATH=make_release(lab.folder, OTHER))
    await lab.add_host("beta")
    refusal = describe_refusal("alpha", created=__version__, has=OTHER)

    run = await lab.delegate("feat/one", write("one.txt"), "done")
    await wait_refused(lab, run, refusal)
    not_beside = await lab.run_podium("host", PODIUM_STORE=lab.addresses["beta"])
    listed, doctor = await lab.run_podium("hosts"), await lab.run_podium("doctor", "--json")

    assert not_beside.returncode == 2
    assert f"Podium {OTHER} on the active host alpha" in not_beside.stderr
    assert re.search(rf"Podium on alpha .*\({re.escape(__version__)}\)", listed.stderr)
    [fact] = [fact for fact in json.loads(doctor.stdout)["facts"] if fact["what"] == "host alpha"]
    assert (fact["level"], doctor.returncode) == ("problem", 1)
    assert f"Podium {OTHER}, " in fact["text"]

    assert await lab.end_host("alpha") == 0
    await lab.start_host("beta")

    assert (await lab.wait_ended(run)).outcome == "succeeded", lab.logs(run)
    assert [text for text in lab.notices(run) if "cannot work" in text] == [refusal]
    assert [placed.host for placed in lab.events(run, WorkerPlaced)] == [read_host_id(lab.folder / "beta")]
    lab.assert_intact(run)


@pytest.mark.slow
async def test_of_two_releases_that_are_active_at_once_each_takes_only_the_runs_that_it_can_work_on(
    lab: FleetLab,
) -> None:
    """A host that was suspended does not know that another release has been started in the meantime."""
    other = make_release(lab.folder, OTHER)
    alpha = await lab.start_host("alpha")
    os.kill(alpha.pid, signal.SIGSTOP)
    lab.query("UPDATE podium.host SET seen = now() - interval '1 hour' RETURNING 1")
    await lab.start_host("beta", PYTHONPATH=other)
    os.kill(alpha.pid, signal.SIGCONT)
    lab.write_agent(make_scripted_agent("done"))

    ours = await lab.delegate("feat/ours", write("one.txt"), "done")
    sent = await lab.run_podium("delegate", "feat/theirs", "go", "--agent", "hand", PYTHONPATH=other)
    assert sent.returncode == 0, sent.stderr
    theirs = sent.stdout.split()[0]

    assert (await lab.wait_ended(ours)).outcome == "succeeded", lab.logs(ours)
    assert (await lab.wait_ended(theirs)).outcome == "succeeded", lab.logs(theirs)
    assert [lab.events(run, RunStarted)[0].version for run in (ours, theirs)] == [__version__, OTHER]
    for run, host in ((ours, "alpha"), (theirs, "beta")):
        assert [placed.host for placed in lab.events(run, WorkerPlaced)] == [read_host_id(lab.folder / host)]
    refusals = {text for run in (ours, theirs) for text in lab.notices(run) if "cannot work" in text}
    assert refusals <= {
        describe_refusal("beta", created=__version__, has=OTHER),
        describe_refusal("alpha", created=OTHER, has=__version__),
    }
