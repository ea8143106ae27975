"""Documents of a chat in another order: what is read where it was computed, what is computed again, and that nobody else is delayed
or gets rows of another key.  The tokenizer has a token for each byte, so lengths are exact."""
import random

from harness import Server, at_once, check, finish, tiny

NAME = "llama-bf16-long"
letters = random.Random(5)


def text(n):
    return "".join(letters.choice("abcdefghij ") for _ in range(n - 2)).strip().ljust(n - 1, "k") + "."


DOCS = [text(60 + 7 * i) for i in range(5)]
SIZE = sum(map(len, DOCS))


def body(order, question="Which one?", moved=None, mark=True, **more):
    parts = [{"type": "text", "text": "Read:"}]
    for i in order:
        parts += [{"type": "text", "text": "\n\n"}, {"type": "text", "text": DOCS[i], **({"movable": True} if mark else {})}]
    parts.append({"type": "text", "text": f"\n\n{question}"})
    return {"messages": [{"role": "user", "content": parts}], "temperature": 0, "max_tokens": 4,
            **({} if moved is None else {"moved_chunks": moved}), **more}


def ask(s, *args, headers=None, **more):
    code, a = s.post("/v1/chat/completions", body(*args, **more), headers)
    assert code == 200, (code, a)
    return a["kvik"], a["usage"], a["choices"][0]["message"]["content"]


s = Server(tiny(NAME), "--parallel", "3", "--cache-config", '{"moved_chunks": 16}')
one, _, first = ask(s, [0, 1, 2, 3, 4])
check("the first order is computed", one["moved"] == 0 and one["reused"] == 0, one)
plain, _, want = ask(s, [3, 0, 4, 2, 1])
head = plain["reused"]
check("another order is computed, unless the request says otherwise", plain["moved"] == 0 and head < 60, plain)
t, usage, _ = ask(s, [2, 4, 1, 0, 3], moved={"recompute": 10})
prompt = usage["prompt_tokens"]
check("all documents move but for their first tokens", t["moved"] == SIZE - 50, t)
check("the sums are the prompt", t["reused"] == head + t["moved"] and t["reused"] + t["computed"] >= prompt and usage["prompt_tokens_details"]["cached_tokens"] == t["reused"], (t, prompt))
t, _, _ = ask(s, [1, 4, 2, 0, 3], moved={"recompute": 10, "fraction": 0.5})
check("the larger of the two counts", t["moved"] == sum(len(d) // 2 for d in DOCS), t)
t, _, got = ask(s, [3, 0, 4, 2, 1], "Why?", moved={"fraction": 1})
_, _, want = ask(Server(tiny(NAME)), [3, 0, 4, 2, 1], "Why?")
check("with all computed again the answer is that of computing", t["moved"] == 0 and got == want, (t, got, want))
t, _, _ = ask(s, [3, 0, 4, 2, 1], "Where?", moved={})
check("what begins alike is reused exactly, and does not move", t["moved"] == 0 and t["reused"] > SIZE, t)
t, _, _ = ask(s, [4, 3], "Again?", moved={}, mark=False)
check("without marks nothing moves", t["moved"] == 0, t)
t, _, _ = ask(s, [4, 3], "How?", moved={}, headers={"Authorization": "Bearer other"}, cache_salt="other")
check("rows of another salt do not move", t["moved"] == 0 and t["reused"] == 0, t)

# --- Documents in the other protocols: their places are found in the same way.
MOVES = {"recompute": 10}
ORDER = [3, 1, 4]
LEFT = sum(len(DOCS[i]) for i in ORDER) - 10 * len(ORDER)


def moved(name, path, given, mark="text"):
    code, a = s.post(path, {"max_tokens": 2, **given, "moved_chunks": MOVES})
    check(f"{name}: documents move", code == 200 and a["kvik"]["moved"] == LEFT and a["kvik"]["reused"] >= LEFT, (code, a))
    code, a = s.post(path, {"max_tokens": 2, **given, "moved_chunks": {"recompute": -1}})
    check(f"{name}: a wrong number is refused", code == 400 and "moved_chunks" in str(a), (code, a))


parts = [{"type": "text", "text": f"{DOCS[i]}", "movable": True} for i in ORDER]
between = {"type": "text", "text": "\n\n"}
joined = [p for part in parts for p in (between, part)]
moved("completions", "/v1/completions", {"prompt": [{"type": "text", "text": "Of a text:"}, *joined, {"type": "text", "text": "\n\nThe end"}]})
plain = s.post("/v1/completions", {"prompt": "Of a text:" + "".join(p["text"] for p in joined), "max_tokens": 4, "temperature": 0})[1]
same = s.post("/v1/completions", {"prompt": [{"type": "text", "text": "Of a text:"}, *joined], "max_tokens": 4, "temperature": 0})[1]
check("completions: parts are one text", plain["choices"][0]["text"] == same["choices"][0]["text"]
      and plain["usage"]["prompt_tokens"] == same["usage"]["prompt_tokens"] and same["kvik"]["moved"] == 0, (plain, same))
got = s.post("/v1/completions", {"prompt": [parts[0], "x"], "max_tokens": 2})
check("completions: a part without a text is refused", got[0] == 400 and "prompt[1]" in got[1]["error"]["message"], got)
moved("messages", "/v1/messages", {"messages": [{"role": "user", "content": [*joined, {"type": "text", "text": "What of it?"}]}]})
moved("messages with a tool's result and documents", "/v1/messages", {
    "system": [{"type": "text", "text": "Look there."}],
    "messages": [{"role": "user", "content": "Look."}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [parts[0]]},
                                              *({"type": "document", "movable": True, "source": {"type": "text", "data": DOCS[i]}} for i in ORDER[1:])]}]})
moved("responses", "/v1/responses", {"max_output_tokens": 2, "input": [{"role": "user", "content": [{**p, "type": "input_text"} for p in joined]},
                                                                       {"role": "user", "content": "And what of it?"}]})

# --- As a stream, several texts at once, and clients that leave.
events = list(s.stream("/v1/chat/completions", {**body([4, 0, 1], "Who?", {"recompute": 10}), "stream": True, "stream_options": {"include_usage": True}}))
check("a stream says it, too", events[-1]["kvik"]["moved"] == len(DOCS[0]) + len(DOCS[1]) - 20, events[-1])
orders = [random.Random(i).sample(range(5), 5) for i in range(8)]
alone = [ask(s, o, f"Number {i}?", moved={"recompute": 6}) for i, o in enumerate(orders[:2])]
many = at_once([lambda i=i, o=o: ask(s, o, f"Number {i} at once?", moved={"recompute": 6}, n=2, max_tokens=12) for i, o in enumerate(orders)]
               + [lambda i=i: ask(s, [0], f"Beside {i}", max_tokens=30) for i in range(4)])
check("many at once are all answered, and documents move", all(m[2] for m in many) and sum(m[0]["moved"] > 0 for m in many) >= 4, many)
for i in range(6):
    c = s.connect()
    c.request("POST", "/v1/chat/completions", __import__("json").dumps(body(orders[i], f"Gone {i}?", {"recompute": 6}, max_tokens=50)))
    c.close()
t, _, _ = ask(s, [1, 2], "Still?", moved={})
check("the server goes on after clients that left", t["reused"] >= len(DOCS[1]) + len(DOCS[2]) and t["moved"] > 60, t)

# --- Errors.
for name, given, code in [("no object", 3, 400), ("a negative number", {"recompute": -1}, 400), ("a fraction above 1", {"fraction": 1.5}, 400),
                          ("a text", {"recompute": "x"}, 400), ("a key that it does not have", {"recomputed": 32}, 400)]:
    got = s.post("/v1/chat/completions", body([0], moved=given))
    check(f"moved_chunks with {name} is refused", got[0] == code and "moved_chunks" in got[1]["error"]["message"], got)
wrong = body([0], moved={})
wrong["messages"][0]["content"][2]["movable"] = "yes"
got = s.post("/v1/chat/completions", wrong)
check("a mark that is no boolean is refused", got[0] == 400 and "movable" in got[1]["error"]["message"], got)
for path, name in (("/v1/chat/completions", "content[2].text"), ("/v1/messages", "the text of a block")):
    wrong = body([0], moved={})
    wrong["messages"][0]["content"][2]["text"] = 5
    got = s.post(path, wrong)
    check(f"{path}: a text of another type is named", got[0] == 400 and name in got[1]["error"]["message"] and "must be a string, not 5" in got[1]["error"]["message"], got)
check("the server ends", s.stop() == 0)
off = Server(tiny(NAME))
got = off.post("/v1/chat/completions", body([0, 1], moved={}))
check("a server without moved_chunks says how to start it", got[0] == 400 and "cache_config" in got[1]["error"]["message"], got)
check("without the field the marks do nothing", off.post("/v1/chat/completions", body([0, 1]))[0] == 200)

# --- Little memory: documents that have no room are computed, and texts that are parked go on.
small = Server(tiny(NAME), "--parallel", "4", "--cache-config", '{"moved_chunks": 16}', "--cache-memory", "1M", "--max-cache-len", "1024")
many = at_once([lambda i=i, o=o: ask(small, o, f"Small {i}?", moved={"recompute": 6}, max_tokens=60) for i, o in enumerate(orders)])
check("with little memory all are answered", all(m[1]["completion_tokens"] for m in many), many)
check("and the server ends", small.stop() == 0)
finish()
