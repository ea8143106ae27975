"""Anthropic's protocol: messages whole and as streams, tools, thinking, counts of tokens, what was reused, and errors."""
import json

from harness import Server, check, finish
from scripted import scripted

PATH = "/v1/messages"
TOOLS = [{"name": "get_weather", "description": "Weather of a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}}}, {"type": "web_search_20250305", "name": "web_search"}]


def hermes(city):
    return '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>' % city


texts = {"one": hermes("Paris"), "two": "I look.\n" + hermes("Paris") + "\n" + hermes("Rome"), "plain": "Good day, 20° today.",
         "think": "<think>\nHm, so.\n</think>\n\nYes: " + "it is so. " * 3, "both": "<think>\nI need it.\n</think>\n\n" + hermes("Oslo")}
s = Server(scripted("hermes", texts))


def ask(text, **more):
    body = {"model": "any", "max_tokens": 200, "messages": [{"role": "user", "content": text}], **more}
    return s.post(PATH, body, {"anthropic-version": "2023-06-01"})[1]


def streamed(text, **more):
    """Puts a stream together as clients do, and checks its order."""
    body = {"model": "any", "max_tokens": 200, "stream": True, "messages": [{"role": "user", "content": text}], **more}
    events = list(s.stream(PATH, body))
    m, opened, name = None, None, ""
    for e in events:
        if e["type"] == "message_start":
            assert m is None
            m = dict(e["message"], content=[])
        elif e["type"] == "content_block_start":
            assert opened is None and e["index"] == len(m["content"])
            opened = dict(e["content_block"], json="")
        elif e["type"] == "content_block_delta":
            d = e["delta"]
            assert e["index"] == len(m["content"])
            if d["type"] == "signature_delta":
                opened["signature"] = d["signature"]
            else:
                key = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}[d["type"]]
                opened["json" if key == "partial_json" else key] += d[key]
        elif e["type"] == "content_block_stop":
            raw = opened.pop("json")
            if opened["type"] == "tool_use":
                opened["input"] = json.loads(raw)
            m["content"].append(opened)
            opened = None
        elif e["type"] == "message_delta":
            m.update(e["delta"], usage=e["usage"])
    assert opened is None and events[-1]["type"] == "message_stop"
    return m, events


def bare(m):
    """A message without what differs from request to request."""
    return [{k: v for k, v in b.items() if k != "id"} for b in m["content"]], m["stop_reason"], m["stop_sequence"]


def use(city):
    return {"type": "tool_use", "name": "get_weather", "input": {"city": city}}


a = ask("#plain")
check("a message: its shape", a["type"] == "message" and a["role"] == "assistant" and a["id"].startswith("msg_") and a["model"] == "hermes", a)
check("a message: a text", bare(a) == ([{"type": "text", "text": texts["plain"]}], "end_turn", None), a)
check("usage: what was not reused", a["usage"]["output_tokens"] > 3 and a["usage"]["cache_read_input_tokens"] + a["usage"]["input_tokens"]
      == s.post(PATH + "/count_tokens", {"messages": [{"role": "user", "content": "#plain"}]})[1]["input_tokens"], a)
a = ask("#two", tools=TOOLS)
check("tools: text and two uses", bare(a) == ([{"type": "text", "text": "I look."}, use("Paris"), use("Rome")], "tool_use", None), a)
check("tools: ids", len({b["id"] for b in a["content"][1:]}) == 2 and all(b["id"].startswith("toolu_") for b in a["content"][1:]), a)
a = ask("#think")
check("thinking is a block", bare(a)[0] == [{"type": "thinking", "thinking": "Hm, so.", "signature": "kvik"},
                                          {"type": "text", "text": "Yes: " + "it is so. " * 3}], a)
a = ask("#two")
check("no tools: the text stays", bare(a)[0] == [{"type": "text", "text": texts["two"]}], a)
a = ask("#two", tools=TOOLS, tool_choice={"type": "none"})
check("tool_choice none: the text stays", bare(a)[0] == [{"type": "text", "text": texts["two"]}], a)
a = ask("#plain", max_tokens=2)
check("max_tokens", a["stop_reason"] == "max_tokens" and a["usage"]["output_tokens"] == 2, a)
a = ask("#plain", stop_sequences=["nowhere", "20°", "0° t"])
check("stop_sequences: the text ends before, and the answer names it", bare(a) == ([{"type": "text", "text": "Good day, "}], "stop_sequence", "20°"), a)
for name in texts:
    whole = ask("#" + name, tools=TOOLS)
    m, events = streamed("#" + name, tools=TOOLS)
    check(f"stream of {name}: as the whole message", bare(m) == bare(whole), (m, whole))
    check(f"stream of {name}: usage adds up", m["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
          and m["usage"]["input_tokens"] + m["usage"]["cache_read_input_tokens"] == whole["usage"]["input_tokens"]
          + whole["usage"]["cache_read_input_tokens"], (m, whole))
streamed("long " * 30 + "#think")
m, events = streamed("long " * 30 + "#think")
check("stream: the order of events", [e["type"] for e in events][:3] == ["message_start", "ping", "content_block_start"]
      and [e["type"] for e in events][-3:] == ["content_block_stop", "message_delta", "message_stop"], events)
check("stream: the first event says what was reused", events[0]["message"]["usage"]["cache_read_input_tokens"]
      == m["usage"]["cache_read_input_tokens"] > 0, (events[0], m))
check("stream: text comes in pieces", sum(e["type"] == "content_block_delta" for e in events) > 5, events)

# --- Turns: blocks of all kinds come back, and their rows are reused.
system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Be kind."}]
turn = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "#both"}]}]
first = s.post(PATH, {"max_tokens": 200, "system": system, "messages": turn, "tools": TOOLS})[1]
check("a turn: thinking and a use", [b["type"] for b in first["content"]] == ["thinking", "tool_use"], first)
turn += [{"role": "assistant", "content": first["content"]},
         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first["content"][1]["id"], "content": [{"type": "text", "text": "cold"}]},
                                      {"type": "text", "text": "So? #plain"}]}]
second = s.post(PATH, {"max_tokens": 200, "system": system, "messages": turn, "tools": TOOLS})[1]
total = first["usage"]["input_tokens"] + first["usage"]["cache_read_input_tokens"] + first["usage"]["output_tokens"]
check("a turn with a result: all before it is reused", second["usage"]["cache_read_input_tokens"] >= total - 1, (first["usage"], second["usage"]))
check("a turn with a result: an answer", bare(second)[0] == [{"type": "text", "text": texts["plain"]}], second)
turn[1]["content"] = [b for b in turn[1]["content"] if b["type"] != "thinking"]
third = s.post(PATH, {"max_tokens": 200, "system": system, "messages": turn, "tools": TOOLS})[1]
check("a client that drops thinking reuses all the same", third["usage"]["cache_read_input_tokens"] >= total - 1, third["usage"])
turn[2]["content"][0] = {"type": "tool_result", "tool_use_id": "x", "content": "cold", "is_error": True}
check("a result as text", s.post(PATH, {"max_tokens": 9, "messages": turn, "tools": TOOLS})[0] == 200)
check("count_tokens: the prompt with tools", s.post(PATH + "/count_tokens", {"system": system, "messages": turn, "tools": TOOLS})[1]["input_tokens"] > 100)
code, a = s.post(PATH, {"max_tokens": 9, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "#plain"}]})
check("a last message of the assistant is continued", code == 200, a)

# --- Rules: what changes with every request does not spoil the prefix.
def billed(i, server=None):
    return [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={i:05x};"}, {"type": "text", "text": "You are an agent. " * 9}]


def reused(server, i):
    return server.post(PATH, {"max_tokens": 2, "system": billed(i), "messages": [{"role": "user", "content": "b"}]})[1]["usage"]


reused(s, 1)
check("rules: a billing header is left out", reused(s, 2)["cache_read_input_tokens"] > 150, reused(s, 3))
chat = [{"role": "system", "content": billed(7)[0]["text"] + "\n\nYou are."}, {"role": "user", "content": "b"}]
prompt = s.post("/apply-template", {"messages": chat})[1]["prompt"]
check("rules: in OpenAI's chats too", prompt == "<user>You are.<user>b<bot>", prompt)

# --- Errors.
hello = {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}
for name, body, word in [
        ("no max_tokens", {"messages": hello["messages"]}, "max_tokens"), ("no messages", {"max_tokens": 4}, "messages"),
        ("a role", dict(hello, messages=[{"role": "tool", "content": "a"}]), "messages.0.role"),
        ("content of a wrong type", dict(hello, messages=[{"role": "user", "content": 4}]), "messages.0.content"),
        ("an image", dict(hello, messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}]), "image"),
        ("system of a wrong type", dict(hello, system=4), "system"), ("a tool without a schema", dict(hello, tools=[{"name": "a"}]), "tools.0"),
        ("stop_sequences of a wrong type", dict(hello, stop_sequences="a"), "stop_sequences"),
        ("a use without a name", dict(hello, messages=[{"role": "assistant", "content": [{"type": "tool_use"}]}]), "tool_use"),
        ("a result without an id", dict(hello, messages=[{"role": "user", "content": [{"type": "tool_result"}]}]), "tool_result"),
        ("a choice of a wrong type", dict(hello, tools=TOOLS, tool_choice={"type": "x"}), "tool_choice"), ("no JSON", "{", "body")]:
    code, a = s.post(PATH, body)
    check(f"error: {name}", code == 400 and a["type"] == "error" and a["error"]["type"] == "invalid_request_error" and word in a["error"]["message"], (code, a))
code, a = s.post(PATH, dict(hello, messages=[{"role": "user", "content": "a" * 9000}]))
check("error: a prompt that is too long, as clients know it", code == 400 and a["error"]["message"].startswith("prompt is too long: 90"), a)
check("error: unknown fields and blocks of thinking are ignored", s.post(PATH, dict(hello, metadata={"user_id": "a"}, thinking={"type": "enabled", "budget_tokens": 5},
      messages=[{"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}, hello["messages"][0]]))[0] == 200)
check("SIGTERM", s.stop() == 0, s.said)

s = Server(scripted("again", texts), "--no-rules")
reused(s, 1)
check("--no-rules: the header stays", reused(s, 2)["cache_read_input_tokens"] < 100, reused(s, 3))
check("SIGTERM", s.stop() == 0, s.said)
finish()
