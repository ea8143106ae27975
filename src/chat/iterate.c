/* iterate.c - going over what is iterable: sequences, ranges, keys of dictionaries, characters of
 * strings; an undefined value is empty.  Iterators made by filters are consumed by it. */
#include "base/utf8.h"
#include "chat/value.h"

int iter_init(struct run *r, struct val v, struct iter *it)
{
    *it = (struct iter){.v = v};
    switch ((enum val_type)v.t) {
    case V_SEQ:
    case V_RANGE:
    case V_DICT:
    case V_STR:
        return 0;
    case V_UNDEF:
        return v.undef->unsafe ? val_fail_undef(r, v) : 0;
    default:
        return run_fail(r, "'%s' object is not iterable", val_type_name(v));
    }
}

int iter_next(struct run *r, struct iter *it, struct val *out)
{
    struct val v = it->v;
    TRY(run_work(r, 1));
    switch ((enum val_type)v.t) {
    case V_SEQ:
        if (val_is_once(v)) {
            if (v.seq->pos >= v.seq->n) return 0;
            *out = v.seq->v[v.seq->pos++];
            return 1;
        }
        if (it->at >= v.seq->n) return 0;
        *out = v.seq->v[it->at++];
        return 1;
    case V_RANGE:
        if (it->at >= v.range->n) return 0;
        *out = val_int(v.range->from + (int64_t)it->at++ * v.range->step);
        return 1;
    case V_DICT:
        if (it->at >= v.dict->n) return 0;
        *out = v.dict->e[it->at++].k;
        return 1;
    case V_STR: {
        size_t len;
        if (it->at >= v.str->n) return 0;
        utf8_decode(v.str->s + it->at, v.str->n - it->at, &len);
        TRY(str_sub(r, v, it->at, it->at + len, out));
        out->safe = false;
        it->at += len;
        return 1;
    }
    default:
        return 0;
    }
}

int val_list(struct run *r, struct val v, struct seq **out)
{
    struct iter it;
    struct val item;
    struct seq *s;
    int e;
    TRY(iter_init(r, v, &it));
    TRY(seq_new(r, SEQ_LIST, v.t == V_SEQ ? v.seq->n : v.t == V_RANGE ? v.range->n : 0, &s));
    while ((e = iter_next(r, &it, &item)) > 0)
        TRY(seq_push(r, s, item));
    if (e < 0) return e;
    *out = s;
    return 0;
}

int val_len(struct run *r, struct val v, size_t *out)
{
    switch ((enum val_type)v.t) {
    case V_STR:
        TRY(run_work_bytes(r, v.str->chars == SIZE_MAX ? v.str->n * 2 : 0));
        *out = str_chars(v.str);
        return 0;
    case V_SEQ:
        if (val_is_once(v)) break;
        *out = v.seq->n;
        return 0;
    case V_RANGE:
        *out = v.range->n;
        return 0;
    case V_DICT:
        *out = v.dict->n;
        return 0;
    case V_UNDEF:
        *out = 0;
        return 0;
    default:
        break;
    }
    return run_fail(r, "object of type '%s' has no len()", val_type_name(v));
}
