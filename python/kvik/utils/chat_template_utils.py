"""Schemas of tools, where Transformers has them."""
from ..tool_schema import DocstringParsingException, TypeHintParsingException, get_json_schema

__all__ = ["DocstringParsingException", "TypeHintParsingException", "get_json_schema"]
