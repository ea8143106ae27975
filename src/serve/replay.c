/* replay.c - the tokens of conversations; see replay.h.
 *
 * The table is a ring, in which the oldest conversation makes room for a new one.  A conversation of 30 turns has 30 entries, one for each
 * turn from which it can be continued.  So an entry owns its ids, and the ring has a limit of ids as well as of entries. */
#include "serve/replay.h"

#include <pthread.h>
#include <string.h>

enum { ENTRIES = 4096, MOST_IDS = 8 << 20 };
enum { MOST_TAIL = 128 }; /* how many tokens may hold the end of a message */

struct remembered {
    uint8_t key[DIGEST_BYTES];
    int32_t *ids; /* [n] owned, NULL: free */
    size_t n;
};

struct replay {
    pthread_mutex_t lock;
    struct remembered entry[ENTRIES];
    uint32_t next; /* the oldest entry, which the next answer replaces */
    uint32_t tail; /* the oldest that still has ids */
    size_t ids;    /* sum over all entries */
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

/* Adds a value as text, independent of the order of keys and of spaces. */
static void add_value(struct digest *d, const json_t *v)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    digest_text(d, text ? text : "");
    free(text); /* check-ok: memory of jansson, which is freed by free */
}

void replay_begin(struct digest *d, const json_t *kwargs, uint64_t client)
{
    digest_begin(d);
    digest_u64(d, client);
    json_t *others = json_copy((json_t *)(uintptr_t)kwargs);
    /* these variables affect only the end of a prompt, and they differ between an answer and the next turn */
    json_object_del(others, "add_generation_prompt");
    json_object_del(others, "continue_final_message");
    add_value(d, others);
    json_decref(others);
}

/* Adds a string with its length, since a string of JSON may have a NUL. */
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

/* Adds a call.  Its arguments are JSON, as a string or as a value, which clients spell anew. */
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
    r->entry[i] = (struct remembered){0};
}

static struct remembered *entry_of(struct replay *r, const uint8_t key[DIGEST_BYTES])
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
    struct remembered *old = entry_of(r, key);
    if (old) forget(r, (uint32_t)(old - r->entry)); /* the newest answer wins */
    if (r->entry[r->next].ids) forget(r, r->next);
    while (r->ids + n > MOST_IDS) {
        if (r->entry[r->tail].ids) forget(r, r->tail);
        r->tail = (r->tail + 1) % ENTRIES;
    }
    struct remembered *e = &r->entry[r->next];
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
    const struct remembered *e = entry_of(r, key);
    if (e && (copy = mem_array(e->n, sizeof *copy))) {
        memcpy(copy, e->ids, e->n * sizeof *copy);
        *n = e->n;
    }
    pthread_mutex_unlock(&r->lock);
    *ids = copy;
    return copy != NULL;
}

/* --- Rendering. */

struct token_span {
    int32_t *ids; /* owned by the library */
    size_t n;
};

/* Encodes the first n messages, without opening an answer.  last: NULL, or a message in place of the last one. */
static int encode_head(const struct server *s, const struct ask *k, size_t n, json_t *last,
                       struct token_span *out)
{
    json_t *head = json_array(), *kwargs = json_copy(k->kwargs);
    int e = head && kwargs ? 0 : ERR(NOMEM, "out of memory");
    for (size_t i = 0; e >= 0 && i < n; i++)
        json_array_append(head, last && i + 1 == n ? last : json_array_get(k->messages, i));
    json_object_del(kwargs, "add_generation_prompt");
    json_object_del(kwargs, "continue_final_message");
    if (e >= 0) e = ask_encode(s, head, kwargs, &out->ids, &out->n);
    json_decref(head);
    json_decref(kwargs);
    return e;
}

/* Replaces the name and the arguments of a call by `word`. */
static void replace_call(json_t *call, const char *word)
{
    json_t *f = json_object_get(call, "function"), *to = f ? f : call;
    json_t *arguments = json_pack("{s:s}", word, word);
    char *text = NULL;
    if (json_is_string(json_object_get(to, "arguments")) && json_text(arguments, &text) >= 0) {
        json_decref(arguments);
        arguments = json_string(text);
        mem_free(text);
    }
    json_object_set_new(to, "name", json_string(word));
    json_object_set_new(to, "arguments", arguments);
}

/* Returns a message of the same kind that says `word`: in its calls if it has calls, else in its text. */
static json_t *stand_in(const json_t *message, const char *word)
{
    json_t *m = json_deep_copy(message), *call;
    const json_t *calls = json_object_get(m, "tool_calls");
    size_t i;
    json_array_foreach(calls, i, call)
    {
        replace_call(call, word);
    }
    if (!json_array_size(calls)) json_object_set_new(m, "content", json_string(word));
    return m;
}

/* --- Where a message ends. */

static bool ends_turn(const struct server *s, int32_t id)
{
    for (uint32_t i = 0; i < s->n_eos; i++)
        if (s->eos[i] == id) return true;
    return false;
}
struct tail {
    char *text; /* text of the last tokens; owned by the library */
    size_t n;
};

static int tail_of(const struct server *s, const struct token_span *a, size_t tokens,
                   struct tail *out)
{
    size_t n = MIN(a->n, tokens);
    return kvik_tokenizer_decode(s->tokenizer, a->ids + a->n - n, n, false, &out->text, &out->n);
}

static size_t same_end(const struct tail *a, const struct tail *b)
{
    size_t n = 0;
    while (n < MIN(a->n, b->n) && a->text[a->n - 1 - n] == b->text[b->n - 1 - n])
        n++;
    return n;
}

/* Returns how many of the last n bytes of `head` stand at the end of `said` already. */
static size_t overlap(const struct tail *said, const struct tail *head, size_t n)
{
    const char *end = head->text + head->n - n;
    size_t k = MIN(n, said->n);
    while (k && memcmp(said->text + said->n - k, end, k) != 0)
        k--;
    return k;
}

/* Returns the place in `head` behind `bytes` of its text.  If `last` is not negative: the place behind the last such
 * token among these bytes.  0: there is none. */
static size_t place(const struct server *s, const struct token_span *head, size_t bytes,
                    int32_t last)
{
    for (size_t m = 0; m <= MIN(head->n - 1, MOST_TAIL); m++) {
        struct tail t = {0};
        if (tail_of(s, head, m + (last >= 0), &t) < 0) return 0;
        kvik_free(t.text);
        if (t.n > bytes) return 0;
        if (last >= 0 ? head->ids[head->n - 1 - m] == last : t.n == bytes) return head->n - m;
    }
    return 0;
}

/* Finds the end of what was said.  `head` ends with text that the template puts behind every message of this kind:
 * the end that `head` has in common with two other messages, x and y.  The model says the first part of that text
 * itself: the token that ends a turn, and the mark that closes a call. */
static size_t end_among(const struct server *s, const struct token_span *said, bool calls,
                        const struct token_span *head, const struct token_span *x,
                        const struct token_span *y)
{
    const int32_t last = said->ids[said->n - 1];
    const bool ended = ends_turn(s, last);
    const struct token_span own = {said->ids, said->n - ended}, *all[] = {&own, head, x, y};
    struct tail t[countof(all)] = {0};
    size_t end = 0;
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < countof(all); i++)
        e = tail_of(s, all[i], MOST_TAIL, &t[i]);
    if (e >= 0) {
        size_t others = same_end(&t[2], &t[3]),
               n = MIN(others, MIN(same_end(&t[1], &t[2]), same_end(&t[1], &t[3])));
        size_t twice = calls ? overlap(&t[0], &t[1], n) : 0;
        if (ended) end = place(s, head, n, last);
        if (!end && others < MIN(t[2].n, t[3].n) && (calls ? twice > 0 : n == others))
            end = place(s, head, n - twice, -1);
    }
    for (uint32_t i = 0; i < countof(all); i++)
        kvik_free(t[i].text);
    return end;
}

/* Finds the end of the last message in `head`; its tokens were `said`.  Returns 0 if the end lies inside a token. */
static size_t find_end(const struct server *s, const struct ask *k, size_t messages,
                       const struct token_span *said, const struct token_span *head)
{
    const json_t *m = json_array_get(k->messages, messages - 1);
    json_t *one = stand_in(m, "x"), *two = stand_in(m, "1.");
    struct token_span x = {0}, y = {0};
    size_t end = 0;
    if (one && two && encode_head(s, k, messages, one, &x) >= 0 &&
        encode_head(s, k, messages, two, &y) >= 0)
        end =
            end_among(s, said, json_array_size(json_object_get(m, "tool_calls")) > 0, head, &x, &y);
    kvik_free(x.ids);
    kvik_free(y.ids);
    json_decref(one);
    json_decref(two);
    return end;
}

/* Joins remembered ids with the part of `full` behind the last turn of `head`, which has the first messages only.
 * Returns 1, or 0 if the template renders the first messages otherwise when others follow. */
static int join(struct ask *k, const struct server *s, size_t messages,
                const struct token_span *said, const struct token_span *head,
                const struct token_span *full)
{
    if (head->n > full->n || memcmp(head->ids, full->ids, head->n * sizeof *head->ids) != 0)
        return 0;
    size_t end = said->n ? find_end(s, k, messages, said, head) : 0;
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

/* Finds the longest part of the conversation that ends with a remembered answer. */
static size_t find_answer(struct ask *k, const struct server *s, uint64_t client,
                          struct token_span *said)
{
    size_t n = json_array_size(k->messages), found = 0;
    replay_begin(&k->history, k->kwargs, client);
    digest_text(&k->history, k->salt);
    for (size_t i = 0; i < n; i++) {
        const json_t *m = json_array_get(k->messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        struct token_span one = {0};
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
    struct token_span said = {0}, head = {0};
    TRY(ask_render(k, s));
    size_t messages = find_answer(k, s, client, &said);
    const struct token_span full = {k->ids, k->n};
    int e = 0;
    bool same = messages && said.n <= k->n && !memcmp(said.ids, k->ids, said.n * sizeof *said.ids);
    if (messages && !same) {
        /* If a template refuses a cut conversation, the whole prompt stays. */
        if (encode_head(s, k, messages, NULL, &head) >= 0)
            e = join(k, s, messages, &said, &head, &full);
    }
    kvik_free(head.ids);
    mem_free(said.ids);
    return MIN(e, 0);
}
