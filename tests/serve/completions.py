"""OpenAI's protocol: whole answers, streams, choices, stop strings, probabilities, errors, keys and limits."""
import json
import os
import socket

from harness import PATIENCE, Server, at_once, check, far, finish, generate, tiny, until, work

model = tiny("llama-mha")
s = Server(model, "--do-sample", "false", "--max-body", "100K")
hello = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12}

# --- Whole answers and streams agree, and with kvik generate.
code, a = s.post("/v1/chat/completions", hello)
check("chat: 200", code == 200, a)
check("chat: its shape", a["object"] == "chat.completion" and a["choices"][0]["message"]["role"] == "assistant"
      and a["id"].startswith("chatcmpl-") and a["choices"][0]["finish_reason"] in ("stop", "length"), a)
check("chat: usage adds up", a["usage"]["total_tokens"] == a["usage"]["prompt_tokens"] + a["usage"]["completion_tokens"], a)
text = a["choices"][0]["message"]["content"]
alone = generate(model, "--chat", "Hello", "--max-new-tokens", "12")
check("chat: the text of kvik generate", alone["text"][0] == text, (alone, a))
events = list(s.stream("/v1/chat/completions", dict(hello, stream=True, stream_options={"include_usage": True})))
check("stream: begins with the role", events[0]["choices"][0]["delta"]["role"] == "assistant", events[0])
check("stream: the same text", "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1]) == text, events)
check("stream: says why it ended", events[-2]["choices"][0]["finish_reason"] == a["choices"][0]["finish_reason"], events)
check("stream: usage in the last chunk", events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"]
      == a["usage"]["completion_tokens"], events[-1])
check("stream: ends with [DONE]", s.last == "data: [DONE]", s.last)
events = list(s.stream("/v1/chat/completions", dict(hello, stream=True)))
check("stream: no usage unless asked", all("usage" not in e for e in events), events)
code, b = s.post("/v1/completions", {"prompt": "abc", "max_tokens": 10})
check("completions: text", code == 200 and b["object"] == "text_completion", b)
code, c = s.post("/v1/completions", {"prompt": s.post("/tokenize", {"content": "abc"})[1]["tokens"], "max_tokens": 10})
check("completions: ids are the same prompt", c["choices"][0]["text"] == b["choices"][0]["text"], (b, c))

# --- The prefix is reused, and the answer says so exactly.
long = {"messages": [{"role": "user", "content": "x" * 100}], "max_tokens": 20}
code, a = s.post("/v1/chat/completions", long)
check("a new text reuses nothing", a["usage"]["prompt_tokens_details"]["cached_tokens"] < 16, a)
turn = dict(long, messages=long["messages"] + [a["choices"][0]["message"], {"role": "user", "content": "y"}])
code, b = s.post("/v1/chat/completions", turn)
check("the second turn computes only what is new", b["usage"]["prompt_tokens_details"]["cached_tokens"] >= a["usage"]["prompt_tokens"]
      and b["kvik"]["reused"] + b["kvik"]["computed"] >= b["usage"]["prompt_tokens"], b)

a = s.post("/v1/completions", {"prompt": ["x" * 60, "y" * 60, "x" * 60], "max_tokens": 3, "n": 2, "temperature": 0})[1]
check("prompts in an array: a choice for each and each of n", len(a["choices"]) == 6 and a["usage"]["prompt_tokens"] == 180
      and a["choices"][0]["text"] == a["choices"][5]["text"], a)
check("prompts in an array: what is reused is not counted twice", 0 <= a["usage"]["prompt_tokens_details"]["cached_tokens"] < 180, a)
same = {"origin": ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:1"], "other": ["http://evil.example", "http://localhost.evil.example",
                                                                                            "null", "localhost", "http://127.0.0.1.evil"]}
for origin in same["origin"]:
    check(f"a page at {origin} may ask", s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}, {"Origin": origin})[0] == 200)
for origin in same["other"]:
    check(f"a page at {origin} may not", s.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}, {"Origin": origin})[0] == 403)
code, a = s.post("/completion", {"prompt": "abc", "n_predict": 4, "n_probs": 3, "temperature": 0, "response_fields": ["content", "generation_settings/n_predict"]})
check("completion: fields that are asked for", code == 200 and set(a) == {"content", "generation_settings/n_predict"}, a)
check("ignore_eos goes on to the length", s.post("/completion", {"prompt": "abc", "n_predict": 30, "ignore_eos": True})[1]["tokens_predicted"] == 30)
code, a = s.post("/chat/completions/input_tokens", hello)
check("input_tokens counts what a chat would have", a["input_tokens"] == s.post("/v1/chat/completions", hello)[1]["usage"]["prompt_tokens"], a)

a = s.post("/v1/completions", {"prompt": "abc", "max_tokens": 6, "num_beams": 2})[1]
check("beams: times are times", 0 <= a["kvik"]["first_token_seconds"] <= a["kvik"]["seconds"] < 100, a)
check("beams: more than the server has are refused at once", s.post("/v1/completions", {"prompt": "abc", "num_beams": 500})[0] == 400)
check("a wrong priority is told", s.post("/v1/completions", {"prompt": "a", "priority": "x"})[0] == 400)

# --- Choices, seeds, stop strings, probabilities.
hot = {"prompt": "seed", "temperature": 1, "max_tokens": 16, "seed": 7}
one, two = s.post("/v1/completions", hot)[1], s.post("/v1/completions", hot)[1]
check("a seed gives the same text", one["choices"][0]["text"] == two["choices"][0]["text"], (one, two))
many = s.post("/v1/completions", dict(hot, n=3))[1]
check("n: three choices, the first as alone", [c["index"] for c in many["choices"]] == [0, 1, 2]
      and many["choices"][0]["text"] == one["choices"][0]["text"], many)
check("n: choices differ", len({c["text"] for c in many["choices"]}) > 1, many)
other = s.post("/v1/completions", dict(hot, seed=8))[1]
check("n: the second choice is that of the next seed", many["choices"][1]["text"] == other["choices"][0]["text"], (many, other))
free = {s.post("/v1/completions", {"prompt": "seed", "temperature": 1, "max_tokens": 16})[1]["choices"][0]["text"] for _ in range(4)}
check("without a seed texts differ", len(free) > 1, free)
greedy = s.post("/v1/completions", {"prompt": "stop", "temperature": 0, "max_tokens": 24})[1]["choices"][0]["text"]
if check("a text to stop in", len(greedy) > 4, greedy):
    mark = greedy[3:5]
    a = s.post("/v1/completions", {"prompt": "stop", "temperature": 0, "max_tokens": 24, "stop": [mark]})[1]["choices"][0]
    check("stop: the text ends before the string", a["text"] == greedy[:greedy.index(mark)] and a["finish_reason"] == "stop", (a, greedy))
    parts = list(s.stream("/v1/completions", {"prompt": "stop", "temperature": 0, "max_tokens": 24, "stop": mark, "stream": True}))
    check("stop: no stream shows a part of it", "".join(e["choices"][0]["text"] for e in parts) == a["text"], parts)
a = s.post("/v1/chat/completions", dict(hello, logprobs=True, top_logprobs=3))[1]
content = a["choices"][0]["logprobs"]["content"]
check("logprobs: one entry for each token", len(content) == a["usage"]["completion_tokens"]
      and all(len(t["top_logprobs"]) == 3 and t["logprob"] <= 0 for t in content), a)
check("logprobs: the bytes are the text's", b"".join(bytes(t["bytes"]) for t in content).decode("utf-8", "replace")
      .startswith(a["choices"][0]["message"]["content"][:3]), content)
events = list(s.stream("/v1/chat/completions", dict(hello, logprobs=True, top_logprobs=3, stream=True)))
told = [t for e in events if e["choices"][0]["logprobs"] for t in e["choices"][0]["logprobs"]["content"]]
check("logprobs: a stream tells the same", told == content, (told, content))
ban = generate(model, "stop", "--max-new-tokens", "1")["sequences"][0][-1]
a = s.post("/v1/completions", {"prompt": "stop", "temperature": 0, "max_tokens": 4, "logit_bias": {str(ban): -100}})[1]
check("logit_bias: a token is banned", a["choices"][0]["text"] != greedy[:len(a["choices"][0]["text"])], (a, greedy))
for name, bias in {"an id of 41 bits": [[2**40 + 5, 100]], "a negative id": {"-5": 1}, "an id behind the vocabulary": {"384": 1},
                   "more tokens than it may": [[5, 1]] * 5000, "a text of more": [["x" * 5000, 1]]}.items():
    code, a = s.post("/v1/completions", {"prompt": "stop", "max_tokens": 4, "logit_bias": bias})
    check(f"logit_bias: {name} is refused", code == 400 and "logit_bias" in a["error"]["message"], a)
flat = s.post("/v1/completions", {"prompt": "stop", "temperature": 0, "max_tokens": 24, "presence_penalty": 100})[1]["choices"][0]["text"]
check("presence_penalty: no token comes twice", len(set(flat)) == len(flat) or flat != greedy, (flat, greedy))

# --- Tokens and templates.
t = s.post("/tokenize", {"content": "abc", "with_pieces": True})[1]["tokens"]
check("tokenize: pieces", [x["piece"] for x in t] == ["a", "b", "c"], t)
check("detokenize: the same text", s.post("/detokenize", {"tokens": [x["id"] for x in t]})[1]["content"] == "abc")
check("apply-template", s.post("/apply-template", {"messages": hello["messages"]})[1]["prompt"] == "<user>Hello<bot>")
check("props", s.get("/props")[1]["total_slots"] == 16)
check("models", s.get("/v1/models")[1]["data"][0]["id"] == "llama-mha")

# --- Errors name the field, and nothing else stops.
for name, path, body, status, word in [
        ("no body", "/v1/chat/completions", "", 400, "body"),
        ("no JSON", "/v1/chat/completions", "{", 400, "body"),
        ("an array", "/v1/chat/completions", "[]", 400, "object"),
        ("no messages", "/v1/chat/completions", {}, 400, "messages"),
        ("messages of a wrong type", "/v1/chat/completions", {"messages": "hi"}, 400, "messages"),
        ("a role of a wrong type", "/v1/chat/completions", {"messages": [{"role": 3}]}, 400, "messages[0].role"),
        ("an image", "/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "image_url"),
        ("temperature of a wrong type", "/v1/completions", {"prompt": "a", "temperature": "x"}, 400, "temperature"),
        ("top_p out of range", "/v1/completions", {"prompt": "a", "top_p": 3}, 400, "top_p"),
        ("max_tokens negative", "/v1/completions", {"prompt": "a", "max_tokens": -2}, 400, "max_tokens"),
        ("n too large", "/v1/completions", {"prompt": "a", "n": 1000}, 400, "n"),
        ("an id that is none", "/v1/completions", {"prompt": [1, 99999]}, 400, "token 1"),
        ("an empty prompt", "/v1/completions", {"prompt": []}, 400, "empty"),
        ("response_format", "/v1/chat/completions", dict(hello, response_format={"type": "grammar"}), 400, "response_format"),
        ("another method", "/health", {}, 405, "method"),
        ("another path", "/v2", {}, 404, "/v2"),
        ("deep JSON", "/v1/completions", '{"prompt":' + "[" * 50000, 400, ""),
        ("not UTF-8", "/v1/completions", b'{"prompt":"\xff"}', 400, ""),
        ("probabilities of beams", "/v1/completions", {"prompt": "a", "num_beams": 2, "logprobs": 1}, 400, "num_beams"),
        ("a large body", "/v1/completions", {"prompt": "a" * 200000}, 413, "larger")]:
    code, a = s.post(path, body)
    check(f"error: {name}", code == status and word in a["error"]["message"], (code, a))
code, a = s.post("/v1/completions", {"prompt": "a" * 9000})
check("error: a prompt that is too long has both numbers", code == 400 and a["error"]["type"] == "exceed_context_size_error"
      and a["error"]["n_prompt_tokens"] == 9000 and a["error"]["n_ctx"] < 9000, (code, a))
check("error: unknown fields are ignored", s.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "frobnicate": 3})[0] == 200)

# --- Raw bytes on the socket.
def raw(data):
    with socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE) as c:
        try:
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)
        except OSError:
            return b""  # the server has closed already
        out = b""
        while True:
            try:
                part = c.recv(65536)
            except ConnectionResetError:
                return out
            if not part:
                return out
            out += part


for data in [b"", b"\0\0\0\0", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
             b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
             b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
             b"GET /health HTTP/1.1\r\nA: " + b"b" * 100000 + b"\r\n\r\n", b"GET /%00%ff HTTP/1.1\r\n\r\n", os.urandom(5000)]:
    raw(data)
check("malformed requests: the server goes on", s.get("/health")[1] == {"status": "ok"})
c = s.connect()
for i in range(3):
    c.request("GET", "/health")
    r = c.getresponse()
    check("a connection serves several requests", r.status == 200 and r.read() == b'{"status":"ok"}')
with socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE) as c:
    c.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 2 + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
    two = b""
    while part := c.recv(65536):
        two += part
check("pipelined requests are answered", two.count(b"200 OK") == 3, two)

# --- A client that leaves ends its request, and no other.
long = Server(far())
with socket.create_connection(("127.0.0.1", long.port)) as c:
    body = b'{"prompt":"leave","max_tokens":30000,"stream":true,"temperature":1,"logit_bias":{"2":-100}}'
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    c.recv(10)
until(lambda: not long.metric("vllm:num_requests_running"))
check("a client that leaves ends its request", long.metric("vllm:generation_tokens_total") < 30000)
check("a client that left: ends", long.stop() == 0, long.said)

for field, value, part in [("json_schema", 7, 'field "json_schema" must be'), ("json_schema", "json", 'field "json_schema" must be')]:
    code, o = s.post("/v1/completions", {"prompt": "a", field: value})
    check(f"a wrong type: {field} {value}", code == 400 and part in o["error"]["message"], o)
code, o = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "reasoning_effort": 7})
check("a wrong type: reasoning_effort", code == 400 and "reasoning_effort" in o["error"]["message"], o)
code, o = s.post("/v1/completions", {"prompt": "a", "max_tokens": 40, "json_schema": "json_object"})
check("json_schema json_object demands JSON", code == 200 and o["choices"][0]["text"].lstrip().startswith("{"), o)
check("SIGTERM ends the server", s.stop() == 0, s.said)
check("options that have an effect cause no warning", not any("no effect" in line for line in s.said), s.said)

# --- Options of the command line.
s = Server(model, "--temperature", "0", "--max-length", "30", "--generation-config", '{"return_dict_in_generate": true, "output_logits": true}')
one, two = (s.post("/v1/completions", {"prompt": "abc"}) for _ in range(2))
check("--temperature 0 is the likeliest token", one[0] == 200 and one[1]["choices"] == two[1]["choices"], (one, two))
check("--max-length counts the prompt", one[1]["usage"]["total_tokens"] <= 30, one)
check("a server whose options ask for more than texts ends", s.stop() == 0, s.said)
s = Server(model, "--parallel", "1", "--prefix-cache", os.path.join(work, "one"))
codes = [x[0] for x in at_once([lambda i=i: s.post("/v1/completions", {"prompt": "%d" % i * 50, "max_tokens": 5}) for i in range(6)])]
check("one text at once, with a directory: all are answered", codes == [200] * 6, codes)
check("and it ends", s.stop() == 0, s.said)

# --- Keys.
keys = os.path.join(work, "keys")
with open(keys, "w") as f:
    f.write("# keys\nalpha\n\nbeta \n")
s = Server(model, "--api-key-file", keys, "--alias", "mine", "--log")
check("key: none is 401", s.get("/v1/models")[0] == 401)
check("key: a wrong one is 401", s.get("/v1/models", {"Authorization": "Bearer alphb"})[0] == 401)
check("key: Bearer", s.get("/v1/models", {"Authorization": "Bearer alpha"})[1]["data"][0]["id"] == "mine")
check("key: x-api-key", s.get("/v1/models", {"x-api-key": "beta"})[0] == 200)
for path in ("/metrics", "/props"):
    check(f"key: {path} needs one", s.get(path)[0] == 401)
for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"):
    check(f"key: {path} needs one", s.post(path, hello)[0] == 401)
check("key: /health needs none", s.get("/health")[0] == 200)
s.post("/v1/completions", {"prompt": "secret words", "max_tokens": 2}, {"x-api-key": "beta"})
check("SIGTERM: a server with keys", s.stop() == 0)
lines = [json.loads(line) for line in s.said if line.startswith("{")]
check("log: a line for each generation, without its text", len(lines) == 1 and lines[0]["new_tokens"] == 2
      and not any("secret" in line or "beta" in line for line in s.said), s.said)
finish()
