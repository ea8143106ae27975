"""Ollama's protocol, and llama-server's /completion: the same texts as OpenAI's, in their shapes."""
import json

from harness import Server, check, finish, tiny

model = tiny("llama-mha")
s = Server(model, "--do-sample", "false")
messages = [{"role": "user", "content": "Hello there, tell me more"}]
options = {"num_predict": 12, "temperature": 0}
want = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 12, "temperature": 0})[1]
text = want["choices"][0]["message"]["content"]


def lines(path, body):
    """Returns the lines of a stream."""
    c = s.connect()
    c.request("POST", path, json.dumps(body))
    r = c.getresponse()
    assert r.status == 200 and r.getheader("Content-Type") == "application/x-ndjson", (r.status, r.read())
    return [json.loads(line) for line in r]


code, a = s.post("/api/chat", {"model": "any", "messages": messages, "options": options, "stream": False})
check("chat: the same text", code == 200 and a["message"] == {"role": "assistant", "content": text}, (a, want))
check("chat: counts", a["done"] and a["done_reason"] == want["choices"][0]["finish_reason"] and a["prompt_eval_count"]
      == want["usage"]["prompt_tokens"] and a["eval_count"] == want["usage"]["completion_tokens"]
      and a["total_duration"] > 0, a)
check("chat: the prompt was reused", a["kvik"]["reused"] > 15, a)
got = lines("/api/chat", {"model": "any", "messages": messages, "options": options})
check("chat: a stream is the default", "".join(x["message"]["content"] for x in got) == text, got)
check("chat: one line is the last", [x["done"] for x in got] == [False] * (len(got) - 1) + [True], got)
code, a = s.post("/api/chat", {"model": "any", "messages": []})
check("chat: no messages load the model", a["done_reason"] == "load", a)
code, a = s.post("/api/generate", {"model": "any", "prompt": messages[0]["content"], "options": options, "stream": False})
check("generate: a prompt is a user's message", a["response"] == text, (a, text))
raw = s.post("/v1/completions", {"prompt": "Hello", "max_tokens": 12, "temperature": 0})[1]["choices"][0]["text"]
code, a = s.post("/api/generate", {"model": "any", "prompt": "Hello", "raw": True, "options": options, "stream": False})
check("generate: a raw prompt is a text", a["response"] == raw, (a, raw))
got = lines("/api/generate", {"model": "any", "prompt": "Hello", "raw": True, "options": options})
check("generate: a stream", "".join(x["response"] for x in got) == raw and got[-1]["eval_count"] > 0, got)
check("generate: no prompt loads the model", s.post("/api/generate", {"model": "any"})[1]["done_reason"] == "load")
code, a = s.post("/api/generate", {"model": "any", "prompt": "Hello", "options": {"num_predict": -1, "stop": ["w"], "temperature": 0},
                                   "raw": True, "stream": False})
check("generate: no limit", code == 200 and "w" not in a["response"], a)
check("tags", s.get("/api/tags")[1]["models"][0]["model"] == "llama-mha")
check("show", s.post("/api/show", {"model": "llama-mha"})[1]["model_info"]["llama.context_length"] == 256, s.post("/api/show", {}))
check("ps", s.get("/api/ps")[1]["models"][0]["context_length"] == 256, s.get("/api/ps"))
a = s.post("/api/chat", {"messages": messages, "options": options, "stream": False, "logprobs": True, "top_logprobs": 3})[1]
check("chat: probabilities", len(a["logprobs"]) == a["eval_count"] and len(a["logprobs"][0]["top_logprobs"]) == 3, a)
got = lines("/api/generate", {"prompt": "Hello", "options": options, "logprobs": True})
check("generate: probabilities of a stream, each once", sum(len(x.get("logprobs", [])) for x in got) == got[-1]["eval_count"], got)
for method, path in (("POST", "/api/pull"), ("DELETE", "/api/delete"), ("GET", "/api/chat"), ("GET", "/api/none/such")):
    code, a = s.ask(method, path)
    check(f"{method} {path}: an error in Ollama's shape", code in (404, 405) and isinstance(a["error"], str), a)
for path in ("/v1/messages", "/v1/messages/batches", "/v1/messages/count_tokens"):
    check(f"{path}: Anthropic's shape", s.ask("PUT", path)[1].get("type") == "error", s.ask("PUT", path))
for path in ("/v1/none", "/none", "/v1", "/api", "/", "/v1/chat/none"):
    a = s.ask("PUT", path)[1]
    check(f"{path}: OpenAI's shape", isinstance(a["error"], dict) and "type" not in a, a)
check("version", "version" in s.get("/api/version")[1])
for name, path, body, word in [("options of a wrong type", "/api/chat", {"messages": messages, "options": 3}, "options"),
                               ("an option of a wrong type", "/api/chat", {"messages": messages, "options": {"top_p": "x"}}, "top_p"),
                               ("think", "/api/chat", {"messages": messages, "think": 3}, "think"),
                               ("images", "/api/chat", {"messages": [{**messages[0], "images": ["a"]}]}, "images"),
                               ("no messages", "/api/chat", {"messages": 3}, "messages"),
                               ("a message that is none", "/api/chat", {"messages": [3]}, "messages[0]"),
                               ("top_logprobs", "/api/chat", {"messages": messages, "top_logprobs": -1}, "top_logprobs"),
                               ("a format", "/api/chat", {"messages": messages, "format": "xml"}, "format"),
                               ("a prompt of a wrong type", "/api/generate", {"prompt": 3}, "prompt"),
                               ("no JSON", "/api/generate", "{", "body")]:
    code, a = s.post(path, body)
    check(f"error: {name}", code == 400 and word in a["error"], (code, a))

code, a = s.post("/completion", {"prompt": "Hello", "n_predict": 12, "temperature": 0})
check("completion: the same text", a["content"] == raw and a["stop"] is True and a["tokens_predicted"] == 12, (a, raw))
check("completion: timings", a["timings"]["predicted_n"] == 12 and a["timings"]["cache_n"] + a["timings"]["prompt_n"]
      == a["tokens_evaluated"], a)
events = list(s.stream("/completion", {"prompt": "Hello", "n_predict": 12, "temperature": 0, "stream": True}))
check("completion: a stream", "".join(e["content"] for e in events) == raw and events[-1]["stop"]
      and not any(e["stop"] for e in events[:-1]), events)
check("completion: why it ended", a["stop_type"] in ("limit", "eos") and s.post(
    "/completion", {"prompt": "Hello", "stop": raw[2:4], "temperature": 0})[1]["stop_type"] == "word")
code, o = s.get("/api/tags")
check("tags: the size of the model and the time of its file", o["models"][0]["size"] > 1000 and o["models"][0]["modified_at"] > "2000", o)
check("ends", s.stop() == 0, s.said)
finish()
