"""FalconMamba models."""
from .modeling_falcon_mamba import FalconMambaForCausalLM, FalconMambaModel

__all__ = ["FalconMambaForCausalLM", "FalconMambaModel"]
