/* page.c - contains the files of src/cli/page, and fills their slots.  The assembler includes the files, so
 * building needs no other program.  The Makefile says that this object depends on them. */
#include "cli/page.h"

#include "base/file.h"
#include "base/json.h"

#include <string.h>

#define FILE_OF(name, path)                                                                        \
    __asm__(".pushsection .rodata\n"                                                               \
            ".hidden " #name ", " #name "_end\n"                                                   \
            ".globl " #name ", " #name "_end\n" #name ": .incbin \"" path "\"\n" #name             \
            "_end: .byte 0\n"                                                                      \
            ".popsection\n");                                                                      \
    extern const char name[], name##_end[]

FILE_OF(page_report_html, "src/cli/page/report.html");
FILE_OF(page_report_js, "src/cli/page/report.js");
FILE_OF(page_charts_js, "src/cli/page/charts.js");
FILE_OF(page_eval_js, "src/cli/page/eval.js");
FILE_OF(page_css, "src/cli/page/page.css");

struct page_part page_part(enum page_file f)
{
    const char *begin[] = {page_report_html, page_report_js, page_charts_js, page_css,
                           page_eval_js};
    const char *end[] = {page_report_html_end, page_report_js_end, page_charts_js_end, page_css_end,
                         page_eval_js_end};
    return (struct page_part){begin[f], (size_t)(end[f] - begin[f])};
}

int page_fill(struct buf *out, struct page_part skeleton, const struct page_slot *slot, size_t n)
{
    const char *at = skeleton.data, *end = at + skeleton.n;
    for (;;) {
        const char *open = memmem(at, (size_t)(end - at), "{{", 2);
        const char *close = open ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;
        if (!close) return buf_append(out, at, (size_t)(end - at));
        TRY(buf_append(out, at, (size_t)(open - at)));
        for (size_t i = 0; i < n; i++)
            if (strlen(slot[i].name) == (size_t)(close - open - 2) &&
                !memcmp(slot[i].name, open + 2, (size_t)(close - open - 2)))
                TRY(buf_append(out, slot[i].part.data, slot[i].part.n));
        at = close + 2;
    }
}

int page_json(struct buf *out, json_t *o)
{
    char *text;
    int e = o ? json_text(o, &text) : ERR(NOMEM, "out of memory");
    json_decref(o);
    TRY(e);
    /* In JSON these characters occur only in strings, where an escape means the same. */
    for (const char *p = text; *p && e >= 0; p++)
        if (*p == '<' || *p == '>' || *p == '&')
            e = buf_printf(out, "\\u%04x", (unsigned)*p);
        else
            e = buf_putc(out, *p);
    mem_free(text);
    return e;
}

int page_report(const char *path, const char *title, json_t *figures, struct page_part script)
{
    struct buf out, json, both;
    struct page_part charts = page_part(PAGE_CHARTS_JS);
    buf_init(&out, 32u << 20);
    buf_init(&json, 16u << 20);
    buf_init(&both, 1u << 20);
    int e = page_json(&json, figures);
    if (e >= 0) e = buf_append(&both, charts.data, charts.n);
    if (e >= 0) e = buf_append(&both, script.data, script.n);
    if (e >= 0)
        e = page_fill(&out, page_part(PAGE_REPORT_HTML),
                      (struct page_slot[]){{"title", {title, strlen(title)}},
                                           {"style", page_part(PAGE_CSS)},
                                           {"figures", {json.data, json.len}},
                                           {"script", {both.data, both.len}}},
                      4);
    if (e >= 0) e = file_write(path, out.data, out.len);
    buf_done(&out);
    buf_done(&json);
    buf_done(&both);
    return e;
}
