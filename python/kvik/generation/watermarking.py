"""Finds a watermark of WatermarkingConfig in a text."""
from typing import Any, Dict, Tuple

import numpy as np

from .._arrays import integers
from ..errors import ArgumentError
from .watermark_configs import watermark_of
from .watermarks import WatermarkLogitsProcessor


class WatermarkDetectorOutput:
    """Of a detector, arrays with an entry for each row: ``prediction``, ``z_score``, ``p_value``, ``confidence``, ``green_fraction``,
    ``num_green_tokens``, ``num_tokens_scored``."""

    def __init__(self, **kwargs: Any) -> None:
        for name in ("num_tokens_scored", "num_green_tokens", "green_fraction", "z_score", "p_value", "prediction", "confidence"):
            setattr(self, name, kwargs.get(name))


class WatermarkDetector:
    """Counts the green tokens of texts: ``WatermarkDetector(model.config, "cpu", watermarking_config)(ids)``.

    ignore_repeated_ngrams: tokens behind the same context count once.
    """

    def __init__(self, model_config: Any, device: Any = "cpu", watermarking_config: Any = None, ignore_repeated_ngrams: bool = False,
                 max_cache_size: int = 128) -> None:
        config = watermark_of(watermarking_config)
        encoder = bool(getattr(model_config, "is_encoder_decoder", False))
        self.bos_token_id = getattr(model_config, "decoder_start_token_id" if encoder else "bos_token_id", None)
        self.greenlist_ratio, self.ignore_repeated_ngrams = config.greenlist_ratio, ignore_repeated_ngrams
        text = model_config.get_text_config() if hasattr(model_config, "get_text_config") else model_config
        self.processor = WatermarkLogitsProcessor(text.vocab_size, device, **config.to_dict())
        self._most = max_cache_size
        self._known: Dict[Tuple[int, ...], bool] = {}

    def _is_green(self, ngram: Tuple[int, ...], alone: bool) -> bool:
        found = self._known.get(ngram)
        if found is None:
            found = ngram[-1] in self.processor.green(np.array(ngram if alone else ngram[:-1], np.int64))
            if len(self._known) >= self._most:
                self._known.pop(next(iter(self._known)))
            self._known[ngram] = found
        return found

    def _count(self, row: np.ndarray) -> Tuple[int, int]:
        """Returns how many tokens of a text count, and how many of these are green."""
        alone = self.processor.seeding_scheme == "selfhash"
        n = self.processor.context_width + (0 if alone else 1)
        ngrams = [tuple(row[i:i + n].tolist()) for i in range(len(row) - n + 1)]
        if self.ignore_repeated_ngrams:
            ngrams = list(dict.fromkeys(ngrams))
        return len(ngrams), sum(self._is_green(ngram, alone) for ngram in ngrams)

    def __call__(self, input_ids: Any, z_threshold: float = 3.0, return_dict: bool = False) -> Any:
        """Returns for each row of ids whether it has the watermark, or a WatermarkDetectorOutput.  Leave the prompt out of ids."""
        ids = integers(input_ids, "input_ids", np.int64)
        if ids.ndim == 2 and ids.size and ids[0, 0] == self.bos_token_id:
            ids = ids[:, 1:]
        if ids.ndim != 2 or ids.shape[1] <= self.processor.context_width:
            raise ArgumentError(f"input_ids has the shape {list(ids.shape)}; expected [rows, tokens] with more than "
                                f"{self.processor.context_width} tokens behind the first, from which the next are drawn")
        counted = np.array([self._count(row) for row in ids], np.float64)
        scored, green = counted[:, 0], counted[:, 1]
        ratio = self.greenlist_ratio
        z = (green - ratio * scored) / np.sqrt(scored * ratio * (1 - ratio))
        if not return_dict:
            return z > z_threshold
        p = 1 - 0.5 * (1 + np.sign(z) * (1 - np.exp(-2 * z ** 2 / np.pi)))  # the tail of a normal distribution, nearly
        return WatermarkDetectorOutput(num_tokens_scored=scored, num_green_tokens=green, green_fraction=green / scored, z_score=z, p_value=p,
                                       prediction=z > z_threshold, confidence=1 - p)


__all__ = ["WatermarkDetector", "WatermarkDetectorOutput"]
