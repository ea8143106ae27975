"""Options of kvik serve as variables: KVIK_NAME gives --name, the command line wins, and a wrong value names the variable."""
import os
import subprocess

from harness import KVIK, PATIENCE, Server, check, finish, tiny, work

model = tiny("llama-mha")
keys = os.path.join(work, "keys")
with open(keys, "w") as f:
    f.write("mine\n")
s = Server(model, env={"KVIK_PORT": "1", "KVIK_ALIAS": "ann", "KVIK_API_KEY_FILE": keys, "KVIK_PARALLEL": "3", "KVIK_ALLOW_CACHE": "static",
                       "KVIK_THREADS": "1", "KVIK_LOG": "false", "KVIK_HOST": ""})
mine = {"Authorization": "Bearer mine"}
check("a variable gives an option", s.get("/v1/models", mine)[1]["data"][0]["id"] == "ann" and len(s.get("/slots", mine)[1]) == 3)
check("of a file", s.get("/v1/models")[0] == 401)
check("of a list", len(s.get("/kvik/store", mine)[1]["caches"]) == 2)
check("the command line wins", s.port != 1)
check("ends", s.stop() == 0, s.said)
s = Server(model, "--alias", "bob", env={"KVIK_ALIAS": "ann", "KVIK_LOG": "true"})
check("the command line wins: alias", s.get("/v1/models")[1]["data"][0]["id"] == "bob")
s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
check("ends", s.stop() == 0, s.said)
check("a variable gives an option without a value", any(line.startswith("{") for line in s.said), s.said)
for name, value in [("KVIK_PARALLEL", "many"), ("KVIK_LOG", "maybe"), ("KVIK_MAX_BODY", "1X")]:
    r = subprocess.run([KVIK, "serve", model], capture_output=True, text=True, env={**os.environ, name: value}, timeout=PATIENCE)
    check(f"a wrong value names the variable: {name}", r.returncode == 2 and name in r.stderr, r.stderr)
r = subprocess.run([KVIK, "serve", "--help"], capture_output=True, text=True)
check("the help says so in its last line", "KVIK_PORT" in r.stdout.splitlines()[-1], r.stdout[-300:])
r = subprocess.run([KVIK, "generate", model, "--max-new-tokens", "1", "a"], capture_output=True, text=True, env={**os.environ, "KVIK_JSON": "true"})
check("other commands do not read them", r.returncode == 0 and not r.stdout.startswith("{"), r.stdout)
finish()
