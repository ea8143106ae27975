"""The page of the server in headless Chromium: send, stream, stop, edit, again, fork, and the map of the cache changes.

Chromium is driven over the pipe of its DevTools protocol, so that nothing else is needed.
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

from harness import PATIENCE, Server, check, finish, skip, tiny, work

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """A Chromium with one page."""

    def __init__(self, width, height, dark=False):
        to_read, self.write = os.pipe()
        self.read, to_write = os.pipe()
        self.rest, self.id = b"", 0

        def wire():
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--window-size={width},{height}",
             f"--user-data-dir={tempfile.mkdtemp(dir=work)}", *(["--force-dark-mode"] if dark else [])],
            preexec_fn=wire, close_fds=False, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def call(self, method, **params):
        self.id += 1
        message = {"id": self.id, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                part = os.read(self.read, 1 << 20)
                if not part:
                    raise RuntimeError("Chromium has ended")
                self.rest += part
            one, self.rest = self.rest.split(b"\0", 1)
            one = json.loads(one)
            if one.get("id") == self.id:
                if "error" in one:
                    raise RuntimeError(f"{method}: {one['error']}")
                return one["result"]

    def run(self, script):
        """Returns the value of an expression of the page."""
        r = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{script}: {r['exceptionDetails']}")
        return r["result"].get("value")

    def until(self, script):
        """Waits until an expression of the page is true; returns whether it became so."""
        end = time.time() + PATIENCE
        while time.time() < end:
            if self.run(script):
                return True
            time.sleep(0.02)
        return False

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def say(self, text):
        self.run(f"document.getElementById('text').value = {json.dumps(text)}; document.getElementById('form').requestSubmit()")

    def shot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        os.close(self.write)
        self.process.wait()


if not CHROMIUM:
    skip("no Chromium, so the page is not driven")
    finish()
model = os.environ.get("KVIK_TEST_MODEL", "none")
real = os.path.exists(model)
s = Server(model if real else tiny("llama-mha"), "--seed", "1", *(["--cache-memory", "64M"] if real else []))
b = Browser(1200, 800)
b.open(f"http://127.0.0.1:{s.port}/")
turns = "[...document.querySelectorAll('.turn')].map(t => [t.classList[1], t.querySelector('p').textContent])"
idle = "!document.getElementById('send').hidden"
press = "[...document.querySelectorAll('.turn')][%d].querySelectorAll('button')[%d].click()"
check("the page shows the model", b.until("document.title !== 'kvik'"), b.run("document.title"))
before = b.run("cells")
b.say("Hello <b>there</b>")
check("an answer comes", b.until(idle + " && document.querySelectorAll('.turn.assistant p')[0].textContent.length > 0"), b.run(turns))
got = b.run(turns)
check("what is written is text, not a page", got[0] == ["user", "Hello <b>there</b>"] and not b.run("document.querySelector('.turn b')"), got)
check("a note says what was reused", b.until("/tokens read/.test(document.querySelector('.assistant .note').textContent)"), got)
check("the map of the cache changes", b.until(f"cells !== {json.dumps(before)} && /[krR]/.test(cells)"), b.run("cells"))
check("the map says what it shows to those who do not see it", "kept for reuse" in b.run("document.getElementById('map').getAttribute('aria-label')"))
b.run(press % (1, 1))
check("fork makes a branch with the same messages", b.until("branches.length === 2 && at === 1") and b.run(turns)[:2] == got[:2], b.run(turns))
b.say("more")
check("the branch goes on", b.until(idle + " && branches[1].length === 4 && branches[0].length === 2"), b.run("branches"))
b.run(press % (3, 0))
check("again asks for another answer", b.until(idle + " && branches[1].length === 4"), b.run("branches"))
b.run(press % (0, 0))
check("edit makes a branch before the message", b.run("branches.length") == 3 and b.run("document.getElementById('text').value") == "Hello <b>there</b>")
if real: # the tiny model ends too soon
    b.say("Write a very long story about a fox, a hen, a mill and a river.")
    check("stop: an answer has begun", b.until("!document.getElementById('stop').hidden && branches[2].at(-1).content.length > 20"))
    b.run("document.getElementById('stop').click()")
    check("stop ends it", b.until(idle + " && branches[2].at(-1).note === 'stopped'"), b.run("branches"))
    while s.metric("vllm:num_requests_running"):
        pass
if os.environ.get("KVIK_TEST_SHOTS"):
    b.shot(os.path.join(os.environ["KVIK_TEST_SHOTS"], "light.png"))
    b.close()
    b = Browser(420, 1200, dark=True)
    b.open(f"http://127.0.0.1:{s.port}/")
    b.until("cells.length > 0")
    b.shot(os.path.join(os.environ["KVIK_TEST_SHOTS"], "dark.png"))
b.close()
keys = os.path.join(work, "keys")
with open(keys, "w") as f:
    f.write("alpha\n")
check("ends", s.stop() == 0, s.said)
s = Server(tiny("llama-mha"), "--api-key-file", keys)
check("the page needs no key, its data do", s.get("/")[0] == 200 and s.get("/kvik/store")[0] == 401)
b = Browser(1200, 800)
b.call("Page.addScriptToEvaluateOnNewDocument", source="""window.asked = window.sent = 0; window.given = null; window.prompt = () => { asked++; return given; };
    const get = window.fetch; window.fetch = (...a) => { sent++; return get(...a); };""")
b.open(f"http://127.0.0.1:{s.port}/")
check("who refuses to give a key is asked once", b.until("sent >= 4") and b.run("asked") == 1, b.run("[asked, sent]"))
b.say("hello")
check("and again by a message, whose note then says what is missing", b.until("!controller && branches[at].length === 2") and b.run("asked") == 2
      and "key" in b.run("branches[at][1].note"), b.run("[asked, branches[at]]"))
b.run("given = 'alpha'")
b.say("hello")
check("with a key there is an answer, and the numbers", b.until("!controller && branches[at].length === 4 && /tokens read/.test(branches[at][3].note)")
      and b.until("cells.length > 0") and b.run("asked") == 3, b.run("[asked, branches[at]]"))
b.run("take({ choices: [{ delta: { reasoning_content: 'so it is' } }] }, branches[at][3]); branches[at][3].content = ''; draw()")
check("reasoning is shown while there is no answer", b.run("[...document.querySelectorAll('details')].map(d => [d.open, d.textContent])") == [[True, "Reasoningso it is"]])
b.run("take({ choices: [{ delta: { content: 'Yes.' } }] }, branches[at][3]); draw()")
check("and folded behind it", b.run("document.querySelector('details').open") is False)
b.close()
check("ends", s.stop() == 0, s.said)
finish()
