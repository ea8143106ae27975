"""/metrics as Prometheus reads it: with its package prometheus-client, and with promtool, which also judges names and help."""
import json
import shutil
import subprocess
import time

from harness import PATIENCE, Server, check, finish, skip, tiny

s = Server(tiny("llama-mha"))
for _ in range(2):
    s.post("/v1/completions", {"prompt": [5] * 40, "max_tokens": 4, "temperature": 0})
text = s.get("/metrics")[1].decode()
try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError as e:
    skip(f"prometheus-client: {e}")
else:
    families = {f.name: f for f in text_string_to_metric_families(text)}
    check("prometheus-client: each family has a type and a help", families and all(
        f.documentation and f.type in ("gauge", "counter", "histogram") for f in families.values()), families)
    values = {x.name: x.value for f in families.values() for x in f.samples if not x.labels}
    check("prometheus-client: the tokens that were reused", values["vllm:prefix_cache_hits_total"] > 0
          and values["vllm:prefix_cache_queries_total"] == 80 and values["vllm:num_requests_running"] == 0, values)
    info = [x.labels for x in families["vllm:cache_config_info"].samples]
    check("what llm-d's picker reads", {"vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"} <= values.keys()
          and 0 <= values["vllm:kv_cache_usage_perc"] <= 1 and len(info) == 1 and info[0]["block_size"] == "16" and int(info[0]["num_gpu_blocks"]) > 0, info)
    names = [x.name for f in families.values() for x in f.samples if not x.labels]
    check("prometheus-client: no sample twice", len(names) == len(set(names)), names)

promtool = shutil.which("promtool")
if promtool:
    r = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    # The names are vLLM's, with a colon that promtool wants for rules alone.
    said = [line for line in r.stderr.splitlines() if "should not contain ':'" not in line]
    check("promtool check metrics: it reads all, and minds the colon of vLLM's names alone", not said and not r.stdout
          and r.returncode in (0, 3) and len(r.stderr.splitlines()) > 5, r)
else:
    skip("promtool is not installed (Debian: prometheus)")
check("SIGTERM", s.stop() == 0, s.said)

# --- The gauges follow what the server does.
s = Server(tiny("llama-bf16-long"), "--cache-memory", "8M", "--parallel", "1")
info = next(line for line in s.get("/metrics")[1].decode().splitlines() if line.startswith("vllm:cache_config_info{"))
s.post("/v1/completions", {"prompt": [5] * 1000, "max_tokens": 1})
usage = s.get("/kvik/store")[1]["usage"]
blocks, row = int(info.split('num_gpu_blocks="')[1].split('"')[0]), (usage["index"] + usage["live"]) / 1000
check("num_gpu_blocks is what the memory of the cache holds, and not the context", 0.7 < blocks * 16 * row / usage["budget"] < 1.1, (blocks, row, usage))
check("nobody asks: no use", s.metric("vllm:kv_cache_usage_perc") < 0.1, s.metric("vllm:kv_cache_usage_perc"))
end, streams = time.time() + PATIENCE, []
for i in range(3):
    c = s.connect()
    c.request("POST", "/v1/completions", json.dumps({"prompt": [6 + i] * 1000, "max_tokens": 900, "ignore_eos": True, "stream": True}))
    streams.append(c)
streams[0].getresponse().readline()
NAMES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
seen = [0, 0, 0]
while seen[1] < 2 and time.time() < end:  # all three of one moment
    lines = s.get("/metrics")[1].decode().splitlines()
    seen = [float(line.split()[1]) for n in NAMES for line in lines if line.startswith(f"vllm:{n} ")]
check("one is computed, two wait, and the rows of the one are in use", seen[:2] == [1, 2] and seen[2] > 900 * row / usage["budget"], (seen, row, usage))
for c in streams:
    c.close()
check("gauges: ends", s.stop() == 0, s.said)
finish()
