"""Recordings that come through a pipe while kvik transcribe reads them: transcribe_stream.py CASE KVIK MODEL DIR.

Each case waits for what it needs: text of the first window, the state of the process, the end. Prints "ok", or a trace."""
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time

RATE = 16000
WINDOW = RATE  # samples of a window of the model
AHEAD = 400    # samples behind a window that its last frames reach into


def header(claim=0x80000000):
    """Returns the header that arecord writes to a pipe."""
    return b"RIFF" + struct.pack("<I", claim + 36) + b"WAVEfmt " + struct.pack(
        "<IHHIIHHI", 16, 1, 1, RATE, 2 * RATE, 2, 16, 0x61746164) + struct.pack("<I", claim)


def sound(n):
    """Returns n samples, loud in the first tenth of a second."""
    x, out = 12345, []
    for i in range(n):
        x = (x * 1103515245 + 12345) & 0x7fffffff
        wave = abs(i * (40 + i // 160 % 200) % 4096 - 2048) - 1024
        out.append((wave * 16 if i < RATE // 10 else wave * 4) + (x >> 16) % 256 - 128)
    return struct.pack(f"<{n}h", *out)


class Hearing:
    def __init__(self, source, *options, stdin=None, stdout=subprocess.PIPE):
        self.process = subprocess.Popen([KVIK, "transcribe", MODEL, source, "--seed", "3", *options], stdin=stdin,
                                        stdout=stdout, stderr=subprocess.PIPE, bufsize=0)

    def line(self):
        text = self.process.stdout.readline()
        assert text, self.process.stderr.read()
        return text

    def end(self, status=0):
        out, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == status, (self.process.returncode, err)
        return out, err.decode()

    def catches(self):
        """Returns as soon as the process catches SIGINT."""
        while True:
            with open(f"/proc/{self.process.pid}/status") as f:
                if int(next(line for line in f if line.startswith("SigCgt")).split()[1], 16) & 1 << signal.SIGINT - 1:
                    return
            time.sleep(0.01)


def of_file(data, *options):
    path = os.path.join(DIR, "whole.wav")
    with open(path, "wb") as f:
        f.write(header(len(data)) + data)
    return Hearing(path, *options).end()[0]


def through(source, *options):
    """Starts kvik with a pipe as source; returns it and the end to write to."""
    if source == "-":
        h = Hearing("-", *options, stdin=subprocess.PIPE)
        return h, h.process.stdin
    os.mkfifo(source)
    h = Hearing(source, *options)
    return h, open(source, "wb", buffering=0)


def write(pipe, data):
    data = memoryview(data)
    while data:
        data = data[pipe.write(data):]


def windows(source):
    """The text of a window is there before the next one is written, and the whole is that of the file."""
    data = sound(5 * WINDOW + 777)
    want = of_file(data)
    h, pipe = through(source)
    write(pipe, header() + data[:2 * (WINDOW + AHEAD)])
    first = h.line()
    write(pipe, data[2 * (WINDOW + AHEAD):])
    pipe.close()
    h.process.stdin = None
    out, err = h.end()
    assert first + out == want, (first + out, want)
    assert len(want.splitlines()) > 3 and not err, (want, err)


def formats():
    for form in ("srt", "vtt"):
        data = sound(2 * WINDOW)
        h, pipe = through("-", "--format", form)
        write(pipe, header() + data[:2 * (WINDOW + AHEAD)])
        first = h.line()
        write(pipe, data[2 * (WINDOW + AHEAD):])
        pipe.close()
        h.process.stdin = None
        got, want = first + h.end()[0], of_file(data, "--format", form)
        assert got == want, (got, want)


def ctrl_c():
    """Ctrl-C ends the recording: the sound that has come is transcribed, also that which is still in the pipe."""
    data = sound(WINDOW * 3 // 2)
    h, pipe = through("-")
    write(pipe, header() + data[:2 * (WINDOW + AHEAD)])
    first = h.line()
    h.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, h.process.pid, os.WSTOPPED | os.WNOWAIT)
    write(pipe, data[2 * (WINDOW + AHEAD):])
    h.process.send_signal(signal.SIGINT)
    h.process.send_signal(signal.SIGCONT)
    status = h.process.wait(PATIENCE)  # the writer has not gone
    out, err = h.process.stdout.read(), h.process.stderr.read().decode()
    assert status == 0, (status, err)
    assert first + out == of_file(data), (first, out)
    assert err == "kvik: standard input: the recording ends here; Ctrl-C again ends at once\n", err


def ctrl_c_next():
    """Ctrl-C ends one recording; those behind it are transcribed."""
    data = sound(WINDOW)
    want = of_file(data)
    h = Hearing("-", os.path.join(DIR, "whole.wav"), stdin=subprocess.PIPE)
    write(h.process.stdin, header() + data + data[:2 * AHEAD])
    first = h.line()
    h.process.send_signal(signal.SIGINT)
    assert h.process.wait(PATIENCE) == 0
    got = first + h.process.stdout.read()
    assert got.endswith(want) and len(got) > len(want), (got, want)


def room():
    """A recorder does not wait while a window is computed. Here none ends: nobody reads the text."""
    reads, full = os.pipe()
    fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, 4096)
    os.write(full, bytes(4096))
    data = sound(20 * WINDOW)
    h = Hearing("-", "--num-beams", "1", "--temperature", "0", stdin=subprocess.PIPE, stdout=full)
    os.close(full)
    write(h.process.stdin, header())
    for _ in range(30):  # 19 MB
        write(h.process.stdin, data)
    h.process.stdin.close()
    with open(reads, "rb") as text:
        assert text.read(4096) == bytes(4096)
        assert text.read().count(b"\n") > 600
    assert h.process.wait(PATIENCE) == 0


def raw():
    """Samples without a header are refused while the recorder still writes."""
    h, pipe = through("-")
    write(pipe, sound(WINDOW))
    assert h.process.wait(PATIENCE) == 1
    assert "standard input: not a WAV, FLAC, Ogg or MP3 recording; samples without a header" in h.process.stderr.read().decode()


def ctrl_c_early():
    """Before there is sound Ctrl-C ends the command."""
    for begun in (b"", header()[:20], header()):
        h, pipe = through("-")
        write(pipe, begun)
        h.catches()
        h.process.send_signal(signal.SIGINT)
        assert h.process.wait(PATIENCE) == 130, h.process.stderr.read()


def ctrl_c_twice():
    """The second Ctrl-C ends the command at once. It cannot be done before: nobody reads what it writes."""
    reads, full = os.pipe()
    fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, 4096)
    os.write(full, bytes(4096))
    h = Hearing("-", stdin=subprocess.PIPE, stdout=full)
    write(h.process.stdin, header() + sound(WINDOW // 2))
    h.catches()
    h.process.send_signal(signal.SIGINT)
    assert b"ends here" in h.process.stderr.readline()
    h.process.send_signal(signal.SIGINT)
    assert h.process.wait(PATIENCE) == 130
    os.close(reads)


def memory():
    """Memory does not grow with the recording. Freed blocks that a sanitizer holds back are no memory of kvik's."""
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
    data = sound(20 * WINDOW)
    peak = []
    for times in (2, 40):
        h, pipe = through("-", "--format", "vtt", "--temperature", "0", "--logprob-threshold", "0", "--no-speech-threshold", "0")
        write(pipe, header())
        for done in range(times):
            write(pipe, data)
            while True:  # what waits to be computed is memory too
                at = h.line().split(b" --> ")
                if len(at) == 2 and sum(float(x) * y for x, y in zip(at[1].split(b":"), (3600, 60, 1))) > 20 * done + 15:
                    break
        pipe.close()
        h.process.stdout.read()
        peak.append(os.wait4(h.process.pid, 0)[2].ru_maxrss)
    assert peak[1] < peak[0] + 8192, peak  # KiB, of 25 MB of sound


CASES = {"fifo": lambda: windows(os.path.join(DIR, "live")), "stdin": lambda: windows("-"), "formats": formats,
         "ctrl_c": ctrl_c, "ctrl_c_next": ctrl_c_next, "room": room, "raw": raw,
         "ctrl_c_early": ctrl_c_early, "ctrl_c_twice": ctrl_c_twice, "memory": memory}
case, KVIK, MODEL, DIR = sys.argv[1:]
PATIENCE = float(os.environ.get("KVIK_TEST_PATIENCE", 300))
CASES[case]()
print("ok")
