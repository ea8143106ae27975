/* slots.c - GET /slots, and POST /slots/N?action=save, restore or erase; see slots.h. */
#include "serve/slots.h"
#include "serve/filing.h"
#include "serve/protocol.h"

#include <pthread.h>
#include <string.h>

struct text_slot {
    int32_t *ids; /* [n] owned, NULL: empty */
    size_t n;
    uint64_t used;        /* number of its last use */
    uint32_t running;     /* texts that are being written in it */
    bool shared;          /* the text is in the cache that all requests share, without a salt */
    char salt[KEYS_SALT]; /* salt of the request whose text this is */
};

struct slots {
    pthread_mutex_t lock;
    uint64_t uses;
    uint32_t n;
    struct text_slot slot[];
};

int slots_open(uint32_t n, struct slots **out)
{
    struct slots *s = mem_alloc(sizeof *s + n * sizeof *s->slot);
    if (!s) return ERR_NOMEM;
    pthread_mutex_init(&s->lock, NULL);
    s->n = n;
    *out = s;
    return 0;
}

void slots_close(struct slots *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->n; i++)
        mem_free(s->slot[i].ids);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* True if a text begins with the tokens of a slot, and is from a request with the same salt.  The answer names the
 * slot, so another salt would be told what others have asked. */
static bool continues(const struct text_slot *t, const struct slot_text *x)
{
    return t->ids && t->n <= x->n && !strcmp(t->salt, x->salt) &&
           !memcmp(t->ids, x->ids, t->n * sizeof *x->ids);
}

static uint32_t choose(const struct slots *s, const struct slot_text *x)
{
    uint32_t best = s->n, free = 0;
    for (uint32_t i = 0; i < s->n; i++)
        free += !s->slot[i].running;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct text_slot *t = &s->slot[i], *b = best < s->n ? &s->slot[best] : NULL;
        if (free && t->running) continue;
        size_t longer = continues(t, x) ? t->n : 0, least = b && continues(b, x) ? b->n : 0;
        if (!b || longer > least || (longer == least && t->used < b->used)) best = i;
    }
    return best;
}

uint32_t slots_begin(struct slots *s, int wish, const struct slot_text *x)
{
    pthread_mutex_lock(&s->lock);
    uint32_t i = wish >= 0 && (uint32_t)wish < s->n ? (uint32_t)wish : choose(s, x);
    s->slot[i].running++;
    pthread_mutex_unlock(&s->lock);
    return i;
}

void slots_put(struct slots *s, uint32_t i, const struct slot_text *x)
{
    int32_t *copy = mem_array(x->n ? x->n : 1, sizeof *copy);
    if (!copy) return; /* the earlier text stays */
    if (x->n) memcpy(copy, x->ids, x->n * sizeof *copy);
    pthread_mutex_lock(&s->lock);
    struct text_slot *t = &s->slot[i];
    mem_free(t->ids);
    *t = (struct text_slot){
        .ids = copy, .n = x->n, .used = ++s->uses, .running = t->running, .shared = x->shared};
    snprintf(t->salt, sizeof t->salt, "%s", x->salt);
    pthread_mutex_unlock(&s->lock);
}

void slots_end(struct slots *s, uint32_t i, const struct slot_text *x)
{
    pthread_mutex_lock(&s->lock);
    s->slot[i].running--;
    pthread_mutex_unlock(&s->lock);
    if (x) slots_put(s, i, x);
}

static bool slots_busy(struct slots *s, uint32_t i)
{
    pthread_mutex_lock(&s->lock);
    bool busy = s->slot[i].running > 0;
    pthread_mutex_unlock(&s->lock);
    return busy;
}

int slots_get(struct slots *s, uint32_t i, struct ask_text *out)
{
    pthread_mutex_lock(&s->lock);
    const struct text_slot *t = &s->slot[i];
    bool empty = !t->n, shared = t->shared;
    *out = (struct ask_text){.n = t->n, .ids = mem_array(t->n + 1, sizeof *out->ids)};
    if (out->ids && t->n) memcpy(out->ids, t->ids, t->n * sizeof *t->ids);
    pthread_mutex_unlock(&s->lock);
    if (empty) return ERR(ARG, "slot %u has no text", i);
    if (!shared)
        return ERR(
            UNSUPPORTED,
            "the text of slot %u is not saved: it has a key, a cache_salt or a cache_implementation of its own, and a file "
            "would give its rows to others",
            i);
    return out->ids ? 0 : ERR_NOMEM;
}

/* Forgets the text of a slot, and returns the number of its tokens.  0: the slot is empty, or its text is not from
 * requests with this salt. */
static size_t slots_erase(struct slots *s, uint32_t i, const char *salt)
{
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    struct text_slot *t = &s->slot[i];
    if (!strcmp(t->salt, salt)) {
        n = t->n;
        mem_free(t->ids);
        *t = (struct text_slot){.running = t->running};
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* --- Requests. */

static int erase(struct server *s, struct exchange *x, uint32_t i)
{
    char salt[KEYS_SALT];
    json_t *body = NULL;
    if (x->n_body) TRY(body_read(x, &body));
    int e = ask_salt(s, x, body, salt);
    json_decref(body);
    if (e < 0) return e;
    exchange_json(x, 200,
                  json_pack("{s:i, s:I}", "id_slot", (int)i, "n_erased",
                            (json_int_t)slots_erase(s->slots, i, salt)));
    return 0;
}

static int act(struct server *s, struct exchange *x)
{
    const char *at = x->path + strlen("/slots/"), *query = x->query ? x->query : "";
    char *end;
    unsigned long i = strtoul(at, &end, 10);
    if (end == at || *end || i >= s->o.parallel)
        return ERR(ARG, "there is no slot %.20s; slots are 0 to %u", at, s->o.parallel - 1);
    if (!s->o.slot_dir)
        return ERR(UNSUPPORTED,
                   "slots are not saved here; --slot-save-path gives them a directory");
    if (!strcmp(query, "action=save")) return filing_save(s, x, (uint32_t)i);
    if (!strcmp(query, "action=restore")) return filing_restore(s, x, (uint32_t)i);
    if (strcmp(query, "action=erase") != 0)
        return ERR(
            ARG, "a slot has the actions save, restore and erase: POST /slots/%lu?action=save", i);
    return erase(s, x, (uint32_t)i);
}

static int list_slots(struct server *s, struct exchange *x)
{
    json_t *all = json_array();
    for (uint32_t i = 0; all && i < s->o.parallel; i++)
        json_array_append_new(all, json_pack("{s:i, s:I, s:b}", "id", (int)i, "n_ctx",
                                             (json_int_t)server_capacity(s), "is_processing",
                                             slots_busy(s->slots, i)));
    exchange_json(x, 200, all);
    return 0;
}

static const struct route slot_routes[] = {
    {"/slots", EXCHANGE_GET, .light = true, .protocol = &protocol_openai, .answer = list_slots},
    {"/slots/", EXCHANGE_POST, .below = true, .protocol = &protocol_openai, .answer = act},
};
ROUTES(slot_routes);
