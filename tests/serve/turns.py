"""The second turn is cheap, always: what an answer was in tokens is remembered beside what it said, so that the next turn
continues from it although its text is tokenized otherwise."""
import json
import os
import re
import time

import scripted
from harness import Server, check, finish, skip, tiny, until, work

# Most tokens of this model read as text that is encoded as other tokens: "w269" becomes four.
model = tiny("llama-mha")
keys = os.path.join(work, "keys")
with open(keys, "w") as f:
    f.write("alpha\nbeta\n")
s = Server(model, "--temperature", "1.5", "--api-key-file", keys)
alpha, beta = {"x-api-key": "alpha"}, {"x-api-key": "beta"}


def chat(messages, key=alpha, **more):
    code, a = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 10, "logit_bias": {"2": -100}, **more}, key)
    assert code == 200, (code, a)
    return a


def tokens_of(text):
    return len(s.post("/tokenize", {"content": text}, alpha)[1]["tokens"])


messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "Tell me more. "}]
cheap = other = 0
for turn in range(4):
    a = chat(messages, seed=turn)
    answer = a["choices"][0]["message"]
    if turn:
        have = before["usage"]["total_tokens"] - 1  # the row of the last token is not computed
        cheap += a["usage"]["prompt_tokens_details"]["cached_tokens"] == have
        other += before["kvik_text"] != before["usage"]["completion_tokens"]
    before = dict(a, kvik_text=tokens_of(answer["content"]))
    messages += [answer, {"role": "user", "content": f"go on {turn}"}]
check("answers would be tokenized otherwise", other == 3, other)
check("every turn reuses all that came before", cheap == 3, (cheap, a))
check("the answer says so", a["kvik"]["replayed"] > 0, a)

spaced = [dict(m, content="  " + m["content"] + "\n") if m["role"] == "assistant" else m for m in messages]
a = chat(spaced)
check("spaces around an answer do not matter", a["kvik"]["replayed"] > 0, a)
a = chat(messages, beta)
check("what one client was told is not another's", a["kvik"]["replayed"] == 0, a)
changed = [dict(m) for m in messages]
changed[2]["content"] += "!"
a = chat(changed)
check("an answer that the client has changed is what the client says", a["kvik"]["replayed"] == 0, a)
changed = [dict(m) for m in messages]
changed[-1]["content"] = "another question"
a = chat(changed)
check("another question after the same answer", a["kvik"]["replayed"] > 0, a)
branch = messages[:3] + [{"role": "user", "content": "a branch"}]
a = chat(branch)
check("a branch continues from its own answer", a["kvik"]["replayed"] > 0
      and a["usage"]["prompt_tokens_details"]["cached_tokens"] > 30, a)
a = chat(messages, stop=["w"])
check("a stop string: no error", a["choices"][0]["finish_reason"] in ("stop", "length"), a)
check("ends", s.stop() == 0, s.said)

# --- A server that was killed leaves its prompts to the next one.
folder = os.path.join(work, "prompts")
text = {"prompt": "0123456789" * 15, "max_tokens": 8, "temperature": 0, "return_token_ids": True}
s = Server(model, "--prefix-cache", folder)
code, first = s.post("/v1/completions", text)
while not any(n.endswith(".kvik") for n in os.listdir(folder)):
    time.sleep(0.01)
while s.metric("vllm:num_requests_running"):
    pass
s.post("/v1/completions", dict(text, prompt="x"))  # the save before it has ended
s.process.kill()
s = Server(model, "--prefix-cache", folder)
code, a = s.post("/v1/completions", text)
check("after kill -9 the prompt is not computed again", a["usage"]["prompt_tokens_details"]["cached_tokens"] >= 144, a)
check("and the text is the same", a["choices"][0]["token_ids"] == first["choices"][0]["token_ids"], (first, a))
check("the directory works, and so it is said", s.get("/props")[1]["prefix_cache"] == {"status": "ok", "error": ""})
while not os.path.isfile(folder):  # what was a directory becomes a file; the server may be saving there
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
        open(folder, "w").close()
    except OSError:
        time.sleep(0.01)
code, a = s.post("/v1/completions", dict(text, prompt="98765" * 20))
code, b = s.post("/v1/completions", dict(text, prompt="98765" * 20))
check("a directory that fails costs no answer", code == 200 and b["choices"][0]["token_ids"] == a["choices"][0]["token_ids"], (a, b))
until(lambda: any("prefix_cache" in line for line in s.said))
told = [json.loads(line)["prefix_cache"] for line in s.said if "prefix_cache" in line]
check("but it is told, once", len(told) == 1 and told[0]["status"] == "failing" and "prompts" in told[0]["error"], s.said)
shown = [s.get("/props")[1]["prefix_cache"], s.get("/kvik/store")[1]["prefix_cache"]]  # why, for the last text: another may have failed otherwise
check("also by /props and the page's map", all(o["status"] == "failing" and folder in o["error"] for o in shown), (shown, told))
check("a server with a directory ends", s.stop() == 0, s.said)

real = os.environ.get("KVIK_TEST_MODEL", "none")
if os.path.exists(real):
    s = Server(real)
    messages, misses = [{"role": "user", "content": "Write a poem about the sea, and use rare words."}], []
    for turn in range(5):
        code, a = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 40, "temperature": 1.5, "seed": turn})
        if turn and a["usage"]["prompt_tokens_details"]["cached_tokens"] < before["usage"]["total_tokens"] - 1:
            misses.append((before, a))
        before = a
        messages += [a["choices"][0]["message"], {"role": "user", "content": "Again, otherwise."}]
    check("SmolLM2: every turn reuses all that came before", not misses, misses[:1])
    check("SmolLM2: ends", s.stop() == 0)
else:
    skip("SmolLM2: the model is not here (KVIK_TEST_MODEL)")

# --- Messages and variables of the template that differ are other conversations.
template = os.path.join(work, "note.jinja")
with open(template, "w") as f:
    f.write("{{ note }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}<bot>{% endif %}")
s = Server(model, "--temperature", "1.5", "--template", template)
for name, first, then in [("a message that differs behind a NUL", {"text": "a\0one"}, {"text": "a\0two"}),
                          ("a role that differs behind a NUL", {"role": "user\0one"}, {"role": "user\0two"}),
                          ("another variable", {"note": "one"}, {"note": "two"}), ("the same", {"note": "one"}, {"note": "one"})]:
    def ask(o, *more):
        return chat([{"role": o.get("role", "user"), "content": o.get("text", "hello")}, *more], {}, seed=5,
                    chat_template_kwargs={"note": o.get("note", "")})
    answer = ask(first)["choices"][0]["message"]
    a = ask(then, answer, {"role": "user", "content": "go on"})
    check(f"{name}: {'replayed' if first == then else 'not replayed'}", (a["kvik"]["replayed"] > 0) == (first == then), a["kvik"])
check("conversations: ends", s.stop() == 0)

# --- The end of an answer is where the template goes on, whether a token of the model, a text or a call ends it. The template spells
# calls otherwise than the model, so each answer is replayed; the prompt of the next turn has it once.
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
SAID = {"call": CALL, "both": "I look.\n" + CALL, "two": CALL + "\n" + CALL.replace("Paris", "Rome"), "text": "  Fine then. "}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
CLOSE = "{% if m.role == 'assistant' %}</s>{% endif %}"
plain = scripted.template(list(SAID), scripted.HERMES, "<go-%s>")
assert CLOSE in plain and '", "arguments": ' in scripted.HERMES and "{{ m.content }}" in plain
otherwise = scripted.template(list(SAID), scripted.HERMES.replace('{\"name\": \"', '{\"name\":\"'), "<go-%s>").replace("{{ m.content }}", "{{ (m.content or '')|trim }}")
model = scripted.scripted("ended", SAID)
for ending, close in (("a token of the model", CLOSE), ("a token and more", CLOSE.replace("</s>", "\n</s> -- \n")), ("a text", "|over|\n"),
                      ("a text that looks like a call's", '"}}|\n'), ("nothing", "")):
    with open(template_file := os.path.join(work, "ended.jinja"), "w") as f:
        f.write(otherwise.replace(CLOSE, close.replace("|over|", "{% if m.role == 'assistant' %}|over|{% endif %}")))
    s = Server(model, "--template", template_file)
    for name, said in SAID.items():
        question = [{"role": "user", "content": "#" + name}]
        one = chat(question, {}, max_tokens=200, tools=[TOOL])
        answer = one["choices"][0]["message"]
        then = question + [answer] + [{"role": "tool", "tool_call_id": c["id"], "content": "sunny"} for c in answer.get("tool_calls", [])]
        two = chat(then + [{"role": "user", "content": "#text"}], {}, max_tokens=3, tools=[TOOL], verbose=True)
        prompt = two["__verbose"]["prompt"]
        again = s.post("/apply-template", {"messages": then + [{"role": "user", "content": "#text"}], "tools": [TOOL]})[1]["prompt"]
        mark = "<user>sunny" if "tool_calls" in answer else "<user>#text"
        shown, rendered = (p[p.index("<bot>"):p.rindex(mark) if mark[-1] == "t" else p.index(mark)] for p in (prompt, again))
        bare = [re.sub(r"<go-\w+>|</s>|\s", "", p) for p in (shown, rendered)]
        check(f"{name}, ended by {ending}: the next prompt has it once", bare[0] == bare[1] and shown.count("</s>") <= 1, (shown, rendered))
        if ending != "a text that looks like a call's":
            check(f"{name}, ended by {ending}: it is replayed", said in shown and two["usage"]["prompt_tokens_details"]["cached_tokens"]
                  >= one["usage"]["total_tokens"] - 1, (shown, two["usage"], two["kvik"]))
    check(f"ended by {ending}: ends", s.stop() == 0)
finish()
