/* replay.c - what conversations are in tokens; see replay.h.
 *
 * The table is a ring: the oldest conversation makes room.  A conversation of 30 turns has 30 entries, one for each
 * place where it can be continued, so an entry holds its own ids and the ring is bounded in ids as well as in entries. */
#include "serve/replay.h"

#include <pthread.h>
#include <string.h>

enum { ENTRIES = 4096, MOST_IDS = 8 << 20 };
enum { MOST_BEHIND = 8 }; /* tokens of a template behind the one that ends a turn */

struct entry {
    uint8_t key[DIGEST_BYTES];
    int32_t *ids; /* [n] owned, NULL: free */
    size_t n;
};

struct replay {
    pthread_mutex_t lock;
    struct entry entry[ENTRIES];
    uint32_t next; /* the entry that is written next, the oldest */
    uint32_t tail; /* the oldest that still has ids */
    size_t ids;    /* in all entries */
};

int replay_open(struct replay **out)
{
    struct replay *r = mem_alloc(sizeof *r);
    if (!r) return ERR_NOMEM;
    pthread_mutex_init(&r->lock, NULL);
    *out = r;
    return 0;
}

void replay_close(struct replay *r)
{
    if (!r) return;
    for (uint32_t i = 0; i < ENTRIES; i++)
        mem_free(r->entry[i].ids);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

/* --- Digests. */

/* Adds a value as text that does not depend on the order of keys or on spaces. */
static void add_value(struct digest *d, const json_t *v)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    digest_text(d, text ? text : "");
    free(text); /* check-ok: jansson's own */
}

void replay_begin(struct digest *d, const json_t *kwargs, uint64_t client)
{
    digest_begin(d);
    digest_u64(d, client);
    json_t *others = json_copy((json_t *)(uintptr_t)kwargs);
    /* Of the end of a prompt alone: they differ between an answer and the next turn. */
    json_object_del(others, "add_generation_prompt");
    json_object_del(others, "continue_final_message");
    add_value(d, others);
    json_decref(others);
}

/* With its length: a string of JSON may have a NUL. */
static void add_string(struct digest *d, const json_t *s)
{
    size_t n = json_string_length(s);
    digest_u64(d, n);
    if (n) digest_add(d, json_string_value(s), n);
}

static void add_trimmed(struct digest *d, const char *s, size_t n)
{
    while (n && strchr(" \t\r\n", *s) && *s)
        s++, n--;
    while (n && strchr(" \t\r\n", s[n - 1]) && s[n - 1])
        n--;
    digest_u64(d, n);
    digest_add(d, s, n);
}

/* Arguments are JSON, as a string or as a value; clients spell them anew. */
static void add_call(struct digest *d, const json_t *call)
{
    const json_t *f = json_object_get(call, "function"), *arguments;
    const char *name = json_string_value(json_object_get(f ? f : call, "name"));
    json_t *parsed = NULL;
    arguments = json_object_get(f ? f : call, "arguments");
    digest_text(d, name ? name : "");
    if (json_is_string(arguments) &&
        json_parse(json_string_value(arguments), json_string_length(arguments), "arguments",
                   &parsed) >= 0)
        arguments = parsed;
    add_value(d, arguments);
    json_decref(parsed);
}

void replay_add(struct digest *d, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    add_string(d, json_object_get(message, "role"));
    add_trimmed(d, json_is_string(content) ? json_string_value(content) : "",
                json_string_length(content));
    digest_u64(d, json_array_size(calls));
    json_array_foreach(calls, i, call)
    {
        add_call(d, call);
    }
    add_string(d, json_object_get(message, "name"));
    add_string(d, json_object_get(message, "tool_call_id"));
}

static void key_of(const struct digest *d, uint8_t key[DIGEST_BYTES])
{
    struct digest copy = *d;
    digest_end(&copy, key);
}

/* --- The ring. */

static void forget(struct replay *r, uint32_t i)
{
    r->ids -= r->entry[i].n;
    mem_free(r->entry[i].ids);
    r->entry[i] = (struct entry){0};
}

static struct entry *find(struct replay *r, const uint8_t key[DIGEST_BYTES])
{
    for (uint32_t i = 0; i < ENTRIES; i++)
        if (r->entry[i].ids && !memcmp(r->entry[i].key, key, DIGEST_BYTES)) return &r->entry[i];
    return NULL;
}

void replay_keep(struct replay *r, const struct digest *d, const int32_t *ids, size_t n)
{
    uint8_t key[DIGEST_BYTES];
    int32_t *copy = n <= MOST_IDS ? mem_array(n, sizeof *copy) : NULL;
    if (!copy) return;
    memcpy(copy, ids, n * sizeof *copy);
    key_of(d, key);
    pthread_mutex_lock(&r->lock);
    struct entry *old = find(r, key);
    if (old) forget(r, (uint32_t)(old - r->entry)); /* the newest answer wins */
    if (r->entry[r->next].ids) forget(r, r->next);
    while (r->ids + n > MOST_IDS) {
        if (r->entry[r->tail].ids) forget(r, r->tail);
        r->tail = (r->tail + 1) % ENTRIES;
    }
    struct entry *e = &r->entry[r->next];
    memcpy(e->key, key, sizeof key);
    e->ids = copy;
    e->n = n;
    r->ids += n;
    r->next = (r->next + 1) % ENTRIES;
    if (r->next == r->tail) r->tail = (r->tail + 1) % ENTRIES;
    pthread_mutex_unlock(&r->lock);
}

bool replay_find(struct replay *r, const struct digest *d, int32_t **ids, size_t *n)
{
    uint8_t key[DIGEST_BYTES];
    int32_t *copy = NULL;
    key_of(d, key);
    pthread_mutex_lock(&r->lock);
    const struct entry *e = find(r, key);
    if (e && (copy = mem_array(e->n, sizeof *copy))) {
        memcpy(copy, e->ids, e->n * sizeof *copy);
        *n = e->n;
    }
    pthread_mutex_unlock(&r->lock);
    *ids = copy;
    return copy != NULL;
}

/* --- Rendering. */

struct span {
    int32_t *ids; /* owned by the library */
    size_t n;
};

/* Encodes the first n messages as a conversation that nobody continues yet.  content: NULL, or what the last one says in
 * place of its own text. */
static int encode_head(const struct server *s, const struct ask *k, size_t n, const char *content,
                       struct span *out)
{
    json_t *head = json_array(), *kwargs = json_copy(k->kwargs);
    int e = head && kwargs ? 0 : ERR(NOMEM, "out of memory");
    for (size_t i = 0; e >= 0 && i < n; i++)
        json_array_append(head, json_array_get(k->messages, i));
    if (e >= 0 && content) {
        json_t *last = json_copy(json_array_get(head, n - 1));
        json_object_set_new(last, "content", json_string(content));
        e = json_array_set_new(head, n - 1, last) < 0 ? ERR(NOMEM, "out of memory") : 0;
    }
    json_object_del(kwargs, "add_generation_prompt");
    json_object_del(kwargs, "continue_final_message");
    if (e >= 0) e = ask_encode(s, head, kwargs, &out->ids, &out->n);
    json_decref(head);
    json_decref(kwargs);
    return e;
}

static bool ends_turn(const struct server *s, int32_t id)
{
    for (uint32_t i = 0; i < s->n_eos; i++)
        if (s->eos[i] == id) return true;
    return false;
}

static size_t same_end(const struct span *a, const struct span *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->ids[a->n - 1 - n] == b->ids[b->n - 1 - n])
        n++;
    return n;
}

/* True if the last n tokens of x are all the text that the ends of x and y have in common. */
static bool is_whole_end(const struct server *s, const struct span *x, const struct span *y,
                         size_t n)
{
    char *text[3] = {NULL};
    size_t len[3] = {0}, same = 0;
    const struct span part[3] = {*x, *y, {x->ids + x->n - n, n}};
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < 3; i++)
        e = kvik_tokenizer_decode(s->tokenizer, part[i].ids, part[i].n, false, &text[i], &len[i]);
    while (e >= 0 && same < MIN(len[0], len[1]) &&
           text[0][len[0] - 1 - same] == text[1][len[1] - 1 - same])
        same++;
    bool whole = e >= 0 && same == len[2];
    for (uint32_t i = 0; i < 3; i++)
        kvik_free(text[i]);
    return whole;
}

/* Finds in `head` the end of its last message where no token of the model ends it: behind it stands what the
 * template puts there whatever the message says, so two other texts stand in for the message.  Returns 0 where the last
 * letters of the message and the first ones of the template are one token. */
static size_t find_end(const struct server *s, const struct ask *k, size_t messages,
                       const struct span *head)
{
    struct span x = {0}, y = {0};
    size_t end = 0;
    if (encode_head(s, k, messages, "x", &x) >= 0 && encode_head(s, k, messages, "1.", &y) >= 0) {
        size_t n = same_end(&x, &y);
        if (n < MIN(x.n, y.n) && same_end(head, &x) >= n && same_end(head, &y) >= n &&
            is_whole_end(s, &x, &y, n))
            end = head->n - n;
    }
    kvik_free(x.ids);
    kvik_free(y.ids);
    return end;
}

/* Joins remembered ids with what `full` has behind the end of the turn that `head`, the first messages, ends with.  Returns 1,
 * or 0 if the template does not render the first messages alike with and without those that follow. */
static int join(struct ask *k, const struct server *s, size_t messages, const struct span *said,
                const struct span *head, const struct span *full)
{
    size_t end = head->n;
    if (head->n > full->n || memcmp(head->ids, full->ids, head->n * sizeof *head->ids) != 0)
        return 0;
    if (!said->n) return 0;
    const int32_t last = said->ids[said->n - 1];
    while (end && !ends_turn(s, head->ids[end - 1]))
        end--;
    if (!end || head->n - end > MOST_BEHIND) { /* none, or one of an earlier message */
        end = find_end(s, k, messages, head);
        end += end && end < head->n && head->ids[end] == last && ends_turn(s, last);
    } else if (!ends_turn(s, last)) {
        end--; /* its end was not chosen but comes from the template */
    }
    if (!end) return 0;
    size_t rest = full->n - end;
    int32_t *ids = mem_array(said->n + rest, sizeof *ids);
    if (!ids) return ERR_NOMEM;
    memcpy(ids, said->ids, said->n * sizeof *ids);
    memcpy(ids + said->n, full->ids + end, rest * sizeof *ids);
    mem_free(k->ids);
    k->ids = ids;
    k->n = said->n + rest;
    k->replayed = said->n;
    return 1;
}

/* Looks for the longest part of the conversation that ends with a remembered answer. */
static size_t find_answer(struct ask *k, const struct server *s, uint64_t client, struct span *said)
{
    size_t n = json_array_size(k->messages), found = 0;
    replay_begin(&k->history, k->kwargs, client);
    digest_text(&k->history, k->salt);
    for (size_t i = 0; i < n; i++) {
        const json_t *m = json_array_get(k->messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        struct span one = {0};
        replay_add(&k->history, m);
        if (!role || strcmp(role, "assistant") != 0 || i + 1 == n) continue;
        if (!replay_find(s->replay, &k->history, &one.ids, &one.n)) continue;
        mem_free(said->ids);
        *said = one;
        found = i + 1;
    }
    return found;
}

int replay_render(struct ask *k, const struct server *s, uint64_t client)
{
    struct span said = {0}, head = {0};
    TRY(ask_render(k, s));
    size_t messages = find_answer(k, s, client, &said);
    const struct span full = {k->ids, k->n};
    int e = 0;
    bool same = messages && said.n <= k->n && !memcmp(said.ids, k->ids, said.n * sizeof *said.ids);
    if (messages && !same) {
        /* A template may refuse a conversation that is cut; then the whole prompt stays. */
        if (encode_head(s, k, messages, NULL, &head) >= 0)
            e = join(k, s, messages, &said, &head, &full);
    }
    kvik_free(head.ids);
    mem_free(said.ids);
    return MIN(e, 0);
}
