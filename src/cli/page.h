/* page.h - HTML pages that load nothing: style, script and figures are inside.  The parts are the files of
 * src/cli/page, as they were when the command was built. */
#pragma once
#include "base/buf.h"

#include <jansson.h>

struct page_part {
    const char *data;
    size_t n;
};
enum page_file { PAGE_REPORT_HTML, PAGE_REPORT_JS, PAGE_CHARTS_JS, PAGE_CSS, PAGE_EVAL_JS };
struct page_part page_part(enum page_file f);

/* The text that replaces {{name}}. */
struct page_slot {
    const char *name;
    struct page_part part;
};
/* Appends a skeleton with its slots filled.  The filled-in text is not searched for slots.  Returns an error code. */
int page_fill(struct buf *out, struct page_part skeleton, const struct page_slot *slot, size_t n);
/* Appends JSON for a script element, escaped so that no text can end the element or begin a comment.  Takes over o;
 * NULL means that memory was short.  Returns an error code. */
int page_json(struct buf *out, json_t *o);
/* Writes a report: the figures, which it takes over, and the script that draws them with the shared charts. */
int page_report(const char *path, const char *title, json_t *figures, struct page_part script);
