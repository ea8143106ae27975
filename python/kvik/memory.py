"""What a cache holds, in bytes, as a dictionary that reads as a report."""
from html import escape
from typing import Any, Dict, List, Tuple


def bytes_text(n: int) -> str:
    """Returns a number of bytes with its unit, as the command writes it: "720.0 KiB"."""
    value, unit, units = float(n), "", ["KiB", "MiB", "GiB", "TiB"]
    if n < 1024:
        return f"{n} B"
    while value >= 1024 and units:
        value, unit = value / 1024, units.pop(0)
    return f"{value:.1f} {unit}"


def counted(n: int, noun: str) -> str:
    """Returns a number with its noun: "1 fork", "2 forks"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}".replace(",", " ")


# Keys of bytes and what they are, in the order of a report; keys of numbers and their nouns.
_KINDS = (("own_bytes", "this cache"), ("bytes", "in use"), ("peak_bytes", "peak"), ("budget", "limit"), ("live", "rows"),
          ("shared", "shared rows"), ("states", "states"), ("staging", "staging"), ("index", "for reuse"), ("reserved", "reserved"),
          ("metadata", "tables"), ("free", "free"), ("spilled", "on disk"), ("tier_read", "read from disk"),
          ("tier_written", "written to disk"))
_COUNTS = (("tokens", "token"), ("forks", "fork"), ("evictions", "eviction"))
_COUNTS_OF = (("rows_copied", "row", "copied"), ("seals", "tile", "quantized"), ("encoded8", "row", "encoded with 8 bits"),
              ("encoded4", "row", "encoded with 4 bits"))
_ALWAYS = ("own_bytes", "bytes", "peak_bytes", "budget", "live", "free")


class Memory(Dict[str, int]):
    """The fields of kvik_usage by name: a dictionary, whose text and whose table in a notebook are for people."""

    def kinds(self) -> List[Tuple[str, str]]:
        """Returns (what, bytes with their unit) for each kind; kinds of which there is nothing are left out."""
        return [(what, bytes_text(self[key])) for key, what in _KINDS if self.get(key) or (key in self and key in _ALWAYS)]

    def counts(self) -> List[str]:
        """Returns "440 tokens", "1 fork" and the like, without zeros."""
        out = [counted(self[key], noun) for key, noun in _COUNTS if self.get(key)]
        return out + [f"{counted(self[key], noun)} {done}" for key, noun, done in _COUNTS_OF if self.get(key)]

    def __repr__(self) -> str:
        if not self:
            return "nothing is cached"
        kinds = self.kinds()
        width = max(len(what) for what, _ in kinds)
        lines = [f"{what:<{width}}  {value:>10}" for what, value in kinds]
        return "\n".join(lines + [", ".join(self.counts())] if self.counts() else lines)

    __str__ = __repr__

    def __reduce__(self) -> Any:
        return Memory, (dict(self),)

    def _repr_html_(self) -> str:
        if not self:
            return "<p>nothing is cached</p>"
        cell = "<td style=\"text-align:left\">"
        rows = "".join(f"<tr>{cell}{escape(what)}</td>{cell}{escape(value)}</td></tr>" for what, value in self.kinds())
        counts = escape(", ".join(self.counts()))
        return f"<table>{rows}</table>" + (f"<p>{counts}</p>" if counts else "")
