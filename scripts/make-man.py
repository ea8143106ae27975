#!/usr/bin/env python3
"""make-man.py HEADER... DIRECTORY - writes the manual pages of the library (section 3) from the public headers.

A section of a header becomes a page: kvik_models(3) has the functions and types of "---- Models ----".  Each function
and type gets a page of its own that points there (".so"), and kvik(3) has the opening comments of the headers and the list of
pages.  The date of the pages is that of man/kvik.1, so that the same headers give the same bytes."""
import pathlib
import re
import sys
import textwrap

SECTION = re.compile(r"^/\* -{4} (.*?) -{2,}(.*?)\*/$", re.S | re.M)
COMMENT = re.compile(r"/\*(.*?)\*/", re.S)


def plain(comment):
    """The text of a comment, without the stars at the beginning of its lines."""
    lines = [re.sub(r"^\s*\* ?", "", line) for line in comment.strip("\n").split("\n")]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def escape(text):
    """Text as roff: a backslash is \\e, a hyphen is a minus, and no line begins with a control character."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def sentences(text):
    """Each sentence begins on a line of its own, so that roff spaces it."""
    wrap = textwrap.TextWrapper(width=78, break_long_words=False, break_on_hyphens=False)
    return [escape(line) for s in re.split(r"(?<=[.?!:])  ?(?=[A-Z])", text) for line in wrap.wrap(s)]


def prose(text):
    """Paragraphs, lists of lines that begin with a dash, and indented lines as they are."""
    out, state, running = [], "text", []
    opened = {"literal": [".Bd -literal -offset indent"], "list": [".Bl -bullet"], "text": []}
    closed = {"literal": [".Ed"], "list": [".El"], "text": []}

    def flush():
        out.extend(sentences(" ".join(running)))
        running.clear()

    for line in text.split("\n") + [""]:
        if not line:
            flush()
            if state == "text" and out and out[-1] != ".Pp":
                out.append(".Pp")
            continue
        if line.startswith("    ") or (line.startswith("  ") and state != "list"):
            now = "literal"
        elif line.startswith("- ") or (state == "list" and line.startswith("  ")):
            now = "list"
        else:
            now = "text"
        if now != state:
            flush()
            if out and out[-1] == ".Pp":
                out.pop()
            out.extend(closed[state] + opened[now])
            if now == "text":
                out.append(".Pp")
            state = now
        if now == "literal":
            out.append(escape(line[4:] if line.startswith("    ") else line[2:]))
            continue
        if line.startswith("- "):
            flush()
            out.append(".It")
            line = line[2:]
        running.append(line.strip())
    out.extend(closed[state])
    while out and out[-1] == ".Pp":
        out.pop()
    return "\n".join(out)


class Item:
    """A declaration of the header with the comment above it."""

    def __init__(self, code, comment):
        self.code, self.comment = code, comment
        self.function = re.match(r"KVIK_API (.*?)(kvik_\w+)\((.*)\);$", code, re.S)
        found = re.findall(r"^#define (\w+)|\(\*(kvik_\w+)\)|^typedef .*?(kvik_\w+);\Z|^(?:enum|struct) (kvik_\w+)", code,
                           re.S | re.M)
        names = [name for group in found for name in group if name and name != "KVIK_API"]
        self.name = self.function[2] if self.function else names[0] if names else None

    def macro(self):
        """True for a macro that a program calls as a function."""
        return self.code.startswith("#define kvik_")

    def synopsis(self):
        kind, name, parameters = (" ".join(part.split()) for part in self.function.groups())
        lines = [".Ft " + quoted(kind), ".Fo " + name]
        lines += [".Fa " + quoted(p.strip()) for p in split_parameters(parameters)]
        return "\n".join(lines + [".Fc"])

    def description(self):
        if self.function:
            return ".It Fn " + self.name
        return ".It Vt " + self.name

    def forward(self):
        """True for a declaration of a struct without its fields."""
        return re.match(r"typedef struct (\w+) \1;$", self.code) is not None

    def members(self):
        """The fields of a struct or the constants of an enum, as (comment, code)."""
        body = re.match(r"(?:typedef )?(struct|enum) \w+ \{(.*?)\n?\}", self.code, re.S)
        if not body:
            return []
        end = ";" if body[1] == "struct" else ","
        member = re.compile(rf"\s*(?:/\*(.*?)\*/)?\s*([^{end}]+){end}?\s*", re.S)
        return [(plain(comment).strip(), " ".join(code.split())) for comment, code in member.findall(body[2].rstrip())]

    def listing(self):
        """A list of members, each with the comment above it in the header."""
        out = [".Bl -tag -width Ds"]
        for comment, code in self.members():
            out.append(".It Vt " + quoted(code))
            if comment:
                out.append(prose(comment))
        return "\n".join(out + [".El"])

    def literal(self):
        if self.function:
            return ""
        if self.members():
            return self.listing()
        return "A handle." if self.forward() else ".Bd -literal\n" + escape(self.code) + "\n.Ed"


def quoted(text):
    return '"' + text.replace("\\", "\\e") + '"'


def split_parameters(text):
    return [p for p in re.split(r",(?![^(]*\))", text) if p.strip()]


def items(text):
    """The declarations of a section, each with its comment; declarations without a comment belong to the last one."""
    out, comment, at = [], "", 0
    while at < len(text):
        rest = text[at:]
        blank = re.match(r"\s+|extern \"C\" \{|#if.*|#endif.*|#pragma.*|#include.*|\}(?=\s*#endif)", rest)
        said = COMMENT.match(rest)
        if blank:
            at += blank.end()
            if blank[0].count("\n") > 1:
                comment = ""
        elif said:
            comment = plain(said[1])
            at += said.end()
        elif rest.startswith("#define"):
            line = re.match(r".*(\\\n.*)*", rest)[0]
            if "KVIK_API" not in line:
                out.append(Item(line.strip(), comment))
            comment = ""
            at += len(line)
        else:
            end = declaration(rest)
            out.append(Item(rest[:end].strip(), comment))
            comment = ""
            at += end
    return out


def declaration(text):
    """The length of the declaration that text begins with."""
    depth, at = 0, 0
    while True:
        said = COMMENT.match(text, at)
        if said:
            at = said.end()
            continue
        if at >= len(text):
            sys.exit("make-man.py: a declaration does not end: " + text[:80])
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
        if text[at - 1] == ";" and depth == 0:
            return at


def calls(parts):
    """The names of what a program calls in a section; without any, the names of its types."""
    names = [item.name for item in parts if item.name and (item.function or item.macro())]
    return names or [item.name for item in parts if item.name and item.name.startswith("kvik_")]


WRITTEN = ".\\\" Written from the public headers by scripts/make\\-man.py."


def page(name, title, about, parts, header, date, see):
    known = [item for item in parts if item.name and item.name.startswith("kvik_")]
    heads = calls(parts)
    out = [WRITTEN, f".Dd {date}", f".Dt {name.upper()} 3", ".Os",
           ".Sh NAME", " ,\n".join(f".Nm {head}" for head in heads), f".Nd {escape(title)}", ".Sh SYNOPSIS", f".In {header}"]
    out += [item.synopsis() for item in known if item.function]
    out += [".Sh DESCRIPTION"]
    if about:
        out.append(prose(about))
    out.append(".Bl -tag -width Ds")
    said = ""
    for i, item in enumerate(known):
        out.append(item.description())
        # A comment is for all functions below it, so it stands behind the last of them.
        said = said if item.function and not item.comment else item.comment
        shared = i + 1 < len(known) and item.function and known[i + 1].function and not known[i + 1].comment
        out += [part for part in ("" if shared or not said else prose(said), item.literal()) if part]
    out += [".El"]
    if any(item.function for item in known):
        out += [".Sh RETURN VALUES", "A function that returns a number and can fail returns a negative code of",
                ".Vt enum kvik_error .", ".Fn kvik_last_error", "then has a sentence with the cause and what to do."]
    out += [".Sh SEE ALSO"]
    out.append(" ,\n".join(f".Xr {other} {number}" for other, number in see if other != name))
    return "\n".join(out) + "\n"


class Header:
    """A header: its opening comment and its sections, each a tuple (name of the page, title, comment, declarations)."""

    def __init__(self, path, whole):
        """whole: the text of all headers."""
        self.name, text = path.name, path.read_text(encoding="utf-8")
        self.title, _, self.story = plain(COMMENT.match(text)[1]).partition("\n")
        places, self.sections = list(SECTION.finditer(text)), []
        for i, place in enumerate(places):
            end = places[i + 1].start() if i + 1 < len(places) else len(text)
            word, _, title = place[1].partition(": ")
            # A struct belongs to the section that has its fields.
            parts = [item for item in items(text[place.end():end]) if not (item.forward() and f"struct {item.name} {{" in whole)]
            self.sections.append(("kvik_" + word.lower().replace(" ", "_"), title or word, plain(place[2]), parts))

    def listing(self):
        """The list of the pages."""
        out = [".Bl -tag -width Ds"]
        for name, title, _, parts in self.sections:
            out += [f".It Xr {name} 3", escape(title) + ":", " ,\n".join(f".Fn {n}" for n in calls(parts))]
        return out + [".El"]


def main():
    *paths, to = [pathlib.Path(name) for name in sys.argv[1:]]
    manual = pathlib.Path(__file__).resolve().parent.parent / "man" / "kvik.1"
    date = re.search(r"^\.Dd (.*)$", manual.read_text(encoding="utf-8"), re.M)[1]
    whole = "".join(path.read_text(encoding="utf-8") for path in paths)
    headers = [Header(path, whole) for path in paths]
    names = [name for header in headers for name, *_ in header.sections]
    see = sorted([("kvik", 1), ("kvik", 3)] + [(name, 3) for name in names], key=lambda s: (s[1], s[0]))
    to.mkdir(parents=True, exist_ok=True)
    for old in to.glob("*.3"):
        old.unlink()
    links = {}
    for header in headers:
        for name, title, about, parts in header.sections:
            text = page(name, title[0].lower() + title[1:], about, parts, header.name, date, see)
            (to / (name + ".3")).write_text(text, encoding="utf-8")
            for item in parts:
                if item.name and item.name.startswith("kvik_"):
                    links.setdefault(item.name, name)
    for name, target in links.items():
        if name not in names:
            (to / (name + ".3")).write_text(f".so man3/{target}.3\n", encoding="utf-8")
    first = headers[0]
    lines = [WRITTEN, f".Dd {date}", ".Dt KVIK 3", ".Os", ".Sh NAME", ".Nm kvik",
             ".Nd " + escape(first.title.split(" - ", 1)[1].rstrip(".")), ".Sh SYNOPSIS"]
    lines += [f".In {header.name}" for header in headers]
    lines += [".Pp", ".Dl cc program.c \\-lkvik", ".Sh DESCRIPTION", prose(first.story.strip("\n")), ".Sh SECTIONS", *first.listing()]
    for header in headers[1:]:
        lines += [f".Sh SECTIONS OF {header.name.upper()}", prose(header.story.strip("\n")), *header.listing()]
    lines += [".Sh SEE ALSO", " ,\n".join(f".Xr {other} {number}" for other, number in see if (other, number) != ("kvik", 3))]
    (to / "kvik.3").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
