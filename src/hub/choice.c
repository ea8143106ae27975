/* choice.c - chooses files of a repository.  Files that kvik does not read (pickled weights, ONNX, pictures) are not
 * downloaded. */
#include "hub/choice.h"
#include "base/bytes.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PREFERRED "Q4_K_M"

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcasecmp(s + n - k, tail);
}

enum { TAIL = 20 }; /* bytes of "-00001-of-00003.gguf" */

/* Reads five digits; returns 0 if one of them is no digit. */
static unsigned digits_value(const char *s)
{
    unsigned n = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9') return 0;
        n = 10 * n + (unsigned)(s[i] - '0');
    }
    return n;
}

unsigned choice_parts(const char *path, unsigned *part)
{
    size_t n = strlen(path);
    const char *s = n > TAIL ? path + n - TAIL : "";
    *part = 1;
    if (s[0] != '-' || strncmp(s + 6, "-of-", 4) != 0 || strcmp(s + 15, ".gguf") != 0) return 1;
    unsigned no = digits_value(s + 1), of = digits_value(s + 10);
    if (!no || no > of) return 1;
    *part = no;
    return of;
}

void choice_set_part(char *path, unsigned part)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%05u", part);
    memcpy(path + strlen(path) - TAIL + 1, digits, 5);
}

bool choice_is_gguf(const char *path)
{
    unsigned part;
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    if (!ends_with(base, ".gguf") || strstr(base, "mmproj") || !strncmp(base, "imatrix", 7))
        return false;
    (void)choice_parts(path, &part);
    return part == 1;
}

void choice_word(const struct listing *l, const char *path, char out[HUB_PICK])
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *from = base;
    unsigned part;
    size_t n = strlen(base) - 5, same = 0;
    if (choice_parts(path, &part) > 1) n -= TAIL - 5;
    for (size_t i = 0; i < n; i++)
        if ((base[i] == '-' || base[i] == '.') && i + 1 < n) from = base + i + 1;
    snprintf(out, HUB_PICK, "%.*s", (int)MIN(n - (size_t)(from - base), HUB_PICK - 1), from);
    for (size_t i = 0; i < l->n; i++)
        same += choice_is_gguf(l->file[i].path) && hub_picks(out, l->file[i].path);
    if (same != 1 || from == base) snprintf(out, HUB_PICK, "%.*s", HUB_PICK - 1, path);
}

/* Sets `wanted` of a .gguf file and of all its parts.  Returns the bytes of all parts.  *lacks: a part that the list
 * does not have, or "". */
static uint64_t take_parts(const struct listing *l, const struct listed *first, bool want,
                           char lacks[HUB_PATH])
{
    char path[HUB_PATH];
    unsigned part, of = choice_parts(first->path, &part);
    uint64_t bytes = 0;
    *lacks = 0;
    if (snprintf(path, sizeof path, "%s", first->path) >= HUB_PATH) of = 1;
    for (unsigned i = 1; i <= of && !*lacks; i++) {
        if (of > 1) choice_set_part(path, i);
        struct listed *f = of > 1 ? listing_find(l, path) : (struct listed *)(uintptr_t)first;
        if (!f) {
            memcpy(lacks, path, HUB_PATH);
        } else {
            bytes += f->size;
            f->wanted |= want;
        }
    }
    return bytes;
}

uint64_t choice_bytes(const struct listing *l, const struct listed *first)
{
    char lacks[HUB_PATH];
    return take_parts(l, first, false, lacks);
}

/* Lists the .gguf files in an error that asks to choose one. */
static int refuse_several(const struct listing *l, const struct hub_name *name, const char *why)
{
    char list[640], word[HUB_PICK], size[16];
    size_t n = 0, left = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct listed *f = &l->file[i];
        if (!choice_is_gguf(f->path)) continue;
        choice_word(l, f->path, word);
        if (n + strlen(word) + 24 > sizeof list)
            left++;
        else
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s (%s)", n ? ", " : "", word,
                                  bytes_text(choice_bytes(l, f), size));
    }
    if (left) snprintf(list + n, sizeof list - n, ", %zu more", left);
    return ERR(ARG, "%s %.120s; give one behind a colon, as in kvik pull %s:%.40s: %s", name->repo,
               why, name->repo, n ? PREFERRED : "FILE", list);
}

/* Finds the .gguf files that a word names. */
static size_t find_gguf(const struct listing *l, const char *pick, struct listed **found)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        struct listed *f = &l->file[i];
        if (!choice_is_gguf(f->path) || (*pick && !hub_picks(pick, f->path))) continue;
        if (!n++) *found = f;
        if (!strcmp(pick, f->path)) {
            *found = f;
            return 1;
        }
    }
    return n;
}

static int choose_gguf(struct listing *l, const struct hub_name *name)
{
    char why[160], lacks[HUB_PATH];
    struct listed *f = NULL;
    size_t n = find_gguf(l, name->pick, &f);
    if (n > 1 && !*name->pick && find_gguf(l, PREFERRED, &f) == 1) n = 1;
    if (n != 1) {
        snprintf(why, sizeof why, n ? "has several .gguf files%s%.60s" : "has no .gguf file%s%.60s",
                 *name->pick ? " for " : "", name->pick);
        return refuse_several(l, name, why);
    }
    take_parts(l, f, true, lacks);
    return *lacks ? ERR(FORMAT, "%s lists %.200s, but not %.200s", name->repo, f->path, lacks) : 0;
}

/* True for files beside the weights that kvik reads. */
static bool is_beside(const char *path)
{
    static const char *const read[] = {"config.json",
                                       "generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "normalizer.json",
                                       "chat_template.jinja",
                                       "chat_template.json",
                                       "preprocessor_config.json",
                                       "processor_config.json"};
    for (size_t i = 0; i < countof(read); i++)
        if (!strcmp(path, read[i])) return true;
    return !strncmp(path, "additional_chat_templates/", 26) && ends_with(path, ".jinja");
}

/* True for "model-00001-of-00003.safetensors", which an index most likely names. */
static bool is_shard(const char *path)
{
    return !strncmp(path, "model-", 6) && strstr(path, "-of-") && ends_with(path, ".safetensors") &&
           !strchr(path, '/');
}

/* Says why a repository has nothing that kvik reads. */
static int refuse_weights(const struct listing *l, const struct hub_name *name)
{
    const char *other = NULL;
    for (size_t i = 0; i < l->n && !other; i++)
        if (ends_with(l->file[i].path, ".bin") || ends_with(l->file[i].path, ".pth") ||
            ends_with(l->file[i].path, ".pt") || ends_with(l->file[i].path, ".h5") ||
            ends_with(l->file[i].path, ".onnx") || ends_with(l->file[i].path, ".msgpack"))
            other = l->file[i].path;
    if (listing_find(l, "adapter_config.json"))
        return ERR(UNSUPPORTED,
                   "%s is an adapter, and kvik reads none; merge it into its model first",
                   name->repo);
    if (other)
        return ERR(
            UNSUPPORTED,
            "%s has its weights in %.200s, which kvik does not read, and neither model.safetensors nor a .gguf "
            "file; search the hub for a copy in one of these formats",
            name->repo, other);
    return ERR(UNSUPPORTED, "%s has neither model.safetensors nor a .gguf file (%zu files in all)",
               name->repo, l->n);
}

int choice_make(struct listing *l, const struct hub_name *name)
{
    struct listed *whole = listing_find(l, "model.safetensors"),
                  *index = listing_find(l, CHOICE_INDEX), *any;
    bool config = listing_find(l, "config.json") != NULL;
    if (*name->pick) {
        struct listed *f = listing_find(l, name->pick);
        if (f && !choice_is_gguf(f->path)) {
            f->wanted = true;
            return 0;
        }
    }
    if (*name->pick || !config || (!whole && !index)) {
        if (*name->pick || find_gguf(l, "", &any)) return choose_gguf(l, name);
        return refuse_weights(l, name);
    }
    for (size_t i = 0; i < l->n; i++)
        l->file[i].wanted = is_beside(l->file[i].path);
    if (whole) /* if there are both, kvik reads the file in one piece */
        whole->wanted = true;
    for (size_t i = 0; !whole && i < l->n; i++)
        if (is_shard(l->file[i].path)) l->file[i].wanted = true;
    if (!whole) index->wanted = true;
    return 0;
}

int choice_shards(struct listing *l, const char *text, size_t n)
{
    json_t *o = NULL, *v;
    const char *tensor;
    int e = 0;
    TRY(json_parse(text, n, CHOICE_INDEX, &o));
    json_t *map = json_object_get(o, "weight_map");
    if (!json_is_object(map)) e = ERR(FORMAT, CHOICE_INDEX ": no object weight_map");
    for (size_t i = 0; i < l->n && e >= 0; i++)
        if (ends_with(l->file[i].path, ".safetensors")) l->file[i].wanted = false;
    json_object_foreach(map, tensor, v)
    {
        const char *path = json_string_value(v);
        if (e < 0) break;
        struct listed *f = path ? listing_find(l, path) : NULL;
        if (f && ends_with(path, ".safetensors"))
            f->wanted = true;
        else
            e = ERR(FORMAT,
                    CHOICE_INDEX ": tensor %.100s is in %.200s, which the repository does not have",
                    tensor, path ? path : "no file");
    }
    json_decref(o);
    return e;
}
