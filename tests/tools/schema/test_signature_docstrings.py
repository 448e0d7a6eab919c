"""What is read from docstrings of each style."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.tools.schema.signature import Documentation, read_docstring

GOOGLE = """Greet a person.

    Longer text,
    over two lines.

    Args:
        name: Person to greet
        formal (bool, optional): Use formal greeting,
            even among friends.
        url: Such as http://host:80/x

    Returns:
        str: The greeting.

    Raises:
        ValueError: If there is none.
    """
NUMPY = """Greet a person.

    Longer text,
    over two lines.

    Parameters
    ----------
    name : str
        Person to greet
    formal : bool, optional
        Use formal greeting,
        even among friends.
    url
        Such as http://host:80/x

    Returns
    -------
    str
        The greeting.
    """
SPHINX = """Greet a person.

    Longer text,
    over two lines.

    :param name: Person to greet
    :param bool formal: Use formal greeting,
        even among friends.
    :param url: Such as http://host:80/x
    :type name: str
    :returns: The greeting.
    :raises ValueError: If there is none.
    """
NAMES = ["name", "formal", "url"]


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_style_says_the_same(text):
    """Description and parameters are read, wrapped lines joined, other sections left out."""
    assert read_docstring(text, NAMES) == Documentation(
        "Greet a person.\n\nLonger text,\nover two lines.",
        {
            "name": "Person to greet",
            "formal": "Use formal greeting, even among friends.",
            "url": "Such as http://host:80/x",
        },
    )


@pytest.mark.parametrize("text", [None, "", "   \n  "], ids=repr)
def test_no_docstring_says_nothing(text):
    """An empty docstring gives no description and no parameters."""
    assert read_docstring(text, NAMES) == Documentation()


@pytest.mark.parametrize(
    "text",
    [
        "Just text: with a colon.",
        "Open it.\n\n:memory: is the default\n:other: too",
        "Do.\n\nSteps:\n  - one: two\n  - three\nEnd: it",
        "Args: are great",
        "Do it.\n\nArgs:\nname: not indented",
    ],
)
def test_prose_is_not_taken_for_sections(text):
    """Lines with a colon stay in the description."""
    assert read_docstring(text, ["name"]) == Documentation(text)


def test_text_after_the_sections_is_kept():
    """Text after a Google section is part of the description."""
    text = "Go.\n\nArgs:\n    name: a name\n\nNote:\n    Never twice.\n\nLast words."
    assert read_docstring(text, ["name"]) == Documentation(
        "Go.\n\nNote:\n    Never twice.\n\nLast words.", {"name": "a name"}
    )


def test_only_parameters_of_the_function_count():
    """Names in the docstring that are no parameters are ignored."""
    assert read_docstring("Go.\n\nArgs:\n    name: a name\n    ghost: none", ["name"]).parameters == {
        "name": "a name"
    }


def test_the_style_is_that_which_names_the_parameters():
    """With sections of two styles, the one that names the function's parameters is read."""
    text = "Go.\n\n:rtype: str\n:raises A: a\n:raises B: b\n\nArgs:\n    name: a name\n"
    assert read_docstring(text, ["name"]).parameters["name"] == "a name"


def test_a_numpy_line_may_name_several():
    """`a, b : int` describes both."""
    text = "Add.\n\nParameters\n----------\na, b : int\n    A number\n"
    assert read_docstring(text, ["a", "b"]).parameters == {"a": "A number", "b": "A number"}


def test_lists_in_a_description_keep_their_lines():
    """Wrapped lines are joined, but the items of a list are not."""
    text = "Go.\n\nArgs:\n    mode: One of\n        - a: first\n        - b: second\n"
    assert read_docstring(text, ["mode"]).parameters == {"mode": "One of\n- a: first\n- b: second"}


@given(st.text(alphabet="abAgrs:Prmte \n-@`*.()[]", max_size=200))
def test_no_text_is_too_odd(text):
    """Any docstring can be read without an error."""
    assert isinstance(read_docstring(text, ["a", "b"]).description, str)
