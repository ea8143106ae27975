"""Recordings: what the server writes is what kvik transcribe writes, in every format, whole and as a stream; wrong forms are named;
other paths answer meanwhile; a client that leaves ends its recording."""
import io
import json
import os
import select
import socket
import subprocess
import wave

from harness import KVIK, PATIENCE, ROOT, Server, at_once, check, finish, skip, tiny, until

MODEL = os.path.join(ROOT, "tests/fixtures/speech/tiny")
TONE = os.path.join(ROOT, "tests/fixtures/audio/tone.wav")
said = subprocess.run([KVIK, "transcribe", MODEL, TONE, "--json"], capture_output=True, text=True)
if "libsndfile" in said.stderr:
    skip("this build reads no recordings")
    finish()
want = json.loads(said.stdout)
text = " ".join(s["text"].strip() for s in want["segments"] if not s["no_speech"] and s["text"].strip())
with open(TONE, "rb") as f:
    tone = f.read()


def form(fields, data=tone, name="tone.wav"):
    """A multipart/form-data body of fields, which can be a list of pairs, and the recording."""
    out = b""
    for key, value in (fields.items() if isinstance(fields, dict) else fields):
        out += b'--b0\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (key.encode(), str(value).encode())
    if data is not None:
        out += b'--b0\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\nContent-Type: audio/wav\r\n\r\n' % name.encode() + data + b"\r\n"
    return out + b"--b0--\r\n"


TYPE = {"Content-Type": "multipart/form-data; boundary=b0"}
PATH = "/v1/audio/transcriptions"
s = Server(MODEL, "--max-waiting", "2")


def hear(fields, path=PATH, **more):
    return s.post(path, form(fields, **more), TYPE)


code, o = hear({"model": "whisper-1"})
check("json", code == 200 and o["text"] == text and o["usage"] == {"type": "duration", "seconds": 1}, (code, o, text))
code, o = hear({"model": "whisper-1", "response_format": "text"})
check("text", code == 200 and o.decode() == text + "\n", (code, o))
for kind in ["srt", "vtt"]:
    cli = subprocess.run([KVIK, "transcribe", MODEL, TONE, "--format", kind], capture_output=True, text=True).stdout
    code, o = hear({"response_format": kind})
    check(kind, code == 200 and o.decode() == cli, (code, o, cli))
code, o = hear([("response_format", "verbose_json"), ("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment")])
check("verbose_json", code == 200 and o["text"] == text and o["task"] == "transcribe" and abs(o["duration"] - want["seconds"]) < 0.01 and
      [x["tokens"] for x in o["segments"]] == [x["tokens"] for x in want["segments"]] and isinstance(o["words"], list), (code, o, want))
code, o = hear({"response_format": "verbose_json"})
check("verbose_json has segments alone unless words are asked for", code == 200 and "segments" in o and "words" not in o, o)
code, o = hear({"model": "x"}, path="/v1/audio/translations")
check("translations", code == 200 and isinstance(o["text"], str), (code, o))
c = s.connect()
c.request("POST", PATH, form({"stream": "true"}), TYPE)
events = [json.loads(line[6:]) for line in c.getresponse().read().decode().splitlines() if line.startswith("data: ")]
check("stream", [e["type"] for e in events] == ["transcript.text.delta"] * (len(events) - 1) + ["transcript.text.done"] and
      "".join(e["delta"] for e in events[:-1]) == events[-1]["text"] == text, events)

for fields, part in [({"response_format": "xml"}, 'field "response_format" must be'), ({"temperature": "hot"}, 'field "temperature"'),
                     ({"temperature": "2"}, 'field "temperature"'), ({"stream": "maybe"}, 'field "stream"'), ({"language": "klingon"}, "klingon"),
                     ({"stream": "true", "response_format": "srt"}, 'field "stream"'), ({"timestamp_granularities[]": "word"}, "verbose_json"),
                     ({"response_format": "verbose_json", "timestamp_granularities[]": "day"}, "must be word or segment")]:
    code, o = hear(fields)
    check(f"refused: {fields}", code == 400 and part in o["error"]["message"], (code, o))
code, o = hear({"model": "x"}, data=None)
check("no file", code == 400 and 'field "file" is missing' in o["error"]["message"], o)
code, o = hear({}, data=b"no recording", name="a.mp3")
check("no recording: the error has its name", code == 400 and o["error"]["message"].startswith("a.mp3"), o)
for body, kind, part in [(form({})[:-8], TYPE, "ends before"), (b"", TYPE, "boundary"), (form({}), {"Content-Type": "application/json"}, "multipart/form-data"),
                         (form({}), {}, "multipart/form-data"), (b"hello\r\n" + form({}), TYPE, "begin")]:
    code, o = s.post(PATH, body, kind)
    check(f"a wrong form: {part}", code == 400 and part in o["error"]["message"], (code, o))
code, o = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})
check("a chat is refused and told where to go", code == 400 and "/v1/audio/transcriptions" in o["error"]["message"], o)
check("the model is listed", s.get("/v1/models")[1]["data"][0]["id"] == "tiny")

# --- A long recording: other paths answer meanwhile, too many wait, and who leaves ends it.
with wave.open(TONE) as f:
    frames, params = f.readframes(f.getnframes()), f.getparams()


def tones(n):
    """The form of a recording of n tones."""
    out = io.BytesIO()
    with wave.open(out, "wb") as f:
        f.setparams(params)
        f.writeframes(frames * n)
    return form({}, data=out.getvalue())


used = s.cpu_seconds()
check("a long recording", s.post(PATH, tones(150), TYPE)[0] == 200)
whole = s.cpu_seconds() - used  # as the clock of the machine says nothing beside other work
used = s.cpu_seconds()
with socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE) as c:
    long = tones(600)
    c.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b0\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), len(long)) + long)
    until(lambda: s.cpu_seconds() > used + whole / 10)
    code = s.get("/health")[0]
    check("health is answered meanwhile", code == 200 and not select.select([c], [], [], 0)[0], code)
code = hear({})[0]
used = s.cpu_seconds() - used
check("the next recording need not wait for one whose client has left", code == 200 and used < 2 * whole, (code, used, whole))
codes = [code for code, o in at_once([lambda: hear({})] * 12)]
check("too many are refused, the others answered", set(codes) <= {200, 503} and 200 in codes, codes)
check("ends", s.stop() == 0, s.said)

s = Server(tiny("llama-mha"))
code, o = hear({"model": "x"})
check("a model that does not hear says so", code == 400 and "hears nothing" in o["error"]["message"], o)
check("ends", s.stop() == 0, s.said)
finish()
