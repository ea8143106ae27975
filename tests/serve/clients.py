"""The packages that people use: openai, anthropic, langchain-openai, litellm and ollama against kvik serve, whole and as streams, with tools.
make test-serve installs them in build/serve-venv and runs this."""
import asyncio
import importlib
import json
import os

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_TELEMETRY="False", DO_NOT_TRACK="1", LANGSMITH_TRACING="false")

from harness import ROOT, Server, check, finish, skip
from scripted import scripted


def hermes(city):
    return '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>' % city


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TEXTS = {"one": hermes("Paris"), "two": "I look.\n" + hermes("Paris") + "\n" + hermes("Rome"), "plain": "Good day, 20° today.",
         "think": "<think>\nHm, so.\n</think>\n\nYes: it is so."}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}}
CITIES = [{"city": "Paris"}, {"city": "Rome"}]
s = Server(scripted("hermes", TEXTS))
URL = f"http://127.0.0.1:{s.port}"


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError as e:
        skip(f"{name}: {e}")
        return None


def user(text):
    return [{"role": "user", "content": text}]


def test_chat(openai):
    c = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
    check("openai: models", [m.id for m in c.models.list()] == ["hermes"])
    r = c.chat.completions.create(model="hermes", messages=user("#plain"))
    check("openai: a chat", r.choices[0].message.content == TEXTS["plain"] and r.usage.completion_tokens > 3, r)
    r = c.chat.completions.create(model="hermes", messages=user("#two"), tools=[TOOL])
    calls = r.choices[0].message.tool_calls
    check("openai: calls", [json.loads(t.function.arguments) for t in calls] == CITIES and r.choices[0].finish_reason == "tool_calls", r)
    turn = user("#two") + [r.choices[0].message] + [{"role": "tool", "tool_call_id": t.id, "content": "sunny #plain"} for t in calls]
    r2 = c.chat.completions.create(model="hermes", messages=turn, tools=[TOOL])
    check("openai: results; the turn is reused", r2.choices[0].message.content == TEXTS["plain"]
          and r2.usage.prompt_tokens_details.cached_tokens >= r.usage.total_tokens - 1, r2)
    with c.chat.completions.stream(model="hermes", messages=user("#two"), tools=[TOOL]) as stream:
        kinds = [e.type for e in stream]
        m = stream.get_final_completion().choices[0].message
    check("openai: a stream of calls", m.content == "I look." and [json.loads(t.function.arguments) for t in m.tool_calls] == CITIES
          and "tool_calls.function.arguments.done" in kinds, (m, kinds))
    parts = list(c.chat.completions.create(model="hermes", messages=user("#plain"), stream=True, stream_options={"include_usage": True}))
    check("openai: a stream", "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == TEXTS["plain"]
          and parts[-1].usage.total_tokens > 5, parts)
    r = c.completions.create(model="hermes", prompt="abc", max_tokens=3)
    check("openai: completions", r.usage.completion_tokens >= 1, r)
    try:
        c.chat.completions.create(model="hermes", messages=[])
        check("openai: an error", False)
    except openai.BadRequestError as e:
        check("openai: an error", "messages" in str(e), e)

    async def many():
        a = openai.AsyncOpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
        return await asyncio.gather(*(a.chat.completions.create(model="hermes", messages=user("#plain")) for _ in range(8)))
    check("openai: eight at once", {r.choices[0].message.content for r in asyncio.run(many())} == {TEXTS["plain"]})


def test_responses(openai):
    c = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
    tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}
    r = c.responses.create(model="hermes", input="#plain")
    check("openai responses: a text", r.output_text == TEXTS["plain"] and r.status == "completed", r)
    r = c.responses.create(model="hermes", input="#two", tools=[tool])
    calls = [o for o in r.output if o.type == "function_call"]
    check("openai responses: calls", [json.loads(o.arguments) for o in calls] == CITIES, r)
    turn = user("#two") + r.output + [{"type": "function_call_output", "call_id": o.call_id, "output": "sunny #plain"} for o in calls]
    r2 = c.responses.create(model="hermes", input=turn, tools=[tool])
    check("openai responses: results; the turn is reused", r2.output_text == TEXTS["plain"]
          and r2.usage.input_tokens_details.cached_tokens >= r.usage.total_tokens - 1, r2)
    for name in TEXTS:
        with c.responses.stream(model="hermes", input="#" + name, tools=[tool]) as stream:
            kinds = {e.type for e in stream}
            m = stream.get_final_response()
        whole = c.responses.create(model="hermes", input="#" + name, tools=[tool])
        check(f"openai responses: a stream of {name}", m.output_text == whole.output_text and "response.completed" in kinds
              and [o.type for o in m.output] == [o.type for o in whole.output], (m, kinds))
    check("openai responses: input tokens", c.responses.input_tokens.count(model="hermes", input="#plain").input_tokens > 3)
    try:
        c.responses.create(model="hermes", input="a", previous_response_id="resp_1")
        check("openai responses: an error", False)
    except openai.BadRequestError as e:
        check("openai responses: an error", "previous_response_id" in str(e), e)


def test_anthropic(anthropic):
    c = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
    tool = {"name": "get_weather", "description": "Weather.", "input_schema": SCHEMA}
    check("anthropic: models", [m.id for m in c.models.list()] == ["hermes"])
    m = c.models.retrieve("hermes")
    check("anthropic: a model", (m.type, m.display_name) == ("model", "hermes") and m.max_input_tokens > 1000, m)
    m = c.messages.create(model="hermes", max_tokens=200, messages=user("#think"))
    check("anthropic: thinking and a text", [b.type for b in m.content] == ["thinking", "text"] and m.content[1].text == "Yes: it is so.", m)
    m = c.messages.create(model="hermes", max_tokens=200, messages=user("#two"), tools=[tool], system="Be brief.")
    uses = [b for b in m.content if b.type == "tool_use"]
    check("anthropic: uses", [b.input for b in uses] == CITIES and m.stop_reason == "tool_use", m)
    turn = user("#two") + [{"role": "assistant", "content": m.content}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": b.id, "content": "sunny #plain"} for b in uses]}]
    m2 = c.messages.create(model="hermes", max_tokens=200, messages=turn, tools=[tool], system="Be brief.")
    check("anthropic: results; the turn is reused", m2.content[0].text == TEXTS["plain"] and m2.usage.cache_read_input_tokens
          >= m.usage.input_tokens + m.usage.cache_read_input_tokens + m.usage.output_tokens - 1, m2)
    for name in TEXTS:
        with c.messages.stream(model="hermes", max_tokens=200, messages=user("#" + name), tools=[tool]) as stream:
            said = "".join(stream.text_stream)
            f = stream.get_final_message()
        whole = c.messages.create(model="hermes", max_tokens=200, messages=user("#" + name), tools=[tool])
        check(f"anthropic: a stream of {name}", [b.model_dump(exclude={"id"}) for b in f.content] == [b.model_dump(exclude={"id"}) for b in whole.content]
              and said == "".join(b.text for b in f.content if b.type == "text"), (f, whole))
    check("anthropic: count_tokens", c.messages.count_tokens(model="hermes", messages=turn, tools=[tool]).input_tokens > 50)
    try:
        c.messages.create(model="hermes", max_tokens=5, messages=user("a" * 9000))
        check("anthropic: an error", False)
    except anthropic.BadRequestError as e:
        check("anthropic: an error", "prompt is too long" in str(e), e)


def test_langchain(module):
    from langchain_core.messages import HumanMessage, ToolMessage
    llm = module.ChatOpenAI(model="hermes", base_url=URL + "/v1", api_key="none", max_retries=0)
    check("langchain: a chat", llm.invoke("#plain").content == TEXTS["plain"])
    check("langchain: a stream", "".join(p.content for p in llm.stream("#plain")) == TEXTS["plain"])
    tools = llm.bind_tools([TOOL])
    m = tools.invoke("#two")
    check("langchain: calls", [t["args"] for t in m.tool_calls] == CITIES and m.content == "I look.", m)
    parts = None
    for p in tools.stream("#two"):
        parts = p if parts is None else parts + p
    check("langchain: a stream of calls", [t["args"] for t in parts.tool_calls] == CITIES, parts)
    m2 = tools.invoke([HumanMessage("#two"), m] + [ToolMessage("sunny #plain", tool_call_id=t["id"]) for t in m.tool_calls])
    check("langchain: results; the turn is reused", m2.content == TEXTS["plain"] and m2.usage_metadata["input_token_details"]["cache_read"]
          >= m.usage_metadata["total_tokens"] - 1, (m2, m))


def test_litellm(litellm):
    litellm.suppress_debug_info = True
    for route, base in (("openai/hermes", URL + "/v1"), ("anthropic/hermes", URL), ("ollama_chat/hermes", URL)):
        more = {"model": route, "api_base": base, "api_key": "none", "num_retries": 0}
        r = litellm.completion(messages=user("#plain"), **more)
        check(f"litellm {route}: a chat", r.choices[0].message.content == TEXTS["plain"], r)
        r = litellm.completion(messages=user("#two"), tools=[TOOL], **more)
        check(f"litellm {route}: calls", [json.loads(t.function.arguments) for t in r.choices[0].message.tool_calls] == CITIES, r)
        name, want = ("#one", CITIES[:1]) if "ollama" in route else ("#two", CITIES)  # it mixes up calls of Ollama's streams
        parts = list(litellm.completion(messages=user(name), tools=[TOOL], stream=True, **more))
        m = litellm.stream_chunk_builder(parts).choices[0].message
        check(f"litellm {route}: a stream of calls", [json.loads(t.function.arguments) for t in m.tool_calls or []] == want, (m, parts))


def test_ollama(ollama):
    c = ollama.Client(host=URL)
    check("ollama: models", [m.model for m in c.list().models] == [m.model for m in c.ps().models] == ["hermes"])
    check("ollama: show", "tools" in c.show("hermes").capabilities and c.show("hermes").modelinfo["llama.context_length"] > 1000)
    r = c.chat("hermes", user("#plain"))
    check("ollama: a chat", r.message.content == TEXTS["plain"] and r.done_reason == "stop" and r.eval_count > 3, r)
    check("ollama: a stream", "".join(p.message.content for p in c.chat("hermes", user("#plain"), stream=True)) == TEXTS["plain"])
    check("ollama: a text", c.generate("hermes", "#plain").response == TEXTS["plain"])
    check("ollama: a stream of a text", "".join(p.response for p in c.generate("hermes", "#plain", stream=True)) == TEXTS["plain"])

    def get_weather(city: str) -> str:
        """Weather.

        Args:
            city: where
        """
    r = c.chat("hermes", user("#two"), tools=[get_weather])
    check("ollama: calls of a Python function", [t.function.arguments for t in r.message.tool_calls] == CITIES and r.message.content == "I look.", r)
    turn = user("#two") + [r.message] + [{"role": "tool", "tool_name": t.function.name, "content": "sunny #plain"} for t in r.message.tool_calls]
    r2 = c.chat("hermes", turn, tools=[get_weather])
    check("ollama: results", r2.message.content == TEXTS["plain"], r2)
    said = list(c.chat("hermes", user("#two"), tools=[get_weather], stream=True))
    check("ollama: a stream of calls", [t.function.arguments for p in said for t in p.message.tool_calls or []] == CITIES
          and "".join(p.message.content or "" for p in said) == "I look.", said)
    r = c.chat("hermes", user("#think"), think=True)
    check("ollama: thinking", (r.message.thinking, r.message.content) == ("Hm, so.", "Yes: it is so."), r)
    r = c.generate("hermes", "#think", think=True)
    check("ollama: thinking of a text", (r.thinking, r.response) == ("Hm, so.", "Yes: it is so."), r)
    said = list(c.generate("hermes", "#think", think=True, stream=True))
    check("ollama: a stream of thinking", ("".join(p.thinking or "" for p in said), "".join(p.response for p in said)) == ("Hm, so.", "Yes: it is so."), said)
    exact = {**SCHEMA, "additionalProperties": False, "properties": {"city": {"enum": ["Oslo", "Rome"]}}}
    for stream in (False, True):
        r = c.chat("hermes", user("#plain"), format=exact, stream=stream)
        text = "".join(p.message.content for p in r) if stream else r.message.content
        check(f"ollama: a schema (stream: {stream})", json.loads(text)["city"] in ("Oslo", "Rome"), text)
    r = c.chat("hermes", user("#plain"), logprobs=True, top_logprobs=2)
    check("ollama: probabilities", "".join(p.token for p in r.logprobs).startswith("Go") and len(r.logprobs[0].top_logprobs) == 2, r)
    for name, call in {"messages": lambda: c.chat("hermes", user("a" * 90000)), "temperature": lambda: c.chat("hermes", user("a"), options={"temperature": "hot"}),
                       "images": lambda: c.chat("hermes", [{"role": "user", "content": "a", "images": [b"x"]}]),
                       "exceeds": lambda: list(c.chat("hermes", user("a" * 90000), stream=True)), "/api/pull": lambda: c.pull("other")}.items():
        try:
            call()
            check(f"ollama: an error ({name})", False)
        except ollama.ResponseError as e:
            check(f"ollama: an error ({name})", (name in e.error or "exceeds" in e.error) and not e.error.startswith("{"), e)


for name, tests in (("openai", [test_chat, test_responses]), ("anthropic", [test_anthropic]), ("langchain_openai", [test_langchain]), ("litellm", [test_litellm]), ("ollama", [test_ollama])):
    found = package(name)
    for test in tests if found else []:
        test(found)
check("SIGTERM", s.stop() == 0, s.said)


def test_speech(openai):
    tone = os.path.join(ROOT, "tests/fixtures/audio/tone.wav")
    s = Server(os.path.join(ROOT, "tests/fixtures/speech/tiny"))
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0).audio
    try:
        with open(tone, "rb") as f:
            plain = c.transcriptions.create(model="whisper", file=f)
    except openai.BadRequestError as e:
        skip(f"this build reads no recordings: {e}")
        return
    with open(tone, "rb") as f:
        full = c.transcriptions.create(model="whisper", file=f, response_format="verbose_json", timestamp_granularities=["word", "segment"])
    check("openai: a transcription", full.text == plain.text and full.duration > 0 and isinstance(full.segments, list), full)
    with open(tone, "rb") as f:
        events = list(c.transcriptions.create(model="whisper", file=f, stream=True))
    check("openai: a stream of one", events[-1].type == "transcript.text.done" and events[-1].text == plain.text, events)
    with open(tone, "rb") as f:
        check("openai: subtitles", isinstance(c.transcriptions.create(model="whisper", file=f, response_format="srt"), str))
    with open(tone, "rb") as f:
        check("openai: a translation", isinstance(c.translations.create(model="whisper", file=f).text, str))
    check("SIGTERM: speech", s.stop() == 0, s.said)


if package("openai"):
    test_speech(package("openai"))
finish()
