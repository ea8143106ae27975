/* offer.c - handles a model that is named but not on this machine.  On a terminal it asks whether to download the
 * model; with --pull it downloads without asking; else an error names the command.  It also shows the progress of
 * downloads, for kvik pull, too. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/screen.h"
#include "cli/terminal.h"
#include "hub/pull.h"

#include <string.h>
#include <unistd.h>

struct shown {
    struct progress progress;
    const struct hub_name *name;
};

static bool on_stop(void *ctx)
{
    (void)ctx;
    return interrupt_seen();
}

static void on_show(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    struct shown *s = ctx;
    progress_bytes(&s->progress, what, done, total);
}

static void on_say(void *ctx, const char *sentence)
{
    struct shown *s = ctx;
    progress_hide(&s->progress);
    say_line("%s", sentence);
}

/* Asks whether to download. */
static int on_agree(void *ctx, const struct pulled *p)
{
    struct shown *s = ctx;
    char name[1024], size[16], line[64];
    progress_hide(&s->progress);
    hub_name_text(s->name, name);
    fprintf(stderr, "%s is not on this machine. Download %s (%u %s) from %s? [Y/n] ", name,
            bytes_text(p->missing_bytes, size), p->missing, p->missing == 1 ? "file" : "files",
            p->from);
    fflush(stderr);
    if (!fgets(line, sizeof line, stdin)) {
        fputc('\n', stderr);
        return ERR(CANCELLED, "nothing is downloaded");
    }
    char c = line[strspn(line, " \t")];
    return c == '\n' || c == 'y' || c == 'Y' ? 0 : ERR(CANCELLED, "nothing is downloaded");
}

int offer_fetch(const struct hub_name *name, bool asks, bool dry, struct pulled *out)
{
    struct shown s = {.name = name};
    const struct hub_watch watch = {&s, on_stop, on_show, on_say};
    const struct pull how = {name, &watch, dry, asks ? on_agree : NULL};
    char text[1024];
    interrupt_catch();
    progress_begin(&s.progress, "");
    s.progress.on = s.progress.on && !hub_is_set("HF_HUB_DISABLE_PROGRESS_BARS");
    int e = hub_pull(&how, out);
    progress_end(&s.progress);
    interrupt_release();
    if (e != ERR_CANCELLED || !interrupt_seen()) return e;
    hub_name_text(name, text);
    return ERR(CANCELLED, "stopped; kvik pull %s goes on from here", text);
}

/* True if a word can only be the name of a model on the hub whose weights are not on this machine. */
static bool is_absent(const char *word, struct hub_name *name)
{
    char path[HUB_PATH];
    if (path_exists(word) || hub_name_read(word, name) < 0 || !strchr(name->repo, '/'))
        return false;
    int e = model_locate(word, path);
    /* programs that count tokens fetch the tokenizer alone */
    return e == ERR_NOTFOUND || (e >= 0 && dir_exists(path) && !locate_is_weights(path));
}

int offer_pull(const char *word, const struct common *common)
{
    struct hub_name name;
    struct pulled p;
    char size[16];
    if (hub_offline() || !is_absent(word, &name)) return 0;
    bool asks = !common->pull;
    if (asks && (!isatty(STDIN_FILENO) || !screen_is_terminal(stderr))) return 0;
    TRY(offer_fetch(&name, asks, false, &p));
    say_line("%s: %u files, %s", word, p.files, bytes_text(p.bytes, size));
    pulled_done(&p);
    return 0;
}
