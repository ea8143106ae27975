/* number.c - numbers and their text: Python's shortest form of a float, printf and strtod that do not
 * follow the host's locale, and the filters abs, int, float and round. */
#include "chat/builtin.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t c_locale(void)
{
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    return c ? uselocale(c) : (locale_t)0;
}

static void host_locale(locale_t old)
{
    if (old) freelocale(uselocale(old));
}

size_t digits_in(const char *s, const char *end)
{
    size_t n = 0;
    while (s + n < end && s[n] >= '0' && s[n] <= '9')
        n++;
    return n;
}

bool float_parse(const char *s, size_t n, double *out)
{
    char tmp[512], *end;
    if (n == 0 || n >= sizeof tmp) return false;
    memcpy(tmp, s, n);
    tmp[n] = 0;
    locale_t old = c_locale();
    *out = strtod(tmp, &end);
    host_locale(old);
    return end == tmp + n;
}

void float_fixed(double f, int digits, char *out, size_t n)
{
    locale_t old = c_locale();
    snprintf(out, n, "%.*f", digits, f);
    host_locale(old);
}

/* Finds the fewest decimal digits that read back as f > 0, without trailing zeros.  Returns the exponent of the
 * first digit. */
static int float_digits(double f, char digits[20])
{
    char d[40];
    /* A number of at most 15 digits reads back with p = 14, and its trailing zeros are cut below.  Below the
     * normal range fewer digits may do, so the search begins at one. */
    for (int p = f < 1e-300 ? 0 : 14; p <= 16; p++) {
        snprintf(d, sizeof d, "%.*e", p, f);
        if (p == 16 || strtod(d, NULL) == f) break;
    }
    char *e = strchr(d, 'e');
    int n = 0;
    for (char *p = d; p < e; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = 0;
    return (int)strtol(e + 1, NULL, 10);
}

/* Writes a float as Python does: with an exponent from 1e16 on and below 1e-4, otherwise with a point. */
void float_repr(double f, char out[40])
{
    char digits[20];
    const char *sign = signbit(f) ? "-" : "";
    if (isnan(f) || isinf(f)) {
        snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    locale_t old = c_locale();
    int exp = float_digits(fabs(f), digits), n = (int)strlen(digits);
    host_locale(old);
    if (exp < -4 || exp >= 16)
        snprintf(out, 40, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1,
                 exp < 0 ? '-' : '+', abs(exp) % 1000);
    else if (exp < 0)
        snprintf(out, 40, "%s0.%.*s%s", sign, -1 - exp, "000", digits);
    else if (n > exp + 1)
        snprintf(out, 40, "%s%.*s.%s", sign, exp + 1, digits, digits + exp + 1);
    else
        snprintf(out, 40, "%s%s%.*s.0", sign, digits, exp + 1 - n, "000000000000000");
}

int f_abs(struct builtin_call *c, struct val *out)
{
    struct val v = c->self;
    if (!val_is_num(v)) return ERR(FORMAT, "bad operand type for abs(): '%s'", val_type_name(v));
    if (v.t != V_FLOAT && val_as_int(v) < 0) return val_negate(v, out);
    *out = v.t == V_FLOAT ? val_float(fabs(v.f)) : val_int(val_as_int(v));
    return 0;
}

/* Copies the text of a number, without blanks around it and without single underscores between digits.  False if
 * the text is too long or has other characters. */
static bool number_text(const struct str *s, char out[64])
{
    size_t from = 0, to = s->n, k = 0;
    while (from < to && chr_space((unsigned char)s->s[from]))
        from++;
    while (to > from && chr_space((unsigned char)s->s[to - 1]))
        to--;
    if (from == to || to - from >= 64) return false;
    for (size_t i = from; i < to; i++) {
        bool digit = s->s[i] >= '0' && s->s[i] <= '9';
        bool after_digit = k && out[k - 1] >= '0' && out[k - 1] <= '9';
        if (s->s[i] == '_' && after_digit && i + 1 < to && s->s[i + 1] != '_') continue;
        if (!digit && (!s->s[i] || !strchr("+-.eEinftyaINFTYA", s->s[i]))) return false;
        out[k++] = s->s[i];
    }
    out[k] = 0;
    return true;
}

/* Finds the number that self is, or that its text spells.  False if there is none; *out is then the fallback, or
 * 0. */
static bool to_number(struct builtin_call *c, struct val *out)
{
    char t[64], *end;
    double f = 0;
    struct val v = c->self;
    *out = v;
    if (val_is_num(v)) return true;
    if (v.t == V_STR && number_text(v.str, t)) {
        long long i = strtoll(t, &end, 10);
        *out = val_int(i);
        if (end != t && !*end && i != INT64_MAX && i != INT64_MIN) return true;
        bool ok = float_parse(t, strlen(t), &f);
        *out = val_float(f);
        if (ok) return true;
    }
    *out = c->a[0].t == V_MISSING ? val_int(0) : c->a[0];
    return false;
}

int f_int(struct builtin_call *c, struct val *out)
{
    if (c->self.t == V_UNDEF) return val_fail_undef(c->self);
    TRY(render_work_bytes(c->r, c->self.t == V_STR ? c->self.str->n : 0));
    bool ok = to_number(c, out);
    if (ok && out->t == V_FLOAT && (isnan(out->f) || isinf(out->f)))
        *out = c->a[0].t == V_MISSING ? val_int(0) : c->a[0];
    else if (ok && out->t == V_FLOAT && !(fabs(out->f) < 9.2e18))
        return ERR(LIMIT, "%g is an integer of more than 64 bits, the limit of chat templates",
                   out->f);
    else if (ok)
        *out = val_int(out->t == V_FLOAT ? (int64_t)out->f : val_as_int(*out));
    return 0;
}

int f_float(struct builtin_call *c, struct val *out)
{
    if (c->self.t == V_UNDEF) return val_fail_undef(c->self);
    TRY(render_work_bytes(c->r, c->self.t == V_STR ? c->self.str->n : 0));
    if (to_number(c, out) || c->a[0].t == V_MISSING) *out = val_float(val_as_float(*out));
    return 0;
}

/* Rounds a float to decimal digits, correctly, ties to even. */
static double round_to(double f, int digits)
{
    char tmp[700];
    double v;
    if (isnan(f) || isinf(f) || digits > 300) return f;
    float_fixed(f, digits, tmp, sizeof tmp);
    return float_parse(tmp, strlen(tmp), &v) ? v : f;
}

int f_round(struct builtin_call *c, struct val *out)
{
    int64_t digits;
    struct val v = c->self;
    TRY(args_int(c, 0, 0, &digits));
    if (!val_is_num(v))
        return ERR(FORMAT, "type %s doesn't define __round__ method", val_type_name(v));
    if (digits < 0) return ERR(UNSUPPORTED, "rounding to tens or hundreds is not supported");
    *out = v.t == V_FLOAT ? val_float(round_to(v.f, (int)MIN(digits, (int64_t)400)))
                          : val_int(val_as_int(v));
    return 0;
}
