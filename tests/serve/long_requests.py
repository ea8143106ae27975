"""Long requests (make test-long SECTIONS=soak): 32 of them under a memory limit that holds a few, compared token by token with the
same requests alone; and /health while the longest prompt of the real model is computed."""
import os
import random
import socket
import threading
import time

from harness import Server, at_once, check, finish, generate, skip, tiny, work

SEED = int(os.environ.get("KVIK_TEST_SEED") or 20261127)
MANY = int(os.environ.get("KVIK_TEST_MANY") or 32)  # 6: a minute, without slow clients
TOKENS = int(os.environ.get("KVIK_TEST_TOKENS") or 8000)  # of the longest prompt: the context of the real model has 8192
draw = random.Random(SEED)


def drawn(most):
    """Draws a request that fills most of the context: the beginning is one of three, and the rest its own."""
    n = draw.randrange(most // 2, most * 3 // 4)
    common = [5 + (i * draw.choice([7, 11, 13])) % 50 for i in range(draw.choice([0, most // 4]))]
    ids = common + [draw.randrange(5, 60) for _ in range(n - len(common))]
    new = draw.randrange(most // 8, most // 4)
    body = {"prompt": ids, "max_tokens": new, "seed": draw.randrange(1000), "temperature": draw.choice([0, 1.0]), "ignore_eos": True,
            "return_token_ids": True}
    options = ["--input-ids", ",".join(map(str, ids)), "--max-new-tokens", str(new), "--seed", str(body["seed"]), "--generation-config",
               '{"top_p": 1.0, "eos_token_id": []}']
    options += ["--do-sample", "true", "--temperature", "1.0"] if body["temperature"] else ["--do-sample", "false"]
    return body, options


def alone(model, most, memory):
    cases = [drawn(most) for _ in range(MANY)]
    want = [generate(model, *o)["sequences"][0][len(b["prompt"]):] for b, o in cases]
    s = Server(model, "--generation-config", '{"top_p":1.0}', "--cache-memory", memory, "--parallel", str(MANY))
    check(f"{model}: the limit holds one text", s.get("/v1/models")[1]["data"][0]["meta"]["n_ctx"] >= most)
    got = at_once([lambda b=b: s.post("/v1/completions", b) for b, o in cases])
    label = f"{os.path.basename(model)}, {memory}: {MANY} requests of {most // 2} tokens and more"
    bad = [(code, w, g["choices"][0]["token_ids"] if code == 200 else g, b) for (b, o), w, (code, g) in zip(cases, want, got) if code != 200 or g["choices"][0]["token_ids"] != w]
    check(f"{label} have the tokens that each has alone (seed {SEED})", not bad, bad[:1])
    n = s.metric("vllm:num_preemptions_total")
    print(f"{label}: {n:.0f} times parked, limit {s.get('/kvik/store')[1]['usage']['budget']} bytes")
    check(f"{label}: some were parked", n > 0 or MANY < 32, n)
    check(f"{label}: ends", s.stop() == 0, s.said)


def health_beside(model, ids, *options):
    """Asks for /health all the time while a prompt is computed, each time by a new connection; prints the worst."""
    s = Server(model, *options)
    took, over = [], threading.Event()

    def long():
        try:
            code, a = s.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0})
            took.append((code, a["kvik"]["first_token_seconds"]))
        finally:
            over.set()
    t = threading.Thread(target=long)
    t.start()
    times = []
    while not over.is_set():
        begun = time.perf_counter()
        code = s.get("/health")[0]
        times.append(time.perf_counter() - begun)
        check("/health beside a long prompt", code == 200) if code != 200 else None
        time.sleep(0.002)
    t.join()
    times.sort()
    label = f"{os.path.basename(model)}: /health beside a prompt of {len(ids)} tokens ({took[0][1]:.1f} s)"
    print(f"{label}: worst {times[-1] * 1e3:.1f} ms, 99 of 100 within {times[len(times) * 99 // 100] * 1e3:.1f} ms, "
          f"median {times[len(times) // 2] * 1e3:.1f} ms, of {len(times)}")
    check(f"{label}: it is answered meanwhile, again and again", took[0][0] == 200 and len(times) > 5, (took, len(times)))
    check(f"{label}: ends", s.stop() == 0, s.said)


def slow_clients():
    """Clients that send a byte now and then: a head, and without a key a body, must be there within a minute."""
    keys = os.path.join(work, "keys")
    with open(keys, "w") as f:
        f.write("sesame\n")
    s = Server(tiny("llama-mha"), "--api-key-file", keys)
    post = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n"
    sent = {"a head": b"GET /", "a body without a key": post % 1000 + b"\r\n", "a body that is too long": post % 10**18 + b"x-api-key: sesame\r\n\r\n",
            "a body with a key": post % 1000 + b"x-api-key: sesame\r\n\r\n"}
    lines = {name: socket.create_connection(("127.0.0.1", s.port)) for name in sent}
    for name, c in lines.items():
        c.sendall(sent[name])
    begun, over = time.time(), {}
    while time.time() - begun < 75:
        time.sleep(5)
        for name, c in lines.items():
            try:
                c.sendall(b"a")
            except OSError:
                over.setdefault(name, time.time() - begun)
    check("slow clients: those without a right are closed after a minute", sorted(over) == sorted(sent)[:1] + sorted(sent)[2:] and min(over.values()) > 55, over)
    check("slow clients: ends", s.stop() == 0, s.said)


if MANY == 32:
    slow_clients()
for name, most, memory in [("llama-mha", 250, "500K"), ("gemma3", 250, "700K"), ("qwen3-next", 500, "700K")]:
    alone(tiny(name), most, memory)
real = os.environ.get("KVIK_TEST_MODEL", "none")
if os.path.exists(real):
    health_beside(real, [100 + (i * 31) % 9000 for i in range(TOKENS)])
else:
    skip("SmolLM2: the model is not here (KVIK_TEST_MODEL)")
finish()
