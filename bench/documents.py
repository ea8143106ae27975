"""bench/documents.py MODEL [DOCUMENTS [WORDS [ROUNDS]]]: the time to the first token of a chat about ten documents in a new order, in a
server that has computed each of them once: computed, and read where they were with several amounts computed again. Prints CSV:

    recompute,tokens of the prompt,tokens moved,tokens computed,median seconds to the first token,seconds of all rounds"""
import os
import random
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "serve"))
from harness import Server  # noqa: E402

model = sys.argv[1]
count, words, rounds = (int(v) for v in (sys.argv[2:] + ["10", "150", "3"][len(sys.argv) - 2:]))
text = open(os.path.join(ROOT, "examples/text/nowhere.txt"), encoding="utf-8").read().split()
docs = [" ".join(text[i * words:(i + 1) * words]) for i in range(count)]
draw = random.Random(3)


def body(order, question, **more):
    parts = [{"type": "text", "text": "Answer from these documents."}]
    for i in order:
        parts += [{"type": "text", "text": "\n\n"}, {"type": "text", "text": docs[i], "movable": True}]
    parts.append({"type": "text", "text": f"\n\n{question}"})
    return {"messages": [{"role": "user", "content": parts}], "max_tokens": 2, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, **more}


def ask(s, order, question, **more):
    """Returns the seconds until the first text, and what kvik tells of the prompt."""
    begun, first, part = time.perf_counter(), 0, None
    for part in s.stream("/v1/chat/completions", body(order, question, **more)):
        if not first and part["choices"] and part["choices"][0]["delta"].get("content"):
            first = time.perf_counter() - begun
    return first, part


s = Server(model, "--cache-config", '{"moved_chunks": 32}')
for i in range(count):
    ask(s, [i], "Ready?")
print("recompute,prompt,moved,computed,median,all")
ways = [("computed", None), ("0", {}), ("8", {"recompute": 8}), ("32", {"recompute": 32}), ("15 %", {"fraction": 0.15}), ("50 %", {"fraction": 0.5})]
for name, moved in ways:
    took, told = [], None
    for k in range(rounds):
        took_one, told = ask(s, draw.sample(range(count), count), f"Who is in them, {name}, {k}?", **({} if moved is None else {"moved_chunks": moved}))
        took.append(took_one)
    k = told["kvik"]
    print(f"{name},{told['usage']['prompt_tokens']},{k['moved']},{k['computed']},{statistics.median(took):.3f},{' '.join(f'{t:.2f}' for t in took)}", flush=True)
s.stop()
