/* cmd_chat.h - what the files of kvik chat share: conversations that are branches of one another in one cache. */
#pragma once
#include "cli/cli.h"
#include "cli/line.h"

enum { CHAT_BRANCHES = 8, CHAT_NAME = 32, CHAT_PREVIEW = 64 };

struct chat_options {
    struct common common;
    const char *system, *config, *session, *prefix_cache, *assistant;
    bool cache_report;
};
struct branch {
    char name[CHAT_NAME];
    kvik_seq seq;
    json_t *messages; /* owned */
};
struct chat {
    const struct chat_options *o;
    struct session s;
    struct branch branch[CHAT_BRANCHES];
    uint32_t n, at; /* branches, and the one that is spoken in */
    struct line_editor *editor;
    struct stream stream;
    uint64_t draws; /* replies so far: each draws other numbers */
    bool open_ended;
    bool changed; /* since the session was saved */
};
static inline struct branch *chat_here(struct chat *c)
{
    return &c->branch[c->at];
}

/* --- chat_turn.c: each returns 0 or an error code after which the conversation is as it was. */
int chat_say(struct chat *c, const char *text, size_t n);
int chat_retry(struct chat *c); /* the last reply once more, drawn anew */
int chat_undo(struct chat *c);  /* the last exchange */
/* The beginning of a message, in one line. */
const char *chat_preview(const json_t *messages, size_t i, char out[CHAT_PREVIEW]);
int chat_system(struct chat *c, const char *text);

/* --- chat_branch.c */
int chat_reset(struct chat *c); /* the branch spoken in begins anew; makes the first one */
int chat_fork(struct chat *c, const char *name);
int chat_switch(struct chat *c, const char *name);
int chat_drop(struct chat *c, const char *name);
int chat_list(struct chat *c);
void chat_done(struct chat *c);

/* --- chat_map.c */
/* " of 8192", or nothing where there is no end. */
const char *chat_context(const struct chat *c, char out[24]);
struct chat_held {
    uint64_t tokens, bytes, shared, disk;
};
int chat_held(const struct chat *c, kvik_seq s, struct chat_held *out);
int chat_map(struct chat *c);

/* --- chat_file.c: a failed call changes nothing. */
int chat_save(struct chat *c, const char *path);
int chat_load(struct chat *c, const char *path);    /* instead of all branches */
void chat_loaded(struct chat *c, const char *path); /* says what */
int chat_session_open(struct chat *c);              /* --session, if the file exists */
int chat_session_save(struct chat *c);

/* --- chat_commands.c: a line that begins with '/'; *leave: it ends the chat. */
int chat_command(struct chat *c, const char *line, bool *leave);
