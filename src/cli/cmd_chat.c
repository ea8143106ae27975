/* cmd_chat.c - kvik chat, or kvik run: answers a prompt, or reads messages and commands from a terminal or a pipe. */
#include "cli/cmd_chat.h"

#include <string.h>

static const struct arg_option table[] = {
    {"system", ARG_TEXT, offsetof(struct chat_command_options, system), "TEXT", NULL,
     "system message"},
    {"template", ARG_TEXT, offsetof(struct chat_command_options, common.template), "FILE|NAME",
     NULL,
     "chat template: a Jinja file, or a built-in format: chatml, gemma, llama2, llama3, llama4, mistral, phi3, "
     "alpaca, zephyr, vicuna, deepseek (default: the model's own, else guessed)"},
    {"generation-config", ARG_TEXT, offsetof(struct chat_command_options, config), "JSON|FILE",
     NULL, "generation options as a JSON object; options on the command line win over it"},
    {"session", ARG_TEXT, offsetof(struct chat_command_options, session), "FILE", NULL,
     "continue the conversation saved in FILE, and save it there after every turn"},
    {"prefix-cache", ARG_TEXT, offsetof(struct chat_command_options, prefix_cache), "DIR", NULL,
     "directory of saved prompts: reuse the longest saved prefix of a conversation, and save "
     "conversations there"},
    {"prefix-store", ARG_TEXT, offsetof(struct chat_command_options, store), "ADDRESS", NULL,
     "store of prompts that processes share: redis://HOST, rediss://HOST (TLS), unix:///SOCKET or file:///DIR; "
     "$REDISCLI_AUTH is its password"},
    {"assistant-model", ARG_TEXT, offsetof(struct chat_command_options, assistant), "MODEL", NULL,
     "smaller model with the same vocabulary that drafts tokens; replies do not change"},
    {"greedy", ARG_FLAG, offsetof(struct chat_command_options, greedy), NULL, NULL,
     "always take the most likely token; by default a chat samples, with the model's own values or else "
     "with the defaults below"},
    {"context-full", ARG_TEXT, offsetof(struct chat_command_options, context_full), "WHAT",
     "drop|stop",
     "what to do when the conversation reaches the model's context or max_cache_len. drop: drop the oldest "
     "exchanges after the system message; stop: take no more messages (default: drop)"},
    {"reply-tokens", ARG_UINT, offsetof(struct chat_command_options, reply_tokens), "N", NULL,
     "length of a reply at which a chat on a terminal asks whether to go on, and at which a reply elsewhere ends; "
     "0: never. Without effect if --max-new-tokens or --max-length is given (default: 1024)"},
    {"cache-report", ARG_FLAG, offsetof(struct chat_command_options, cache_report), NULL, NULL,
     "print on standard error, after each reply, what the cache held"},
};

/* Tries to save again, because the user may have made room since the last save failed.  Returns the exit status of
 * the chat. */
static int save_again(struct chat *c)
{
    int e = chat_session_save(c);
    if (e >= 0) return 0;
    err_prefix(e, "the end of this conversation is not saved");
    return say_error(e);
}

static int loop(struct chat *c, struct buf *line)
{
    bool terminal = line_is_terminal(c->editor), leave = false, unsaved = false;
    int status = 0, failed = 0;
    if (terminal) wrap_line(stderr, "/help lists commands, Ctrl-C stops a reply, Ctrl-D leaves");
    while (!leave && !ferror(stdout)) {
        bool is_message;
        int got = chat_read(c, line, &is_message), e;
        if (got == LINE_INTERRUPTED) {
            interrupt_clear();
            if (!terminal) return EXIT_INTERRUPTED;
            fputs("\n(Ctrl-D or /bye leaves)\n", stderr);
            continue;
        }
        if (got == KVIK_LIMIT ||
            got == KVIK_NOMEM) { /* memory is short for this message; the next one can be read */
            status = say_error(got);
            continue;
        }
        if (got < 0) failed = say_error(got);
        if (got <= 0) break;
        if (!line->len) continue;
        bool slash = line->data[0] == '/' && !is_message, escaped = slash && line->data[1] == '/';
        while (slash && !escaped && strchr(" \t", line->data[line->len - 1]))
            line->data[--line->len] = 0; /* Tab leaves a blank */
        if (slash && !escaped)
            e = chat_command(c, line->data, &leave);
        else
            e = chat_say(c, line->data + escaped, line->len - escaped);
        if (e < 0 && e != KVIK_CANCELLED) status = say_error(e);
        if (e > 0) status = EXIT_FAILED; /* the sentence has been printed */
        if (e < 0) continue;
        unsaved = (e = chat_session_save(c)) < 0;
        if (unsaved) status = say_error(e);
    }
    if (!terminal) return failed ? failed : status;
    fputc('\n', stderr);
    if (unsaved)
        status = save_again(c);
    else
        status = 0;
    return failed ? failed : status;
}

/* Joins the words behind MODEL with blanks, as Ollama does.  Returns an exit status. */
static int read_prompt(const struct args *a, struct buf *out)
{
    struct texts t;
    int status = texts_read(a, 1, true, &t), e = 0;
    for (size_t i = 0; !status && e >= 0 && i < t.n; i++) {
        if (i) e = buf_putc(out, ' ');
        if (e >= 0) e = buf_append(out, t.text[i].s, t.text[i].n);
    }
    texts_done(&t);
    if (e < 0) return say_error(e);
    return status || out->len ? status : say_usage("the PROMPT is empty");
}

/* Answers one prompt.  Returns an exit status. */
static int answer_once(struct chat *c, const struct buf *prompt)
{
    int e = chat_say(c, prompt->data, prompt->len);
    if (e == KVIK_CANCELLED && c->stopped) return EXIT_INTERRUPTED;
    if (e < 0) return say_error(e);
    if (e > 0) return EXIT_FAILED; /* the sentence has been printed */
    e = chat_session_save(c);
    return e < 0 ? say_error(e) : c->stopped ? EXIT_INTERRUPTED : 0;
}

/* Opens the model, the cache and the first branch.  Returns an exit status. */
static int chat_begin(struct chat *c, const struct chat_command_options *o, const struct args *a)
{
    int status = engine_options(o->config, a->generation, &c->given);
    if (!status) status = template_check(o->common.template);
    if (!status && o->session && chat_session_check(o->session) < 0) status = say_error(KVIK_ARG);
    if (!status) status = engine_prefix(&c->s, o->prefix_cache);
    if (!status) status = engine_open_model(&c->s, a->word[0], &o->common);
    if (status) return status;
    if (chat_settings_open(c, a->generation) < 0) {
        say_error(KVIK_ARG);
        return EXIT_USAGE;
    }
    const kvik_tokenizer *t = kvik_model_tokenizer(c->s.model);
    if (!t || !kvik_tokenizer_template(t))
        return say_failed("%s has no %s; kvik generate completes texts", a->word[0],
                          t ? "chat template" : "tokenizer");
    kvik_encoder encoder = {.size = sizeof encoder};
    if (kvik_model_encoder(c->s.model, &encoder) == 1)
        return say_failed("%s has an encoder, which reads one text; kvik generate answers it",
                          a->word[0]);
    if (!c->s.g.use_cache) return say_failed("a chat needs its cache; leave out --use-cache false");
    if (c->s.g.num_return_sequences > 1)
        return say_failed("a chat has one reply; leave out --num-return-sequences");
    c->s.fewer = true;
    c->stops_full = o->context_full && !strcmp(o->context_full, "stop");
    uint32_t need = MIN(chat_cache_len(c), 1u << 20);
    status = engine_cache(&c->s, CHAT_BRANCHES, need);
    if (!status) status = engine_prefix(&c->s, o->prefix_cache);
    if (!status) status = engine_store(&c->s, o->store);
    if (!status && o->assistant) status = engine_assist(&c->s, o->assistant, 1, need);
    if (status) return status;
    int e = chat_reset(c);
    if (e >= 0 && a->n == 1) e = line_open(chat_complete, c, &c->editor);
    if (e >= 0) e = chat_session_open(c);
    if (e < 0) return say_error(e);
    if (line_is_terminal(c->editor) || o->common.verbose) chat_banner(c, a->word[0]);
    interrupt_catch();
    return 0;
}

static int chat_run(struct chat *c, const struct chat_command_options *o, const struct args *a)
{
    if (!a->n) return say_usage("kvik %s needs a MODEL", c->command->name);
    struct buf line;
    buf_init(&line, 64u << 20);
    int status = a->n > 1 ? read_prompt(a, &line) : 0;
    if (!status) status = chat_begin(c, o, a);
    if (!status) status = a->n > 1 ? answer_once(c, &line) : loop(c, &line);
    buf_done(&line);
    return status;
}

static int run_chat(const struct command *self, int argc, char **argv)
{
    struct chat_command_options o = {.common.chats = true, .reply_tokens = REPLY_TOKENS};
    struct args a;
    struct chat c = {.o = &o, .command = self};
    buf_init(&c.next, 64u << 20);
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0) status = chat_run(&c, &o, &a);
    status = chat_done(&c, status);
    args_done(&a);
    return MAX(status, 0);
}

static const char about[] =
    "Answers the PROMPT and ends; words are joined by blanks, and - is standard input. Without a PROMPT each\n"
    "line of input is a message; a pasted block, or lines between \"\"\", are one message. Replies end by\n"
    "themselves or at --max-new-tokens; a reply of 1024 tokens asks whether to go on (--reply-tokens).\n"
    "Ctrl-C stops a reply and keeps its text. /retry and /undo change the last exchange, /fork and /switch\n"
    "continue in branches that share cached blocks, /cache shows what the cache holds; /help lists all\n"
    "commands.";

/* The same command under two names. */
#define CHAT(word, does)                                                                           \
    {                                                                                              \
        .name = word, .usage = "MODEL [PROMPT...]", .summary = does, .about = about,               \
        .run = run_chat, .option = table, .n_options = countof(table), .generation = true,         \
        .runs_model = true, .fallback = chat_fallback,                                             \
    }
const struct command command_chat = CHAT("chat", "talk with a model");
const struct command command_run = CHAT("run", "the same as kvik chat");
#undef CHAT
