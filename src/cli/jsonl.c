/* jsonl.c - a protocol of lines: each line of input is a JSON object and gets one line as its answer, in order.
 * Every answer is flushed, so another process can talk to kvik through two pipes.  A wrong line gets {"error":
 * ...}. */
#include "base/descriptor.h"
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

static json_t *error_of(int code)
{
    const char *s = kvik_last_error();
    if (!*s) s = kvik_error_name(code);
    return json_pack("{s:o}", "error", say_json(s, strlen(s)));
}

static int answer_line(const struct buf *line, jsonl_answer answer, void *ctx)
{
    json_t *request = NULL, *out = NULL;
    int e = json_parse(line->data, line->len, "request", &request);
    if (e >= 0 && !json_is_object(request))
        e = ERR(FORMAT, "request: a line must be a JSON object");
    if (e >= 0) out = answer(ctx, request);
    if (!out) out = error_of(e);
    json_decref(request);
    return say_json_line(out);
}

int jsonl_run(const char *path, jsonl_answer answer, void *ctx)
{
    bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fd_stream(path);
    struct buf line;
    int status = 0, got;
    if (!f) return say_failed("%s: %s", path, strerror(errno));
    buf_init(&line, (size_t)64 << 20);
    while (status == 0 && (got = read_line(f, &line)) != 0) {
        if (got < 0) {
            status = say_error(got);
        } else if (line.len) {
            status = answer_line(&line, answer, ctx);
            if (fflush(stdout) != 0 || ferror(stdout)) break; /* reported at the end */
        }
    }
    if (ferror(f)) status = say_failed("%s: %s", path, strerror(errno));
    buf_done(&line);
    if (!standard) fclose(f);
    return status;
}
