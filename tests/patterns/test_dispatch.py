"""Parsing plans: who is assigned which task, who is not, and that nothing a lead writes breaks the parser."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.patterns.dispatch import (
    Assignment,
    Plan,
    SharedTask,
    Skipped,
    find_shared_tasks,
    merge,
    parse_assignments,
    parse_plan,
)

TEAM = ["alpha", "beta", "worker-1", "worker-10", "PR Review Squad-worker-1", "PR Review Squad"]


def read_assignments(reply: str) -> list[tuple[str, str]]:
    return [(one.worker, one.task) for one in parse_assignments(reply, TEAM)]


@pytest.mark.parametrize(
    "reply",
    [
        "@worker:alpha do A\n@worker:beta do B",
        "@worker:alpha\ndo A\n@end\n@worker:beta\ndo B\n@end\nThat is all.",
        "My plan:\r\n\r\n@Worker:ALPHA\r\ndo A\r\n@End\r\n@WORKER:Beta do B\r\n",
        "```\n@worker:alpha do A\n@worker:beta do B\n```",
        "```\n@worker:alpha do A\n```\n\n```\n@worker:beta do B\n```",
        "```python\nprint(1)\n```\n@worker:alpha\ndo A\n@end\n@worker:beta\ndo B",
        "- **@worker:alpha** do A\n- **@worker:beta** do B",
        "1. `@worker:alpha` do A\n2. `@worker:beta` do B",
        "@worker:`alpha`: do A\n@worker:**beta** do B",
        "@worker: \"alpha\"\n\ndo A\n\n@worker: 'beta'\n\ndo B\n\n",
        '[{"worker": "alpha", "task": "do A"}, {"worker": "beta", "task": "do B"}]',
        'Plan:\n```json\n[{"worker": "Alpha", "task": "do A"},\n {"worker": "`beta`", "task": " do B "}]\n```\nOk',
        'I choose [{"worker": "alpha", "task": "do A"}, {"worker": "beta", "task": "do B"}] as [1] says.',
        "[broken json\n@worker:alpha\ndo A\n@end\n@worker:beta do B",
        '[{"worker": "ghost", "task": "x"}]\n@worker:alpha do A\n@worker:beta do B',
    ],
)
def test_every_form_of_a_plan_reads_the_same(reply: str) -> None:
    assert read_assignments(reply) == [("alpha", "do A"), ("beta", "do B")]


@pytest.mark.parametrize(
    "reply",
    [
        "@worker:Steve Rogers lead it\n@worker:Ada build it",
        "@worker:steve-rogers lead it\n@worker:ada build it",
        "@worker:**Steve Rogers**\nlead it\n@end\n@worker:Ada 🔧\nbuild it\n@end",
        "@worker:🛡️ STEVE ROGERS: lead it\n@worker:Ada 🔧: build it",
        '[{"worker": "Steve Rogers 🛡️", "task": "lead it"}, {"worker": "👩🏽\u200d🔧 Ada", "task": "build it"}]',
        '[{"worker": "**Steve Rogers** 🛡️", "task": "lead it"}, {"worker": "Ada🔧", "task": "build it"}]',
    ],
)
def test_a_worker_may_be_called_by_its_display_name_and_with_its_emoji(reply: str) -> None:
    plan = parse_plan(reply, ["steve-rogers", "ada"], aliases={"Steve Rogers": "steve-rogers"})

    assert plan == Plan([Assignment("steve-rogers", "lead it"), Assignment("ada", "build it")], [])


def test_an_emoji_that_is_part_of_a_display_name_may_be_left_out() -> None:
    plan = parse_plan("@worker:Ada Byron build it", ["ada-byron"], aliases={"Ada Byron 🔧": "ada-byron"})

    assert plan.assignments == [Assignment("ada-byron", "build it")]


def test_a_registered_name_wins_over_a_display_name() -> None:
    plan = parse_plan("@worker:Lead x", ["lead", "boss"], aliases={"Lead": "boss"})

    assert plan.assignments == [Assignment("lead", "x")]


def test_the_longest_name_that_begins_the_line_wins() -> None:
    assert read_assignments("@worker:worker-10 ten\n@worker:worker-1 one") == [
        ("worker-10", "ten"),
        ("worker-1", "one"),
    ]
    assert read_assignments("@worker:PR Review Squad-worker-1\nlook") == [("PR Review Squad-worker-1", "look")]
    assert read_assignments("@worker:pr review squad look") == [("PR Review Squad", "look")]


@pytest.mark.parametrize("name", ["alph", "alphabet", "alpha-2", "worker", "worker-100", "Squad-worker-1", "alpha.py"])
def test_a_name_that_is_only_similar_matches_no_worker(name: str) -> None:
    plan = parse_plan(f"@worker:{name}\nwork\n@end", TEAM)

    assert plan == Plan([], [Skipped(name, "work", "no worker has that name")])
    assert parse_plan(json.dumps([{"worker": name, "task": "work"}]), TEAM) == plan


def test_skipped_entries_are_reported_beside_the_assignments() -> None:
    plan = parse_plan('[{"worker": "alpha", "task": "A"}, {"worker": "x", "task": "X"}, 7, {"worker": "beta"}]', TEAM)

    assert plan.assignments == [Assignment("alpha", "A")]
    assert [(one.name, one.task) for one in plan.skipped] == [("x", "X"), ("", ""), ("beta", "")]


def test_an_empty_task_is_skipped() -> None:
    assert parse_plan("@worker:alpha\n@end", TEAM) == Plan([], [Skipped("alpha", "", "its task is empty")])
    assert read_assignments('[{"worker": "alpha", "task": "  "}]') == []


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I did it all.",
        '{"worker": "alpha", "task": "A"}',
        '{"worker": "alpha", "task": "A", "subtasks": [{"worker": "beta", "task": "B"}]}',
        '{"assignments": [{"worker": "alpha", "task": "A"}]}',
        'My plan:\n```json\n{\n "assignments": [{"worker": "alpha", "task": "A"}]\n}\n```\nThat is all.',
        '{"worker": "alpha", "task": "A"}\n{"more": {"plan": [{"worker": "beta", "task": "B"}]}}',
        "[]",
        "[1, 2]",
        '```\n[{"id": 1}]\n```',
        "@end",
    ],
)
def test_a_reply_without_a_plan_assigns_nothing_and_skips_nothing(reply: str) -> None:
    assert parse_plan(reply, TEAM) == Plan([], [])


@pytest.mark.parametrize(
    ("reply", "task"),
    [
        ('Plan: [{"worker": "alpha", "task": "x"}] (instead of @worker:NAME blocks)', "x"),
        ('Here: [{"worker": "alpha", "task": "do without @worker: blocks"}]', "do without @worker: blocks"),
        ('Here: [{"worker": "alpha", "task": "document @worker:beta NOW"}] Ok.', "document @worker:beta NOW"),
        ('With {"dry": true} and {braces}: [{"worker": "alpha", "task": "x"}]', "x"),
    ],
)
def test_an_array_among_prose_is_a_plan_where_markers_assign_nothing(reply: str, task: str) -> None:
    assert read_assignments(reply) == [("alpha", task)]


def test_markers_inside_the_texts_of_an_array_are_not_reported_as_skipped() -> None:
    assert parse_plan('Here: [{"worker": "alpha", "task": "avoid @worker: now"}]', TEAM).skipped == []


def test_an_array_inside_a_block_is_part_of_its_task() -> None:
    reply = '@worker:alpha return what looks like [{"worker": "beta", "task": "x"}]'

    assert read_assignments(reply) == [("alpha", 'return what looks like [{"worker": "beta", "task": "x"}]')]


def test_a_task_keeps_its_lines_and_its_fences() -> None:
    task = "Run this:\n\n```sh\nmake test\n```\n\nand mail x@end of it."

    assert read_assignments(f"@worker:alpha {task}\n@end\nprose\n@worker:beta\n{task}") == [
        ("alpha", task),
        ("beta", task),
    ]


def test_one_worker_may_be_named_twice_and_then_gets_both_tasks_at_once() -> None:
    plan = parse_assignments("@worker:alpha one\n@worker:beta two\n@worker:Alpha three", TEAM)

    assert [one.worker for one in plan] == ["alpha", "beta", "alpha"]
    assert merge(plan) == [Assignment("alpha", "one\n---\nthree"), Assignment("beta", "two")]


def test_the_same_task_for_several_workers_is_flagged() -> None:
    plan = parse_assignments("@worker:alpha look  at it\n@worker:beta look at it\n@worker:worker-1 other", TEAM)

    assert find_shared_tasks(plan) == [SharedTask("look  at it", ["alpha", "beta"])]


ODD = ["\n", "\r\n", "\r", " ", "- ", "@Worker: ", "PR Review Squad", '[{"worker":"alpha","task":"x"}]']
WORDS = '@worker: @end ``` ~~~ json [ ] { } " , : ` * "worker" "task" alpha worker-1 task'
pieces = st.sampled_from([*WORDS.split(), *ODD])
replies = st.one_of(st.text(), st.lists(st.one_of(pieces, st.text(max_size=3)), max_size=30).map("".join))


@given(replies, st.lists(st.text(max_size=8), max_size=4))
def test_any_text_can_be_read_and_names_only_registered_workers(reply: str, workers: list[str]) -> None:
    plan = parse_plan(reply, [*TEAM, *workers])

    assert {one.worker for one in plan.assignments} <= {*TEAM, *workers}
    assert all(one.task.strip() for one in plan.assignments)
    assert parse_assignments(reply, [*TEAM, *workers]) == plan.assignments


@given(st.lists(st.builds(Assignment, st.sampled_from(TEAM), st.text())))
def test_merging_keeps_every_task_in_order_and_each_worker_once(assignments: list[Assignment]) -> None:
    merged = merge(assignments)

    assert [one.worker for one in merged] == list(dict.fromkeys(one.worker for one in assignments))
    for one in merged:
        assert one.task == "\n---\n".join(each.task for each in assignments if each.worker == one.worker)


words = (
    st.text(st.characters(categories=["L", "N"], include_characters=" .,;()"), min_size=1).map(str.strip).filter(bool)
)


@given(st.lists(st.tuples(st.sampled_from(TEAM), words), min_size=1))
def test_blocks_and_json_say_the_same(plan: list[tuple[str, str]]) -> None:
    blocks = "\n".join(f"@worker:{worker}\n{task}\n@end" for worker, task in plan)
    array = json.dumps([{"worker": worker, "task": task} for worker, task in plan])

    assert (
        read_assignments(blocks)
        == read_assignments(array)
        == read_assignments(f"Well:\n```json\n{array}\n```\n")
        == plan
    )


@pytest.mark.parametrize(
    "piece", ["`", "```[", "@worker:", "@worker:alpha x\n", "[", '[{"', "> ", " ", "\n", "```\n", "*"]
)
def test_a_long_reply_is_read_in_time(piece: str) -> None:
    began = time.perf_counter()

    parse_plan(piece * (200_000 // len(piece)), TEAM)

    assert time.perf_counter() - began < 10
