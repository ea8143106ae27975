/* cli.h - what the files of the command share.  The command stands on kvik.h and base/ only: whatever it can do, a
 * program that embeds the library can do too. */
#pragma once
#include "base/base.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/json.h"
#include "kvik.h"

#include <stdio.h>

enum {
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_INTERRUPTED = 130
}; /* 130: stopped by Ctrl-C, as shells count it */

/* --- args.c: the command line, from tables. */
enum arg_kind {
    ARG_FLAG,  /* bool, no value */
    ARG_BOOL,  /* bool, "true" or "false"; alone: true */
    ARG_UINT,  /* uint32_t */
    ARG_BYTES, /* uint64_t with K, M, G */
    ARG_TEXT,  /* const char *, borrowed from argv */
    ARG_LIST,  /* struct arg_list, one per occurrence */
};
struct arg_list {
    const char **item; /* owned array of borrowed texts */
    size_t n;
};
struct arg_option {
    const char *name; /* with dashes, without the leading ones */
    enum arg_kind kind;
    size_t offset;       /* into the command's own struct, which begins with struct common */
    const char *value;   /* what the help calls it */
    const char *choices; /* "a|b" or NULL */
    const char *help;
};
/* Options every command takes; one that runs no model has no use for most of them and does not list them. */
struct common {
    uint64_t cache_memory;
    const char *compute, *isa, *on_full, *spill_dir;
    uint32_t threads;
    bool verbose, json;
};
struct command {
    const char *name, *usage, *summary, *about;
    int (*run)(const struct command *self, int argc, char **argv);
    const struct arg_option *option;
    size_t n_options;
    bool generation; /* takes the options of kvik_options() */
    bool runs_model; /* lists those of struct common */
};
struct args {
    const char **word; /* what is not an option; owned array */
    size_t n;
    json_t *generation; /* owned: the generation options that were given, by reference name */
};
/* `into` begins with a struct common.  0, or -1 when help was asked for and printed, or EXIT_USAGE after a sentence on stderr. */
int args_parse(const struct command *c, int argc, char **argv, void *into, struct args *out);
void args_done(struct args *a);
void args_list_done(struct arg_list *l);
void args_help(const struct command *c, FILE *to);

extern const struct command command_generate, command_chat, command_inspect, command_tokenize,
    command_render, command_bench;

/* advice.c: of options given one by one, those without effect; g is settled. */
void advice_tell(const kvik_generation *g, const json_t *options);

/* --- say.c: messages for people, and text for JSON. */
int say_error(int code); /* "kvik: <the library's sentence>"; the exit status for `code` */
int say_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* returns EXIT_USAGE */
int say_failed(const char *fmt, ...)
    __attribute__((format(printf, 1, 2))); /* returns EXIT_FAILED */
bool say_colour(FILE *to); /* a terminal that wants it; NO_COLOR and TERM=dumb do not */
void say_notice(void *ctx, const char *text); /* the library's, as a line on stderr */
int say_flush(int status); /* flushes stdout: status, or EXIT_FAILED if it cannot be written */
json_t *say_json(const char *s,
                 size_t n); /* a JSON string; bytes that are not UTF-8 become U+FFFD */
json_t *say_message(const char *role, const char *content, size_t n); /* of a chat */
int say_json_line(json_t *o); /* prints and releases it; EXIT_FAILED without memory */
/* One line without its end: 1, 0 at the end of the file, or an error code. */
int read_line(FILE *from, struct buf *line);
int read_all(FILE *from, const char *what, char **text, size_t *n); /* mem_free */

/* --- progress.c: one line on stderr, only when that is a terminal; gone when done. */
struct progress {
    const char *what;
    double begun, drawn; /* seconds */
    bool on, shown;
};
void progress_begin(struct progress *p, const char *what);
void progress_show(struct progress *p, uint64_t done, uint64_t total);
void progress_end(struct progress *p);
/* While fn runs on this thread, shows that something goes on. */
void progress_during(const char *what, void (*fn)(void *ctx), void *ctx);

/* --- interrupt.c: Ctrl-C once asks, twice kills. */
void interrupt_catch(void);
bool interrupt_seen(void);
void interrupt_clear(void);

/* --- hub.c: MODEL itself, or in `out` the snapshot of a repository id in the local hub cache. */
#define HUB_PATH 4096
const char *hub_find(const char *model, char out[HUB_PATH]);

/* --- session.c: a model, a cache and the settings of one run. */
struct session {
    struct common common;
    kvik_model *model;
    kvik_cache *cache;
    kvik_generation g;
    double load_seconds;
    bool fewer;     /* sequences than asked for will do, 2 at least */
    bool goes_back; /* histories may be rewritten: the cache keeps checkpoints */
    bool has_g;
    kvik_model *assistant; /* --assistant-model, or NULL */
    kvik_cache *assistant_cache;
};
/* Checks generation options before anything is loaded; the result is the exit status. */
int session_check(const char *config, const json_t *options);
int session_open(struct session *s, const char *path, const struct common *common,
                 const char *config, const json_t *options);
uint32_t session_width(const struct session *s); /* sequences that one prompt becomes */
/* sequences: prompts at once; need: tokens of the longest sequence. */
int session_cache(struct session *s, uint32_t sequences, uint64_t need);
/* Most tokens of a sequence: the model's context; no real bound where sinks keep distances short. */
uint32_t session_context(const struct session *s);
void session_close(struct session *s);
/* Opens a model file or one of the local hub cache, showing `what` meanwhile; an error code. */
int session_model(const char *what, const char *path, kvik_model **out);
/* assistant.c: another model that guesses ahead for `sequences` prompts of at most `need` tokens, after session_cache. */
int session_assist(struct session *s, const char *path, uint32_t sequences, uint64_t need);

/* --- stream.c: a generation with its text, progress and Ctrl-C; the text of beams comes at the end.  What it printed ends with a newline. */
struct stream {
    bool prints; /* set by the caller: one row, its text goes to standard output as it grows */
    bool spoke, ends_line; /* what has been printed */
    struct progress progress;
};
int stream_generate(struct stream *s, struct session *session, const kvik_generation *g,
                    const kvik_prompt *prompt, uint32_t n, kvik_result **out);

/* --- report.c */
void report_cache(const struct session *s, const kvik_usage *u, const kvik_result *r);
int report_json(const struct session *s, const kvik_usage *u, const kvik_result *r);

/* --- inspect_cache.c: exit statuses */
/* inspect_session.c */
bool inspect_is_session(const char *path);
int inspect_session(const char *path, bool json);
int inspect_caches(const kvik_model *m, bool json);
int inspect_architectures(bool json);

/* --- ids.c: "1,2,3" */
int ids_parse(const char *option, const char *text, int32_t **ids, size_t *n); /* 0 or EXIT_USAGE */
void ids_print(const int32_t *ids, size_t n);

/* --- jsonl.c: a line protocol; answers in order, one line each, errors as {"error": ...}. */
typedef json_t *(*jsonl_answer)(void *ctx, const json_t *request); /* NULL: the library's error */
int jsonl_run(const char *path, jsonl_answer answer, void *ctx);
