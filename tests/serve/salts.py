"""Rows are reused by requests with the same API key and the same cache_salt alone: in the cache, while a prompt is computed, in
remembered answers and in the directory of prompts."""
import os

from harness import Server, at_once, check, finish, tiny, work

model = tiny("llama-mha")
ANN, BOB = "sk-of-annabella", "sk-of-bobolink"
keys = os.path.join(work, "keys")
with open(keys, "w") as f:
    f.write(f"{ANN}\n{BOB}\n")
IDS = [5 + (i * 11) % 50 for i in range(200)]


def metric(name):
    for line in s.get("/metrics", {"x-api-key": BOB})[1].decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise KeyError(name)


def ask(s, key, salt=None, ids=IDS, **more):
    """Returns the tokens of the prompt that were reused, and the new ones."""
    body = {"prompt": ids, "max_tokens": 4, "temperature": 0, "return_token_ids": True, **more}
    if salt is not None:
        body["cache_salt"] = salt
    code, o = s.post("/v1/completions", body, {"Authorization": "Bearer " + key} if key else {})
    assert code == 200, o
    return o["usage"]["prompt_tokens_details"]["cached_tokens"], o["choices"][0]["token_ids"], o["kvik"]["prefix_miss"]


kept = os.path.join(work, "kept")
s = Server(model, "--api-key-file", keys, "--prefix-cache", kept)
first, want, _ = ask(s, ANN)
check("the first computes all", first == 0)
check("the same key reuses", ask(s, ANN)[0] > 190)
other, got, miss = ask(s, BOB)
check("another key does not, and has the same tokens", other == 0 and got == want, (other, got, want))
check("nor is it told of the other", miss == "no cached sequence begins with these tokens", miss)
check("but its own next one does", ask(s, BOB)[0] > 190)
check("cache_salt parts further", ask(s, ANN, "x")[0] == 0 and ask(s, ANN, "x")[0] > 190 and ask(s, ANN, "y")[0] == 0)
check("a key and a salt are not another key's", ask(s, BOB, "x")[0] == 0)
check("an empty one is none", ask(s, ANN, "")[0] > 190)
code, o = s.post("/v1/completions", {"prompt": IDS, "cache_salt": 7}, {"Authorization": "Bearer " + ANN})
check("a wrong type is named", code == 400 and 'field "cache_salt" must be a string' in o["error"]["message"], o)

# --- A prompt that another key or salt has computed takes the work of a prompt that nobody has: the same steps and tokens, so the
# time to the first token tells nothing either.
PROBE = [9 + (i * 17) % 40 for i in range(180)]
work_of = []
for key, salt, ids in [(ANN, None, PROBE), (BOB, None, PROBE), (ANN, "x", PROBE), (BOB, "y", PROBE[::-1]), (ANN, "x", PROBE)]:
    before = metric("kvik:steps_total")
    code, o = s.post("/v1/completions", {"prompt": ids, "max_tokens": 4, "temperature": 0, **({"cache_salt": salt} if salt else {})},
                     {"Authorization": "Bearer " + key})
    while metric("vllm:num_requests_running"):
        pass
    work_of.append((o["usage"]["prompt_tokens_details"]["cached_tokens"], o["kvik"]["computed"], o["kvik"]["prefix_miss"], metric("kvik:steps_total") - before))
steps = [w[3] for w in work_of[:4]]  # parts of a prompt follow from measured time, so one more or less tells nothing
check("foreign prompts take the work of new ones", len({w[:3] for w in work_of[:4]}) == 1 and max(steps) - min(steps) <= 2 and work_of[4][1] < 20, work_of)

# --- Prompts that are computed at the same moment.
new = [7 + (i * 13) % 50 for i in range(200)]
got = at_once([lambda k=k: ask(s, k, ids=new) for k in [ANN, BOB] * 6])
check("at once: each key computes its own", sum(g[0] == 0 for g in got) >= 2 and len({str(g[1]) for g in got}) == 1, [g[0] for g in got])

# --- Chats, whose answers are remembered.
def chat(key, messages, salt=None):
    code, o = s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 40, "temperature": 0, **({"cache_salt": salt} if salt else {})},
                     {"Authorization": "Bearer " + key})
    assert code == 200, o
    return o


talk = [{"role": "user", "content": "tell me of the sea " * 6}]
said = chat(ANN, talk)["choices"][0]["message"]
talk += [{"role": "assistant", "content": said["content"]}, {"role": "user", "content": "go on"}]
for key, salt in [(BOB, None), (ANN, "x")]:
    o = chat(key, talk, salt)["kvik"]
    check(f"chat of {key}, {salt}: nothing is known of it", o["reused"] == 0 and o["replayed"] == 0, o)
check("chat: her own next turn goes on", chat(ANN, talk)["kvik"]["reused"] > 60)
check("ends", s.stop() == 0, s.said)

# --- Slots: the number of one tells nothing of another's text, and only whose text it is erases it.
s = Server(model, "--api-key-file", keys, "--parallel", "3", "--slot-save-path", work)


def slot(key, ids, salt=None):
    """Returns the slot of a text, and its tokens."""
    code, o = s.post("/completion", {"prompt": ids, "n_predict": 2, "temperature": 0, "return_tokens": True, **({"cache_salt": salt} if salt else {})}, {"x-api-key": key})
    assert code == 200, o
    return o["id_slot"], ids + o["tokens"]


def erased(key, i, **body):
    code, o = s.post(f"/slots/{i}?action=erase", body, {"x-api-key": key})
    assert code == 200, o
    return o["n_erased"]


taken = [slot(ANN, [9 + i] * 40) for i in range(3)]
check("texts take the slots in turn", [i for i, ids in taken] == [0, 1, 2], taken)
check("a guess of another's text takes the oldest slot", slot(BOB, taken[1][1] + [9])[0] == 0)
check("a text goes on in the slot of its own key", slot(ANN, taken[2][1] + [9])[0] == 2)
mine = slot(ANN, [9] * 40, "x")[0]
check("another's slot is not erased", erased(BOB, mine) == 0 and erased(ANN, mine) == 0 and erased(BOB, mine, cache_salt="x") == 0)
check("but by its own key and salt it is", erased(ANN, mine, cache_salt="x") == 42 and erased(ANN, mine, cache_salt="x") == 0)
check("a wrong type is named", s.post("/slots/0?action=erase", {"cache_salt": 7}, {"x-api-key": ANN})[0] == 400)
check("slots: ends", s.stop() == 0, s.said)

# --- The directory of prompts, for the next server.
files = b"".join(open(os.path.join(kept, f), "rb").read() + f.encode() for f in os.listdir(kept))
check("its files do not have the keys", files and ANN.encode() not in files and BOB.encode() not in files)
with open(keys, "a") as f:
    f.write("eve\n")
s = Server(model, "--api-key-file", keys, "--prefix-cache", kept)
check("the directory: another key", ask(s, "eve")[0] == 0)
check("the directory: another salt", ask(s, ANN, "z")[0] == 0)
check("the directory: the same key", ask(s, ANN)[0] > 100 and ask(s, BOB)[0] > 100)
check("ends", s.stop() == 0, s.said)

# --- Without keys all share, but for what they ask themselves.
s = Server(model)
ask(s, ANN)
check("without keys all share", ask(s, BOB)[0] > 190 and ask(s, None)[0] > 190)
check("but for cache_salt", ask(s, None, "x")[0] == 0 and ask(s, BOB, "x")[0] > 190)
check("ends", s.stop() == 0, s.said)
finish()
