"""Describe in the OpenAPI document what is sent without a type of its own: stored JSON, and the rows of lists."""

from __future__ import annotations

from typing import Any

from litestar.openapi.spec import OpenAPIType, Schema
from litestar.plugins import OpenAPISchemaPlugin
from litestar.typing import FieldDefinition
from msgspec import Raw

from ...values.column import Kind, RowColumns
from ...values.usage import FullUsage

_TYPES: dict[Kind, OpenAPIType] = {
    "text": OpenAPIType.STRING,
    "number": OpenAPIType.NUMBER,
    "money": OpenAPIType.NUMBER,
    "size": OpenAPIType.INTEGER,
    "age": OpenAPIType.NUMBER,
    "duration": OpenAPIType.NUMBER,
}


class StoredJsonPlugin(OpenAPISchemaPlugin):
    """Documents the type of stored JSON, which is sent without decoding it."""

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        return field_definition.annotation is Raw and bool(field_definition.metadata)

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Any:
        return schema_creator.for_field_definition(FieldDefinition.from_annotation(field_definition.metadata[0]))


class RowColumnsPlugin(OpenAPISchemaPlugin):
    """Documents the rows of lists by their columns."""

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        return any(isinstance(one, RowColumns) for one in field_definition.metadata)

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        row = next(one for one in field_definition.metadata if isinstance(one, RowColumns))
        usage = schema_creator.for_field_definition(FieldDefinition.from_annotation(FullUsage))
        properties = {
            column.name: usage
            if column.kind == "usage"
            else Schema(type=[_TYPES[column.kind], OpenAPIType.NULL] if column.kind in _TYPES else None)
            for column in row.columns
        }
        return Schema(type=OpenAPIType.OBJECT, properties=properties)
