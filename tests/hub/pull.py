"""kvik pull, kvik rm, kvik models and --pull against a hub on this machine (server.py): what arrives, what is refused, and
what is left behind."""
import fcntl
import hashlib
import json
import os
import pty
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
from harness import KVIK, PATIENCE, ROOT, check, finish, skip, work  # noqa: E402
from server import Hub, Repo, git_sha  # noqa: E402

MODELS = os.path.join(ROOT, "tests/golden/models")
COMMIT, OLD = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"
TOKEN = "hf_test_token"


def read(path):
    with open(path, "rb") as f:
        return f.read()


tiny = {n: read(os.path.join(MODELS, "llama-mha", n)) for n in os.listdir(os.path.join(MODELS, "llama-mha"))}
gguf = read(os.path.join(MODELS, "granite.gguf"))
SAFE = {**tiny, "README.md": b"# a model\n", ".gitattributes": b"*.safetensors lfs\n", "pytorch_model.bin": b"P" * 1000,
        "onnx/model.onnx": b"O" * 1000, "special_tokens_map.json": b"{}", "flax_model.msgpack": b"F"}
older = {**SAFE, "README.md": b"# an older model\n", "generation_config.json": b'{"eos_token_id": 1}'}


def shards():
    """The tiny model in two files and an index."""
    import struct
    raw = tiny["model.safetensors"]
    n = struct.unpack("<Q", raw[:8])[0]
    head, body = json.loads(raw[8:8 + n]), raw[8 + n:]
    names = sorted(k for k in head if k != "__metadata__")
    out, where = {}, {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        at, h, b = 0, {}, b""
        for k in part:
            lo, hi = head[k]["data_offsets"]
            h[k] = {**head[k], "data_offsets": [at, at + hi - lo]}
            at += hi - lo
            b += body[lo:hi]
            where[k] = file
        text = json.dumps(h).encode()
        out[file] = struct.pack("<Q", len(text)) + text + b
    out["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": where}).encode()
    return {**out, "config.json": tiny["config.json"], "generation_config.json": tiny["generation_config.json"]}


def parts(name, n):
    """The tiny .gguf in n files; the names say its quantization, of which kvik only compares the letters."""
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([sys.executable, os.path.join(MODELS, "../../cli/gguf.py"), os.path.join(MODELS, "granite.gguf"), d + "/m",
                        "general.name=" + name, f"split={n}"], check=True)
        return {f"{name}-{i + 1:05}-of-{n:05}.gguf": read(f"{d}/m-{i + 1:05}-of-{n:05}.gguf") for i in range(n)}


LFS = (".safetensors", ".gguf", ".bin")
quants = {f"model-{q}.gguf": gguf + q.encode() for q in ("Q2_K", "Q8_0", "BF16")}
hub = Hub({
    "org/safe": Repo(SAFE, LFS, COMMIT, branches={"main": COMMIT, "refs/pr/1": OLD}, tags={"v1": OLD}, commits={COMMIT: SAFE, OLD: older}),
    "org/shards": Repo({**shards(), "consolidated.safetensors": b"C" * 5000}, LFS, COMMIT),
    "org/gguf": Repo({"one-Q5_0.gguf": gguf, "mmproj-one.gguf": b"M", "README.md": b"x"}, LFS, COMMIT),
    "org/quants": Repo({**quants, "model-Q4_K_M.gguf": gguf, "sub/model-IQ4_XS.gguf": gguf + b"s", "imatrix.gguf": b"I"}, LFS, COMMIT),
    "org/odd": Repo(quants, LFS, COMMIT),
    "org/parts": Repo({**parts("sub/big-Q8_0", 3), **parts("big-Q2_K", 2)}, LFS, COMMIT),
    "org/half": Repo({n: f for n, f in parts("big-Q8_0", 3).items() if "-00002-" not in n}, LFS, COMMIT),
    "org/pickle": Repo({"config.json": tiny["config.json"], "pytorch_model.bin": b"P"}, LFS, COMMIT),
    "org/adapter": Repo({"adapter_config.json": b"{}", "adapter_model.safetensors": b"A"}, LFS, COMMIT),
    "org/private": Repo({"one.gguf": gguf}, LFS, COMMIT, token=TOKEN),
    "org/gated": Repo({"one.gguf": gguf}, LFS, COMMIT, token=TOKEN, gated=True),
})
home = os.path.join(work, "home")
os.mkdir(home)
cache = os.path.join(home, ".cache/huggingface/hub")
DROP = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
        "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
env = {k: v for k, v in os.environ.items() if k not in DROP}
env.update(HOME=home, HF_ENDPOINT=hub.url, HF_HUB_DOWNLOAD_TIMEOUT="300", no_proxy="*")


def kvik(*words, **more):
    limits = more.pop("limits", None)
    return subprocess.run([KVIK, *words], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL,
                          env={**env, **more}, preexec_fn=limits)


def folder(repo):
    return os.path.join(cache, "models--" + repo.replace("/", "--"))


def forget(repo=None):
    hub.reset()
    shutil.rmtree(folder(repo) if repo else cache, ignore_errors=True)


def names(path):
    return sorted(os.path.relpath(os.path.join(d, f), path) for d, _, files in os.walk(path) for f in files)


def refused(name, r, *words, status=1):
    check(name, r.returncode == status and not r.stdout and all(w in r.stderr for w in words) and r.stderr.count("\n") <= 3,
          (r.returncode, r.stdout, r.stderr))


if "without libcurl" in kvik("pull", "org/safe").stderr:
    skip("this build downloads nothing (libcurl)")
    finish()
forget()


def test_layout():
    r = kvik("pull", "org/safe")
    snapshot = os.path.join(folder("org/safe"), "snapshots", COMMIT)
    check("pull: the path is printed", r.returncode == 0 and r.stdout == snapshot + "\n" and "4 files" in r.stderr, (r.stdout, r.stderr))
    check("pull: only what kvik reads", names(snapshot) == ["config.json", "generation_config.json", "model.safetensors", "special_tokens_map.json"],
          names(snapshot))
    sha = hashlib.sha256(tiny["model.safetensors"]).hexdigest()
    check("pull: relative links to blobs by their hashes",
          os.readlink(os.path.join(snapshot, "model.safetensors")) == "../../blobs/" + sha
          and os.readlink(os.path.join(snapshot, "config.json")) == "../../blobs/" + git_sha(tiny["config.json"]))
    check("pull: the contents", all(read(os.path.join(snapshot, n)) == SAFE[n] for n in names(snapshot)))
    check("pull: refs/main", read(os.path.join(folder("org/safe"), "refs/main")) == COMMIT.encode())
    check("pull: nothing temporary is left", not [n for n in names(cache) if "incomplete" in n or ".kvik" in n], names(cache))
    check("pull: the cache is marked for backups", os.path.exists(os.path.join(cache, "CACHEDIR.TAG")))
    check("pull: locks where the hub's own library has them", os.path.isdir(os.path.join(cache, ".locks/models--org--safe")))
    hub.reset()
    r = kvik("pull", "org/safe")
    check("pull again: downloads nothing", r.returncode == 0 and "all here already" in r.stderr and not hub.asked("resolve"), r.stderr)
    r = kvik("generate", "org/safe", "--input-ids", "5", "--max-new-tokens", "1")
    check("every command takes the name", r.returncode == 0, r.stderr)
    r = kvik("pull", "org/safe@v1")
    old = os.path.join(folder("org/safe"), "snapshots", OLD)
    check("pull @tag", r.stdout == old + "\n" and read(os.path.join(folder("org/safe"), "refs/v1")) == OLD.encode(), r.stderr)
    check("pull @tag: only what differs came", len(hub.asked("resolve")) == 1, [q["path"] for q in hub.seen])
    r = kvik("pull", "org/safe@refs/pr/1")
    check("pull @refs/pr/1: a ref in directories", read(os.path.join(folder("org/safe"), "refs/refs/pr/1")) == OLD.encode(), r.stderr)
    r = kvik("pull", "org/safe@" + OLD)
    check("pull @commit", r.stdout == old + "\n", r.stderr)
    for word in ("org/safe@v1", "org/safe@" + OLD, "org/safe@" + OLD[:8], "https://huggingface.co/org/safe/tree/v1", "hf.co/org/safe@v1"):
        r = kvik("inspect", word, "--json")
        check(f"{word} is found", r.returncode == 0 and OLD in json.loads(r.stdout)["path"], r.stderr)
    refused("two names have no folder in common", kvik("generate", "org--safe", "--input-ids", "5"), "no such file")
    os.makedirs(os.path.join(cache, "models--org--a--b", "snapshots", COMMIT))
    listed = {m["name"]: m for m in json.loads(kvik("models", "--json").stdout)}
    check("models: nothing whose name no command takes", [n for n in listed if "org" in n and "--" in n] == [], listed)
    check("models: revisions by name, size and commit", listed["org/safe"]["commit"] == COMMIT and listed["org/safe"]["file_bytes"] > 600000
          and listed["org/safe@" + OLD[:12]]["commit"] == OLD, listed)
    check("models: the table has the commit", COMMIT[:8] in kvik("models").stdout)


def test_shards():
    forget()
    r = kvik("pull", "org/shards")
    found = names(r.stdout.strip())
    check("shards: the index's files and no others", r.returncode == 0 and "consolidated.safetensors" not in found
          and len(found) == 5, (found, r.stderr))
    r = kvik("generate", "org/shards", "--input-ids", "5", "--max-new-tokens", "1")
    check("shards: the model runs", r.returncode == 0, r.stderr)
    hub.reset()
    r = kvik("pull", "org/shards")
    check("shards: again downloads nothing", not hub.asked("resolve") and "all here already" in r.stderr, r.stderr)
    bad = dict(hub.repos["org/shards"].files, **{"model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "../../../etc/passwd.safetensors"}}).encode()})
    hub.repos["org/evil"] = Repo(bad, LFS, COMMIT)
    refused("an index that names a file elsewhere", kvik("pull", "org/evil"), "tensor a", "does not have")
    check("and no snapshot of it", not os.listdir(os.path.join(folder("org/evil"), "snapshots")))
    check("a name without main is not found before", kvik("inspect", "org/evil").returncode == 1)


def test_gguf():
    forget()
    r = kvik("pull", "org/gguf")
    check("the only .gguf", r.stdout.endswith("/one-Q5_0.gguf\n") and names(os.path.dirname(r.stdout)) == ["one-Q5_0.gguf"], r.stderr)
    r = kvik("pull", "org/quants")
    check("of several Q4_K_M", r.stdout.endswith(COMMIT + "/model-Q4_K_M.gguf\n"), r.stderr)
    r = kvik("pull", "org/quants:q8_0")
    check("by its quantization, in any case", r.stdout.endswith("/model-Q8_0.gguf\n"), r.stderr)
    r = kvik("pull", "org/quants:IQ4_XS")
    check("in a directory", r.stdout.endswith("/sub/model-IQ4_XS.gguf\n") and os.readlink(r.stdout.strip()).startswith("../../../blobs/"), r.stderr)
    r = kvik("pull", "org/quants:model-Q2_K.gguf")
    check("by its name", r.stdout.endswith("/model-Q2_K.gguf\n"), r.stderr)
    refused("a quantization that is not there lists those that are", kvik("pull", "org/quants:Q3_K"), "Q3_K", "Q2_K (", "Q8_0 (", "IQ4_XS (")
    refused("several without Q4_K_M are listed", kvik("pull", "org/odd"), "org/odd has several", "Q2_K (40", "BF16")
    r = kvik("pull", "org/quants", "--dry-run")
    check("--dry-run lists", r.returncode == 0 and "model-Q4_K_M.gguf" in r.stdout and "kvik pull org/quants:BF16" in r.stdout, r.stdout)
    for word in ("org/quants:Q8_0", "org/quants:IQ4_XS", "org/quants/model-Q2_K.gguf", "hf.co/org/quants:Q4_K_M", "org/gguf"):
        r = kvik("inspect", word)
        check(f"{word} is found", r.returncode == 0, r.stderr)
    refused("a file that is not here: the command", kvik("inspect", "org/quants:BF16"), "kvik pull org/quants:BF16")
    refused("a part that the list does not have", kvik("pull", "org/half"), "but not big-Q8_0-00002-of-00003.gguf")


def test_split():
    """Models in several .gguf files."""
    forget()
    refused("several in parts: each is listed once, with all of its bytes", kvik("pull", "org/parts"), "Q8_0 (4", "Q2_K (4")
    r = kvik("pull", "org/parts:Q8_0")
    at = os.path.dirname(r.stdout.strip())
    check("all parts of one", r.returncode == 0 and r.stdout.endswith("/sub/big-Q8_0-00001-of-00003.gguf\n") and len(names(at)) == 3, (r, names(at)))
    whole = kvik("generate", os.path.join(MODELS, "granite.gguf"), "--input-ids", "5,6,7", "--max-new-tokens", "6").stdout
    for word in ("org/parts:Q8_0", "org/parts"):
        r = kvik("generate", word, "--input-ids", "5,6,7", "--max-new-tokens", "6")
        check(f"{word} runs", r.returncode == 0 and r.stdout == whole, r.stderr)
    listed = json.loads(kvik("models", "--json").stdout)
    size = sum(len(f) for n, f in hub.repos["org/parts"].files.items() if "Q8_0" in n)
    check("kvik models: one model, with the bytes of all parts", [m["file_bytes"] for m in listed if m["cache"] == "hub"] == [size], listed)
    r = kvik("rm", "org/parts:Q8_0", "--json")
    check("rm takes all parts", json.loads(r.stdout)["bytes"] == size and not os.path.exists(folder("org/parts")), r)
    r = kvik("pull", "org/parts:Q2_K")
    os.unlink(os.path.join(os.path.dirname(r.stdout), "big-Q2_K-00002-of-00002.gguf"))
    refused("a part that is gone", kvik("generate", "org/parts", "--input-ids", "5"), "part 2 of 2, is missing")
    r = kvik("pull", "org/parts:Q2_K")
    check("is fetched again", r.returncode == 0 and kvik("generate", "org/parts", "--input-ids", "5").returncode == 0, r.stderr)
    refused("pickled weights", kvik("pull", "org/pickle"), "pytorch_model.bin", "safetensors")
    refused("an adapter", kvik("pull", "org/adapter"), "adapter")


def test_remove():
    forget()
    for word in ("org/safe", "org/safe@v1", "org/quants:Q8_0", "org/quants:Q2_K"):
        kvik("pull", word)
    r = kvik("rm", "org/safe@v1")
    here = os.path.join(folder("org/safe"), "snapshots")
    check("rm @tag: that snapshot and its ref", r.returncode == 0 and os.listdir(here) == [COMMIT]
          and names(os.path.join(folder("org/safe"), "refs")) == ["main"], (r.stderr, os.listdir(here)))
    check("rm @tag: contents that another has stay", len(os.listdir(os.path.join(folder("org/safe"), "blobs"))) == 4
          and kvik("inspect", "org/safe").returncode == 0)
    r = kvik("rm", "org/quants:Q8_0", "--json")
    check("rm :QUANT: one file", json.loads(r.stdout)["bytes"] == len(quants["model-Q8_0.gguf"])
          and len(os.listdir(os.path.join(folder("org/quants"), "blobs"))) == 1, r)
    kvik("rm", "org/quants:Q2_K")
    check("rm: the repository goes with its last file", not os.path.exists(folder("org/quants")))
    outside = os.path.join(work, "outside")
    os.mkdir(outside)
    open(os.path.join(outside, "mine"), "w").close()
    os.symlink(outside, os.path.join(here, COMMIT, "elsewhere"))
    r = kvik("rm", "org/safe")
    check("rm: the whole repository, and no link is followed", r.returncode == 0 and not os.path.exists(folder("org/safe"))
          and os.listdir(outside) == ["mine"] and not os.path.exists(os.path.join(cache, ".locks/models--org--safe")), r.stderr)
    refused("rm of what is not there", kvik("rm", "org/safe"), "org/safe is not in", "kvik models")
    refused("rm of a path", kvik("rm", "../x"), "no name", status=2)
    kvik("pull", "org/gguf")
    os.rename(folder("org/gguf"), outside + "/moved")
    os.symlink(outside + "/moved", folder("org/gguf"))
    refused("rm of a folder that is a link", kvik("rm", "org/gguf"), "cannot be removed")
    os.unlink(folder("org/gguf"))
    kvik("pull", "org/gguf")
    sha = hashlib.sha256(gguf).hexdigest()
    with open(os.path.join(cache, ".locks/models--org--gguf", sha + ".lock"), "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        refused("rm while a file comes", kvik("rm", "org/gguf"), "being downloaded")


def test_shared():
    """Contents that the hub's own library keeps once for several repositories (src/hub/common.h)."""
    shared, xet = os.path.join(cache, "blobs/ab"), "ab" * 32
    sha = hashlib.sha256(gguf).hexdigest()
    blobs = os.path.join(folder("org/gguf"), "blobs")

    def share(mark="1\n", refs=(f"models--org--gguf/blobs/{sha}\n",)):
        forget()
        kvik("pull", "org/gguf")
        os.makedirs(shared)
        os.rename(os.path.join(blobs, sha), os.path.join(shared, xet))
        os.symlink("../../blobs/ab/" + xet, os.path.join(blobs, sha))
        for path, text in ((os.path.join(cache, "blobs/.huggingface-shared-blobs"), mark), (os.path.join(shared, xet + ".refs"), "".join(refs))):
            if text:
                with open(path, "w") as f:
                    f.write(text)

    def there():
        return os.path.exists(os.path.join(shared, xet))
    share()
    check("shared contents are found", kvik("inspect", "org/gguf").returncode == 0)
    r = kvik("rm", "org/gguf", "--json")
    check("rm frees shared contents that nobody needs", not there() and json.loads(r.stdout)["bytes"] == len(gguf) + 40
          and os.listdir(shared) == [xet + ".lock"], (r, os.listdir(shared)))
    for name, more in {"of another layout": {"mark": "2\n"}, "without a mark": {"mark": ""}, "without references": {"refs": ()}}.items():
        share(**more)
        r = kvik("rm", "org/gguf", "--json")
        check(f"rm leaves shared contents {name}", r.returncode == 0 and there() and json.loads(r.stdout)["bytes"] == 40, (r, os.listdir(shared)))
    share(refs=("../x\n", "/etc\n", "nothing\n", "models--other--x/blobs/y\n"))
    other = os.path.join(cache, "models--other--x/blobs")
    os.makedirs(other)
    os.symlink("../../blobs/ab/" + xet, os.path.join(other, "y"))
    kvik("rm", "org/gguf:one-Q5_0.gguf")
    check("rm leaves shared contents that another repository needs", there() and not os.path.exists(folder("org/gguf")))
    share()
    with open(os.path.join(shared, xet + ".lock"), "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        kvik("rm", "org/gguf")
    check("rm leaves shared contents that another process locks", there())
    share()
    os.rename(shared, os.path.join(work, "outside-shared"))
    os.symlink(os.path.join(work, "outside-shared"), shared)
    kvik("rm", "org/gguf")
    check("rm leaves shared contents behind a link", there())


def test_names():
    hub.reset()
    for word in ("org", "a/b/c", "../a", "a/..", "org/name:", "org/name@", "org/name:../x", "org/name:/etc/passwd", "org/name@../x",
                 "org/name@-x", "org/name:a\nb", "", "https://example.com/x.gguf", "/etc", "a/b@c d", "x" * 300 + "/y", "llama3.2:../1b",
                 "a--b/c", "a/b--c", "-a/b", "a/-b", "a/b-", "a./b", "a/b.", "a/b.git", "a/" + "b" * 97, "a--b:c", "a/b--c@v1"):
        if word != "org":
            refused(f"no name: {word[:30]!r}", kvik("pull", "--", word), "no name", status=2)
    check("a wrong name asks no server", not hub.seen)
    refused("a name too many", kvik("pull", "org/a", "org/b"), "one name", status=2)


def test_tokens():
    forget()
    refused("private, without a token", kvik("pull", "org/private"), "no repository org/private", "HF_TOKEN")
    refused("gated, without a token", kvik("pull", "org/gated"), "gated", hub.url + "/org/gated", "HF_TOKEN")
    refused("gated, with a token of somebody else", kvik("pull", "org/gated", HF_TOKEN="hf_other"), "gated", "may not read it")
    hub.reset()
    r = kvik("pull", "org/gated", HF_TOKEN=" " + TOKEN + "\n")
    check("with the token", r.returncode == 0, r.stderr)
    check("the token goes to the hub", all(q["headers"].get("authorization") == "Bearer " + TOKEN for q in hub.seen if q["origin"] == "hub"))
    check("and to no other host", hub.asked("", "cdn") and not any("authorization" in q["headers"] for q in hub.asked("", "cdn")))
    check("and in no message", TOKEN not in r.stdout + r.stderr and "secret" not in r.stderr)
    os.makedirs(os.path.join(home, ".cache/huggingface"), exist_ok=True)
    token = os.path.join(home, ".cache/huggingface/token")
    with open(token, "w") as f:
        f.write(TOKEN + "\n")
    check("the token of hf auth login", kvik("pull", "org/private").returncode == 0)
    forget("org/private")
    refused("HF_TOKEN wins over the file", kvik("pull", "org/private", HF_TOKEN="hf_other"), "your token")
    refused("HF_HUB_DISABLE_IMPLICIT_TOKEN", kvik("pull", "org/private", HF_HUB_DISABLE_IMPLICIT_TOKEN="1"), "private")
    os.rename(token, os.path.join(work, "token"))
    r = kvik("pull", "org/private", HF_TOKEN_PATH=os.path.join(work, "token"))
    check("HF_TOKEN_PATH", r.returncode == 0, r.stderr)
    refused("a token with a line break", kvik("pull", "org/safe", HF_TOKEN="a\nX-Evil: b"), "HF_TOKEN is no token")


def test_places():
    forget()
    for variable, value, place in (("HF_HUB_CACHE", "there", "there"), ("HUGGINGFACE_HUB_CACHE", "old", "old"), ("HF_HOME", "hf", "hf/hub"), ("XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"),
                                   ("HF_HOME", "~/tilde", "home/tilde/hub")):
        given = value if value[0] == "~" else os.path.join(work, value)
        r = kvik("pull", "org/gguf", **{variable: given})
        check(f"{variable}={value}", r.stdout.startswith(os.path.join(work, place) + "/models--org--gguf/"), (r.stdout, r.stderr))
    r = kvik("pull", "org/gguf", **{v: os.path.join(work, v) for v in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")})
    check("the first of the variables wins", r.stdout.startswith(os.path.join(work, "HF_HUB_CACHE/models--org--gguf/")), r)
    refused("HF_ENDPOINT that is no URL", kvik("pull", "org/gguf", HF_ENDPOINT="huggingface"), "HF_ENDPOINT", "URL")
    refused("a home that is not there", kvik("pull", "org/gguf", HOME=os.path.join(work, "nobody")), "HOME does not exist")
    hub.reset()
    refused("offline", kvik("pull", "org/gguf", HF_HUB_OFFLINE="1"), "HF_HUB_OFFLINE")
    refused("TRANSFORMERS_OFFLINE", kvik("pull", "org/gguf", TRANSFORMERS_OFFLINE="yes"), "forbids")
    check("offline asks no server", not hub.seen)
    kvik("pull", "org/gguf")
    hub.reset()
    r = kvik("pull", "org/gguf", HF_HUB_OFFLINE="1")
    check("offline, what is here is found", r.stdout.endswith("/one-Q5_0.gguf\n"), (r.stdout, r.stderr))
    check("without asking", not hub.seen)


def fetch(name, *faults, repo="org/gguf", **more):
    """Downloads anew while the server has faults."""
    forget(repo)
    for f in faults:
        hub.fault(*f)
    return kvik("pull", repo, **more)


def test_faults():
    sha = hashlib.sha256(gguf).hexdigest()

    def good(name, r, tries=None):
        check(name, r.returncode == 0 and read(r.stdout.strip()) == gguf and not [n for n in names(cache) if "incomplete" in n], r.stderr)
        if tries:
            check(name + ": in so many requests", len(hub.asked(sha, "cdn")) == tries, [q["headers"].get("range") for q in hub.seen])
    good("a connection that is cut: the rest by a range", fetch("", (sha, ("cut", 20000))), 2)
    check("the range begins where the first ended", hub.asked(sha, "cdn")[1]["headers"]["range"] == "bytes=20000-",
          hub.asked(sha, "cdn")[1]["headers"])
    good("cut three times", fetch("", (sha, ("cut", 10000), 3)), 4)
    good("cut, and the server knows no ranges", fetch("", (sha, ("cut", 20000)), (sha, ("norange",))), 2)
    good("cut, and the range is refused", fetch("", (sha, ("cut", 20000)), (sha, ("416",))), 3)
    good("status 500 once", fetch("", (sha, 500)))
    good("status 503 of the list", fetch("", ("tree", 503)))
    good("status 429 with Retry-After", fetch("", ("revision", ("wait", 429, "0")), (sha, ("wait", 429, "0"))))
    good("a connection that is dropped", fetch("", ("tree", ("drop",))))
    good("silence", fetch("", (sha, ("silence", 10 * PATIENCE)), HF_HUB_DOWNLOAD_TIMEOUT="1"), 2)
    r = fetch("", (sha, ("wait", 503, "7200"), 9))
    refused("a server that asks to wait for hours", r, "status 503")
    refused("status 500 for ever", fetch("", ("revision", ("wait", 500, "0"), 99)), "fails at the moment", "status 500")
    check("in five tries", len(hub.asked("revision")) == 5)
    refused("status 429 for ever", fetch("", ("revision", ("wait", 429, "0"), 99)), "too many requests")
    refused("status 404 of a file", fetch("", (sha, 404)), "org/gguf")
    refused("no server", kvik("pull", "org/gguf", HF_ENDPOINT="http://127.0.0.1:1"), "127.0.0.1:1")
    r = fetch("", (sha, ("wrong",)))
    refused("wrong contents", r, "SHA-256", "removed")
    check("wrong contents leave nothing", not [n for n in names(folder("org/gguf")) if "blobs" in n or "snapshots" in n], names(folder("org/gguf")))
    check("and no ref", not os.path.exists(os.path.join(folder("org/gguf"), "refs/main")))
    r = fetch("", ("config.json", ("wrong",)), repo="org/safe")
    refused("wrong contents of a small file", r, "config.json", "hash")
    forget("org/gguf")
    place = os.path.join(folder("org/gguf"), "blobs")
    os.makedirs(place)
    with open(os.path.join(place, sha + ".6b76696b.incomplete"), "wb") as f:
        f.write(b"Z" * 30000)
    good("what an earlier call has left is damaged: once again", kvik("pull", "org/gguf"), 2)
    forget("org/gguf")
    os.makedirs(place)
    with open(os.path.join(place, sha + ".6b76696b.incomplete"), "wb") as f:
        f.write(gguf[:30000])
    good("what an earlier call has left is used", kvik("pull", "org/gguf"), 1)
    check("with a range", hub.asked(sha, "cdn")[0]["headers"]["range"] == "bytes=30000-")
    forget("org/gguf")
    os.makedirs(place)
    with open(os.path.join(place, sha), "wb") as f:
        f.write(gguf[:100])
    good("a blob of a wrong size is replaced", kvik("pull", "org/gguf"))
    with open(os.path.join(place, sha), "ab") as f:
        f.write(b"more")
    good("also behind a link", kvik("pull", "org/gguf"))


def test_lies():
    sha = hashlib.sha256(gguf).hexdigest()
    refused("HTML in place of a file", fetch("", (sha, ("html",))), "page of HTML", "one-Q5_0.gguf")
    refused("HTML in place of JSON", fetch("", ("revision", ("html",))), "page of HTML", "proxy")
    refused("HTML in place of the list", fetch("", ("tree", ("html",))), "page of HTML")
    refused("no JSON", fetch("", ("tree", ("body", b"[1, 2"))), "list of files")
    refused("deep JSON", fetch("", ("tree", ("body", b"[" * 100000))), "nested deeper")
    refused("an object in place of the list", fetch("", ("tree", ("body", b'{"a": 1}'))), "no list")
    refused("no commit", fetch("", ("revision", ("body", b'{"sha": "../../x"}'))), "no commit")
    refused("an endless answer", fetch("", ("tree", ("endless", 400))), "longer than")
    refused("endless headers", fetch("", ("tree", ("headers",))), "headers")
    refused("more than the file has", fetch("", (sha, ("longer", 5))), "more than the")
    refused("a length that is not the file's", fetch("", (sha, ("short", 100))), "sends 100 bytes")
    refused("another size in the answer", fetch("", ("resolve", ("size",))), "and its answer 7")
    refused("another hash in the answer", fetch("", ("resolve", ("etag",))), "different contents")
    refused("another commit", fetch("", ("resolve", ("commit",))), "commit dddddddddddd")
    refused("a range that was not asked for", fetch("", (sha, ("cut", 20000)), (sha, ("range",))), "sends others")
    refused("a message that is no UTF-8", fetch("", ("revision", ("say", 418, "so \x9b[2J\x1b]0;x\x07"))), "status 418: so ?[2J")
    refused("redirections in a circle", fetch("", (sha, ("loop",), 99)), "circle")
    refused("a redirection to a file", fetch("", ("resolve", ("to", "file:///etc/passwd"))), "neither http nor https")
    refused("a redirection to another protocol", fetch("", ("resolve", ("to", "gopher://x/"))), "neither http nor https")
    refused("a list that goes on in a circle", fetch("", ("tree", ("next", hub.url + "/api/models/org/gguf/tree/%s?recursive=true" % COMMIT), 9)), "same page")
    entry = hub.repos["org/gguf"].entry(COMMIT, "one-Q5_0.gguf")
    for path in ("../evil", "/etc/passwd", "a/../../b", "a//b", "", ".", "..", "a/", "x\x01y", "a\\b", "x" * 300, "/".join(["d"] * 600), 7, None, "a\x00b"):
        hub.reset()
        hub.lists["org/gguf"] = [{**entry, "path": path}, entry]
        refused(f"a path {str(path)[:20]!r}", kvik("pull", "org/gguf"), "which no file here may be named")
    for change in ({"size": -1}, {"size": 1 << 62}, {"size": "5"}, {"size": 1.5}, {"lfs": {"oid": "../../x", "size": 5}}, {"type": "symlink"},
                   {"lfs": None, "oid": "zz"}, {"size": 5}):
        hub.reset()
        hub.lists["org/gguf"] = [{**entry, **change}]
        refused(f"an entry with {change}", kvik("pull", "org/gguf"), "list of files")
    hub.lists["org/gguf"] = [entry, entry]
    refused("a path twice", kvik("pull", "org/gguf"), "twice")
    hub.lists["org/gguf"] = [{**entry, "size": 1 << 49, "lfs": {**entry["lfs"], "size": 1 << 49}}]
    hub.seen.clear()
    refused("no room on the disk", kvik("pull", "org/gguf"), "the download takes 512", "the disk has", "HF_HUB_CACHE")
    check("is known before the first byte", not hub.asked("resolve"))
    hub.lists["org/gguf"] = [entry, {"type": "directory", "oid": "0" * 40, "size": 0, "path": "sub"}]
    check("directories are no files", kvik("pull", "org/gguf").returncode == 0)
    check("nothing was written outside of the cache", not os.path.exists(os.path.join(cache, "evil"))
          and not os.path.exists(os.path.join(home, "evil")))


def test_pages():
    forget()
    hub.page = 2
    r = kvik("pull", "org/safe")
    check("a list of several pages", r.returncode == 0 and len(hub.asked("tree")) == 5 and "4 files" in r.stderr, (len(hub.asked("tree")), r.stderr))
    r = fetch("", ("tree", ("unquoted",), 9), repo="org/safe")
    check("a list of several pages, rel=next without quotes", r.returncode == 0 and "4 files" in r.stderr, r.stderr)
    hub.page = 1000
    refused("a revision that is not there", kvik("pull", "org/safe@v9"), 'no revision "v9"', "main, refs/pr/1, v1")


def test_tls():
    """A hub with TLS: whose certificates are trusted, and that nothing goes on without TLS."""
    crt, key = os.path.join(work, "hub.crt"), os.path.join(work, "hub.key")
    if not shutil.which("openssl") or subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
             "-keyout", key, "-out", crt], capture_output=True).returncode:
        skip("openssl is not installed, so no hub has TLS")
        return
    plain, tls = hub.cdn_url, {"HF_ENDPOINT": f"https://localhost:{hub.start('hub', (crt, key)).server_port}"}
    forget()
    refused("a certificate that nobody vouches for", kvik("pull", "org/gguf", **tls), "certificate")
    check("nothing was asked of it", not hub.seen)
    tls["REQUESTS_CA_BUNDLE"] = crt
    refused("a redirection from https to http", kvik("pull", "org/gguf", **tls), "from https to http")
    check("was not followed", hub.asked("resolve") and not hub.asked("", "cdn"))
    refused("a list that goes on with http", fetch("", ("tree", ("next", hub.url + "/api/models/org/gguf/tree/main")), **tls), "not https")
    hub.reset()
    hub.cdn_url = f"https://localhost:{hub.start('cdn', (crt, key)).server_port}"
    r = kvik("pull", "org/gguf", HF_TOKEN=TOKEN, **tls)
    check("with https on both the file comes", r.returncode == 0 and read(r.stdout.strip()) == gguf, r.stderr)
    check("and the token stays with the hub: another port is another origin", hub.asked("", "cdn")
          and not any("authorization" in q["headers"] for q in hub.asked("", "cdn")))
    hub.cdn_url = plain


def test_stop():
    sha = hashlib.sha256(gguf).hexdigest()
    forget()
    hub.fault(sha, ("slow", 0.3))
    p = subprocess.Popen([KVIK, "pull", "org/gguf"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    left = os.path.join(folder("org/gguf"), "blobs", sha + ".6b76696b.incomplete")
    until = time.time() + PATIENCE
    while time.time() < until and not (os.path.exists(left) and os.path.getsize(left)):
        time.sleep(0.02)
    other = kvik("rm", "org/gguf")
    check("rm while another process downloads", other.returncode == 1 and "being downloaded" in other.stderr, other.stderr)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=PATIENCE)
    check("Ctrl-C: status 130 and what to do", p.returncode == 130 and "kvik pull org/gguf goes on" in err and not out, (p.returncode, err))
    had = os.path.getsize(left)
    hub.reset()
    r = kvik("pull", "org/gguf")
    check("goes on where it was", r.returncode == 0 and hub.asked(sha, "cdn")[0]["headers"]["range"] == f"bytes={had}-", r.stderr)
    forget()
    hub.fault(sha, ("slow", 0.1))
    two = [subprocess.Popen([KVIK, "pull", "org/gguf"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    out = [q.communicate(timeout=PATIENCE) for q in two]
    check("two at once: one downloads, one waits", [q.returncode for q in two] == [0, 0] and len(hub.asked(sha, "cdn")) == 1
          and sum("waiting" in o[1] for o in out) == 1, out)
    forget()
    hub.fault(sha, ("slow", 0.05))  # another process that knows no locks, as on NFS without them, ends first
    p = subprocess.Popen([KVIK, "pull", "org/gguf"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    while time.time() < until and not (os.path.exists(left) and os.path.getsize(left)):
        time.sleep(0.02)
    os.remove(left)
    with open(os.path.join(os.path.dirname(left), sha), "wb") as f:
        f.write(gguf)
    out, err = p.communicate(timeout=PATIENCE)
    check("another process has renamed the file: it is there, and no error", p.returncode == 0 and read(out.strip()) == gguf, (p.returncode, err))
    forget()
    hub.fault(sha, ("slow", 0.3))
    p = subprocess.Popen([KVIK, "pull", "org/gguf"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    while time.time() < until and not (os.path.exists(left) and os.path.getsize(left)):
        time.sleep(0.02)
    p.kill()
    p.wait()
    check("killed: no name leads to a part of a file", not names(os.path.join(folder("org/gguf"), "snapshots")))
    hub.reset()
    r = kvik("pull", "org/gguf")
    check("killed: the next call ends it", r.returncode == 0 and read(r.stdout.strip()) == gguf, r.stderr)

    def small():
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))
    forget()
    refused("a limit on the size of files", kvik("pull", "org/gguf", limits=small), "cannot be written", "the same command goes on")
    r = kvik("pull", "org/gguf")
    check("without it the rest comes", r.returncode == 0 and read(r.stdout.strip()) == gguf, r.stderr)


def wrong_names():
    """Returns the names in the cache that lead to no whole file."""
    bad = []
    for d, _, files in os.walk(cache):
        for path in (os.path.join(d, f) for f in files):
            name = os.path.basename(path)
            if "/refs" in d and not os.path.isdir(os.path.join(d.split("/refs")[0], "snapshots", read(path).decode())):
                bad.append(path)
            elif os.path.islink(path) and not os.path.exists(path):
                bad.append(path)
            elif d.endswith("/blobs") and "incomplete" not in name and name not in (hashlib.sha256(read(path)).hexdigest(), git_sha(read(path))):
                bad.append(path)
    return bad


def test_storm():
    """Downloads and removals at once, some of which are killed."""
    forget()
    draw = random.Random(7)
    words = [("pull", "org/safe"), ("pull", "org/safe@v1"), ("pull", "org/quants:Q8_0"), ("pull", "org/quants:Q2_K"), ("rm", "org/safe"),
             ("rm", "org/safe@v1"), ("rm", "org/quants:Q8_0"), ("rm", "org/quants"), ("models", "--names")]
    for _ in range(25 if os.environ.get("KVIK_TEST_LONG") == "1" else 4):
        hub.fault("[0-9a-f]{64}", ("slow", 0.005), 99)
        running = [subprocess.Popen([KVIK, *draw.choice(words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env) for _ in range(6)]
        for p in running:
            if draw.random() < 0.4:
                time.sleep(0.3 * draw.random())
                p.send_signal(draw.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
        for p in running:
            p.wait(PATIENCE)
        bad = wrong_names()
        check("pull and rm at once, some killed: every name leads to a whole file", not bad, bad)
        hub.reset()
    check("and then all of it comes", all(kvik(*w).returncode == 0 for w in words[:4]) and not wrong_names())


def test_readonly():
    forget()
    kvik("pull", "org/gguf")

    def other():
        if os.geteuid() == 0:
            os.setuid(65534)
    for path in (work, home):
        os.chmod(path, 0o755)
    os.chmod(folder("org/gguf"), 0o555)
    try:
        r = kvik("pull", "org/gguf", limits=other)
    except (OSError, subprocess.SubprocessError) as e:
        skip(f"a cache that cannot be written: {e}")
    else:
        check("a cache that cannot be written, with all in it", r.returncode == 0 and r.stdout.endswith("/one-Q5_0.gguf\n"), r.stderr)
        if os.geteuid() == 0:
            refused("a cache that cannot be written", kvik("pull", "org/quants", limits=other), "Permission denied")
            lock = os.path.join(cache, ".locks/models--org--gguf", hashlib.sha256(gguf).hexdigest() + ".lock")
            for path in [cache, *(os.path.join(d, n) for d, dirs, files in os.walk(cache) for n in dirs + files)]:
                os.chown(path, 65534 if path != lock else -1, -1, follow_symlinks=False)
            os.chmod(lock, 0o644)
            os.chmod(folder("org/gguf"), 0o755)
            with open(lock) as f:
                fcntl.flock(f, fcntl.LOCK_EX)
                refused("rm while a file comes to another user", kvik("rm", "org/gguf", limits=other), "being downloaded")
    os.chmod(folder("org/gguf"), 0o755)


def typed(words, keys, wait):
    """Runs a command on a terminal, types keys when `wait` is shown, and returns the status and what was shown."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(KVIK, [KVIK, *words], {**env, "TERM": "xterm", "COLUMNS": "200"})
    seen, sent, until = b"", False, time.time() + PATIENCE
    while time.time() < until:
        if not select.select([fd], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
        if not sent and wait in seen:
            os.write(fd, keys)
            sent = True
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode(errors="replace")


def test_links():
    """Links that somebody else has put into the cache."""
    forget()
    mine, outside = os.path.join(work, "mine"), os.path.join(work, "linked")
    os.makedirs(outside)
    with open(mine, "wb") as f:
        f.write(b"mine")
    refs, locks = os.path.join(folder("org/gguf"), "refs"), os.path.join(cache, ".locks/models--org--gguf")
    os.makedirs(refs)
    os.symlink(mine, os.path.join(refs, "main"))
    r = kvik("pull", "org/gguf")
    check("a ref that is a link is replaced, and not written through", r.returncode == 0 and read(mine) == b"mine"
          and read(os.path.join(refs, "main")) == COMMIT.encode(), (r.stderr, read(mine)))
    forget()
    os.makedirs(locks)
    os.symlink(os.path.join(outside, "new"), os.path.join(locks, hashlib.sha256(gguf).hexdigest() + ".lock"))
    refused("a lock that is a link", kvik("pull", "org/gguf"), ".lock")
    check("a lock that is a link makes no file elsewhere", not os.listdir(outside), os.listdir(outside))
    forget()
    for word in ("org/gguf", "org/safe", "org/safe@v1"):
        kvik("pull", word)
    shutil.copy(mine, os.path.join(outside, "x.gguf"))
    os.symlink(outside, os.path.join(folder("org/gguf"), "snapshots", COMMIT, "there"))
    refused("rm :FILE behind a link", kvik("rm", "org/gguf:there/x.gguf"), "cannot be removed")
    check("rm :FILE behind a link removes nothing there", os.listdir(outside) == ["x.gguf"])
    snapshots = os.path.join(folder("org/safe"), "snapshots")
    os.rename(snapshots, os.path.join(outside, "moved"))
    os.symlink(os.path.join(outside, "moved"), snapshots)
    refused("rm @REVISION behind a link", kvik("rm", "org/safe@v1"), "cannot be removed")
    check("rm @REVISION behind a link removes nothing there", sorted(os.listdir(os.path.join(outside, "moved"))) == [COMMIT, OLD])
    forget()
    for part in ("blobs", "refs", "snapshots"):
        kvik("pull", "org/gguf")
        there = os.path.join(outside, part)
        os.rename(os.path.join(folder("org/gguf"), part), there)
        os.symlink(there, os.path.join(folder("org/gguf"), part))
        refused(f"rm where {part} is a link", kvik("rm", "org/gguf"), "cannot be removed")
        check(f"rm where {part} is a link removes nothing there", os.listdir(there))
        forget()
    os.makedirs(os.path.join(folder("org/safe"), "snapshots", COMMIT, "special_tokens_map.json"))
    refused("a link that cannot be made", kvik("pull", "org/safe"), "special_tokens_map.json")
    check("a link that cannot be made: the weights get no name", not os.path.lexists(os.path.join(
        folder("org/safe"), "snapshots", COMMIT, "model.safetensors")))


def test_parts():
    """What is removed in part, or while it comes."""
    forget()
    kvik("pull", "org/quants:IQ4_XS")
    r = kvik("rm", "org/quants:IQ4_XS")
    check("rm of the last file, in a directory: the repository goes", r.returncode == 0 and not os.path.exists(folder("org/quants")), r.stderr)
    for word in ("Q8_0", "Q2_K", "IQ4_XS"):
        kvik("pull", "org/quants:" + word)
    listed = kvik("models", "--names").stdout.split()
    check("rm takes the names that kvik models lists", len(listed) == 3 and all(kvik("rm", n).returncode == 0 for n in listed)
          and not os.path.exists(folder("org/quants")), listed)
    forget()
    sha = hashlib.sha256(tiny["model.safetensors"]).hexdigest()
    hub.fault(sha, ("wait", 503, "2"))
    p = subprocess.Popen([KVIK, "pull", "org/safe"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    until = time.time() + PATIENCE
    while time.time() < until and not hub.asked(sha, "cdn"):
        time.sleep(0.02)
    os.unlink(os.path.join(folder("org/safe"), "blobs", git_sha(tiny["config.json"])))
    out, err = p.communicate(timeout=PATIENCE)
    check("a file that goes while others come is missed", p.returncode == 1 and not out and "removed a file" in err, (p.returncode, err))
    check("a file that goes while others come: the same command goes on", kvik("pull", "org/safe").returncode == 0)


def test_names_locked():
    """Names are made and removed under one lock of the repository."""
    forget()
    sha = hashlib.sha256(gguf).hexdigest()
    locks, blob = os.path.join(cache, ".locks/models--org--gguf"), os.path.join(folder("org/gguf"), "blobs", sha)

    def locked(*words):
        os.makedirs(locks, exist_ok=True)
        f = open(os.path.join(locks, "kvik.lock"), "w")
        fcntl.flock(f, fcntl.LOCK_EX)
        return f, subprocess.Popen([KVIK, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    f, p = locked("pull", "org/gguf")
    until = time.time() + PATIENCE
    while time.time() < until and not os.path.exists(blob):
        time.sleep(0.02)
    time.sleep(0.2)
    check("while a removal runs no link is made", p.poll() is None and not names(os.path.join(folder("org/gguf"), "snapshots")))
    os.unlink(blob)
    f.close()
    out, err = p.communicate(timeout=PATIENCE)
    check("and none to what was removed", p.returncode == 1 and "removed a file" in err and not names(os.path.join(folder("org/gguf"), "snapshots"))
          and not names(os.path.join(folder("org/gguf"), "refs")), (p.returncode, err))
    check("the same command goes on", kvik("pull", "org/gguf").returncode == 0 and not wrong_names())
    f, p = locked("rm", "org/gguf")
    time.sleep(0.3)
    check("while links are made nothing is removed", p.poll() is None and os.path.exists(blob))
    f.close()
    out, err = p.communicate(timeout=PATIENCE)
    check("and then it is", p.returncode == 0 and not os.path.exists(folder("org/gguf")) and not os.path.exists(locks), (p.returncode, err))


def test_sums():
    forget()
    entries = [hub.repos["org/shards"].entry(COMMIT, n) for n in ("config.json", "model.safetensors.index.json")]
    hub.lists["org/shards"] = entries + [{"type": "file", "path": f"model-{i}-of-.safetensors", "size": 1 << 50, "oid": "0" * 40} for i in range(1 << 14)]
    hub.page = 1 << 20
    refused("sizes whose sum overflows", kvik("pull", "org/shards", "--dry-run"), "million GB")
    hub.page = 1000
    r = fetch("", ("tree", ("next", "/api/models/org/gguf/tree?cursor=" + "a" * 3000)))
    refused("an address of the next page that is too long", r, "too long")
    for address in ("@127.0.0.1:1/x", ".evil.example/x"):
        refused(f"the next page at {address}", fetch("", ("tree", ("next", address))), "at no address")
    hub.reset()
    r = kvik("pull", "org/gguf", HF_ENDPOINT=hub.url.replace("http://", "http://me:swordfish@"))
    refused("HF_ENDPOINT with a password", r, "HF_TOKEN")
    check("HF_ENDPOINT with a password does not show it, and asks no server", "swordfish" not in r.stderr and not hub.seen, r.stderr)


def test_offer():
    forget()
    args = ("generate", "org/safe", "--input-ids", "5", "--max-new-tokens", "1")
    refused("a program gets the command", kvik(*args), "kvik pull org/safe", "--pull")
    check("and no server is asked", not hub.seen)
    r = kvik(*args, "--pull")
    check("--pull downloads", r.returncode == 0 and r.stdout and "4 files" in r.stderr, r.stderr)
    hub.reset()
    forget("org/safe")
    kvik("pull", "org/safe:config.json")
    r = kvik(*args, "--pull")
    check("--pull downloads what is missing beside a configuration", r.returncode == 0 and r.stdout, r.stderr)
    hub.reset()
    check("--pull asks no server for a model that is here", kvik(*args, "--pull").returncode == 0 and not hub.seen)
    forget()
    try:
        status, seen = typed(args, b"n\n", b"[Y/n]")
    except OSError:
        skip("this system has no pseudo terminals")
        return
    check("a terminal is asked, n", status == 1 and "Download " in seen and "(4 files)" in seen and "nothing is downloaded" in seen
          and not os.path.exists(folder("org/safe")), (status, seen))
    big = b"B" * 300000
    hub.repos["org/more"] = Repo({"config.json": tiny["config.json"], "big.safetensors": big, "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "big.safetensors"}}).encode()}, LFS, COMMIT)
    status, seen = typed(("generate", "org/more", *args[2:]), b"y\nn\n", b"[Y/n]")
    check("an index that makes the download larger: a second question", status == 1 and seen.count("[Y/n]") == 2 and "nothing is downloaded" in seen
          and not hub.asked(hashlib.sha256(big).hexdigest()), (status, seen))
    hub.fault("[0-9a-f]{64}", ("slow", 0.02))
    status, seen = typed(args, b"\n", b"[Y/n]")
    check("a terminal is asked, Enter", status == 0 and os.path.exists(folder("org/safe")), (status, seen))
    check("with progress: rate and time left", "/s, 0:" in seen and " left" in seen, seen)


for test in (test_names, test_layout, test_shards, test_gguf, test_split, test_remove, test_shared, test_tokens, test_places, test_faults, test_lies, test_pages, test_tls,
             test_stop, test_storm, test_readonly, test_links, test_parts, test_names_locked, test_sums, test_offer):
    test()
finish()
