"""GptOss models."""
from .modeling_gpt_oss import GptOssForCausalLM, GptOssModel

__all__ = ["GptOssForCausalLM", "GptOssModel"]
