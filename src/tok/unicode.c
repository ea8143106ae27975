/* unicode.c - character classes and normalization forms as the reference knows them.  The libraries below (PCRE2,
 * utf8proc) and the reference's tables come from different Unicode versions, so the generated unicode_table.h
 * (scripts/make-unicode.py) lists the differences: characters newer than Unicode 14, each with an older stand-in
 * of the same class and length; characters that the reference's normalization leaves alone; and corrections to
 * single predicates. */
#include "base/utf8.h"
#include "tok/tok_int.h"
#include "tok/unicode_table.h"

#include <string.h>
#include <utf8proc.h>

static const uint32_t *find_range(const uint32_t (*v)[2], size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > v[mid][1])
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && v[lo][0] <= cp ? v[lo] : NULL;
}
#define IN(table, cp) (find_range(table, countof(table), cp) != NULL)

/* Returns an older character of the same category, script class and UTF-8 length; cp itself if it is old. */
static uint32_t stand_in(uint32_t cp)
{
    if (cp < uni_new[0][0]) return cp;
    const uint32_t *r = find_range(uni_new, countof(uni_new), cp);
    return r ? uni_new_as[(const uint32_t(*)[2])r - uni_new] : cp;
}

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)stand_in(cp));
}

bool uni_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

bool uni_is_word(uint32_t cp)
{
    if (cp < 0x80) {
        uint32_t low = cp | 0x20;
        return (low >= 'a' && low <= 'z') || (cp >= '0' && cp <= '9') || cp == '_';
    }
    bool yes = false;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        yes = true;
        break;
    default:
        break;
    }
    return yes != IN(uni_word_flip, cp);
}

bool uni_is_numeric(uint32_t cp)
{
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    utf8proc_category_t c = category(cp);
    bool yes = c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
    return yes != IN(uni_numeric_flip, cp);
}

bool uni_is_punct(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= 33 && cp <= 47) || (cp >= 58 && cp <= 64) || (cp >= 91 && cp <= 96) ||
               (cp >= 123 && cp <= 126);
    utf8proc_category_t c = category(cp);
    bool yes = c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
    return yes != IN(uni_punct_flip, cp);
}

/* Returns the character that stands for cp when clusters are found.  The reference's clusters know the combining marks of
 * Unicode 17, its patterns do not; U+0301 stands for those marks. */
static int32_t cluster_char(uint32_t cp)
{
    bool mark = (cp >= 0x1ACF && cp <= 0x1ADD) || (cp >= 0x1AE0 && cp <= 0x1AEB);
    return mark ? 0x301 : (int32_t)stand_in(cp);
}

bool uni_joins(uint32_t before, uint32_t cp, int32_t *state)
{
    return !utf8proc_grapheme_break_stateful(cluster_char(before), cluster_char(cp), state);
}

size_t uni_lower(uint32_t cp, uint32_t out[2])
{
    out[0] = cp;
    if (cp < 0x80) {
        if (cp >= 'A' && cp <= 'Z') out[0] = cp + 32;
        return 1;
    }
    if (cp == 0x130) { /* the one character with a two-character lower case */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    for (size_t i = 0; i < countof(uni_lower_fix); i++)
        if (cp >= uni_lower_fix[i][0] && cp <= uni_lower_fix[i][1]) {
            out[0] = cp + uni_lower_fix[i][2];
            return 1;
        }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return 1;
}

int uni_shadow(const char *s, size_t n, struct buf *out, bool *changed)
{
    size_t done = 0;
    *changed = false;
    for (size_t i = 0, len; i < n; i += len) {
        len = 1;
        if ((uint8_t)s[i] < 0xE0) continue; /* every newer character takes 3 or 4 bytes */
        uint32_t cp = utf8_decode(s + i, n - i, &len), as = stand_in(cp);
        if (as == cp) continue;
        char tmp[4];
        TRY(buf_append(out, s + done, i - done));
        TRY(buf_append(out, tmp, utf8_encode(as, tmp)));
        done = i + len;
        *changed = true;
    }
    return *changed ? buf_append(out, s + done, n - done) : 0;
}

/* --- normalization forms.  utf8proc has the data.  The ordering of marks is our own, because that of utf8proc
 * takes quadratic time in a run of marks.  Characters that the reference does not know stand alone: text is
 * normalized between them. */
struct chars {
    int32_t *cp; /* owned */
    size_t n, cap;
};

static int chars_reserve(struct chars *c, size_t more)
{
    size_t need, cap = MAX(c->cap * 2, (size_t)256);
    if (!ck_add(c->n, more, &need))
        return ERR(LIMIT, "a text of %zu and %zu more characters exceeds %zu", c->n, more,
                   (size_t)SIZE_MAX);
    if (need <= c->cap) return 0;
    cap = MAX(cap, need);
    int32_t *p = mem_grow(c->cp, cap, sizeof *p);
    if (!p) return ERR_NOMEM;
    c->cp = p;
    c->cap = cap;
    return 0;
}

static unsigned combining(int32_t cp)
{
    return cp < 0x300 ? 0 : (unsigned)utf8proc_get_property(cp)->combining_class;
}

/* Sorts one run of marks by class.  A counting sort: it is stable, and classes are few. */
static int sort_run(int32_t *v, size_t n)
{
    if (n < 2) return 0;
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            int32_t x = v[i];
            size_t k = i;
            for (; k > 0 && combining(v[k - 1]) > combining(x); k--)
                v[k] = v[k - 1];
            v[k] = x;
        }
        return 0;
    }
    size_t start[257] = {0};
    int32_t *tmp = mem_array(n, sizeof *tmp);
    if (!tmp) return ERR_NOMEM;
    memcpy(tmp, v, n * sizeof *v);
    for (size_t i = 0; i < n; i++)
        start[(combining(v[i]) & 255) + 1]++;
    for (size_t i = 1; i < 257; i++)
        start[i] += start[i - 1];
    for (size_t i = 0; i < n; i++)
        v[start[combining(tmp[i]) & 255]++] = tmp[i];
    mem_free(tmp);
    return 0;
}

static int put_segment(enum uni_form form, struct chars *c, struct buf *out)
{
    for (size_t i = 0; i < c->n;) {
        size_t from = i;
        while (i < c->n && combining(c->cp[i]) > 0)
            i++;
        TRY(sort_run(c->cp + from, i - from));
        if (i < c->n) i++;
    }
    size_t n = c->n;
    if (form == UNI_NFC || form == UNI_NFKC) {
        utf8proc_ssize_t k = utf8proc_normalize_utf32(c->cp, (utf8proc_ssize_t)n,
                                                      UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (k < 0) return ERR(FORMAT, "text: %s", utf8proc_errmsg(k));
        n = (size_t)k;
    }
    for (size_t i = 0; i < n; i++)
        TRY(buf_utf8(out, (uint32_t)c->cp[i]));
    c->n = 0;
    return 0;
}

static int decompose(enum uni_form form, const char *s, size_t n, struct chars *c, struct buf *out)
{
    bool compat = form == UNI_NFKC || form == UNI_NFKD;
    utf8proc_option_t how =
        UTF8PROC_STABLE | (compat ? UTF8PROC_COMPAT : 0) |
        (form == UNI_NFC || form == UNI_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = utf8_decode(s + i, n - i, &len);
        if (IN(uni_inert, cp)) {
            TRY(put_segment(form, c, out));
            TRY(buf_append(out, s + i, len));
            continue;
        }
        TRY(chars_reserve(c, 32)); /* the longest decomposition has 18 characters */
        if (cp < 0xA0) {
            c->cp[c->n++] = (int32_t)cp;
            continue;
        }
        int last = 0;
        utf8proc_ssize_t k =
            utf8proc_decompose_char((utf8proc_int32_t)cp, c->cp + c->n, 32, how, &last);
        if (k < 0 || k > 32) return ERR(FORMAT, "text: %s", utf8proc_errmsg(k));
        c->n += (size_t)k;
    }
    return put_segment(form, c, out);
}

int uni_normalize(enum uni_form form, const char *s, size_t n, struct buf *out)
{
    size_t ascii = 0;
    while (ascii < n && (uint8_t)s[ascii] < 0x80)
        ascii++;
    if (ascii == n) return buf_append(out, s, n);
    if (ascii > 0) ascii--; /* the last one may compose with a mark */
    TRY(buf_append(out, s, ascii));
    struct chars c = {0};
    int e = decompose(form, s + ascii, n - ascii, &c, out);
    mem_free(c.cp);
    return e;
}
