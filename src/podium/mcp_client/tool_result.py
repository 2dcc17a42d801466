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
from .plain import cut, cut_in_the_middle, plain

LONGEST = 256 * 1024


def told(result: CallToolResult) -> ToolAnswer:
    """The texts of a result; what is no text is named, not shown."""
    parts = [_told(block) for block in result.content]
    has_text = any(isinstance(block, TextContent) and block.text for block in result.content)
    if not has_text and result.structured_content is not None:
        parts.insert(0, msgspec.json.encode(result.structured_content).decode())
    text = "\n".join(part for part in parts if part) or "(nothing)"
    return ToolAnswer(text=cut_in_the_middle(text, LONGEST), is_error=bool(result.is_error))


def _told(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return f"[an image, {_kind(block.mime_type)}, {_decoded(block.data):,} bytes, not shown]"
        case AudioContent():
            return f"[a sound, {_kind(block.mime_type)}, {_decoded(block.data):,} bytes, not shown]"
        case ResourceLink():
            return f"[a link to the resource {plain(cut(block.uri, 500))}]"
        case EmbeddedResource(resource=inner):
            size = _decoded(inner.blob) if isinstance(inner, BlobResourceContents) else len(inner.text.encode())
            return f"[the resource {plain(cut(inner.uri, 500))}, {_kind(inner.mime_type)}, {size:,} bytes, not shown]"


def _kind(mime_type: str | None) -> str:
    return plain(cut(mime_type or "of unknown kind", 100))


def _decoded(data: str) -> int:
    """How many bytes base64 text stands for."""
    return len(data.rstrip("=")) * 3 // 4
