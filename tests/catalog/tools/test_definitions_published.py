"""A real vendor's published actions: each becomes a tool, and every complete sample of arguments is accepted."""

import pytest

from shared.published import ACTIONS, PRODUCTS, published
from toolwire.catalog.tools.definitions import Entry, define
from toolwire.tools.schema.arguments import InvalidArguments
from toolwire.tools.schema.json_schema import from_json_schema

EVERY = published()


def test_the_list_is_what_it_says():
    """The data has 890 actions of 114 products, all kinds of schemas, and mostly complete samples."""
    products = {each.entry.id.partition("/")[0] for each in EVERY}
    assert (len(EVERY), len(products)) == (ACTIONS, PRODUCTS) == (890, 114)
    assert len({each.entry.id for each in EVERY}) == ACTIONS
    assert sum("items" in each.entry.schema for each in EVERY) > 20
    assert sum(None in each.sample.values() for each in EVERY) >= 28
    assert sum("👍" in each.sample.values() for each in EVERY) > 20
    assert sum(not each.entry.schema for each in EVERY) > 100
    assert 700 < sum(each.fits for each in EVERY) < ACTIONS


@pytest.mark.slow
def test_every_published_action_becomes_a_tool():
    """None is skipped, and each has the parameters that were published."""
    definitions, skipped = define([each.entry for each in EVERY])
    assert skipped == []
    assert len(definitions) == ACTIONS
    by_id = {each.id: each for each in definitions}
    for each in EVERY:
        schema = by_id[each.entry.id].schema
        assert set(schema["properties"]) == set(each.entry.schema)
        required = {name for name, one in each.entry.schema.items() if one["required"]}
        assert set(schema.get("required", ())) == required


@pytest.mark.slow
def test_every_published_sample_that_fits_the_api_is_accepted():
    """The sample is unchanged by validation; a truncated sample only fails for missing fields."""
    definitions, _ = define([each.entry for each in EVERY])
    checks = {each.id: from_json_schema(each.schema) for each in definitions}
    for each in EVERY:
        check = checks[each.entry.id]
        if each.fits:
            assert check.validate(each.sample) == each.sample
            continue
        with pytest.raises(InvalidArguments) as caught:
            check.validate(each.sample)
        assert {violation.message for violation in caught.value.violations} == {"Field required"}


@pytest.mark.slow
def test_what_is_published_is_read_the_same_again():
    """A repaired schema needs no further repair, so a stored one does not change."""
    definitions, _ = define([each.entry for each in EVERY])
    for each in definitions:
        (again,), skipped = define([Entry(each.id, each.name, each.description, each.schema)])
        assert skipped == []
        assert (again.schema, again.repairs) == (each.schema, ())
