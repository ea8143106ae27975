"""What notebooks show of caches, models and results: HTML that reads on a light and a dark background.

Texts of models and files are escaped, since a token or a path may spell a tag.  Colours are a help: where a page removes styles,
the letters of the map say the same.
"""
from html import escape
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from .errors import KvikError
from .memory import bytes_text, counted

_WIDTH, _LINES = 64, 6  # of a map, as in the chat's /cache
_SEQUENCES = 4  # of a batch whose maps are shown
_ROWS, _LETTERS = 16, 4000  # of a result that are shown
# Letters of a map, the colour behind each, and what a block of it is: as in the chat.
_MARKS = {"r": ("#2e7d32", "own"), "R": ("#00707a", "shared with others"), "o": ("#2e7d32", "being filled"),
          "O": ("#00707a", "being filled, shared"), "e": ("#8a5a00", "quantized"), "E": ("#8a5a00", "quantized, shared"),
          "d": ("#8e24aa", "on disk"), "D": ("#8e24aa", "on disk, shared"), "z": ("#3949ab", "quantized, on disk"),
          "Z": ("#3949ab", "quantized, on disk, shared"), ".": ("", "no longer needed")}


def _table(rows: Iterable[Sequence[Any]], head: Sequence[str] = ()) -> str:
    """Returns a table; cells are escaped."""
    lines = ["".join(f"<td style=\"text-align:left\">{escape(str(cell))}</td>" for cell in row) for row in rows]
    top = "".join(f"<th style=\"text-align:left\">{escape(cell)}</th>" for cell in head)
    return f"<table>{f'<tr>{top}</tr>' if top else ''}{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _folded(summary: str, body: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def _ranges(numbers: Sequence[int]) -> str:
    """Returns layer numbers as ranges: "0-5, 7"."""
    out: List[List[int]] = []
    for n in numbers:
        if out and out[-1][1] == n - 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in out)


# -- caches

def _reach(group: Dict[str, Any]) -> str:
    """Returns which rows the layers of a group keep."""
    if group.get("kind") == "state":
        return "a state"
    if group.get("kind") == "frozen":
        return "rows of the encoder"
    if group.get("sinks"):
        return f"{group['sinks']} sinks and the last {group['window']} rows"
    if group.get("window"):
        return f"the last {group['window']} rows"
    return f"the chunk of {group['chunk']} rows" if group.get("chunk") else "all rows"


def _told(group: Dict[str, Any]) -> str:
    """Returns a sentence about the layers of a group."""
    layers, blocks, tiles = group["layers"], group["blocks"], group["tiles"]
    parts = [f"layer{'s' * (len(layers) != 1)} {_ranges(layers)}: {_reach(group)}",
             f"{counted(blocks['count'], 'block')} of {counted(group['block_rows'], 'row')} in {bytes_text(blocks['bytes'])}"]
    if tiles["count"]:
        parts.append(f"{counted(tiles['count'], (group.get('codec') or 'quantized') + ' tile')} of {group['tile_rows']} in "
                     f"{bytes_text(tiles['bytes'])}")
    for name, what in (("shared_bytes", "shared"), ("spilled_bytes", "on disk")):
        if blocks[name] + tiles[name]:
            parts.append(f"{bytes_text(blocks[name] + tiles[name])} {what}")
    if group.get("snapshots"):
        parts.append(counted(group["snapshots"], "snapshot"))
    return ", ".join(parts)


def _piece(letters: str, title: str) -> str:
    """Returns letters of one kind in their colour."""
    colour = _MARKS.get(letters[0], ("", ""))[0]
    style = f"background:{colour};color:#fff" if colour else "opacity:0.6"
    return f"<span style=\"{style}\" title=\"{escape(title)}\">{escape(letters)}</span>"


def _letters(text: str, first: int, rows: int, each: int) -> str:
    """Returns a line of the map, whose blocks of one kind are one coloured piece with a title."""
    out, i = [], 0
    while i < len(text):
        k = i
        while k < len(text) and text[k] == text[i]:
            k += 1
        begin, end = first + i * each * rows, first + k * each * rows - 1
        out.append(_piece(text[i:k], f"tokens {begin} to {end}: {_MARKS.get(text[i], ('', 'unknown'))[1]}"))
        i = k
    return "".join(out)


def _map(group: Dict[str, Any]) -> str:
    """Returns the map of a group: a letter for each block, or for the first of several."""
    text, rows = str(group.get("map") or ""), int(group["block_rows"])
    if not text:
        return ""
    each = -(-len(text) // (_WIDTH * _LINES))
    shown = text[::each]
    lines = [f"{i * each * rows:>8} {_letters(shown[i:i + _WIDTH], i * each * rows, rows, each)}" for i in range(0, len(shown), _WIDTH)]
    if each > 1:
        lines.append(f"         (the first of every {each} blocks)")
    return "<pre style=\"line-height:1.5\">" + "\n".join(lines) + "</pre>"


def _legend(groups: Iterable[Dict[str, Any]]) -> str:
    seen = {letter for g in groups for letter in str(g.get("map") or "")}
    parts = [f"{_piece(letter, what)} {escape(what)}" for letter, (_, what) in _MARKS.items() if letter in seen]
    return f"<p>{', '.join(parts)}</p>" if parts else ""


def _held(maps: Sequence[Dict[str, Any]]) -> Tuple[int, int]:
    """Returns the bytes of sequences, and those that are shared."""
    parts = [g[form] for m in maps for g in m["groups"] for form in ("blocks", "tiles")]
    return sum(p["bytes"] for p in parts), sum(p["shared_bytes"] for p in parts)


def cache_html(cache: Any) -> str:
    """Returns a cache: its length, its bytes by kind, and where its blocks are."""
    name = f"<b>{escape(type(cache).__name__)}</b>"
    try:
        length, used = int(cache.get_seq_length()), cache.memory()
        maps = cache._maps() if cache._batch is not None else []
    except KvikError as e:  # a call uses the cache, or this process does not own it
        return f"<div>{name}: {escape(str(e))}</div>"
    bytes_, shared = _held(maps)
    rows = f"{counted(len(maps), 'row')} of " if len(maps) > 1 else ""
    text = f"{rows}{counted(length, 'token')}" + (f" in {bytes_text(bytes_)}" if maps else "")
    text += f", {bytes_text(shared)} of it shared" if shared else ""
    if not used:
        return f"<div>{name}: {escape(text)}{'' if length else '; nothing is cached'}</div>"
    kept = cache._settings.cache_implementation or "dynamic"
    body = [f"<p>{name} ({escape(kept)}): {escape(text)}</p>"]
    for i, one in enumerate(maps[:_SEQUENCES]):
        body.append(f"<p>row {i}: {counted(one['tokens'], 'token')}</p>" if len(maps) > 1 else "")
        body += [f"<p>{escape(_told(g))}</p>{_map(g)}" for g in one["groups"]]
    if len(maps) > _SEQUENCES:
        body.append(f"<p>({len(maps) - _SEQUENCES} more rows)</p>")
    body.append(_legend(g for one in maps[:_SEQUENCES] for g in one["groups"]))
    body.append(_folded("memory of the store, which caches of one model and one configuration share", used._repr_html_()))
    return f"<div>{''.join(body)}</div>"


def pair_html(pair: Any) -> str:
    """Returns the two caches of a model with an encoder."""
    rows = pair.cross_attention_cache.get_seq_length()
    return f"<div><p><b>{escape(type(pair).__name__)}</b>: {counted(rows, 'row')} of the encoder, and of the decoder</p>" \
           f"{cache_html(pair.self_attention_cache)}</div>"


# -- models

def model_html(model: Any) -> str:
    """Returns a model: its files, its shape, and what each cache strategy takes."""
    name = f"<b>{escape(type(model).__name__)}</b> {escape(str(model.name_or_path))}"
    try:
        d, c = model.describe(), model.describe_caches()
    except KvikError as e:
        return f"<div>{name}: {escape(str(e))}</div>"
    kinds: Dict[str, int] = {}
    for layer in d.get("layers") or ():
        kinds[layer["kind"]] = kinds.get(layer["kind"], 0) + 1
    heads = f"{d.get('attention_heads')} heads, {d.get('kv_heads')} of keys and values, of {d.get('head_dim')}"
    rows = [("architecture", d.get("architecture")), ("parameters", f"{d.get('parameters', 0):,}".replace(",", " ")),
            ("weights", f"{bytes_text(int(d.get('bytes', 0)))}, {d.get('file_type') or d.get('weights')}"),
            ("layers", ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in kinds.items())),
            ("attention", heads if d.get("attention_heads") else "none"), ("hidden size", d.get("hidden_size")),
            ("vocabulary", counted(int(d.get("vocab", 0)), "token")), ("context", counted(int(d.get("context", 0)), "token"))]
    caches = [(x["cache_implementation"], bytes_text(x["bytes_per_token"]), bytes_text(x["max_bytes"]), x["brief"])
              for x in c.get("caches") or () if x.get("available")]
    return f"<div><p>{name}</p>{_table(rows)}" + _folded("caches of this model", _table(
        caches, ("cache", "per token", "at the full context", ""))) + "</div>"


# -- results

def _form(value: Any) -> str:
    """Returns what an entry of a result is: a shape, a number of them, or a short text."""
    if isinstance(value, (tuple, list)):
        return f"{len(value)} of {_form(value[0])}" if value else "none"
    if hasattr(value, "shape"):
        return f"{list(value.shape)} {getattr(value, 'dtype', '')}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _speed(stats: Dict[str, Any], rows: int) -> str:
    """Returns the tokens and seconds of a generation.  The first new token of a row is the prefill's."""
    decoded = max(stats["new_tokens"] - rows, 0)
    fed = min(stats["prompt_tokens"], max(stats["computed_tokens"] - decoded, 0))  # without cached tokens
    parts = []
    for what, n, seconds in (("prefill", fed, stats["prefill_seconds"]), ("decode", decoded, stats["decode_seconds"])):
        rate = f" ({n / seconds:.1f}/s)" if seconds > 0 else ""
        parts.append(f"{what} {counted(n, 'token')} in {seconds:.2f} s{rate}")
    if stats.get("drafted"):
        parts.append(f"drafts {stats['accepted']} of {counted(stats['drafted'], 'token')} accepted")
    return "; ".join(parts)


def _text(text: str) -> str:
    cut = text if len(text) <= _LETTERS else text[:_LETTERS] + f" ... ({len(text) - _LETTERS} more characters)"
    return f"<div style=\"white-space:pre-wrap;text-align:left\">{escape(cut)}</div>"


def _texts(out: Any) -> str:
    """Returns the texts of a result of generate(), with the reason for which each ended."""
    texts, scores = out["texts"], out.get("sequences_scores")
    reasons = out.get("finish_reasons") or [""] * len(texts)
    lines = []
    for i, (text, reason) in enumerate(zip(texts[:_ROWS], reasons)):
        ids = "" if text else " ".join(str(int(n)) for n in out["sequences"][i][:64])  # a model without a tokenizer
        score = f", score {float(scores[i]):.3f}" if scores is not None else ""
        lines.append(f"<tr><td>{i}</td><td>{_text(text or ids)}</td><td>{escape(str(reason))}{score}</td></tr>")
    more = f"<p>({len(texts) - _ROWS} more rows)</p>" if len(texts) > _ROWS else ""
    return f"<table>{''.join(lines)}</table>{more}"


def _segments(rows: Sequence[Sequence[Dict[str, Any]]]) -> str:
    """Returns the segments of recordings with their times."""
    lines = [f"<tr><td>{s['start']:.2f}-{s['end']:.2f} s</td><td>{_text(s['text'])}</td></tr>"
             for row in rows[:_ROWS] for s in row[:_ROWS * 8]]
    return f"<table>{''.join(lines)}</table>"


def output_html(out: Any) -> str:
    """Returns a result of generate() or forward(): the texts, if it has some, and the form of each entry."""
    body = [f"<p><b>{escape(type(out).__name__)}</b></p>"]
    stats: Optional[Dict[str, Any]] = out.get("stats")
    if out.get("texts") is not None:
        body.append(_texts(out))
    if stats:
        speed = _speed(stats, len(out.get("texts") or ()))
        body.append(f"<p>{escape(speed)}</p>")
    if out.get("segments") is not None:
        body.append(_segments(out["segments"]))
    plain = [(key, _form(value)) for key, value in out.items() if key not in ("texts", "finish_reasons", "stats", "segments")]
    return f"<div>{''.join(body)}{_folded('entries', _table(plain)) if stats else _table(plain)}</div>"
