"""T5 models, by the names of Transformers."""
from ...seq2seq import Seq2SeqModel


class T5ForConditionalGeneration(Seq2SeqModel):
    """A T5 model: an encoder reads input_ids, a decoder writes text."""

    _architectures = ("t5",)


__all__ = ["T5ForConditionalGeneration"]
