/* beam.c - the beam search over one prompt, its draws and its groups; see beam.h.
 *
 * Every step keeps the max(2, 1 + n_eos) * beams best continuations of all running beams, so at least `beams` of
 * them go on even if all others end.  Only the first `beams` ranks may enter the finished list.  This list holds
 * the `beams` best by score / length^penalty; at first all its places are empty.  Sums and quotients are in f32 as
 * in Transformers, so near ties are decided alike.  Transformers marks excluded entries with -1e9, which absorbs
 * smaller terms; of entries that become equal in this way, the earlier one wins.
 *
 * One departure: Transformers ends all prompts of a batch together, and a prompt whose own search is over idles
 * until then.  Here each search ends by itself, with the same result.  So a prompt does not depend on the other
 * prompts of its batch.
 *
 * Beam sampling draws a step's candidates by their probability instead of ranking them.  Transformers draws K
 * continuations of all beams without replacement from softmax(score so far + log-probability).  Gumbel's trick
 * gives the same distribution: add a Gumbel variate to each score and take the K largest, in descending order.
 * One pass over the candidates finds them, as it finds the K best.  A variate depends on (seed, prompt, step,
 * beam, token) alone.  Candidates stay in the order in which they were drawn.  Only the first `beams` of them may
 * finish; the best of them become the running beams.
 *
 * Diverse beam search has the beams of a prompt in groups.  Each group is a search of its own, which is kept from
 * choosing what earlier groups have chosen in the same step (processor_repetition.c).  The rules of a group are
 * those of Transformers 4.47, since later versions have no such search.  Only end-of-sequence tokens end a
 * sequence.  A group is over when it holds as many finished sequences as it has beams and no running beam promises
 * more.  When the whole search ends, the running beams join the finished sequences of their group.  The best over
 * all groups are returned; of equal scores the later found comes first.  As in 4.47, sums are in f32 and quotients
 * in double. */
#include "generate/beam.h"
#include "generate/random.h"

#include <math.h>
#include <string.h>

struct beam_search {
    struct beam_rules rules;
    uint32_t n_prompt, n; /* n: tokens generated */
    uint32_t keep;        /* candidates of a step */
    uint32_t held; /* number of entries in `candidate`; a heap with the worst first until ranked */
    uint32_t n_real;                  /* finished sequences found */
    struct beam_candidate *candidate; /* [keep] */
    struct beam_candidate *sorted;    /* [keep] scratch for drawing; NULL without draws */
    struct beam_candidate *running;   /* [beams] the candidates that became the running beams */
    /* [beams] best first; for a group: in the order in which they were found */
    struct beam_done *done;
    double worst;      /* for a group: the lowest score in `done`, 1e9 while it is empty */
    int32_t *ids[2];   /* [beams][n_prompt + limit]; ids[0] belongs to the running beams */
    int32_t *path[2];  /* [beams][limit] the beam that each token extended */
    int32_t *done_ids; /* [beams][2][limit] the arrays that `done` points into */
};

static inline size_t beam_width(const struct beam_search *b)
{
    return (size_t)b->n_prompt + b->rules.limit;
}

int beam_new(const struct beam_rules *rules, const int32_t *prompt, uint32_t n_prompt,
             struct beam_search **out)
{
    struct beam_search *b = mem_alloc(sizeof *b);
    size_t beams = rules->beams, limit = rules->limit, keep = MAX(2, 1 + (size_t)rules->n_eos);
    if (!b) return ERR_NOMEM;
    b->rules = *rules;
    b->n_prompt = n_prompt;
    b->worst = 1e9;
    b->keep = (uint32_t)MIN(keep * beams, beams * rules->vocab);
    b->candidate = mem_array(b->keep, sizeof *b->candidate);
    b->sorted = rules->draw ? mem_array(2 * (size_t)b->keep, sizeof *b->sorted) : NULL;
    b->running = mem_array(beams, sizeof *b->running);
    b->done = mem_array(beams, sizeof *b->done);
    for (int i = 0; i < 2; i++) {
        b->ids[i] = mem_array(beams, beam_width(b) * sizeof **b->ids);
        b->path[i] = mem_array(beams, limit * sizeof **b->path);
    }
    b->done_ids = mem_array(beams, 2 * limit * sizeof *b->done_ids);
    if (!b->candidate || (rules->draw && !b->sorted) || !b->running || !b->done || !b->ids[0] ||
        !b->ids[1] || !b->path[0] || !b->path[1] || !b->done_ids) {
        beam_drop(b);
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < beams; i++) {
        b->running[i] =
            (struct beam_candidate){.score = i ? BEAM_DEAD : 0, .token = -1, .ends = -1};
        b->done[i] = (struct beam_done){.score = BEAM_DEAD,
                                        .ends = -1,
                                        .token = b->done_ids + 2 * i * limit,
                                        .beam = b->done_ids + (2 * i + 1) * limit};
        for (int k = 0; k < 2; k++)
            memcpy(b->ids[k] + i * beam_width(b), prompt, n_prompt * sizeof *prompt);
    }
    *out = b;
    return 0;
}

void beam_drop(struct beam_search *b)
{
    if (!b) return;
    mem_free(b->candidate);
    mem_free(b->sorted);
    mem_free(b->running);
    mem_free(b->done);
    for (int i = 0; i < 2; i++) {
        mem_free(b->ids[i]);
        mem_free(b->path[i]);
    }
    mem_free(b->done_ids);
    mem_free(b);
}

void beam_log_softmax(float *score, uint32_t n)
{
    float max = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (score[i] > max) max = score[i];
    for (uint32_t i = 0; i < n; i++) {
        if (max == INFINITY)
            score[i] = score[i] == max ? 0 : -INFINITY;
        else
            score[i] = score[i] > -INFINITY ? score[i] - max : -INFINITY;
        sum += expf(score[i]);
    }
    float log_sum = sum > 0 ? (float)log(sum) : 0;
    for (uint32_t i = 0; i < n; i++)
        score[i] -= log_sum;
}

static bool worse(const struct beam_candidate *a, const struct beam_candidate *b)
{
    if (a->key != b->key) return a->key < b->key;
    return a->beam != b->beam ? a->beam > b->beam : a->token > b->token;
}

static void sift_down(struct beam_candidate *heap, uint32_t n, uint32_t i)
{
    struct beam_candidate c = heap[i];
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && worse(&heap[child + 1], &heap[child])) child++;
        if (!worse(&heap[child], &c)) break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

static void push_candidate(struct beam_search *b, struct beam_candidate c)
{
    struct beam_candidate *heap = b->candidate;
    uint32_t i = b->held++;
    for (; i > 0 && worse(&c, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

/* Returns the key by which a candidate is drawn. */
static double draw_key(const struct beam_search *b, float score, uint32_t beam, uint32_t token)
{
    if (!(score > -INFINITY)) return -INFINITY;
    double u = random_uniform(b->rules.seed, b->rules.row, b->n, beam + 1, token);
    return score - log(-log(u > 0 ? u : 0x1p-54));
}

void beam_offer(struct beam_search *b, uint32_t beam, const float *score)
{
    float so_far = b->running[beam].score;
    for (uint32_t v = 0; v < b->rules.vocab; v++) {
        float s = score[v] + so_far;
        if (!(s > -INFINITY)) s = -INFINITY;
        double key = b->rules.draw ? draw_key(b, s, beam, v) : s;
        bool full = b->held == b->keep;
        /* of candidates with equal keys the earlier one is already in the heap */
        if (full && !(key > b->candidate[0].key)) continue;
        struct beam_candidate c = {
            .score = s, .key = key, .beam = beam, .token = (int32_t)v, .ends = -1};
        if (full) {
            b->candidate[0] = c;
            sift_down(b->candidate, b->held, 0);
        } else {
            push_candidate(b, c);
        }
    }
}

struct beam_candidate *beam_rank(struct beam_search *b, uint32_t *n)
{
    struct beam_candidate *heap = b->candidate;
    for (uint32_t left = b->held; left > 1;) {
        struct beam_candidate worst = heap[0];
        heap[0] = heap[--left];
        sift_down(heap, left, 0);
        heap[left] = worst;
    }
    *n = b->held;
    return heap;
}

/* Chooses the running beams of the next step: the best candidates.  Candidates that have ended rank 1e9 lower. */
static void choose_running(struct beam_search *b)
{
    const struct beam_candidate *c = b->candidate;
    /* next candidate that goes on, next one that has ended; both lists descend */
    uint32_t on = 0, off = 0;
    for (uint32_t i = 0; i < b->rules.beams; i++) {
        while (on < b->held && c[on].ends >= 0)
            on++;
        while (off < b->held && c[off].ends < 0)
            off++;
        float s_on = on < b->held ? c[on].score : -INFINITY,
              s_off = off < b->held ? c[off].score + BEAM_DEAD : -INFINITY;
        bool ended =
            on == b->held || (off < b->held && (s_off > s_on || (s_off == s_on && off < on)));
        b->running[i] = ended ? c[off++] : c[on++];
        if (ended) b->running[i].score = s_off;
    }
}

/* --- Drawn candidates. */

static float running_score(const struct beam_candidate *c)
{
    return c->ends < 0 ? c->score : c->score + BEAM_DEAD;
}

/* Sorts candidates by merging: of equal ones the first drawn comes first. */
static void sort_drawn(struct beam_candidate *c, struct beam_candidate *tmp, uint32_t n)
{
    uint32_t half = n / 2, i = 0, j = half, k = 0;
    if (n < 2) return;
    sort_drawn(c, tmp, half);
    sort_drawn(c + half, tmp, n - half);
    memcpy(tmp, c, n * sizeof *c);
    while (k < n) {
        bool second = i == half || (j < n && running_score(&tmp[j]) > running_score(&tmp[i]));
        c[k++] = tmp[second ? j++ : i++];
    }
}

static void choose_running_drawn(struct beam_search *b)
{
    struct beam_candidate *c = b->sorted;
    memcpy(c, b->candidate, b->held * sizeof *c);
    sort_drawn(c, c + b->keep, b->held);
    for (uint32_t i = 0; i < b->rules.beams; i++) {
        b->running[i] = c[i];
        b->running[i].score = running_score(&c[i]);
    }
}

/* --- Finished sequences. */

/* Records a finished sequence: the text of beam c->beam and, if it is >= 0, c's own token. */
static void record_finished(const struct beam_search *b, const struct beam_candidate *c,
                            struct beam_done *out)
{
    uint32_t n = b->n;
    memcpy(out->token, b->ids[0] + c->beam * beam_width(b) + b->n_prompt, n * sizeof *out->token);
    memcpy(out->beam, b->path[0] + (size_t)c->beam * b->rules.limit, n * sizeof *out->beam);
    out->n = n;
    if (c->token < 0) return;
    out->token[n] = c->token;
    out->beam[n] = (int32_t)c->beam;
    out->n++;
}

/* Puts a candidate that has ended into the finished list if its score beats the worst there. */
static void finish_candidate(struct beam_search *b, const struct beam_candidate *c, float divisor)
{
    uint32_t last = b->rules.beams - 1, i = last;
    float score = c->score / divisor;
    if (!(score > b->done[last].score)) return;
    struct beam_done d = b->done[last];
    if (!d.real) b->n_real++;
    record_finished(b, c, &d);
    d.score = score;
    d.real = true;
    d.ends = c->ends;
    for (; i > 0 && score > b->done[i - 1].score; i--)
        b->done[i] = b->done[i - 1];
    b->done[i] = d;
}

/* Writes the texts of the running beams: that of the beam which each extends, and its own token. */
static void extend_texts(struct beam_search *b)
{
    size_t width = beam_width(b), limit = b->rules.limit;
    for (uint32_t i = 0; i < b->rules.beams; i++) {
        const struct beam_candidate *c = &b->running[i];
        int32_t *to = b->ids[1] + i * width + b->n_prompt, *path = b->path[1] + i * limit;
        memcpy(to, b->ids[0] + c->beam * width + b->n_prompt, b->n * sizeof *to);
        memcpy(path, b->path[0] + c->beam * limit, b->n * sizeof *path);
        to[b->n] = c->token;
        path[b->n] = (int32_t)c->beam;
    }
    int32_t *ids = b->ids[0], *path = b->path[0];
    b->ids[0] = b->ids[1];
    b->ids[1] = ids;
    b->path[0] = b->path[1];
    b->path[1] = path;
    b->n++;
}

static float power(const struct beam_search *b, uint32_t n)
{
    return (float)pow((double)n, b->rules.length_penalty);
}

/* True if the best running beam, at the length that the rule assumes for it, could still enter the finished list. */
static bool can_improve(const struct beam_search *b)
{
    bool never = b->rules.early == KVIK_EARLY_NEVER && b->rules.length_penalty > 0;
    float best = b->running[0].score / power(b, never ? b->rules.limit : b->n);
    bool full = b->n_real == b->rules.beams;
    return best > (full ? b->done[b->rules.beams - 1].score : BEAM_DEAD);
}

/* --- Groups of diverse beams. */

static double quotient(const struct beam_search *b, float sum, uint32_t length)
{
    return sum / pow((double)length, b->rules.length_penalty);
}

/* Adds a finished sequence to a group, which keeps the `beams` best.  Of equal ones the first found is dropped. */
static void group_add(struct beam_search *b, const struct beam_candidate *c, uint32_t length,
                      int ends)
{
    uint32_t beams = b->rules.beams, at = b->n_real;
    double score = quotient(b, c->score, length);
    if (b->n_real == beams) {
        uint32_t low = 0;
        if (!(score > b->worst)) return;
        for (uint32_t i = 1; i < beams; i++)
            if (b->done[i].score < b->done[low].score) low = i;
        struct beam_done gone = b->done[low];
        memmove(b->done + low, b->done + low + 1, (beams - 1 - low) * sizeof *b->done);
        b->done[--at] = gone;
    } else {
        b->n_real++;
    }
    struct beam_done *d = &b->done[at];
    record_finished(b, c, d);
    d->score = score;
    d->real = true;
    d->ends = ends;
    b->worst = b->done[0].score;
    for (uint32_t i = 1; i < b->n_real; i++)
        b->worst = fmin(b->worst, b->done[i].score);
}

static bool group_over(const struct beam_search *b, float best)
{
    bool never = b->rules.early == KVIK_EARLY_NEVER && b->rules.length_penalty > 0;
    if (b->n_real < b->rules.beams) return false;
    if (b->rules.early == KVIK_EARLY_TRUE) return true;
    return b->worst >= quotient(b, best, never ? b->rules.limit : b->n + 1);
}

static bool advance_group(struct beam_search *b)
{
    const struct beam_candidate *c = b->candidate;
    uint32_t beams = b->rules.beams, k = 0;
    for (uint32_t i = 0; i < b->held && k < beams; i++) {
        if (c[i].ends < 0)
            b->running[k++] = c[i];
        else if (i < beams)
            group_add(b, &c[i], b->n + 1, c[i].ends);
    }
    for (; k < beams; k++) { /* the other beams cannot win, because too few tokens may follow */
        b->running[k] = c[0];
        b->running[k].score = -INFINITY;
    }
    bool ended = group_over(b, c[0].score);
    extend_texts(b);
    b->held = 0;
    return !ended;
}

/* --- All searches. */

bool beam_advance(struct beam_search *b)
{
    if (b->rules.group) return advance_group(b);
    bool goes_on = false;
    float divisor = power(b, b->n + 1);
    if (b->rules.draw)
        choose_running_drawn(b);
    else
        choose_running(b);
    for (uint32_t i = 0; i < b->held; i++) {
        goes_on |= b->candidate[i].ends < 0;
        if (i < b->rules.beams && b->candidate[i].ends >= 0)
            finish_candidate(b, &b->candidate[i], divisor);
    }
    extend_texts(b);
    b->held = 0;
    if (b->rules.early == KVIK_EARLY_TRUE && b->n_real == b->rules.beams) return false;
    return goes_on && can_improve(b);
}

const struct beam_candidate *beam_running(const struct beam_search *b, uint32_t i)
{
    return &b->running[i];
}

const int32_t *beam_ids(const struct beam_search *b, uint32_t i)
{
    return b->ids[0] + i * beam_width(b);
}

uint32_t beam_length(const struct beam_search *b)
{
    return b->n;
}

const struct beam_done *beam_best(const struct beam_search *b, uint32_t rank)
{
    return &b->done[rank];
}

void beam_end(struct beam_search *b, const int *ends)
{
    for (uint32_t i = 0; i < b->rules.beams; i++) {
        const struct beam_candidate *run = &b->running[i];
        struct beam_candidate c = {.score = run->score, .beam = i, .token = -1, .ends = ends[i]};
        if (b->rules.group)
            group_add(b, &c, b->n, ends[i]);
        else if (run->ends < 0)
            finish_candidate(b, &c, power(b, b->n));
    }
}

void beam_group_best(struct beam_search *const *group, uint32_t n, const struct beam_done **best,
                     uint32_t n_best)
{
    uint32_t held = 0;
    for (uint32_t g = 0; g < n; g++)
        for (uint32_t i = 0; i < group[g]->n_real; i++) {
            const struct beam_done *d = &group[g]->done[i];
            uint32_t at = held < n_best ? held++ : n_best;
            for (; at > 0 && d->score >= best[at - 1]->score; at--)
                if (at < n_best) best[at] = best[at - 1];
            if (at < n_best) best[at] = d;
        }
}
