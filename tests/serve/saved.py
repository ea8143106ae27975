"""Saved rows are read beside the steps of others: texts are written while a disk hangs (tests/shim/slow_read.c)."""
import json
import os
import subprocess
import threading
import time

from harness import PATIENCE, ROOT, Server, check, finish, servers, skip, tiny, work

model = tiny("llama-bf16-long")
IDS = [5 + (i * 11 + i * i) % 50 for i in range(1100)]
prompts, slots = os.path.join(work, "slow-prompts"), os.path.join(work, "slow-slots")
os.mkdir(slots)
OPTIONS = ["--prefix-cache", prompts, "--slot-save-path", slots]
shim = os.path.join(work, "shim.so")
if subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, os.path.join(ROOT, "tests/shim/slow_read.c"), "-ldl", "-lpthread"]).returncode:
    skip("cc makes no library")
    finish()


def ask(s, ids=IDS):
    """Returns the tokens that were reused, and the new ones."""
    code, o = s.post("/v1/completions", {"prompt": ids, "max_tokens": 8, "temperature": 0, "return_token_ids": True})
    assert code == 200, o
    return o["usage"]["prompt_tokens_details"]["cached_tokens"], o["choices"][0]["token_ids"]


s = Server(model, *OPTIONS)
_, want = ask(s)
code, saved = s.post("/slots/0?action=save", {"filename": "one"})
check("a slot is saved", code == 200 and saved["n_saved"] >= 1100, saved)
check("ends, and saves its texts", s.stop() == 0, s.said)


def beside(name, act):
    """`act` has a server read from a disk that hangs.  Until a text beside it is over, nothing comes from that disk."""
    gate = os.path.join(work, f"gate-{len(servers)}")
    s = Server(model, *OPTIONS, env={"LD_PRELOAD": shim, "KVIK_TEST_GATE": gate, "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"})
    done = []
    reader = threading.Thread(target=lambda: done.append(act(s)))
    reader.start()
    end = time.time() + PATIENCE
    while not os.path.exists(gate + ".reached") and time.time() < end:
        time.sleep(0.01)
    code, o = s.post("/v1/completions", {"prompt": [7, 8, 9], "max_tokens": 40, "temperature": 0, "ignore_eos": True})
    waits = reader.is_alive() and not os.path.exists(gate + ".tired")
    check(f"{name}: a whole text is written while the disk hangs", code == 200 and waits and o["usage"]["completion_tokens"] == 40, (o, waits))
    open(gate, "w").close()
    reader.join()
    check(f"{name}: ends", s.stop() == 0 and done, s.said)


def prompt(s):
    got = ask(s)
    return check("the prompt comes from the directory, with the same tokens", got[0] >= 1088 and got[1] == want, got)


def slot(s):
    code, o = s.post("/slots/0?action=restore", {"filename": "one"})
    return check("the slot is there again", code == 200 and o["n_restored"] == saved["n_saved"], o)


def many(s):
    """Prompts with one beginning wait for one reading of it."""
    out = []
    threads = [threading.Thread(target=lambda i=i: out.append(ask(s, IDS + [6 + i]))) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return check("six prompts with one saved beginning reuse it", len(out) == 6 and all(o[0] >= 1088 for o in out), out)


beside("a saved prompt", prompt)
beside("a slot", slot)
beside("several prompts", many)

# A client that leaves while its rows are read costs the others nothing, and the server ends in the middle of a reading.
def leave(s):
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps({"prompt": IDS, "max_tokens": 8}))
    c.sock.close()
    return prompt(s)


beside("a client that left", leave)
gate = os.path.join(work, "gate-end")
s = Server(model, *OPTIONS, env={"LD_PRELOAD": shim, "KVIK_TEST_GATE": gate, "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"})
c = s.connect()
c.request("POST", "/slots/0?action=restore", json.dumps({"filename": "one"}))
end = time.time() + PATIENCE
while not os.path.exists(gate + ".reached") and time.time() < end:
    time.sleep(0.01)
open(gate, "w").close()
check("ends while a slot is read", s.stop() == 0, s.said)
finish()
