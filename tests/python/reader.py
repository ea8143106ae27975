"""reader.py - a reader's Python session: runs the blocks of a page and answers with what each prints.

A line of standard input is a block in JSON, {"code", "name", "line"}; a line of the answer is {"out", "error", "seconds"}, of processor time.  The first block prepares
the others: each of these runs in a copy of its names, so a reader needs it and nothing else.
"""
import contextlib
import io
import json
import os
import sys
import traceback

answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)  # what a child process prints is no answer
scope = None
for line in sys.stdin:
    block = json.loads(line)
    names = {"__name__": "__main__"} if scope is None else dict(scope)
    out, error, begin = io.StringIO(), None, sum(os.times()[:4])
    try:
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (block["line"] - 1) + block["code"], block["name"], "exec"), names)
    except BaseException:  # a block that exits is wrong as well
        error = traceback.format_exc()
    else:
        scope = scope or names
    answers.write(json.dumps({"out": out.getvalue(), "error": error, "seconds": sum(os.times()[:4]) - begin}) + "\n")
    answers.flush()
