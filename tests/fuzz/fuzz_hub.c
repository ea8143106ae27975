/* fuzz_hub.c - what a hub sends, by the first letter: T a page of the list of files, C a commit, R branches, I an index of
 * weights, H headers; and N, a name that a person types.  What is accepted can be a path below a directory. */
#include "fuzz.h"

#include "hub/choice.h"
#include "hub/listing.h"
#include "hub/response.h"

#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

/* True for a path that stays below a directory, judged otherwise than hub_is_path does. */
static bool stays(const char *path)
{
    int depth = 0;
    if (*path == '/' || !*path || strlen(path) > 1024) return false;
    for (const char *s = path; *s;) {
        size_t n = strcspn(s, "/");
        depth += n == 2 && !memcmp(s, "..", 2) ? -1 : 1;
        if (depth < 1 || !n) return false;
        s += n + (s[n] == '/');
    }
    return path[strlen(path) - 1] != '/' && !strchr(path, '\n');
}

static void list(const char *text, size_t n)
{
    static const struct hub_name name[] = {{.repo = "org/name"},
                                           {.repo = "org/name", .pick = "Q4_K_M"}};
    struct listing l = {0};
    char word[HUB_PICK];
    int e = listing_add(&l, text, n);
    if (e >= 0) e = listing_end(&l);
    MUST(e >= 0 || *err_last());
    for (size_t i = 0; i < l.n; i++) {
        const struct listed *f = &l.file[i];
        MUST(stays(f->path) && strlen(f->blob) == (f->large ? 64u : 40u) &&
             f->size <= (uint64_t)1 << 50);
        MUST(strspn(f->blob, "0123456789abcdef") == strlen(f->blob));
        if (e >= 0) MUST(listing_find(&l, f->path) == f);
        if (choice_is_gguf(f->path)) {
            choice_word(&l, f->path, word);
            MUST(strlen(f->path) >= HUB_PICK || hub_picks(word, f->path));
        }
    }
    for (size_t i = 0; e >= 0 && i < countof(name); i++) {
        size_t wanted = 0;
        for (size_t k = 0; k < l.n; k++)
            l.file[k].wanted = false;
        int made = choice_make(&l, &name[i]);
        for (size_t k = 0; k < l.n; k++)
            wanted += l.file[k].wanted;
        MUST(made < 0 ? *err_last() != 0 : wanted > 0);
    }
    listing_done(&l);
}

static void name(const char *text)
{
    struct hub_name a, b;
    char typed[1024];
    if (hub_name_read(text, &a) < 0) return;
    MUST(hub_is_repo(a.repo, strlen(a.repo)) && stays(a.repo));
    MUST((!*a.pick || stays(a.pick)) && (!*a.revision || stays(a.revision)));
    hub_name_text(&a, typed);
    MUST(hub_name_read(typed, &b) >= 0 && !strcmp(a.repo, b.repo));
    MUST(strchr(a.pick, '@') || (!strcmp(a.pick, b.pick) && !strcmp(a.revision, b.revision)));
}

static void headers(const char *text)
{
    static const struct hub_name name = {.repo = "org/name"};
    struct response a = {0};
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, "\n");
        response_header(&a, s, n);
        s += n + (s[n] == '\n');
        MUST(!a.has_range || a.from < a.total);
        MUST(!*a.commit || hub_is_commit(a.commit));
        MUST(strlen(a.next) < sizeof a.next && strlen(a.linked) < sizeof a.linked);
    }
    for (long status = 400; status < 504; status += 25) {
        a.status = status;
        MUST(response_refuse(&a, &name, "https://h", status & 1) < 0 && *err_last());
    }
}

static void weights(const char *text, size_t n)
{
    static const char page[] =
        "[{\"type\":\"file\",\"path\":\"a.safetensors\",\"size\":1,\"oid\":\"0123456789012345678901234567890123456789\"},"
        "{\"type\":\"file\",\"path\":\"b.safetensors\",\"size\":1,\"oid\":\"0123456789012345678901234567890123456789\"}]";
    struct listing l = {0};
    MUST(listing_add(&l, page, sizeof page - 1) >= 0 && listing_end(&l) >= 0);
    MUST(choice_shards(&l, text, n) >= 0 || *err_last());
    listing_done(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char commit[HUB_COMMIT], refs[100], *text = malloc(size + 1);
    if (!size) {
        free(text);
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    switch (*data) {
    case 'T':
        list(text, size - 1);
        break;
    case 'C':
        if (listing_commit(text, size - 1, commit) >= 0) MUST(hub_is_commit(commit));
        break;
    case 'R':
        if (listing_refs(text, size - 1, refs, sizeof refs) >= 0) MUST(strlen(refs) < sizeof refs);
        break;
    case 'I':
        weights(text, size - 1);
        break;
    case 'H':
        headers(text);
        break;
    case 'N':
        name(text);
        break;
    }
    free(text);
    return 0;
}
