"""Hidden states and attentions of encoders, against those of Transformers 5.23 (tests/fixtures/make_encoders.py)."""
import copy
import os
import pickle
import unittest

import numpy as np
from common import ROOT, has_torch, kvik, model_path, tensors

IDS, MASKS = np.array([[5, 6, 7, 8, 9, 2]]), [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]]
WANT = tensors(os.path.join(ROOT, "tests", "fixtures", "encoders.safetensors"))


def opened(name, **more):
    """Opens a golden model with an encoder."""
    kind = kvik.WhisperForConditionalGeneration if name == "whisper" else kvik.AutoModelForSeq2SeqLM
    return kind.from_pretrained(model_path(name), dtype="float32", threads=1, **more)


def features(config):
    """Returns the recording of the recorded values."""
    shape = 1, config.num_mel_bins, 2 * config.max_source_positions
    return (np.arange(np.prod(shape)).reshape(shape) * 37 % 200 / np.float32(100) - 1).astype(np.float32)


class Encoders(unittest.TestCase):
    def near(self, name, case, real, states, weights, row=0):
        """Compares one row of a batch with what is recorded; columns that are not real are zeros."""
        for key, layers, own in (("hidden", states, lambda a: a[row][real]), ("attentions", weights, lambda a: a[row][:, real][:, :, real])):
            want = WANT[f"{name}.{case}.{key}"]
            self.assertEqual(len(layers), len(want))
            for got, wanted in zip(layers, want):
                got = np.asarray(got)
                np.testing.assert_allclose(own(got), wanted, atol=2e-5)
                self.assertAlmostEqual(float(np.abs(got[row]).sum()), float(np.abs(own(got)).sum()), places=3)

    def test_forward_and_generate(self):
        ids, mask = np.repeat(IDS, 3, 0), np.array(MASKS)
        for name in ("t5", "bart", "mbart"):
            m = opened(name)
            asked = {"output_hidden_states": True, "output_attentions": True}
            out = m(ids, mask, np.array([[0]] * 3), **asked)
            made = m.generate(ids, attention_mask=mask, max_new_tokens=2, return_dict_in_generate=True, **asked)
            alone = m.get_encoder()(ids, attention_mask=mask, **asked)
            for row, shown in enumerate(MASKS):
                real = np.flatnonzero(shown)
                self.near(name, row, real, out.encoder_hidden_states, out.encoder_attentions, row)
                self.near(name, row, real, made.encoder_hidden_states, made.encoder_attentions, row)
                self.near(name, row, real, alone.hidden_states, alone.attentions, row)
            np.testing.assert_array_equal(out.encoder_last_hidden_state, out.encoder_hidden_states[-1])
            np.testing.assert_array_equal(alone[0], alone.last_hidden_state)
            self.assertEqual(list(made)[:4], ["sequences", "encoder_attentions", "encoder_hidden_states", "decoder_attentions"])

    def test_speech(self):
        m = opened("whisper")
        heard = features(m.config)
        out = m(input_features=heard, decoder_input_ids=[[0]], output_hidden_states=True, output_attentions=True)
        self.near("whisper", 0, np.arange(heard.shape[2] // 2), out.encoder_hidden_states, out.encoder_attentions)
        made = m.generate(heard, max_new_tokens=2, return_dict_in_generate=True, output_hidden_states=True)
        np.testing.assert_array_equal(made.encoder_hidden_states[1], out.encoder_hidden_states[1])
        self.assertIsNone(made.encoder_attentions)

    def test_plain(self):
        """What was not asked for is None; the last state is there, as an attribute, a key and a place."""
        m = opened("t5")
        out = m(IDS, decoder_input_ids=[[0]])
        self.assertEqual(list(out), ["logits", "past_key_values", "encoder_last_hidden_state"])
        self.assertIsNone(out.encoder_hidden_states)
        self.assertIn("computed when it is read", repr(out))
        want = WANT["t5.0.hidden"][-1]
        places = (out[2], out["encoder_last_hidden_state"], out.to_tuple()[2], m(IDS, decoder_input_ids=[[0]], return_dict=False)[2],
                  dict(**m(IDS, decoder_input_ids=[[0]]))["encoder_last_hidden_state"], list(m(IDS, decoder_input_ids=[[0]]).values())[2],
                  dict(m(IDS, decoder_input_ids=[[0]]).items())["encoder_last_hidden_state"],
                  m(IDS, decoder_input_ids=[[0]]).get("encoder_last_hidden_state"),
                  copy.deepcopy(m(IDS, decoder_input_ids=[[0]])).encoder_last_hidden_state,
                  pickle.loads(pickle.dumps(m(IDS, decoder_input_ids=[[0]]))).encoder_last_hidden_state)
        for got in places:
            np.testing.assert_allclose(got[0], want, atol=2e-5)
        out = m(decoder_input_ids=[[3]], past_key_values=out.past_key_values)  # the cache has the rows, and the call no input
        self.assertIsNone(out.encoder_last_hidden_state)
        encoded = m.get_encoder()(IDS)
        self.assertEqual((encoded.hidden_states, encoded.attentions, len(encoded.to_tuple())), (None, None, 1))
        self.assertEqual(m.generate(encoder_outputs=encoded, max_new_tokens=3).tolist(), m.generate(IDS, max_new_tokens=3).tolist())
        with self.assertRaises(KeyError):
            encoded["hidden_states"]

    def test_later(self):
        """The encoder reads what was given, also if the program has changed its array since; what it returns cannot be changed."""
        m = opened("t5", cache_memory="1M")
        ids = IDS.astype(np.int32)
        out, encoded = m(ids, decoder_input_ids=[[0]]), m.get_encoder()(ids)
        ids[:] = 11
        for got in (out.encoder_last_hidden_state, encoded.last_hidden_state):
            np.testing.assert_allclose(got[0], WANT["t5.0.hidden"][-1], atol=2e-5)
        with self.assertRaisesRegex(ValueError, "read-only"):
            encoded.last_hidden_state[:] = 0
        many = m.generate(IDS, num_return_sequences=3, do_sample=True, max_new_tokens=2, return_dict_in_generate=True,
                          output_hidden_states=True)
        self.assertEqual((len(many.sequences), many.encoder_hidden_states[0].shape), (3, (1, 6, 48)))
        m.config.output_hidden_states = True
        self.assertEqual((len(m.get_encoder()(IDS).hidden_states), len(m(IDS, decoder_input_ids=[[0]]).encoder_hidden_states)), (3, 3))

    @unittest.skipUnless(has_torch(), "torch is not installed")
    def test_torch(self):
        import torch
        encoded = opened("t5").get_encoder()(torch.tensor(IDS), output_attentions=True)
        self.assertIsInstance(encoded.last_hidden_state, torch.Tensor)
        np.testing.assert_allclose(np.asarray(encoded.attentions[0][0]), WANT["t5.0.attentions"][0], atol=2e-5)


if __name__ == "__main__":
    unittest.main()
