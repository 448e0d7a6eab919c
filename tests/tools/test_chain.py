"""Definitions of chains: references to the input and to earlier results, and the checks before anything runs."""

import pytest

from toolwire.errors import ToolDefinitionError, UsageError
from toolwire.tools.chain import BadReference, Plan, Reference, Results, chain, load_chains, plan_all, step

TOOLS = {
    "search": {
        "name": "search",
        "inputSchema": {
            "type": "object",
            "properties": {"query": {"type": "string", "minLength": 2}, "limit": {"type": "integer"}},
            "required": ["query"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    "fetch": {
        "name": "fetch",
        "inputSchema": {
            "type": "object",
            "properties": {"page": {"$ref": "#/$defs/page"}, "headers": {"type": "object"}},
            "required": ["page"],
            "$defs": {"page": {"type": "object", "properties": {"next": {"$ref": "#/$defs/page"}}}},
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    },
    "delete": {"name": "delete", "inputSchema": {"type": "object"}},
}


def plan(*chains):
    return plan_all({each.name: each for each in chains}, TOOLS)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("input/topic", Reference("input", ("topic",))),
        ("search", Reference("search")),
        ("search.text", Reference("search", as_text=True)),
        ("search/a~1b/~0/0/", Reference("search", ("a/b", "~", "0", ""))),
        ("search/ünï code", Reference("search", ("ünï code",))),
    ],
)
def test_references(text, reference):
    """A reference is a name with a JSON pointer or `.text`; its string form parses to the same reference."""
    assert Reference.parse(text) == reference
    assert Reference.parse(str(reference)[2:-1]) == reference


@pytest.mark.parametrize(
    "text", ["", " ", "a b", "/a", "search.json", "input.text", "__import__('os')", "a[0]", "a.b.c"]
)
def test_what_is_no_reference_is_refused(text):
    """References are no expressions: anything else is an error when the chain is made."""
    with pytest.raises(ToolDefinitionError, match=r"chain 'c', step 1 \(search\)"):
        chain("c", "", [step("search", {"query": f"${{{text}}}"})])


RESULTS = {
    "data": {
        "content": [{"type": "text", "text": "shown"}],
        "structuredContent": {"items": [{"url": "u0"}, {"url": None}], "": 1, "a/b": 2, "n": 5},
    },
    "json": {"content": [{"type": "text", "text": '{"a": [1, 2]}'}]},
    "text": {"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    "image": {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]},
    "empty": {},
}


def results():
    found = Results({"topic": "tea", "n": 3, "deep": {"x": [7]}}, lambda name: name in ("given", "other"))
    for name, result in RESULTS.items():
        found.add(name, result)
    return found


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("${input/topic}", "tea"),
        ("${input/n}", 3),
        ("${input}", {"topic": "tea", "n": 3, "deep": {"x": [7]}}),
        ("${input/deep/x/0}", 7),
        ("about ${input/topic} x${input/n}", "about tea x3"),
        ("${data/items/0/url}", "u0"),
        ("${data/items/1/url}", None),
        ("${data/items}", [{"url": "u0"}, {"url": None}]),
        ("all: ${data/items/0}", 'all: {"url":"u0"}'),
        ("${data/}", 1),
        ("${data/a~1b}", 2),
        ("${data.text}", "shown"),
        ("${json/a/1}", 2),
        ("${json}", '{"a": [1, 2]}'),
        (["${json/a/0}", "${json}"], [1, '{"a": [1, 2]}']),
        ("${text}", "one\ntwo"),
        ("${text.text}", "one\ntwo"),
        ({"k": ["${input/n}", {"d": "${json/a}"}]}, {"k": [3, {"d": [1, 2]}]}),
        ({"left": "${input/given}", "kept": 1}, {"kept": 1}),
        (["${input/other}", 1], [1]),
        ("$${input/topic} costs $5 $ {x}", "${input/topic} costs $5 $ {x}"),
        ("$$${input/n}", "$${input/n}"),
        (5, 5),
        (None, None),
        (True, True),
    ],
)
def test_values_of_references(value, filled):
    """A reference alone keeps the value's type, in a text it becomes text; absent optional inputs are left out."""
    assert results().fill(value) == filled


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("${input/missing}", "input has no 'missing', it has topic, n, deep"),
        ("x ${input/given}", "input has no 'given'"),
        ("${data/items/2}", "data/items is a list of 2 items, and has no '2'"),
        ("${data/items/-1}", "has no '-1'"),
        ("${data/items/" + "9" * 50 + "}", "is a list of 2"),
        ("${data/items/\u0661}", "is a list of 2"),
        ("${data/n/x}", "data/n is 5, and has no 'x'"),
        ("${data/items/1/url/x}", "data/items/1/url is null"),
        ("${text/a}", "is text that is not JSON; use ${text.text} for the whole text"),
        ("${image.text}", "the result of 'image' has no text"),
        ("${image}", "has neither structured content nor text"),
        ("${empty/a}", "has neither structured content nor text"),
    ],
)
def test_what_is_not_there(value, text):
    """The error has the reference, how far it could be followed, and what is there."""
    with pytest.raises(BadReference) as caught:
        results().fill(value)
    assert text in str(caught.value)


def test_arguments_that_explode_are_refused():
    """A text may refer to the same large value many times, so the size of arguments is limited."""
    found = Results({"big": "x" * 1_000_000}, lambda _: False)
    with pytest.raises(BadReference, match="bytes; the limit is"):
        found.arguments({"a": "${input/big}" * 20})


def test_the_input_is_made_of_what_the_steps_need():
    """The schemas of the steps' parameters are copied with $defs; a reference in a text is a required string."""
    made = plan(
        chain(
            "c",
            "Do it.",
            [
                step("search", {"query": "${input/topic}", "limit": "${input/limit}"}),
                step(
                    "fetch",
                    {"page": "${input/page}", "headers": {"x": "by ${input/author}", "y": "${input/any}"}},
                ),
            ],
        )
    )["c"]
    assert made.input_schema == {
        "type": "object",
        "properties": {
            "topic": {"type": "string", "minLength": 2},
            "limit": {"type": "integer"},
            "page": {"$ref": "#/$defs/page"},
            "author": {"type": "string"},
            "any": {},
        },
        "required": ["topic", "page", "author"],
        "additionalProperties": False,
        "$defs": TOOLS["fetch"]["inputSchema"]["$defs"],
    }
    assert [made.is_optional(name) for name in ("limit", "topic")] == [True, False]


def test_a_chain_is_as_careful_as_its_steps():
    """It is read-only if all steps are, and destructive if one may be."""
    reading = chain("r", "", [step("search", {"query": "ab"}), step("fetch", {"page": {}})])
    both = chain("b", "", [step("search", {"query": "ab"}), step("delete")])
    plans = plan(reading, both)
    assert plans["r"].annotations == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": True,
    }
    assert (plans["b"].annotations["readOnlyHint"], plans["b"].annotations["destructiveHint"]) == (
        False,
        True,
    )


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (
            [step("serch", {"query": "ab"})],
            "step 1 (serch): there is no tool 'serch'. Did you mean 'search'?",
        ),
        ([step("search")], "search requires 'query'"),
        ([step("search", {"query": "ab", "page": 1})], "search has no 'page'; it has query, limit"),
        ([step("search", {"query": 5})], "Input should be of type string"),
        ([step("c")], "chain 'c' calls itself: c -> c"),
    ],
)
def test_what_cannot_run_is_said_before(steps, text):
    """Unknown tools, missing, unknown or wrong arguments, and a chain that calls itself are reported."""
    made = plan(chain("c", "", steps))["c"]
    assert isinstance(made, str)
    assert text in made


def test_chains_of_chains():
    """A chain may call others, but not itself indirectly, and the total number of calls is limited."""
    inner = chain("inner", "", [step("search", {"query": "${input/q}"})])
    outer = chain("outer", "", [step("inner", {"q": "${input/word}"}), step("delete")])
    plans = plan(outer, inner)
    assert plans["outer"].input_schema["properties"] == {"word": {"type": "string", "minLength": 2}}
    assert plans["outer"].calls == 2
    loop = plan(chain("a", "", [step("b")]), chain("b", "", [step("a")]))
    assert "a -> b -> a" in loop["a"]
    assert isinstance(loop["b"], str)
    bomb = [chain("c0", "", [step("delete")] * 10)]
    bomb += [chain(f"c{each}", "", [step(f"c{each - 1}")] * 10) for each in range(1, 30)]
    plans = plan(*reversed(bomb))
    assert isinstance(plans["c2"], Plan)
    assert "the limit is 1,000" in plans["c3"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: chain("c", "", []), "a chain must have 1 to 100 steps, got 0"),
        (lambda: chain("c", "", [step("a")] * 101), "got 101"),
        (lambda: chain("", "", [step("a")]), "a name must not be empty"),
        (lambda: chain("c", "", ["a"]), "steps are made by step"),
        (lambda: chain("c", "", [step(5)]), "steps are made by step"),
        (lambda: chain("c", "", [step("a", name="x y")]), "the name 'x y' must be"),
        (lambda: chain("c", "", [step("a", name="x"), step("b", name="x")]), "the name 'x' is taken"),
        (lambda: chain("c", "", [step("a", name="input")]), "the name 'input' is taken"),
        (lambda: chain("c", "", [step("a", timeout=0)]), "timeout must be over 0 seconds"),
        (
            lambda: chain("c", "", [step("a", {"x": "${b}"}), step("b")]),
            "${b} refers to 'b', which is neither the input nor an earlier step",
        ),
        (lambda: chain("c", "", [step("a", {"x": "${a}"})]), "nor an earlier step (known: input)"),
        (lambda: chain("c", "", [step("a", {"x": object()})]), "step 1 (a)"),
        (lambda: chain("c", "", [step("a")], result="${x}"), "chain 'c', result: ${x} refers to 'x'"),
    ],
)
def test_what_is_wrong_in_itself_is_refused_at_once(make, text):
    """These mistakes are errors when the chain is made, whatever tools there are."""
    with pytest.raises(ToolDefinitionError) as caught:
        make()
    assert text in str(caught.value)


def test_a_tool_that_is_used_twice_gets_two_names():
    """Later steps can refer to either."""
    made = chain(
        "c", "", [step("a.b"), step("a.b", {"x": "${a_b}"}), step("input"), step("d", {"x": "${a_b_2}"})]
    )
    assert [each.name for each in made.steps] == ["a_b", "a_b_2", "input_2", "d"]


def test_a_declared_input_is_checked():
    """It must be a valid schema that has all inputs that the steps refer to."""
    steps = [step("search", {"query": "${input/q}"})]
    good = {"type": "object", "properties": {"q": {"type": "string"}}}
    assert plan(chain("c", "", steps, input_schema=good))["c"].input_schema == good
    assert (
        "${input/q} is not in its input_schema (it has p)"
        in plan(chain("c", "", steps, input_schema={"properties": {"p": {}}}))["c"]
    )
    assert "not valid" in plan(chain("c", "", steps, input_schema={"properties": []}))["c"]


TOML = """
[research]
description = "Search, and fetch the first."
tags = ["web"]
result = { url = "${find/0/url}" }

[[research.steps]]
tool = "search"
name = "find"
args = { query = "${input/topic}" }

[[research.steps]]
tool = "fetch"
args = { page = "${find/0}" }
timeout = 5
max_price = "0.10"
"""


def test_chains_in_a_file(tmp_path):
    """They are equal to chains made in Python."""
    path = tmp_path / "chains.toml"
    path.write_text(TOML)
    steps = [
        step("search", {"query": "${input/topic}"}, name="find"),
        step("fetch", {"page": "${find/0}"}, timeout=5, max_price="0.10"),
    ]
    about = "Search, and fetch the first."
    assert load_chains(path) == [
        chain("research", about, steps, tags=["web"], result={"url": "${find/0/url}"})
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no chains"),
        ("a = 1", "it must be a table, got 1"),
        ("[a", "is not TOML"),
        ("[a]\nsteps = []", "description is missing"),
        ("[a]\ndescription = 'x'\nsteps = []", "a chain must have 1 to 100 steps"),
        ("[a]\ndescription = 'x'\nsteps = [{tool = 5}]", "step 1: tool must be text, got 5"),
        (
            "[a]\ndescription = 'x'\nsteps = [{tool = 'b', arg = {}}]",
            "no setting 'arg'; did you mean 'args'?",
        ),
        ("[a]\ndescription = 'x'\nsteps = [{tool = 'b', args = 5}]", "args must be a table, got 5"),
        ("[a]\ndescription = 'x'\nsteps = [{tool = 'b', args = {x = '${y}'}}]", "${y} refers to 'y'"),
        ("[a]\ndescription = 'x'\nsteps = [{args = {}}]", "step 1: tool is missing"),
        ("[a]\ndescription = 'x'\nsteps = [{tool = 'b', timeout = '10'}]", "timeout must be a number, got"),
        (
            "[a]\ndescription = 'x'\nsteps = [{tool = 'b', timeout = true}]",
            "timeout must be a number, got true",
        ),
        ("[a]\ndescription = 'x'\nsteps = [{tool = 'b', name = 3}]", "step 1: name must be text, got 3"),
        ("[a]\ndescription = 'x'\nsteps = [{tool = 'b', max_price = []}]", "max_price must be a number, got"),
        ("[a]\ndescription = 'x'\ntimeout = '10'\nsteps = [{tool = 'b'}]", "chain 'a': timeout must be"),
        ("[a]\ndescription = 'x'\ntags = 'web'\nsteps = [{tool = 'b'}]", "tags must be a list, got"),
        ("[a]\ndescription = 'x'\ntitle = 3\nsteps = [{tool = 'b'}]", "title must be text, got 3"),
        (
            "[a]\ndescription = 'x'\ninput_schema = 'x'\nsteps = [{tool = 'b'}]",
            "input_schema must be a table",
        ),
        ("\udcff", "is not TOML"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, text, said):
    """The error has the file's name and says what is wrong, and where."""
    path = tmp_path / "chains.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError) as caught:
        load_chains(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    with pytest.raises(UsageError, match="cannot be read"):
        load_chains(tmp_path)
