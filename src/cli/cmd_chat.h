/* cmd_chat.h - what the files of kvik chat share.  A chat has branches: conversations that share the blocks of one cache. */
#pragma once
#include "cli/cli.h"
#include "cli/line.h"
#include "cli/wrap.h"

enum { CHAT_BRANCHES = 8, CHAT_NAME = 32, CHAT_PREVIEW = 64 };

struct chat_command_options {
    struct common common;
    const char *system, *config, *session, *prefix_cache, *store, *assistant, *context_full;
    bool cache_report, greedy;
    uint32_t reply_tokens; /* 0: no limit */
};
struct branch {
    char name[CHAT_NAME];
    kvik_seq seq;
    json_t *messages; /* owned */
};
struct chat {
    const struct chat_command_options *o;
    const struct command *command; /* kvik chat or kvik run */
    struct engine s;
    struct branch branch[CHAT_BRANCHES];
    uint32_t n, at; /* number of branches; index of the current one */
    struct line_editor *editor;
    struct text_stream stream;
    struct wrap wrap;
    /* number of replies so far; it is added to the seed, so that each reply draws other numbers */
    uint64_t draws;
    json_t *given, *set; /* owned: generation options of the command line, and those of /set */
    uint64_t seed;       /* drawn at the start; --seed and /seed win over it */
    const char *source;  /* where the sampling values come from; NULL: replies are not sampled */
    bool open_ended;     /* the user has not set a length of replies */
    struct buf next;     /* the message that ended the last reply; valid if `waits` */
    bool waits;
    double asked;    /* seconds that the user took to answer questions in this reply */
    bool stopped;    /* Ctrl-C has stopped the last reply */
    bool stops_full; /* --context-full stop */
    bool changed;    /* the conversation has changed since it was saved */
    bool lost;       /* another program has saved to the file of --session since it was loaded */
    char *moved;     /* owned; the file that replaces --session in that case; NULL: none */
};
static inline struct branch *chat_here(struct chat *c)
{
    return &c->branch[c->at];
}

/* --- chat_turn.c: these return 0, or an error code after restoring the conversation. */
int chat_say(struct chat *c, const char *text, size_t n);
int chat_retry(struct chat *c); /* replaces the last reply by a new draw */
int chat_undo(struct chat *c);  /* removes the last message and its reply */
/* Returns the beginning of a message on one line. */
const char *chat_preview(const json_t *messages, size_t i, char out[CHAT_PREVIEW]);
int chat_system(struct chat *c, const char *text);
int chat_system_set(struct chat *c, const char *text); /* NULL: removes the system message */
/* Returns the system message at the beginning of a conversation, borrowed, or NULL. */
json_t *chat_system_of(const json_t *messages);

/* --- chat_limit.c: the most tokens that a conversation may have. */
struct chat_limit {
    uint32_t tokens;
    char name[64], raise[64]; /* name of the limit; "raise NAME, " if the user can raise it */
};
struct chat_limit chat_limit(const struct chat *c);
/* Returns how many tokens of a sequence the cache must have room for.  max_length does not limit it, because /set
 * can raise max_length. */
uint32_t chat_cache_len(const struct chat *c);
/* Renders the conversation as *n tokens that leave room for a reply (kvik_free *ids).  If necessary, drops the
 * oldest exchanges, also before a failure; the caller then restores the messages. */
int chat_fit(struct chat *c, int32_t **ids, size_t *n);
/* Says that a reply ended at the limit, if it did. */
void chat_limit_tell(const struct chat *c, const kvik_result *r);

/* --- chat_pause.c: the length of a reply, at which a chat on a terminal asks whether to go on. */
/* Prepares c->stream for a reply.  Returns the most tokens that it may have; UINT32_MAX: no limit. */
uint32_t chat_pause(struct chat *c, const kvik_generation *g);
/* Says that a reply ended at its length, if it did. */
void chat_pause_tell(const struct chat *c, const kvik_result *r);
/* Takes the message that ended the last reply.  Returns false if there is none. */
bool chat_pause_take(struct chat *c, const char **text, size_t *n);

/* --- chat_settings.c: these return 0, or an error code and change nothing; or a positive status after an error
 * was printed. */
/* c->given has all options; `options` only those of the command line. */
int chat_settings_open(struct chat *c, const json_t *options);
void chat_settings_done(struct chat *c);
/* True if the options of a model's generation_config.json have sampling values. */
bool chat_samples(const kvik_generation *own);
void chat_banner(const struct chat *c,
                 const char *model);             /* prints the model and how replies are decoded */
int chat_set(struct chat *c, const char *text);  /* "NAME VALUE", "NAME -", "" */
bool chat_fixed(const char *name);               /* an option that cannot change during a chat */
int chat_seed(struct chat *c, const char *text); /* "N", "random", "" */

/* --- chat_defaults.c */
/* Writes the default options of a chat as an object (*out; json_decref), and where they come from as text.  samples:
 * chat_samples of the model's own options. */
int chat_defaults(const kvik_model *m, bool samples, json_t **out, const char **source);
/* Writes the default of an option in a chat, as text for the help.  Returns false if it is that of kvik generate. */
bool chat_fallback(const char *option, char out[32]);

/* --- chat_branch.c */
/* Removes all messages of the current branch except its system message.  If there is no branch, makes the first
 * one, with the system message of --system. */
int chat_reset(struct chat *c);
int chat_fork(struct chat *c, const char *name);
int chat_switch(struct chat *c, const char *name);
int chat_drop(struct chat *c, const char *name);
int chat_list(struct chat *c);
int chat_done(struct chat *c, int status); /* as engine_close */

/* --- chat_map.c */
/* Returns " of 8192", or "" if sequences may grow without end. */
const char *chat_context(const struct chat *c, char out[24]);
struct chat_held {
    uint64_t tokens, bytes, shared, disk;
};
int chat_held(const struct chat *c, kvik_seq s, struct chat_held *out);
int chat_map(struct chat *c);

/* --- chat_file.c: a failed call changes nothing. */
int chat_save(struct chat *c, const char *path);
/* Saves to the file that /save names.  If another program has saved to the file of --session, the chat continues
 * in the new file. */
int chat_save_as(struct chat *c, const char *path);
int chat_load(struct chat *c, const char *path);    /* replaces all branches */
void chat_loaded(struct chat *c, const char *path); /* prints what was loaded */
/* Checks before a model is loaded that the file can be read or created. */
int chat_session_check(const char *path);
int chat_session_open(struct chat *c); /* loads the file of --session, if it exists */
int chat_session_save(struct chat *c);

/* --- chat_commands.c: obeys a line that begins with '/'.  *leave: the chat ends. */
int chat_command(struct chat *c, const char *line, bool *leave);
const char *
chat_command_at(size_t i); /* the name of a command that /help lists; NULL behind the last one */

/* --- chat_input.c: reads a message or a command.  Returns what line_read returns.  *is_message: the text is a message even
 * if it begins with a slash. */
int chat_read(struct chat *c, struct buf *out, bool *is_message);

/* --- chat_complete.c: offers words for Tab behind a line.  ctx: the chat. */
void chat_complete(void *ctx, const char *typed, struct line_words *out);
