/* eval_report.c - writes what kvik eval measured as one HTML page: its figures as JSON, and the script that draws them
 * (src/cli/page/eval.js). */
#include "base/file.h"
#include "cli/eval.h"
#include "cli/page.h"

#include <string.h>

static json_t *figures(const struct eval *v)
{
    json_t *o = eval_json(v);
    struct buf method;
    buf_init(&method, 4096);
    eval_method(v, &method);
    json_object_set_new(o, "method", say_json(method.data ? method.data : "", method.len));
    buf_done(&method);
    return o;
}

static int page(const struct eval *v, struct buf *out)
{
    struct buf json, script;
    struct page_part charts = page_part(PAGE_CHARTS_JS), own = page_part(PAGE_EVAL_JS);
    buf_init(&json, 16u << 20);
    buf_init(&script, 1u << 20);
    int e = page_json(&json, figures(v));
    if (e >= 0) e = buf_append(&script, charts.data, charts.n);
    if (e >= 0) e = buf_append(&script, own.data, own.n);
    if (e >= 0)
        e = page_fill(out, page_part(PAGE_REPORT_HTML),
                      (struct page_slot[]){{"title", {"kvik eval", 9}},
                                           {"style", page_part(PAGE_CSS)},
                                           {"figures", {json.data, json.len}},
                                           {"script", {script.data, script.len}}},
                      4);
    buf_done(&json);
    buf_done(&script);
    return e;
}

int eval_report(const struct eval *v, const char *path)
{
    struct buf out;
    buf_init(&out, 32u << 20);
    int e = page(v, &out);
    if (e >= 0) e = file_write(path, out.data, out.len);
    buf_done(&out);
    return e;
}
