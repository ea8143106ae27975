"""What an answer must be: JSON, JSON of a schema, and calls of tools that are demanded, in every protocol."""
import json

from harness import Server, check, finish, tiny
from scripted import scripted

WEATHER = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}
COLOR = {"type": "object", "properties": {"color": {"enum": ["red", "green"]}}, "required": ["color"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}, {"type": "function", "function": {"name": "paint", "parameters": COLOR}}]
CHAT = "/v1/chat/completions"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "color", "schema": COLOR, "strict": True}}


def user(text):
    return [{"role": "user", "content": text}]


def errors(s):
    for name, body, word in [("a type that is none", {"response_format": {"type": "grammar"}}, "response_format"), ("no schema", {"response_format": {"type": "json_schema"}}, "response_format"),
                             ("a function that is none", {"tool_choice": {"type": "function", "function": {"name": "none"}}, "tools": TOOLS}, "none"),
                             ("a call without tools", {"tool_choice": "required"}, "tool_choice"), ("a word", {"tool_choice": "perhaps"}, "tool_choice")]:
        code, a = s.post(CHAT, {"messages": user("a"), "max_tokens": 4, **body})
        check(f"error: {name}", code == 400 and word in a["error"]["message"], (code, a))


s = Server(tiny("llama-mha"), "--temperature", "1.0")
errors(s)
for seed in range(8):
    code, a = s.post(CHAT, {"messages": user("a"), "response_format": SCHEMA, "seed": seed})
    check("a schema: the text is valid", code == 200 and json.loads(a["choices"][0]["message"]["content"])["color"] in ("red", "green"), a)
    code, a = s.post(CHAT, {"messages": user("a"), "tools": TOOLS, "tool_choice": "required", "seed": seed})
    calls = a["choices"][0]["message"].get("tool_calls", [])
    check("tool_choice required: a call, and valid", len(calls) == 1 and a["choices"][0]["finish_reason"] == "tool_calls" and a["choices"][0]["message"]["content"] is None
          and json.loads(calls[0]["function"]["arguments"]) in [{"city": "Paris"}, {"city": "Rome"}, {"color": "red"}, {"color": "green"}], a)
    code, a = s.post(CHAT, {"messages": user("a"), "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "paint"}}, "seed": seed, "stream": False})
    check("tool_choice: a function by name", a["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "paint", a)
    code, a = s.post("/v1/messages", {"messages": user("a"), "max_tokens": 200, "seed": seed, "tool_choice": {"type": "any"},
                                      "tools": [{"name": "paint", "input_schema": COLOR}]})
    check("Anthropic: any tool", code == 200 and a["content"][0]["type"] == "tool_use" and a["content"][0]["input"]["color"] in ("red", "green")
          and a["stop_reason"] == "tool_use", a)
    code, a = s.post("/v1/messages", {"messages": user("a"), "max_tokens": 200, "seed": seed, "output_config": {"format": {"type": "json_schema", "schema": COLOR}}})
    check("Anthropic: a schema", code == 200 and "color" in json.loads(a["content"][0]["text"]), a)
    code, a = s.post("/v1/responses", {"input": "a", "seed": seed, "text": {"format": {"type": "json_schema", "name": "color", "schema": COLOR}}})
    check("responses: a schema", code == 200 and "color" in json.loads(a["output"][0]["content"][0]["text"]), a)
    code, a = s.post("/v1/responses", {"input": "a", "seed": seed, "tool_choice": "required", "tools": [{"type": "function", "name": "paint", "parameters": COLOR}]})
    check("responses: a call", code == 200 and "color" in json.loads(a["output"][0]["arguments"]), a)
    code, a = s.post("/api/chat", {"messages": user("a"), "stream": False, "format": COLOR, "options": {"seed": seed}})
    check("Ollama: a schema", code == 200 and "color" in json.loads(a["message"]["content"]), a)
# Parameters that refer to parts of themselves, as pydantic writes nested models.
NESTED = {"$id": "https://example.org/go", "$defs": {"City": WEATHER, "const": {"$ref": "#/$defs/City"}}, "type": "object", "additionalProperties": False,
          "properties": {"at": {"$ref": "#/$defs/City"}, "$ref": {"$ref": "#/$defs/const"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "as": {"const": {"$ref": "#/x"}}},
          "required": ["at", "$ref", "as"]}
MORE = [{"type": "function", "function": {"name": "go", "parameters": NESTED}}, {"type": "function", "function": {"name": "come", "parameters": NESTED}}]
for tools, choice in ((MORE[:1], "required"), (MORE, "required"), (MORE, {"type": "function", "function": {"name": "come"}})):
    code, a = s.post(CHAT, {"messages": user("a"), "tools": tools, "tool_choice": choice, "seed": 4, "max_tokens": 2000})
    if check(f"parameters with $defs, {len(tools)} tools, {choice}", code == 200 and a["choices"][0]["finish_reason"] == "tool_calls", a):
        said = json.loads(a["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
        check("and they are valid", said["at"]["city"] in ("Paris", "Rome") and said["$ref"]["city"] in ("Paris", "Rome") and said["as"] == {"$ref": "#/x"}, said)
# Parameters that do not say additionalProperties: a model invents none.  Where several schemas decide together, none is forbidden.
WORD = {"enum": ["red", "green"]}
OPEN = {"type": "object", "properties": {"in": {"type": "object", "properties": {"color": WORD}, "required": ["color"]},
                                         "list": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"$ref": "#/$defs/one"}}}, "required": ["in", "list"],
        "$defs": {"one": {"anyOf": [{"type": "object", "properties": {"n": WORD}, "required": ["n"]}]}}}
BOTH = {"type": "object", "allOf": [{"properties": {"a": WORD}, "required": ["a"]}, {"properties": {"b": WORD}, "required": ["b"]}]}
LACK = {"type": "object", "properties": {"a": WORD}, "required": ["a", "b"]}
EITHER = [{"type": "object", "properties": {"a": WORD, "b": WORD}, key: [{"required": ["a"]}, {"title": "B", "required": ["b"]}]} for key in ("anyOf", "oneOf")]
LACKS = {**EITHER[0], "anyOf": [{"required": ["c"]}]}
OUTER = {"type": "object", "required": ["c"], "properties": {"c": {"$ref": "#/$defs/x", "required": ["y"]}}, "$defs": {"x": {"type": "object", "properties": {"n": WORD}}}}


def called(parameters, seed):
    function = {"name": "f"} if parameters is None else {"name": "f", "parameters": parameters}
    code, a = s.post(CHAT, {"messages": user("a"), "tools": [{"type": "function", "function": function}], "tool_choice": "required", "seed": seed, "max_tokens": 3000})
    assert code == 200, a
    return a["choices"][0]["message"].get("tool_calls") and json.loads(a["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])


said = [called(OPEN, seed) for seed in range(6)]
check("a call has only properties with a name", all(x and set(x) == {"in", "list"} and set(x["in"]) == {"color"} and set(x["list"][0]) == {"n"} for x in said), said)
said = [called(None, seed) for seed in range(4)] + [called({"type": "object", "properties": {}}, seed) for seed in range(4)]
check("a function without parameters gets none", all(x == {} for x in said), said)
said = [[called(one, seed) for seed in range(4)] for one in EITHER]
check("one of several properties is required: no others are invented", all(x and set(x) <= {"a", "b"} for x in said[0]) and all(x and len(x) == 1 and set(x) < {"a", "b"} for x in said[1]), said)
said = [called(LACKS, seed) for seed in range(2)]
check("a property without a schema is required: it is there", all(not x or "c" in x for x in said), said)
said = [(called(BOTH, seed), called(LACK, seed), called(OUTER, seed)) for seed in range(2)]
check("schemas that decide together stay open", all((not x or {"a", "b"} <= set(x)) and (not y or {"a", "b"} <= set(y)) and (not z or "y" in z["c"]) for x, y, z in said), said)
# Ollama's own example of a schema is what pydantic writes, which does not say additionalProperties; Ollama's server gives no others.
PERSON = {"title": "Person", "type": "object", "properties": {"at": {"$ref": "#/$defs/At"}, "color": WORD}, "required": ["at", "color"],
          "$defs": {"At": {"type": "object", "properties": {"n": WORD}, "required": ["n"]}}}
said = [s.post("/api/chat", {"messages": user("a"), "stream": False, "format": PERSON, "options": {"seed": seed, "num_predict": 2000}})[1]["message"]["content"] for seed in range(4)]
check("Ollama: a schema of pydantic has no other properties", all(set(json.loads(x)) == {"at", "color"} and set(json.loads(x)["at"]) == {"n"} for x in said), said)
code, a = s.post("/v1/completions", {"prompt": "a", "json_schema": COLOR})
check("json_schema of completions", code == 200 and "color" in json.loads(a["choices"][0]["text"]), a)
events = list(s.stream(CHAT, {"messages": user("a"), "tools": TOOLS, "tool_choice": "required", "stream": True}))
check("a stream of a demanded call", [e["choices"][0]["finish_reason"] for e in events][-1] == "tool_calls"
      and any(e["choices"][0]["delta"].get("tool_calls") for e in events), events)
code, a = s.post(CHAT, {"messages": user("a"), "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 4}}}})
check("a schema that is none is an error 400", code == 400, (code, a))
code, a = s.post(CHAT, {"messages": user("a"), "tools": TOOLS, "tool_choice": "required", "max_tokens": 5})
check("a call that max_tokens cuts is content", a["choices"][0]["finish_reason"] == "length" and "tool_calls" not in a["choices"][0]["message"], a)
check("SIGTERM", s.stop() == 0, s.said)

# --- A model that thinks: constrained texts have no reasoning, and a demanded call needs no marks.
s = Server(scripted("hermes", {"call": '{"name": "get_weather", "arguments": {"city": "Paris"}}', "ann": '{"name": "Ann", "age": 3}', "done": "It is sunny."}))
code, a = s.post(CHAT, {"messages": user("#ann"), "response_format": {"type": "json_object"}})
check("json_object: the model's own text", a["choices"][0]["message"]["content"] == '{"name": "Ann", "age": 3}', a)
code, a = s.post(CHAT, {"messages": user("#call"), "tools": TOOLS, "tool_choice": "required"})
m = a["choices"][0]["message"]
check("a demanded call: the model's own arguments", m["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}', a)
code, b = s.post(CHAT, {"messages": user("#call") + [m, {"role": "tool", "tool_call_id": m["tool_calls"][0]["id"], "content": "#done"}], "tools": TOOLS})
check("a demanded call: the next turn has it as the template writes it", b["choices"][0]["message"]["content"] == "It is sunny."
      and b["kvik"]["replayed"] == 0, b)
check("SIGTERM", s.stop() == 0, s.said)
finish()
