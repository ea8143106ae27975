"""contract.py [schemathesis]: docs/openapi.json against a running server. The file is what scripts/make-openapi.py writes from
the tables of routes. With the argument (make test-serve), schemathesis also sends requests that follow from the file, right and
wrong ones: no answer may be an error of the server, or another than the file describes."""
import json
import os
import re
import subprocess
import sys
import urllib.parse

from harness import PATIENCE, ROOT, Server, check, finish, skip, tiny, work

CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance", "allow_header_conformance"]
LEAST = 5000
FILE = os.path.join(ROOT, "docs", "openapi.json")
SEED = os.environ.get("KVIK_TEST_SEED")

r = subprocess.run([sys.executable, os.path.join(ROOT, "scripts/make-openapi.py"), "--check"], capture_output=True, text=True)
check("docs/openapi.json is what the tables of routes make", r.returncode == 0, r.stderr)
with open(FILE) as f:
    paths = json.load(f)["paths"]
s = Server(tiny("llama-mha"), "--cache-config", '{"max_cache_len": 96}', "--do-sample", "false")
# A GET is answered, and of a POST without a body a field or the body is said to be missing.
for path, methods in paths.items():
    for method in methods:
        code, a = s.ask(method.upper(), path.replace("{name}", "llama-mha"))
        check(f"{method} {path} is there", code == 200 if method == "get" else code in (200, 400), (code, a))



def explore():
    st = os.path.join(os.path.dirname(sys.executable), "st")
    if not os.path.exists(st):
        skip("schemathesis is not installed beside " + sys.executable)
        return
    out = subprocess.run([st, "run", FILE, "--url", f"http://127.0.0.1:{s.port}", "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing",
                          "--max-examples", "20", "--continue-on-failure", "--no-color", "--request-timeout", str(PATIENCE),
                          "--report", "har", "--report-har-path", os.path.join(work, "all.har"), *(["--seed", SEED] if SEED else ["--generation-deterministic"])],
                         capture_output=True, text=True, cwd=work)
    cases = int((re.findall(r"(\d+) generated", out.stdout) or [0])[0])
    print(f"schemathesis: {cases} cases", flush=True)
    check("schemathesis finds nothing", out.returncode == 0, out.stdout[max(out.stdout.find("FAILURES"), out.stdout.find("ERRORS"), 0):] + out.stderr)
    check(f"schemathesis: at least {LEAST} cases", cases >= LEAST, out.stdout[-2000:])
    with open(os.path.join(work, "all.har")) as f:
        entries = json.load(f)["log"]["entries"]
    seen = {(urllib.parse.urlsplit(e["request"]["url"]).path, e["response"]["content"].get("mimeType", "").split(";")[0])
            for e in entries if e["response"]["status"] == 200}
    # Of /infill the tiny model cannot have one, and paths with a name have many spellings.
    want = {(p, kind.split(";")[0]) for p, methods in paths.items() if "{" not in p and p != "/infill" and "/audio/" not in p for o in methods.values() for kind in o["responses"]["200"]["content"]}
    check("every answer that the file describes was seen", want <= seen, want - seen)


if "schemathesis" in sys.argv:
    explore()
check("the server is there", s.get("/health")[0] == 200)
check("SIGTERM", s.stop() == 0, s.said)
finish()
