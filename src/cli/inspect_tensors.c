/* inspect_tensors.c - the tensors of a model in kvik inspect: those of all layers that differ in the number alone are one line. */
#include "cli/inspect.h"
#include "cli/screen.h"

#include <ctype.h>
#include <string.h>

enum { NUMBERS = 4, SHOWN = 160 };

/* Tensors of one type and shape whose names differ in numbers only. */
struct kin {
    const json_t *t; /* the first */
    size_t n;
    unsigned long from[NUMBERS], to[NUMBERS]; /* of each number in the names */
};

/* Returns the length of the number that is all there is between two dots of a name, or 0. */
static size_t number_at(const char *name, const char *s)
{
    size_t n = 0;
    if (s == name || s[-1] != '.') return 0;
    while (n < 9 && isdigit((unsigned char)s[n]))
        n++;
    return n && (s[n] == '.' || !s[n]) ? n : 0;
}

/* True if two names differ in numbers only. */
static bool are_alike(const char *a, const char *b)
{
    const char *s = a, *t = b;
    for (int numbers = 0;;) {
        size_t n = number_at(a, s), m = number_at(b, t);
        if (n && m && numbers < NUMBERS) {
            numbers++;
            s += n;
            t += m;
        } else if (*s != *t) {
            return false;
        } else if (!*s) {
            return true;
        } else {
            s++;
            t++;
        }
    }
}

static void join(struct kin *k, const json_t *t)
{
    const char *name = text(t, "name");
    int i = 0;
    for (const char *s = name; *s && i < NUMBERS; s++) {
        if (!number_at(name, s)) continue;
        unsigned long v = strtoul(s, NULL, 10);
        k->from[i] = k->n ? MIN(k->from[i], v) : v;
        k->to[i] = k->n ? MAX(k->to[i], v) : v;
        i++;
    }
    k->n++;
}

/* Writes the name with the range of each number: blk.0-29.attn_k.weight. */
static void show(const struct kin *k, char out[SHOWN])
{
    const char *name = text(k->t, "name");
    size_t at = 0;
    int i = 0;
    for (const char *s = name; *s && at + 24 < SHOWN; s++) {
        size_t n = i < NUMBERS ? number_at(name, s) : 0;
        if (!n) {
            out[at++] = (char)screen_one_line(*s);
            continue;
        }
        if (k->from[i] == k->to[i])
            at += (size_t)snprintf(out + at, SHOWN - at, "%lu", k->from[i]);
        else
            at += (size_t)snprintf(out + at, SHOWN - at, "%lu-%lu", k->from[i], k->to[i]);
        i++;
        s += n - 1;
    }
    out[at] = '\0';
}

static void put_line(const struct kin *k, int width)
{
    char name[SHOWN], shape[96] = "", size[16];
    size_t d, at = 0;
    json_t *v;
    show(k, name);
    json_array_foreach(json_object_get(k->t, "shape"), d, v)
    {
        if (at + 24 > sizeof shape) break;
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%lld", d ? " x " : "",
                               (long long)json_integer_value(v));
    }
    printf("  %-*s %-5s %-20s %s", width, name, text(k->t, "dtype"), shape,
           bytes_text((uint64_t)number(k->t, "bytes"), size));
    if (k->n > 1) printf(", %zu times", k->n);
    putchar('\n');
}

int inspect_tensors(const json_t *tensors)
{
    size_t i, j, n = 0;
    int width = 0;
    char name[SHOWN];
    json_t *t;
    struct kin *all = mem_array(MAX(json_array_size(tensors), 1), sizeof *all);
    if (!all) return say_failed("out of memory");
    json_array_foreach(tensors, i, t)
    {
        for (j = 0; j < n; j++)
            if (number(all[j].t, "bytes") == number(t, "bytes") &&
                !strcmp(text(all[j].t, "dtype"), text(t, "dtype")) &&
                json_equal(json_object_get(all[j].t, "shape"), json_object_get(t, "shape")) &&
                are_alike(text(all[j].t, "name"), text(t, "name")))
                break;
        if (j == n) all[n++] = (struct kin){.t = t};
        join(&all[j], t);
    }
    for (i = 0; i < n; i++) {
        show(&all[i], name);
        width = MAX(width, (int)MIN(strlen(name), 60));
    }
    for (i = 0; i < n; i++)
        put_line(&all[i], width);
    mem_free(all);
    return 0;
}
