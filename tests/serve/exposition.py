"""/metrics as Prometheus reads it: with its package prometheus-client, and with promtool, which also judges names and help."""
import shutil
import subprocess

from harness import Server, check, finish, skip, tiny

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
finish()
