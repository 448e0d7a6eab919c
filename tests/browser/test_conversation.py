"""The tab with the conversation, with the real CLI and the scripted model: permissions, interrupts, cost."""

import json
import re

from playwright.sync_api import expect


def open_tab(page):
    """Open the tab, with an empty conversation."""
    page.get_by_role("tab", name="Conversation").click()
    state = page.get_by_role("status").filter(has_text=re.compile("not started|waiting|working|ended"))
    expect(state).to_be_visible()
    if "not started" not in state.inner_text():
        page.get_by_role("button", name="New conversation").click()
    expect(page.get_by_text("not started")).to_be_visible()


def send(page, text):
    """Send a prompt."""
    page.get_by_label("Prompt").fill(text)
    page.get_by_label("Prompt").press("Enter")


def allow(page):
    """Allow the call that waits for permission."""
    page.get_by_role("button", name="Allow", exact=True).click()


def ended(page, number=1):
    """Wait until so many turns have ended."""
    expect(page.get_by_text("Turn ended")).to_have_count(number)
    expect(page.get_by_text("waiting for a prompt")).to_be_visible()


def test_a_whole_conversation(page):
    """The prompt, a permission request at the call, the result, the answer and the cost are shown, turn by turn."""
    open_tab(page)
    expect(page.get_by_text("A scripted model answers, not Claude")).to_be_visible()
    send(page, "add a=15 b=27")
    expect(page.get_by_text("1 question for you")).to_be_visible()
    expect(page.get_by_text("May Claude call shop.add?")).to_be_visible()
    allow(page)
    ended(page)
    log = page.get_by_role("log", name="Conversation")
    expect(log.get_by_text("shop.add", exact=True)).to_be_visible()
    expect(log.get_by_text("42.0", exact=True)).to_be_visible()
    expect(log.get_by_text("add returned: 42.0")).to_be_visible()
    expect(page.get_by_text(re.compile(r"Cost \$0\.0\d+ \(computed, not charged\)"))).to_be_visible()
    expect(page.get_by_text(re.compile(r"Context [\d,]+ tokens"))).to_be_visible()
    send(page, "what can you do?")
    ended(page, 2)
    expect(log.get_by_text("I am a scripted model, not Claude")).to_be_visible()


def test_a_denied_call_and_its_reason_reach_the_model(page):
    """The reason is part of what the model reads."""
    open_tab(page)
    send(page, "add a=1 b=2")
    page.get_by_label("Reason (sent to the model)").fill("too easy")
    page.get_by_role("button", name="Deny").click()
    ended(page)
    expect(page.get_by_text("Answered: denied: too easy")).to_be_visible()
    expect(page.get_by_text("They say: too easy").first).to_be_visible()


def test_always_allow_asks_once(page):
    """The second call of the same tool runs without a question."""
    open_tab(page)
    send(page, "add a=1 b=2")
    page.get_by_role("button", name="Always allow in this conversation").click()
    ended(page)
    send(page, "add a=3 b=4")
    ended(page, 2)
    expect(page.get_by_text("add returned: 7.0")).to_be_visible()


def test_an_elicitation_a_failure_and_its_place(page):
    """An elicitation is answered on the page; a failed tool shows its traceback to its author."""
    open_tab(page)
    send(page, "ask")
    allow(page)
    page.get_by_label("Name *").fill("Bo")
    page.get_by_label("Age *").fill("7")
    page.get_by_role("log", name="Conversation").get_by_role("button", name="Send").click()
    ended(page)
    expect(page.get_by_text("accept name='Bo' age=7").last).to_be_visible()
    send(page, "fail word=tea")
    allow(page)
    ended(page, 2)
    expect(page.get_by_text('raise ValueError(f"no {word} here")')).to_be_visible()


def test_an_interrupt_ends_the_turn_and_the_tool(page):
    """Progress is shown live before the interrupt; the conversation goes on after it."""
    open_tab(page)
    send(page, "slow steps=500")
    allow(page)
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.get_by_text(re.compile(r"^\d+ of 500 step \d+$"))).to_be_visible()
    page.get_by_role("button", name="Interrupt").click()
    ended(page)
    expect(page.get_by_text("The turn failed: interrupted while a tool was running")).to_be_visible()
    send(page, "add a=1 b=1")
    allow(page)
    ended(page, 2)


def test_a_question_of_an_interrupted_turn_takes_no_answer(page):
    """The page says that the answer is no longer needed, and has no buttons for it."""
    open_tab(page)
    send(page, "add a=1 b=2")
    expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()
    page.get_by_role("button", name="Interrupt").click()
    expect(page.get_by_text("No longer needed")).to_be_visible()
    expect(page.get_by_role("button", name="Allow", exact=True)).to_have_count(0)


def test_hostile_text_in_a_conversation_is_text(page):
    """Output of tools, their logs and the model's repetition of it are shown as text, and never run."""
    open_tab(page)
    send(page, "hostile size=200000")
    allow(page)
    ended(page)
    expect(page.get_by_text("<script>window.pwned = 1</script>").last).to_be_visible()


def test_your_own_claude_is_told_apart_before_anything_is_paid(page):
    """The page says who would answer, and that your own Claude costs money."""
    open_tab(page)
    page.get_by_label("Who answers").click()
    page.get_by_role("option", name="Your own Claude").click()
    expect(page.get_by_text("Your own Claude answers, using your account: this costs money.")).to_be_visible()
    page.get_by_label("Who answers").click()
    page.get_by_role("option", name="Scripted model").click()
    expect(page.get_by_text("A scripted model answers, not Claude")).to_be_visible()


def test_a_second_window_shows_the_same_conversation(page, chromium, studio):
    """A permission request is shown in both windows, and can be answered in either."""
    open_tab(page)
    send(page, "add a=2 b=2")
    expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()
    other = page.context.new_page()
    other.goto(studio.address)
    other.get_by_role("tab", name="Conversation").click()
    other.get_by_role("button", name="Allow", exact=True).click()
    ended(page)
    expect(page.get_by_text("Answered: allowed")).to_be_visible()
    expect(other.get_by_text("add returned: 4.0")).to_be_visible()
    other.close()


def test_a_tool_that_is_added_in_mid_conversation_can_be_called(start, tmp_path):
    """The CLI is told that the list of tools has changed."""
    one = "\n\n@shop.tool\ndef one() -> str:\n    'One.'\n    return 'first'\n"
    text = "from toolwire import ToolServer\nshop = ToolServer('shop')\n" + one
    app = tmp_path / "app.py"
    app.write_text(text)
    page, _ = start("app.py", "--yes")
    page.get_by_role("tab", name="Conversation").click()
    send(page, "one")
    ended(page)
    app.write_text(text + one.replace("one", "two").replace("first", "second"))
    page.get_by_role("tab", name="Tools").click()
    expect(page.get_by_role("button", name="two")).to_be_visible()
    page.get_by_role("tab", name="Conversation").click()
    send(page, "two")
    ended(page, 2)
    expect(page.get_by_text("two returned: second")).to_be_visible()


def test_the_timeline_has_the_times_of_the_run(page, tmp_path):
    """The spans follow from the frames of the conversation: a span is as long as the time between its frames."""
    open_tab(page)
    send(page, "slow steps=3")
    allow(page)
    ended(page)
    page.get_by_role("tab", name="Timeline").click()
    row = page.get_by_role("row", name=re.compile("^mcp: slow runs in shop"))
    row.click()
    details = page.get_by_role("complementary", name="Details")
    expect(details.get_by_text("Frames (")).to_be_visible()
    shown = float(re.search(r"([\d.]+) s$", details.get_by_text(re.compile("^mcp, from")).inner_text())[1])
    times = []
    for button in details.get_by_role("button").all():
        times.append(float(button.inner_text().split()[0]))
    assert shown == round(max(times) - min(times), 3) or abs(shown - (max(times) - min(times))) < 0.002
    assert shown > 0.6  # three pauses of 0.2 s
    details.get_by_role("button").first.click()
    expect(details.get_by_role("heading")).to_contain_text("Frame ")
    frame = json.loads(details.locator(".tw-mono").inner_text())
    assert frame["request"]["message"]["method"] == "tools/call"


def test_without_a_cli_the_page_says_what_to_do_and_the_scripted_model_answers(start, tmp_path):
    """The message speaks of the page's own controls, not of options of other commands."""
    (tmp_path / "app.py").write_text("def double(a: int) -> int:\n    return 2 * a\n")
    page, _ = start("app.py", "--live", TOOLWIRE_CLI=str(tmp_path / "none"))
    page.get_by_role("tab", name="Conversation").click()
    send(page, "double a=21")
    expect(page.get_by_text("Claude Code not found")).to_contain_text(
        "choose the scripted model under Who answers"
    )
    expect(page.get_by_text("--scripted")).to_have_count(0)
    page.get_by_label("Who answers").click()
    page.get_by_role("option", name="Scripted model").click()
    expect(page.get_by_text("not started")).to_be_visible()
    send(page, "double a=21")
    allow(page)
    expect(page.get_by_text("double returned: 42")).to_be_visible()
    page.get_by_role("tab", name="Timeline").click()
    expect(page.get_by_text("not charged: the model is scripted")).to_be_visible()


def test_a_hook_of_the_settings_appears_where_it_ran(start, tmp_path):
    """It is shown with its outcome and its output, on the timeline too."""
    hook = {"type": "command", "command": "echo checked by a hook"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "mcp__shop__one", "hooks": [hook]}]}}
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings))
    one = "\n\n@shop.tool\ndef one() -> str:\n    'One.'\n    return 'first'\n"
    (tmp_path / "app.py").write_text("from toolwire import ToolServer\nshop = ToolServer('shop')\n" + one)
    page, _ = start("app.py", "--yes", "--settings", "--cwd", tmp_path)
    page.get_by_role("tab", name="Conversation").click()
    send(page, "one")
    ended(page)
    log = page.get_by_role("log", name="Conversation")
    expect(log.get_by_text("Hook PreToolUse: success")).to_be_visible()
    log.get_by_role("button", name="Details").click()
    expect(log.get_by_text("checked by a hook").first).to_be_visible()
    page.get_by_role("tab", name="Timeline").click()
    expect(page.get_by_role("row", name=re.compile("^hook: PreToolUse"))).to_be_visible()
