"""Tool calls and reasoning in OpenAI's chats: whole and as streams, in several dialects, with models that say given texts."""
import json

from harness import Server, check, finish
from scripted import scripted

WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
TOOLS = [WEATHER, {"type": "function", "function": {"name": "now"}}]
PATH = "/v1/chat/completions"


def hermes(city):
    return '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>' % city


def ask(s, text, **more):
    body = {"messages": [{"role": "user", "content": text}], "tools": TOOLS, **more}
    code, a = s.post(PATH, body)
    if code != 200:
        return code, a
    return a["choices"][0]["message"], a["choices"][0]["finish_reason"]


def streamed(s, text, **more):
    """Puts the deltas of a stream together as clients do."""
    m, calls, reason, events = {"content": "", "reasoning_content": ""}, [], None, []
    for e in s.stream(PATH, {"messages": [{"role": "user", "content": text}], "tools": TOOLS, "stream": True, **more}):
        events.append(e)
        for c in e["choices"]:
            for k in m:
                m[k] += c["delta"].get(k) or ""
            for t in c["delta"].get("tool_calls", []):
                if t["index"] == len(calls):
                    calls.append({"id": t["id"], "type": t["type"], "function": dict(t["function"])})
                else:
                    calls[t["index"]]["function"]["arguments"] += t["function"]["arguments"]
            reason = c["finish_reason"] or reason
    return m, calls, reason, events


def spoken(m):
    """What a message calls, without the ids."""
    return [(c["type"], c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls", [])]


PARIS, ROME = ("function", "get_weather", '{"city": "Paris"}'), ("function", "get_weather", '{"city": "Rome"}')

# --- Hermes and Qwen, with marks that are plain text.
texts = {"one": hermes("Paris"), "two": "I look.\n" + hermes("Paris") + "\n" + hermes("Rome"),
         "think": "<think>\nThe user wants weather.\n</think>\n\n" + hermes("Paris"),
         "answer": "<think>\nEasy: 20°.\n</think>\n\nIt is 20° — warm. ",
         "broken": '<tool_call>\n{"name": "get_weather", "arguments": {"city"\n</tool_call>', "plain": "Nothing to call here."}
model = scripted("hermes", texts)
s = Server(model)
m, why = ask(s, "#one")
check("a call: its name and arguments", spoken(m) == [PARIS] and m["content"] is None and why == "tool_calls", (m, why))
m, why = ask(s, "#two")
check("two calls with content before them", spoken(m) == [PARIS, ROME] and m["content"] == "I look." and why == "tool_calls", m)
check("two calls: ids differ", len({c["id"] for c in m["tool_calls"]}) == 2 and all(c["id"].startswith("call_") for c in m["tool_calls"]), m)
m, why = ask(s, "#think")
check("reasoning before a call", m["reasoning_content"] == "The user wants weather." and spoken(m) == [PARIS], m)
m, why = ask(s, "#answer")
check("reasoning before an answer", m["reasoning_content"] == "Easy: 20°." and m["content"] == "It is 20° — warm. "
      and why == "stop" and "tool_calls" not in m, m)
m, why = ask(s, "#broken")
check("a broken call is content", m["content"] == texts["broken"] and why == "stop", m)
m, why = ask(s, "#one", tools=None)
check("no tools: the text stays", m["content"] == texts["one"] and why == "stop", m)
m, why = ask(s, "#one", tool_choice="none")
check("tool_choice none: the text stays", m["content"] == texts["one"] and why == "stop", m)
m, why = ask(s, "#plain")
check("an answer without calls", m == {"role": "assistant", "content": texts["plain"]} and why == "stop", m)
m, why = ask(s, "#one", max_tokens=8)
check("a call that max_tokens cuts is content", m["content"] and texts["one"].startswith(m["content"]) and why == "length", (m, why))
for name in set(texts) - {"broken"}:
    whole, why = ask(s, "#" + name)
    m, calls, reason, events = streamed(s, "#" + name)
    check(f"stream of {name}: as the whole answer", m["content"] == (whole["content"] or "") and reason == why
          and m["reasoning_content"] == whole.get("reasoning_content", "") and spoken({"tool_calls": calls}) == spoken(whole), (whole, events))
m, calls, reason, events = streamed(s, "#two")
deltas = [t for e in events for c in e["choices"] for t in c["delta"].get("tool_calls", [])]
check("stream: id and name come first, then arguments", deltas[0]["function"] == {"name": "get_weather", "arguments": ""}
      and "id" not in deltas[1] and deltas[1]["function"]["arguments"], deltas)
indices = [t["index"] for t in deltas]
check("stream: arguments come in parts, one call after another", indices == sorted(indices) and indices.count(0) > 4 and indices.count(1) > 4, deltas)
m, calls, reason, events = streamed(s, "#broken")
check("stream: a broken call was told before it broke", calls[0]["function"]["arguments"] == '{"city"\n' and reason == "tool_calls" and m["content"] == "", (m, calls, events))
m, calls, reason, events = streamed(s, "#one", max_tokens=28)
check("stream: a call that max_tokens cuts", calls and reason == "length" and not m["content"], (m, calls, events))
m, calls, reason, events = streamed(s, "#answer")
check("stream: content comes in pieces", sum(bool(c["delta"].get("content")) for e in events for c in e["choices"]) > 3, events)

# --- The next turn: calls and results reach the template, and their rows are reused.
first = s.post(PATH, {"messages": [{"role": "user", "content": "#think"}], "tools": TOOLS})[1]
message = first["choices"][0]["message"]
turn = [{"role": "user", "content": "#think"}, message,
        {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": [{"type": "text", "text": "sunny #answer"}]}]
code, a = s.post(PATH, {"messages": turn, "tools": TOOLS})
check("a result: the model answers it", code == 200 and a["choices"][0]["message"]["content"] == "It is 20° — warm. ", a)
check("a result: the rows of the call are reused", a["usage"]["prompt_tokens_details"]["cached_tokens"]
      >= first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"] - 1, (first["usage"], a["usage"], a["kvik"]))
prompt = s.post("/apply-template", {"messages": turn, "tools": TOOLS})[1]["prompt"]
check("a call as the template writes it", hermes("Paris") in prompt, prompt)
dropped = [turn[0], {k: v for k, v in message.items() if k != "reasoning_content"}, turn[2]]
code, b = s.post(PATH, {"messages": dropped, "tools": TOOLS})
check("a client that drops the reasoning reuses the call", b["usage"]["prompt_tokens_details"]["cached_tokens"]
      >= a["usage"]["prompt_tokens_details"]["cached_tokens"], b)
for name, messages, word in [("calls of a wrong type", [{"role": "assistant", "content": "", "tool_calls": {}}], "tool_calls"),
                             ("a call without a function", [{"role": "assistant", "content": "", "tool_calls": [{}]}], "tool_calls"),
                             ("a call that is no object", [{"role": "assistant", "content": "", "tool_calls": [1]}], "tool_calls")]:
    code, a = s.post(PATH, {"messages": messages})
    check(f"error: {name}", code == 400 and word in a["error"]["message"], (code, a))
check("no calls: the key is left out", s.post("/apply-template", {"messages": [{"role": "assistant", "content": "a", "tool_calls": []}]})[0] == 200)
m = s.post(PATH, {"messages": [{"role": "user", "content": "#two"}], "tools": TOOLS, "n": 3})[1]["choices"]
check("n: each choice has its calls", [spoken(c["message"]) for c in m] == [[PARIS, ROME]] * 3
      and len({t["id"] for c in m for t in c["message"]["tool_calls"]}) == 6, m)
m, why = ask(s, "#one", num_beams=2)
check("beams: the call is parsed too", spoken(m) == [PARIS], m)
m, calls, reason, events = streamed(s, "#two", logprobs=True, top_logprobs=2)
told = [t for e in events for c in e["choices"] if c["logprobs"] for t in c["logprobs"]["content"]]
check("logprobs: a stream with calls tells all of them", b"".join(bytes(t["bytes"]) for t in told).decode().replace("</s>", "") == texts["two"], told)
code, a = s.post("/api/chat", {"messages": [{"role": "user", "content": "#two"}], "tools": TOOLS, "stream": False})
own = [{"index": i, "name": "get_weather", "arguments": {"city": c}} for i, c in enumerate(("Paris", "Rome"))]
check("Ollama: calls have objects", code == 200 and [t["function"] for t in a["message"]["tool_calls"]] == own and a["message"]["content"] == "I look.", a)
code, a = s.post("/api/chat", {"messages": [{"role": "user", "content": "#two"}, a["message"], {"role": "tool", "content": "#plain"}], "stream": False, "tools": TOOLS})
check("Ollama: calls come back", code == 200 and a["message"]["content"] == texts["plain"] and a["kvik"]["reused"] > 100, a)
check("SIGTERM", s.stop() == 0, s.said)

# --- Marks that are special tokens: the decoder skips such tokens unless they are marks.
mistral = "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}{% if c.id|length != 9 %}{{ raise_exception('the id has ' ~ c.id|length ~ ' letters') }}{% endif %}"
s = Server(scripted("mistral", {"one": 'I look.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', "think": "[THINK]Hm.[/THINK]Yes."}, mistral,
                    ["[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"]))
m, why = ask(s, "#one")
check("special marks: a call", spoken(m) == [PARIS] and m["content"] == "I look." and why == "tool_calls", m)
code, a = s.post(PATH, {"messages": [{"role": "user", "content": "a"}, dict(m), {"role": "tool", "tool_call_id": m["tool_calls"][0]["id"], "content": "#think"}], "tools": TOOLS})
check("special marks: reasoning; ids as the template wants them", code == 200 and a["choices"][0]["message"].get("reasoning_content") == "Hm."
      and a["choices"][0]["message"]["content"] == "Yes.", a)
m, why = ask(s, "#one", tools=[])
check("special marks: without tools they are skipped", m["content"] == 'I look.get_weather{"city": "Paris"}', m)
code, a = s.post("/v1/completions", {"prompt": s.post("/tokenize", {"content": "<go-think>"})[1]["tokens"]})
check("special marks: completions skip them", a["choices"][0]["text"] == "Hm.Yes.", a)
check("SIGTERM", s.stop() == 0, s.said)

# --- A template that opens the reasoning, and arguments as objects.
llama = '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}{# <|python_tag|> #}'
s = Server(scripted("llama", {"one": '{"name": "get_weather", "parameters": {"city": "Paris"}}', "json": '{"name": "Ann", "parameters": {}}'}, llama))
m, why = ask(s, "#one")
check("bare JSON: a call", spoken(m) == [PARIS] and why == "tool_calls", m)
prompt = s.post("/apply-template", {"messages": [{"role": "user", "content": "a"}, m, {"role": "tool", "content": "b"}]})[1]["prompt"]
check("bare JSON: arguments reach the template as an object", '"parameters": {"city": "Paris"}}' in prompt, prompt)
m, why = ask(s, "#json")
check("bare JSON: an unknown function is content", m["content"] == '{"name": "Ann", "parameters": {}}' and why == "stop", m)
check("SIGTERM", s.stop() == 0, s.said)
s = Server(scripted("opened", {"think": "\nHm.\n</think>\n\nYes."}, go="<%s>"))
m, why = ask(s, "#think")
check("a reasoning that the template opened", m["reasoning_content"] == "Hm." and m["content"] == "Yes.", m)
check("SIGTERM", s.stop() == 0, s.said)
finish()
