/* pull.c - a whole download.  Its steps: the commit of the revision, the list of files, the choice of files, a check
 * of the disk's free space, the contents, the links and the reference.  Until the last file is downloaded, the cache
 * shows the same models as before. */
#include "hub/pull.h"
#include "base/bytes.h"
#include "base/file.h"
#include "hub/blob.h"
#include "hub/choice.h"
#include "hub/folder.h"
#include "hub/repository.h"
#include "hub/web.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MOST = 4 << 20, PAGES = 256, INDEX_MOST = 64 << 20 };
#define SPARE ((uint64_t)64 << 20) /* bytes that stay free on the disk */

struct download {
    const struct pull *how;
    struct pulled *out;
    struct hub_home home;
    struct store store;
    struct web *web;
    uint64_t done;          /* bytes of files that are complete */
    struct hub_watch watch; /* adds up the progress of all files */
};

/* Makes a URL of the hub's interface: /api/models/ORG/NAME/what/revision */
static int api_url(const struct download *w, const char *what, const char *revision,
                   struct buf *out)
{
    buf_init(out, 4096);
    TRY(buf_printf(out, "%s/api/models/%s/%s", w->home.endpoint, w->how->name->repo, what));
    if (!revision) return 0;
    TRY(buf_putc(out, '/'));
    return web_quote(out, revision, false);
}

/* Gets an answer of the interface. */
static int ask(struct download *w, const char *url, struct buf *text, struct response *a)
{
    TRY(web_text(w->web, url, TEXT_MOST, text, a));
    return a->status == 200 ? 0 : web_refuse(w->web, a);
}

/* Adds the names of the branches and tags to the error that there is no such revision. */
static int list_revisions(struct download *w, int e)
{
    struct buf url, text;
    struct response a;
    char names[400] = "", said[512];
    snprintf(said, sizeof said, "%s", err_last());
    buf_init(&text, TEXT_MOST);
    if (api_url(w, "refs", NULL, &url) >= 0 &&
        web_text(w->web, url.data, TEXT_MOST, &text, &a) >= 0 && a.status == 200)
        (void)listing_refs(text.data ? text.data : "", text.len, names, sizeof names);
    buf_done(&url);
    buf_done(&text);
    return err_set(e, "%s%s%s", said, *names ? "; it has " : "", names);
}

static int find_commit(struct download *w)
{
    const char *revision = *w->how->name->revision ? w->how->name->revision : "main";
    struct buf url, text;
    struct response a = {0};
    if (hub_is_commit(revision)) {
        memcpy(w->out->commit, revision, HUB_COMMIT);
        return 0;
    }
    buf_init(&text, TEXT_MOST);
    int e = api_url(w, "revision", revision, &url);
    if (e >= 0) e = ask(w, url.data, &text, &a);
    if (e >= 0) e = listing_commit(text.data ? text.data : "", text.len, w->out->commit);
    buf_done(&url);
    buf_done(&text);
    return e < 0 && !strcmp(a.code, "RevisionNotFound") ? list_revisions(w, e) : e;
}

/* Gets all pages of the list of files. */
static int list_files(struct download *w)
{
    struct buf url, text;
    struct response a;
    int e = api_url(w, "tree", w->out->commit, &url);
    if (e >= 0) e = buf_puts(&url, "?recursive=true");
    buf_init(&text, TEXT_MOST);
    for (int page = 0; e >= 0; page++) {
        e = page < PAGES ? ask(w, url.data, &text, &a)
                         : ERR(LIMIT, "the hub's list of files has over %d pages", PAGES);
        if (e >= 0) e = listing_add(&w->out->list, text.data ? text.data : "", text.len);
        if (e >= 0 && a.lost_next)
            e = ERR(LIMIT, "the hub's list of files goes on at an address that is too long");
        if (e < 0 || !*a.next) break;
        bool whole = strstr(a.next, "://") != NULL; /* else a path on the hub */
        if (!strcmp(a.next, url.data))
            e = ERR(FORMAT, "the hub's list of files goes on with the same page");
        else if (!whole && a.next[0] != '/') /* a "next" of "@other" would change the host */
            e = ERR(FORMAT, "the hub's list of files goes on at no address");
        buf_clear(&url);
        if (e >= 0) e = buf_printf(&url, "%s%s", whole ? "" : w->home.endpoint, a.next);
    }
    buf_done(&url);
    buf_done(&text);
    return e < 0 ? e : listing_end(&w->out->list);
}

static bool is_here(const struct download *w, const struct listed *f)
{
    return store_has_file(&w->store, w->out->commit, f->path, f->size) ||
           store_has_blob(&w->store, f->blob, f->size);
}

/* Counts the wanted files, and writes the path that the model will have. */
static void count_bytes(struct download *w)
{
    struct pulled *p = w->out;
    const char *gguf = NULL;
    p->files = p->missing = 0;
    p->bytes = p->missing_bytes = 0;
    for (size_t i = 0; i < p->list.n; i++) {
        const struct listed *f = &p->list.file[i];
        if (!f->wanted) continue;
        if (choice_is_gguf(f->path) || (*w->how->name->pick && !gguf)) gguf = f->path;
        p->files++;
        p->bytes += f->size;
        if (is_here(w, f)) continue;
        p->missing++;
        p->missing_bytes += f->size;
    }
    snprintf(p->path, sizeof p->path, "%.*s/snapshots/%s%s%s", HUB_PATH - 1200, w->store.folder,
             p->commit, gguf ? "/" : "", gguf ? gguf : "");
}

/* Refuses a download that does not fit on the disk. */
static int check_room(const struct download *w)
{
    char need[16], room[16];
    uint64_t have, left = w->out->missing_bytes;
    for (size_t i = 0; i < w->out->list.n; i++) {
        const struct listed *f = &w->out->list.file[i];
        if (f->wanted && !is_here(w, f)) left -= MIN(left, blob_begun(&w->store, f));
    }
    TRY(store_room(&w->store, &have));
    if (left <= have && (have - left >= SPARE || left < SPARE)) return 0;
    return ERR(
        IO,
        "%s: the download takes %s, and the disk has %s; make room (kvik models lists what is here, kvik rm "
        "removes it), or name another place with HF_HUB_CACHE",
        w->store.cache, bytes_text(left, need), bytes_text(have, room));
}

static int fetch(struct download *w, const struct listed *f)
{
    struct buf url;
    buf_init(&url, 16384);
    int e =
        buf_printf(&url, "%s/%s/resolve/%s/", w->home.endpoint, w->how->name->repo, w->out->commit);
    if (e >= 0) e = web_quote(&url, f->path, true);
    const struct blob b = {&w->store, &w->watch, f, w->out->commit, url.data};
    if (e >= 0) e = blob_fetch(w->web, &b);
    buf_done(&url);
    if (e >= 0) w->done += f->size;
    return e;
}

/* Reads the index of weights, which was downloaded already, and chooses the files that it names. */
static int read_index(struct download *w, const struct listed *index)
{
    char path[HUB_PATH + 128], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/blobs/%s", w->store.folder, index->blob);
    if (!file_exists(path))
        snprintf(path, sizeof path, "%.*s/snapshots/%s/" CHOICE_INDEX, HUB_PATH - 128,
                 w->store.folder, w->out->commit);
    TRY(file_read(path, INDEX_MOST, &text, &n));
    int e = choice_shards(&w->out->list, text, n);
    mem_free(text);
    if (e < 0) return e;
    w->done = 0;
    count_bytes(w);
    return 0;
}

/* Returns the index of weights if the choice depends on it, else NULL. */
static const struct listed *find_index(const struct download *w)
{
    const struct listed *index =
        *w->how->name->pick ? NULL : listing_find(&w->out->list, CHOICE_INDEX);
    return index && index->wanted ? index : NULL;
}

static bool all_linked(const struct download *w)
{
    const struct listing *l = &w->out->list;
    for (size_t i = 0; i < l->n; i++)
        if (l->file[i].wanted &&
            !store_has_file(&w->store, w->out->commit, l->file[i].path, l->file[i].size))
            return false;
    return true;
}

/* True for files without which a directory is no model. */
static bool is_weights(const char *path)
{
    return strstr(path, ".safetensors") || choice_is_gguf(path);
}

/* Makes the links, those of the weights last.  If the process ends or a link cannot be made, the incomplete snapshot
 * has no weights, and so no program takes it for a model.  No link is made if contents are missing. */
static int link_all(const struct download *w)
{
    const struct listing *l = &w->out->list;
    bool whole = true;
    for (size_t i = 0; i < l->n && whole; i++)
        whole = !l->file[i].wanted || is_here(w, &l->file[i]);
    for (int weights = 0; whole && weights < 2; weights++)
        for (size_t i = 0; i < l->n; i++) {
            const struct listed *f = &l->file[i];
            if (f->wanted && is_weights(f->path) == weights &&
                !store_has_file(&w->store, w->out->commit, f->path, f->size))
                TRY(store_link(&w->store, w->out->commit, f->path, f->blob));
        }
    if (whole && all_linked(w)) return 0;
    return ERR(BUSY, "%s: another process has removed a file of it; the same command goes on",
               w->how->name->repo);
}

static int ask_person(const struct download *w)
{
    const struct pull *how = w->how;
    if (!how->agrees) return 0;
    return how->agrees(how->watch ? how->watch->ctx : NULL, w->out);
}

/* Downloads the index of weights.  If the index names files that the list did not mark, more bytes are missing than
 * `agrees` was told, so `agrees` is called again. */
static int fetch_index(struct download *w, const struct listed *index)
{
    uint64_t known = w->out->missing_bytes;
    TRY(fetch(w, index));
    TRY(read_index(w, index));
    TRY(check_room(w));
    return w->out->missing_bytes > known ? ask_person(w) : 0;
}

/* Downloads what is missing. */
static int fetch_all(struct download *w)
{
    struct listing *l = &w->out->list;
    const struct listed *index = find_index(w);
    TRY(store_make(&w->store));
    TRY(check_room(w));
    if (index && !is_here(w, index)) TRY(fetch_index(w, index));
    for (int large = 0; large < 2;
         large++) /* small files come first, so that a refusal is known before the large ones */
        for (size_t i = 0; i < l->n; i++)
            if (l->file[i].wanted && l->file[i].large == large && !is_here(w, &l->file[i]))
                TRY(fetch(w, &l->file[i]));
    return 0;
}

/* Lets the revision name the commit, unless it already does. */
static int set_ref(const struct download *w)
{
    const char *revision = *w->how->name->revision ? w->how->name->revision : "main";
    char at[HUB_PATH], want[HUB_PATH];
    if (hub_is_commit(revision)) return 0;
    snprintf(want, sizeof want, "%.*s/snapshots/%s", HUB_PATH - 64, w->store.folder,
             w->out->commit);
    if (hub_snapshot(w->store.folder, revision, at) && !strcmp(at, want)) {
        char ref[HUB_PATH + HUB_REVISION + 8];
        snprintf(ref, sizeof ref, "%s/refs/%s", w->store.folder, revision);
        if (path_exists(ref)) return 0;
    }
    return store_ref(&w->store, revision, w->out->commit);
}

/* Makes the names of what is here now. */
static int publish(const struct download *w)
{
    int lock;
    TRY(store_make(&w->store)); /* another process may have removed the repository meanwhile */
    TRY(store_lock_names(&w->store, &w->watch, &lock));
    int e = link_all(w);
    if (e >= 0) e = set_ref(w);
    if (lock >= 0) close(lock);
    return e;
}

static void on_show(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    const struct download *w = ctx;
    const struct hub_watch *to = w->how->watch;
    (void)total;
    if (to && to->shows) to->shows(to->ctx, what, w->done + done, w->out->missing_bytes);
}

static bool on_stop(void *ctx)
{
    const struct hub_watch *to = ((const struct download *)ctx)->how->watch;
    return to && to->stops && to->stops(to->ctx);
}

static void on_say(void *ctx, const char *sentence)
{
    const struct hub_watch *to = ((const struct download *)ctx)->how->watch;
    if (to && to->says) to->says(to->ctx, sentence);
}

static int work(struct download *w)
{
    struct pulled *p = w->out;
    TRY(find_commit(w));
    TRY(list_files(w));
    TRY(choice_make(&p->list, w->how->name));
    count_bytes(w);
    const struct listed *index = find_index(w);
    if (index && is_here(w, index)) TRY(read_index(w, index));
    if (w->how->dry) return 0;
    if (all_linked(w)) {
        /* in a cache that cannot be written, the model is complete without a ref and a lock */
        int lock;
        (void)store_lock_names(&w->store, &w->watch, &lock);
        if (all_linked(w)) (void)set_ref(w);
        if (lock >= 0) close(lock);
        return 0;
    }
    if (p->missing) TRY(ask_person(w));
    TRY(fetch_all(w));
    return publish(w);
}

/* Chooses from a snapshot as choice_make chooses from a list: safetensors, else the only .gguf file, else the file
 * with the quantization Q4_K_M. */
static int choose_here(const char snapshot[HUB_PATH], char out[HUB_PATH])
{
    struct folder f;
    char config[HUB_PATH];
    memcpy(out, snapshot, HUB_PATH);
    if (snprintf(config, sizeof config, "%s/config.json", snapshot) < HUB_PATH &&
        file_exists(config))
        return 0;
    TRY(hub_ggufs(snapshot, true, &f));
    bool found = f.n == 1 ? snprintf(out, HUB_PATH, "%s/%s", snapshot, f.name[0]) < HUB_PATH
                          : hub_picked(snapshot, "Q4_K_M", out) == 1;
    if (!found) memcpy(out, snapshot, HUB_PATH);
    folder_done(&f);
    return 0;
}

/* Finds the model in the cache, without the network. */
static int find_here(const struct hub_name *name, struct pulled *out)
{
    char snapshot[HUB_PATH], text[1024];
    hub_name_text(name, text);
    if (hub_check_ref(name) < 0)
        return ERR(NOTFOUND,
                   "%s: %s, and HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids the network", text,
                   err_last());
    if (!hub_find(name, snapshot) ||
        (*name->pick && hub_picked(snapshot, name->pick, out->path) != 1))
        return ERR(
            NOTFOUND,
            "%s is not in the cache, and HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids the network",
            text);
    snprintf(out->commit, sizeof out->commit, "%.40s", strrchr(snapshot, '/') + 1);
    return *name->pick ? 0 : choose_here(snapshot, out->path);
}

int hub_pull(const struct pull *how, struct pulled *out)
{
    struct download w = {.how = how, .out = out};
    *out = (struct pulled){0};
    if (hub_offline()) return find_here(how->name, out);
    w.watch = (struct hub_watch){&w, on_stop, on_show, on_say};
    TRY(hub_home(&w.home));
    snprintf(out->from, sizeof out->from, "%s", w.home.endpoint);
    int e = store_name(w.home.cache, how->name->repo, &w.store);
    if (e >= 0) e = web_open(&w.home, how->name, &w.watch, &w.web);
    if (e >= 0) e = work(&w);
    web_close(w.web);
    if (e < 0) pulled_done(out);
    return e;
}

void pulled_done(struct pulled *p)
{
    listing_done(&p->list);
    *p = (struct pulled){0};
}
