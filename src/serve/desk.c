/* desk.c - the crew that reads requests; see desk.h.
 *
 * A text of megabytes takes seconds to tokenize.  So the first thread takes short requests only, and a short request never waits for
 * a long one. */
#include "serve/desk.h"
#include "serve/crew.h"

#include <malloc.h>

enum { SHORT = 256 << 10 /* bytes */ };

struct paper {
    struct crew_work work;
    struct server *server;
    const struct route *route;
};

static void run(struct crew_work *w)
{
    struct paper *p = (struct paper *)w;
    size_t n = w->x->n_body;
    route_answer(p->server, w->x, p->route);
    mem_free(p);
    /* Otherwise the process would keep the memory of the long body. */
    if (n > SHORT) malloc_trim(0);
}

static void refuse(struct crew_work *w, int status, const char *sentence)
{
    route_refuse(w->x, status, sentence);
    mem_free(w);
}

void desk_put(struct server *s, struct exchange *x, const struct route *r)
{
    struct paper *p = mem_alloc(sizeof *p);
    if (!p) {
        route_refuse(x, 503, "out of memory");
        return;
    }
    *p = (struct paper){.work = {.x = x, .run = run, .refuse = refuse}, .server = s, .route = r};
    if (crew_put(s->desk, &p->work) < 0) refuse(&p->work, 503, "the server is closing");
}

int desk_open(struct crew **out)
{
    return crew_open(&(struct crew_options){.bytes = {SHORT, SIZE_MAX},
                                            /* The network limits the number of requests. */
                                            .waiting = SIZE_MAX,
                                            .what = "requests"},
                     out);
}
