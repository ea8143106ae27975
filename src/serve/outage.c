/* outage.c - says when the shared store fails; see outage.h. */
#include "serve/outage.h"
#include "base/utf8.h"

#include <string.h>
#include <time.h>

#define LINE_SECONDS 60.0 /* between two lines: a store may fail and work again with every call */

bool outage_untold(const struct outage *w)
{
    return w->fails != w->told;
}

/* Makes JSON of an error.  It may quote a foreign server, and it may be cut inside a character. */
static json_t *sentence(const char *error)
{
    char plain[OUTAGE_ERROR];
    size_t n = strlen(error), i = 0;
    bool valid = utf8_valid(error, n);
    for (; i < n && i < sizeof plain; i++)
        plain[i] = valid || (unsigned char)error[i] < 0x80 ? error[i] : '?';
    return json_stringn(plain, i);
}

json_t *outage_json(const kvik_shared_state *now)
{
    bool fails = now->reads_fail || now->writes_fail;
    return json_pack("{s:s, s:b, s:b, s:I, s:o}", "status", fails ? "failing" : "ok", "reads_fail",
                     now->reads_fail != 0, "writes_fail", now->writes_fail != 0, "failures",
                     (json_int_t)now->failures, "error", sentence(now->error));
}

json_t *outage_dir_json(const char *error)
{
    return json_pack("{s:s, s:o}", "status", *error ? "failing" : "ok", "error", sentence(error));
}

/* Notes whether something fails now, and returns true if a line is due. */
static bool is_due(struct outage *w, bool fails)
{
    w->fails = fails;
    if (!outage_untold(w) || (w->since > 0 && now_seconds() < w->since + LINE_SECONDS))
        return false;
    w->told = w->fails;
    w->since = now_seconds();
    return true;
}

static void write_line(const struct serve_options *o, const char *name, json_t *report)
{
    char *line = NULL;
    json_t *j = json_pack("{s:I, s:o}", "time", (json_int_t)time(NULL), name, report);
    if (o->on_outage && j && json_text(j, &line) >= 0) o->on_outage(o->ctx, line);
    mem_free(line);
    json_decref(j);
}

void outage_look(struct outage *w, const kvik_shared_state *now, const struct serve_options *o)
{
    if (is_due(w, now->reads_fail || now->writes_fail))
        write_line(o, "prefix_store", outage_json(now));
}

void outage_dir_look(struct outage *w, const char *error, const struct serve_options *o)
{
    if (is_due(w, *error != 0)) write_line(o, "prefix_cache", outage_dir_json(error));
}
