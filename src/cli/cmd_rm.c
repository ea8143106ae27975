/* cmd_rm.c - kvik rm: removes a model from the hub's cache. */
#include "cli/cli.h"
#include "hub/remove.h"

#include <string.h>

struct options {
    struct common common;
};

static const struct arg_option table[] = {
    {"json", ARG_FLAG, offsetof(struct options, common.json), NULL, NULL,
     "print one JSON object for each name"},
};

/* Refuses to remove a file of kvik's own cache, which the user has put there. */
static int refuse_own(const char *word)
{
    char path[HUB_PATH];
    if (strchr(word, '/') || model_locate(word, path) < 0) return 0;
    return ERR(ARG, "%.200s is the file %.700s, which kvik has not downloaded; remove it with: rm",
               word, path);
}

static int remove_one(const struct options *o, const char *word)
{
    struct hub_name name;
    struct removed r;
    char size[16];
    int e = refuse_own(word);
    if (e >= 0) e = hub_name_read(word, &name);
    if (e == ERR_ARG) {
        say_error(e);
        return EXIT_USAGE;
    }
    if (e >= 0) e = hub_remove(&name, &r);
    if (e < 0) return say_error(e);
    if (o->common.json)
        return say_json_line(json_pack("{s:s, s:I, s:I}", "name", word, "files",
                                       (json_int_t)r.files, "bytes", (json_int_t)r.bytes));
    say_line("%s is removed: %s are free again", word, bytes_text(r.bytes, size));
    return 0;
}

static int run_rm(const struct command *self, int argc, char **argv)
{
    struct options o = {0};
    struct args a;
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0 && !a.n) status = say_usage("kvik rm needs a name that kvik models lists");
    for (size_t i = 0; status == 0 && i < a.n; i++)
        status = remove_one(&o, a.word[i]);
    args_done(&a);
    return MAX(status, 0);
}

const struct command command_rm = {
    .name = "rm",
    .usage = "ORG/NAME[:FILE|:QUANT][@REVISION]...",
    .summary = "remove a model that was downloaded",
    .about =
        "Removes a repository from the cache of the Hugging Face hub, whoever has downloaded it; with :FILE or :QUANT one file,\n"
        "with @REVISION one revision. Contents that another revision uses stay.",
    .run = run_rm,
    .option = table,
    .n_options = countof(table),
};
