/* globals.c - the functions that every template finds: range, dict, namespace, raise_exception and strftime_now. */
#include "chat/builtin.h"

#include <locale.h>
#include <string.h>
#include <time.h>

int g_range(struct builtin_call *c, struct val *out)
{
    int64_t a, b, step;
    struct val_seq *s;
    TRY(args_int(c, 0, 0, &a));
    TRY(args_int(c, 1, 0, &b));
    TRY(args_int(c, 2, 1, &step));
    if (c->a[1].t == V_MISSING) {
        b = a;
        a = 0;
    }
    if (step == 0) return ERR(FORMAT, "range() arg 3 must not be zero");
    __int128 gap = step > 0 ? (__int128)b - a : (__int128)a - b;
    __int128 width = step > 0 ? (__int128)step : -(__int128)step;
    __int128 n = gap > 0 ? (gap + width - 1) / width : 0;
    if (n > RANGE_MAX)
        return ERR(FORMAT, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                   RANGE_MAX);
    TRY(render_work(c->r, (size_t)n / 8));
    TRY(seq_new(c->r, SEQ_RANGE, (size_t)n, &s));
    for (; s->n < (size_t)n; s->n++)
        s->v[s->n] = val_int(a + (int64_t)s->n * step);
    *out = val_seq(s);
    return 0;
}

/* The functions dict and namespace: take the items of a mapping, then the named arguments. */
int g_dict(struct builtin_call *c, struct val *out)
{
    struct dict *d;
    struct val from = c->raw->n ? c->raw->v[0] : val_none();
    if (c->raw->n > 1)
        return ERR(FORMAT, "%s expected at most 1 argument, got %zu", c->row->name, c->raw->n);
    if (c->raw->n && from.t != V_DICT)
        return ERR(UNSUPPORTED, "%s() of a %s is not supported", c->row->name, val_type_name(from));
    TRY(dict_new(c->r, c->raw->n_kw, &d));
    *out = (struct val){.t = (uint8_t)c->row->how, .dict = d};
    for (size_t i = 0; c->raw->n && i < from.dict->n; i++)
        TRY(member_set(c->r, *out, from.dict->v[i].k, from.dict->v[i].v));
    for (size_t i = 0; i < c->raw->n_kw; i++) {
        struct val k = {.t = V_STR, .str = (struct str *)c->raw->kw[i].name};
        TRY(member_set(c->r, *out, k, c->raw->kw[i].v));
    }
    return 0;
}

int g_raise(struct builtin_call *c, struct val *out)
{
    struct val s;
    (void)out;
    TRY(val_str(c->r, c->a[0], &s));
    return ERR(ARG, "%.*s", (int)MIN(s.str->n, (size_t)1000), s.str->s);
}

/* Finds the time that strftime_now shows: the caller's, or that of the clock. */
static int moment(const struct jinja_now *now, struct tm *tm)
{
    time_t t = time(NULL);
    if (!now->set) {
        localtime_r(&t, tm);
        return 0;
    }
    struct tm day = {
        .tm_year = now->year - 1900, .tm_mon = now->month - 1, .tm_mday = now->day, .tm_hour = 12};
    struct tm asked = day;
    timegm(&day); /* computes the day of the week and of the year */
    if (day.tm_mon != asked.tm_mon || day.tm_mday != asked.tm_mday)
        return ERR(ARG, "strftime_now: the given moment is not a date");
    *tm = day;
    tm->tm_hour = now->hour;
    tm->tm_min = now->minute;
    tm->tm_sec = now->second;
    tm->tm_isdst = -1;
    return 0;
}

/* Replaces %f, %z and %Z, which C gives another meaning than Python does for a time without a zone.  Puts a blank
 * in front, so that the result of strftime is never empty. */
static int c_format(const struct str *f, struct buf *out)
{
    TRY(buf_putc(out, ' '));
    for (size_t i = 0; i < f->n; i++) {
        char next = i + 1 < f->n && f->s[i] == '%' ? f->s[i + 1] : 0;
        if (next == 'f') TRY(buf_puts(out, "000000"));
        if (next && !strchr("fzZ", next)) TRY(buf_append(out, f->s + i, 2));
        if (!next) TRY(buf_append(out, f->s + i, 1));
        i += next != 0;
    }
    return 0;
}

/* Appends the time in a format.  Two bytes of the format become at most 32, unless it gives a width. */
static int put_moment(struct render_state *r, const struct tm *tm, const char *format,
                      struct val *out)
{
    size_t cap = 16 * strlen(format) + 64;
    TRY(render_work(r, 32)); /* the cost of making a locale */
    TRY(render_work_bytes(r, cap));
    char *text;
    RUN_NEW(r, text, cap);
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c) return ERR(NOMEM, "out of memory");
    size_t n = strftime_l(text, cap, format, tm, c);
    freelocale(c);
    if (!n) return ERR(LIMIT, "strftime_now: the format makes a text of more than %zu bytes", cap);
    return str_view(r, text + 1, n - 1, out);
}

int g_strftime(struct builtin_call *c, struct val *out)
{
    struct val fmt;
    struct tm tm = {0};
    struct buf b;
    TRY(args_str(c, 0, &fmt));
    if (memchr(fmt.str->s, 0, fmt.str->n)) return ERR(FORMAT, "embedded null character");
    TRY(moment(&c->r->now, &tm));
    buf_init(&b, RENDER_MAX_MEMORY);
    int e = c_format(fmt.str, &b);
    if (e >= 0) e = put_moment(c->r, &tm, b.data, out);
    buf_done(&b);
    return e;
}
