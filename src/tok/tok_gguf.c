/* tok_gguf.c - a tokenizer from GGUF metadata, built as the same lists a tokenizer.json would give.
 * tokenizer.ggml.model "gpt2" is byte-level BPE whose pre-tokenizer tokenizer.ggml.pre names;
 * "llama" is a SentencePiece BPE with scores: two adjacent pieces merge when their text is a piece,
 * the highest score first, which is a merge list whose ranks are the order of the scores.  "t5" is
 * SentencePiece's Unigram model with its map of replacements.  Ids given
 * or implied by the file are checked after defaults are filled in. */
#include "base/utf8.h"
#include "fmt/fmt.h"
#include "tok/tok_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY "tokenizer.ggml."

enum piece_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER,
    PIECE_UNUSED,
    PIECE_BYTE
};

/* One way of cutting text before the byte-level model. */
#define GPT2    TOK_GPT2
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define REST    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORT   "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define LLAMA3  SHORT LETTERS "|\\p{N}{1,3}" REST
#define QWEN2   SHORT LETTERS "|\\p{N}" REST
#define UPPER   "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SLASH   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LEAD    "[^\\r\\n\\p{L}\\p{N}]?"
#define GPT4O                                                                                      \
    LEAD UPPER "*" LOWER "+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" LEAD UPPER "+" LOWER                    \
               "*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}" SLASH
#define TEKKEN LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*|\\p{N}" SLASH
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"           \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define FALCON_PUNCT "[\\p{P}\\$\\+<=>\\^~\\|`]+"
#define OTHER_PUNCT  "[\\p{P}\\$\\+<=>\\^~\\|]+"

struct cut_rule {
    const char *names;  /* values of tokenizer.ggml.pre, each between spaces */
    const char *cut[3]; /* isolating splits in order; NULL: no more */
    bool digits;        /* cuts out every digit alone, before the splits of `cut` */
    bool ignore_merges, add_bos;
};
static const struct cut_rule cut_rules[] = {
    {" gpt-2 phi-2 jina-es jina-de gigachat jina-v1-en jina-v2-es jina-v2-de mpt olmo jais trillion "
     "granite-docling ",
     {GPT2},
     false,
     false,
     false},
    {" smollm starcoder refact command-r codeshell exaone minerva-7b ", {GPT2}, true, false, false},
    {" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 ",
     {LLAMA3},
     false,
     true,
     true},
    {" dbrx smaug-bpe glm4 chatglm-bpe ", {LLAMA3}, false, false, false},
    {" qwen2 deepseek-r1-qwen megrez hunyuan stablelm2 ", {QWEN2}, false, false, false},
    {" gpt-4o llama4 ", {GPT4O}, false, false, false},
    {" tekken ", {TEKKEN}, false, true, true},
    {" deepseek-v3 hunyuan-dense ",
     {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3},
     false,
     false,
     false},
    {" falcon ", {FALCON_PUNCT, GPT2, "[0-9][0-9][0-9]"}, false, false, false},
    {" default ", {OTHER_PUNCT, GPT2, "\\p{N}+"}, false, false, false},
    {" bloom poro-chat gpt3-finnish ", {" ?[^(\\s|.,!?…。，、।۔،)]+"}, false, false, false},
};

struct gguf_vocab {
    const struct gguf *g;
    const struct gguf_value *tokens, *types, *scores, *merges;
    struct tok *t;
};

static int array_of(const struct gguf *g, const char *key, enum gguf_type item, uint64_t n,
                    const struct gguf_value **out)
{
    const struct gguf_value *v = gguf_get(g, key);
    if (!v) return 0;
    bool number = item != GGUF_STRING && v->item != GGUF_STRING && v->item != GGUF_ARRAY;
    if (v->type != GGUF_ARRAY || (v->item != item && !number))
        return ERR(FORMAT, "%s is not an array of the right type", key);
    if (n && v->n != n)
        return ERR(FORMAT, "%s has %llu entries for %llu tokens", key, (unsigned long long)v->n,
                   (unsigned long long)n);
    *out = v;
    return 0;
}

static int open_source(struct gguf_vocab *s)
{
    TRY(array_of(s->g, KEY "tokens", GGUF_STRING, 0, &s->tokens));
    if (!s->tokens || s->tokens->n == 0)
        return ERR(FORMAT, "the file has no tokenizer: " KEY "tokens is missing");
    if (s->tokens->n > TOK_MAX_ID)
        return ERR(LIMIT, KEY "tokens has %llu entries; at most %u",
                   (unsigned long long)s->tokens->n, TOK_MAX_ID);
    TRY(array_of(s->g, KEY "token_type", GGUF_I32, s->tokens->n, &s->types));
    TRY(array_of(s->g, KEY "scores", GGUF_F32, s->tokens->n, &s->scores));
    return array_of(s->g, KEY "merges", GGUF_STRING, 0, &s->merges);
}

static int token_type(const struct gguf_vocab *s, uint64_t i)
{
    double d = s->types ? gguf_number_at(s->types, i) : PIECE_NORMAL;
    return d >= PIECE_NORMAL && d <= PIECE_BYTE ? (int)d : PIECE_NORMAL;
}

static bool seen(const struct vocab *v, const char *p, size_t n)
{
    return vocab_find(v, p, n) >= 0;
}

/* Adds piece i.  A text that is in the file twice (some models are padded so) keeps its first id.  Each further
 * entry gets a name of its own, which no text can spell. */
static int put_piece(struct gguf_vocab *s, uint64_t i)
{
    const char *p;
    size_t n;
    char spare[64];
    int type = token_type(s, i);
    TRY(gguf_string_at(s->tokens, s->g, i, &p, &n));
    if (!utf8_valid(p, n))
        return ERR(FORMAT, KEY "tokens: entry %llu is not UTF-8", (unsigned long long)i);
    unsigned flags =
        type == PIECE_NORMAL || type == PIECE_BYTE || type == PIECE_UNUSED ? VOC_MODEL : 0;
    if (seen(&s->t->vocab, p, n)) {
        n = (size_t)snprintf(spare, sizeof spare, "[duplicate token %llu]", (unsigned long long)i);
        p = spare;
        flags = VOC_ADDED;
        type = PIECE_UNUSED;
    }
    TRY(vocab_put(&s->t->vocab, p, n, (uint32_t)i, flags ? flags : VOC_ADDED));
    if (flags) return 0;
    s->t->vocab.piece[i].flags = VOC_MODEL; /* the table of added tokens sets the other flags */
    struct added a = {.special = type == PIECE_CONTROL || type == PIECE_UNKNOWN};
    return tok_add_token(s->t, p, n, a);
}

static int split(struct tok *t, const char *pattern)
{
    struct pre *p;
    TRY(tok_add_pre(t, &p));
    p->kind = PRE_SPLIT;
    p->behavior = CUT_ISOLATED;
    return pattern_new(pattern, strlen(pattern), true, &p->pattern);
}

static const struct cut_rule *find_rule(const char *name, size_t n)
{
    char key[66];
    if (n == 0 || n > 60 || memchr(name, ' ', n)) return NULL;
    snprintf(key, sizeof key, " %.*s ", (int)n, name);
    for (size_t i = 0; i < countof(cut_rules); i++)
        if (strstr(cut_rules[i].names, key)) return &cut_rules[i];
    return NULL;
}

static int put_pairs(struct gguf_vocab *s)
{
    struct tok *t = s->t;
    TRY(bpe_init(&t->bpe, (uint32_t)s->merges->n));
    for (uint64_t i = 0; i < s->merges->n; i++) {
        const char *m;
        size_t len;
        TRY(gguf_string_at(s->merges, s->g, i, &m, &len));
        const char *gap =
            len > 1 ? memchr(m + 1, ' ', len - 1) : NULL; /* a piece may begin with a blank */
        if (!gap || gap + 1 == m + len)
            return ERR(FORMAT, KEY "merges: entry %llu is not a pair", (unsigned long long)i);
        size_t left = (size_t)(gap - m);
        TRY(tok_add_merge(t, m, left, gap + 1, len - left - 1, (uint32_t)i));
    }
    return 0;
}

static int load_gpt2(struct gguf_vocab *s, const struct cut_rule **rule)
{
    struct tok *t = s->t;
    const char *name = "gpt-2";
    size_t n = strlen(name);
    struct pre *p;
    struct dec *d;
    int given = gguf_get_str(s->g, KEY "pre", &name, &n);
    TRY(given);
    if (!(*rule = find_rule(name, n)))
        return ERR(UNSUPPORTED, KEY "pre \"%.*s\" is not a pre-tokenizer this version knows",
                   (int)MIN(n, 60), name);
    if (!s->merges) return ERR(FORMAT, KEY "merges is missing");
    if (s->merges->n > UINT32_MAX)
        return ERR(LIMIT, KEY "merges has %llu entries, the limit is %u",
                   (unsigned long long)s->merges->n, UINT32_MAX);
    if ((*rule)->digits) {
        TRY(tok_add_pre(t, &p));
        p->kind = PRE_DIGITS;
        p->behavior = CUT_ISOLATED;
    }
    for (size_t i = 0; i < countof((*rule)->cut) && (*rule)->cut[i]; i++)
        TRY(split(t, (*rule)->cut[i]));
    TRY(tok_add_pre(t, &p));
    /* the key add_space_prefix has no effect for this kind, even if it is in the file */
    p->kind = PRE_BYTES;
    TRY(tok_add_dec(t, &d));
    d->kind = DEC_BYTES;
    t->bpe.ignore_merges = (*rule)->ignore_merges;
    if (!t->compiled) TRY(put_pairs(s));
    snprintf(t->kind, sizeof t->kind, "BPE (byte-level, %s%.*s)", given ? "" : "assumed ",
             (int)MIN(n, 40), name);
    return 0;
}

/* --- SentencePiece */
struct scored {
    double score;
    uint32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Looking for the merges of a piece takes the square of its bytes; real vocabularies need 2^24 in all. */
#define SPLIT_MOST ((uint64_t)1 << 30)

static int check_lengths(const struct tok *t, const struct scored *v, uint32_t n)
{
    uint64_t work = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t len = t->vocab.piece[v[i].id].len;
        if (len < SPLIT_MOST) work += len * len;
        if (len >= SPLIT_MOST || work > SPLIT_MOST)
            return ERR(LIMIT,
                       KEY "tokens: the pieces are too long; entry %u has %llu bytes, and real "
                           "pieces have fewer than 100",
                       v[i].id, (unsigned long long)len);
    }
    return 0;
}

/* Adds a merge for every way to cut a piece into two pieces.  Equal scores share a rank. */
static int put_merges(struct tok *t, const struct scored *v, uint32_t n, bool count,
                      uint64_t *total)
{
    uint32_t rank = 0;
    *total = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *s = vocab_text(&t->vocab, v[i].id);
        size_t len = t->vocab.piece[v[i].id].len, k;
        if (i && v[i].score != v[i - 1].score) rank = i;
        for (size_t at = 0; at < len; at += k) {
            utf8_decode(s + at, len - at, &k);
            if (at == 0) continue;
            int32_t left = vocab_find_model(&t->vocab, s, at);
            int32_t right = left < 0 ? -1 : vocab_find_model(&t->vocab, s + at, len - at);
            if (right < 0) continue;
            ++*total;
            if (!count) bpe_merge_put(&t->bpe, (uint32_t)left, (uint32_t)right, rank, v[i].id);
        }
    }
    return 0;
}

static int score_merges(struct gguf_vocab *s)
{
    struct tok *t = s->t;
    uint32_t n = 0;
    uint64_t total;
    struct scored *v = mem_array(s->tokens->n, sizeof *v);
    if (!v) return ERR_NOMEM;
    for (uint32_t i = 0; i < s->tokens->n; i++) {
        double score = gguf_number_at(s->scores, i);
        if (token_type(s, i) != PIECE_NORMAL || !(t->vocab.piece[i].flags & VOC_MODEL)) continue;
        v[n++] = (struct scored){score == score ? score : 0, i};
    }
    qsort(v, n, sizeof *v, by_score);
    int e = check_lengths(t, v, n);
    if (e == 0) e = put_merges(t, v, n, true, &total);
    if (e == 0) e = bpe_init(&t->bpe, total > UINT32_MAX ? UINT32_MAX : (uint32_t)total);
    if (e == 0) e = put_merges(t, v, n, false, &total);
    mem_free(v);
    return e;
}

static int spm_normalizers(struct tok *t, bool prefix)
{
    struct normalizer *m;
    if (prefix) {
        TRY(tok_add_norm(t, &m));
        m->kind = NORM_PREPEND;
        m->n_text = 3;
        if (!(m->text = mem_strdup("\xE2\x96\x81"))) return ERR_NOMEM;
    }
    TRY(tok_add_norm(t, &m));
    m->kind = NORM_REPLACE;
    m->n_text = 3;
    if (!(m->text = mem_strdup("\xE2\x96\x81"))) return ERR_NOMEM;
    return pattern_new(" ", 1, false, &m->pattern);
}

static int spm_decoders(struct tok *t, bool prefix)
{
    struct dec *d;
    TRY(tok_add_replace(t, "\xE2\x96\x81", " "));
    TRY(tok_add_dec(t, &d));
    d->kind = DEC_FALLBACK;
    TRY(tok_add_dec(t, &d));
    d->kind = DEC_FUSE;
    if (!prefix) return 0;
    TRY(tok_add_dec(t, &d));
    d->kind = DEC_STRIP;
    d->mark[0] = ' ';
    d->n_mark = 1;
    d->start = 1;
    return 0;
}

static int load_spm(struct gguf_vocab *s)
{
    bool prefix = true, squeeze = false;
    struct tok *t = s->t;
    if (!s->scores) return ERR(FORMAT, KEY "scores is missing");
    TRY(gguf_get_bool(s->g, KEY "add_space_prefix", &prefix));
    TRY(gguf_get_bool(s->g, KEY "remove_extra_whitespaces", &squeeze));
    if (squeeze)
        return ERR(UNSUPPORTED,
                   KEY "remove_extra_whitespaces of a \"llama\" tokenizer is not supported");
    TRY(spm_normalizers(t, prefix));
    TRY(spm_decoders(t, prefix));
    if (!t->compiled) TRY(score_merges(s));
    t->bpe.byte_fallback = true;
    t->bpe.fuse_unk = true;
    snprintf(t->kind, sizeof t->kind, "BPE (byte fallback, scores)");
    return 0;
}

/* --- Unigram: the steps that Transformers gives a converted SentencePiece model */
#define MAP_MOST ((uint64_t)64 << 20)

static int load_map(struct gguf_vocab *s)
{
    const struct gguf_value *v = NULL;
    struct normalizer *m;
    TRY(array_of(s->g, KEY "precompiled_charsmap", GGUF_U8, 0, &v));
    if (!v || v->n == 0) return 0;
    if (v->n > MAP_MOST || (v->item != GGUF_U8 && v->item != GGUF_I8))
        return ERR(FORMAT, KEY "precompiled_charsmap is not a list of bytes, at most %llu MiB",
                   (unsigned long long)(MAP_MOST >> 20));
    uint8_t *bytes = mem_array(v->n, 1);
    if (!bytes) return ERR_NOMEM;
    for (uint64_t i = 0; i < v->n; i++)
        bytes[i] = (uint8_t)(int)gguf_number_at(v, i);
    int e = tok_add_norm(s->t, &m);
    if (e >= 0) {
        m->kind = NORM_MAP;
        e = charsmap_new(bytes, v->n, &m->map);
    }
    mem_free(bytes);
    return e;
}

/* Removes white space at the end, and makes one mark of a run of spaces. */
static int squeeze_spaces(struct tok *t)
{
    struct normalizer *m;
    TRY(tok_add_norm(t, &m));
    m->kind = NORM_STRIP;
    m->right = true;
    TRY(tok_add_norm(t, &m));
    m->kind = NORM_REPLACE;
    m->n_text = 3;
    if (!(m->text = mem_strdup("\xE2\x96\x81"))) return ERR_NOMEM;
    return pattern_new(" {2,}", 5, true, &m->pattern);
}

static int load_t5(struct gguf_vocab *s)
{
    bool prefix = true, squeeze = true;
    struct tok *t = s->t;
    struct pre *p;
    struct dec *d;
    if (!s->scores) return ERR(FORMAT, KEY "scores is missing");
    TRY(gguf_get_bool(s->g, KEY "add_space_prefix", &prefix));
    TRY(gguf_get_bool(s->g, KEY "remove_extra_whitespaces", &squeeze));
    TRY(load_map(s));
    if (squeeze) TRY(squeeze_spaces(t));
    TRY(tok_add_pre(t, &p));
    *p = (struct pre){.kind = PRE_META,
                      .scheme = prefix ? META_ALWAYS : META_NEVER,
                      .split = true,
                      .meta = "\xE2\x96\x81",
                      .n_meta = 3};
    TRY(tok_add_dec(t, &d));
    *d = (struct dec){.kind = DEC_META, .mark = "\xE2\x96\x81", .n_mark = 3, .prefix = prefix};
    t->uni.on = true;
    for (uint32_t i = 0; !t->compiled && i < s->tokens->n; i++) {
        int type = token_type(s, i);
        t->uni.byte_fallback |= type == PIECE_BYTE;
        TRY(unigram_put(&t->uni, i, gguf_number_at(s->scores, i), type == PIECE_NORMAL));
    }
    snprintf(t->kind, sizeof t->kind, "Unigram%s", t->uni.byte_fallback ? " (byte fallback)" : "");
    return 0;
}

/* --- special ids: given, or the default of the kind, and in the vocabulary either way */
static int named_id(struct gguf_vocab *s, const char *key, const char *name, int64_t fallback,
                    int32_t *out)
{
    uint32_t id = 0, size = s->t->vocab.size;
    char full[96];
    size_t n;
    snprintf(full, sizeof full, KEY "%s_token_id", key);
    int given = gguf_get_u32(s->g, full, 0, UINT32_MAX, &id);
    TRY(given);
    *out = -1;
    if (given && id == UINT32_MAX) return 0; /* some writers use this value for "none" */
    if (!given) {
        if (fallback < 0 || fallback >= size) return 0;
        id = (uint32_t)fallback;
    }
    const char *p = tok_piece(s->t, id < INT32_MAX ? (int32_t)id : -1, &n);
    if (!p) return ERR(FORMAT, "%s is %u, but the vocabulary has %u tokens", full, id, size);
    *out = (int32_t)id;
    return tok_add_named(s->t, name, p, n);
}

static int load_special(struct gguf_vocab *s, bool spm, bool t5, const struct cut_rule *rule)
{
    bool bos = spm || (rule && rule->add_bos), eos = t5;
    int32_t bos_id, eos_id, other;
    TRY(named_id(s, "bos", "bos_token", spm ? 1 : -1, &bos_id));
    TRY(named_id(s, "eos", "eos_token", spm ? 2 : t5 ? 1 : -1, &eos_id));
    TRY(named_id(s, "unknown", "unk_token", spm ? 0 : t5 ? 2 : -1, &other));
    if (spm) s->t->bpe.unk = other;
    s->t->uni.unk = other;
    TRY(named_id(s, "padding", "pad_token", t5 ? 0 : -1, &other));
    TRY(named_id(s, "eot", "eot_token", -1, &other));
    TRY(named_id(s, "mask", "mask_token", -1, &other));
    TRY(named_id(s, "cls", "cls_token", -1, &other));
    TRY(named_id(s, "seperator", "sep_token", -1, &other)); /* the key is misspelled in files */
    TRY(gguf_get_bool(s->g, KEY "add_bos_token", &bos));
    TRY(gguf_get_bool(s->g, KEY "add_eos_token", &eos));
    if (bos && bos_id < 0) return ERR(FORMAT, KEY "add_bos_token without a bos_token_id");
    if (eos && eos_id < 0) return ERR(FORMAT, KEY "add_eos_token without an eos_token_id");
    return layout_frame(s->t, bos ? bos_id : -1, eos ? eos_id : -1, t5 ? 0 : 1);
}

static int load_model(struct gguf_vocab *s)
{
    const char *model = NULL, *text;
    size_t n = 0;
    const struct cut_rule *rule = NULL;
    TRY(open_source(s));
    TRY(gguf_get_str(s->g, KEY "model", &model, &n));
    bool gpt2 = n == 4 && memcmp(model, "gpt2", 4) == 0;
    bool spm = n == 5 && memcmp(model, "llama", 5) == 0;
    bool t5 = n == 2 && memcmp(model, "t5", 2) == 0;
    if (!gpt2 && !spm && !t5)
        return ERR(UNSUPPORTED,
                   KEY "model \"%.*s\" is not supported; \"gpt2\", \"llama\" and \"t5\" are",
                   (int)MIN(n, 40), model ? model : "");
    for (uint64_t i = 0; !s->t->compiled && i < s->tokens->n; i++)
        TRY(put_piece(s, i));
    TRY(gpt2 ? load_gpt2(s, &rule) : t5 ? load_t5(s) : load_spm(s));
    TRY(load_special(s, spm, t5, rule));
    int given = gguf_get_str(s->g, "tokenizer.chat_template", &text, &n);
    TRY(given);
    if (given && !(s->t->chat_template = mem_strndup(text, n))) return ERR_NOMEM;
    return tok_finish(s->t);
}

/* Opens the tokenizer from tables of an earlier run, else from its lists; the tables are then kept. */
static int open_kept(struct gguf_vocab *s, const struct map *m, const char *path)
{
    struct tok_source source;
    struct stamp now;
    compiled_source(path, &m->stamp, &source);
    int e = compiled_find(s->t, &source);
    if (e >= 0) e = load_model(s);
    /* the kept tables do not belong to this file */
    if (e < 0 && e != ERR_NOMEM && s->t->compiled) {
        tok_close(s->t);
        *s = (struct gguf_vocab){.g = s->g, .t = tok_new()};
        e = s->t ? load_model(s) : ERR_NOMEM;
    }
    if (e >= 0 && !s->t->compiled && map_now(m, path, &now) &&
        memcmp(&now, &m->stamp, sizeof now) == 0)
        compiled_keep(s->t, &source, "", 0);
    return e;
}

int tok_open_gguf(const struct gguf *g, struct tok **out)
{
    const char *path;
    const struct map *m = gguf_map(g, &path);
    struct gguf_vocab s = {.g = g, .t = tok_new()};
    if (!s.t) return ERR_NOMEM;
    int e = m->mapped ? open_kept(&s, m, path) : load_model(&s);
    if (e < 0) {
        tok_close(s.t);
        return e;
    }
    *out = s.t;
    return 0;
}
