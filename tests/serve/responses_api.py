"""OpenAI's responses: items whole and as streams, tools, turns, what was reused, what clients probe, and errors."""
import json

from harness import Server, check, finish
from scripted import scripted

PATH = "/v1/responses"
TOOLS = [{"type": "function", "name": "get_weather", "description": "Weather.", "strict": False, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}, {"type": "web_search"}, {"type": "namespace", "name": "a", "tools": []},
    {"type": "image_generation"}, {"type": "custom", "name": "apply_patch"}]


def hermes(city):
    return '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>' % city


texts = {"one": hermes("Paris"), "two": "I look.\n" + hermes("Paris") + "\n" + hermes("Rome"), "plain": "Good day, 20° today.",
         "think": "<think>\nHm, so.\n</think>\n\nYes: " + "it is so. " * 3, "both": "<think>\nI need it.\n</think>\n\n" + hermes("Oslo")}
s = Server(scripted("hermes", texts))


def ask(text, **more):
    return s.post(PATH, {"model": "any", "input": text, **more})[1]


def streamed(text, **more):
    """Puts a stream together as clients do, and checks numbers and order."""
    c = list(s.stream(PATH, {"model": "any", "input": text, "stream": True, **more}))
    assert [e["sequence_number"] for e in c] == list(range(len(c)))
    assert [e["type"] for e in c[:2]] == ["response.created", "response.in_progress"]
    items, text = [], {}
    for e in c[2:-1]:
        kind = e["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert e["output_index"] == len(items)
            items.append(e["item"])
        elif kind.endswith(".delta"):
            assert e["item_id"] == items[-1]["id"] and e["output_index"] == len(items) - 1
            text[e["item_id"]] = text.get(e["item_id"], "") + e["delta"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert e["text"] == text[e["item_id"]]
        elif kind == "function_call_arguments.done":
            assert e["arguments"] == text[e["item_id"]]
        elif kind == "output_item.done":
            assert e["item"]["id"] == items[-1]["id"] and e["item"].get("status", "completed") == "completed"
            items[-1] = e["item"]
        else:
            assert kind in ("content_part.added", "content_part.done"), kind
    assert c[-1]["response"]["output"] == items
    return c[-1]["response"], c


def bare(r):
    """A response without what differs from request to request."""
    out = []
    for o in r["output"]:
        if o["type"] == "function_call":
            out.append((o["name"], o["arguments"], o["status"]))
        else:
            out.append((o["type"], "".join(p["text"] for p in o["content"])))
    return out, r["status"]


PARIS, ROME = [("get_weather", '{"city": "%s"}' % c, "completed") for c in ("Paris", "Rome")]
a = ask("#plain")
check("a response: its shape", a["object"] == "response" and a["id"].startswith("resp_") and a["error"] is None and a["model"] == "hermes", a)
check("a response: a message", bare(a) == ([("message", texts["plain"])], "completed"), a)
a = ask("#two", tools=TOOLS)
check("tools: a message and two calls", bare(a) == ([("message", "I look."), PARIS, ROME], "completed"), a)
check("tools: ids of calls", len({o["call_id"] for o in a["output"][1:]}) == 2 and len({o["id"] for o in a["output"]}) == 3, a)
a = ask("#think")
check("reasoning is an item", bare(a)[0] == [("reasoning", "Hm, so."), ("message", "Yes: " + "it is so. " * 3)], a)
check("usage: reasoning tokens", 0 < a["usage"]["output_tokens_details"]["reasoning_tokens"] < a["usage"]["output_tokens"]
      and a["usage"]["total_tokens"] == a["usage"]["input_tokens"] + a["usage"]["output_tokens"], a)
a = ask("#two", tools=TOOLS[1:])
check("no functions: the text stays", bare(a)[0] == [("message", texts["two"])], a)
a = ask("#plain", max_output_tokens=2)
check("max_output_tokens", a["status"] == "incomplete" and a["incomplete_details"] == {"reason": "max_output_tokens"}, a)
for name in texts:
    whole = ask("#" + name, tools=TOOLS)
    m, events = streamed("#" + name, tools=TOOLS)
    check(f"stream of {name}: as the whole response", bare(m) == bare(whole) and m["usage"]["output_tokens"] == whole["usage"]["output_tokens"], (m, whole))
m, events = streamed("#plain", max_output_tokens=2)
check("stream: incomplete", events[-1]["type"] == "response.incomplete", events[-1])
m, events = streamed("#think")
check("stream: text comes in pieces", sum(e["type"] == "response.output_text.delta" for e in events) > 5, events)

# --- Turns: items come back, and their rows are reused.
start = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Permissions."}]},
         {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "long " * 9 + "#both"}]}]
first = ask(start, tools=TOOLS, instructions="Be brief.")
check("a turn: reasoning and a call", bare(first)[0] == [("reasoning", "I need it."), ("get_weather", '{"city": "Oslo"}', "completed")], first)
result = {"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "cold #plain"}
turn = start + first["output"] + [result]
second = ask(turn, tools=TOOLS, instructions="Be brief.")
total = first["usage"]["total_tokens"] - 1
check("a turn with a result: all before it is reused", second["usage"]["input_tokens_details"]["cached_tokens"] >= total, (first["usage"], second))
check("a turn with a result: an answer", bare(second)[0] == [("message", texts["plain"])], second)
third = ask(start + first["output"][1:] + [dict(result, output=[{"type": "input_text", "text": "cold #plain"}])], tools=TOOLS, instructions="Be brief.")
check("a client that drops reasoning reuses all the same", third["usage"]["input_tokens_details"]["cached_tokens"] >= total, third["usage"])
fourth = turn + second["output"] + [{"role": "user", "content": "#plain"}]
check("items without a type; unknown items are left out", bare(ask(fourth + [{"type": "web_search_call", "id": "x"}], tools=TOOLS, instructions="Be brief."))
      == ([("message", texts["plain"])], "completed"))
check("input_tokens", s.post(PATH + "/input_tokens", {"input": turn, "tools": TOOLS, "instructions": "Be brief."})[1]["input_tokens"]
      == second["usage"]["input_tokens"])
check("input_tokens of nothing", s.post(PATH + "/input_tokens", {})[1] == {"object": "response.input_tokens", "input_tokens": 0})

# --- What Codex sends, and probes.
codex = {"model": "any", "instructions": "You are Codex.", "input": start, "tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": True,
         "reasoning": {"effort": "high", "summary": "auto"}, "store": False, "stream": True, "include": ["reasoning.encrypted_content"],
         "prompt_cache_key": "x", "text": {"verbosity": "low"}}
events = list(s.stream(PATH, codex))
check("Codex: a stream", events[-1]["type"] == "response.completed" and bare(events[-1]["response"])[0][1][0] == "get_weather", events[-1])
code, a = s.post(PATH, {"model": "any", "input": []})
check("a probe without input", code == 200 and a["output"] == [] and a["status"] == "completed", a)
m, events = streamed("")
check("a probe without input, as a stream", [e["type"] for e in events] == ["response.created", "response.in_progress", "response.completed"], events)
check("models: an array for Codex", s.get("/v1/models")[1]["models"][0]["name"] == "hermes")

# --- Errors.
for name, body, word in [
        ("previous_response_id", {"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"), ("background", {"input": "a", "background": True}, "background"),
        ("a conversation", {"input": "a", "conversation": "c"}, "conversation"), ("input of a wrong type", {"input": 4}, "input"),
        ("an item of a wrong type", {"input": [4]}, "input[0]"), ("an image", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input_image"),
        ("a call without a name", {"input": [{"type": "function_call", "call_id": "a"}]}, "input[0]"), ("an output without an id", {"input": [{"type": "function_call_output"}]}, "input[0]"),
        ("a reference", {"input": [{"type": "item_reference", "id": "a"}]}, "input[0]"), ("a format", {"input": "a", "text": {"format": {"type": "grammar"}}}, "text.format"),
        ("no JSON", "{", "body")]:
    code, a = s.post(PATH, body)
    check(f"error: {name}", code == 400 and word in a["error"]["message"], (code, a))
code, a = s.post(PATH, {"input": "a", "instructions": 7})
check("error: instructions of a wrong type", code == 400 and 'field "instructions" must be a string' in a["error"]["message"], a)
code, a = s.post(PATH, {"input": "a", "reasoning": {"effort": 7}})
check("error: an effort of a wrong type", code == 400 and "reasoning_effort" in a["error"]["message"], a)
code, a = s.post(PATH, {"input": "a", "max_output_tokens": 5, "temperature": 0.5, "top_p": 0.75})
check("a response has the options of its request", code == 200 and (a["max_output_tokens"], a["temperature"], a["top_p"]) == (5, 0.5, 0.75), a)
code, a = s.post(PATH, {"input": "a", "max_output_tokens": 5, "temperature": 0})
check("and those alone", code == 200 and a["temperature"] == 0 and a["top_p"] is None, a)


def counted(*texts):
    items = [{"role": "system" if i % 2 else "developer", "content": t} for i, t in enumerate(texts)]
    return s.post(PATH + "/input_tokens", {"input": items + [{"role": "user", "content": "a"}], "instructions": "Be brief."})[1]["input_tokens"]


check("system messages are one, in time that grows as they do", counted("b", "c") == counted("b\n\nc") != counted("bc") and counted(*["b" * 98] * 10000) == counted("\n\n".join(["b" * 98] * 10000)))
check("SIGTERM", s.stop() == 0, s.said)
finish()
