/* main.c - the command: a table of subcommands.  Data goes to standard output, everything else to standard error.  The
 * exit status is 0, 1 after a failure, 2 if the command line is wrong, 130 after Ctrl-C. */
#include "base/descriptor.h"
#include "base/file.h"
#include "base/json.h"
#include "base/near.h"
#include "cli/cli.h"
#include "cli/screen.h"
#include "cli/terminal.h"

#include <locale.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define ADDRESS(name) &command_##name,
static const struct command *const commands[] = {COMMANDS(ADDRESS)};
#undef ADDRESS

const struct command *command_at(size_t i)
{
    return i < countof(commands) ? commands[i] : NULL;
}

static void help(FILE *to)
{
    fputs("usage: kvik COMMAND [ARGUMENT...]\n\n"
          "Generates text with language models; the KV cache is the product.\n\ncommands\n",
          to);
    for (size_t i = 0; i < countof(commands); i++)
        fprintf(to, "  kvik %-10s %-44s %s\n", commands[i]->name, commands[i]->usage,
                commands[i]->summary);
    fprintf(to, "  kvik %-10s %-44s %s\n", command_run.name, command_run.usage,
            command_run.summary);
    fputs(
        "\nMODEL is a Hugging Face model directory, a .gguf file or a directory with one, or a name that kvik models\n"
        "lists: that of a model from the Hugging Face hub, ORG/NAME or ORG/NAME:Q4_K_M, or a file of kvik's own cache.\n"
        "kvik COMMAND --help lists the options that matter, --help-all all of them; kvik --version says what was built in.\n"
        "Exit status: 0 success, 1 failure, 2 wrong usage, 130 stopped by Ctrl-C.\n",
        to);
}

static int unknown_command(const char *word)
{
    struct near near;
    const char *kind = word[0] == '-' ? "option" : "command", *known_as = alias_command(word);
    size_t n = strlen(word);
    if (path_exists(word) || (n > 5 && !strcmp(word + n - 5, ".gguf")))
        return say_usage("unknown command \"%.60s\"; kvik run MODEL talks with a model", word);
    if (known_as) return say_usage("unknown %s \"%.60s\"; %s", kind, word, known_as);
    if (word[0] == '-' && alias_find(NULL, word + (strncmp(word, "--", 2) ? 0 : 2)))
        return say_usage("option %.60s before a command; kvik generate MODEL PROMPT completes a "
                         "text, kvik chat MODEL talks with a model",
                         word);
    near_begin(&near, word);
    near_try(&near, command_run.name);
    for (size_t i = 0; i < countof(commands); i++)
        near_try(&near, commands[i]->name);
    if (near.best)
        return say_usage("unknown %s \"%.60s\"; did you mean \"%s\"?", kind, word, near.best);
    return say_usage("unknown %s \"%.60s\"; kvik --help lists the commands", kind, word);
}

static const struct command *find_command(const char *name)
{
    if (!strcmp(name, command_run.name)) return &command_run;
    for (size_t i = 0; i < countof(commands); i++)
        if (!strcmp(name, commands[i]->name)) return commands[i];
    return NULL;
}

/* Weights and the spill file are mapped.  Reading raises SIGBUS if the file was truncated after it was opened, or
 * if the disk fails to deliver a page. */
static void on_bus_error(int sig)
{
    static const char text[] =
        "kvik: a model file was truncated, or the disk of a model file or of the spill file failed, while it was in use\n";
    (void)sig;
    terminal_restore();
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(EXIT_FAILED);
}

int main(int argc, char **argv)
{
    JSON_SCOPE(scope); /* text is never made of values that lack members */
    fd_fill();
    setlocale(LC_CTYPE, "");
    screen_open();
    /* a write beyond the limit on file sizes then fails with an error and does not end the process */
    sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    sigaction(SIGBUS, &(struct sigaction){.sa_handler = on_bus_error}, NULL);
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (!strcmp(word, "--version")) return say_flush(print_version(stdout));
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || (!strcmp(word, "help") && argc == 2)) {
        help(stdout);
        return say_flush(0);
    }
    bool help_for = !strcmp(word, "help");
    const struct command *c = find_command(help_for ? argv[2] : word);
    if (!c) return unknown_command(help_for ? argv[2] : word);
    if (help_for) {
        help_command(c, false, stdout);
        return say_flush(0);
    }
    return say_flush(c->run(c, argc - 2, argv + 2));
}
