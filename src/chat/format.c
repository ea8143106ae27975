/* format.c - the two ways Python formats text: 'x is %s' % x and '{} is {x}'.format(...).  Fields
 * reach data only, by the same rules as obj.name and obj[key] in the template (CVE-2024-56326 was
 * an indirect way to the real str.format; there is no such function here). */
#include "base/utf8.h"
#include "chat/value.h"

#include <math.h>
#include <string.h>

#define WIDTH_MAX (1 << 20)

struct spec {
    bool left, zero, plus, space, alt, comma;
    char align; /* < > ^ =, 0: the type's */
    uint32_t fill;
    int width, prec; /* prec -1: none */
    char conv;
};

static int put_repeat(struct run *r, struct buf *out, uint32_t fill, size_t n)
{
    TRY(run_work_bytes(r, n * 4));
    for (; n; n--)
        TRY(buf_utf8(out, fill));
    return 0;
}

/* Sign, padding and digits in the order the alignment asks for. */
static int put_padded(struct run *r, struct buf *out, const struct spec *s, const char *sign,
                      const char *body, size_t n, char align)
{
    size_t width = utf8_count(body, n) + strlen(sign);
    size_t fill = s->width > 0 && (size_t)s->width > width ? (size_t)s->width - width : 0;
    size_t before = align == '<' ? 0 : align == '^' ? fill / 2 : fill;
    uint32_t ch = s->fill ? s->fill : ' ';
    if (align == '=') TRY(buf_puts(out, sign));
    TRY(put_repeat(r, out, ch, before));
    if (align != '=') TRY(buf_puts(out, sign));
    TRY(buf_append(out, body, n));
    return put_repeat(r, out, ch, fill - before);
}

static const char *sign_of(const struct spec *s, bool negative)
{
    return negative ? "-" : s->plus ? "+" : s->space ? " " : "";
}

static int put_text(struct run *r, struct buf *out, const struct spec *s, struct val v)
{
    size_t n = v.str->n;
    if (s->prec >= 0) n = str_offset(v.str, (size_t)s->prec);
    char align = s->align ? s->align : s->left ? '<' : '>';
    return put_padded(r, out, s, "", v.str->s, n, align);
}

/* Thousands separators into plain digits (before a point or exponent). */
static void put_commas(char *digits, size_t cap, char sep)
{
    size_t n = strspn(digits, "0123456789"), len = strlen(digits);
    for (size_t at = n; at > 3;) {
        at -= 3;
        if (len + 2 > cap) return;
        memmove(digits + at + 1, digits + at, len - at + 1);
        digits[at] = sep;
        len++;
    }
}

static int put_int(struct run *r, struct buf *out, const struct spec *s, int64_t v, char conv)
{
    char digits[160];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    unsigned base = conv == 'x' || conv == 'X' ? 16 : conv == 'o' ? 8 : conv == 'b' ? 2 : 10;
    char *p = digits + 80, *end = p;
    *end = 0;
    do
        *--p = (conv == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
    while (u /= base);
    while (s->prec > end - p && end - p < 70)
        *--p = '0';
    memmove(digits, p, (size_t)(end - p) + 1);
    if (s->comma) put_commas(digits, sizeof digits, ',');
    char sign[8];
    strcpy(sign, sign_of(s, v < 0));
    if (s->alt && base != 10) strncat(sign, (char[]){'0', conv, 0}, 3);
    char align = s->align ? s->align : s->left ? '<' : s->zero ? '=' : '>';
    struct spec t = *s;
    if (s->zero && !s->fill && align == '=') t.fill = '0';
    return put_padded(r, out, &t, sign, digits, strlen(digits), align);
}

static int put_float(struct run *r, struct buf *out, const struct spec *s, double f, char conv)
{
    char tmp[512];
    int prec = s->prec < 0 ? 6 : MIN(s->prec, 300);
    bool negative = signbit(f) && !isnan(f);
    if (isnan(f) || isinf(f))
        strcpy(tmp, isnan(f) ? "nan" : "inf");
    else if (conv == 'r')
        float_repr(fabs(f), tmp);
    else
        float_fixed(fabs(conv == '%' ? f * 100 : f), prec, conv == '%' ? 'f' : conv, s->alt, tmp,
                    sizeof tmp - 1);
    if (conv == '%') strcat(tmp, "%");
    if (s->comma) put_commas(tmp, sizeof tmp, ',');
    char align = s->align ? s->align : s->left ? '<' : s->zero ? '=' : '>';
    struct spec t = *s;
    if (s->zero && !s->fill && align == '=') t.fill = '0';
    return put_padded(r, out, &t, sign_of(s, negative), tmp, strlen(tmp), align);
}

/* ---- percent */

struct percent {
    struct run *r;
    struct val arg;
    size_t at; /* next item of a tuple */
    bool used;
    struct buf out;
};

static int percent_next(struct percent *p, struct val *out)
{
    if (val_is_tuple(p->arg)) {
        if (p->at >= p->arg.seq->n) return run_fail(p->r, "not enough arguments for format string");
        *out = p->arg.seq->v[p->at++];
        return 0;
    }
    if (p->used) return run_fail(p->r, "not enough arguments for format string");
    p->used = true;
    *out = p->arg;
    return 0;
}

static int percent_number(struct percent *p, const char **s, const char *end, int *out)
{
    struct val v;
    *out = 0;
    if (*s < end && **s == '*') {
        (*s)++;
        TRY(percent_next(p, &v));
        if (!val_is_int(v)) return run_fail(p->r, "* wants int");
        *out = (int)MAX((int64_t)-WIDTH_MAX, MIN(val_as_int(v), (int64_t)WIDTH_MAX));
    }
    for (; *s < end && **s >= '0' && **s <= '9'; (*s)++)
        *out = MIN(*out * 10 + (**s - '0'), WIDTH_MAX);
    return 0;
}

static int percent_put(struct percent *p, const struct spec *s, struct val v)
{
    struct val t;
    struct buf b;
    switch (s->conv) {
    case 's':
    case 'r':
    case 'a':
        if (s->conv == 's')
            TRY(val_str(p->r, v, &t));
        else {
            buf_init(&b, RUN_MAX_MEMORY);
            int e = val_repr(p->r, v, &b);
            if (e >= 0)
                e = str_take(p->r, &b, &t);
            else
                buf_done(&b);
            TRY(e);
        }
        return put_text(p->r, &p->out, s, t);
    case 'c':
        if (v.t == V_STR && str_chars(v.str) == 1) return put_text(p->r, &p->out, s, v);
        if (!val_is_int(v) || v.i < 0 || v.i > 0x10FFFF || (v.i >= 0xD800 && v.i < 0xE000))
            return run_fail(p->r, "%%c requires int or char");
        return buf_utf8(&p->out, (uint32_t)v.i);
    case 'd':
    case 'i':
    case 'u':
        if (!val_is_num(v))
            return run_fail(p->r, "%%%c format: a real number is required, not %s", s->conv,
                            val_type_name(v));
        if (v.t == V_FLOAT && !(fabs(v.f) < 9.2e18))
            return run_fail(p->r, "cannot convert float to integer");
        return put_int(p->r, &p->out, s, v.t == V_FLOAT ? (int64_t)v.f : val_as_int(v), 'd');
    case 'x':
    case 'X':
    case 'o':
        if (!val_is_int(v))
            return run_fail(p->r, "%%%c format: an integer is required, not %s", s->conv,
                            val_type_name(v));
        return put_int(p->r, &p->out, s, val_as_int(v), s->conv);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!val_is_num(v)) return run_fail(p->r, "must be real number, not %s", val_type_name(v));
        return put_float(p->r, &p->out, s, val_as_float(v), s->conv);
    default:
        return run_fail(p->r, "unsupported format character '%c' (0x%x)", s->conv,
                        (unsigned char)s->conv);
    }
}

static int percent_field(struct percent *p, const char **at, const char *end)
{
    const char *s = *at;
    struct spec spec = {.prec = -1};
    struct val v = {.t = V_MISSING};
    if (s < end && *s == '(') {
        const char *close = memchr(s, ')', (size_t)(end - s));
        struct val key, *hit;
        if (!close) return run_fail(p->r, "incomplete format key");
        if (p->arg.t != V_DICT) return run_fail(p->r, "format requires a mapping");
        TRY(str_view(p->r, s + 1, (size_t)(close - s) - 1, &key));
        TRY(dict_find(p->r, p->arg.dict, key, &hit));
        if (!hit) return run_fail(p->r, "'%.*s'", (int)MIN(close - s - 1, 60), s + 1);
        v = *hit;
        s = close + 1;
    }
    for (; s < end && strchr("-0+ #", *s) && *s; s++) {
        spec.left |= *s == '-';
        spec.zero |= *s == '0';
        spec.plus |= *s == '+';
        spec.space |= *s == ' ';
        spec.alt |= *s == '#';
    }
    TRY(percent_number(p, &s, end, &spec.width));
    if (spec.width < 0) {
        spec.left = true;
        spec.width = -spec.width;
    }
    if (s < end && *s == '.') {
        s++;
        TRY(percent_number(p, &s, end, &spec.prec));
        spec.prec = MAX(spec.prec, 0);
    }
    while (s < end && (*s == 'l' || *s == 'h' || *s == 'L'))
        s++;
    if (s >= end) return run_fail(p->r, "incomplete format");
    spec.conv = *s++;
    *at = s;
    if (spec.conv == '%') return buf_putc(&p->out, '%');
    if (v.t == V_MISSING) TRY(percent_next(p, &v));
    return percent_put(p, &spec, v);
}

static int percent_all(struct percent *p, const struct str *f)
{
    const char *s = f->s, *end = s + f->n;
    while (s < end) {
        const char *mark = memchr(s, '%', (size_t)(end - s));
        TRY(run_work(p->r, 1));
        TRY(buf_append(&p->out, s, (size_t)((mark ? mark : end) - s)));
        if (!mark) break;
        s = mark + 1;
        TRY(percent_field(p, &s, end));
    }
    bool left = val_is_tuple(p->arg) ? p->at < p->arg.seq->n
                                     : !p->used && p->arg.t != V_DICT && !val_is_list(p->arg);
    if (left) return run_fail(p->r, "not all arguments converted during string formatting");
    return 0;
}

int format_percent(struct run *r, struct val f, struct val arg, struct val *out)
{
    struct percent p = {.r = r, .arg = arg};
    buf_init(&p.out, RUN_MAX_MEMORY);
    int e = run_work_bytes(r, f.str->n);
    if (e >= 0) e = percent_all(&p, f.str);
    if (e >= 0)
        e = str_take(r, &p.out, out);
    else
        buf_done(&p.out);
    if (e >= 0) out->safe = f.safe;
    return e;
}

/* ---- brace */

struct brace {
    struct run *r;
    const struct args *args;
    int64_t next; /* automatic numbering; -1 once numbers are explicit */
    struct buf out;
};

static int brace_first(struct brace *b, const char *s, size_t n, struct val *out)
{
    int64_t i = -1;
    if (n == 0) {
        if (b->next < 0)
            return run_fail(b->r, "cannot switch from manual field specification to automatic "
                                  "field numbering");
        i = b->next++;
    } else if (strspn(s, "0123456789") >= n && n < 10) {
        i = 0;
        for (size_t k = 0; k < n; k++)
            i = i * 10 + (s[k] - '0');
        if (b->next > 0)
            return run_fail(b->r, "cannot switch from automatic field numbering to manual field "
                                  "specification");
        b->next = -1;
    }
    if (i >= 0) {
        if ((uint64_t)i >= b->args->n)
            return run_fail(b->r, "Replacement index %lld out of range for positional args tuple",
                            (long long)i);
        *out = b->args->v[i];
        return 0;
    }
    for (size_t k = 0; k < b->args->n_kw; k++) {
        const struct str *name = b->args->kw[k].name;
        if (name->n != n || memcmp(name->s, s, n) != 0) continue;
        *out = b->args->kw[k].v;
        return 0;
    }
    return run_fail(b->r, "'%.*s'", (int)MIN(n, (size_t)60), s);
}

/* a.b[0][key] */
static int brace_value(struct brace *b, const char *s, size_t n, struct val *out)
{
    size_t at = 0;
    while (at < n && s[at] != '.' && s[at] != '[')
        at++;
    TRY(brace_first(b, s, at, out));
    while (at < n) {
        bool item = s[at] == '[';
        size_t from = ++at, k = 0;
        while (at < n && (item ? s[at] != ']' : s[at] != '.' && s[at] != '['))
            at++;
        struct val key;
        int64_t num = 0;
        while (k < at - from && k < 18 && s[from + k] >= '0' && s[from + k] <= '9')
            num = num * 10 + (s[from + k++] - '0');
        if (item && k && k == at - from)
            key = val_int(num);
        else
            TRY(str_view(b->r, s + from, at - from, &key));
        if (item)
            TRY(val_item(b->r, *out, key, out));
        else
            TRY(val_attr(b->r, *out, key, out));
        if (out->t == V_UNDEF) return val_fail_undef(b->r, *out);
        if (item) at++;
    }
    return 0;
}

static int brace_spec(struct brace *b, const char *s, size_t n, struct spec *out)
{
    size_t at = 0, len = 1;
    struct spec t = {.prec = -1};
    if (n) utf8_decode(s, n, &len);
    if (n > len && strchr("<>^=", s[len]) && s[len]) {
        t.fill = utf8_decode(s, n, &len);
        t.align = s[len];
        at = len + 1;
    } else if (n && s[0] && strchr("<>^=", s[0])) {
        t.align = s[at++];
    }
    for (; at < n && s[at] && strchr("+- ", s[at]); at++) {
        t.plus |= s[at] == '+';
        t.space |= s[at] == ' ';
    }
    t.alt = at < n && s[at] == '#';
    at += t.alt;
    t.zero = at < n && s[at] == '0';
    at += t.zero;
    for (; at < n && s[at] >= '0' && s[at] <= '9'; at++)
        t.width = MIN(t.width * 10 + (s[at] - '0'), WIDTH_MAX);
    if (at < n && (s[at] == ',' || s[at] == '_')) t.comma = s[at++] == ',';
    if (at < n && s[at] == '.') {
        t.prec = 0;
        for (at++; at < n && s[at] >= '0' && s[at] <= '9'; at++)
            t.prec = MIN(t.prec * 10 + (s[at] - '0'), WIDTH_MAX);
    }
    if (at < n) t.conv = s[at++];
    if (at < n) return run_fail(b->r, "Invalid format specifier");
    *out = t;
    return 0;
}

static int brace_put(struct brace *b, const struct spec *s, struct val v)
{
    char conv = s->conv;
    if (val_is_num(v) && !(v.t == V_BOOL && !conv)) {
        bool real = conv && strchr("eEfFgG%", conv);
        if (val_is_int(v) && !real) {
            if (conv && !strchr("dxXobn", conv))
                return run_fail(b->r, "Unknown format code '%c' for object of type 'int'", conv);
            return put_int(b->r, &b->out, s, val_as_int(v), conv ? conv : 'd');
        }
        if (conv && !real)
            return run_fail(b->r, "Unknown format code '%c' for object of type 'float'", conv);
        if (!conv) conv = s->prec < 0 ? 'r' : 'g';
        return put_float(b->r, &b->out, s, val_as_float(v), conv);
    }
    struct spec t = *s;
    bool plain = !s->align && !s->width && s->prec < 0 && !conv;
    if (v.t != V_STR && !plain)
        return run_fail(b->r, "unsupported format string passed to %s.__format__",
                        val_type_name(v));
    if (conv && conv != 's')
        return run_fail(b->r, "Unknown format code '%c' for object of type 'str'", conv);
    TRY(val_str(b->r, v, &v));
    t.left = true;
    if (s->zero && !s->align) t.fill = '0';
    return put_text(b->r, &b->out, &t, v);
}

/* Fields inside a format spec ({:{width}}) are one level deep, as in Python. */
static int brace_nested(struct brace *b, const char *s, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '{') {
            TRY(buf_putc(out, s[i]));
            continue;
        }
        const char *close = memchr(s + i, '}', n - i);
        struct val v;
        if (!close) return run_fail(b->r, "expected '}' before end of string");
        TRY(brace_value(b, s + i + 1, (size_t)(close - s) - i - 1, &v));
        TRY(val_print(b->r, v, out));
        i = (size_t)(close - s);
    }
    return 0;
}

static int brace_field(struct brace *b, const char *s, size_t n)
{
    size_t name = 0, bracket = 0;
    while (name < n && (bracket || (s[name] != '!' && s[name] != ':'))) {
        bracket = s[name] == '[' || (bracket && s[name] != ']');
        name++;
    }
    struct val v;
    struct spec spec = {.prec = -1};
    TRY(brace_value(b, s, name, &v));
    if (name < n && s[name] == '!') {
        if (name + 1 >= n || (s[name + 1] != 'r' && s[name + 1] != 's' && s[name + 1] != 'a'))
            return run_fail(b->r, "Unknown conversion specifier");
        if (s[name + 1] == 's')
            TRY(val_str(b->r, v, &v));
        else {
            struct buf t;
            buf_init(&t, RUN_MAX_MEMORY);
            int e = val_repr(b->r, v, &t);
            if (e >= 0)
                e = str_take(b->r, &t, &v);
            else
                buf_done(&t);
            TRY(e);
        }
        name += 2;
    }
    if (name < n && s[name] != ':')
        return run_fail(b->r, "expected ':' after conversion specifier");
    struct buf nested;
    buf_init(&nested, WIDTH_MAX);
    int e = name < n ? brace_nested(b, s + name + 1, n - name - 1, &nested) : 0;
    if (e >= 0) e = brace_spec(b, nested.data ? nested.data : "", nested.len, &spec);
    buf_done(&nested);
    return e < 0 ? e : brace_put(b, &spec, v);
}

static int brace_all(struct brace *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        TRY(run_work_bytes(b->r, BYTES_PER_STEP / 8));
        if ((s[i] == '{' || s[i] == '}') && i + 1 < n && s[i + 1] == s[i]) {
            TRY(buf_putc(&b->out, s[i++]));
            continue;
        }
        if (s[i] == '}') return run_fail(b->r, "Single '}' encountered in format string");
        if (s[i] != '{') {
            TRY(buf_putc(&b->out, s[i]));
            continue;
        }
        size_t depth = 1, end = i + 1;
        while (end < n && (depth += (s[end] == '{') - (s[end] == '}')) > 0)
            end++;
        if (end >= n)
            return run_fail(b->r, i + 1 == n ? "Single '{' encountered in format string"
                                             : "expected '}' before end of string");
        TRY(brace_field(b, s + i + 1, end - i - 1));
        i = end;
    }
    return 0;
}

int format_brace(struct run *r, struct val f, const struct args *args, struct val *out)
{
    struct brace b = {.r = r, .args = args};
    buf_init(&b.out, RUN_MAX_MEMORY);
    int e = brace_all(&b, f.str->s, f.str->n);
    if (e >= 0)
        e = str_take(r, &b.out, out);
    else
        buf_done(&b.out);
    if (e >= 0) out->safe = f.safe;
    return e;
}
