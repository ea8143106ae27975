/* shards.c - JSON that describes a checkpoint: config.json as Python writes it, and the index of a
 * sharded one.  The file names of an index are untrusted and are opened in the checkpoint's
 * directory.  They must be plain names: no directory part, not hidden, and with the suffix .safetensors. */
#include "base/buf.h"
#include "fmt/fmt_int.h"
#include "fmt/scan.h"

#include <string.h>

#define MAX_SHARDS 4096u
#define MAX_FILE   255u

static bool plain_name(const char *s, size_t n)
{
    static const char suffix[] = ".safetensors";
    const size_t k = sizeof suffix - 1;
    if (n <= k || n > MAX_FILE || s[0] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7F || s[i] == '/' || s[i] == '\\') return false;
    return memcmp(s + n - k, suffix, k) == 0;
}

static int take_entry(struct shards *s, struct scan *j, uint32_t *cap, const char *name)
{
    const char *file;
    if (scan_peek(j) != '"') return scan_error(j, "weight_map must hold file names");
    TRY(scan_string(j, &file));
    if (!plain_name(file, strlen(file)))
        return ERR(FORMAT,
                   "%s: weight_map \"%.200s\": \"%.200s\" is not the plain name of a .safetensors "
                   "file in the same directory",
                   j->what, name, file);
    if (s->n == *cap) {
        uint32_t grown = *cap ? *cap * 2 : 64;
        struct shard_entry *entry = mem_grow(s->entry, grown, sizeof *entry);
        if (!entry) return ERR_NOMEM;
        s->entry = entry;
        *cap = grown;
    }
    s->entry[s->n++] = (struct shard_entry){.file = file, .name = name};
    return 0;
}

static int take_map(struct shards *s, struct scan *j)
{
    const char *name;
    bool first = true;
    uint32_t cap = 0;
    int e;
    if (scan_peek(j) != '{') return scan_error(j, "weight_map must be an object");
    TRY(scan_char(j, '{'));
    while ((e = scan_key(j, &first, &name)) == 1)
        TRY(take_entry(s, j, &cap, name));
    return e;
}

static int take_index(struct shards *s, struct scan *j)
{
    const char *key;
    bool first = true, map = false;
    int e;
    TRY(scan_char(j, '{'));
    while ((e = scan_key(j, &first, &key)) == 1) {
        if (strcmp(key, "weight_map") != 0) {
            TRY(scan_skip(j));
            continue;
        }
        if (map) return scan_error(j, "weight_map occurs twice");
        map = true;
        TRY(take_map(s, j));
    }
    if (e < 0) return e;
    if (s->n == 0) return ERR(FORMAT, "%s: no weight_map that names tensors", j->what);
    return scan_end(j);
}

/* Gives every distinct file a number. */
static int number_files(struct shards *s, const char *what)
{
    struct names by_file;
    int e = 0;
    TRY(names_build(&by_file, s->entry, s->n, sizeof *s->entry));
    s->file = mem_array(MIN(s->n, MAX_SHARDS), sizeof *s->file);
    if (!s->file) e = ERR_NOMEM;
    for (uint32_t i = 0; i < s->n && e == 0; i++) {
        struct shard_entry *t = &s->entry[(const struct shard_entry *)by_file.at[i] - s->entry];
        bool same = s->n_files > 0 && strcmp(s->file[s->n_files - 1], t->file) == 0;
        if (!same && s->n_files == MAX_SHARDS)
            e = ERR(LIMIT, "%s: more than %u files", what, MAX_SHARDS);
        else if (!same)
            s->file[s->n_files++] = t->file;
        t->number = s->n_files - 1;
    }
    names_done(&by_file);
    return e;
}

int shards_parse(const char *text, size_t n, const char *what, struct shards *out)
{
    struct shards s = {0};
    struct scan j;
    TRY(scan_init(&j, text, n, what));
    int e = take_index(&s, &j);
    s.text = j.text; /* the names are in it */
    j.text = NULL;
    scan_done(&j);
    if (e == 0) e = number_files(&s, what);
    if (e < 0) {
        shards_done(&s);
        return e;
    }
    *out = s;
    return 0;
}

void shards_done(struct shards *s)
{
    mem_free(s->text);
    mem_free(s->entry);
    mem_free(s->file);
    *s = (struct shards){0};
}

/* Returns the length of the string literal that begins with s[0] == '"', its quotes included; n if it never ends. */
static size_t literal(const char *s, size_t n)
{
    size_t i = 1;
    while (i < n && s[i] != '"')
        i += s[i] == '\\' ? 2 : 1;
    return i < n ? i + 1 : n;
}

/* Python's json module writes NaN and Infinity, which are not JSON.  In published files Infinity means "no limit".
 * NaN becomes a text, so that reading a number there is an error.  Returns the length of such a word at s, and its
 * replacement; or 0. */
static size_t python_word(const char *s, size_t n, const char **json)
{
    static const struct {
        const char *word, *json;
    } words[] = {{"Infinity", "1.7976931348623157e308"}, {"NaN", "\"NaN\""}};
    for (size_t i = 0; i < countof(words); i++) {
        size_t k = strlen(words[i].word);
        if (n < k || memcmp(s, words[i].word, k) != 0) continue;
        *json = words[i].json;
        return k;
    }
    return 0;
}

static int from_python(const char *text, size_t n, struct buf *out)
{
    size_t i = 0, copied = 0;
    while (i < n) {
        const char *json;
        size_t k;
        if (text[i] == '"') {
            i += literal(text + i, n - i);
        } else if ((k = python_word(text + i, n - i, &json)) != 0) {
            TRY(buf_append(out, text + copied, i - copied));
            TRY(buf_puts(out, json));
            copied = i += k;
        } else {
            i++;
        }
    }
    return buf_append(out, text + copied, n - copied);
}

int config_parse(const char *text, size_t n, const char *what, json_t **out)
{
    struct buf b;
    json_t *j = NULL;
    buf_init(&b, n * 3 + 64);
    int e = from_python(text, n, &b);
    if (e == 0) e = json_parse(b.data, b.len, what, &j);
    buf_done(&b);
    if (e == 0 && !json_is_object(j)) {
        json_decref(j);
        e = ERR(FORMAT, "%s: must be a JSON object", what);
    }
    if (e < 0) return e;
    *out = j;
    return 0;
}
