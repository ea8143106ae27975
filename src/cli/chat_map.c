/* chat_map.c - the command /cache: shows the blocks of a branch and where they are, as kvik_cache_map reports them. */
#include "cli/cmd_chat.h"
#include "cli/screen.h"

#include <string.h>

enum { WIDTH = 64, LINES = 6 };

static uint64_t number(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static int read_map(const struct chat *c, kvik_seq s, json_t **out)
{
    char *text;
    TRY(kvik_cache_map(c->s.cache, s, &text));
    int e = json_parse(text, strlen(text), "the map", out);
    kvik_free(text);
    return e;
}

int chat_held(const struct chat *c, kvik_seq s, struct chat_held *out)
{
    json_t *o;
    const json_t *g;
    size_t i;
    TRY(read_map(c, s, &o));
    *out = (struct chat_held){.tokens = number(o, "tokens")};
    json_array_foreach(json_object_get(o, "groups"), i, g)
    {
        const json_t *form[] = {json_object_get(g, "blocks"), json_object_get(g, "tiles")};
        for (size_t k = 0; k < countof(form); k++) {
            out->bytes += number(form[k], "bytes");
            out->shared += number(form[k], "shared_bytes");
            out->disk += number(form[k], "spilled_bytes");
        }
    }
    json_decref(o);
    return 0;
}

const char *chat_context(const struct chat *c, char out[24])
{
    uint32_t most = chat_limit(c).tokens;
    out[0] = 0;
    if (most <= kvik_model_context(c->s.model)) snprintf(out, 24, " of %u", most);
    return out;
}

/* Prints layer numbers as ranges: "0-5, 7". */
static void print_layers(const json_t *layers)
{
    size_t n = json_array_size(layers);
    fputs(n == 1 ? "layer" : "layers", stderr);
    for (size_t i = 0, k; i < n; i = k) {
        json_int_t from = json_integer_value(json_array_get(layers, i)), to = from;
        for (k = i + 1; k < n && json_integer_value(json_array_get(layers, k)) == to + 1; k++)
            to++;
        fprintf(stderr, i ? ", %lld" : " %lld", (long long)from);
        if (to > from) fprintf(stderr, "-%lld", (long long)to);
    }
}

static const struct mark {
    char letter;
    const char *colour, *what;
} mark[] = {
    {'r', "\033[32m", "own"},
    {'R', "\033[36m", "shared with others"},
    {'o', "\033[1;32m", "being filled"},
    {'O', "\033[1;36m", "being filled, shared"},
    {'e', "\033[33m", "quantized"},
    {'E', "\033[1;33m", "quantized, shared"},
    {'d', "\033[35m", "on disk"},
    {'D', "\033[1;35m", "on disk, shared"},
    {'z', "\033[34m", "quantized, on disk"},
    {'Z', "\033[1;34m", "quantized, on disk, shared"},
    {'.', "\033[2m", "no longer needed"},
};

static void print_letter(char letter, bool colour)
{
    for (size_t i = 0; colour && i < countof(mark); i++)
        if (mark[i].letter == letter) {
            screen_code(stderr, mark[i].colour);
            fputc(letter, stderr);
            screen_code(stderr, "\033[0m");
            return;
        }
    fputc(letter, stderr);
}

/* Prints lines of letters, each after the number of its first row.  If there are many blocks, one letter stands for
 * several. */
static void print_blocks(const char *map, uint64_t rows, bool colour)
{
    size_t n = strlen(map), each = (n + WIDTH * LINES - 1) / (WIDTH * LINES);
    for (size_t i = 0, k = 0; i < n; i += each, k++) {
        if (k % WIDTH == 0)
            fprintf(stderr, "%s  %6llu ", k ? "\n" : "", (unsigned long long)i * rows);
        print_letter(map[i], colour);
    }
    fputc('\n', stderr);
    if (each > 1) fprintf(stderr, "         (the first of every %zu blocks)\n", each);
}

static void print_group(const json_t *g, bool colour)
{
    char a[16], b[16];
    const json_t *blocks = json_object_get(g, "blocks"), *tiles = json_object_get(g, "tiles");
    const char *codec = json_string_value(json_object_get(g, "codec")),
               *kind = json_string_value(json_object_get(g, "kind")),
               *map = json_string_value(json_object_get(g, "map"));
    uint64_t window = number(g, "window"), chunk = number(g, "chunk"), sinks = number(g, "sinks");
    print_layers(json_object_get(g, "layers"));
    if (kind && !strcmp(kind, "state"))
        fputs(": a state", stderr);
    else if (sinks)
        fprintf(stderr, ": %llu sinks and the last %llu rows", (unsigned long long)sinks,
                (unsigned long long)window);
    else if (window)
        fprintf(stderr, ": the last %llu rows", (unsigned long long)window);
    else if (chunk)
        fprintf(stderr, ": the chunk of %llu rows", (unsigned long long)chunk);
    else
        fputs(": all rows", stderr);
    fprintf(stderr, ", %llu blocks of %llu rows in %s", (unsigned long long)number(blocks, "count"),
            (unsigned long long)number(g, "block_rows"), bytes_text(number(blocks, "bytes"), a));
    if (number(tiles, "count"))
        fprintf(stderr, ", %llu %s tiles of %llu in %s", (unsigned long long)number(tiles, "count"),
                codec ? codec : "quantized", (unsigned long long)number(g, "tile_rows"),
                bytes_text(number(tiles, "bytes"), a));
    uint64_t shared = number(blocks, "shared_bytes") + number(tiles, "shared_bytes"),
             disk = number(blocks, "spilled_bytes") + number(tiles, "spilled_bytes");
    if (shared) fprintf(stderr, ", %s shared", bytes_text(shared, b));
    if (disk) fprintf(stderr, ", %s on disk", bytes_text(disk, b));
    if (number(g, "snapshots"))
        fprintf(stderr, ", %llu snapshot%s", (unsigned long long)number(g, "snapshots"),
                number(g, "snapshots") == 1 ? "" : "s");
    fputc('\n', stderr);
    if (map && *map) print_blocks(map, number(g, "block_rows"), colour);
}

static void print_legend(const json_t *groups, bool colour)
{
    const json_t *g;
    size_t i;
    bool any = false;
    for (size_t k = 0; k < countof(mark); k++) {
        bool seen = false;
        json_array_foreach(groups, i, g)
        {
            const char *map = json_string_value(json_object_get(g, "map"));
            seen |= map && strchr(map, mark[k].letter);
        }
        if (!seen) continue;
        fputs(any ? ", " : "  ", stderr);
        print_letter(mark[k].letter, colour);
        fprintf(stderr, " %s", mark[k].what);
        any = true;
    }
    if (any) fputc('\n', stderr);
}

int chat_map(struct chat *c)
{
    char a[16], b[16], d[16], context[24];
    bool colour = say_colour(stderr);
    json_t *o;
    const json_t *g;
    size_t i;
    struct chat_held h;
    kvik_usage u = {.size = sizeof u};
    TRY(chat_held(c, chat_here(c)->seq, &h));
    TRY(read_map(c, chat_here(c)->seq, &o));
    kvik_cache_usage(c->s.cache, &u);
    fprintf(stderr, "%s: %llu tokens%s in %s", chat_here(c)->name, (unsigned long long)h.tokens,
            chat_context(c, context), bytes_text(h.bytes, a));
    if (h.shared) fprintf(stderr, ", %s of it shared", bytes_text(h.shared, a));
    fprintf(stderr, "; %s of %s in use, peak %s\n", bytes_text(u.bytes, a), bytes_text(u.budget, b),
            bytes_text(u.peak_bytes, d));
    json_array_foreach(json_object_get(o, "groups"), i, g) print_group(g, colour);
    print_legend(json_object_get(o, "groups"), colour);
    json_decref(o);
    return 0;
}
