"""The HTML page: complete, readable, and harmless whatever the transcript says."""

import base64
import hashlib
import html
import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.transcripts import PNG, SESSION, Writer, call, harbour, image, text
from toolwire import sessions
from toolwire._support.words import reveal
from toolwire.sessions import export_html

TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "nav",
        "article",
        "details",
        "summary",
    ),
    *(
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "p",
        "div",
        "span",
        "b",
        "em",
        "strong",
        "s",
        "code",
        "pre",
        "time",
    ),
    *("dl", "dt", "dd", "ol", "ul", "li", "blockquote", "hr", "br", "a", "img"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "src", "alt", "aria-label"),
    *("decoding", "tabindex", "start"),
}
VOID = {"meta", "hr", "br", "img"}
ATTACKS = [
    "</script><script>alert(1)</script>",
    "</style></pre></details></article><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "--><!--<script>",
    "[x](javascript:alert(1)) ![x](https://evil.example/pixel.png) <https://evil.example/>",
    "![x](data:image/svg+xml;base64,PHN2Zz4=) [r]: javascript:alert(1)\n\n[r]",
    "&lt;script&gt; &#x3c;script&#x3e; &#x202e;abc",
    '```"><script>alert(1)</script>\n</code></pre><script>\n```',
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    "| a |\n|---|\n| <iframe src=//evil.example> | more | cells |",
    "\x00\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\u202e\u2066",
    "\ud800 \udfff",
    "<base href=//evil.example><link rel=stylesheet href=//e>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
]


class Page(HTMLParser):
    """A strict reader of a page: only known tags and attributes, all tags closed, and no link that leads out."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.said = []
        self.images = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, (tag, name)
            if name == "href":
                assert re.fullmatch(r"#(prompts|m\d+)", value), value
            elif name == "src":
                assert re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+", value)
                self.images.append(base64.b64decode(value.partition(",")[2]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.said.append(data)

    def handle_comment(self, data):
        raise AssertionError(data)

    @property
    def text(self):
        """Return all visible text on one line."""
        return " ".join("".join(self.said).split())


def exported(config, *blocks, prompt="hi", title=None):
    """Return the page of a session with one answer."""
    writer = Writer()
    writer.respond(writer.ask(None, prompt), *blocks)
    if title is not None:
        writer.note(type="custom-title", customTitle=title)
    writer.write(config)
    return sessions.export_session(SESSION, "html", config_dir=config)


def test_the_page_has_everything(tmp_path):
    """Title, metadata, prompts, thinking, calls, results, picture and subagent are in the conversation's order."""
    harbour(tmp_path)
    page = Page(sessions.export_session(SESSION, "html", config_dir=tmp_path))
    parts = [
        *("Harbour festival", SESSION, "quay", "Where could our harbour festival be?", "Thinking"),
        *("First the numbers.", "I will look at the numbers.", "Bash", "cat visitors.csv", "Lisbon 120000"),
        *(
            "Read",
            "Agent",
            "Subagent scout",
            "Faro is small.",
            "Returned",
            "Lisbon.",
            "failed",
            "Exit code 1",
        ),
        *("It has the largest harbour.", "Prompts", "Where could our harbour festival be?"),
    ]
    at = 0
    for part in parts:
        at = page.text.index(part, at) + 1
    assert page.images == [PNG]


def test_the_policy_allows_the_style_and_pictures_only(tmp_path):
    """Only this style is allowed, by its hash; the policy comes before everything that it applies to."""
    page = exported(tmp_path, text("x"))
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    [style] = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<title>") + 2000
    assert page.index("<meta charset") < 100
    assert "<" not in style
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
@pytest.mark.parametrize(
    "place", ["prompt", "answer", "thinking", "tool", "input", "result", "title", "kind"]
)
def test_nothing_in_a_transcript_becomes_part_of_the_page(tmp_path, attack, place):
    """In every place of a transcript, markup is shown as text."""
    blocks = {
        "answer": [text(attack)],
        "thinking": [{"type": "thinking", "thinking": attack}],
        "tool": [call("t", attack, **{attack: attack})],
        "input": [call("t", "Bash", command=attack, more={attack: [attack]})],
        "kind": [{"type": attack, "x": attack}],
    }.get(place, [text("fine"), call("t", "Bash", command="ls")])
    writer = Writer()
    lines = writer.respond(writer.ask(None, attack if place == "prompt" else "hi"), *blocks)
    if place == "result":
        writer.give(lines[-1], "t", [text(attack), image(attack, attack)])
    writer.note(type="custom-title", customTitle=attack if place == "title" else "Title")
    writer.write(tmp_path)
    Page(sessions.export_session(SESSION, "html", config_dir=tmp_path))


@given(st.text(alphabet="<>&\"'`*_~|[]()!#-=\n\\/ ab1\x1b\u202e", max_size=80))
@example("> " * 300 + "deep words")
@example("- " * 300 + "deep words")
@example("|a|\n|-|\n|b|hidden|")
@example("```info words\ncode\n```")
@example("1. one\n2. two\n\n7) seven")
def test_markdown_hides_nothing(said):
    """Every letter of an answer is on the page, in order, and the only tags are known ones."""
    page = Page(export_html._render_answer(said))
    shown, wanted = ([char for char in each if char.isalpha()] for each in ("".join(page.said), reveal(said)))
    assert shown == wanted


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "image/svg+xml"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "image/png"),
        (b"<html><script>alert(1)</script>", "text/html"),
        ("not base64!!", "image/png"),
        ("=" * 9, "image/png"),
        ("", "image/png"),
        ("\u202e", "image/png"),
        (b"BM" + b"x" * 50, "image/bmp"),
        (PNG + b"x" * (9 << 20), "image/png"),
    ],
    ids=range(9),
)
def test_only_pictures_are_shown(tmp_path, data, media_type):
    """Pictures are recognised by their first bytes, not their type; broken, other and huge ones are left out."""
    page = exported(tmp_path, image(data, media_type))
    assert Page(page).images == []
    assert "Picture left out" in page
    assert len(page) < 100_000


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0jpeg", "image/jpeg"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_a_picture_has_the_type_of_its_bytes(tmp_path, data, media_type):
    """The declared type does not matter."""
    page = exported(tmp_path, image(data, 'text/html" onload="x'))
    assert Page(page).images == [data]
    assert f'src="data:{media_type};base64,' in page


def test_all_pictures_together_are_bounded(tmp_path, monkeypatch):
    """The page says what it left out."""
    monkeypatch.setattr(export_html, "_LARGEST_PICTURES", 3 * len(PNG))
    page = exported(tmp_path, *[image(PNG)] * 5)
    assert len(Page(page).images) == 3
    assert page.count("the limit of the page is reached") == 2


def test_a_picture_elsewhere_is_not_loaded(tmp_path):
    """Its address is shown as text."""
    block = {"type": "image", "source": {"type": "url", "url": "https://evil.example/pixel.png"}}
    page = Page(exported(tmp_path, block))
    assert page.images == []
    assert "https://evil.example/pixel.png (not loaded)" in page.text


def test_unseen_characters_are_made_visible(tmp_path):
    """This includes characters that Markdown would produce from an entity."""
    page = exported(
        tmp_path, text("&#x202e; \u202e \x07"), prompt="\x1b[1mbold\x1b[0m\x1b[2J", title="\u202etitle"
    )
    assert html.escape("&#x202e;") in page
    assert "⟦U+202E⟧ ⟦U+0007⟧" in page
    assert "bold⟦U+001B⟧[2J" in page
    assert "<title>⟦U+202E⟧title</title>" in page
    assert not set(page) & set("\u202e\x1b\x07\x00")


def test_huge_texts_are_cut_and_say_so(tmp_path):
    """The page stays small enough for a browser; the JSONL export has the complete text."""
    blocks = (
        text("word " * 100_000),
        call("t", command="x" * 500_000),
        {"type": "thinking", "thinking": "y" * 10**6},
    )
    page = exported(tmp_path, *blocks, prompt="p" * 300_000, title="t" * 10**6)
    Page(page)
    assert page.count("the JSONL export has them all") == 4
    assert len(page) < 1_000_000


def test_the_list_of_prompts_is_bounded(tmp_path):
    """Its links lead to the prompts."""
    writer = Writer()
    at = None
    for number in range(600):
        at = writer.ask(at, f"prompt {number}")
    writer.write(tmp_path)
    page = sessions.export_session(SESSION, "html", config_dir=tmp_path)
    Page(page)
    assert "and 100 more" in page
    for target in re.findall(r'href="#(m\d+)"', page):
        assert page.count(f'id="{target}"') == 1


def test_keyboard_and_phone(tmp_path):
    """Scrolling parts can be focused, folding parts are details elements, and the width is the device's."""
    harbour(tmp_path)
    page = sessions.export_session(SESSION, "html", config_dir=tmp_path)
    assert page.count("<pre") == page.count('<pre tabindex="0">')
    assert page.count("<details") == page.count("<summary>") == 6
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert '<html lang="en">' in page
    assert "prefers-color-scheme: dark" in page
    assert ":focus-visible" in page
