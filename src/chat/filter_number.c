/* filter_number.c - abs, int, float, round. */
#include "chat/filter.h"

#include <math.h>
#include <string.h>

static int f_abs(struct call *c, struct val *out)
{
    struct val v = c->self;
    if (!val_is_num(v)) return run_fail(c->r, "bad operand type for abs(): '%s'", val_type_name(v));
    if (v.t == V_FLOAT)
        *out = val_float(fabs(v.f));
    else
        return val_negate(c->r, v, val_as_int(v) < 0, out);
    return 0;
}

static void trim_ascii(const char **s, size_t *n)
{
    while (*n && chr_space((unsigned char)**s))
        (*s)++, (*n)--;
    while (*n && chr_space((unsigned char)(*s)[*n - 1]))
        (*n)--;
}

/* Python's int(text, base); false when the text is no such number. */
static bool parse_int(const char *s, size_t n, int64_t base, int64_t *out)
{
    bool minus = false, digit = false;
    int64_t v = 0;
    trim_ascii(&s, &n);
    if (n && (*s == '-' || *s == '+')) {
        minus = *s == '-';
        s++, n--;
    }
    char kind = n > 1 && s[0] == '0' ? (char)(s[1] | 32) : 0;
    int64_t prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix && (base == prefix || base == 0)) {
        s += 2, n -= 2;
        base = prefix;
        if (n && *s == '_') s++, n--;
    }
    if (base == 0) base = 10;
    for (size_t i = 0; i < n; i++) {
        int d = s[i] >= '0' && s[i] <= '9'                 ? s[i] - '0'
                : (s[i] | 32) >= 'a' && (s[i] | 32) <= 'z' ? (s[i] | 32) - 'a' + 10
                                                           : 99;
        if (s[i] == '_' && digit && i + 1 < n && s[i + 1] != '_') continue;
        if (d >= base || __builtin_mul_overflow(v, base, &v) ||
            __builtin_sub_overflow(v, (int64_t)d, &v))
            return false;
        digit = true;
    }
    if (!digit || (!minus && v == INT64_MIN)) return false;
    *out = minus ? v : -v;
    return true;
}

static bool parse_float(const char *s, size_t n, double *out)
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    char tmp[64];
    trim_ascii(&s, &n);
    if (!n || n >= sizeof tmp) return false;
    size_t k = 0, sign = *s == '-' || *s == '+';
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '_') {
            bool between = i && i + 1 < n && s[i - 1] >= '0' && s[i - 1] <= '9' &&
                           s[i + 1] >= '0' && s[i + 1] <= '9';
            if (!between) return false;
            continue;
        }
        tmp[k++] = s[i];
    }
    tmp[k] = 0;
    for (size_t i = 0; i < countof(words); i++)
        if (strcasecmp(tmp + sign, words[i]) == 0) {
            *out = i == 2 ? NAN : *s == '-' ? -INFINITY : INFINITY;
            return true;
        }
    if (strspn(tmp, "0123456789+-.eE") != k) return false;
    return float_parse(tmp, k, out);
}

static bool float_to_int(double f, int64_t *out)
{
    if (!(fabs(f) < 9.2e18)) return false;
    *out = (int64_t)f;
    return true;
}

static int f_int(struct call *c, struct val *out)
{
    struct val v = c->self;
    int64_t base, i;
    double f;
    TRY(args_int(c, 1, 10, &base));
    *out = c->a[0].t == V_MISSING ? val_int(0) : c->a[0];
    if (v.t == V_UNDEF) return val_fail_undef(c->r, v);
    bool ok = false;
    if (v.t == V_STR && (base == 0 || (base >= 2 && base <= 36)))
        ok = parse_int(v.str->s, v.str->n, base, &i);
    if (v.t == V_STR && !ok) ok = parse_float(v.str->s, v.str->n, &f) && float_to_int(f, &i);
    if (val_is_int(v)) {
        i = val_as_int(v);
        ok = true;
    }
    if (v.t == V_FLOAT) {
        ok = float_to_int(v.f, &i);
        if (!ok && !isnan(v.f) && !isinf(v.f))
            return ERR(LIMIT, "the result is an integer of more than 64 bits");
    }
    if (ok) *out = val_int(i);
    return 0;
}

static int f_float(struct call *c, struct val *out)
{
    double f;
    struct val v = c->self;
    *out = c->a[0].t == V_MISSING ? val_float(0) : c->a[0];
    if (v.t == V_UNDEF) return val_fail_undef(c->r, v);
    if (val_is_num(v))
        *out = val_float(val_as_float(v));
    else if (v.t == V_STR && parse_float(v.str->s, v.str->n, &f))
        *out = val_float(f);
    return 0;
}

/* Correctly rounded, ties to even, through the decimal digits. */
static double round_to(double f, int64_t digits)
{
    char tmp[400];
    double v;
    if (isnan(f) || isinf(f) || digits > 300) return f;
    if (digits < 0) {
        double p = pow(10, (double)-digits);
        return isinf(p) ? copysign(0, f) : rint(f / p) * p;
    }
    float_fixed(f, (int)digits, 'f', false, tmp, sizeof tmp);
    return strlen(tmp) + 1 < sizeof tmp && float_parse(tmp, strlen(tmp), &v) ? v : f;
}

static int round_int(struct call *c, int64_t i, int64_t digits, struct val *out)
{
    int64_t p = 1;
    *out = val_int(i);
    for (; digits < 0; digits++)
        if (__builtin_mul_overflow(p, (int64_t)10, &p)) {
            *out = val_int(0);
            return 0;
        }
    if (p == 1) return 0;
    int64_t low = i / p * p, rest = i - low;
    if (rest < 0) {
        if (__builtin_sub_overflow(low, p, &low)) return ERR(LIMIT, "integer too large");
        rest += p;
    }
    bool up = rest > p / 2 || (rest == p / 2 && (low / p) % 2 != 0);
    if (up && __builtin_add_overflow(low, p, &low)) return ERR(LIMIT, "integer too large");
    *out = val_int(low);
    (void)c;
    return 0;
}

static int f_round(struct call *c, struct val *out)
{
    int64_t digits;
    struct val v = c->self, how = c->a[1];
    TRY(args_int(c, 0, 0, &digits));
    if (!val_is_num(v))
        return run_fail(c->r, "type %s doesn't define __round__ method", val_type_name(v));
    bool common = how.t == V_MISSING || (how.t == V_STR && str_is(how.str, "common"));
    bool ceiling = how.t == V_STR && str_is(how.str, "ceil");
    if (!common && !ceiling && !(how.t == V_STR && str_is(how.str, "floor")))
        return run_fail(c->r, "method must be common, ceil or floor");
    digits = MAX((int64_t)-400, MIN(digits, (int64_t)400));
    if (common && val_is_int(v)) return round_int(c, val_as_int(v), digits, out);
    if (common) {
        *out = val_float(round_to(v.f, digits));
        return 0;
    }
    double p = pow(10, (double)digits), f = val_as_float(v) * p;
    *out = val_float((ceiling ? ceil(f) : floor(f)) / p);
    return 0;
}

const struct fn_row filters_number[] = {
    {"abs", f_abs, "", 0},
    {"float", f_float, "default", 0},
    {"int", f_int, "default base", 0},
    {"round", f_round, "precision method", 0},
    {NULL, NULL, NULL, 0},
};
