"""What an MCP tool's result says to a model."""

from __future__ import annotations

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from ..core.engine import ToolAnswer
from .plain import cut_middle, escape_unprintable, truncate_text

LONGEST = 256 * 1024


def convert_result(result: CallToolResult) -> ToolAnswer:
    """The texts of a result; what is no text is named, not shown."""
    parts = [_describe_block(block) for block in result.content]
    has_text = any(isinstance(block, TextContent) and block.text for block in result.content)
    if not has_text and result.structured_content is not None:
        parts.insert(0, msgspec.json.encode(result.structured_content).decode())
    text = "\n".join(part for part in parts if part) or "(nothing)"
    return ToolAnswer(text=cut_middle(text, LONGEST), is_error=bool(result.is_error))


def _describe_block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return (
                f"[an image, {_format_mime_type(block.mime_type)}, "
                f"{_count_decoded_bytes(block.data):,} bytes, not shown]"
            )
        case AudioContent():
            return (
                f"[a sound, {_format_mime_type(block.mime_type)}, {_count_decoded_bytes(block.data):,} "
                "bytes, not shown]"
            )
        case ResourceLink():
            return f"[a link to the resource {escape_unprintable(truncate_text(block.uri, 500))}]"
        case EmbeddedResource(resource=inner):
            size = (
                _count_decoded_bytes(inner.blob)
                if isinstance(inner, BlobResourceContents)
                else len(inner.text.encode())
            )
            return (
                f"[the resource {escape_unprintable(truncate_text(inner.uri, 500))}, "
                f"{_format_mime_type(inner.mime_type)}, {size:,} bytes, not shown]"
            )


def _format_mime_type(mime_type: str | None) -> str:
    return escape_unprintable(truncate_text(mime_type or "of unknown kind", 100))


def _count_decoded_bytes(data: str) -> int:
    """How many bytes base64 text stands for."""
    return len(data.rstrip("=")) * 3 // 4
