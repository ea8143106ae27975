/* operator.c - arithmetic with Python's types.  A bool is an int.  // and % round down, and / gives a float.  +
 * also joins texts and lists, and * repeats texts.  A result beyond 64 bits is an error. */
#include "chat/value.h"

#include <math.h>
#include <string.h>

static const char *const op_text[] = {
    [OP_ADD] = "+",       [OP_SUB] = "-", [OP_MUL] = "*",           [OP_DIV] = "/",
    [OP_FLOORDIV] = "//", [OP_MOD] = "%", [OP_POW] = "** or pow()",
};

static bool is_sequence(struct val v)
{
    return v.t == V_STR || val_is_list(v) || val_is_tuple(v);
}

static int type_error(enum op op, struct val a, struct val b)
{
    if (op == OP_ADD && is_sequence(a) && !a.safe)
        return ERR(FORMAT, "can only concatenate %s (not \"%s\") to %s", val_type_name(a),
                   val_type_name(b), val_type_name(a));
    if (op == OP_MUL && (is_sequence(a) || is_sequence(b)))
        return ERR(FORMAT, "can't multiply sequence by non-int of type '%s'",
                   val_type_name(is_sequence(a) ? b : a));
    return ERR(FORMAT, "unsupported operand type(s) for %s: '%s' and '%s'", op_text[op],
               val_type_name(a), val_type_name(b));
}

static int too_large(int64_t a, enum op op, int64_t b)
{
    return ERR(LIMIT, "%lld %s %lld is an integer of more than 64 bits", (long long)a, op_text[op],
               (long long)b);
}

static int int_pow(int64_t a, int64_t b, struct val *out)
{
    const int64_t base = a, exponent = b;
    int64_t v = 1;
    if (b < 0) return ERR(UNSUPPORTED, "** with a negative exponent is not supported");
    for (; b; b >>= 1) {
        if (((b & 1) && __builtin_mul_overflow(v, a, &v)) ||
            (b > 1 && __builtin_mul_overflow(a, a, &a)))
            return too_large(base, OP_POW, exponent);
    }
    *out = val_int(v);
    return 0;
}

static int int_binary(enum op op, int64_t a, int64_t b, struct val *out)
{
    int64_t v = 0;
    bool over = false;
    if (b == 0 && (op == OP_FLOORDIV || op == OP_MOD))
        return ERR(FORMAT, "integer division or modulo by zero");
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &v);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case OP_DIV:
        if (b == 0) return ERR(FORMAT, "division by zero");
        *out = val_float((double)a / (double)b);
        return 0;
    case OP_FLOORDIV:
        if (b == -1)
            over = __builtin_sub_overflow((int64_t)0, a, &v);
        else
            v = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case OP_MOD:
        v = b == -1 ? 0 : a % b;
        if (v && (v < 0) != (b < 0)) v += b;
        break;
    case OP_POW:
        return int_pow(a, b, out);
    case OP_CONCAT:
        break;
    }
    if (over) return too_large(a, op, b);
    *out = val_int(v);
    return 0;
}

static int float_binary(enum op op, double a, double b, struct val *out)
{
    if (op == OP_DIV && b == 0) return ERR(FORMAT, "float division by zero");
    if (op > OP_DIV)
        return ERR(UNSUPPORTED, "the operator %s between numbers with a point is not supported",
                   op_text[op]);
    *out = val_float(op == OP_ADD ? a + b : op == OP_SUB ? a - b : op == OP_MUL ? a * b : a / b);
    return 0;
}

static int add_seq(struct render_state *r, struct val a, struct val b, struct val *out)
{
    struct val_seq *s;
    size_t n = a.seq->n + b.seq->n;
    TRY(render_work(r, n / 4));
    TRY(seq_new(r, a.seq->kind, n, &s));
    if (a.seq->n) memcpy(s->v, a.seq->v, a.seq->n * sizeof *s->v);
    if (b.seq->n) memcpy(s->v + a.seq->n, b.seq->v, b.seq->n * sizeof *s->v);
    s->n = n;
    *out = val_seq(s);
    return 0;
}

static int repeat_str(struct render_state *r, struct val v, int64_t times, struct val *out)
{
    const struct str *s = v.str;
    size_t n;
    if (times <= 0 || !s->n) return str_puts(r, "", out);
    if (!ck_mul(s->n, (size_t)times, &n) || n > RENDER_MAX_MEMORY)
        return ERR(LIMIT, "the repeated text would be longer than %u MiB", RENDER_MAX_MEMORY >> 20);
    char *p;
    RUN_NEW(r, p, n);
    TRY(render_work_bytes(r, n));
    memcpy(p, s->s, s->n);
    for (size_t at = s->n; at < n; at *= 2) /* doubles the part that is written */
        memcpy(p + at, p, MIN(at, n - at));
    TRY(str_view(r, p, n, out));
    str_taint(r, *out, v);
    out->safe = v.safe;
    return 0;
}

static int add_str(struct render_state *r, struct val a, struct val b, struct val *out)
{
    bool safe = a.safe || b.safe;
    if (safe) TRY(str_escape(r, a, &a));
    if (safe) TRY(str_escape(r, b, &b));
    TRY(str_join2(r, a, b, out));
    out->safe = safe;
    return 0;
}

int val_binary(struct render_state *r, enum op op, struct val a, struct val b, struct val *out)
{
    if (op == OP_MOD && a.t == V_STR) return format_percent(r, a, b, out);
    if (op == OP_CONCAT) {
        TRY(val_str(r, a, &a));
        TRY(val_str(r, b, &b));
        TRY(str_join2(r, a, b, out));
        out->safe = false;
        return 0;
    }
    if (a.t == V_UNDEF) return val_fail_undef(a);
    if (b.t == V_UNDEF) return val_fail_undef(b);
    if (val_is_int(a) && val_is_int(b)) return int_binary(op, val_as_int(a), val_as_int(b), out);
    if (val_is_num(a) && val_is_num(b))
        return float_binary(op, val_as_float(a), val_as_float(b), out);
    if (op == OP_ADD && a.t == V_STR && b.t == V_STR) return add_str(r, a, b, out);
    bool same = a.t == V_SEQ && b.t == V_SEQ && a.seq->kind == b.seq->kind;
    if (op == OP_ADD && same && is_sequence(a)) return add_seq(r, a, b, out);
    if (op == OP_MUL && val_is_int(a) && is_sequence(b)) return val_binary(r, op, b, a, out);
    if (op == OP_MUL && val_is_int(b) && a.t == V_STR) return repeat_str(r, a, val_as_int(b), out);
    if (op == OP_MUL && val_is_int(b) && is_sequence(a))
        return ERR(UNSUPPORTED, "multiplying a %s is not supported", val_type_name(a));
    return type_error(op, a, b);
}

int val_negate(struct val a, struct val *out)
{
    if (a.t == V_UNDEF) return val_fail_undef(a);
    if (!val_is_num(a)) return ERR(FORMAT, "bad operand type for unary -: '%s'", val_type_name(a));
    if (a.t != V_FLOAT && val_as_int(a) == INT64_MIN) return too_large(0, OP_SUB, INT64_MIN);
    *out = a.t == V_FLOAT ? val_float(-a.f) : val_int(-val_as_int(a));
    return 0;
}
