"""Requests that are wrong in random ways, in every protocol: an answer or an error 400, never a crash, a hang or an error 500."""
import copy
import json
import os
import random

from harness import Server, check, finish
from scripted import scripted

SEED = int(os.environ.get("KVIK_TEST_SEED") or 20261127)
MANY = 4000 if os.environ.get("KVIK_TEST_LONG") else 100 if os.environ.get("KVIK_TEST_SHORT") else 400
draw = random.Random(SEED)
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
REQUESTS = [
    ("/v1/chat/completions", {"model": "m", "max_tokens": 3, "stream": False, "tools": [TOOL], "tool_choice": "auto", "temperature": 0.5, "stop": ["x"], "n": 2,
                              "response_format": FORMAT, "messages": [{"role": "system", "content": "x-anthropic-billing-header: a\nb"}, {"role": "user", "content": [{"type": "text", "text": "a"}]},
                                           {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "r"}, {"role": "tool", "tool_call_id": "call_1", "content": "c"}]}),
    ("/v1/chat/completions", {"max_tokens": 3, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}, "messages": [{"role": "user", "content": "a"}], "logprobs": True, "top_logprobs": 2}),
    ("/v1/messages", {"model": "m", "max_tokens": 3, "system": [{"type": "text", "text": "a"}], "tools": [{"name": "get_weather", "input_schema": SCHEMA}], "tool_choice": {"type": "tool", "name": "get_weather"},
                      "stop_sequences": ["x"], "thinking": {"type": "enabled"}, "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
                      "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "document", "source": {"type": "text", "data": "d"}}]},
                                   {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": ""}, {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}]},
                                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "c"}]}, {"type": "text", "text": "e"}]}]}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "a"}], "system": "b", "tools": [{"name": "get_weather", "input_schema": SCHEMA}]}),
    ("/v1/responses", {"model": "m", "instructions": "i", "max_output_tokens": 3, "tools": [dict(TOOL["function"], type="function")], "tool_choice": {"type": "function", "name": "get_weather"}, "reasoning": {"effort": "high"},
                       "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
                       "input": [{"role": "developer", "content": "d"}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
                                 {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c1", "output": "o"}, {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "i"}]}),
    ("/api/chat", {"model": "m", "stream": False, "format": SCHEMA, "options": {"num_predict": 3, "seed": 1}, "tools": [TOOL], "messages": [{"role": "user", "content": "a"},
                   {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]}, {"role": "tool", "content": "c"}]}),
    ("/completion", {"prompt": [1, "a", 2], "n_predict": 3, "n_probs": 2, "stop": ["x"], "seed": 1, "id_slot": 0, "response_fields": ["content", "timings/prompt_n"],
                     "return_tokens": True, "return_progress": True, "timings_per_token": True, "verbose": True, "t_max_predict_ms": 1000, "mirostat": 2, "logit_bias": [[5, 1.5]]}),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "prompt": "c", "input_extra": [{"filename": "f", "text": "t"}], "n_predict": 3}),
]
VALUES = [None, True, False, 0, -1, 3, 2.5, 1e300, "", "a", "\x00", "{", "required", "none", [], [1], ["a"], [[]], [None], {}, {"type": "x"}, {"a": 1}, "long " * 50, "\ud7ff"]


def places(value, path=()):
    """Lists the paths of all values inside."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for k, v in items:
        yield from places(v, path + (k,))


def mutated(body):
    body = copy.deepcopy(body)
    for _ in range(draw.randrange(1, 4)):
        path = draw.choice([p for p in places(body) if p])
        at = body
        for k in path[:-1]:
            at = at[k]
        if draw.random() < 0.3:
            del at[path[-1]]
        else:
            at[path[-1]] = copy.deepcopy(draw.choice(VALUES))
        if not body:
            break
    return body


s = Server(scripted("hermes", {"a": "Good day."}, special=("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")), "--max-new-tokens", "9", "--log")
for path, body in REQUESTS:
    code, a = s.post(path, body)
    check(f"{path}: the request itself", code == 200, (code, a))
    bad = []
    for i in range(MANY):
        m = mutated(body)
        m.pop("stream", None) if "/api" not in path else m.update(stream=False)
        for key in ("max_tokens", "max_output_tokens"):  # texts stay short
            if path != "/v1/messages" and isinstance(m.get(key), (int, float)) and m[key] > 9:
                m[key] = 9
        code, a = s.post(path, m)
        if code not in (200, 400):
            bad.append((code, a, m))
    check(f"{path}: {MANY} requests that are wrong (seed {SEED})", not bad, bad[:1])
check("the server goes on", s.get("/health")[0] == 200)
check("SIGTERM", s.stop() == 0, s.said)
finish()
