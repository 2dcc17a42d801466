"""Notifications: by the browser about what the person chose, and by the ways in the settings of the command line."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from podium.testing import calls

from ..webhook import serve_webhook
from .api_client import ApiClient
from .conftest import Site, Visitor

RECORD = """
() => {
  window.shown = [];
  window.isHidden = true;
  class Recorded { constructor(title, options) { shown.push([title, options.body]); } close() {} }
  Recorded.permission = "granted";
  window.Notification = Recorded;
  Object.defineProperty(document, "visibilityState", { get: () => (window.isHidden ? "hidden" : "visible") });
}
"""
"""Chromium without a window shows no notifications, so the page's are recorded at the border to the browser."""


def open_hidden(site: Site, visitor: Visitor) -> Page:
    page = visitor.open(site, signs_in=False)
    page.add_init_script(f"({RECORD})()")
    page.goto("about:blank")
    page.goto(site.server.make_sign_in_address())
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.get_by_text("Nothing needs you.")).to_be_visible()
    return page


def wait_shown(page: Page, count: int) -> Any:
    page.wait_for_function(f"() => shown.length === {count}")
    return page.evaluate("shown")


def test_the_browser_notifies_about_what_the_person_chose(site: Site, visitor: Visitor) -> None:
    site.studio.agent("toucher", says=[calls("bash", command="touch a"), "done"], tools=("bash",))
    site.studio.agent(
        "loser", says=[calls("bash", command="touch b"), {"fails": {"status": 400, "message": "no"}}], tools=("bash",)
    )
    page = open_hidden(site, visitor)

    run = site.start_run("toucher", "Make a")
    assert wait_shown(page, 1) == [["toucher needs you", "bash touch a"]]
    expect(page).to_have_title("(1) Podium")
    [one] = site.list_requests()
    site.answer(run, one.asked.id)
    assert wait_shown(page, 2)[1] == ["toucher has finished", "Make a"]
    page.goto(f"{site.address}/#/settings")
    page.get_by_label("A run needs you").uncheck()
    run = site.start_run("loser", "Make b")
    expect(page).to_have_title("(1) Podium")
    [one] = site.list_requests()
    site.answer(run, one.asked.id)
    assert wait_shown(page, 3)[2] == ["loser has failed", "Make b"]
    page.get_by_label("Notify me in this browser").uncheck()
    page.reload()

    expect(page.get_by_label("Notify me in this browser")).not_to_be_checked()
    expect(page.get_by_label("A run has failed")).to_be_disabled()


def test_terminals_webhooks_and_commands_are_those_of_the_settings(site: Site, visitor: Visitor) -> None:
    config = site.studio.settings.home / "config.yaml"
    with serve_webhook() as hook:
        config.write_text(f"notify:\n  - bell\n  - {hook.url}/secret\n  - command: ['false']\n")
        page = visitor.open(site, "/settings")
        expect(page.get_by_label("Bell")).to_be_checked()
        with page.expect_response(lambda saved: saved.request.post_data == '{"words":["title"]}'):
            page.get_by_label("Title").check()
            page.get_by_label("Bell").uncheck()
        expect(page.get_by_label("Bell")).not_to_be_checked()
        assert config.read_text() == f"notify:\n  - title\n  - {hook.url}/secret\n  - command: ['false']\n"
        expect(page.get_by_text("command false")).to_be_visible()
        assert page.get_by_text("secret").count() == 0

        page.get_by_role("button", name="Send a test notification").click()

        expect(page.get_by_text("the notification failed: the command false failed")).to_be_visible()
        assert hook.wait_call()["event"] == "finished"
    config.unlink()


def test_a_run_that_the_server_resumes_calls_the_webhook(site: Site) -> None:
    site.studio.agent("teller", says=["All is well."])
    config = site.studio.settings.home / "config.yaml"
    with serve_webhook() as hook, ApiClient(site) as client:
        config.write_text(f"notify: ['{hook.url}']\n")
        run = site.run("teller", "Tell it").run_id

        forked = client.command(f"/api/runs/{run}/fork", {"at": "2"})["id"]

        call = hook.wait_call()
        assert (call["run"], call["event"]) == (forked, "finished")
    config.unlink()
