/* chat_branch.c - branches of a conversation.  Each branch has its own messages and its own sequence.  A forked
 * branch shares the blocks of its source up to the first token that differs. */
#include "base/near.h"
#include "cli/cmd_chat.h"

#include <string.h>

static int find_branch(const struct chat *c, const char *name, uint32_t *out)
{
    struct near near;
    near_begin(&near, name);
    for (uint32_t i = 0; i < c->n; i++) {
        near_try(&near, c->branch[i].name);
        if (strcmp(c->branch[i].name, name)) continue;
        *out = i;
        return 0;
    }
    if (near.best) return ERR(NOTFOUND, "there is no branch %s; did you mean %s?", name, near.best);
    return ERR(NOTFOUND, "there is no branch %s; /branches lists them", name);
}

int chat_reset(struct chat *c)
{
    struct branch *b = chat_here(c);
    json_t *messages = json_array();
    if (!messages) return ERR(NOMEM, "out of memory");
    json_t *first = json_incref(chat_system_of(b->messages));
    bool has = first || (!c->n && c->o->system);
    if (has && !first) first = say_message("system", c->o->system, strlen(c->o->system));
    kvik_seq seq, old = b->seq;
    int e = has && json_array_append_new(messages, first) < 0 ? ERR(NOMEM, "out of memory")
                                                              : kvik_cache_new(c->s.cache, &seq);
    if (e < 0 && c->n) { /* there is no room for a second sequence */
        e = kvik_cache_reset(c->s.cache, old);
        seq = old;
    } else if (e >= 0 && c->n) {
        e = kvik_cache_drop(c->s.cache, old); /* the prefix index keeps its rows */
    }
    if (e < 0) {
        json_decref(messages);
        return e;
    }
    b->seq = seq;
    if (!c->n) snprintf(b->name, CHAT_NAME, "main");
    c->n = MAX(c->n, 1);
    json_decref(b->messages);
    b->messages = messages;
    c->changed = true;
    return 0;
}

int chat_fork(struct chat *c, const char *name)
{
    uint32_t same;
    struct branch *from = chat_here(c), *b = &c->branch[c->n];
    if (!*name || strcspn(name, " \t/") != strlen(name) || strlen(name) >= CHAT_NAME)
        return ERR(ARG, "/fork needs a name: one word of at most %d bytes, without a slash",
                   CHAT_NAME - 1);
    if (find_branch(c, name, &same) >= 0) return ERR(ARG, "a branch %s exists already", name);
    if (c->n == CHAT_BRANCHES)
        return ERR(LIMIT, "the limit is %d branches; /drop NAME drops one", CHAT_BRANCHES);
    json_t *messages = json_copy(from->messages);
    if (!messages) return ERR(NOMEM, "out of memory");
    int e = kvik_cache_fork(c->s.cache, from->seq, &b->seq);
    if (e < 0) {
        json_decref(messages);
        return e;
    }
    b->messages = messages;
    snprintf(b->name, CHAT_NAME, "%s", name);
    c->at = c->n++;
    c->changed = true;
    struct chat_held h = {0};
    char a[16];
    (void)chat_held(c, b->seq, &h);
    fprintf(stderr, "now on %s, which shares %llu tokens (%s) with %s\n", name,
            (unsigned long long)h.tokens, bytes_text(h.shared, a), from->name);
    return 0;
}

int chat_switch(struct chat *c, const char *name)
{
    uint32_t i;
    if (!*name) return ERR(ARG, "/switch needs the name of a branch; /branches lists them");
    TRY(find_branch(c, name, &i));
    c->at = i;
    c->changed = true;
    char last[CHAT_PREVIEW];
    const json_t *m = c->branch[i].messages;
    size_t n = json_array_size(m);
    fprintf(stderr, "now on %s%s%s\n", name, n ? ", after: " : "",
            n ? chat_preview(m, n - 1, last) : "");
    return 0;
}

int chat_drop(struct chat *c, const char *name)
{
    uint32_t i;
    if (!*name) return ERR(ARG, "/drop needs the name of a branch; /branches lists them");
    TRY(find_branch(c, name, &i));
    if (i == c->at)
        return ERR(ARG, "%s is the current branch; /switch to another branch first", name);
    TRY(kvik_cache_drop(c->s.cache, c->branch[i].seq));
    json_decref(c->branch[i].messages);
    c->n--;
    memmove(&c->branch[i], &c->branch[i + 1], (c->n - i) * sizeof c->branch[i]);
    c->branch[c->n] = (struct branch){0};
    if (c->at > i) c->at--;
    c->changed = true;
    return 0;
}

int chat_list(struct chat *c)
{
    char a[16], b[16];
    for (uint32_t i = 0; i < c->n; i++) {
        struct chat_held h;
        size_t n = json_array_size(c->branch[i].messages);
        TRY(chat_held(c, c->branch[i].seq, &h));
        fprintf(stderr, "%c %-16s %4zu message%c %6llu tokens  %9s, %s of it shared\n",
                i == c->at ? '*' : ' ', c->branch[i].name, n, n == 1 ? ' ' : 's',
                (unsigned long long)h.tokens, bytes_text(h.bytes, a), bytes_text(h.shared, b));
    }
    return 0;
}

int chat_done(struct chat *c, int status)
{
    for (uint32_t i = 0; i < CHAT_BRANCHES; i++)
        json_decref(c->branch[i].messages);
    line_close(c->editor);
    chat_settings_done(c);
    mem_free(c->moved);
    buf_done(&c->next);
    return engine_close(&c->s, status);
}
