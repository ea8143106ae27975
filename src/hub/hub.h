/* hub.h - floor 1: models by name.  A name such as "org/name:Q4_K_M@main" is a repository of the Hugging Face hub, a file
 * or quantization in it, and a revision.  The hub's cache on this machine has the layout of the hub's own library, so other
 * programs find what kvik downloads, and kvik finds theirs:
 *
 *     models--org--name/blobs/SHA              contents, named by SHA-256, or by git's SHA-1 for small files
 *     models--org--name/snapshots/COMMIT/FILE  links ../../blobs/SHA
 *     models--org--name/refs/REVISION          the commit of a branch or tag
 *     .locks/models--org--name/SHA.lock        held while a file is downloaded
 *
 * All that a server sends is untrusted.  This floor belongs to the command, not to the library, and includes base only. */
#pragma once
#include "base/base.h"

#define HUB_PATH 4096
enum { HUB_REPO = 201, HUB_PICK = 513, HUB_REVISION = 201, HUB_COMMIT = 41 };

/* --- home.c: the environment.  Functions that return bool write `out` only if they return true. */
bool hub_dir(char out[HUB_PATH]);     /* the hub's cache */
bool hub_own_dir(char out[HUB_PATH]); /* kvik's own, where bootstrap puts models */
struct hub_home {
    char cache[HUB_PATH];
    char endpoint[512]; /* "https://huggingface.co", without a slash at its end */
    char token[512];    /* "" without one */
    uint32_t patience;  /* seconds that a server may be silent */
};
/* Reads the environment for a download.  Fails without a place for the cache, and for an endpoint that is no URL. */
int hub_home(struct hub_home *out);
/* True if HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids the network. */
bool hub_offline(void);
/* True if an environment variable is 1, on, yes or true. */
bool hub_is_set(const char *variable);

/* --- name.c: names and paths. */
struct hub_name {
    char repo[HUB_REPO];
    char pick[HUB_PICK];         /* a file or a quantization, or "" */
    char revision[HUB_REVISION]; /* or "" for main */
};
/* True if s[0, n) is "org/name" or "name" as the hub's own library takes it.  "--" is refused: two repositories, a--b/c
 * and a/b--c, would have one folder. */
bool hub_is_repo(const char *s, size_t n);
bool hub_is_commit(const char *s); /* 40 hex digits */
/* True if a path of a repository can be a path below a directory: no "..", no slash at either end, no control characters. */
bool hub_is_path(const char *s);
/* Reads "org/name[:FILE or QUANTIZATION][@REVISION]", also behind "hf.co/" or as the URL of a page of the hub. */
int hub_name_read(const char *text, struct hub_name *out);
/* Writes the name as a person types it. */
void hub_name_text(const struct hub_name *name, char out[1024]);
/* True if a word names a .gguf file: its name, its path, or its quantization, "Q4_K_M" of "model-Q4_K_M.gguf". */
bool hub_picks(const char *pick, const char *path);

/* --- snapshot.c: what is in the cache. */
/* Writes the folder of a repository, which need not exist. */
bool hub_folder(const char *cache, const char *repo, char out[HUB_PATH]);
/* Finds the snapshot of a revision in the folder of a repository.  The revision is a branch, a tag, a commit, at
 * least the first six digits of a commit, or "": then main is taken, or the only snapshot if there is no main. */
bool hub_snapshot(const char *folder, const char *revision, char out[HUB_PATH]);
/* Finds the snapshot that a name means. */
bool hub_find(const struct hub_name *name, char out[HUB_PATH]);
/* Fails if a revision has a file in refs but no snapshot was found.  The error names that file and says what is
 * wrong. */
int hub_check_ref(const struct hub_name *name);

/* --- picked.c: .gguf files of a directory. */
struct folder;
/* Lists the .gguf files of models, without the later parts.  deep: also in the directories below. */
int hub_ggufs(const char *dir, bool deep, struct folder *out);
/* Finds the .gguf file of a snapshot that `pick` names.  Returns how many files it names (2 means two or more) or an
 * error code.  *out is set if exactly one was found. */
int hub_picked(const char *snapshot, const char *pick, char out[HUB_PATH]);

/* The functions that a download calls.  Each may be NULL. */
struct hub_watch {
    void *ctx;
    /* Called at least once a second.  If it returns true, the download ends; a later call can continue it. */
    bool (*stops)(void *ctx);
    /* Shows how many bytes of all files of the download are done.  what: the path of the file that is being
     * downloaded. */
    void (*shows)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void (*says)(void *ctx, const char *sentence);
};
