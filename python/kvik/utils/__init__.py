"""Small things that programs for Transformers import from its utils."""
from ..outputs import ModelOutput
from ..tool_schema import DocstringParsingException, TypeHintParsingException, get_json_schema
from . import chat_template_utils, generic, import_utils, logging
from .generic import *
from .import_utils import *

CONFIG_NAME = "config.json"
GENERATION_CONFIG_NAME = "generation_config.json"
SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME = "model.safetensors", "model.safetensors.index.json"
WEIGHTS_NAME, WEIGHTS_INDEX_NAME = "pytorch_model.bin", "pytorch_model.bin.index.json"

__all__ = ["CONFIG_NAME", "DocstringParsingException", "GENERATION_CONFIG_NAME", "ModelOutput", "SAFE_WEIGHTS_INDEX_NAME",
           "SAFE_WEIGHTS_NAME", "TypeHintParsingException", "WEIGHTS_INDEX_NAME", "WEIGHTS_NAME", "chat_template_utils", "generic",
           "get_json_schema", "import_utils", "logging", *generic.__all__, *import_utils.__all__]
