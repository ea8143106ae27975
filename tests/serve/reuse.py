"""What users of other servers miss: turns that compute everything again, in one protocol or another, after a branch, after
metadata that a client changes, with layers that have windows or states; and one client's cancellation that ends another's text."""
import http.client
import json

from harness import PATIENCE, Server, at_once, check, finish, tiny

PATHS = ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"]


def said(path, a):
    """Returns the text of an answer, and the tokens: of the prompt, of these cached, and new ones."""
    if path == "/v1/messages":
        u = a["usage"]
        return "".join(b["text"] for b in a["content"]), u["input_tokens"] + u["cache_read_input_tokens"], u["cache_read_input_tokens"], u["output_tokens"]
    if path == "/v1/responses":
        u = a["usage"]
        return "".join(b["content"][0]["text"] for b in a["output"]), u["input_tokens"], u["input_tokens_details"]["cached_tokens"], u["output_tokens"]
    if path == "/api/chat":
        return a["message"]["content"], a["prompt_eval_count"], a["kvik"]["reused"], a["eval_count"]
    u = a["usage"]
    return a["choices"][0]["message"]["content"], u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"], u["completion_tokens"]


def turn(s, path, messages, new=6, system=None, more=None, headers=None):
    """Asks for the next answer of a conversation and adds it; returns cached tokens and all tokens afterwards."""
    if system and path != "/v1/messages":
        sent = [{"role": "system", "content": system}] + messages
    else:
        sent = messages
    body = {"/v1/messages": {"messages": sent, "max_tokens": new, "temperature": 0, **({"system": system} if system else {})},
            "/v1/responses": {"input": sent, "max_output_tokens": new, "temperature": 0},
            "/api/chat": {"messages": sent, "stream": False, "options": {"num_predict": new, "temperature": 0}},
            "/v1/chat/completions": {"messages": sent, "max_tokens": new, "temperature": 0}}[path]
    code, a = s.post(path, {**body, **(more or {})}, headers)
    assert code == 200, (path, code, a)
    text, prompt, cached, tokens = said(path, a)
    messages.append({"role": "assistant", "content": text})
    return cached, prompt + tokens


def user(text):
    return {"role": "user", "content": text}


# --- A conversation, a branch of it, and the conversation again: rows, windows, and states of two kinds.
for name in ["llama-bf16-long", "gemma3", "mamba2", "qwen3-next"]:
    s = Server(tiny(name))
    for path in PATHS if name == "llama-bf16-long" else PATHS[:1]:
        main, misses, have = [], [], 0
        for i in range(4):
            main.append(user(f"{path[-9:]} {i}"))
            cached, now = turn(s, path, main)
            if i and cached < have - 1:  # the row of the last token is not computed
                misses.append((i, cached, have))
            have = now
        check(f"{name}, {path}: every turn reuses all that came before", not misses, misses)
        found = []
        for i in range(6):
            branch = main[:2] + [user(f"a branch {i} " + "y" * 20)]
            found.append(turn(s, path, branch)[0])
        check(f"{name}, {path}: branches reuse the turn that they leave from", all(found), found)
        main.append(user("and on"))
        cached, now = turn(s, path, main)
        check(f"{name}, {path}: six branches have not evicted the conversation", cached >= have - 1, (cached, have))
    check(f"{name}: ends", s.stop() == 0, s.said)

# --- What clients change with each request, and no model reads.
s = Server(tiny("llama-bf16-long"))
for path in PATHS:
    main, misses, have = [], [], 0
    for i in range(4):
        main.append(user(f"{path[-9:]} {i}"))
        more = {"user": f"u{i}", "metadata": {"user_id": f"session {i}"}, "store": bool(i % 2), "service_tier": "auto", "safety_identifier": f"{i}"}
        headers = {"x-request-id": f"{i}", "User-Agent": f"client/{i}", "x-stainless-retry-count": f"{i}", "anthropic-beta": f"b{i}"}
        cached, now = turn(s, path, main, 4, f"x-anthropic-billing-header: cc_version={i}; cch={i * 7919};\nBe brief.", more, headers)
        if i and cached < have - 1:
            misses.append((i, cached, have))
        have = now
    check(f"{path}: metadata that changes costs no reuse", not misses, misses)

# --- A client that leaves ends its own text alone.
ids = [[5 + i] * 20 for i in range(6)]
body = [{"prompt": p, "max_tokens": 200, "ignore_eos": True, "temperature": 0, "return_token_ids": True} for p in ids]
want = [s.post("/v1/completions", b)[1]["choices"][0]["text"] for b in body]


def stream(i):
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=PATIENCE)
    c.request("POST", "/v1/completions", json.dumps(dict(body[i], stream=True)))
    r, text, n = c.getresponse(), "", 0
    for line in r:
        if line.startswith(b"data: {"):
            text += json.loads(line[6:])["choices"][0]["text"]
            n += 1
        if i % 2 and n == 5:
            c.sock.close() if c.sock else r.close()
            return None
    return text if line == b"\n" else "cut " + text


got = at_once([lambda i=i: stream(i) for i in range(6)])
check("three clients leave, and the texts of the other three are whole", all(got[i] == want[i] for i in (0, 2, 4)), (got, want))
check("clients that left: ends", s.stop() == 0, s.said)
finish()
