"""The tab with the tools: forms, calls, results, and a file that changes."""

import re

from playwright.sync_api import expect


def choose(page, name):
    """Choose a tool in the list."""
    page.get_by_role("navigation", name="Tools").get_by_role("button", name=name).click()
    expect(page.get_by_text(f"mcp__shop__{name}", exact=True)).to_be_visible()


def call(page):
    """Press the button, and return the newest call."""
    page.get_by_role("button", name="Call").click()
    return page.get_by_role("region", name="Calls").locator("section.tw-call").first


def test_a_tool_is_called_with_numbers(page):
    """Values are converted according to the schema; the result and its duration are shown."""
    choose(page, "add")
    page.get_by_label("a *").fill("15")
    page.get_by_label("b *").fill("27.5")
    made = call(page)
    expect(made.get_by_text("42.5")).to_be_visible()
    expect(made.get_by_text("done in")).to_be_visible()
    expect(page.get_by_text("read-only")).to_be_visible()


def test_a_nested_form_shows_each_error_at_its_field(page):
    """Nothing is sent while arguments are invalid; then the nested models arrive as they were filled in."""
    choose(page, "order")
    before = page.get_by_role("region", name="Calls").locator("section.tw-call").count()
    page.get_by_role("button", name="Call").click()
    expect(page.get_by_text("Field required").first).to_be_visible()
    page.get_by_label("customer *").fill("Ann")
    page.get_by_label("street *").fill("Road 1")
    page.get_by_label("city *").fill("Town")
    page.get_by_label("zip *").fill("123")
    page.get_by_role("button", name="Add items: items *").click()
    page.get_by_role("button", name="Add an item to items *").click()
    page.get_by_label("name *").fill("tea")
    page.get_by_label("count *").fill("99")
    page.get_by_role("button", name="Call").click()
    field = page.locator("label", has=page.get_by_label("count *"))
    expect(field.get_by_text("greater than the maximum of 10")).to_be_visible()
    expect(
        page.locator("label", has=page.get_by_label("zip *")).get_by_text("does not match")
    ).to_be_visible()
    assert page.get_by_role("region", name="Calls").locator("section.tw-call").count() == before

    page.get_by_label("zip *").fill("12345")
    page.get_by_label("count *").fill("3")
    page.get_by_label("color").click()
    page.get_by_role("option", name="green").click()
    page.get_by_label("Kind of payment").click()
    page.get_by_role("option", name="Card").click()
    page.get_by_label("number *").fill("4242")
    page.get_by_role("button", name="Set note to null").click()
    page.get_by_label("priority").click()
    page.get_by_role("option", name="3").click()
    made = call(page)
    expect(made.get_by_text('"to": "Town"')).to_contain_text('"count": 3')
    expect(made.get_by_text('"to": "Town"')).to_contain_text('"payment": "card"')
    expect(made.get_by_text('"to": "Town"')).to_contain_text('"priority": 3')


def test_arguments_can_be_pasted_as_json(page):
    """Text that is not JSON is shown as an error."""
    choose(page, "add")
    page.get_by_role("button", name="As JSON").click()
    area = page.get_by_label("Arguments as JSON")
    area.fill("{nonsense")
    page.get_by_role("button", name="Apply to the form").click()
    expect(page.locator("label", has=area).get_by_role("alert")).to_be_visible()
    area.fill('{"a": 1, "b": 2}')
    page.get_by_role("button", name="Apply to the form").click()
    expect(page.get_by_label("b *")).to_have_value("2")
    expect(call(page).get_by_text("3.0")).to_be_visible()


def test_progress_and_logs_are_live_and_a_call_can_be_cancelled(page):
    """The bar moves while the tool runs; Cancel ends it."""
    choose(page, "slow")
    page.get_by_label("steps").fill("200")
    made = call(page)
    expect(made.get_by_role("progressbar")).to_be_visible()
    expect(made.get_by_text(re.compile(r"^\d+ of 200 step \d+$"))).to_be_visible()
    expect(made.get_by_text("info: did 1", exact=True)).to_be_visible()
    made.get_by_role("button", name="Cancel").click()
    expect(made.get_by_text("cancelled in")).to_be_visible()


def test_a_tool_asks_and_is_answered(page):
    """The form of an elicitation is shown at the call, with errors at its fields."""
    choose(page, "ask")
    made = call(page)
    made.get_by_label("Name *").fill("Bo")
    made.get_by_label("Age *").fill("200")
    made.get_by_role("button", name="Send").click()
    expect(made.get_by_text("greater than the maximum of 150")).to_be_visible()
    made.get_by_label("Age *").fill("7")
    made.get_by_role("button", name="Send").click()
    expect(made.get_by_text("Answered: sent")).to_be_visible()
    expect(made.get_by_text("accept name='Bo' age=7")).to_be_visible()


def test_a_failure_shows_what_the_model_reads_and_where_the_code_failed(page):
    """The page shows the traceback with the failing line."""
    choose(page, "fail")
    page.get_by_label("word *").fill("tea")
    made = call(page)
    expect(made.get_by_text("failed in")).to_be_visible()
    expect(made.get_by_text("ValueError: no tea here").first).to_be_visible()
    expect(made.get_by_text('raise ValueError(f"no {word} here")')).to_be_visible()


def test_pictures_and_sounds_are_shown(page):
    """They are shown according to their types, from the data in the result."""
    choose(page, "media")
    made = call(page)
    picture = made.get_by_role("img", name="Picture from the tool")
    expect(picture).to_be_visible()
    assert picture.evaluate("each => each.naturalWidth") == 40
    expect(made.get_by_label("Sound from the tool")).to_be_visible()


def test_a_file_is_uploaded(page):
    """Its bytes arrive as the tool's argument."""
    choose(page, "upload")
    page.locator("input[type=file]").set_input_files(
        {"name": "x.bin", "mimeType": "application/octet-stream", "buffer": bytes(1234)}
    )
    expect(page.get_by_text("x.bin, 1,234 bytes")).to_be_visible()
    expect(call(page).get_by_text("1234", exact=True)).to_be_visible()


def test_hostile_output_is_text(page):
    """Scripts, markup and templates are shown, and never run; a huge result is truncated, and can be downloaded."""
    choose(page, "hostile")
    page.get_by_label("size").fill("3000000")
    made = call(page)
    expect(made.get_by_text("<script>window.pwned = 1</script>").last).to_be_visible()
    expect(made.get_by_text("Truncated: the first 10,000 of 3,000,")).to_be_visible()
    with page.expect_download() as download:
        made.get_by_role("button", name="Download all").click()
    assert len(download.value.path().read_bytes()) > 3_000_000


def test_the_list_is_searched(page):
    """Names and descriptions are searched."""
    page.get_by_label("Search the tools").fill("slowly")
    expect(page.get_by_text("1 of 8 tools")).to_be_visible()
    expect(page.locator(".tw-entry")).to_have_count(1)


def test_a_changed_file_appears_by_itself(start, tmp_path):
    """A new tool appears, a broken file is reported until it is fixed, and values typed for another tool stay."""
    app = tmp_path / "app.py"
    text = (
        "from toolwire import ToolServer\nshop = ToolServer('shop')\n\n\n"
        "@shop.tool\ndef first(word: str) -> str:\n    '''One.'''\n    return word\n"
    )
    app.write_text(text)
    page, _ = start("app.py")
    page.get_by_label("word *").fill("typed")
    more = "\n\n@shop.tool\ndef second() -> str:\n    '''Two.'''\n    return 'new'\n"
    app.write_text(text + more)
    expect(page.get_by_role("button", name="second")).to_be_visible()
    expect(page.get_by_label("word *")).to_have_value("typed")
    app.write_text(text + more + "\nthis is no Python\n")
    expect(page.get_by_text("not reloaded").first).to_be_visible()
    app.write_text(text + more.replace("'new'", "'newer'"))
    expect(page.get_by_text("not reloaded")).to_have_count(0)
    page.get_by_role("button", name="second").click()
    expect(page.get_by_text("mcp__shop__second")).to_be_visible()
    page.get_by_role("button", name="Call").click()
    expect(page.get_by_text("newer", exact=True)).to_be_visible()


def test_a_schema_that_is_not_valid_is_reported_above_the_form(start, tmp_path):
    """Servers of other libraries may have one: the form then checks nothing, and the server decides."""
    (tmp_path / "app.py").write_text(
        "from mcp import types\nfrom mcp.server import Server\n\n\n"
        "async def list_tools(ctx, params):\n"
        "    schema = {'type': 'object', 'properties': {'n': {'type': 'no such'}}}\n"
        "    return types.ListToolsResult(tools=[types.Tool(name='odd', inputSchema=schema)])\n\n\n"
        "server = Server('shop', on_list_tools=list_tools)\n"
    )
    page, _ = start("app.py")
    expect(page.get_by_text("The form cannot check the arguments: ")).to_be_visible()


def test_the_list_keeps_the_focus_while_a_call_runs(page):
    """Steps of a running tool do not take the keyboard focus away from the list."""
    choose(page, "slow")
    page.get_by_label("steps").fill("200")
    made = call(page)
    entry = page.get_by_role("navigation", name="Tools").get_by_role("button", name="upload")
    entry.focus()
    expect(made.get_by_text("info: did 5", exact=True)).to_be_visible()
    expect(entry).to_be_focused()
    made.get_by_role("button", name="Cancel").click()


STRANGE = """
from toolwire import Context, ToolServer

strange = ToolServer("strange")


@strange.tool
async def sign_in(context: Context) -> str:
    "Ask for an address that is none."
    return (await context.elicit_url("Please open this", "http://[", "1")).action
"""


def test_an_address_that_is_none_is_shown_and_can_be_declined(start, tmp_path):
    """The invalid URL is shown as text, without a link, and the tool gets the user's answer."""
    (tmp_path / "app.py").write_text(STRANGE)
    page, _ = start("app.py")
    page.get_by_role("button", name="sign_in").click()
    made = call(page)
    expect(made.get_by_text("http://[", exact=True)).to_be_visible()
    expect(made.get_by_role("link")).to_have_count(0)
    made.get_by_role("button", name="Decline").click()
    expect(made.get_by_text("done in")).to_be_visible()


def test_a_target_that_sets_up_logging_does_not_fill_the_terminal(start, tmp_path):
    """Some libraries set up logging; the log records of the page's own requests stay hidden."""
    text = (
        "import logging\nlogging.basicConfig(level=logging.INFO)\n\n\ndef first() -> str:\n    return 'one'\n"
    )
    (tmp_path / "app.py").write_text(text)
    page, running = start("app.py")
    expect(call(page).get_by_text("one", exact=True)).to_be_visible()
    assert not [line for line in running.lines if "WebSocket" in line or "connection open" in line]
