/* chat_limit.c - the length limit of a conversation.  With --context-full drop the oldest exchanges behind the
 * system message are dropped at the limit, so that a conversation can go on forever.  Several are dropped at once,
 * because after each drop the cache must recompute the rest of the conversation. */
#include "cli/cmd_chat.h"

#include <string.h>

/* Returns the limit of the model and of the cache, which does not change during a chat. */
static struct chat_limit cache_limit(const struct chat *c)
{
    const kvik_generation *g = &c->s.g;
    struct chat_limit l = {.tokens = engine_context(&c->s)};
    int64_t given = engine_configured(g, "max_cache_len");
    uint32_t inner = given > 0 ? (uint32_t)given : 0, most = inner ? inner : g->max_cache_len;
    snprintf(l.name, sizeof l.name, "the model's context of %u tokens", l.tokens);
    if (most && most < l.tokens) {
        l.tokens = most;
        snprintf(l.name, sizeof l.name, "max_cache_len %u", most);
        snprintf(l.raise, sizeof l.raise, "raise %s, ",
                 inner ? "max_cache_len in --cache-config" : "--max-cache-len");
    }
    return l;
}

uint32_t chat_cache_len(const struct chat *c)
{
    return cache_limit(c).tokens;
}

struct chat_limit chat_limit(const struct chat *c)
{
    const kvik_generation *g = &c->s.g;
    struct chat_limit l = cache_limit(c);
    if (!g->max_new_tokens && g->max_length && g->max_length < l.tokens) {
        l.tokens = g->max_length;
        snprintf(l.name, sizeof l.name, "max_length %u", l.tokens);
        snprintf(l.raise, sizeof l.raise, "raise max_length, ");
    }
    return l;
}

/* Renders the whole conversation as tokens, up to the place where the reply begins. */
static int encode_conversation(const struct chat *c, const json_t *conversation, int32_t **ids,
                               size_t *n)
{
    char *messages;
    TRY(json_text(conversation, &messages));
    const kvik_chat chat = {
        .size = sizeof chat, .json = messages, .kwargs = "{\"add_generation_prompt\": true}"};
    int e = kvik_chat_encode(kvik_model_tokenizer(c->s.model), &chat, ids, n, NULL);
    mem_free(messages);
    return e;
}

static bool says(const json_t *messages, size_t i, const char *role)
{
    const char *s = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return s && !strcmp(s, role);
}

/* Removes the user's oldest message with its reply, but never the last message.  Returns false if there is none to
 * remove. */
static bool drop_oldest(json_t *messages)
{
    size_t first = 0, n = json_array_size(messages), next;
    while (says(messages, first, "system"))
        first++;
    for (next = first + 1; next < n && !says(messages, next, "user"); next++)
        ;
    if (next >= n) return false;
    for (; next > first; next--)
        json_array_remove(messages, first);
    return true;
}

/* Returns how often drop_oldest can remove an exchange. */
static size_t exchanges(const json_t *messages)
{
    json_t *rest = json_copy((json_t *)(uintptr_t)messages);
    size_t n = 0;
    while (rest && drop_oldest(rest))
        n++;
    json_decref(rest);
    return n;
}

/* Encodes the conversation without its `drop` oldest exchanges. */
static int encode_without(const struct chat *c, const json_t *messages, size_t drop, int32_t **ids,
                          size_t *n)
{
    json_t *rest = json_copy((json_t *)(uintptr_t)messages);
    if (!rest) return ERR(NOMEM, "out of memory");
    for (size_t i = 0; i < drop; i++)
        drop_oldest(rest);
    kvik_free(*ids);
    *ids = NULL;
    int e = encode_conversation(c, rest, ids, n);
    json_decref(rest);
    return e;
}

/* Drops as few of the oldest exchanges as leave at most `most` tokens, or all that can be dropped.  Encoding takes
 * time in proportion to the conversation, so the number is found by bisection. */
static int drop_to(struct chat *c, size_t most, int32_t **ids, size_t *n, size_t *dropped)
{
    json_t *messages = chat_here(c)->messages;
    size_t few = 0, enough = exchanges(messages), at = 0;
    while (enough - few > 1) {
        at = few + (enough - few) / 2;
        TRY(encode_without(c, messages, at, ids, n));
        if (*n > most)
            few = at;
        else
            enough = at;
    }
    if (at != enough) TRY(encode_without(c, messages, enough, ids, n));
    for (size_t i = 0; i < enough; i++)
        drop_oldest(messages);
    *dropped = enough;
    return 0;
}

static int fail_too_long(const struct chat *c, const struct chat_limit *l, size_t n)
{
    json_t *rest = json_copy(c->branch[c->at].messages);
    bool more = rest && drop_oldest(rest);
    json_decref(rest);
    if (!more)
        return ERR(LIMIT,
                   "the message has %zu tokens with the template and the system message, and the "
                   "limit is %s; %sshorten the message",
                   n, l->name, l->raise);
    return ERR(LIMIT,
               "the conversation has %zu tokens, and the limit is %s; %sstart a new conversation "
               "with /clear, or drop the oldest exchanges with --context-full drop",
               n, l->name, l->raise);
}

int chat_fit(struct chat *c, int32_t **ids, size_t *n)
{
    const struct chat_limit l = chat_limit(c);
    json_t *messages = chat_here(c)->messages;
    /* tokens that the reply needs; tokens that a drop leaves for it and for later turns */
    size_t most = l.tokens, need = MAX(most / 8, MIN(256, most / 4)), dropped = 0;
    if (c->s.g.max_new_tokens) need = MIN(c->s.g.max_new_tokens, most / 2);
    size_t leave = MAX(need, most * 3 / 8);
    TRY(encode_conversation(c, messages, ids, n));
    const size_t before = *n;
    bool full = !c->stops_full && *n + need > most;
    if (full && *n + leave > most) TRY(drop_to(c, most - leave, ids, n, &dropped));
    if (dropped == 1)
        say_line("dropped the oldest exchange (%zu tokens) to stay within %s", before - *n, l.name);
    else if (dropped)
        say_line("dropped the %zu oldest exchanges (%zu tokens) to stay within %s", dropped,
                 before - *n, l.name);
    if (*n < most) return 0;
    int e = fail_too_long(c, &l, *n);
    kvik_free(*ids);
    *ids = NULL;
    return e;
}

void chat_limit_tell(const struct chat *c, const kvik_result *r)
{
    const struct chat_limit l = chat_limit(c);
    const kvik_row *row = r->row[0];
    if (row->n < l.tokens || row->finish == KVIK_FINISH_EOS || row->finish == KVIK_FINISH_STOP ||
        row->finish == KVIK_FINISH_CANCELLED)
        return;
    if (!c->stops_full)
        say_line(
            "the reply ended at %s; the next message makes room by dropping the oldest exchanges",
            l.name);
    else
        say_line(
            "the reply ended at %s; %sstart a new conversation with /clear, or drop the oldest "
            "exchanges with --context-full drop",
            l.name, l.raise);
}
