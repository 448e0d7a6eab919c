"""JSON schemas from Pydantic's own, without what nobody asked for.

Owns the differences from Pydantic's generator: no titles made up from names, keys in the order in which they were
written, text in `Annotated` as the description of a field, an object at the top and not a reference to one, and a
refusal of what no JSON can be. It validates nothing.
"""

import typing
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from toolwire.tools.schema.annotations import described, metadata_of

_FIRST: Final = ("type", "title", "description", "properties", "required", "additionalProperties")


class Generator(GenerateJsonSchema):
    """Makes one schema, then tells what it has seen."""

    def __init__(self, *, closed: bool) -> None:
        super().__init__(by_alias=True, ref_template="#/$defs/{model}")
        self.closed = closed
        """Whether a class that does not say so refuses fields that it does not have."""
        self.undecided = False
        """There is a class with settings of its own that does not say what it thinks of extra fields."""
        self.lenient = False
        """There is a class that allows extra fields by its own word."""
        self._enums: set[str] = set()

    def object_schema(self, schema: Any, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
        """The schema of a type; a top that only refers to a definition is replaced by that definition."""
        result = self.generate(schema, mode=mode)
        for definition in result.get("$defs", {}).values():
            if "properties" not in definition and definition.get("title") in self._enums:
                del definition["title"]
        while (reference := result.pop("$ref", None)) is not None:
            result = {**result["$defs"][reference.removeprefix("#/$defs/")], **result}
        return _ordered(result)

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Keep the order in which it was written."""
        del parent_key
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Say no: a field has a title only if its author gave it one."""
        del schema
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Refuse a part of a union that has no schema; a default that has none is just not shown."""
        if kind == "skipped-choice":
            raise PydanticInvalidForJsonSchema(detail)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """A Pydantic model."""
        return self._of_class(super().model_schema(schema), schema["cls"], schema["cls"].model_config)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """A dataclass, standard or Pydantic's."""
        config = getattr(schema["cls"], "__pydantic_config__", None)
        return self._of_class(super().dataclass_schema(schema), schema["cls"], config)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """A TypedDict."""
        result = super().typed_dict_schema(schema)
        cls = schema.get("cls")
        return (
            result if cls is None else self._of_class(result, cls, getattr(cls, "__pydantic_config__", None))
        )

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """An enumeration, by value. Its name comes back as a title later on, and is taken out at the end."""
        self._enums.add(schema["cls"].__name__)
        return super().enum_schema(schema)

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        """Refuse `type[X]`, for which Pydantic would allow any value and then take none."""
        raise PydanticInvalidForJsonSchema(
            f"the class {schema['cls'].__name__}, or a subclass, is no JSON value"
        )

    def generator_schema(self, schema: core_schema.GeneratorSchema) -> JsonSchemaValue:
        """Refuse iterators, whose items Pydantic checks only when they are read."""
        del schema
        raise PydanticInvalidForJsonSchema("an iterator cannot be checked before the call; use list[...]")

    def _of_class(self, result: JsonSchemaValue, cls: type[Any], config: Any) -> JsonSchemaValue:
        """What holds for every class with fields. `config` is None where a class takes that of what it is in."""
        settings = config or {}
        if "title" not in settings and "model_title_generator" not in settings:
            _untitled(result, cls)
        if "properties" in result:
            extra = settings.get("extra")
            self.lenient |= extra in ("allow", "ignore")
            self.undecided |= config is not None and extra is None
            if self.closed and extra is None:
                result.setdefault("additionalProperties", False)
            _describe(result["properties"], cls)
        return _ordered(result)


def _untitled(result: JsonSchemaValue, cls: type[Any]) -> JsonSchemaValue:
    if result.get("title") == cls.__name__:
        del result["title"]
    return result


def _describe(properties: dict[str, Any], cls: type[Any]) -> None:
    """Use the text of `Annotated[T, "text"]` as the description of a field that has none."""
    if issubclass(cls, BaseModel):
        metadata = {name: tuple(field.metadata) for name, field in cls.model_fields.items()}
    else:
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except (NameError, TypeError, AttributeError):
            return  # a name that only Pydantic could resolve: there is a schema, just no text
        metadata = {name: metadata_of(hint) for name, hint in hints.items()}
    for name, items in metadata.items():
        if name in properties and (text := described(items)) is not None:
            properties[name].setdefault("description", text)


def _ordered(result: dict[str, Any]) -> dict[str, Any]:
    """The keys that a reader looks for, before the others; definitions last."""
    first = {key: result[key] for key in _FIRST if key in result}
    last = {key: result[key] for key in ("$defs",) if key in result}
    return (
        first | {key: value for key, value in result.items() if key not in first and key not in last} | last
    )
