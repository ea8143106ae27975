/* together.c - collects the rows of a step for callbacks that see all of them at once. */
#include "generate/together.h"
#include "generate/sizes.h"
#include "kvik_compat.h"

#include <string.h>

enum { SIZED_LEAST(kvik_together, stopping_criteria) };

struct together {
    const kvik_hooks *hooks;
    kvik_together asked; /* the callbacks; fields that the caller's struct does not have are 0 */
    uint32_t vocab;
    uint32_t rows, room; /* rows: added; room: rows that the arrays have room for */
    uint32_t scored;     /* rows that `scores` has room for */
    bool now;            /* a step has begun */
    bool processed;      /* the processor has run in this step */
    const int32_t **ids; /* [room] borrowed */
    uint32_t *row;       /* [room], as the arrays below */
    size_t *n;
    bool *over, *ends;
    float *scores; /* [scored][vocab], or NULL */
};

static void forget_rows(struct together *t)
{
    void *own[] = {t->ids, t->row, t->n, t->over, t->ends};
    for (size_t i = 0; i < countof(own); i++)
        mem_free(own[i]);
    t->ids = NULL;
    t->row = NULL;
    t->n = NULL;
    t->over = t->ends = NULL;
    t->rows = t->room = 0;
}

int together_room(struct together *t, size_t rows)
{
    t->rows = 0;
    if (rows <= t->room) return 0;
    if (rows > UINT32_MAX / 2)
        return ERR(NOMEM, "%zu rows in a step, the limit is %u; give fewer requests in a call",
                   rows, UINT32_MAX / 2);
    forget_rows(t);
    t->ids = mem_array(rows, sizeof *t->ids);
    t->row = mem_array(rows, sizeof *t->row);
    t->n = mem_array(rows, sizeof *t->n);
    t->over = mem_array(rows, sizeof *t->over);
    t->ends = mem_array(rows, sizeof *t->ends);
    if (!t->ids || !t->row || !t->n || !t->over || !t->ends) return ERR_NOMEM;
    t->room = (uint32_t)rows;
    return 0;
}

static int reserve_rows(struct together *t, uint32_t rows)
{
    TRY(together_room(t, rows));
    if (!t->asked.logits_processor) return 0;
    t->scored = rows;
    t->scores = mem_array(rows, t->vocab * sizeof *t->scores);
    return t->scores ? 0 : ERR_NOMEM;
}

int together_open(const kvik_hooks *hooks, uint32_t rows, uint32_t vocab, struct together **out)
{
    const kvik_together *given = hooks ? hooks->together : NULL;
    kvik_together asked = {0};
    *out = NULL;
    if (!given) return 0;
    TRY(SIZED_IN(&asked, given, kvik_together));
    struct together *t = mem_alloc(sizeof *t);
    if (!t) return ERR_NOMEM;
    t->asked = asked;
    t->hooks = hooks;
    t->vocab = vocab;
    int e = reserve_rows(t, MAX(rows, 1u));
    if (e < 0) {
        together_close(t);
        return e;
    }
    *out = t;
    return 0;
}

void together_close(struct together *t)
{
    if (!t) return;
    forget_rows(t);
    mem_free(t->scores);
    mem_free(t);
}

bool together_begin(struct together *t)
{
    if (!t) return false;
    t->now = true;
    t->processed = false;
    t->rows = 0;
    return t->scores != NULL;
}

void together_end(struct together *t)
{
    if (t) t->now = false;
}

void together_clear(struct together *t)
{
    t->rows = 0;
}

float *together_add(struct together *t, const struct gen_row *text, bool over)
{
    uint32_t i = t->rows++;
    t->ids[i] = text->ids;
    t->row[i] = text->row;
    t->n[i] = text->n;
    t->over[i] = over;
    t->ends[i] = false;
    if (!t->scores || t->processed || i >= t->scored) return NULL;
    float *scores = t->scores + (size_t)i * t->vocab;
    memset(scores, 0, t->vocab * sizeof *scores);
    return scores;
}

static kvik_texts texts(const struct together *t)
{
    return (kvik_texts){.size = sizeof(kvik_texts),
                        .rows = t->rows,
                        .row = t->row,
                        .ids = t->ids,
                        .n = t->n,
                        .over = t->over};
}

int together_process(struct together *t)
{
    kvik_texts shown = texts(t);
    t->processed = true;
    if (t->asked.logits_processor(t->hooks->ctx, &shown, t->scores, t->vocab)) return 0;
    return ERR(CANCELLED, "cancelled by logits_processor");
}

const float *together_scores(const struct together *t, uint32_t i)
{
    return t && t->now && t->processed ? t->scores + (size_t)i * t->vocab : NULL;
}

bool together_judges(const struct together *t)
{
    return t && t->now && t->asked.stopping_criteria;
}

void together_judge(struct together *t, const float *scores, size_t steps, uint32_t rows)
{
    kvik_texts shown = texts(t);
    shown.scores = scores;
    shown.steps = steps;
    shown.score_rows = rows;
    t->asked.stopping_criteria(t->hooks->ctx, &shown, t->ends);
}

bool together_ends(const struct together *t, uint32_t i)
{
    return t->ends[i];
}
