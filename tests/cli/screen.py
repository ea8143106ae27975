"""screen.py LIMIT COLUMNS STEPS OUT SCREEN COMMAND... - runs a command under a pseudo terminal of 24 rows. STEPS is a Python
list of (text to wait for, what to do then); a text behind "\\0" may stand anywhere, also before the last one. To do: keys to send, a signal to send as a number, ("resize",
columns), ("sh", commands) to run, or ("cooked",): the terminal echoes and edits lines, and the command continues. Writes the raw output to OUT and to
SCREEN what a terminal would show, with what has scrolled away, and then a line "mode: " with the flags of the terminal and
the status of the command. Exits with that status; 98: a step was never reached, 97: too slow."""
import errno, fcntl, os, pty, re, select, signal, struct, sys, termios, time, unicodedata


class Screen:
    """As much of a terminal as line editors use."""

    def __init__(self, columns):
        self.width, self.lines, self.row, self.col, self.rest = columns, [[]], 0, 0, ""

    def line(self):
        while len(self.lines) <= self.row:
            self.lines.append([])
        return self.lines[self.row]

    def put(self, c):
        wide = 0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        if self.col + wide > self.width:
            self.row, self.col = self.row + 1, 0
        line = self.line()
        line += [" "] * (self.col + wide - len(line))
        if wide:
            line[self.col] = c
        else:
            line[self.col - 1] += c
        if wide == 2:
            line[self.col + 1] = ""
        self.col += wide

    def code(self, n, what):
        line, n1 = self.line(), int(n) if n.isdigit() else 1
        at = min(self.col, self.width - 1)
        if what == "A": self.row = max(0, self.row - n1)
        elif what == "B": self.row += n1
        elif what == "C": self.col = at + n1
        elif what == "D": self.col = max(0, at - n1)
        elif what == "G": self.col = n1 - 1
        elif what == "K": del line[at:]
        elif what == "J": del line[at:]; del self.lines[self.row + 1:]
        elif what == "P": del line[at:at + n1]
        elif what == "@": line[at:at] = [" "] * n1
        elif what == "X": line[at:at + n1] = [" "] * n1

    def feed(self, text):
        text, self.rest = self.rest + text, ""
        while text:
            m = re.match(r"\x1b\[([?0-9;]*)([A-Za-z@])", text)
            if m:
                self.code(m[1], m[2])
                text = text[m.end():]
                continue
            c, text = text[0], text[1:]
            if c == "\x1b":
                self.rest = c + text
                return
            if c == "\n": self.row += 1
            elif c == "\r": self.col = 0
            elif c == "\b": self.col = max(0, min(self.col, self.width - 1) - 1)
            elif c == "\t": self.col = min(self.width - 1, (self.col // 8 + 1) * 8)
            elif c >= " ": self.put(c)


limit, columns, steps, out, shown = float(sys.argv[1]), int(sys.argv[2]), eval(sys.argv[3]), sys.argv[4], sys.argv[5]
sized, has_size = os.pipe()
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.read(sized, 1)  # the command begins when the window has its size
    os.execvp(sys.argv[6], sys.argv[6:])


def resize(columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


resize(columns)
os.write(has_size, b"x")
screen, seen, start, asked, decoder = Screen(columns), "", 0, time.time(), __import__("codecs").getincrementaldecoder("utf-8")("replace")
status = None
while time.time() - asked < limit:
    if select.select([fd], [], [], 0.05)[0]:
        try:
            data = os.read(fd, 65536)
        except OSError as e:
            if e.errno != errno.EIO: raise
            data = b""
        if not data: break
        text = decoder.decode(data)
        seen += text
        screen.feed(text)
    while steps and steps[0][0].lstrip("\0") in seen[0 if steps[0][0][:1] == "\0" else start:]:
        text = steps[0][0].lstrip("\0")
        start = max(start, seen.index(text, 0 if text != steps[0][0] else start) + len(text))
        what, steps = steps[0][1], steps[1:]
        time.sleep(0.05)
        if what == ("cooked",):  # as a shell sets the terminal when its job stops
            mode = termios.tcgetattr(fd)
            mode[3] |= termios.ECHO | termios.ICANON
            termios.tcsetattr(fd, termios.TCSANOW, mode)
            os.kill(pid, signal.SIGCONT)
        elif isinstance(what, tuple) and what[0] == "sh":
            os.system(what[1])
        elif isinstance(what, tuple):
            screen.width = what[1]
            resize(what[1])
        elif isinstance(what, int):
            os.kill(pid, what)
        else:
            os.write(fd, what.encode())
        break
else:
    os.kill(pid, signal.SIGKILL)
    status = 97
_, code = os.waitpid(pid, 0)
status = status or os.waitstatus_to_exitcode(code) % 256
try:
    flags = termios.tcgetattr(fd)[3]
except termios.error:
    flags = None
open(out, "w").write(seen)
names = ("lost" if flags is None else " ".join(n for n in ("ECHO", "ICANON", "ISIG") if flags & getattr(termios, n)))
open(shown, "w").write("".join("".join(l).rstrip() + "\n" for l in screen.lines) + "mode: %s; status %d\n" % (names, status))
sys.exit(98 if steps and status != 97 else status)
