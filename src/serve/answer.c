/* answer.c - collects the texts of a request's jobs, and lets its protocol write them.  All functions but
 * answer_open run on the thread of the scheduler, whose other texts wait meanwhile.  So the end of an answer that is
 * large, or whose request was, is left to the desk. */
#include "serve/answer.h"
#include "serve/replay.h"
#include "serve/slots.h"
#include "serve/token_text.h"

#include <string.h>
#include <time.h>

enum { MOST_TEXT = 256 << 20 };
/* Limits of an answer that the scheduler completes: bytes of the request, whose JSON is freed then, and probabilities
 * of a whole answer. */
enum { QUICK_BODY = 64 << 10, QUICK_PROBABILITIES = 1 << 10 };

static void answer_free(struct answer *a)
{
    for (uint32_t i = 0; a->choice && i < a->ask.choices; i++) {
        buf_done(&a->choice[i].text);
        buf_done(&a->choice[i].reason);
        for (uint32_t k = 0; k < a->choice[i].n_calls; k++) {
            mem_free(a->choice[i].call[k].name);
            buf_done(&a->choice[i].call[k].arguments);
        }
        mem_free(a->choice[i].call);
        spoken_free(a->choice[i].spoken);
        mem_free(a->choice[i].stop);
        json_decref(a->choice[i].items);
        json_decref(a->choice[i].logprobs);
        json_decref(a->choice[i].ids);
    }
    mem_free(a->choice);
    for (struct job *j = a->over, *next; j; j = next) {
        next = j->next;
        job_free(j);
    }
    ask_done(&a->ask);
    exchange_release(a->x);
    mem_free(a);
}

static const struct spoken_calls heard;
static void complete(struct crew_work *w);
static void complete_at_end(struct crew_work *w, int status, const char *sentence);

/* Opens a scanner for each text of a chat whose model marks reasoning or calls.  If memory is short, a text stays
 * undivided. */
static void open_spoken(struct answer *a)
{
    static const struct dialect plain; /* without marks */
    const struct ask *k = &a->ask;
    const struct dialect *own = a->server->dialect.dialect;
    struct spoken_options o = {.dialect = k->demanded ? &plain : own,
                               .tools = ask_tools(k),
                               .reasoning = k->reasoning,
                               .demanded = k->demanded,
                               .live = k->stream,
                               .calls = &heard};
    if (!o.dialect || !k->messages || !a->protocol->calls || (k->constrained && !k->demanded))
        return;
    for (uint32_t i = 0; i < a->ask.choices; i++) {
        o.ctx = &a->choice[i];
        (void)spoken_open(&o, &a->choice[i].spoken);
    }
}

static uint64_t prompt_tokens(const struct ask *k)
{
    uint64_t n = k->n;
    for (uint32_t i = 0; i < k->n_more; i++)
        n += k->more[i].n;
    return n;
}

struct answer *answer_open(struct server *s, struct exchange *x, const struct protocol *p,
                           struct ask *k)
{
    struct answer *a = mem_alloc(sizeof *a);
    struct choice *c = mem_array(k->choices, sizeof *c);
    if (!a || !c) {
        mem_free(a);
        mem_free(c);
        return NULL;
    }
    *a = (struct answer){.work = {.x = x, .run = complete, .refuse = complete_at_end},
                         .server = s,
                         .x = exchange_hold(x),
                         .protocol = p,
                         .ask = *k,
                         .choice = c,
                         .left = k->choices,
                         .slot = -1,
                         .prompt_tokens = prompt_tokens(k),
                         .created = (int64_t)time(NULL)};
    *k = (struct ask){0};
    snprintf(a->id, sizeof a->id, "%s%llx%08llx", p->prefix, (unsigned long long)s->created,
             (unsigned long long)x->id);
    for (uint32_t i = 0; i < a->ask.choices; i++) {
        c[i].index = i;
        c[i].answer = a;
        buf_init(&c[i].text, MOST_TEXT);
        buf_init(&c[i].reason, MOST_TEXT);
        if (a->ask.return_ids) c[i].ids = json_array();
    }
    open_spoken(a);
    return a;
}

/* --- Probabilities. */

/* Makes JSON of one token with its probability.  Its bytes may be a part of a character; `token` then has U+FFFD in
 * their place. */
static json_t *probable(const struct server *s, const kvik_logprob *p)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    (void)token_text(s->tokenizer, p->id, &b);
    json_t *o = json_pack("{s:i, s:o, s:f, s:o}", "id", (int)p->id, "token", token_string(&b),
                          "logprob", (double)p->logprob, "bytes", token_bytes(&b));
    buf_done(&b);
    return o;
}

static void add_logprobs(const struct answer *a, struct choice *c, const kvik_logprob *token,
                         uint32_t n)
{
    json_t *top = json_array(), *one = probable(a->server, token);
    for (uint32_t i = 1; i < n; i++)
        json_array_append_new(top, probable(a->server, &token[i]));
    json_object_set_new(one, "top_logprobs", top);
    if (!c->logprobs) c->logprobs = json_array();
    json_array_append_new(c->logprobs, one);
    c->answer->probabilities += n;
}

/* --- What the jobs say. */

static void begin(struct answer *a)
{
    if (a->begun) return;
    a->begun = true;
    exchange_begin(a->x, a->protocol->stream, a->protocol->comments);
    if (a->protocol->begin) a->protocol->begin(a);
}

static void say(struct answer *a, struct choice *c, enum piece kind, const char *text)
{
    if (!*text) return;
    buf_puts(kind == PIECE_REASONING ? &c->reason : &c->text, text);
    if (a->ask.stream) a->protocol->piece(a, c, kind, text);
}

static void heard_text(void *ctx, enum piece kind, const char *text, size_t n)
{
    struct choice *c = ctx;
    char *own = mem_strndup(text, n);
    if (own) say(c->answer, c, kind, own);
    mem_free(own);
}

static void heard_call(void *ctx, const char *id, const char *name)
{
    struct choice *c = ctx;
    struct answer *a = c->answer;
    struct call *all = mem_grow(c->call, c->n_calls + 1, sizeof *all), *one;
    char *own = mem_strdup(name);
    if (all) c->call = all;
    if (!all || !own) { /* memory is short, so the call is left out */
        mem_free(own);
        c->deaf = true;
        return;
    }
    one = &all[c->n_calls];
    *one = (struct call){.name = own};
    buf_init(&one->arguments, MOST_TEXT);
    /* ids that are too long are replaced: their beginnings could be equal */
    if (id && strlen(id) < sizeof one->id)
        snprintf(one->id, sizeof one->id, "%s", id);
    else
        snprintf(one->id, sizeof one->id, "%s%08x%04x%04x", a->protocol->call_prefix,
                 (uint32_t)a->created ^ a->ask.seed, (unsigned)a->x->id & 0xffff,
                 (c->index << 8 | c->n_calls) & 0xffff);
    c->n_calls++;
    c->deaf = false;
    if (a->ask.stream && a->protocol->call) a->protocol->call(a, c);
}

static void heard_arguments(void *ctx, const char *text, size_t n)
{
    struct choice *c = ctx;
    struct answer *a = c->answer;
    char *own = c->deaf ? NULL : mem_strndup(text, n);
    if (!own) return;
    buf_puts(&c->call[c->n_calls - 1].arguments, own);
    if (a->ask.stream && a->protocol->arguments) a->protocol->arguments(a, c, own);
    mem_free(own);
}

static void heard_end(void *ctx)
{
    struct choice *c = ctx;
    struct answer *a = c->answer;
    if (!c->deaf && a->ask.stream && a->protocol->called) a->protocol->called(a, c);
}

static const struct spoken_calls heard = {
    .text = heard_text, .call = heard_call, .arguments = heard_arguments, .called = heard_end};

/* Takes new text of a choice. */
static void hear(struct answer *a, struct choice *c, const char *text)
{
    if (!c->spoken)
        say(a, c, PIECE_CONTENT, text);
    else if (spoken_put(c->spoken, text, strlen(text)) < 0) /* memory is short */
        say(a, c, PIECE_CONTENT, text);
}

/* Adds to the sums what the first choice of a prompt reused.  It is added once, at the first token, so that a stream
 * can tell. */
static void add_reused(struct answer *a, const struct job *j)
{
    struct choice *c = &a->choice[j->index];
    if (c->counted || j->index % (a->ask.choices / (1 + a->ask.n_more)) != 0) return;
    c->counted = true;
    a->reused += j->reused;
}

static void on_progress(struct job *j)
{
    struct answer *a = j->owner;
    if (a->slot < 0 && j->index == 0)
        a->slot = (int)slots_begin(a->server->slots, a->ask.slot,
                                   &(struct slot_text){j->ids, j->n, j->salt, false});
    if (!a->ask.progress || !a->ask.stream || a->failed) return;
    begin(a);
    add_reused(a, j);
    answer_progress(a, j,
                    /* After parking a job computes its new tokens again; they do not count. */
                    MIN(j->have, j->n));
}

/* Sets the times of a running text.  The times of a request are those of its first text. */
static void note_times(struct answer *a, const struct job *j, double now)
{
    if (j->index != 0) return;
    /* A job that never began has no times, and beams have no first token. */
    double first = j->first > 0 ? j->first : now;
    a->waited = (j->begun > 0 ? j->begun : now) - a->x->begun;
    a->first = first - a->x->begun;
    a->decoding = now - first;
}

static void fail(struct answer *a, int code, const char *sentence)
{
    char text[ROUTE_SENTENCE];
    struct fault f = {.status = route_status(code), .sentence = text};
    if (a->failed) return;
    route_sentence(text, sentence);
    a->failed = true;
    if (a->begun)
        a->protocol->broken(a, &f);
    else
        exchange_json(a->x, f.status, a->protocol->error(&f));
}

static bool on_text(struct job *j, int32_t id, const char *text, const kvik_logprob *token,
                    uint32_t n)
{
    struct answer *a = j->owner;
    struct choice *c = &a->choice[j->index];
    add_reused(a, j);
    if (a->ask.stream) {
        begin(a);
        answer_progress(a, j, j->n);
    }
    if (n) add_logprobs(a, c, token, n);
    if (id >= 0) c->new_tokens++;
    if (id >= 0 && c->ids) json_array_append_new(c->ids, json_integer(id));
    if (a->ask.timings) note_times(a, j, now_seconds());
    hear(a, c, text);
    c->reasoning_tokens += id >= 0 && c->spoken && spoken_reasons(c->spoken);
    if (a->probabilities > MOST_PROBABILITIES)
        fail(a, KVIK_LIMIT,
             "the answer has more than 262144 probabilities (choices, tokens and top_logprobs "
             "multiply); ask for fewer, or for a stream");
    return !a->failed;
}

static void add_up(struct answer *a, const struct job *j)
{
    a->new_tokens += a->choice[j->index].new_tokens;
    a->computed += j->computed;
    a->fetched += j->fetched;
    a->moved += j->splicing.moved;
    add_reused(a, j);
    if (j->index == 0) {
        a->miss = j->miss;
        note_times(a, j, j->ended);
    }
    a->seconds = j->ended - a->x->begun;
}

/* Writes a line of the log with the sizes and times of a request, and never with its text. */
static void write_log(const struct answer *a)
{
    const struct serve_options *o = &a->server->o;
    char *line = NULL;
    if (!o->on_log) return;
    json_t *j = json_pack("{s:I, s:I, s:s, s:b, s:b, s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}",
                          "time", (json_int_t)time(NULL), "request", (json_int_t)a->x->id, "path",
                          a->x->path, "failed", a->failed, "left", exchange_gone(a->x), "choices",
                          (int)a->ask.choices, "prompt_tokens", (json_int_t)a->prompt_tokens,
                          "cached_tokens", (json_int_t)a->reused, "fetched_tokens",
                          (json_int_t)a->fetched, "computed_tokens", (json_int_t)a->computed,
                          "new_tokens", (json_int_t)a->new_tokens, "wait_seconds", a->waited,
                          "first_token_seconds", a->first, "seconds", a->seconds);
    if (j && json_text(j, &line) >= 0) o->on_log(o->ctx, line);
    mem_free(line);
    json_decref(j);
}

/* Sends the end of an answer, and frees the answer. */
static void complete(struct crew_work *w)
{
    struct answer *a = (struct answer *)w;
    if (!a->failed && a->ask.stream) {
        if (a->protocol->done) a->protocol->done(a);
    } else if (!a->failed)
        exchange_json(a->x, 200, a->protocol->whole(a));
    if (a->begun) exchange_finish(a->x);
    answer_free(a);
}

static void complete_at_end(struct crew_work *w, int status, const char *sentence)
{
    (void)status, (void)sentence;
    complete(w);
}

static bool is_quick(const struct answer *a)
{
    return a->x->n_body <= QUICK_BODY && (a->ask.stream || a->probabilities <= QUICK_PROBABILITIES);
}

/* Finds the stop string that ended a text: the one that was complete first, and of two such the longer one. */
static void find_stop(const struct answer *a, struct choice *c, const kvik_row *row)
{
    json_t *one, *list = json_object_get(a->ask.options, "stop_strings");
    const char *first = NULL, *found = NULL;
    char *text = NULL;
    size_t i, n;
    if (row->finish != KVIK_FINISH_STOP ||
        kvik_tokenizer_decode(a->server->tokenizer, row->ids + row->n_prompt,
                              row->n - row->n_prompt, true, &text, &n) < 0)
        return;
    json_array_foreach(list, i, one)
    {
        const char *stop = json_string_value(one), *at = strstr(text, stop),
                   *end = at ? at + strlen(stop) : NULL;
        if (!end || (found && (end > first || (end == first && strlen(stop) < strlen(found)))))
            continue;
        first = end;
        found = stop;
    }
    if (found) c->stop = mem_strdup(found);
    kvik_free(text);
}

/* Remembers the tokens of a whole answer for the next turn.  Demanded calls are not remembered, because they lack
 * the marks of the template.  If a stop string ended the text, its tokens are remembered too, although the text
 * lacks it. */
static void remember(const struct answer *a, const struct choice *c, const kvik_row *row)
{
    struct digest d = a->ask.history;
    if (!a->ask.messages || a->ask.demanded ||
        (c->finish != KVIK_FINISH_EOS && c->finish != KVIK_FINISH_LENGTH))
        return;
    json_t *m = answer_message(c);
    replay_add(&d, m);
    replay_keep(a->server->replay, &d, row->ids, row->n);
    json_decref(m);
}

static void on_over(struct job *j, const kvik_row *row, int code, const char *sentence)
{
    struct answer *a = j->owner;
    struct choice *c = &a->choice[j->index];
    if (row && j->g.num_beams > 1) { /* beams do not stream their tokens */
        for (size_t i = row->n_prompt; c->ids && i < row->n; i++)
            json_array_append_new(c->ids, json_integer(row->ids[i]));
        c->new_tokens = row->n - row->n_prompt;
        if (a->ask.stream) begin(a);
        hear(a, c, row->text ? row->text : "");
    }
    if (row && c->spoken) {
        if (a->ask.stream) begin(a);
        (void)spoken_end(c->spoken);
    }
    c->over = true;
    if (row) c->finish = row->finish;
    if (row) find_stop(a, c, row);
    if (row) remember(a, c, row);
    if (a->slot >= 0 && j->index == 0)
        slots_end(a->server->slots, (uint32_t)a->slot,
                  row ? &(struct slot_text){row->ids, row->n, j->salt, !j->salt[0] && !j->cache}
                      : NULL);
    add_up(a, j);
    if (!row) fail(a, code, sentence);
    if (row && a->ask.stream && !a->failed) {
        begin(a); /* in case the text has no token at all */
        if (a->protocol->ending) a->protocol->ending(a, c);
    }
    j->next = a->over;
    a->over = j;
    if (--a->left > 0) return;
    write_log(a);
    if (is_quick(a) || crew_put(a->server->desk, &a->work) < 0) complete(&a->work);
}

const struct job_calls answer_calls = {.text = on_text, .progress = on_progress, .over = on_over};
