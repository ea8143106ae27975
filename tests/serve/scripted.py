"""A model that says given texts: each token has one that follows it, so the texts are known and a test can ask for them.

A text is chosen by its name in the last message: "#weather" has the text "weather". Tokens of a text are pieces of it that
are in no other place. A mark that is a special token is one where it comes first, and is spelled out elsewhere."""
import array
import json
import os
import struct

from harness import work

BYTES = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
SHOWN, extra = {}, 0
for b in range(256):
    SHOWN[b] = chr(b) if b in BYTES else chr(256 + extra)
    extra += b not in BYTES

HERMES = ("<tool_call>\\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {% if c.function.arguments is string %}"
          "{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}}\\n</tool_call>")


def template(names, call, go):
    """Renders tools, messages and calls, and opens the answer that the last message asks for."""
    choose = "".join("{% " + ("elif" if i else "if") + " '#" + n + "' in last %}" + go % n for i, n in enumerate(names))
    return ("{% if tools %}<user>tools: {% for t in tools %}{{ t | tojson }} {% endfor %}{% endif %}{% for m in messages %}"
            "<{{ 'bot' if m.role == 'assistant' else 'user' }}>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}"
            + call.replace("\\n", "\n") + "{% endfor %}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}<bot>{% set last = messages[-1].content %}" + choose + "{% endif %}{% endif %}")


def pieces(text, used):
    """Cuts bytes into pieces that nothing else uses."""
    out, at = [], 0
    while at < len(text):
        n = 2
        while at + n < len(text) and text[at:at + n] in used:
            n += 1
        piece = text[at:at + n]
        while (piece in used or len(piece) < 2) and out: # the rest is too short: it joins the piece before
            used.discard(out[-1])
            piece = out.pop() + piece
        assert piece not in used, piece
        used.add(piece)
        out.append(piece)
        at += n
    return out


def scripted(name, texts, call=HERMES, special=(), go="<go-%s>"):
    """Writes a model that says the texts, a dict; returns its folder. `special`: marks that are special tokens; `go`: the token before a text."""
    out = os.path.join(work, name)
    os.makedirs(out)
    marks = ["<pad>", "<s>", "</s>", "<user>", "<bot>"] + [go % n for n in texts] + list(special)
    vocab = {m: i for i, m in enumerate(marks)}
    for b in range(256):
        vocab[SHOWN[b]] = len(vocab)
    after, used, spent = {}, set(), set()
    for key, text in texts.items():
        last = vocab[go % key]
        parts = [text]
        for m in special:
            if m in text and m not in spent:
                spent.add(m)
                parts = [q for p in parts for q in ([p] if m not in p else [p[:p.index(m)], (m,), p[p.index(m) + len(m):]])]
        for p in parts:
            for piece in [p[0]] if isinstance(p, tuple) else pieces(p.encode(), used):
                shown = piece if isinstance(piece, str) else "".join(SHOWN[b] for b in piece)
                after[last] = vocab.setdefault(shown, len(vocab))
                last = after[last]
        after[last] = vocab["</s>"]
    size = -(-len(vocab) // 16) * 16
    while len(vocab) < size:
        vocab["w%d" % len(vocab)] = len(vocab)
    write_tokenizer(out, vocab, marks, template(list(texts), call, go))
    write_weights(out, size, after)
    return out


def write_tokenizer(out, vocab, marks, text):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    json.dump({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": vocab[t], "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for t in marks],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []},
    }, open(os.path.join(out, "tokenizer.json"), "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
               "chat_template": text}, open(os.path.join(out, "tokenizer_config.json"), "w"))


def write_weights(out, size, after):
    """Embeddings are rows of the unit matrix, layers add nothing, and the head turns each token into the next."""
    def matrix(rows, columns, ones=()):
        a = array.array("f", bytes(4 * rows * columns))
        for r, c, v in ones:
            a[r * columns + c] = v
        return [rows, columns], a

    one = array.array("f", [1.0] * size)
    tensors = {"model.embed_tokens.weight": matrix(size, size, [(i, i, 1.0) for i in range(size)]),
               "lm_head.weight": matrix(size, size, [(b, a, 8.0) for a, b in after.items()]),
               "model.norm.weight": ([size], one), "model.layers.0.input_layernorm.weight": ([size], one),
               "model.layers.0.post_attention_layernorm.weight": ([size], one)}
    for n in "qkv":
        tensors[f"model.layers.0.self_attn.{n}_proj.weight"] = matrix(16, size)
    tensors["model.layers.0.self_attn.o_proj.weight"] = matrix(size, 16)
    tensors["model.layers.0.mlp.gate_proj.weight"] = matrix(16, size)
    tensors["model.layers.0.mlp.up_proj.weight"] = matrix(16, size)
    tensors["model.layers.0.mlp.down_proj.weight"] = matrix(size, 16)
    head, at = {}, 0
    for name, (shape, a) in tensors.items():
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(a)]}
        at += 4 * len(a)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for shape, a in tensors.values():
            f.write(a.tobytes())
    json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": size, "intermediate_size": 16,
               "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16,
               "vocab_size": size, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
               "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32", "bos_token_id": 1,
               "eos_token_id": 2, "pad_token_id": 0}, open(os.path.join(out, "config.json"), "w"))
