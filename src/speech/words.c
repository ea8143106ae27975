/* words.c - groups the tokens of a text into words.  If spaces separate words in the language, at spaces and
 * punctuation; else at every whole character.  Punctuation then joins the word before it or behind it.  The rules
 * are those of Transformers. */
#include "speech/speech.h"

#include <string.h>

/* U+FFFD stands for bytes that are not a whole character yet */
static const char replacement[] = "\xef\xbf\xbd";

struct list {
    struct speech_word *word;
    size_t n;
};

void words_done(struct speech_word *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mem_free(w[i].text);
    mem_free(w);
}

/* Splits after every token that ends a character.  list->word has room for n words. */
static int split_characters(const struct tok *t, const int32_t *ids, size_t n, struct list *list)
{
    struct buf all, part;
    size_t from = 0, offset = 0;
    buf_init(&all, 1 << 24);
    buf_init(&part, 1 << 24);
    int e = tok_decode(t, ids, n, false, &all);
    for (size_t i = 0; i < n && e >= 0; i++) {
        buf_clear(&part);
        e = tok_decode(t, ids + from, i + 1 - from, false, &part);
        if (e < 0) break;
        const char *text = part.data ? part.data : "";
        const char *broken = strstr(text, replacement);
        if (broken) {
            size_t at = offset + (size_t)(broken - text);
            if (at < all.len && strncmp(all.data + at, replacement, 3) != 0) continue;
        }
        struct speech_word *w = &list->word[list->n];
        *w = (struct speech_word){mem_strdup(text), from, i + 1};
        if (!w->text) {
            e = ERR_NOMEM;
            break;
        }
        list->n++;
        offset += part.len;
        from = i + 1;
    }
    buf_done(&all);
    buf_done(&part);
    return e;
}

/* True if `text`, without spaces around it, is a substring of `set`.  An empty text is a substring of every set. */
static bool within(const char *text, const char *set)
{
    /* the white space that Python strips */
    static const char spaces[] = " \t\n\r\v\f\x1c\x1d\x1e\x1f";
    char bare[64];
    size_t n = strlen(text);
    while (n > 0 && strchr(spaces, text[n - 1]))
        n--;
    while (n > 0 && strchr(spaces, *text)) {
        text++;
        n--;
    }
    if (n >= sizeof bare) return false;
    memcpy(bare, text, n);
    bare[n] = 0;
    return strstr(set, bare) != NULL;
}

/* Joins a and b, which are neighbours, into `to`, which is one of them.  The other becomes empty. */
static int join_words(struct speech_word *a, struct speech_word *b, struct speech_word *to)
{
    struct speech_word *other = to == a ? b : a;
    size_t na = strlen(a->text), nb = strlen(b->text);
    char *text = mem_alloc(na + nb + 1), *none = mem_strdup("");
    if (!text || !none) {
        mem_free(text);
        mem_free(none);
        return ERR_NOMEM;
    }
    memcpy(text, a->text, na);
    memcpy(text + na, b->text, nb);
    size_t from = a->from < a->to ? a->from : b->from, end = b->from < b->to ? b->to : a->to;
    mem_free(a->text);
    mem_free(b->text);
    *to = (struct speech_word){text, from, end};
    *other = (struct speech_word){none, 0, 0};
    return 0;
}

/* Removes the words that have become empty. */
static void compact(struct list *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->word[i].text[0])
            l->word[kept++] = l->word[i];
        else
            mem_free(l->word[i].text);
    }
    l->n = kept;
}

static int join_at_spaces(struct list *l)
{
    size_t last = 0;
    for (size_t i = 1; i < l->n; i++) {
        const char *text = l->word[i].text;
        if (text[0] == ' ' || within(text, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")) {
            last = i;
            continue;
        }
        TRY(join_words(&l->word[last], &l->word[i], &l->word[last]));
    }
    compact(l);
    return 0;
}

static int join_punctuation(struct list *l)
{
    static const char before[] = "\"'\u201c\u00bf\u00a1([{-",
                      behind[] = "\"'.\u3002,\uff0c!\uff01?\uff1f:\uff1a\u201d)]}\u3001";
    if (l->n < 2) return 0;
    for (size_t i = l->n - 1, j = l->n - 1; i-- > 0;) {
        if (l->word[i].text[0] == ' ' && within(l->word[i].text, before))
            TRY(join_words(&l->word[i], &l->word[j], &l->word[j]));
        else
            j = i;
    }
    for (size_t i = 0, j = 1; j < l->n; j++) {
        size_t n = strlen(l->word[i].text);
        bool open = n == 0 || l->word[i].text[n - 1] != ' ';
        if (open && strstr(behind, l->word[j].text))
            TRY(join_words(&l->word[i], &l->word[j], &l->word[i]));
        else
            i = j;
    }
    compact(l);
    return 0;
}

int words_group(const struct tok *t, const int32_t *ids, size_t n, bool unspaced,
                struct speech_word **out, size_t *n_out)
{
    struct list l = {mem_array(MAX(n, 1), sizeof *l.word), 0};
    if (!l.word) return ERR_NOMEM;
    int e = split_characters(t, ids, n, &l);
    if (e >= 0 && !unspaced) e = join_at_spaces(&l);
    if (e >= 0) e = join_punctuation(&l);
    if (e < 0) {
        words_done(l.word, l.n);
        return e;
    }
    *out = l.word;
    *n_out = l.n;
    return 0;
}
