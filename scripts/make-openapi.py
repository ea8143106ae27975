#!/usr/bin/env python3
"""make-openapi.py [--check] - writes docs/openapi.json, the description of what kvik serve answers.

The paths, their methods and which of them need no key come from the tables of routes in src/serve; what is sent and
answered is written here, since C has no table of it. A route without a description is an error, and so is a description
without a route. --check compares the file with what would be written; exit 1 if they differ.
tests/serve/contract.py sends thousands of requests that follow from the file, and compares the answers with it.
"""
import glob
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, "docs", "openapi.json")

# --- Words for schemas.
S, I, N, B, O = ({"type": t} for t in ("string", "integer", "number", "boolean", "object"))
COUNT = {"type": "integer", "minimum": 0}
NULL = {"type": "null"}
MOST = 4294967295


def ref(name):
    return {"$ref": "#/components/schemas/" + name}


def array(items, **more):
    return {"type": "array", "items": items, **more}


def nullable(schema, **more):
    schema = {**schema, **more}
    if "type" not in schema:
        return {"anyOf": [schema, NULL]}
    return {**schema, "type": [schema["type"], "null"]}


def oneof(*values):
    return {"type": "string", "enum": list(values)}


def either(*schemas):
    return {"anyOf": list(schemas)}


def record(required="", about=None, **properties):
    """An object; `required` names the fields that are always there."""
    o = {"type": "object"}
    if about:
        o["description"] = about
    if required:
        o["required"] = required.split()
    if properties:
        o["properties"] = properties
    return o


def whole(about=None, **properties):
    """An object that has all of its fields."""
    return record(" ".join(properties), about, **properties)


def extends(*names, **own):
    return {"allOf": [*(ref(n) for n in names), *([own] if own else [])]}


def says(text, schema):
    return {**schema, "description": text}


def number(low, high, **more):
    return nullable(N, minimum=low, maximum=high, **more)


FLAG = nullable(B)
LENGTH = nullable(I, minimum=1, maximum=MOST)
NEVER = nullable(B, const=False)
SCHEMA = says("a JSON Schema; docs/STRUCTURED.md says what it may have", {"type": ["object", "boolean"]})
TEXT_PART = whole(type=oneof("text"), text=S)
MOVABLE = says("a document: with `moved_chunks` its rows may come from another prompt", FLAG)
MOVABLE_PART = record("type text", type=oneof("text"), text=S, movable=MOVABLE)
MOVED_CHUNKS = says("parts that are `movable` are read where another prompt has computed them, but for so much of each",
                    nullable(record(recompute=nullable(COUNT, maximum=1 << 20), fraction=number(0, 1))))

# Which cache a request uses; --allow-cache names those that may be chosen.
CACHE = {"cache_implementation": says("a strategy that the server allows", nullable(S)), "cache_config": nullable(O),
         "cache_salt": says("requests with another salt share no rows with this one", nullable(S))}

# --- What OpenAI's protocols and llama-server's share.
SHARED = {
    "Sampling": record(
        about="Sampling, lengths and stop strings. What is absent or null comes from the command line, else from the model. "
              "Fields that the server does not know are ignored.",
        temperature=says("0: the likeliest token", number(0, 100)), top_p=number(0, 1), min_p=number(0, 1),
        top_n_sigma=says("-1 or 0: off", number(-1, 1e6)), xtc_probability=number(0, 1), xtc_threshold=number(0, 1), typical_p=number(1e-6, 1), repetition_penalty=number(1e-6, 1e6), repeat_penalty=number(1e-6, 1e6),
        top_k=nullable(COUNT, maximum=MOST), num_beams=LENGTH, max_tokens=LENGTH, max_completion_tokens=LENGTH,
        n_predict=says("-1: no limit", either({"const": -1}, LENGTH)), min_tokens=nullable(COUNT, maximum=MOST),
        seed=says("-1: drawn", nullable(I)), stop=either(S, array(S), NULL),
        logit_bias=says("tokens, as ids or texts, with a number that is added, or with false: never; or pairs of both",
                        either({"type": "object", "additionalProperties": {"type": ["number", "boolean"]}},
                               array({"type": "array"}), NULL)),
        ignore_eos=FLAG, presence_penalty=number(-100, 100), frequency_penalty=number(-100, 100),
        json_schema=says("the answer is JSON that is valid under this schema", nullable(O)), stream=FLAG,
        return_token_ids=FLAG, timings_per_token=says("each part of a stream has timings", FLAG),
        return_progress=says("a stream tells how far the prompt is", FLAG), verbose=says("a chat shows its prompt", FLAG),
        **CACHE, post_sampling_probs=NEVER, t_max_predict_ms=says("milliseconds of a text at most; 0: no limit", nullable(N, maximum=1e9)),
        id_slot=says("-1: any", nullable(I, minimum=-1)), grammar=says("is not supported", either({"const": ""}, NULL)), n=nullable(I, minimum=1, maximum=64), priority=says("higher first, at most --max-priority", nullable(I))),
    "StreamOptions": record(stream_options=nullable(record(include_usage=FLAG))),
    "Message": record("role", role=S, content=either(S, array(either(S, MOVABLE_PART)), NULL),
                      tool_calls=nullable(array(record("function", id=S, type=oneof("function"),
                                                       function=record("name", name=S, arguments=either(S, O))))),
                      tool_call_id=S, reasoning_content=nullable(S), name=S),
    "Tool": record("type function", type=S, function=record("name", name=S, description=S, parameters=O)),
    "Conversation": record(
        "messages", "A chat, and what its template is told.", messages=array(ref("Message"), minItems=1),
        tools=nullable(array(ref("Tool"))),
        tool_choice=either(oneof("auto", "none", "required"),
                           record("function", type=oneof("function"), function=whole(name=S)), NULL),
        chat_template_kwargs=nullable(O), reasoning_effort=nullable(S), add_generation_prompt=FLAG, continue_final_message=FLAG),
    "Format": either(whole(type=oneof("text")), record("type", type=oneof("json_object"), schema=SCHEMA),
                     whole(type=oneof("json_schema"), json_schema=record("schema", name=S, schema=SCHEMA, strict=FLAG)),
                     record("type schema", type=oneof("json_schema"), name=S, schema=SCHEMA, strict=FLAG), NULL),
    "PromptText": whole(prompt_string=S),
    "Prompt": says("a text, token ids with texts between them, or an array of either",
                   either(S, array(either(COUNT, S)), array(either(S, array(either(COUNT, S)), ref("PromptText")), maxItems=64),
                          ref("PromptText"))),
    "Error": whole("An error of every path that is not Anthropic's or Ollama's.",
                   error=record("code message type", code=I, message=S, type=S, param=nullable(S),
                                n_prompt_tokens=says("of a prompt that is too long", COUNT), n_ctx=COUNT)),
    "Kvik": whole("What was reused, and how long the answer took.",
                  reused=says("tokens of the prompt whose rows were in the cache", COUNT),
                  fetched=says("those of them that a shared store gave", COUNT),
                  moved=says("those of them that were read at another position: documents (`moved_chunks`)", COUNT), computed=COUNT,
                  replayed=says("tokens of an earlier answer that its text would not have given", COUNT),
                  prefix_miss=says("why nothing was reused", nullable(S)), wait_seconds=N, first_token_seconds=N, seconds=N),
    "Usage": whole(prompt_tokens=COUNT, completion_tokens=COUNT, total_tokens=COUNT,
                   prompt_tokens_details=whole(cached_tokens=COUNT), completion_tokens_details=whole(reasoning_tokens=COUNT)),
    "Timings": whole(cache_n=COUNT, prompt_n=COUNT, prompt_ms=N, prompt_per_token_ms=N, prompt_per_second=N,
                     predicted_n=COUNT, predicted_ms=N, predicted_per_token_ms=N, predicted_per_second=N),
    "Logprob": whole(id=COUNT, token=S, logprob=N, bytes=array(COUNT),
                     top_logprobs=array(whole(id=COUNT, token=S, logprob=N, bytes=array(COUNT)))),
    "Progress": whole("How many tokens of the prompt are there.", total=COUNT, cache=COUNT, processed=COUNT, time_ms=COUNT),
    "Call": whole(id=S, type=oneof("function"), function=whole(name=S, arguments=says("JSON", S))),
    "Count": whole(object=oneof("response.input_tokens"), input_tokens=COUNT),
}

# --- OpenAI.
FINISH = {"type": ["string", "null"], "enum": ["stop", "length", "tool_calls", None]}
LOGPROBS = nullable(whole(content=array(ref("Logprob"))))
OLD_LOGPROBS = nullable(whole(tokens=array(S), token_logprobs=array(N), text_offset=array(COUNT),
                              top_logprobs=array({"type": "object", "additionalProperties": N})))


def completion(kind, choice, ending):
    """A whole answer, or where `ending` is false a chunk of a stream, whose last one alone has the usage."""
    ends = {"usage": ref("Usage"), "timings": ref("Timings"), "kvik": ref("Kvik")}
    head = {"id": S, "object": oneof(kind), "created": I, "model": S, "system_fingerprint": S, "choices": array(choice)}
    more = {"__verbose": ref("LlamaText")} if ending else {"prompt_progress": ref("Progress")}
    return record(" ".join([*head, *(ends if ending else ())]), **head, **ends, **more)


TEXT_CHOICE = record("index text logprobs finish_reason", index=COUNT, text=S, logprobs=OLD_LOGPROBS, finish_reason=FINISH,
                     token_ids=array(COUNT))
DELTA = record(role=oneof("assistant"), content=nullable(S), reasoning_content=S,
               tool_calls=array(record("index function", index=COUNT, id=S, type=oneof("function"),
                                       function=record("arguments", name=S, arguments=S))))
OPENAI = {
    "ChatRequest": extends("Sampling", "StreamOptions", "Conversation",
                           **record(response_format=ref("Format"), logprobs=FLAG, top_logprobs=nullable(COUNT, maximum=20),
                                    moved_chunks=MOVED_CHUNKS)),
    "Chat": completion("chat.completion", record(
        "index message logprobs finish_reason", index=COUNT, logprobs=LOGPROBS, finish_reason=FINISH, token_ids=array(COUNT),
        message=record("role content", role=oneof("assistant"), content=nullable(S), reasoning_content=S,
                       tool_calls=array(ref("Call")))), True),
    "ChatChunk": either(completion("chat.completion.chunk", whole(index=COUNT, delta=DELTA, logprobs=LOGPROBS, finish_reason=FINISH),
                                   False), ref("Error")),
    "CompletionRequest": extends("Sampling", "StreamOptions", **record("prompt", prompt=either(ref("Prompt"), array(MOVABLE_PART, minItems=1)), moved_chunks=MOVED_CHUNKS, echo=NEVER, suffix=nullable(S),
                                                                       logprobs=nullable(COUNT, maximum=20))),
    "Completion": completion("text_completion", TEXT_CHOICE, True),
    "CompletionChunk": either(completion("text_completion", TEXT_CHOICE, False), ref("Error")),
    "Model": whole(id=S, object=oneof("model"), created=I, owned_by=S, type=oneof("model"), display_name=S, max_input_tokens=COUNT,
                   max_model_len=COUNT, aliases=array(S), tags=array(S),
                   meta=whole(n_ctx=COUNT, n_vocab=COUNT)),
    "Models": whole(object=oneof("list"), models=array(whole(name=S, model=S, type=oneof("model"))), data=array(ref("Model"))),
}

# --- OpenAI's responses.
ITEM_TEXT = either(S, array(record("type text", type=oneof("input_text", "output_text"), text=S, movable=MOVABLE)))
RESPONSES = {
    "ResponsesItem": either(
        record("role content", type=oneof("message"), role=S, content=ITEM_TEXT),
        record("type", type=oneof("reasoning"), summary=array(whole(type=oneof("summary_text"), text=S)),
               content=nullable(array(whole(type=oneof("reasoning_text"), text=S)))),
        whole(type=oneof("function_call"), call_id=S, name=S, arguments=S),
        whole(type=oneof("custom_tool_call"), call_id=S, name=S, input=S),
        whole(type=oneof("function_call_output", "custom_tool_call_output"), call_id=S, output=ITEM_TEXT)),
    "ResponsesRequest": record(
        about="Nothing is kept: a request has the whole conversation. Without input the answer is empty.",
        input=either(S, array(ref("ResponsesItem")), NULL), instructions=nullable(S),
        tools=nullable(array(record("type", type=S, name=S, description=nullable(S), parameters=nullable(O)))),
        tool_choice=either(oneof("auto", "none", "required"), record("type name", type=oneof("function"), name=S), NULL),
        text=nullable(record(format=ref("Format"))), reasoning=nullable(record(effort=nullable(S))),
        **CACHE, moved_chunks=MOVED_CHUNKS, chat_template_kwargs=nullable(O), max_output_tokens=LENGTH, temperature=number(0, 100), top_p=number(0, 1), stream=FLAG,
        timings_per_token=FLAG, return_progress=FLAG, seed=nullable(I), priority=nullable(I), previous_response_id=NULL, conversation=NULL, prompt=NULL, background=NEVER),
    "ResponsesOutput": either(
        whole(id=S, type=oneof("message"), status=S, role=oneof("assistant"),
              content=array(whole(type=oneof("output_text"), text=S, annotations=array(O), logprobs=array(O)))),
        whole(id=S, type=oneof("reasoning"), summary=array(O), content=array(whole(type=oneof("reasoning_text"), text=S)),
              encrypted_content=NULL),
        whole(id=S, type=oneof("function_call"), status=S, call_id=S, name=S, arguments=S)),
    "Response": record(
        "id object created_at status error incomplete_details model output usage", id=S, object=oneof("response"), created_at=I,
        status=oneof("in_progress", "completed", "incomplete", "failed"), error=nullable(whole(code=S, message=S)),
        incomplete_details=nullable(whole(reason=S)), model=S, kvik=ref("Kvik"), output=array(ref("ResponsesOutput")),
        usage=nullable(whole(input_tokens=COUNT, input_tokens_details=whole(cached_tokens=COUNT), output_tokens=COUNT,
                             output_tokens_details=whole(reasoning_tokens=COUNT), total_tokens=COUNT))),
    "ResponsesEvent": record("type sequence_number", type={"type": "string", "pattern": "^response[.]"}, sequence_number=COUNT,
                             response=ref("Response"), item=ref("ResponsesOutput"), item_id=S, output_index=COUNT,
                             timings=ref("Timings"), prompt_progress=ref("Progress"), content_index=COUNT, delta=S, text=S, part=record("type text", type=S, text=S), name=S, arguments=S),
}

# --- Anthropic.
RESULT_TEXT = either(S, array(MOVABLE_PART))
USER_BLOCKS = either(MOVABLE_PART, record("type tool_use_id", type=oneof("tool_result"), tool_use_id=S, content=RESULT_TEXT),
                     record("type source", type=oneof("document"), source=whole(type=oneof("text"), data=S), movable=MOVABLE))
THINKING = whole(type=oneof("thinking"), thinking=S, signature=S)
USE = record("type id name", type=oneof("tool_use"), id=S, name=S, input=O)
TOOL_OF_OTHERS = says("a tool that Anthropic's server runs; it is left out", whole(type=S, name=S))
MESSAGE_END = oneof("end_turn", "max_tokens", "stop_sequence", "tool_use")
ANTHROPIC = {
    "AnthropicError": whole(type=oneof("error"), error=whole(type=S, message=S)),
    "AnthropicConversation": record(
        "messages", messages=array(either(
            whole(role=oneof("user", "system"), content=either(S, array(USER_BLOCKS))),
            whole(role=oneof("assistant"), content=either(S, array(either(TEXT_PART, THINKING, USE))))), minItems=1),
        system=either(S, array(record("text", type=oneof("text"), text=S, movable=MOVABLE)), NULL),
        tools=nullable(array(either(record("name input_schema", name=S, description=S, input_schema=O), TOOL_OF_OTHERS))),
        tool_choice=nullable(either(whole(type=oneof("auto", "any", "none")), whole(type=oneof("tool"), name=S))),
        thinking=nullable(record("type", type=oneof("enabled", "disabled", "adaptive"), budget_tokens=I)),
        output_config=nullable(record(effort=S, format=ref("Format"))), chat_template_kwargs=nullable(O),
        **CACHE, moved_chunks=MOVED_CHUNKS, stop_sequences=nullable(array(S)), temperature=number(0, 100), top_p=number(0, 1), min_p=number(0, 1),
        top_k=nullable(I, minimum=-1, maximum=MOST), seed=nullable(I), stream=FLAG, priority=nullable(I), max_tokens=LENGTH),
    "AnthropicRequest": extends("AnthropicConversation", **record("max_tokens")),
    "AnthropicMessage": record(
        "id type role model content stop_reason stop_sequence usage", id=S, type=oneof("message"), role=oneof("assistant"), model=S,
        content=array(either(TEXT_PART, THINKING, USE)), stop_reason=nullable({"enum": [*MESSAGE_END["enum"], None], "type": "string"}),
        stop_sequence=nullable(S), kvik=ref("Kvik"),
        usage=whole(input_tokens=COUNT, cache_creation_input_tokens=COUNT, cache_read_input_tokens=COUNT, output_tokens=COUNT)),
    "AnthropicEvent": record("type", type=oneof("message_start", "ping", "content_block_start", "content_block_delta",
                                                "content_block_stop", "message_delta", "message_stop", "error"),
                             message=ref("AnthropicMessage"), index=COUNT, content_block=either(TEXT_PART, THINKING, USE),
                             delta=O, usage=O, error=whole(type=S, message=S)),
    "AnthropicCount": whole(input_tokens=COUNT),
}

# --- Ollama.
OLLAMA = {
    "OllamaError": whole(error=S),
    "OllamaOptions": extends("Sampling", **record(num_predict=says("-1 and -2: no limit", nullable(I, maximum=MOST)))),
    "OllamaRequest": record(**CACHE, stream=says("true unless it is set", FLAG), format=either(oneof("", "json"), O, NULL),
                            options=nullable(ref("OllamaOptions")), logprobs=FLAG, top_logprobs=nullable(COUNT, maximum=20),
                            think=says("enable_thinking of the template; a text is its reasoning_effort, too", either(B, S, NULL))),
    "OllamaChatRequest": extends("OllamaRequest", **record(
        messages=says("none: the answer says that the model is loaded", nullable(array(ref("Message")))),
        tools=nullable(array(ref("Tool"))), chat_template_kwargs=nullable(O))),
    "OllamaTextRequest": extends("OllamaRequest", **record(
        prompt=says("none: the answer says that the model is loaded", S), system=S, raw=FLAG, suffix=says("must be empty", S),
        images=nullable(array(S, maxItems=0)))),
    "OllamaLine": record("model created_at done", "A whole answer, or a line of a stream, whose last one alone has the counts.",
                         model=S, created_at=S, done=B, done_reason=oneof("stop", "length", "load"),
                         total_duration=COUNT, load_duration=COUNT, prompt_eval_count=COUNT, prompt_eval_duration=COUNT,
                         eval_count=COUNT, eval_duration=COUNT, kvik=ref("Kvik"), logprobs=array(ref("Logprob"))),
    "OllamaChat": extends("OllamaLine", **whole(message=record(
        "role content", role=oneof("assistant"), content=S, thinking=S,
        tool_calls=array(whole(id=S, function=whole(index=COUNT, name=S, arguments=O)))))),
    "OllamaText": extends("OllamaLine", **record("response", response=S, thinking=S)),
    "OllamaDetails": whole(format=S, family=S, families=array(S), parent_model=S, parameter_size=S, quantization_level=S),
    "OllamaModels": whole(models=array(whole(name=S, model=S, modified_at=S, size=COUNT, digest=S, details=ref("OllamaDetails")))),
    "OllamaRunning": whole(models=array(whole(name=S, model=S, modified_at=S, size=COUNT, digest=S, details=ref("OllamaDetails"),
                                              expires_at=S, size_vram=COUNT, context_length=COUNT))),
    "OllamaModel": whole(modelfile=S, parameters=S, template=S, details=ref("OllamaDetails"), model_info=O, capabilities=array(S)),
    "OllamaVersion": whole(version=S),
}

# --- llama-server, and kvik's own.
BYTES = "budget bytes live shared index states staging metadata spilled".split()
NATIVE = {
    "LlamaRequest": extends("Sampling", **record("prompt", prompt=ref("Prompt"), n_probs=nullable(COUNT, maximum=20),
                                                 return_tokens=FLAG, response_fields=array(S))),
    "InfillRequest": extends("Sampling", **record(
        "input_prefix input_suffix", input_prefix=S, input_suffix=S, prompt=nullable(S), n_probs=nullable(COUNT, maximum=20),
        input_extra=nullable(array(record("text", text=S, filename=S))), return_tokens=FLAG, response_fields=array(S))),
    "LlamaText": record(about="With response_fields only those.", index=COUNT, content=S, tokens=array(COUNT), stop=B, model=S,
                        id_slot=I, prompt=S, generation_settings=O, tokens_predicted=COUNT, tokens_evaluated=COUNT,
                        tokens_cached=COUNT, truncated=B, has_new_line=B, stop_type=oneof("eos", "word", "limit"),
                        prompt_progress=ref("Progress"), stopping_word=S, completion_probabilities=array(ref("Logprob")), timings=ref("Timings"), kvik=ref("Kvik")),
    "LlamaTexts": either(ref("LlamaText"), array(ref("LlamaText"))),
    "LlamaEvent": either(ref("LlamaText"), ref("Error")),
    "TokenizeRequest": record("content", content=S, add_special=FLAG, with_pieces=FLAG),
    "Tokens": whole(tokens=array(either(COUNT, whole(id=COUNT, piece=says("bytes, of a part of a character", either(S, array(COUNT))))))),
    "DetokenizeRequest": whole(tokens=array(COUNT)),
    "Text": whole(content=S),
    "Rendered": whole(prompt=S),
    "Health": whole(status=oneof("ok")),
    "SlotRequest": record(filename=says("a name in --slot-save-path; not of erase", S), cache_salt=says("of erase: that of the text", nullable(S))),
    "SlotFile": record("id_slot", id_slot=COUNT, filename=S, n_saved=COUNT, n_written=COUNT, n_restored=COUNT, n_read=COUNT,
                       n_erased=COUNT, timings=record(save_ms=N, restore_ms=N)),
    "Adapters": array(O, maxItems=0),
    "Slots": array(record("id n_ctx is_processing", id=COUNT, n_ctx=COUNT, is_processing=B)),
    "Transcript": record("text usage", "Of a server whose model hears; with response_format text, srt and vtt it is text.", text=S,
                         usage=record("type seconds", type=oneof("duration"), seconds=COUNT), task=S, language=S, duration=N,
                         segments=array(record("id start end text", id=COUNT, start=N, end=N, text=S)), words=array(record("word start end", word=S, start=N, end=N))),
    "TranscriptForm": record("file", file={"type": "string", "format": "binary"}, model=S, language=S, prompt=S, temperature=N,
                             response_format=oneof("json", "text", "srt", "vtt", "verbose_json"),
                             **{"timestamp_granularities[]": array(oneof("word", "segment"))}, stream=oneof("true", "false")),
    "TranscriptEvent": record("type", type=oneof("transcript.text.delta", "transcript.text.done"), delta=S, text=S, usage=O),
    "SavedPrompts": whole("Of --prefix-cache.", status=oneof("ok", "failing"), error=S),
    "SharedStore": whole("Of --prefix-store.", status=oneof("ok", "failing"), reads_fail=B, writes_fail=B, failures=COUNT, error=S),
    "Props": record("default_generation_settings total_slots model_alias model_path chat_template build_info modalities",
                    default_generation_settings=record("n_ctx params", n_ctx=COUNT, params=O), total_slots=COUNT, model_alias=S,
                    model_path=S, chat_template=nullable(S), build_info=S, modalities=O,
                    prefix_store=ref("SharedStore"), prefix_cache=ref("SavedPrompts")),
    "Store": record("usage caches running waiting context model", "What the cache holds, block by block.",
                    caches=array(whole(cache_implementation=S, cache_config=O, budget=COUNT, used=COUNT, index=COUNT, context=COUNT)),
                    usage=whole(**{k: COUNT for k in BYTES}), running=COUNT, waiting=COUNT, prompt_tokens=COUNT,
                    reused_tokens=COUNT, new_tokens=COUNT, writing=COUNT, context=COUNT, model=S, prefix_store=ref("SharedStore"), prefix_cache=ref("SavedPrompts")),
}
SCHEMAS = {**SHARED, **OPENAI, **RESPONSES, **ANTHROPIC, **OLLAMA, **NATIVE}

# --- Paths: what each is for, its answer, its request, and an event of its stream.
JSON, LINES, EVENTS = "application/json", "application/x-ndjson", "text/event-stream"
FORM = "multipart/form-data"
CHAT = ("OpenAI's chat", "Chat", "ChatRequest", "ChatChunk")
TEXT = ("OpenAI's completions", "Completion", "CompletionRequest", "CompletionChunk")
RESPONSE = ("OpenAI's responses", "Response", "ResponsesRequest", "ResponsesEvent")
CHAT_COUNT = ("The tokens of a chat", "Count", "Conversation")
MODELS = ("The model, with the length of its context", "Models")
MODEL = ("The model, if this is one of its names", "Model")
LLAMA = ("llama-server's completion", "LlamaTexts", "LlamaRequest", "LlamaEvent")
HEALTH = ("Whether the server is up", "Health")
PATHS = {
    "/v1/chat/completions": CHAT, "/chat/completions": CHAT,
    "/v1/completions": TEXT,
    "/v1/chat/completions/input_tokens": CHAT_COUNT, "/chat/completions/input_tokens": CHAT_COUNT,
    "/v1/responses": RESPONSE, "/responses": RESPONSE,
    "/v1/responses/input_tokens": ("The tokens of a request for a response", "Count", "ResponsesRequest"),
    "/v1/models": MODELS, "/models": MODELS, "/v1/models/{name}": MODEL, "/models/{name}": MODEL,
    "/v1/messages": ("Anthropic's messages", "AnthropicMessage", "AnthropicRequest", "AnthropicEvent"),
    "/v1/messages/count_tokens": ("The tokens of a request for a message", "AnthropicCount", "AnthropicConversation"),
    "/api/chat": ("Ollama's chat", "OllamaChat", "OllamaChatRequest", "OllamaChat"),
    "/api/generate": ("Ollama's texts", "OllamaText", "OllamaTextRequest", "OllamaText"),
    "/api/tags": ("The model, as Ollama lists it", "OllamaModels"), "/api/ps": ("The same of those in memory", "OllamaRunning"),
    "/api/show": ("The model, as Ollama describes it", "OllamaModel"),
    "/api/version": ("The version of kvik", "OllamaVersion"),
    "/completion": LLAMA, "/completions": LLAMA,
    "/infill": ("The text between two others, of a model that can", "LlamaTexts", "InfillRequest", "LlamaEvent"),
    "/v1/audio/transcriptions": ("What is said in a recording", "Transcript", "TranscriptForm", "TranscriptEvent"),
    "/v1/audio/translations": ("The same in English", "Transcript", "TranscriptForm", "TranscriptEvent"),
    "/tokenize": ("The tokens of a text", "Tokens", "TokenizeRequest"),
    "/detokenize": ("The text of tokens", "Text", "DetokenizeRequest"),
    "/apply-template": ("A chat as the text of its prompt", "Rendered", "Conversation"),
    "/health": HEALTH, "/v1/health": HEALTH, "/ready": HEALTH,
    "/props": ("Properties of the server", "Props"),
    "/slots": ("The texts that are generated at once", "Slots"),
    "/slots/{name}": ("With ?action=save, restore or erase: keeps a text as a file", "SlotFile", "SlotRequest"),
    "/lora-adapters": ("The adapters: there are none", "Adapters"),
    "/metrics": ("Numbers for Prometheus", None),
    "/kvik/store": ("What the cache holds", "Store"),
    "/": ("The page", None),
}
TYPES = {"/metrics": "text/plain; version=0.0.4; charset=utf-8", "/": "text/html; charset=utf-8"}


ASKED = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 8}
WEATHER = {"name": "get_weather", "description": "Weather.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
USED = {**ASKED, "tools": [{"type": "function", "function": WEATHER}], "tool_choice": "auto"}
PICKED = {"max_output_tokens": 8, "input": ASKED["messages"], "tools": [{"type": "function", **WEATHER}], "tool_choice": "auto"}
WRITTEN = {"prompt": "Once upon a time", "max_tokens": 8}
SHORT = {"options": {"num_predict": 8}}
MANY = {"logprobs": True, "top_logprobs": 2, "n": 2, "seed": 7, "temperature": 0.7, "return_token_ids": True, "stop": ["\n\n"]}
EXAMPLES = {
    "ChatRequest": [ASKED, {**USED, **MANY}, {**ASKED, "stream": True, "logprobs": True, "stream_options": {"include_usage": True}}],
    "CompletionRequest": [WRITTEN, {**WRITTEN, "cache_implementation": "dynamic", "cache_salt": "a"}, {**WRITTEN, **MANY, "logprobs": 2}, {"prompt": [[5, 6], "abc"], "max_tokens": 8},
                          {**WRITTEN, "stream": True, "logprobs": 2}],
    "Conversation": [ASKED, USED],
    "ResponsesRequest": [{"input": "What is the capital of France?", "max_output_tokens": 8}, PICKED, {**PICKED, "stream": True}],
    "AnthropicRequest": [ASKED, {**ASKED, "stream": True, "system": [{"type": "text", "text": "Be brief."}]}],
    "AnthropicConversation": [ASKED],
    "OllamaChatRequest": [{**ASKED, **SHORT, "stream": False}, {**ASKED, **SHORT}],
    "OllamaTextRequest": [{"prompt": "Hello", **SHORT, "stream": False}, {"prompt": "Hello", "raw": True, **SHORT}],
    "LlamaRequest": [{"prompt": "Once upon a time", "n_predict": 8, "n_probs": 2}, {**WRITTEN, "n": 2}, {**WRITTEN, "stream": True}],
    "SlotRequest": [{"filename": "one.bin"}],
    "InfillRequest": [{"input_prefix": "def one():\n", "input_suffix": "\nprint(one())", "n_predict": 8}],
    "TranscriptForm": [{"file": "", "model": "whisper"}],
    "TokenizeRequest": [{"content": "Hello", "with_pieces": True}],
    "DetokenizeRequest": [{"tokens": [5, 6, 7]}],
}


def routes():
    """Reads the tables of src/serve: path, methods, and whether the path needs no key."""
    found = []
    for file in sorted(glob.glob(os.path.join(ROOT, "src", "serve", "*.c"))):
        with open(file) as f:
            text = f.read()
        for path, methods, rest in re.findall(r'\{"(/[^"]*)",\s*((?:EXCHANGE_\w+[\s|]*)+),([^}]*)\}', text):
            opens = ".open = true" in rest or re.match(r"\s*true,", rest) is not None
            path += "{name}" if ".below = true" in rest else ""
            found += [(path, m.lower(), opens) for m in re.findall(r"EXCHANGE_(\w+)", methods)]
    return found


def event_schema(name):
    data = {"contentMediaType": JSON, "contentSchema": ref(name)}
    ends = name in ("ChatChunk", "CompletionChunk")  # whose last event is no JSON
    return record("data", event=S, data={**S, **(either({"const": "[DONE]"}, data) if ends else data)})


def operation(path, opens):
    about, answer, request, event = (*PATHS[path], None, None)[:4]
    shape = "Anthropic" if path.startswith("/v1/messages") else "Ollama" if path.startswith("/api/") else ""
    content = {TYPES.get(path, JSON): {"schema": ref(answer) if answer else S}}
    if event:
        kind = LINES if shape == "Ollama" else EVENTS
        content[kind] = {"schema": ref(event) if kind == LINES else event_schema(event)}
    o = {"summary": about}
    if opens:
        o["security"] = []
    if "{name}" in path:
        o["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": S}]
    if path == "/kvik/store":
        o["parameters"] = [{"name": "cache", "in": "query", "description": "the number of a cache", "schema": COUNT}]
    if path == "/slots/{name}":
        o["parameters"] += [{"name": "action", "in": "query", "required": True, "schema": oneof("save", "restore", "erase")}]
    if request:
        examples = {str(i): {"value": v} for i, v in enumerate(EXAMPLES[request])}
        o["requestBody"] = {"required": True, "content": {FORM if request == "TranscriptForm" else JSON: {"schema": ref(request), "examples": examples}}}
    wrong = {"$ref": f"#/components/responses/{shape}Error"}
    o["responses"] = {"200": {"description": "the answer", "content": content}, "4XX": wrong, "5XX": wrong}
    return o


def document():
    paths = {}
    for path, method, opens in routes():
        if path not in PATHS:
            sys.exit(f"make-openapi.py: PATHS has no description of {path}, which src/serve serves")
        paths.setdefault(path, {})[method] = operation(path, opens)
    for path in set(PATHS) - set(paths):
        sys.exit(f"make-openapi.py: PATHS describes {path}, which src/serve does not serve")
    errors = {n: {"description": "what was wrong", "content": {JSON: {"schema": ref(n)}}}
              for n in ("Error", "AnthropicError", "OllamaError")}
    keys = {"bearer": {"type": "http", "scheme": "bearer"}, "key": {"type": "apiKey", "in": "header", "name": "x-api-key"}}
    with open(os.path.join(ROOT, "Makefile")) as f:
        version = re.search(r"^VERSION := (\S+)", f.read(), re.M).group(1)
    return {"openapi": "3.1.0",
            "info": {"title": "kvik serve", "version": version, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
                     "description": "What kvik serve answers; docs/SERVING.md describes it. scripts/make-openapi.py writes this file."},
            "servers": [{"url": "http://127.0.0.1:8080"}], "security": [{"bearer": []}, {"key": []}, {}],
            "paths": {p: paths[p] for p in PATHS},
            "components": {"securitySchemes": keys, "responses": errors, "schemas": SCHEMAS}}


def layout(value, depth=0, before=0):
    """Writes JSON whose short parts stand in one line."""
    flat = json.dumps(value)
    if depth + before + len(flat) <= 128 or not isinstance(value, (dict, list)):
        return flat
    pad = "\n" + " " * (depth + 1)
    if isinstance(value, list):
        return "[" + ",".join(pad + layout(v, depth + 1) for v in value) + "\n" + " " * depth + "]"
    parts = [pad + json.dumps(k) + ": " + layout(v, depth + 1, len(k) + 4) for k, v in value.items()]
    return "{" + ",".join(parts) + "\n" + " " * depth + "}"


text = layout(document()) + "\n"
if sys.argv[1:] == ["--check"]:
    with open(OUT) as f:
        if f.read() != text:
            sys.exit("docs/openapi.json is not what scripts/make-openapi.py writes: run it")
else:
    with open(OUT, "w") as f:
        f.write(text)
