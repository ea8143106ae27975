"""The hub's cache as kvik writes it, judged by the hub's own library; and the other way round.  Without that library the
tests are skipped."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "serve")]
from harness import KVIK, PATIENCE, ROOT, check, finish, skip, work  # noqa: E402
from server import Hub, Repo  # noqa: E402

COMMIT, SECOND = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"
models = os.path.join(ROOT, "tests/golden/models")


def read(path):
    with open(path, "rb") as f:
        return f.read()


files = {n: read(os.path.join(models, "llama-mha", n)) for n in ("config.json", "generation_config.json", "model.safetensors")}
gguf = read(os.path.join(models, "granite.gguf"))
hub = Hub({"org/safe": Repo({**files, "README.md": b"# a model\n"}, (".safetensors",), COMMIT, tags={"v1": COMMIT}),
           "org/gguf": Repo({"sub/one-Q4_K_M.gguf": gguf, "one-Q8_0.gguf": gguf + b"8"}, (".gguf",), SECOND)})
cache = os.path.join(work, "hub")
for name in list(os.environ):
    if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_")) or name.lower().endswith("_proxy"):
        del os.environ[name]
os.environ.update(HF_ENDPOINT=hub.url, HF_HUB_CACHE=cache, HOME=work, HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1",
                  HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_UPDATE_CHECK="1", no_proxy="*")
try:
    import huggingface_hub
    from huggingface_hub import HfApi, hf_hub_download, scan_cache_dir, snapshot_download
    from huggingface_hub.utils import HFValidationError, WeakFileLock, validate_repo_id
except ImportError as e:
    skip(f"the hub's own library does not judge kvik's cache: {e} (make test-hub installs it)")
    finish()


def kvik(*words, **more):
    return subprocess.run([KVIK, *words], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL,
                          env={**os.environ, **more})


def scan(folder=cache):
    """Returns the repositories by their names, and the warnings."""
    found = scan_cache_dir(folder)
    return {r.repo_id: r for r in found.repos}, found


if "without libcurl" in kvik("pull", "org/safe").stderr:
    skip("this build downloads nothing (libcurl)")
    finish()
print("huggingface_hub", huggingface_hub.__version__)

# What kvik writes.
kvik("pull", "org/safe@v1")
kvik("pull", "org/gguf")
repos, found = scan()
check("scan_cache_dir has no warnings", not found.warnings and not found.incomplete_files, found)
revision = next(iter(repos["org/safe"].revisions), None)
check("scan_cache_dir: revision, tag and main", revision and revision.commit_hash == COMMIT and set(revision.refs) >= {"v1", "main"}, revision)
check("scan_cache_dir: files and size", {f.file_name for f in revision.files} == set(files)
      and repos["org/safe"].size_on_disk == sum(map(len, files.values())), revision)
check("scan_cache_dir: a file in a directory", [f.blob_path.name for r in repos["org/gguf"].revisions for f in r.files]
      == [hashlib.sha256(gguf).hexdigest()], repos)
hub.reset()
path = snapshot_download("org/safe", local_files_only=True)
check("snapshot_download(local_files_only=True)", os.path.basename(path) == COMMIT and read(os.path.join(path, "model.safetensors"))
      == files["model.safetensors"], path)
check("hf_hub_download(local_files_only=True)", read(hf_hub_download("org/gguf", "sub/one-Q4_K_M.gguf", local_files_only=True)) == gguf)
check("both without asking the hub", not hub.seen, hub.seen)


def verify():
    return HfApi().verify_repo_checksums(repo_id="org/safe", revision=COMMIT)


v = verify()
check("verify_repo_checksums", v.checked_count == 3 and not v.mismatches and not v.extra_paths and v.missing_paths == ["README.md"], v)
blob = os.path.realpath(os.path.join(path, "config.json"))
with open(blob, "r+b") as f:
    f.write(b"X")
check("verify_repo_checksums sees damage", [m["path"] for m in verify().mismatches] == ["config.json"])
os.unlink(blob)
check("kvik pull mends a link to nothing", kvik("pull", "org/safe").returncode == 0 and not verify().mismatches)

# Names: what is none for the hub's own library is none for kvik.
def is_name(word):
    try:
        validate_repo_id(word)
    except HFValidationError:
        return False
    return True


words = ["a", "a/b", "a--b/c", "a/b--c", "a..b", "a.b/c.d", "-a/b", "a/-b", "a-/b", "a/b-", "a/b.", "a/.b", "a_/b", "_a/b", "a/b.git", "a/b.GIT", "a/b_", "a/b-c_d.e",
         "--", "a/..", "a/b" * 40, "a/" + "b" * 96, "a/" + "b" * 97, "a" * 96, "a" * 97, "a/b/c", "/a", "a/", "a b", "a/b-.c", "."]
other = [w for w in words if (kvik("pull", "--", w, HF_HUB_OFFLINE="1").returncode != 2) != is_name(w)]
check("the same words are names", not other, other)

# Stopped and continued.
sha = hashlib.sha256(gguf + b"8").hexdigest()
hub.fault(sha, ("cut", 2000), 99)
kvik("pull", "org/gguf:Q8_0")
left = scan()[1].incomplete_files
check("what is left of a download is known as that", [f.size_on_disk > 0 for f in left] == [True], left)
hub.reset()
check("and continues", kvik("pull", "org/gguf:Q8_0").returncode == 0 and "range" in hub.asked(sha, "cdn")[0]["headers"] and not scan()[1].incomplete_files)

# Locks.
lock = os.path.join(cache, ".locks", "models--org--gguf", sha + ".lock")
os.unlink(os.path.join(cache, "models--org--gguf", "blobs", sha))
with WeakFileLock(lock):
    p = subprocess.Popen([KVIK, "pull", "org/gguf:Q8_0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = p.stderr.readline()
    check("kvik waits for the lock of the hub's own library", "waiting" in said and p.poll() is None, said)
out, err = p.communicate(timeout=PATIENCE)
check("and goes on", p.returncode == 0, err)

# Removal by the other program.
scan()[1].delete_revisions(COMMIT, SECOND).execute()
check("what it removes is gone for kvik", "org/" not in kvik("models", "--names").stdout, kvik("models").stdout)

# Contents that it keeps once for several repositories.
try:
    from huggingface_hub.utils._shared_blobs import publish_blob_to_shared_store, shared_blob_path, try_link_from_shared_store
except ImportError:
    skip("this huggingface_hub shares no contents among repositories")
else:
    for name in ("one", "two"):
        hub.repos["org/" + name] = Repo({"one.gguf": gguf}, (".gguf",), COMMIT)
    sha, xet = hashlib.sha256(gguf).hexdigest(), "ab" * 32
    kvik("pull", "org/one")
    blobs = [os.path.join(cache, "models--org--" + n, "blobs", sha) for n in ("one", "two")]
    os.makedirs(os.path.dirname(blobs[1]))
    told = {"xet_hash": xet, "cache_dir": cache, "expected_size": len(gguf)}
    check("it shares the contents", publish_blob_to_shared_store(blob_path=blobs[0], **told)
          and try_link_from_shared_store(blob_path=blobs[1], **told) and os.path.islink(blobs[0]) and os.path.islink(blobs[1]))
    hub.reset()
    kvik("pull", "org/two")
    check("kvik finds them shared", not hub.asked("", "cdn") and kvik("inspect", "org/two").returncode == 0 and os.path.islink(blobs[1]))
    kvik("rm", "org/one")
    check("kvik rm leaves what another repository needs", kvik("inspect", "org/two").returncode == 0)
    said = kvik("rm", "org/two:one.gguf", "--json").stdout
    check("kvik rm frees what nobody needs", not os.path.exists(shared_blob_path(cache, xet)) and json.loads(said)["bytes"] >= len(gguf), said)

# What the hub's own library writes.
with tempfile.TemporaryDirectory(dir=work) as other:
    snapshot_download("org/safe", cache_dir=other)
    hf_hub_download("org/gguf", "one-Q8_0.gguf", cache_dir=other)
    hub.reset()
    r = kvik("pull", "org/safe", HF_HUB_CACHE=other)
    check("what it downloads kvik does not download again", r.returncode == 0 and not hub.asked("resolve") and "all here" in r.stderr, r.stderr)
    r = kvik("generate", "org/safe", "--input-ids", "5", "--max-new-tokens", "1", HF_HUB_CACHE=other)
    check("and runs", r.returncode == 0, r.stderr)
    check("a file that it downloads", kvik("inspect", "org/gguf:Q8_0", HF_HUB_CACHE=other, HF_HUB_OFFLINE="1").returncode == 0)
    r = kvik("rm", "org/safe", HF_HUB_CACHE=other)
    check("kvik rm removes it", r.returncode == 0 and list(scan(other)[0]) == ["org/gguf"] and not scan(other)[1].warnings, r.stderr)
    kvik("pull", "org/safe", HF_HUB_CACHE=other)
    hub.reset()
    path = snapshot_download("org/safe", cache_dir=other)
    check("it downloads only what kvik has left out", len(hub.asked("resolve", "hub")) <= 2 and "README.md" in os.listdir(path)
          and not hub.asked("", "cdn"), [q["path"] for q in hub.seen])
finish()
