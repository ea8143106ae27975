/* cli.h - what the files of the command share.  For what concerns models the command includes only public headers and base/, so
 * a program that embeds the library can do all of it. */
#pragma once
#include "base/base.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/json.h"
#include "hub/folder.h"
#include "hub/hub.h"
#include "kvik.h"

#include <stdio.h>

/* EXIT_INTERRUPTED: stopped by Ctrl-C, with the number that shells use. */
enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* --- args.c: the command line, from tables. */
enum arg_kind {
    ARG_FLAG,  /* bool, no value */
    ARG_BOOL,  /* bool, "true" or "false"; alone: true */
    ARG_UINT,  /* uint32_t */
    ARG_BYTES, /* uint64_t with K, M, G */
    ARG_TEXT,  /* const char *, borrowed from argv */
    /* the name of a file to write; "-" is refused, because the text goes to standard output */
    ARG_OUT,
    ARG_LIST, /* struct arg_list, one per occurrence */
};
struct arg_list {
    const char **item; /* owned array of borrowed texts */
    size_t n;
};
struct arg_option {
    const char *name; /* the name, without the leading dashes */
    enum arg_kind kind;
    size_t offset;       /* into the command's own struct, which begins with struct common */
    const char *value;   /* name of the value in the help */
    const char *choices; /* "a|b" or NULL */
    const char *help;
};
/* Options that every command takes.  Commands that run no model do not list them. */
struct common {
    uint64_t cache_memory;
    const char *compute, *isa, *on_full, *spill_dir, *quantize, *device;
    const char *template; /* of commands that chat */
    const char *trace;
    uint32_t threads;
    bool verbose, json, raw, verify, pull;
    bool hears; /* a model that transcribes recordings will do, although it has no chat template */
    bool chats; /* prompts are messages of a chat, which a template renders */
};
struct command {
    const char *name, *usage, *summary, *about;
    int (*run)(const struct command *self, int argc, char **argv);
    const struct arg_option *option;
    size_t n_options;
    bool generation;  /* takes the options of kvik_options() */
    bool runs_model;  /* takes all options of struct common, and lists them in its help */
    bool environment; /* variables set options: KVIK_PORT is --port */
    /* Writes the command's own default of a generation option for the help; false: it has none. */
    bool (*fallback)(const char *option, char out[32]);
};
struct args {
    const char **word;  /* owned array: words that are not options */
    size_t n, plain;    /* words from `plain` on come after "--" */
    json_t *generation; /* owned: the generation options that were given */
};
/* Fills `into`, which begins with a struct common.  Returns 0; -1 after printing the help; EXIT_USAGE after an
 * error on stderr. */
int args_parse(const struct command *c, int argc, char **argv, void *into, struct args *out);
/* Reads one generation option as the command line does, and puts it into the object `into`.  Returns 0, or
 * EXIT_USAGE after an error on stderr. */
int args_set(const struct command *c, const char *name, const char *value, json_t *into);
void args_done(struct args *a);
void args_list_done(struct arg_list *l);
/* Returns the options that commands share: those of every command, and those of commands that run a model. */
const struct arg_option *args_shared(const struct command *c, size_t *n);
/* --quantize and --verify, which `kvik inspect` has as well. */
#define ARG_QUANTIZE                                                                               \
    {                                                                                              \
        "quantize", ARG_TEXT, offsetof(struct common, quantize), "TYPE", "q8_0|q4_0|q4_k",         \
            "quantize weights of f32, f16 and bf16; they are kept in ~/.cache/kvik/weights and "   \
            "mapped from then on (default: the weights as they are)"                               \
    }
#define ARG_VERIFY                                                                                 \
    {                                                                                              \
        "verify", ARG_FLAG, offsetof(struct common, verify), NULL, NULL,                           \
            "read and hash all weights first; fail if they are not those that an earlier run "     \
            "has hashed"                                                                           \
    }
/* help.c: prints the help of a command.  all: also rarely used options. */
/* --- version.c: the version and what was built in; the exit status. */
int print_version(FILE *to);

void help_command(const struct command *c, bool all, FILE *to);
/* Writes the name of an option as the command line spells it, with dashes. */
void args_dashed(const char *name, char out[64]);
/* Writes the name of an option as /set and Transformers spell it: without the leading dashes, with underscores. */
void args_plain(const char *name, char out[64]);
/* alias.c: returns advice for an option of llama.cpp, whisper.cpp or Ollama, or NULL.  c: the command, or NULL
 * before one.  word: "-p" or "num_ctx". */
const char *alias_find(const struct command *c, const char *word);
/* Return advice for a command of another program, such as "list", or of its chat, such as "/show"; or NULL. */
const char *alias_command(const char *word);
const char *alias_slash(const char *word);

/* The commands, in the order of the help; X(name): a file defines command_name. */
#define COMMANDS(X)                                                                                \
    X(generate)                                                                                    \
    X(chat)                                                                                        \
    X(serve)                                                                                       \
    X(transcribe)                                                                                  \
    X(inspect) X(tokenize) X(render) X(bench) X(eval) X(plan) X(models) X(pull) X(rm) X(completion)
#define COMMAND_DECLARE(name) extern const struct command command_##name;
COMMANDS(COMMAND_DECLARE)
#undef COMMAND_DECLARE
extern const struct command command_run; /* kvik chat, as Ollama calls it */
/* main.c: the i-th command, or NULL. */
const struct command *command_at(size_t i);

/* advice.c: warns of options that have no effect.  g: the final options.  from: where the options come from, and
 * how the user enables sampling there. */
enum advice_from { ADVICE_COMMAND, ADVICE_GREEDY, ADVICE_SET };
void advice_tell(const kvik_generation *g, const json_t *options, enum advice_from from);

/* --- texts.c: the texts of a command line. */
/* True if word i is a "-" that means standard input. */
bool args_is_stdin(const struct args *a, size_t i);
struct text {
    const char *s; /* borrowed from the words, or from texts.piped */
    size_t n;
};
struct texts {
    struct text *text; /* [n], owned */
    size_t n;
    char *piped; /* owned: standard input, or NULL */
};
/* Refuses a second "-" on a command line, because standard input can be read once.  Returns an exit status. */
int args_twice(void);
/* Takes the words from `first` on as texts, with standard input for "-"; without words, standard input alone.
 * prompt: the newline at the end of standard input is removed, and an empty text is refused.  Returns an exit
 * status; texts_done frees *out, also after a failure. */
int texts_read(const struct args *a, size_t first, bool prompt, struct texts *out);
void texts_done(struct texts *t);

/* --- say.c: messages for people, and text for JSON. */
/* Prints "kvik: " and the library's sentence; returns the exit status for `code`. */
int say_error(int code);
/* Print a sentence behind "kvik: "; the last two return EXIT_USAGE, EXIT_FAILED. */
void say_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int say_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int say_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* True if `to` is a terminal, NO_COLOR is not set and TERM is not "dumb". */
bool say_colour(FILE *to);
/* Prints a notice of the library as a line on stderr. */
void say_notice(void *ctx, const char *text);
/* Flushes stdout.  Returns `status`, or EXIT_FAILED if stdout cannot be written. */
int say_flush(int status);
/* Makes a JSON string; bytes that are not UTF-8 become U+FFFD. */
json_t *say_json(const char *s, size_t n);
json_t *say_message(const char *role, const char *content, size_t n); /* of a chat */
/* Prints and releases o; EXIT_FAILED if memory is short. */
int say_json_line(json_t *o);
/* Reads one line without its end.  Returns 1, 0 at the end of the file, or an error code.  After ERR_LIMIT and
 * ERR_NOMEM the rest of the line was skipped, and the next call reads the next line. */
int read_line(FILE *from, struct buf *line);
int read_all(FILE *from, const char *what, char **text, size_t *n); /* mem_free */

/* --- progress.c: a progress line on stderr, if that is a terminal.  progress_end erases the line. */
struct progress {
    const char *what;
    double begun, drawn; /* seconds */
    bool on, shown;
    /* for progress_bytes: start of the present measurement of the rate, and the rate in bytes per second */
    double since, rate;
    uint64_t from;
};
void progress_begin(struct progress *p, const char *what);
void progress_show(struct progress *p, uint64_t done, uint64_t total);
/* As progress_show, for bytes: with their rate and the time that is left.  `what` may change. */
void progress_bytes(struct progress *p, const char *what, uint64_t done, uint64_t total);
void progress_end(struct progress *p);
/* Erases the line before other output.  The next progress_show draws it again. */
void progress_hide(struct progress *p);
/* Calls fn on this thread and shows a moving mark until fn returns. */
void progress_during(const char *what, void (*fn)(void *ctx), void *ctx);

/* --- interrupt.c: Ctrl-C once sets the flag, twice ends the process. */
void interrupt_catch(void);
void interrupt_release(void); /* Ctrl-C ends the process again */
bool interrupt_seen(void);
void interrupt_clear(void);
/* As poll, but Ctrl-C ends the wait, even if it came before the call.  ms below 0: no time limit. */
struct pollfd;
int interrupt_poll(struct pollfd *p, unsigned n, int ms);

/* --- locate.c: finds the path of the model that a person names.  Returns an error code. */
int model_locate(const char *name, char out[HUB_PATH]);
bool locate_is_weights(const char *dir); /* a directory in the layout of Hugging Face */
/* offer.c: downloads a model that a person names and that is not on this machine, if --pull is given or the person
 * agrees.  Does nothing for other names.  Returns an error code. */
int offer_pull(const char *name, const struct common *common);
struct pulled;
/* Downloads a model and shows the progress.  asks: asks the person first.  *out is set if 0 is returned. */
int offer_fetch(const struct hub_name *name, bool asks, bool dry, struct pulled *out);

enum { REPLY_TOKENS = 1024 }; /* most tokens of a reply if the user has set no length */

/* --- engine.c: a model, a cache and the settings of one run. */
struct engine {
    struct common common;
    kvik_model *model;
    kvik_cache *cache;
    kvik_generation g;
    double load_seconds;
    bool fewer; /* a cache for fewer sequences is enough, but at least for 2 */
    bool has_g;
    bool traces;           /* the process records a trace for --trace */
    uint32_t sequences;    /* number of sequences that the cache was opened for */
    kvik_model *assistant; /* --assistant-model, or NULL */
    kvik_cache *assistant_cache;
    struct kvik_shared *shared; /* --prefix-store, or NULL */
    bool told_shared;           /* the user knows that it fails */
};
/* Merges --generation-config with the options of the command line, which win, and checks them before anything is
 * loaded.  The keys of *out have '_'.  The file is read only once.  Returns an exit status. */
int engine_options(const char *config, const json_t *options, json_t **out);
/* Reads generation options from a file with a JSON object, and checks them.  Returns 0; or an error code, and *out
 * is NULL. */
int engine_config_file(const char *path, json_t **out);
/* given: the result of engine_options.  options: those of the command line; options without effect cause a
 * warning. */
int engine_open(struct engine *s, const char *path, const struct common *common,
                const json_t *given, const json_t *options);
/* engine_open in steps, for a command with defaults of its own.  engine_open_model opens the model. */
int engine_open_model(struct engine *s, const char *path, const struct common *common);
/* Replaces s->g by the model's own options with `options` over them.  Returns 0; or an error code, and s->g is
 * unchanged. */
int engine_settle(struct engine *s, const json_t *options);
/* Returns the value of --json-schema: the contents of a file, a schema itself, or the text "json_object".  NULL:
 * there is none, and err_last says why. */
json_t *schema_read(const char *name, const char *v);
/* Returns the number that cache_config has for a key, spelled with '_' or '-'; 0: its value is no number; -1: no
 * such key. */
int64_t engine_configured(const kvik_generation *g, const char *name);
bool engine_hears(const kvik_model *m);        /* the model hears recordings */
uint32_t engine_width(const struct engine *s); /* sequences that one prompt needs */
/* Opens the cache.  sequences: prompts at the same time; need: tokens of the longest sequence. */
int engine_cache(struct engine *s, uint32_t sequences, uint64_t need);
/* Returns the most tokens of a sequence: the model's context; with sinks far more, since distances stay short. */
uint32_t engine_context(const struct engine *s);
/* Checks the directory of --prefix-cache (NULL: none).  Before the cache is open: whether the directory can be
 * used.  Afterwards: prints a line if it has no effect. */
int engine_prefix(const struct engine *s, const char *dir);
/* Frees everything and writes the trace. Returns `status`, or 1 if the trace could not be written. */
int engine_close(struct engine *s, int status);
/* Opens a model file, or a model of the local hub cache.  Shows `what` meanwhile.  Returns an error code. */
int engine_model(const char *what, const char *path, const char *quantize, const char *device,
                 kvik_model **out);
/* If --verify was given, hashes the weights of a model.  Returns an error code. */
int engine_verify(kvik_model *m, const struct common *common);
/* template.c: the chat template of a run. */
struct template
{
    const char *text;   /* borrowed from `owned` or the library */
    const char *format; /* name of a built-in format, or NULL */
    char *owned;
};
/* Reads a built-in format by its name, or a file.  Returns an error code. */
int template_read(const char *given, struct template *out);
void template_done(struct template *t);
/* Checks --template before a model is opened; NULL: not given.  Returns an exit status. */
int template_check(const char *given);
/* Guesses the format of a model without a template, and prints a line about it.  Returns an error code. */
int template_guess(const char *model, const kvik_tokenizer *t, struct template *out);
/* Gives an open model the template of --template; if it has none of its own, the guessed one.  Returns an error
 * code. */
int template_open(kvik_model *m, const char *name, const char *given);
/* assistant.c: opens a model that drafts tokens for `sequences` prompts of at most `need` tokens.  Call it after
 * engine_cache. */
int engine_assist(struct engine *s, const char *path, uint32_t sequences, uint64_t need);

/* --- stored.c: the calls of kvik.h that read and write saved rows, with a progress line. */
int stored_load(kvik_cache *cache, const char *path, uint32_t most, kvik_seq *seq, char **note);
int stored_save(kvik_cache *cache, const char *path, kvik_seq *seq, uint32_t n, const char *note);
int64_t stored_prefix_load(kvik_cache *cache, const char *dir, const int32_t *ids, size_t n,
                           kvik_seq *seq);
int stored_prefix_save(kvik_cache *cache, const char *dir, kvik_seq seq);

/* --- shared_prompts.c: --prefix-store. */
/* Opens the store; NULL: none.  Returns an exit status. */
int engine_store(struct engine *s, const char *address);
/* Makes a sequence with the rows that the store has of ids, if they are clearly more than `have` tokens and arrive
 * soon.  Returns the number of its tokens; 0: no sequence was made. */
int64_t engine_fetch(struct engine *s, const int32_t *ids, size_t n, size_t have, kvik_seq *seq);
/* Puts the rows of a sequence into the store, if there is one. */
void engine_share(struct engine *s, kvik_seq seq);
/* Closes the store, after its writes, and says if it fails. */
void engine_unshare(struct engine *s);

/* --- stream.c: generates, prints the text as it grows, shows progress, and obeys Ctrl-C.  The text of beams is
 * printed at the end.  Printed text ends with a newline. */
struct text_stream {
    bool prints; /* set by the caller: there is one row, and its text is printed as it grows */
    struct wrap *wrap; /* set by the caller: wraps the text; NULL: no wrapping */
    /* Set by the caller: goes_on is asked after each `pause` tokens (0: never); if it returns false, generation
     * stops as after Ctrl-C. */
    uint32_t pause;
    bool (*goes_on)(void *ctx, uint32_t tokens);
    void *ctx;
    uint32_t tokens;       /* number of tokens so far */
    bool spoke, ends_line; /* something was printed; the printed text ends with a newline */
    struct progress progress;
};
int stream_generate(struct text_stream *s, struct engine *engine, const kvik_generation *g,
                    const kvik_prompt *prompt, uint32_t n, kvik_result **out);

/* --- report.c */
void report_cache(const struct engine *s, const kvik_usage *u, const kvik_result *r);
int report_json(const struct engine *s, const kvik_usage *u, const kvik_result *r);

/* --- ids.c: "1,2,3" */
int ids_parse(const char *option, const char *text, int32_t **ids, size_t *n); /* 0 or EXIT_USAGE */
void ids_print(const int32_t *ids, size_t n);

/* --- jsonl.c: a protocol of lines.  Each line of input gets one line as its answer, in order; errors are
 * {"error": ...}. */
/* Returns the answer, or NULL after an error of the library. */
typedef json_t *(*jsonl_answer)(void *ctx, const json_t *request);
int jsonl_run(const char *path, jsonl_answer answer, void *ctx);
