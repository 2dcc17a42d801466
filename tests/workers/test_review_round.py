"""A review reaches a real worker while it works; a part of its changes is merged when it has ended."""

from __future__ import annotations

from functools import partial

import pytest

from podium import App
from podium.values.actor import Actor
from podium.values.errors import Mistake, RunOver
from podium.values.event import MessageReceived
from podium.workers.merging.partial_merge import choose_shown_changes
from podium.workers.queries.worker_diff import WorkerDiff, read_worker_diff
from podium.workers.queries.worker_lookup import RepoContext
from podium.workers.review_round import ReviewRequest, send_review
from podium.workspace.merging.partial_commit import ChosenFile

from .worker_lab import WorkerLab, bash, write

ME = Actor(name="me", channel="page")


async def test_a_working_worker_gets_the_review_and_a_part_of_its_work_is_merged_when_it_has_ended(
    lab: WorkerLab,
) -> None:
    moves = (write("one.txt", "1\n"), write("two.txt", "2\n"), bash("python3 -c pass"), "done")
    run = await lab.delegate("feat/a", *moves, allow=("Write",))
    lab.start_commander()
    asked = await lab.wait_asked(run)
    context = RepoContext(lab.repo.path, lab.settings())
    working = context.load_worker("feat/a")

    async def read_diff(*, in_checkout: bool) -> WorkerDiff:
        return await read_worker_diff(context, context.load_worker("feat/a"), in_checkout=in_checkout)

    shown = await read_diff(in_checkout=True)
    async with App(context.settings, environ=lab.environ) as app:
        review = partial(send_review, app.runs, context.settings, by=ME)
        sent = await review(working, ReviewRequest(text="A review: use tabs.", ref="r1"))
        await review(working, ReviewRequest(text="A review: use tabs.", ref="r1"))
    with pytest.raises(
        Mistake,
        match=r"feat/a has not ended \(waiting_permission\), and its branch does not match the diff that was shown",
    ):
        await choose_shown_changes(context, working, "main", [ChosenFile(path="one.txt")], shown=shown.digest)
    lab.answer(run, asked, "once")
    await lab.wait_ended(run)

    assert (sent.run, sent.text.split()[0]) == (run, "hand")
    assert [(one.text, one.by, one.channel) for one in lab.events(run, MessageReceived)] == [
        ("A review: use tabs.", "me", "page")
    ]
    ended = context.load_worker("feat/a")
    final = await read_diff(in_checkout=False)
    assert (final.digest, final.tree) == (shown.digest, shown.tree)
    candidate = await choose_shown_changes(context, ended, "main", [ChosenFile(path="one.txt")], shown=shown.digest)
    assert candidate.part is not None
    assert lab.repo.git("diff", "--name-only", "main", candidate.part.commit) == "one.txt"
    async with App(context.settings, environ=lab.environ) as app:
        with pytest.raises(RunOver, match=r"feat/a has ended \(complete\) and cannot receive messages"):
            await send_review(app.runs, context.settings, ended, ReviewRequest(text="Too late"), by=ME)
