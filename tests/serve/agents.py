"""Claude Code and Codex themselves, out of the packages claude-agent-sdk and openai-codex-cli-bin, against kvik serve: two turns of a
conversation, the second by another process, compute only what is new. make test-serve installs them; what is not there is skipped."""
import importlib.util
import json
import os
import shutil
import subprocess

from harness import PATIENCE, Server, check, finish, skip, tiny, work

# Their prompts have some ten thousand characters, which are as many tokens of the tiny model.
CONTEXT = 131072
model = os.path.join(work, "long")
shutil.copytree(tiny("llama-mha"), model)
with open(os.path.join(model, "config.json")) as f:
    config = json.load(f)
with open(os.path.join(model, "config.json"), "w") as f:
    json.dump(dict(config, max_position_embeddings=CONTEXT), f)


def program(package, path):
    """Returns the program that a package bundles, or None."""
    spec = importlib.util.find_spec(package)
    found = os.path.join(os.path.dirname(spec.origin), path) if spec and spec.origin else None
    if found and os.path.exists(found):
        return found
    skip(f"{package} is not installed")
    return None


class Agent:
    """A program with a home of its own, so that it knows nothing of the person who runs the test."""

    def __init__(self, name, **env):
        self.home = os.path.join(work, name)
        self.folder = os.path.join(self.home, "project")
        os.makedirs(self.folder)
        # The answers of the tiny model are noise; the penalty ends them after some tokens.
        self.server = Server(model, "--log", "--alias", "kvik", "--temperature", "1.5", "--seed", "5", "--generation-config",
                             '{"exponential_decay_length_penalty": [8, 1.5]}')
        self.env = {"PATH": os.environ["PATH"], "HOME": self.home, "TMPDIR": self.home, "NO_COLOR": "1",
                    **{k: v.replace("PORT", str(self.server.port)) for k, v in env.items()}}

    def run(self, *command):
        """Runs the program; returns what it printed and the log lines of its requests."""
        before = len(self.server.said)
        r = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        lines = [json.loads(line) for line in self.server.said[before:] if line.startswith("{")]
        return r, [line for line in lines if line.get("prompt_tokens")]


def two_turns(name, agent, first, second):
    """Runs two turns, and compares what the second computed with what is new in it."""
    r, one = agent.run(*first)
    if not check(f"{name}: the first turn", r.returncode == 0 and len(one) >= 1, (r, one)):
        return
    r, two = agent.run(*second)
    if not check(f"{name}: the second turn, by another process", r.returncode == 0 and len(two) >= 1, (r, two)):
        return
    before, now = one[-1], two[0]
    known = before["prompt_tokens"] + before["new_tokens"] - 1  # the row of the last token is not computed
    print(f"{name}: the second prompt has {now['prompt_tokens']} tokens, {known} of the first turn; {now['cached_tokens']} were reused, "
          f"{now['computed_tokens']} computed; first tokens after {before['first_token_seconds']:.2f} s and {now['first_token_seconds']:.2f} s")
    check(f"{name}: the second turn computes only what is new", now["cached_tokens"] >= known and
          now["computed_tokens"] <= now["prompt_tokens"] - known + now["new_tokens"], (before, now))
    check(f"{name}: no request failed", not any(line["failed"] for line in one + two), one + two)


claude = program("claude_agent_sdk", "_bundled/claude")
if claude:
    a = Agent("claude", ANTHROPIC_BASE_URL="http://127.0.0.1:PORT", ANTHROPIC_AUTH_TOKEN="none", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
              DISABLE_AUTOUPDATER="1")
    session = "7d46e2af-1c53-4f4c-b702-1581030c0532"
    options = ["--output-format", "json", "--model", "kvik"]
    two_turns("Claude Code", a, [claude, "-p", "Say hello.", "--session-id", session, *options], [claude, "-p", "And goodbye.", "--resume", session, *options])
    check("Claude Code: ends", a.server.stop() == 0, a.server.said)

codex = program("codex_cli_bin", "bin/codex")
if codex:
    a = Agent("codex")
    os.makedirs(os.path.join(a.home, ".codex"))
    with open(os.path.join(a.home, ".codex", "config.toml"), "w") as f:
        f.write('model = "kvik"\nmodel_provider = "kvik"\n[model_providers.kvik]\nname = "kvik"\n'
                f'base_url = "http://127.0.0.1:{a.server.port}/v1"\nwire_api = "responses"\n')
    two_turns("Codex", a, [codex, "exec", "--skip-git-repo-check", "Say hello."], [codex, "exec", "resume", "--last", "--skip-git-repo-check", "And goodbye."])
    check("Codex: ends", a.server.stop() == 0, a.server.said)
finish()
