/* chat_commands.c - the commands of a chat: a table with a row for each. */
#include "base/near.h"
#include "cli/cmd_chat.h"
#include "cli/history.h"

#include <string.h>

static int reset(struct chat *c, const char *text)
{
    (void)text;
    TRY(chat_reset(c));
    fprintf(stderr, "a new conversation%s\n",
            chat_system_of(chat_here(c)->messages) ? ", with the same system message" : "");
    return 0;
}

static int retry(struct chat *c, const char *text)
{
    (void)text;
    return chat_retry(c);
}

static int undo(struct chat *c, const char *text)
{
    (void)text;
    return chat_undo(c);
}

static int branches(struct chat *c, const char *text)
{
    (void)text;
    return chat_list(c);
}

static int map(struct chat *c, const char *text)
{
    (void)text;
    return chat_map(c);
}

static int save_command(struct chat *c, const char *text)
{
    if (!*text) return ERR(ARG, "/save needs a file name");
    return chat_save_as(c, text);
}

static int load_command(struct chat *c, const char *text)
{
    if (!*text) return ERR(ARG, "/load needs a file name");
    TRY(chat_load(c, text));
    chat_loaded(c, text);
    return 0;
}

static int help(struct chat *c, const char *text);

static const struct slash {
    const char *name, *argument, *help;
    int (*run)(struct chat *c, const char *text); /* NULL: ends the chat */
} slash[] = {
    {"/system", "[TEXT]", "show or set the system message; - removes it", chat_system},
    {"/set", "[NAME VALUE]", "show the generation options, or change one", chat_set},
    {"/seed", "[N]", "show or set the seed of sampling; random draws one", chat_seed},
    {"/retry", "", "draw the last reply again", retry},
    {"/undo", "", "remove the last exchange", undo},
    {"/fork", "NAME", "continue in a new branch that shares the past", chat_fork},
    {"/switch", "NAME", "continue in another branch", chat_switch},
    {"/branches", "", "list the branches and what they share", branches},
    {"/drop", "NAME", "drop a branch", chat_drop},
    {"/save", "FILE", "save all branches with their cache", save_command},
    {"/load", "FILE", "replace all branches by saved ones", load_command},
    {"/cache", "", "show the cache of this branch, block by block", map},
    {"/clear", "", "remove the messages; the system message stays", reset},
    {"/reset", "", NULL, reset},
    {"/help", "", "this list", help},
    {"/?", "", NULL, help},
    {"/bye", "", "leave (also /exit, /quit, Ctrl-D)", NULL},
    {"/exit", "", NULL, NULL},
    {"/quit", "", NULL, NULL},
};

static int help(struct chat *c, const char *text)
{
    (void)c;
    (void)text;
    for (size_t i = 0; i < countof(slash); i++)
        if (slash[i].help)
            fprintf(stderr, "%-10s %-12s %s\n", slash[i].name, slash[i].argument, slash[i].help);
    fputs("Ctrl-C stops a reply and keeps its text; at the prompt it clears the line\n"
          "a reply of --reply-tokens (1024) asks whether to go on: Enter goes on;\n"
          "Ctrl-C, or the next message, ends it and keeps its text\n"
          "\"\"\" begins and ends a message of several lines; a pasted block is one message\n"
          "a \\ at the end of a line continues the message on the next line\n"
          "Tab completes commands, branches, options, files; cursor keys recall messages\n"
          "keys typed during a reply wait for the next message\n"
          "a message that begins with a slash is typed with two: //...\n",
          stderr);
    char path[HISTORY_PATH];
    if (history_path(path))
        fprintf(stderr, "messages typed on a terminal are kept in %s; KVIK_HISTORY= keeps none\n",
                path);
    return 0;
}

const char *chat_command_at(size_t i)
{
    for (size_t k = 0; k < countof(slash); k++)
        if (slash[k].help && !i--) return slash[k].name;
    return NULL;
}

int chat_command(struct chat *c, const char *line, bool *leave)
{
    struct near near;
    char word[32];
    size_t n = strcspn(line, " \t");
    snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), line);
    const char *text = line + n + strspn(line + n, " \t");
    near_begin(&near, word);
    for (size_t i = 0; i < countof(slash); i++) {
        near_try(&near, slash[i].name);
        if (strcmp(word, slash[i].name)) continue;
        if (*text && !*slash[i].argument)
            return ERR(ARG, "%s takes no argument; // begins a message that starts with a slash",
                       word);
        *leave = !slash[i].run;
        return slash[i].run ? slash[i].run(c, text) : 0;
    }
    const char *known_as = alias_slash(word);
    if (known_as) return ERR(ARG, "unknown command %s; %s", word, known_as);
    if (near.best) return ERR(ARG, "unknown command %s; did you mean %s?", word, near.best);
    return ERR(ARG, "unknown command %s; /help lists them", word);
}
