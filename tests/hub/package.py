"""from_pretrained() of the Python package against a hub on this machine (server.py): what it downloads when it is asked, and that it is
asked.  Needs numpy."""
import os
import sys
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
from harness import ROOT, check, finish, skip, work  # noqa: E402
from server import Hub, Repo  # noqa: E402

MODELS = os.path.join(ROOT, "tests/golden/models")
COMMIT, OLD = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"


def read(*path):
    with open(os.path.join(MODELS, *path), "rb") as f:
        return f.read()


tiny = {n: read("llama-mha", n) for n in os.listdir(os.path.join(MODELS, "llama-mha"))}
older = {**tiny, "generation_config.json": b'{"eos_token_id": 1}'}
gguf = {f"model-{q}.gguf": read("granite.gguf") + q.encode() for q in ("Q8_0", "Q4_K_M")}
LFS = (".safetensors", ".gguf")
hub = Hub({"org/safe": Repo(tiny, LFS, COMMIT, branches={"main": COMMIT}, tags={"v1": OLD}, commits={COMMIT: tiny, OLD: older}),
           "org/quants": Repo(gguf, LFS, COMMIT), "org/private": Repo(tiny, LFS, COMMIT, token="hf_mine")})
for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
             "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
    os.environ.pop(name, None)
os.environ.update(HOME=os.path.join(work, "home"), HF_ENDPOINT=hub.url, HF_HUB_DOWNLOAD_TIMEOUT="300", no_proxy="*")
os.makedirs(os.environ["HOME"])
sys.path.insert(0, os.path.join(ROOT, "python"))
import kvik  # noqa: E402

Model = kvik.AutoModelForCausalLM


def raised(kind, *words, **arguments):
    """Checks that a call raises an error with these words."""
    try:
        made = arguments.pop("open", Model).from_pretrained(**arguments)
    except kind as e:
        return check(f"{arguments}: the sentence", all(w in str(e) for w in words), e)
    return check(f"{arguments} is an error", False, made)


def asked():
    """Returns how often the hub was asked, and forgets it."""
    n = len(hub.seen)
    hub.reset()
    return n


def test_not_asked():
    for more in ({}, {"local_files_only": True}, {"local_files_only": True, "force_download": True}, {"revision": "v1"}):
        raised(OSError, "local_files_only=False", pretrained_model_name_or_path="org/safe", **more)
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        os.environ[variable] = "1"
        raised(OSError, "no model", pretrained_model_name_or_path="org/safe", local_files_only=False)
        del os.environ[variable]
    check("no server was asked", asked() == 0)


def test_downloads():
    m = Model.from_pretrained("org/safe", local_files_only=False, threads=1)
    check("it comes, into the hub's cache", m.name_or_path.startswith(os.path.join(os.environ["HOME"], ".cache/huggingface/hub")), m.name_or_path)
    check("and generates", m.generate([[1, 2, 3]], max_new_tokens=2).shape == (1, 5))
    check("the hub was asked", asked() > 0)
    check("it is here now", Model.from_pretrained("org/safe", threads=1).name_or_path == m.name_or_path and asked() == 0)
    m = Model.from_pretrained("org/safe", revision="v1", local_files_only=False, threads=1)
    check("a revision", m.generation_config.eos_token_id == 1 and OLD in m.name_or_path, m.name_or_path)
    there = os.path.join(work, "there")
    c = kvik.AutoConfig.from_pretrained("org/safe", cache_dir=there, local_files_only=False)
    check("cache_dir", c.model_type == "llama" and os.path.isdir(os.path.join(there, "models--org--safe")), c)
    check("cache_dir is searched", Model.from_pretrained("org/safe", cache_dir=there, threads=1).name_or_path.startswith(there))
    g = kvik.GenerationConfig.from_pretrained("org/safe", cache_dir=there, max_new_tokens=3)
    check("GenerationConfig takes the same", g.max_new_tokens == 3 and not hasattr(g, "cache_dir"), g)
    m = Model.from_pretrained("org/quants", gguf_file="model-Q8_0.gguf", local_files_only=False, threads=1)
    check("one .gguf file of several", m.name_or_path.endswith("model-Q8_0.gguf") and hub.asked("resolve") and not hub.asked("Q4_K_M.*resolve|resolve.*Q4_K_M"))
    m = kvik.pipeline("text-generation", "org/quants", tokenizer=object(), local_files_only=False).model
    check("a pipeline, and the usual quantization", m.name_or_path.endswith("Q4_K_M.gguf"), m.name_or_path)
    os.environ["HF_HUB_OFFLINE"] = "0"
    asked()
    Model.from_pretrained("org/safe", threads=1)
    check("HF_HUB_OFFLINE=0 asks", asked() > 0)
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    Model.from_pretrained("org/safe", threads=1)
    check("HF_HUB_OFFLINE=0 asks, also beside TRANSFORMERS_OFFLINE=1", asked() > 0)
    del os.environ["HF_HUB_OFFLINE"], os.environ["TRANSFORMERS_OFFLINE"]
    os.environ["HF_HOME"] = "~/.cache/huggingface"
    check("HF_HOME with ~", Model.from_pretrained("org/safe", threads=1).name_or_path.startswith(os.environ["HOME"]))
    del os.environ["HF_HOME"]
    raised(OSError, "no model 'org--safe'", pretrained_model_name_or_path="org--safe")  # the folder of org/safe would have this name, too


def test_refusals():
    raised(OSError, "org/absent", "has no repository", pretrained_model_name_or_path="org/absent", local_files_only=False)
    raised(OSError, "org/private", pretrained_model_name_or_path="org/private", local_files_only=False)
    raised(OSError, "org/private", pretrained_model_name_or_path="org/private", local_files_only=False, token=False)
    check("a token", Model.from_pretrained("org/private", local_files_only=False, token="hf_mine", threads=1).name_or_path)
    hub.fault(".", 503, 1000)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        m = Model.from_pretrained("org/safe", revision=COMMIT, local_files_only=False, threads=1)
    check("a hub that fails: the model that is here, and a notice", "as it is in the cache" in str(said[0].message) and m, said)
    raised(OSError, "org/safe", pretrained_model_name_or_path="org/safe", force_download=True)
    hub.reset()


try:
    Model.from_pretrained("org/absent", local_files_only=False)
except OSError as error:
    if "without libcurl" in str(error):
        skip("this build downloads nothing (libcurl)")
        finish()
asked()
for test in (test_not_asked, test_downloads, test_refusals):
    test()
finish()
