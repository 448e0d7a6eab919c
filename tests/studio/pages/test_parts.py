"""Parts that several tabs use, tested without a page: values as text."""

from toolwire.studio.pages.parts import to_text


def test_a_value_that_is_nested_too_deeply_is_a_sentence():
    """Schemas and frames from others may be nested that deeply; the page shows a sentence instead of failing."""
    deep = {}
    for _ in range(5_000):
        deep = {"a": deep}
    assert "nested too deeply" in to_text(deep)
    assert to_text({"a": [1, {2}]}).split() == ["{", '"a":', "[", "1,", '"{2}"', "]", "}"]
