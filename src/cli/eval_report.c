/* eval_report.c - writes what kvik eval measured as one HTML page: its figures as JSON, and the script that draws them
 * (src/cli/page/eval.js). */
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

int eval_report(const struct eval *v, const char *path)
{
    return page_report(path, "kvik eval", figures(v), page_part(PAGE_EVAL_JS));
}
