/* cmd_pull.c - kvik pull: downloads a model of the Hugging Face hub into the hub's cache, and prints its path. */
#include "cli/cli.h"
#include "hub/choice.h"
#include "hub/pull.h"

#include <string.h>

struct options {
    struct common common;
    bool dry;
};

static const struct arg_option table[] = {
    {"dry-run", ARG_FLAG, offsetof(struct options, dry), NULL, NULL,
     "print the files that would be downloaded, and the .gguf files that there are to choose from, and download nothing"},
    {"json", ARG_FLAG, offsetof(struct options, common.json), NULL, NULL, "print one JSON object"},
};

static json_t *as_json(const struct hub_name *name, const struct pulled *p)
{
    json_t *files = json_array();
    for (size_t i = 0; i < p->list.n; i++) {
        const struct listed *f = &p->list.file[i];
        if (f->wanted)
            json_array_append_new(files, json_pack("{s:o, s:I, s:s}", "file",
                                                   say_json(f->path, strlen(f->path)), "bytes",
                                                   (json_int_t)f->size,
                                                   f->large ? "sha256" : "git_sha1", f->blob));
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:o}", "name", name->repo, "commit", p->commit,
                     "path", p->path, "bytes", (json_int_t)p->bytes, "missing_bytes",
                     (json_int_t)p->missing_bytes, "files", files);
}

/* Prints the files that a download would take, and what else could be chosen. */
static void put_dry(const struct hub_name *name, const struct pulled *p)
{
    char size[16], word[HUB_PICK];
    for (size_t i = 0; i < p->list.n; i++) {
        const struct listed *f = &p->list.file[i];
        if (f->wanted) printf("%10s  %s\n", bytes_text(f->size, size), f->path);
    }
    printf("%10s  in %u files, of which %u are missing here\n", bytes_text(p->bytes, size),
           p->files, p->missing);
    for (size_t i = 0; i < p->list.n; i++) {
        const struct listed *f = &p->list.file[i];
        if (f->wanted || !choice_is_gguf(f->path)) continue;
        choice_word(&p->list, f->path, word);
        printf("%10s  with kvik pull %s:%s\n", bytes_text(choice_bytes(&p->list, f), size),
               name->repo, word);
    }
}

static int pull(const struct options *o, const char *word)
{
    struct hub_name name;
    struct pulled p;
    char size[16];
    int status = 0;
    if (hub_name_read(word, &name) < 0) {
        say_error(KVIK_ARG);
        return EXIT_USAGE;
    }
    int e = offer_fetch(&name, false, o->dry, &p);
    if (e == ERR_CANCELLED) {
        say_error(e);
        return EXIT_INTERRUPTED;
    }
    if (e < 0) return say_error(e);
    if (o->common.json) {
        status = say_json_line(as_json(&name, &p));
    } else if (o->dry) {
        put_dry(&name, &p);
    } else {
        if (p.files)
            say_line("%s at %.12s: %u %s, %s%s", name.repo, p.commit, p.files,
                     p.files == 1 ? "file" : "files", bytes_text(p.bytes, size),
                     p.missing ? "" : ", all here already");
        puts(p.path);
    }
    pulled_done(&p);
    return status;
}

static int run_pull(const struct command *self, int argc, char **argv)
{
    struct options o = {0};
    struct args a;
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0 && a.n != 1)
        status = say_usage(
            "kvik pull takes one name: kvik pull ORG/NAME, or ORG/NAME:Q4_K_M for one .gguf file");
    if (status == 0) status = pull(&o, a.word[0]);
    args_done(&a);
    return MAX(status, 0);
}

const struct command command_pull = {
    .name = "pull",
    .usage = "ORG/NAME[:FILE|:QUANT][@REVISION]",
    .summary = "download a model from the Hugging Face hub",
    .about =
        "Downloads what kvik reads of a repository of the Hugging Face hub, into the hub's cache, where other programs\n"
        "find it too, and prints the path. Of several .gguf files one is chosen by its quantization (Q4_K_M if none is\n"
        "given). A download that was stopped continues. Every command takes the name as MODEL afterwards. $HF_TOKEN is\n"
        "for models that need an account; $HF_ENDPOINT, $HF_HUB_CACHE and $HF_HUB_OFFLINE are heeded.",
    .run = run_pull,
    .option = table,
    .n_options = countof(table),
};
