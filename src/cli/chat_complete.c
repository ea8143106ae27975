/* chat_complete.c - what Tab completes in a chat: commands, names of branches, options with their choices, files. */
#include "cli/cmd_chat.h"

#include <glob.h>
#include <string.h>

static void offer_branches(const struct chat *c, const char *typed, struct line_words *out)
{
    for (uint32_t i = 0; i < c->n; i++)
        line_offer(out, typed, c->branch[i].name);
}

static void offer_options(const char *typed, struct line_words *out)
{
    const kvik_option *o;
    for (uint32_t i = 0; (o = kvik_option_at(i)); i++)
        if (!chat_fixed(o->name)) line_offer(out, typed, o->name);
}

/* Offers the values of an option that takes one of a few words. */
static void offer_values(const char *name, size_t n, const char *typed, struct line_words *out)
{
    const kvik_option *o;
    char list[512], *save = NULL;
    for (uint32_t i = 0; (o = kvik_option_at(i)); i++) {
        if (strlen(o->name) != n || strncmp(o->name, name, n) != 0) continue;
        snprintf(list, sizeof list, "%s",
                 o->choices                 ? o->choices
                 : !strcmp(o->type, "bool") ? "true|false"
                                            : "");
        for (char *w = strtok_r(list, "|", &save); w; w = strtok_r(NULL, "|", &save))
            line_offer(out, typed, w);
    }
}

static void offer_files(const char *typed, struct line_words *out)
{
    glob_t found = {0};
    char pattern[4096];
    snprintf(pattern, sizeof pattern, "%s*", typed);
    if (glob(pattern, GLOB_MARK, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            line_offer(out, typed, found.gl_pathv[i]);
    globfree(&found);
}

void chat_complete(void *ctx, const char *typed, struct line_words *out)
{
    const struct chat *c = ctx;
    const char *name;
    size_t n = strcspn(typed, " \t");
    if (*typed != '/') return;
    if (!typed[n]) {
        for (size_t i = 0; (name = chat_command_at(i)); i++)
            line_offer(out, typed, name);
        return;
    }
    const char *word = typed + n + strspn(typed + n, " \t");
    size_t k = strcspn(word, " \t=");
    out->from = (size_t)(word - typed);
    if (!strncmp(typed, "/switch ", n + 1) || !strncmp(typed, "/drop ", n + 1)) {
        offer_branches(c, word, out);
    } else if (!strncmp(typed, "/save ", n + 1) || !strncmp(typed, "/load ", n + 1)) {
        offer_files(word, out);
    } else if (!strncmp(typed, "/set ", n + 1) && !word[k]) {
        offer_options(word, out);
    } else if (!strncmp(typed, "/set ", n + 1)) {
        const char *value = word + k + strspn(word + k, " \t=");
        out->from = (size_t)(value - typed);
        offer_values(word, k, value, out);
    }
}
