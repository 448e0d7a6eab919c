"""Markdown exports are readable, and text of a conversation cannot change the document around it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from shared.transcripts import SESSION, Writer, call, harbour, image, text
from toolwire import sessions
from toolwire.sessions import export_markdown


def exported(tmp_path, *blocks, prompt="hi"):
    """Return the Markdown of a session with one answer."""
    writer = Writer()
    writer.respond(writer.ask(None, prompt), *blocks)
    writer.write(tmp_path)
    return sessions.export_session(SESSION, config_dir=tmp_path)


def test_a_conversation_reads_well(tmp_path):
    """Title, facts, prompts as quotes, calls with inputs and results, the subagent at its call."""
    harbour(tmp_path)
    shown = sessions.export_session(SESSION, config_dir=tmp_path)
    for part in (
        "# Harbour festival\n",
        f"- Session: {SESSION}\n- Directory: /work\n- Branch: quay\n- Tag: travel\n",
        "- Tokens: 400 in, 80 out, 4,000 read from the cache\n",
        "\n> Where could our harbour festival be?\n",
        "\n> *Thinking*\n>\n> First the numbers.\n",
        "\nI will look at the **numbers**.\n",
        "\n**Bash**\n\ncommand: `cat visitors.csv`\n\ndescription: `Look`\n\nReturned:\n",
        "\n```\nLisbon 120000\nFaro 45000\n```\n",
        "\n### Subagent scout: compare\n",
        "\nFaro is small.\n\n*End of subagent a1*\n",
        "*(picture, image/png, 72 bytes)*",
        "\nFailed:\n\n```\nExit code 1\n```\n",
    ):
        assert part in shown, part
    assert shown.index("### Subagent") < shown.index("Failed:")


@given(st.text(alphabet="`~<>!&[]()#*\n ab/|", max_size=60))
@example("```\nunclosed")
@example("~~~ x\n```")
@example("`<b>` <script> ``<x>`")
@example("> ```\n<x>")
def test_an_answer_cannot_swallow_what_follows(said):
    """It has no HTML, no pictures and no open code block: a heading after it is still a heading."""
    made = export_markdown._tame(said)
    parser = MarkdownIt("commonmark", {"html": True})
    tokens = parser.parse(f"{made}\n\n## Behind\n")
    inner = [each for token in tokens for each in token.children or []]
    kinds = {each.type for each in [*tokens, *inner]}
    assert not kinds & {"html_block", "html_inline", "image"}, made
    assert tokens[-2].content == "Behind"
    assert tokens[-3].type == "heading_open"
    assert tokens[-3].level == 0


@given(st.text(alphabet="`~ab\n", max_size=40))
def test_output_of_tools_stays_in_its_block(said):
    """This holds whatever fences the output itself contains."""
    tokens = MarkdownIt("commonmark").parse(export_markdown._fence(said))
    assert [token.type for token in tokens] == ["fence"]
    assert tokens[0].content == f"{said.rstrip()}\n"


@pytest.mark.parametrize(
    "title", ["# x\n\n## Fake", "[a](javascript:x)", "<img src=x onerror=y>", "a|b`c`*d*"]
)
def test_a_title_stays_a_title(tmp_path, title):
    """A title is one line without markup."""
    harbour(tmp_path)
    sessions.rename_session(SESSION, title, config_dir=tmp_path)
    shown = sessions.export_session(SESSION, config_dir=tmp_path)
    tokens = MarkdownIt("commonmark").parse(shown)
    assert tokens[0].tag == "h1"
    assert "".join(each.content for each in tokens[1].children) == " ".join(title.split())
    assert {each.type for each in tokens[1].children} <= {"text", "text_special"}


def test_unseen_characters_are_made_visible(tmp_path):
    """Colours are removed; characters that are invisible or control the terminal are shown as code points."""
    shown = exported(
        tmp_path,
        text("a\x1b[31mred\x1b[0m \u202eevil\u202c \x1b]0;title\x07 \u200b"),
        prompt="\x00\x9b\ud800",
    )
    assert "ared ⟦U+202E⟧evil⟦U+202C⟧ ⟦U+001B⟧]0;title⟦U+0007⟧ ⟦U+200B⟧" in shown
    assert "> ⟦U+0000⟧⟦U+009B⟧⟦U+D800⟧" in shown


def test_a_very_long_text_is_cut_and_says_so(tmp_path):
    """The document stays readable."""
    shown = exported(tmp_path, text("x" * 300_000), call("t", command="y" * 250_000))
    assert "*(100,000 more characters; the JSONL export has them all)*" in shown
    assert "*(50,000 more characters; the JSONL export has them all)*" in shown
    assert len(shown) < 401_000


def test_a_call_without_result_and_odd_blocks(tmp_path):
    """A call without a result, a picture elsewhere and an unknown kind of block are named."""
    elsewhere = {"type": "image", "source": {"type": "url", "url": "https://x.example/a_b.png"}}
    shown = exported(tmp_path, call("t", command="x"), image("!!"), elsewhere, {"type": "odd", "a": 1})
    assert "*No result*" in shown
    assert "*(picture at https://x.example/a\\_b.png)*" in shown
    assert '*odd*\n\n```\n{\n  "a": 1\n}\n```' in shown
