/* help.c - prints the help of a command from its tables: with --help the options that most users need, with
 * --help-all every option. */
#include "cli/cli.h"

#include <string.h>

/* True if --help shows an option of a command that generates. */
static bool often(const char *name)
{
    static const char *const shown[] = {"chat",         "system",
                                        "template",     "session",
                                        "greedy",       "context-full",
                                        "reply-tokens", "prefix-cache",
                                        "json",         "cache-report",
                                        "threads",      "cache-memory",
                                        "on-full",      "max_new_tokens",
                                        "do_sample",    "seed",
                                        "temperature",  "top_k",
                                        "top_p",        "repetition_penalty",
                                        "host",         "port",
                                        "api-key-file", "alias",
                                        "parallel",     "log",
                                        "max-delay",    "cors-origins",
                                        "stop_strings", "json_schema",
                                        "num_beams",    "cache_implementation",
                                        "cache_config"};
    for (size_t i = 0; i < countof(shown); i++)
        if (!strcmp(name, shown[i])) return true;
    return false;
}

/* Prints "  --name VALUE   text" and wraps the text at 100 columns. */
static void help_line(FILE *to, const char *left, const char *text)
{
    enum { COLUMN = 33, WIDTH = 100 };
    int at = fprintf(to, "  %-*s", COLUMN - 3, left);
    if (at >= COLUMN) {
        fputc('\n', to);
        at = 0;
    }
    fprintf(to, "%*s", COLUMN - at, "");
    at = COLUMN;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (at > COLUMN && at + 1 + n > WIDTH) {
            fprintf(to, "\n%*s", COLUMN, "");
            at = COLUMN;
        }
        at += fprintf(to, "%s%.*s", at > COLUMN ? " " : "", n, text);
        text += n;
        while (*text == ' ')
            text++;
    }
    fputc('\n', to);
}

/* Prints the options of a command's own table; returns how many are left out. */
static unsigned help_own(FILE *to, const struct arg_option *o, size_t n, bool all)
{
    unsigned out = 0;
    for (size_t i = 0; i < n; i++) {
        char left[96];
        if (!all && !often(o[i].name)) {
            out++;
            continue;
        }
        const char *value = o[i].choices ? o[i].choices : o[i].value;
        snprintf(left, sizeof left, "--%s%s%s", o[i].name, value ? " " : "", value ? value : "");
        help_line(to, left, o[i].help);
    }
    return out;
}

/* Choices that are too many for the left column are printed after the text, one word each, so that they wrap. */
static void help_names(char *text, size_t size, const char *choices)
{
    size_t n = strlen(text);
    if (n + 16 > size) return;
    n += (size_t)snprintf(text + n, size - n, "; one of ");
    for (const char *c = choices; *c && n + 3 < size; c++) {
        text[n++] = *c == '|' ? ',' : *c;
        if (*c == '|') text[n++] = ' ';
    }
    text[n] = 0;
}

/* Returns the placeholder of a value in the left column. */
static const char *help_value(const kvik_option *o, bool many)
{
    static const char *const words[][2] = {
        {"bool", "true|false"}, {"uint", "N"},      {"int", "N"},        {"float", "X"},
        {"ids", "ID,..."},      {"json", "JSON"},   {"lists", "ID,..."}, {"pair", "START,FACTOR"},
        {"biases", "JSON"},     {"schema", "FILE"},
    };
    if (o->choices) return many ? "NAME" : o->choices;
    for (size_t i = 0; i < countof(words); i++)
        if (!strcmp(o->type, words[i][0])) return words[i][1];
    return "TEXT";
}

/* Writes the text of an option, with its default in this command. */
static void help_text(const struct command *c, const kvik_option *o, char *text, size_t size)
{
    char own[32];
    bool has_own = c->fallback && c->fallback(o->name, own);
    const char *fallback = has_own ? own : o->fallback;
    /* if a default depends on another option, the text of the table describes it */
    const char *end = has_own ? strstr(o->help, "; with neither set") : NULL;
    int n = (int)(end ? (size_t)(end - o->help) : strlen(o->help));
    snprintf(text, size, *fallback ? "%.*s (default %s)" : "%.*s", n, o->help, fallback);
}

static unsigned help_generation(const struct command *c, FILE *to, bool all)
{
    const kvik_option *o, *before = NULL;
    unsigned out = 0;
    for (uint32_t i = 0; (o = kvik_option_at(i)); before = o, i++) {
        char left[96], text[640];
        if (!all && !often(o->name)) {
            out++;
            continue;
        }
        if (all && (!before || strcmp(o->group, before->group) != 0))
            fprintf(to, "\n%s\n", o->group);
        bool many = o->choices && strlen(o->choices) > 48;
        snprintf(left, sizeof left, "--%s %s", o->name, help_value(o, many));
        for (char *k = left; *k && *k != ' '; k++)
            if (*k == '_') *k = '-';
        help_text(c, o, text, sizeof text);
        if (many) help_names(text, sizeof text, o->choices);
        help_line(to, left, text);
    }
    return out;
}

void help_command(const struct command *c, bool all, FILE *to)
{
    size_t n;
    const struct arg_option *shared = args_shared(c, &n);
    unsigned out = 0;
    /* commands without generation options have few options, so all are shown */
    all |= !c->generation;
    fprintf(to, "usage: kvik %s %s\n\n%s\n", c->name, c->usage, c->about);
    fputs("\noptions\n", to);
    out += help_own(to, c->option, c->n_options, all);
    out += help_own(to, shared, n, all);
    help_line(to, "--help", "print this");
    if (c->generation) {
        help_line(to, "--help-all", "print every option");
        fputs(
            "\ngeneration, by the names of Hugging Face Transformers; the model's own file sets other "
            "defaults\n",
            to);
        out += help_generation(c, to, all);
    }
    if (out)
        fprintf(to, "\nkvik %s --help-all prints %u more options, and man kvik describes them.\n",
                c->name, out);
    if (c->environment)
        fputs(
            "\nA variable KVIK_NAME gives the option --name, as KVIK_PORT=8080; the command line wins.\n",
            to);
}
