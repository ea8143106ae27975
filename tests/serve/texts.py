"""Texts that are hard to hold: with a NUL, which JSON can spell; answers of a model that has no token which ends a turn; and answers
with very many probabilities, whose memory is bounded."""
import json
import os
import shutil

from harness import Server, check, finish, tiny, work

model = tiny("llama-mha")
s = Server(model, "--temperature", "1.5", "--slot-save-path", work)
CHATS = ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"]


def ask(path, text, system=None, **more):
    """Returns the status and how many tokens the prompt has, or the sentence of the error."""
    messages = [{"role": "user", "content": text}]
    body = {"/v1/messages": {"messages": messages, "max_tokens": 2, **({"system": system} if system else {})},
            "/v1/responses": {"input": messages, "max_output_tokens": 2, **({"instructions": system} if system else {})},
            "/api/chat": {"messages": messages, "stream": False, "options": {"num_predict": 2}},
            "/v1/chat/completions": {"messages": messages, "max_tokens": 2}}[path]
    code, a = s.post(path, {**body, **more})
    if code != 200:
        return code, json.dumps(a)
    u = a.get("usage") or {}
    return code, {"/v1/messages": lambda: u["input_tokens"] + u["cache_read_input_tokens"], "/v1/responses": lambda: u["input_tokens"],
                  "/api/chat": lambda: a["prompt_eval_count"], "/v1/chat/completions": lambda: u["prompt_tokens"]}[path]()


# --- A NUL in a prompt or in a message is a character like others: the tokens of this model are bytes.
for path in CHATS:
    for name, part in [("content", lambda t: t), ("a part of a content", lambda t: [{"type": "input_text" if "resp" in path else "text", "text": t}])]:
        if path == "/api/chat" and part("") != "":
            continue
        got, want = ask(path, part("a\0b\0c")), ask(path, part("axbxc"))
        check(f"{path}: {name} with a NUL is whole", got == want and got[0] == 200, (got, want))
for path, field in [("/v1/messages", "system"), ("/v1/responses", "instructions")]:
    got, want = ask(path, "hi", "be\0brief"), ask(path, "hi", "be-brief")
    check(f"{path}: {field} with a NUL is whole", got == want and got[0] == 200, (got, want))
blocks = [ask("/v1/messages", "hi", [{"type": "text", "text": t}, {"type": "text", "text": "b"}]) for t in ("a\0a", "axa")]
check("/v1/messages: a block of system with a NUL is whole", blocks[0] == blocks[1] and blocks[0][0] == 200, blocks)
items = [s.post("/v1/responses", {"input": [{"role": "developer", "content": "a\0a"}, {"role": "system", "content": t}, {"role": "user", "content": "c"}],
                                  "max_output_tokens": 2}) for t in ("b\0b", "bxb")]
check("/v1/responses: two system texts with NULs are whole", len({o["usage"]["input_tokens"] for _, o in items}) == 1, items)
both = [[m["usage"]["prompt_tokens"] for _, m in [s.post("/v1/completions", {"prompt": t, "max_tokens": 1})]] for t in ("a\0bc", "axbc", "a")]
check("a prompt with a NUL is whole", both[0] == both[1] != both[2], both)
for name, arguments in [("a text", '{"a": "x\\u0000y"}'), ("an object", {"a": "x\0y"})]:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    code, a = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]},
                                                           {"role": "tool", "tool_call_id": "c1", "content": "r\0r"}], "max_tokens": 2})
    check(f"arguments of a call, {name}, with a NUL", code == 200, a)

# --- Where a text would be cut there, the request is refused and the field named.
tool = {"type": "function", "function": {"name": "f\0g", "parameters": {"type": "object"}}}
for path, more, named in [
        ("/v1/chat/completions", {"stop": "a\0b"}, "stop"), ("/v1/chat/completions", {"stop": ["a", "\0"]}, "stop[1]"),
        ("/v1/chat/completions", {"tools": [tool]}, "tools[0].function.name"), ("/v1/chat/completions", {"logit_bias": [["a\0b", 1]]}, "logit_bias[0][0]"),
        ("/v1/chat/completions", {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"required": ["a\0b"]}}}},
         "response_format.json_schema.schema.required[0]"),
        ("/v1/messages", {"stop_sequences": ["\0"]}, "stop_sequences[0]"), ("/v1/messages", {"tools": [{"name": "f\0", "input_schema": {}}]}, "tools[0].name"),
        ("/v1/responses", {"tool_choice": {"type": "function", "name": "\0"}}, "tool_choice.name"), ("/api/chat", {"format": {"const": "\0"}}, "format.const"),
        ("/api/chat", {"options": {"stop": ["x\0"]}}, "options.stop[0]")]:
    code, a = ask(path, "hi", **more)
    check(f"{path}: {named} with a NUL is refused by its name", code == 400 and f'field \\"{named}\\" has a NUL' in a, (code, a))
code, a = s.post("/apply-template", {"messages": [{"role": "user", "content": "a\0b"}]})
check("/apply-template: a text that would be cut is refused", code == 400 and "messages[0].content" in json.dumps(a), a)
code, a = s.post("/slots/0?action=save", {"filename": "a.bin\0b"})
check("/slots: so is a name of a file", code == 400 and "filename" in json.dumps(a), a)
deep = "[" * 200 + '"\\u0000"' + "]" * 200
code, a = s.post("/v1/completions", '{"prompt": "a", "max_tokens": 1, "stop": ' + deep + "}")
check("a deep field is named as far as the sentence goes", code == 400 and 'stop[0][0]' in json.dumps(a), a)
code, a = s.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "user": "x\0y", "metadata": {"a": "\0"}})
check("fields that the server does not know may have one", code == 200, a)

# --- Probabilities: an answer holds so many, and a stream as many as it likes.
many = {"prompt": "a", "max_tokens": 210, "n": 64, "logprobs": 20, "ignore_eos": True, "temperature": 0}
code, a = s.post("/v1/completions", many)
check("64 texts with 20 probabilities for each of 210 tokens are refused", code == 400 and "262144" in json.dumps(a), (code, str(a)[:300]))
code, a = s.post("/v1/completions", dict(many, max_tokens=12))
check("64 shorter ones are answered", code == 200 and len(a["choices"]) == 64 and len(a["choices"][63]["logprobs"]["tokens"]) == 12, str(a)[:300])
check("ends", s.stop() == 0, s.said)

# --- A model without a token that ends a turn: what the template puts behind an answer is found by other answers in its place.
bare = os.path.join(work, "bare")
shutil.copytree(model, bare)
for name in os.listdir(bare):
    if name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        with open(os.path.join(bare, name)) as f:
            o = json.load(f)
        o.pop("eos_token_id", None)
        o.pop("eos_token", None)
        if name == "tokenizer_config.json":
            del o["chat_template"]
        with open(os.path.join(bare, name), "w") as f:
            json.dump(o, f)
TEMPLATE = "{% for m in messages %}<{{ 'bot' if m.role == 'assistant' else 'user' }}>{{ m.content }}#{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
path = os.path.join(work, "bare.jinja")
with open(path, "w") as f:
    f.write(TEMPLATE)
s = Server(bare, "--temperature", "1.5", "--template", path)
messages, misses, replayed, before = [{"role": "user", "content": "Tell me more."}], [], 0, None
for i in range(4):
    code, a = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 9, "seed": i})
    assert code == 200, a
    if before and a["usage"]["prompt_tokens_details"]["cached_tokens"] < before["usage"]["total_tokens"] - 1:
        misses.append((before["usage"], a["usage"], a["kvik"]))
    replayed += a["kvik"]["replayed"] > 0
    before = a
    messages += [a["choices"][0]["message"], {"role": "user", "content": f"go on {i}"}]
check("without an end of turn: every turn reuses all that came before", not misses, misses[:1])
check("without an end of turn: answers are replayed", replayed == 3, replayed)
got = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1, "verbose": True})[1]
shown = got.get("__verbose", {}).get("prompt", "")
check("without an end of turn: the template's text stands between the answers", shown.startswith("<user>Tell me more.#<bot>")
      and all(f"#<user>go on {i}#<bot>" in shown for i in range(4)) and shown.endswith("#<bot>"), shown)
check("without an end of turn: ends", s.stop() == 0, s.said)
finish()
