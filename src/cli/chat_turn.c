/* chat_turn.c - one exchange of a conversation.  The whole conversation is rendered with the model's template and
 * given to the library, which reuses the cached prefix.  So a turn computes only new tokens, and stays right even
 * if the template renders old turns differently. */
#include "cli/cmd_chat.h"
#include "cli/screen.h"

#include <string.h>
#include <unistd.h>

/* Fills an empty branch with the longest prefix that an earlier conversation has saved on disk or in a store. */
static int load_prefix(struct chat *c, const int32_t *ids, size_t n)
{
    struct branch *b = chat_here(c);
    kvik_seq s;
    if (kvik_cache_length(c->s.cache, b->seq)) return 0;
    int64_t got =
        c->o->prefix_cache ? stored_prefix_load(c->s.cache, c->o->prefix_cache, ids, n, &s) : 0;
    if (!got) got = engine_fetch(&c->s, ids, n, 0, &s);
    if (got <= 0) return (int)got;
    kvik_cache_drop(c->s.cache, b->seq);
    b->seq = s;
    return 0;
}

static int reply(struct chat *c, bool anew, kvik_result **res)
{
    kvik_generation g = c->s.g; /* borrows what c->s.g owns */
    uint32_t most = chat_limit(c).tokens;
    int32_t *ids = NULL;
    size_t n;
    TRY(chat_fit(c, &ids, &n));
    g.seed += c->draws++; /* otherwise every turn would draw the same numbers */
    if (anew && g.num_beams <= 1)
        g.do_sample = true; /* greedy decoding would give the same reply */
    uint32_t room = most - (uint32_t)n;
    if (c->open_ended) room = MIN(room, kvik_model_context(c->s.model));
    room = MIN(room, chat_pause(c, &g));
    g.max_new_tokens = g.max_new_tokens ? MIN(g.max_new_tokens, room) : room;
    int e = load_prefix(c, ids, n);
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = n, .seq = chat_here(c)->seq};
    c->stream.prints = true;
    c->stream.wrap = screen_is_terminal(stdout) && !screen_is_raw() ? &c->wrap : NULL;
    if (e >= 0) e = stream_generate(&c->stream, &c->s, &g, &p, 1, res);
    kvik_free(ids);
    return e;
}

/* On a terminal: prints a line under each reply with the length of the context, the reused tokens and the bytes
 * that branches share. */
static void status(struct chat *c, const kvik_result *r)
{
    char a[16], context[24];
    const kvik_sync *y = r->row[0]->sync;
    bool colour = say_colour(stderr);
    struct chat_held h = {0};
    uint64_t decoded = r->new_tokens - MIN(r->new_tokens, 1);
    (void)chat_held(c, chat_here(c)->seq, &h);
    if (colour) screen_code(stderr, "\033[2m");
    fprintf(stderr, "[%s%s%llu%s tokens, %llu reused", c->n > 1 ? chat_here(c)->name : "",
            c->n > 1 ? ": " : "", (unsigned long long)h.tokens, chat_context(c, context),
            (unsigned long long)(y ? y->reused : 0));
    if (y && y->divergence >= 0)
        fprintf(stderr, ", the text differs from the cached one from token %lld on",
                (long long)y->divergence);
    if (y && y->recomputed) fprintf(stderr, ", %llu recomputed", (unsigned long long)y->recomputed);
    if (h.shared) fprintf(stderr, ", %s shared by %u branches", bytes_text(h.shared, a), c->n);
    if (h.disk) fprintf(stderr, ", %s on disk", bytes_text(h.disk, a));
    if (decoded && r->decode_seconds > 0)
        fprintf(stderr, ", %.1f tokens/s", (double)decoded / r->decode_seconds);
    fputc(']', stderr);
    if (colour) screen_code(stderr, "\033[0m");
    fputc('\n', stderr);
}

/* For --cache-report: prints what was reused and what was recomputed. */
static void report_sync(const kvik_sync *y)
{
    if (!y) return;
    if (y->divergence >= 0 && y->cached && y->given) {
        char *was = NULL, *is = NULL; /* as JSON, so that line ends and escapes show */
        json_t *a = say_json(y->cached, strlen(y->cached)),
               *b = say_json(y->given, strlen(y->given));
        if (a && b && json_text(a, &was) >= 0 && json_text(b, &is) >= 0)
            fprintf(stderr, "       the text changed at token %lld: %s is now %s\n",
                    (long long)y->divergence, was, is);
        mem_free(was);
        mem_free(is);
        json_decref(a);
        json_decref(b);
    }
    if (y->reason)
        fprintf(stderr, "       %llu tokens recomputed: %s\n", (unsigned long long)y->recomputed,
                y->reason);
}

/* Generates and prints the reply, and adds it to the conversation. */
static int answer(struct chat *c, bool anew)
{
    kvik_result *r = NULL;
    json_t *messages = chat_here(c)->messages, *before = json_copy(messages);
    int e = before ? reply(c, anew, &r) : ERR(NOMEM, "out of memory");
    c->stopped = interrupt_seen();
    interrupt_clear();
    fflush(stdout);
    if (e >= 0 && r->row[0]->finish == KVIK_FINISH_NOT_FINITE) { /* a notice has said so */
        kvik_result_free(r);
        e = EXIT_FAILED;
    }
    if (e && before) { /* brings dropped exchanges back */
        json_array_clear(messages);
        json_array_extend(messages, before);
    }
    json_decref(before);
    if (e) return e;
    r->decode_seconds = MAX(r->decode_seconds - c->asked, 0);
    c->changed = true;
    const char *said = r->row[0]->text ? r->row[0]->text : "";
    json_t *message = say_message("assistant", said, strlen(said));
    if (!message || json_array_append_new(chat_here(c)->messages, message) < 0) {
        kvik_result_free(r);
        return ERR(NOMEM, "out of memory");
    }
    if (c->o->cache_report || c->o->common.verbose) {
        kvik_usage usage = {.size = sizeof usage};
        kvik_cache_usage(c->s.cache, &usage);
        report_cache(&c->s, &usage, r);
        report_sync(r->row[0]->sync);
    } else if (line_is_terminal(c->editor)) {
        status(c, r);
    }
    chat_limit_tell(c, r);
    chat_pause_tell(c, r);
    kvik_result_free(r);
    engine_share(&c->s, chat_here(c)->seq);
    if (c->o->prefix_cache) /* the reply is not lost if saving fails */
        e = stored_prefix_save(c->s.cache, c->o->prefix_cache, chat_here(c)->seq);
    if (e < 0) say_error(e);
    return 0;
}

static void take_back(json_t *messages)
{
    json_array_remove(messages, json_array_size(messages) - 1);
}

static const char *role_of(const json_t *messages, size_t i)
{
    const char *s = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return s ? s : "";
}

int chat_say(struct chat *c, const char *text, size_t n)
{
    json_t *messages = chat_here(c)->messages, *message = say_message("user", text, n);
    if (!message || json_array_append_new(messages, message) < 0)
        return ERR(NOMEM, "out of memory");
    int e = answer(c, false);
    if (e) take_back(messages);
    return e;
}

int chat_retry(struct chat *c)
{
    json_t *messages = chat_here(c)->messages;
    size_t n = json_array_size(messages);
    if (n < 2 || strcmp(role_of(messages, n - 1), "assistant"))
        return ERR(ARG, "there is no reply yet");
    json_t *last = json_incref(json_array_get(messages, n - 1));
    take_back(messages);
    int e = answer(c, true);
    if (e) json_array_append(messages, last);
    json_decref(last);
    return e;
}

const char *chat_preview(const json_t *messages, size_t i, char out[CHAT_PREVIEW])
{
    const char *s = json_string_value(json_object_get(json_array_get(messages, i), "content"));
    size_t n = 0;
    for (s = s ? s : ""; *s && n < CHAT_PREVIEW - 4; s++)
        out[n++] = screen_one_line(*s);
    while (*s && n && ((unsigned char)*s & 0xC0) == 0x80) /* never cut inside a character */
        s--, n--;
    snprintf(out + n, CHAT_PREVIEW - n, "%s", *s ? "..." : "");
    return out;
}

int chat_undo(struct chat *c)
{
    json_t *messages = chat_here(c)->messages;
    size_t n = json_array_size(messages);
    if (n < 2 || strcmp(role_of(messages, n - 1), "assistant"))
        return ERR(ARG, "there is no message yet");
    take_back(messages);
    char text[CHAT_PREVIEW];
    fprintf(stderr, "removed: %s\n", chat_preview(messages, n - 2, text));
    take_back(messages);
    c->changed = true;
    return 0;
}

json_t *chat_system_of(const json_t *messages)
{
    return strcmp(role_of(messages, 0), "system") ? NULL : json_array_get(messages, 0);
}

int chat_system_set(struct chat *c, const char *text)
{
    json_t *messages = chat_here(c)->messages, *message = NULL;
    if (text && !(message = say_message("system", text, strlen(text))))
        return ERR(NOMEM, "out of memory");
    if (chat_system_of(messages)) json_array_remove(messages, 0);
    c->changed = true;
    if (message && json_array_insert_new(messages, 0, message) < 0)
        return ERR(NOMEM, "out of memory");
    return 0;
}

int chat_system(struct chat *c, const char *text)
{
    const json_t *messages = chat_here(c)->messages;
    if (!*text) {
        const char *now = json_string_value(json_object_get(chat_system_of(messages), "content"));
        fprintf(stderr, "%s\n", now ? now : "no system message; /system TEXT sets one");
        return 0;
    }
    bool sets = strcmp(text, "-") != 0;
    TRY(chat_system_set(c, sets ? text : NULL));
    fprintf(stderr, "%s%s\n", sets ? "a new system message" : "no system message",
            json_array_size(messages) > sets ? "; the other messages stay" : "");
    return 0;
}
