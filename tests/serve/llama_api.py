"""What llama-server has beside OpenAI's protocol: names of models, pieces of tokens, prompts of ids and texts, reasoning that is off."""
import http.client
import os
import socket
import subprocess
import sys

from harness import KVIK, PATIENCE, ROOT, Server, at_once, check, finish, skip, until, work

sys.path.insert(0, os.path.join(ROOT, "tests/serve/llama"))

THINKS = os.path.join(work, "thinks.jinja")
with open(THINKS, "w") as f:
    f.write("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<bot><think>\n{% endif %}\n")
model = os.path.join(work, "stand-in.gguf")
subprocess.run([sys.executable, os.path.join(ROOT, "tests/serve/llama/stand_in.py"), model, "<think>", "</think>"], check=True)
s = Server(model, "--alias", "org/one,two", "--tags", "small,text", "--template", THINKS, "--reasoning", "off", "--prefill-chunk-size", "64")
hello = {"messages": [{"role": "user", "content": "Hi"}]}

# --- Models.
one = s.get("/v1/models")[1]["data"][0]
check("models: the first name is the id, and all are shown", one["id"] == "org/one" and one["aliases"] == ["org/one", "two"], one)
check("models: tags", one["tags"] == ["small", "text"], one)
for path in ("/v1/models/org/one", "/v1/models/org%2Fone", "/models/two"):
    check(f"{path} is the model", s.get(path) == (200, one), s.get(path))
code, a = s.get("/v1/models/three")
check("another name is an error 404", code == 404 and a["error"]["type"] == "not_found_error" and "three" in a["error"]["message"], a)
check("a path below that is no name of a model", s.get("/v1/models/")[0] == 404 and s.get("/v1/modelsx")[0] == 404)

# --- Tokens.
t = s.post("/tokenize", {"content": "the \u5abd the", "with_pieces": True})[1]["tokens"]
flat = b"".join(bytes(x["piece"]) if isinstance(x["piece"], list) else x["piece"].encode() for x in t)
check("pieces: spaces are kept, and a part of a character is an array of bytes", flat == " the \u5abd the".encode(), t)
check("pieces: there is such an array", any(isinstance(x["piece"], list) for x in t), t)
a = s.post("/completion", {"prompt": "the", "n_predict": 8, "n_probs": 2, "temperature": 0})[1]
said = "".join(x["token"] for x in a["completion_probabilities"])
check("logprobs: tokens are what stands in the text", said.strip() == a["content"].strip(), (said, a["content"]))
check("logprobs: bytes are those of the token", all(bytes(x["bytes"]) == x["token"].encode() for x in a["completion_probabilities"]), a)

# --- Prompts.
ids = s.post("/tokenize", {"content": "the", "add_special": True})[1]["tokens"]
alone = s.post("/completion", {"prompt": ids, "n_predict": 1})[1]["tokens_evaluated"]
a = s.post("/completion", {"prompt": [1, 2, "the", 7], "n_predict": 1})[1]
check("ids and texts in an array are one prompt", a["tokens_evaluated"] == 3 + alone - 1, a)
a = s.post("/completion", {"prompt": [[1, 2], "the"], "n_predict": 1})[1]
check("arrays and texts in an array are prompts", isinstance(a, list) and len(a) == 2, a)
code, a = s.post("/completion", {"prompt": [1, None, "the"], "n_predict": 1})
check("neither is an error that says where", code == 400 and "token 1" in a["error"]["message"], a)
check("/completions is llama-server's", "content" in s.post("/completions", {"prompt": "the", "n_predict": 1})[1])
for body in ({"prompt": "a", "grammar": "root ::= \"a\""}, {**hello, "grammar": "root ::= \"a\""}):
    code, a = s.post("/v1/chat/completions" if "messages" in body else "/completion", body)
    check("a grammar is an error that names it", code == 400 and "grammar" in a["error"]["message"], a)

# --- Templates.
prompt = s.post("/apply-template", hello)[1]["prompt"]
check("reasoning that is off is over where the template opens one", prompt.endswith("<think>\n</think>"), prompt)
on = {**hello, "chat_template_kwargs": {"enable_thinking": True}}
check("a request wins", s.post("/apply-template", on)[1]["prompt"].endswith("<think>\n"))
bare = s.post("/apply-template", {**hello, "add_generation_prompt": False})[1]["prompt"]
check("add_generation_prompt false: no answer is opened", bare == "<user>Hi", bare)
n = len(s.post("/tokenize", {"content": prompt, "add_special": False})[1]["tokens"])
code, a = s.post("/v1/chat/completions", {**hello, "max_tokens": 3})
check("a chat has the prompt that /apply-template shows", abs(a["usage"]["prompt_tokens"] - n) <= 1 and not a["choices"][0]["message"].get("reasoning_content"), a)
a = s.post("/v1/chat/completions", {**on, "max_tokens": 3})[1]
check("reasoning that is on", a["choices"][0]["message"].get("reasoning_content"), a)

# --- Slots are busy while a text is written in them.
def busy():
    return [t["is_processing"] for t in s.get("/slots")[1]]


check("no slot is busy", not any(busy()), busy())
one = s.stream("/completion", {"prompt": "the", "n_predict": 7000, "ignore_eos": True, "stream": True, "id_slot": 3})
two = s.stream("/completion", {"prompt": "the", "n_predict": 7000, "ignore_eos": True, "stream": True})
next(one), next(two)
now = busy()
check("the slots of two texts are busy", sum(now) == 2 and now[3], now)
one.close(), two.close()
check("and no longer when their clients have left", until(lambda: not any(busy())), busy())
a = s.post("/completion", {"prompt": ["the", "the"], "n": 2, "n_predict": 1, "seed": 7})[1]
check("each text is told with its own seed", [t["generation_settings"]["seed"] for t in a] == [7, 8, 7, 8], a)

# --- Times.
a = s.post("/completion", {"prompt": "the", "n_predict": 1})[1]["timings"]
check("timings: one token has no rate", a["predicted_n"] == 1 and a["predicted_per_second"] == 0, a)
a = s.post("/completion", {"prompt": "the", "n_predict": 9})[1]["timings"]
check("timings: the rate is over the tokens behind the first", abs(a["predicted_per_second"] * a["predicted_ms"] / 1e3 - 8) < 1e-6, a)

# --- Streams that tell how far the prompt is.
long = "the people of the world " * 30
body = {"prompt": long, "n_predict": 3, "stream": True, "return_progress": True, "timings_per_token": True, "temperature": 0}
for path in ("/completion", "/v1/completions", "/v1/chat/completions", "/v1/responses"):
    fields = {**body, "max_tokens": 3, "max_output_tokens": 3, "input": long + path, "prompt": long + path, "messages": [{"role": "user", "content": long + path}]}
    if "responses" in path:
        del fields["prompt"]
    events = list(s.stream(path, fields))
    told = [e["prompt_progress"] for e in events if "prompt_progress" in e]
    check(f"{path}: progress begins with what is reused and ends with all", len(told) > 1 and told[0]["processed"] == told[0]["cache"]
          and told[-1]["processed"] == told[-1]["total"] and told == sorted(told, key=lambda t: t["processed"]), told)
    first = [e["timings"] for e in events if "prompt_progress" in e]
    check(f"{path}: the first timings are of nothing", first[0]["prompt_n"] == first[0]["prompt_ms"] == first[0]["predicted_n"] == 0 < first[-1]["prompt_ms"], first)
    parts = [e for e in events if e.get("timings", {}).get("predicted_n")]
    check(f"{path}: each part of the text has timings", parts and parts[-1]["timings"]["predicted_n"] <= 3, events)
    check(f"{path}: progress comes before the text", "prompt_progress" not in events[-1] and events.index(parts[0]) > max(i for i, e in enumerate(events) if "prompt_progress" in e))
    plain = list(s.stream(path, {**fields, "return_progress": False, "timings_per_token": False}))
    check(f"{path}: nobody is told who has not asked", not any("prompt_progress" in e for e in plain), plain)
events = list(s.stream("/completion", {"prompt": "the", "n_predict": 20, "stream": True, "temperature": 0}))
whole = s.post("/completion", {"prompt": "the", "n_predict": 20, "temperature": 0, "return_tokens": True})[1]
told = [t for e in events for t in e["tokens"]]
check("each part of a stream has its tokens", told == whole["tokens"] and all(e["tokens"] for e in events if e["content"]), (told, whole))
check("tokens of a whole answer are asked for", s.post("/completion", {"prompt": "the", "n_predict": 2})[1]["tokens"] == [])
for path, asked in (("/v1/chat/completions", hello), ("/v1/completions", {"prompt": "the"})):
    events = list(s.stream(path, {**asked, "max_tokens": 3, "stream": True}))
    timed = [e["choices"][0]["finish_reason"] for e in events if "timings" in e]
    check(f"{path}: the end of a stream has timings", timed == ["length"] and events[-1]["timings"]["predicted_n"] == 3, events)
a = s.post("/completion", {**body, "stream": False})[1]
check("progress of a whole answer is not told", "prompt_progress" not in a and a["timings"]["prompt_n"] + a["timings"]["cache_n"] == a["tokens_evaluated"], a)
a = s.post("/v1/chat/completions", {**hello, "max_tokens": 2, "verbose": True})[1]
check("verbose: the prompt and the options", a["__verbose"]["prompt"].replace(" ", "").endswith("<user>Hi<bot><think>\n</think>") and "seed" in a["__verbose"]["generation_settings"], a)
check("no __verbose unless asked for", "__verbose" not in s.post("/v1/chat/completions", {**hello, "max_tokens": 2})[1])
code, e = s.post("/completion", {"prompt": "a", "n_probs": 2, "post_sampling_probs": True})
check("post_sampling_probs is an error that names it", code == 400 and "post_sampling_probs" in e["error"]["message"], e)
parts = list(s.stream("/completion", {"prompt": "the", "n_predict": 6, "temperature": 0, "return_tokens": True, "stream": True}))
whole = s.post("/completion", {"prompt": "the", "n_predict": 6, "temperature": 0, "return_tokens": True})[1]
check("a stream tells each token once", [t for e in parts for t in e["tokens"]] == whole["tokens"] and len(whole["tokens"]) == 6, (parts, whole["tokens"]))
parts = list(s.stream("/v1/completions", {"prompt": "the", "max_tokens": 6, "temperature": 0, "return_token_ids": True, "stream": True}))
check("token_ids of a stream, each once", [t for e in parts for c in e["choices"] for t in c.get("token_ids", [])] == whole["tokens"], parts)
a = s.post("/completion", {"prompt": ["the", "the people of"], "n_predict": 2})[1]
check("each of several prompts is told with its text", a[0]["prompt"] != a[1]["prompt"] and a[0]["tokens_evaluated"] < a[1]["tokens_evaluated"], a)
a = s.post("/v1/chat/completions", {**hello, "max_tokens": 3, "logprobs": True, "top_logprobs": 1, "verbose": True})[1]
check("verbose: all probabilities", len(a["__verbose"]["completion_probabilities"]) == len(a["choices"][0]["logprobs"]["content"]) > 0, a)
a = s.post("/completion", {"prompt": long, "n_predict": 7000, "t_max_predict_ms": 100})[1]
check("t_max_predict_ms ends a text", a["tokens_predicted"] < 7000 and a["stop_type"] == "limit", a["timings"])
# --- Texts that need much more memory than they have bytes.
for name, path, body, word in [("objects", "/completion", '{"prompt": "a", "x": "\\"{", "y": [' + "{}," * (1 << 20) + "{}]}", "1048579 arrays and objects"),
                               ("values", "/completion", '{"prompt": [' + "5," * ((8 << 20) + 1) + "5]}", "8388609 commas"),
                               ("pieces", "/tokenize", {"content": "\u00e4" * (1 << 20), "with_pieces": True}, "with_pieces")]:
    got, e = s.post(path, body)
    check(f"too many {name} are an error", got == 400 and word in e["error"]["message"], e)
check("adapters: none", s.get("/lora-adapters") == (200, []))
for field in ("return_progress", "timings_per_token", "verbose"):
    check(f"{field} must be true or false", s.post("/completion", {"prompt": "a", field: 3})[0] == 400)
check("SIGTERM", s.stop() == 0, s.said)

# --- Other options.
s = Server(model, "--metrics-compat", "llamacpp", "--verbose")
a = s.post("/completion", {"prompt": long, "n_predict": 5})[1]
b = s.post("/completion", {"prompt": long, "n_predict": 5})[1]
numbers = dict(line.split(" ") for line in s.get("/metrics")[1].decode().splitlines() if not line.startswith("#"))
check("metrics: names of llama-server", all(n.startswith("llamacpp:") for n in numbers) and len(numbers) == 15, numbers)
check("metrics: tokens that were computed and reused", float(numbers["llamacpp:prompt_tokens_total"]) == a["timings"]["prompt_n"] + b["timings"]["prompt_n"]
      and float(numbers["llamacpp:prompt_tokens_cached_total"]) == b["timings"]["cache_n"] > 0, numbers)
check("metrics: new tokens", float(numbers["llamacpp:tokens_predicted_total"]) == 10, numbers)
check("--verbose: all chats", "__verbose" in s.post("/v1/chat/completions", {**hello, "max_tokens": 2})[1])
check("a chat can do without", "__verbose" not in s.post("/v1/chat/completions", {**hello, "max_tokens": 2, "verbose": False})[1])
s.stop()

# --- Addresses.
def health(host, port):
    c = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    c.request("GET", "/health")
    return c.getresponse().status


try:
    socket.socket(socket.AF_INET6).bind(("::1", 0))
    six = True
except OSError:
    six = False
if six:
    s = Server(model, "--host", "127.0.0.1,::1")
    check("several addresses have one port", health("127.0.0.1", s.port) == health("::1", s.port) == 200)
    check("nobody is warned of addresses of this machine", not any("everybody" in line for line in s.said), s.said)
    check("SIGTERM: several addresses", s.stop() == 0, s.said)
else:
    skip("this machine has no IPv6")
for hosts in (",", "127.0.0.1,nowhere.invalid"):
    r = subprocess.run([KVIK, "serve", model, "--port", "0", "--host", hosts], capture_output=True, text=True)
    check(f"--host {hosts} is an error", r.returncode != 0 and ("nowhere.invalid" in r.stderr or "no address" in r.stderr), r)

# --- Texts between two others.
code = os.path.join(work, "code.gguf")
subprocess.run([sys.executable, os.path.join(ROOT, "tests/serve/llama/stand_in.py"), code, "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"], check=True)
s = Server(code, "--verbose")
gap = {"input_prefix": "the house", "input_suffix": " of the <|fim_middle|>", "prompt": " and", "n_predict": 3}
a = s.post("/infill", gap)[1]
said = a["prompt"].replace(" ", "")
check("infill: the text before, the text behind, and the gap", said == "<s><|fim_prefix|>thehouseand<|fim_suffix|>ofthe<|fim_middle|><|fim_middle|>", a["prompt"])
check("infill: a mark that a text spells is text", a["tokens_evaluated"] > 15, a)
b = s.post("/infill", {**gap, "input_extra": [{"filename": "a.c", "text": "int a;"}, {"text": "int b;"}]})[1]
check("infill: other files come first", b["prompt"].replace(" ", "").startswith("<s><|file_sep|>a.c\ninta;\n<|file_sep|>\nintb;\n<|file_sep|><|fim_prefix|>"), b["prompt"])
c = s.post("/v1/completions", {"prompt": "the house and", "suffix": " of the <|fim_middle|>", "max_tokens": 3})[1]
check("a suffix of completions is the text behind", c["usage"]["prompt_tokens"] <= a["tokens_evaluated"], c)
for wrong in ({"input_prefix": 3}, {"input_suffix": None}, {"prompt": 3}, {"input_extra": {}}, {"input_extra": [{}]}, {"input_extra": [3]},
              {"input_extra": [{"text": 3}]}, {"input_extra": [{"text": "a", "filename": 3}]}):
    got, e = s.post("/infill", {**gap, **wrong})
    check(f"infill: {wrong} is an error that names it", got == 400 and next(iter(wrong)) in e["error"]["message"], e)
s.stop()
subprocess.run([sys.executable, os.path.join(ROOT, "tests/serve/llama/stand_in.py"), code, "--ends", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"], check=True)
s = Server(code)
ids = s.post("/tokenize", {"content": "the", "add_special": True})[1]["tokens"]
check("a tokenizer that puts a token behind texts alone", ids[-1] == 2 and ids[0] != 1, ids)
a = s.post("/infill", gap)[1]
check("infill: none of it stands before the text", a["prompt"].startswith("<|fim_prefix|>"), a["prompt"])
s.stop()

# --- Slots: texts as files, which another server reads.
place = os.path.join(work, "slots")
os.makedirs(place)
s = Server(model, "--slot-save-path", place, "--parallel", "2")
other = "the animals of the house " * 30
a = s.post("/completion", {"prompt": long, "n_predict": 5, "id_slot": 1, "temperature": 0})[1]
b = s.post("/completion", {"prompt": other, "n_predict": 5, "temperature": 0})[1]
check("id_slot says in which slot a text is", a["id_slot"] == 1 and b["id_slot"] == 0, (a["id_slot"], b["id_slot"]))
c = s.post("/completion", {"prompt": long + a["content"] + " and", "n_predict": 5, "temperature": 0})[1]
code, one = s.post("/slots/1?action=save", {"filename": "one.bin"})
tokens = c["tokens_evaluated"] + 5 if c["id_slot"] == 1 else a["tokens_evaluated"] + 5
check("save: its tokens and bytes", code == 200 and one["n_saved"] == tokens and one["n_written"] == os.path.getsize(os.path.join(place, "one.bin")), one)
check("save: another file under the same name", s.post("/slots/0?action=save", {"filename": "one.bin"})[0] == 200)
check("save: and again", s.post("/slots/1?action=save", {"filename": "one.bin"})[1]["n_saved"] == tokens)
check("save: nothing else is left in the directory", os.listdir(place) == ["one.bin"], os.listdir(place))
for name in ("../one.bin", "/tmp/x", ".one", "", "a\0b", 3, None):
    code, e = s.post("/slots/1?action=save", {"filename": name})
    check(f"a file may not be {name!r}", code == 400 and "filename" in e["error"]["message"], e)
for path, want in (("/slots/2?action=save", 400), ("/slots/-1?action=save", 400), ("/slots/1?action=other", 400), ("/slots/1", 400), ("/slots/x?action=save", 400)):
    check(f"{path} is an error", s.post(path, {"filename": "a"})[0] == want, s.post(path, {"filename": "a"}))
code, e = s.post("/slots/1?action=restore", {"filename": "two.bin"})
check("a file that is not there is an error 404", code == 404 and "two.bin" in e["error"]["message"] and "/" not in e["error"]["message"], e)
with open(os.path.join(place, "bad.bin"), "wb") as f:
    f.write(b"this is no session" * 100)
code, e = s.post("/slots/1?action=restore", {"filename": "bad.bin"})
check("a file that is damaged is an error", code == 400 and place not in e["error"]["message"] and "bad.bin" in e["error"]["message"], e)
os.mkdir(os.path.join(place, "folder"))
code, e = s.post("/slots/1?action=save", {"filename": "folder"})
check("a file that is a folder is an error, which does not tell where", code in (400, 500) and place not in e["error"]["message"] and "folder" in e["error"]["message"], (code, e))
os.rmdir(os.path.join(place, "folder"))
check("id_slot that is none", s.post("/completion", {"prompt": "a", "id_slot": 2})[0] == 400)
code, e = s.post("/slots/1?action=erase", {})
check("erase", code == 200 and e["n_erased"] >= tokens, e)
check("a slot without a text is not saved", s.post("/slots/1?action=save", {"filename": "x"})[0] == 400)
s.stop()
s = Server(model, "--slot-save-path", place, "--parallel", "2")
code, e = s.post("/slots/0?action=restore", {"filename": "one.bin"})
check("restore: in another server", code == 200 and e["n_restored"] == tokens and e["n_read"] == one["n_written"], e)
b = s.post("/completion", {"prompt": long, "n_predict": 5, "temperature": 0})[1]
check("restore: the rows are reused, and the text is the same", b["timings"]["cache_n"] >= a["tokens_evaluated"] - 1 and b["content"] == a["content"], (a, b))
check("a restored slot can be saved", s.post("/slots/0?action=save", {"filename": "two.bin"})[0] == 200)
s.stop()

# Memory for one text and a half: rows of the first are lost while the second runs, and computed again for the file.
s = Server(model, "--slot-save-path", place, "--parallel", "2", "--cache-memory", "1M")
capacity = s.get("/v1/models")[1]["data"][0]["meta"]["n_ctx"]
ids = [3 + i % 40 for i in range(capacity * 2 // 3)]
one = {"prompt": ids, "n_predict": 5, "temperature": 0, "id_slot": 0}
two = {"prompt": ids[::-1], "n_predict": capacity - len(ids) - 1, "temperature": 0, "ignore_eos": True, "id_slot": 1}
first, second = s.post("/completion", one)[1], s.post("/completion", two)[1]
check("short of memory: the first text is lost", s.post("/completion", {**one, "n_predict": 1, "id_slot": 1})[1]["timings"]["cache_n"] < len(ids) // 2)
s.post("/completion", two)
asked = s.metric("vllm:generation_tokens_total")
got = at_once([lambda: s.post("/completion", {**two, "n_predict": 40})] + [lambda i=i: s.post("/slots/0?action=save", {"filename": f"{i}.bin"}) for i in range(3)] +
              [lambda: s.post("/slots/1?action=restore", {"filename": "one.bin"}), lambda: s.post("/slots/1?action=restore", {"filename": "none"})])
check("short of memory: files of all tokens", [(c, e.get("n_saved")) for c, e in got[1:4]] == [(200, len(ids) + 5)] * 3, got[1:4])
check("short of memory: a text beside them is the same", got[0][0] == 200 and second["content"].startswith(got[0][1]["content"]), got[0])
check("short of memory: a restore beside them", got[4][0] == 200 and got[4][1]["n_restored"] > 0, got[4])
check("short of memory: an error is that of its request", got[5][0] == 404, got[5])
check("files are not counted as texts", s.metric("vllm:generation_tokens_total") - asked == 40, s.metric("vllm:generation_tokens_total") - asked)
code, e = s.post("/slots/0?action=restore", {"filename": "2.bin"})
again = s.post("/completion", one)[1]
check("short of memory: restored", code == 200 and again["timings"]["cache_n"] >= len(ids) - 1 and again["content"] == first["content"], (e, again["timings"]))
check("short of memory: ends", s.stop() == 0, s.said)
s = Server(model, "--metrics-compat", "off", "--log")
likeliest = s.post("/completion", {"prompt": "a", "n_predict": 8, "temperature": 0, "ignore_eos": True})[1]["content"]
hot = {"prompt": "a", "n_predict": 8, "temperature": 9, "top_k": 0, "seed": 3, "ignore_eos": True}
check("top_n_sigma leaves the likeliest token", s.post("/completion", {**hot, "top_n_sigma": 1e-6})[1]["content"] == likeliest)
check("top_n_sigma -1 is off", s.post("/completion", {**hot, "top_n_sigma": -1})[1]["content"] == s.post("/completion", hot)[1]["content"] != likeliest)
check("xtc leaves what is likely", s.post("/completion", {**hot, "temperature": 1e-3, "xtc_probability": 1})[1]["content"] == likeliest)
two = {**hot, "temperature": 1, "top_k": 2, "n_predict": 30}
check("xtc takes the other of two", s.post("/completion", {**two, "xtc_probability": 1, "xtc_threshold": 0})[1]["content"] != s.post("/completion", two)[1]["content"])
check("top_n_sigma -2 is an error", s.post("/completion", {**hot, "top_n_sigma": -2})[0] == 400)
for _ in range(2):
    s.post("/completion", {"prompt": "a", "n_predict": 1, "mirostat": 2, "dry_multiplier": 0.5, "dynatemp_range": 0, "cache_prompt": True})
until(lambda: sum("ignored" in line for line in s.said) > 1)
told = [line for line in s.said if "ignored" in line]
check("fields without an effect are named once", len(told) == 2 and "mirostat" in told[0] and "dry" in told[1], s.said)
check("slots without a directory are not saved", s.post("/slots/0?action=save", {"filename": "a"})[0] == 400)
code, e = s.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
check("a model without marks for a gap fills none", code == 400 and "no tokens" in e["error"]["message"], e)
code, e = s.post("/v1/completions", {"prompt": "a", "suffix": "b"})
check("nor by a suffix", code == 400 and "no tokens" in e["error"]["message"], e)
check("metrics can be off", s.get("/metrics")[0] == 501)
s.stop()
finish()
