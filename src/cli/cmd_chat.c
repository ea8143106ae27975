/* cmd_chat.c - kvik chat: a conversation in one sequence of the cache.  Every turn renders the whole conversation with the
 * model's template and hands all of it over; the library keeps the longest prefix it holds already, so a turn computes
 * the new tokens only, and a template that renders old turns differently is repaired instead of trusted. */
#include "base/near.h"
#include "cli/cli.h"
#include "cli/line.h"

#include <string.h>
#include <unistd.h>

struct options {
    struct common common;
    const char *system, *config;
    bool cache_report;
};

static const struct arg_option table[] = {
    {"system", ARG_TEXT, offsetof(struct options, system), "TEXT", NULL, "system message"},
    {"generation-config", ARG_TEXT, offsetof(struct options, config), "JSON|FILE", NULL,
     "generation options as a JSON object; single options win over it"},
    {"cache-report", ARG_FLAG, offsetof(struct options, cache_report), NULL, NULL,
     "tell on standard error after each reply what the cache held"},
};

struct chat {
    const struct options *o;
    struct session s;
    kvik_seq seq;
    json_t *messages; /* owned */
    struct line_editor *editor;
    struct stream stream;
    uint64_t turns;
    bool open_ended;
};

static int reset(struct chat *c)
{
    if (c->seq) kvik_cache_drop(c->s.cache, c->seq);
    c->seq = 0;
    json_array_clear(c->messages);
    if (c->o->system)
        json_array_append_new(c->messages,
                              say_message("system", c->o->system, strlen(c->o->system)));
    return kvik_cache_new(c->s.cache, &c->seq);
}

/* The whole conversation as tokens, ending where the reply begins. */
static int encode(struct chat *c, int32_t **ids, size_t *n)
{
    char *messages;
    TRY(json_text(c->messages, &messages));
    int e = kvik_chat_encode(kvik_model_tokenizer(c->s.model), messages,
                             "{\"add_generation_prompt\": true}", ids, n);
    mem_free(messages);
    return e;
}

static int reply(struct chat *c, kvik_result **res)
{
    kvik_generation g = c->s.g; /* borrows what c->s.g owns */
    uint32_t context = session_context(&c->s);
    int32_t *ids;
    size_t n;
    TRY(encode(c, &ids, &n));
    int e = 0;
    if (n >= context)
        e = ERR(
            LIMIT,
            "the conversation has %zu tokens, the model's context is %u; /reset begins a new one",
            n, context);
    g.seed += c->turns++; /* else every turn would draw the same numbers */
    if (c->open_ended)
        g.max_new_tokens =
            MIN((uint32_t)(context - MIN(n, (size_t)context - 1)), kvik_model_context(c->s.model));
    kvik_prompt p = {.ids = ids, .n = n, .seq = c->seq};
    c->stream.prints = true;
    if (e >= 0) e = stream_generate(&c->stream, &c->s, &g, &p, 1, res);
    kvik_free(ids);
    return e;
}

/* One turn; a turn that fails is taken back, the conversation stays as it was before it. */
static int turn(struct chat *c, const char *text, size_t len)
{
    kvik_result *r = NULL;
    json_array_append_new(c->messages, say_message("user", text, len));
    int e = reply(c, &r);
    bool interrupted = interrupt_seen();
    interrupt_clear();
    fflush(stdout);
    if (e < 0) {
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
        if (e == KVIK_CANCELLED && interrupted) return 0;
        return e;
    }
    const char *said = r->row[0].text ? r->row[0].text : "";
    json_array_append_new(c->messages, say_message("assistant", said, strlen(said)));
    kvik_usage usage;
    kvik_cache_usage(c->s.cache, &usage);
    if (c->o->cache_report || c->o->common.verbose) report_cache(&c->s, &usage, r);
    if (c->open_ended && r->row[0].finish == KVIK_FINISH_LENGTH)
        fprintf(
            stderr,
            "kvik: the reply ended at the model's context of %u tokens; /reset begins a new conversation\n",
            kvik_model_context(c->s.model));
    kvik_result_free(r);
    return 0;
}

static void print_cache(const struct chat *c)
{
    char a[16], b[16];
    kvik_usage u;
    kvik_cache_usage(c->s.cache, &u);
    fprintf(stderr, "%llu tokens of %u in %s, peak %s\n", (unsigned long long)u.tokens,
            kvik_model_context(c->s.model), bytes_text(u.bytes, a), bytes_text(u.peak_bytes, b));
}

/* A line that begins with '/'; true ends the chat. */
static bool slash(struct chat *c, const char *word)
{
    static const char *const known[] = {"/help", "/reset", "/cache", "/exit", "/quit"};
    struct near near;
    if (!strcmp(word, "/exit") || !strcmp(word, "/quit")) return true;
    if (!strcmp(word, "/reset")) {
        int e = reset(c);
        if (e < 0) return say_error(e), true;
        fputs("a new conversation\n", stderr);
    } else if (!strcmp(word, "/cache")) {
        print_cache(c);
    } else if (!strcmp(word, "/help")) {
        fputs("/reset  begin a new conversation\n"
              "/cache  what the conversation takes in memory\n"
              "/exit   leave (also Ctrl-D)\n"
              "Ctrl-C  stop a reply, the conversation goes on\n"
              "//...   a message that begins with a slash\n",
              stderr);
    } else {
        near_begin(&near, word);
        for (size_t i = 0; i < countof(known); i++)
            near_try(&near, known[i]);
        say_usage(near.best ? "unknown command %s; did you mean %s?"
                            : "unknown command %s; /help lists them",
                  word, near.best);
    }
    return false;
}

static int loop(struct chat *c)
{
    bool terminal = line_is_terminal(c->editor);
    const char *text;
    int status = 0;
    size_t n;
    if (terminal) fputs("/help lists commands, Ctrl-C stops a reply, Ctrl-D leaves\n", stderr);
    for (;;) {
        int got = line_read(c->editor, "> ", &text, &n);
        if (got < 0) {
            interrupt_clear();
            if (!terminal) return EXIT_INTERRUPTED;
            fputs("\n(Ctrl-D or /exit leaves)\n", stderr);
            continue;
        }
        if (got == 0) break;
        char word[32];
        snprintf(word, sizeof word, "%.*s", (int)MIN(n, 31u), text);
        word[strcspn(word, " \t")] = 0;
        if (!n) continue;
        if (text[0] == '/' && (n == 1 || text[1] != '/')) {
            if (slash(c, word)) break;
            continue;
        }
        bool escaped = text[0] == '/';
        int e = turn(c, text + escaped, n - escaped);
        if (e < 0) status = say_error(e);
        if (ferror(stdout)) break;
    }
    if (terminal) fputc('\n', stderr);
    return terminal ? 0 : status;
}

static int run(struct chat *c, const struct options *o, const struct args *a)
{
    if (a->n != 1)
        return say_usage(a->n ? "kvik chat takes one MODEL; messages are typed or piped in"
                              : "kvik chat needs a MODEL");
    int status = session_check(o->config, a->generation);
    if (!status) status = session_open(&c->s, a->word[0], &o->common, o->config, a->generation);
    if (status) return status;
    const kvik_tokenizer *t = kvik_model_tokenizer(c->s.model);
    if (!t || !kvik_tokenizer_template(t))
        return say_failed("%s has no %s; kvik generate completes texts", a->word[0],
                          t ? "chat template" : "tokenizer");
    if (!c->s.g.use_cache) return say_failed("a chat needs its cache; leave out --use-cache false");
    if (c->s.g.num_return_sequences > 1)
        return say_failed("a chat has one reply; leave out --num-return-sequences");
    c->open_ended = !c->s.g.max_new_tokens && !c->s.g.max_length;
    status = session_cache(&c->s, 2, MIN(session_context(&c->s), 1u << 20));
    if (status) return status;
    c->messages = json_array();
    int e = c->messages ? reset(c) : ERR(NOMEM, "out of memory");
    if (e >= 0) e = line_open(&c->editor);
    if (e < 0) return say_error(e);
    interrupt_catch();
    return loop(c);
}

static int run_chat(const struct command *self, int argc, char **argv)
{
    struct options o = {0};
    struct args a;
    struct chat c = {.o = &o};
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0) status = run(&c, &o, &a);
    line_close(c.editor);
    json_decref(c.messages);
    session_close(&c.s);
    args_done(&a);
    return MAX(status, 0);
}

const struct command command_chat = {
    .name = "chat",
    .usage = "MODEL",
    .summary = "talk with a model",
    .about =
        "A conversation; each line of input is a message. Replies end by themselves unless --max-new-tokens limits\n"
        "them. Ctrl-C stops a reply and keeps the conversation; /reset, /cache, /help and /exit are commands.",
    .run = run_chat,
    .option = table,
    .n_options = countof(table),
    .generation = true,
    .runs_model = true,
};
