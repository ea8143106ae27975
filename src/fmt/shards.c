/* shards.c - JSON that describes a checkpoint: config.json as Python writes it, and the index of a
 * sharded one.  The file names of an index come from strangers and are opened in the checkpoint's
 * directory, so they must be plain names: nothing that could leave the directory, be hidden, or be
 * another kind of file. */
#include "base/buf.h"
#include "fmt/fmt_int.h"

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

static int take_file(struct shards *s, const char *what, const char *tensor, const json_t *file)
{
    const char *name = json_string_value(file);
    if (!name || !plain_name(name, json_string_length(file)))
        return ERR(FORMAT,
                   "%s: weight_map \"%.200s\": \"%.200s\" is not the plain name of a .safetensors "
                   "file in the same directory",
                   what, tensor, name ? name : "(not a string)");
    if (json_object_get(s->number, name)) return 0;
    if (s->n_files == MAX_SHARDS) return ERR(LIMIT, "%s: more than %u files", what, MAX_SHARDS);
    const char **grown = mem_grow(s->file, s->n_files + 1, sizeof *grown);
    if (!grown) return ERR_NOMEM;
    s->file = grown;
    if (json_object_set_new(s->number, name, json_integer(s->n_files)) < 0)
        return ERR(NOMEM, "out of memory: %s", what);
    s->file[s->n_files++] = name;
    return 0;
}

static int take_index(struct shards *s, const char *what)
{
    const char *tensor;
    json_t *file;
    json_t *map = json_object_get(s->index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return ERR(FORMAT, "%s: \"weight_map\" must be an object that names tensors", what);
    if (!s->number) return ERR(NOMEM, "out of memory: %s", what);
    s->weight_map = map;
    json_object_foreach(map, tensor, file)
    {
        TRY(take_file(s, what, tensor, file));
    }
    return 0;
}

int shards_parse(const char *text, size_t n, const char *what, struct shards *out)
{
    struct shards s = {0};
    TRY(json_parse(text, n, what, &s.index));
    s.number = json_object();
    int e = take_index(&s, what);
    if (e < 0) {
        shards_done(&s);
        return e;
    }
    *out = s;
    return 0;
}

void shards_done(struct shards *s)
{
    mem_free(s->file);
    json_decref(s->number);
    json_decref(s->index);
    *s = (struct shards){0};
}

/* Length of the string literal at s[0] == '"', its quotes included; n if it never ends. */
static size_t literal(const char *s, size_t n)
{
    size_t i = 1;
    while (i < n && s[i] != '"')
        i += s[i] == '\\' ? 2 : 1;
    return i < n ? i + 1 : n;
}

/* Python's json module writes what no other parser reads.  Returns the length of such a word at s
 * and its replacement, or 0. */
static size_t python_word(const char *s, size_t n, const char **json)
{
    static const struct {
        const char *word, *json;
    } words[] = {{"Infinity", "1.7976931348623157e308"}, {"NaN", "null"}};
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
