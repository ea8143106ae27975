"""What is installed: is_torch_available() and its kind, for programs that ask before they import."""
import re
from importlib.metadata import version as package_version
from importlib.util import find_spec
from typing import Any, Callable, Iterable, Union


def _installed(package: str) -> Callable[..., bool]:
    def available(*_: Any, **__: Any) -> bool:
        return find_spec(package) is not None
    available.__doc__ = f"True if the package {package} is installed."
    return available


def is_torch_available() -> bool:
    """True if torch is installed."""
    return find_spec("torch") is not None


def is_vision_available() -> bool:
    """True if Pillow is installed."""
    return find_spec("PIL") is not None


is_datasets_available = _installed("datasets")
is_gguf_available = _installed("gguf")
is_jinja_available = _installed("jinja2")
is_librosa_available = _installed("librosa")
is_pandas_available = _installed("pandas")
is_peft_available = _installed("peft")
is_psutil_available = _installed("psutil")
is_rich_available = _installed("rich")
is_safetensors_available = _installed("safetensors")
is_scipy_available = _installed("scipy")
is_sentencepiece_available = _installed("sentencepiece")
is_sklearn_available = _installed("sklearn")
is_soundfile_available = _installed("soundfile")
is_tokenizers_available = _installed("tokenizers")
is_torchaudio_available = _installed("torchaudio")
is_torchvision_available = _installed("torchvision")
is_triton_available = _installed("triton")


def is_accelerate_available(*_: Any, **__: Any) -> bool:
    """Returns False: a model opens on this machine's CPU without it, and nothing is compiled or traced."""
    return False


is_apex_available = is_bitsandbytes_available = is_cuda_available = is_flash_attn_2_available = is_accelerate_available
is_flash_attn_3_available = is_flax_available = is_ipex_available = is_mps_available = is_tf_available = is_accelerate_available
is_torch_bf16_gpu_available = is_torch_cuda_available = is_torch_mps_available = is_torch_npu_available = is_accelerate_available
is_torch_xla_available = is_torch_xpu_available = is_torchdynamo_compiling = is_accelerate_available


def is_hqq_available() -> bool:
    """Returns True: the library has the arithmetic of hqq and of quanto."""
    return True


is_optimum_quanto_available = is_quanto_available = is_hqq_available


def get_torch_version() -> str:
    """Returns the version of torch, "N/A" where it is not installed."""
    return package_version("torch") if is_torch_available() else "N/A"


def is_torch_greater_or_equal(version: str, *_: Any, **__: Any) -> bool:
    """True if torch is installed in this version or a later one."""
    if not is_torch_available():
        return False
    have, want = ([int(part) for part in re.findall(r"\d+", text)[:3]] for text in (get_torch_version(), version))
    return have >= want


def requires_backends(obj: Any, backends: Union[str, Iterable[str]]) -> None:
    """Raises ImportError if a package is not installed.  obj: what needs it, for the sentence."""
    name = getattr(obj, "__name__", type(obj).__name__)
    for package in [backends] if isinstance(backends, str) else backends:
        if find_spec({"vision": "PIL", "jinja": "jinja2"}.get(package, package)) is None:
            raise ImportError(f"{name} requires the package {package}, which is not installed: pip install {package}")


__all__ = ["get_torch_version", "is_accelerate_available", "is_apex_available", "is_bitsandbytes_available",
           "is_cuda_available", "is_datasets_available", "is_flash_attn_2_available", "is_flash_attn_3_available",
           "is_flax_available", "is_gguf_available", "is_hqq_available", "is_ipex_available", "is_jinja_available",
           "is_librosa_available", "is_mps_available", "is_optimum_quanto_available", "is_pandas_available",
           "is_peft_available", "is_psutil_available", "is_quanto_available", "is_rich_available",
           "is_safetensors_available", "is_scipy_available", "is_sentencepiece_available", "is_sklearn_available",
           "is_soundfile_available", "is_tf_available", "is_tokenizers_available", "is_torch_available",
           "is_torch_bf16_gpu_available", "is_torch_cuda_available", "is_torch_greater_or_equal", "is_torch_mps_available",
           "is_torch_npu_available", "is_torch_xla_available", "is_torch_xpu_available", "is_torchaudio_available",
           "is_torchdynamo_compiling", "is_torchvision_available", "is_triton_available", "is_vision_available",
           "requires_backends"]
