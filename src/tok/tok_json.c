/* tok_json.c - makes the steps of a tokenizer from the object of tokenizer.json.  Components are looked up by
 * their type name in four tables.  An unknown name is refused, because a tokenizer that leaves out a step is
 * silently wrong.  The file is not trusted: sizes, ids and nesting are checked here, or by the tables that are
 * filled. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <stdio.h>
#include <string.h>

#define FILE_NAME TOK_JSON

static int need_str(const json_t *o, const char *key, const char **s, size_t *n)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_string(v)) return ERR(FORMAT, FILE_NAME ": \"%s\" must be a string", key);
    *s = json_string_value(v);
    *n = json_string_length(v);
    return 0;
}

/* Reads a text of exactly one character. */
static int need_char(const json_t *o, const char *key, char out[4], size_t *n)
{
    const char *s;
    size_t len;
    TRY(need_str(o, key, &s, &len));
    if (len == 0 || utf8_decode(s, len, n) == UTF8_BAD || *n != len)
        return ERR(FORMAT, FILE_NAME ": \"%s\" must be one character", key);
    memcpy(out, s, len);
    return 0;
}

static int get_flag(const json_t *o, const char *key, bool *out)
{
    return json_get_bool(o, FILE_NAME, key, out);
}

/* Reads {"String": "x"} or {"Regex": "x"}; older files have just the string. */
static int get_pattern(const json_t *o, struct pattern **out)
{
    const json_t *p = json_object_get(o, "pattern");
    const json_t *literal = json_is_string(p) ? p : json_object_get(p, "String");
    const json_t *regex = json_object_get(p, "Regex");
    const json_t *v = literal ? literal : regex;
    if (!json_is_string(v))
        return ERR(FORMAT, FILE_NAME ": \"pattern\" must be {\"String\": ...} or {\"Regex\": ...}");
    return pattern_new(json_string_value(v), json_string_length(v), !literal, out);
}

static int get_behavior(const json_t *o, enum pre_behavior *out)
{
    static const char *const names[] = {
        [CUT_REMOVED] = "Removed",
        [CUT_ISOLATED] = "Isolated",
        [CUT_PREVIOUS] = "MergedWithPrevious",
        [CUT_NEXT] = "MergedWithNext",
        [CUT_CONTIGUOUS] = "Contiguous",
    };
    const char *s = NULL;
    TRY(json_get_str(o, FILE_NAME, "behavior", &s));
    if (!s) return 0;
    for (size_t i = 0; i < countof(names); i++)
        if (strcmp(s, names[i]) == 0) {
            *out = (enum pre_behavior)i;
            return 0;
        }
    return ERR(UNSUPPORTED, FILE_NAME ": split behavior \"%s\" is not known", s);
}

static int component_type(const json_t *o, const char *what, const char **type)
{
    size_t n;
    if (!json_is_object(o)) return ERR(FORMAT, FILE_NAME ": a %s must be an object", what);
    return need_str(o, "type", type, &n);
}

/* Runs `load` on each member of a sequence's list. */
typedef int (*load_fn)(struct tok *t, const json_t *o, uint32_t depth);
static int load_list(struct tok *t, const json_t *o, const char *key, uint32_t depth, load_fn load)
{
    const json_t *list = json_object_get(o, key), *one;
    size_t i;
    if (!json_is_array(list)) return ERR(FORMAT, FILE_NAME ": \"%s\" must be a list", key);
    if (depth >= TOK_MAX_NEST)
        return ERR(LIMIT, FILE_NAME ": sequences are nested deeper than %u levels", TOK_MAX_NEST);
    json_array_foreach(list, i, one) TRY(load(t, one, depth + 1));
    return 0;
}

/* --- normalizers */
static int norm_text(struct normalizer *m, const json_t *o, const char *key)
{
    const char *s;
    TRY(need_str(o, key, &s, &m->n_text));
    if (m->n_text > TOK_MAX_PATTERN)
        return ERR(LIMIT, FILE_NAME ": \"%s\" has %zu bytes, the limit is %u", key, m->n_text,
                   TOK_MAX_PATTERN);
    m->text = mem_strndup(s, m->n_text);
    return m->text ? 0 : ERR_NOMEM;
}

static int load_norm(struct tok *t, const json_t *o, uint32_t depth)
{
    static const struct {
        const char *type;
        enum norm_kind kind;
        enum uni_form form;
    } known[] = {
        {"NFC", NORM_FORM, UNI_NFC},   {"NFD", NORM_FORM, UNI_NFD},  {"NFKC", NORM_FORM, UNI_NFKC},
        {"NFKD", NORM_FORM, UNI_NFKD}, {"Prepend", NORM_PREPEND, 0}, {"Replace", NORM_REPLACE, 0},
        {"Lowercase", NORM_LOWER, 0},  {"Strip", NORM_STRIP, 0},     {"ByteLevel", NORM_BYTES, 0},
        {"Precompiled", NORM_MAP, 0},
    };
    const char *type;
    struct normalizer *m;
    TRY(component_type(o, "normalizer", &type));
    if (strcmp(type, "Sequence") == 0) return load_list(t, o, "normalizers", depth, load_norm);
    size_t k = 0;
    while (k < countof(known) && strcmp(known[k].type, type) != 0)
        k++;
    if (k == countof(known))
        return ERR(UNSUPPORTED, FILE_NAME ": normalizer \"%s\" is not supported", type);
    TRY(tok_add_norm(t, &m));
    m->kind = known[k].kind;
    m->form = known[k].form;
    if (m->kind == NORM_PREPEND) return norm_text(m, o, "prepend");
    if (m->kind == NORM_REPLACE) {
        TRY(norm_text(m, o, "content"));
        return get_pattern(o, &m->pattern);
    }
    if (m->kind == NORM_MAP) {
        const char *s;
        size_t n;
        TRY(need_str(o, "precompiled_charsmap", &s, &n));
        return charsmap_new_base64(s, n, &m->map);
    }
    if (m->kind == NORM_STRIP) {
        TRY(get_flag(o, "strip_left", &m->left));
        TRY(get_flag(o, "strip_right", &m->right));
    }
    return 0;
}

/* --- pre-tokenizers */
static int pre_bytes(struct pre *p, const json_t *o)
{
    bool regex = true;
    TRY(get_flag(o, "add_prefix_space", &p->prefix_space));
    TRY(get_flag(o, "use_regex", &regex));
    return regex ? pattern_new(TOK_GPT2, strlen(TOK_GPT2), true, &p->pattern) : 0;
}

/* Reads "prepend_scheme", or add_prefix_space, which older files have in its place. */
static int get_scheme(const json_t *o, enum pre_scheme *out)
{
    const char *s = NULL;
    bool prefix = true;
    TRY(json_get_str(o, FILE_NAME, "prepend_scheme", &s));
    TRY(get_flag(o, "add_prefix_space", &prefix));
    *out = prefix ? META_ALWAYS : META_NEVER;
    if (!s) return 0;
    if (strcmp(s, "always") == 0)
        *out = META_ALWAYS;
    else if (strcmp(s, "never") == 0)
        *out = META_NEVER;
    else if (strcmp(s, "first") == 0)
        *out = META_FIRST;
    else
        return ERR(UNSUPPORTED, FILE_NAME ": prepend_scheme \"%s\" is not known", s);
    return 0;
}

static int pre_meta(struct pre *p, const json_t *o)
{
    p->split = true;
    TRY(need_char(o, "replacement", p->meta, &p->n_meta));
    TRY(get_scheme(o, &p->scheme));
    TRY(get_flag(o, "split", &p->split));
    return 0;
}

static int pre_split(struct pre *p, const json_t *o)
{
    if (!json_object_get(o, "behavior"))
        return ERR(FORMAT, FILE_NAME ": Split without \"behavior\"");
    TRY(get_behavior(o, &p->behavior));
    TRY(get_flag(o, "invert", &p->invert));
    return get_pattern(o, &p->pattern);
}

static int pre_delimiter(struct pre *p, const json_t *o)
{
    char c[4];
    size_t n;
    p->behavior = CUT_REMOVED;
    TRY(need_char(o, "delimiter", c, &n));
    return pattern_new(c, n, false, &p->pattern);
}

static int pre_digits(struct pre *p, const json_t *o)
{
    bool individual = false;
    TRY(get_flag(o, "individual_digits", &individual));
    p->behavior = individual ? CUT_ISOLATED : CUT_CONTIGUOUS;
    return 0;
}

static int pre_punct(struct pre *p, const json_t *o)
{
    p->behavior = CUT_ISOLATED;
    return get_behavior(o, &p->behavior);
}

static int pre_spaces(struct pre *p, const json_t *o)
{
    (void)o;
    p->behavior = CUT_REMOVED;
    return 0;
}

static int load_pre(struct tok *t, const json_t *o, uint32_t depth)
{
    static const struct {
        const char *type;
        enum pre_kind kind;
        int (*load)(struct pre *p, const json_t *o);
    } known[] = {
        {"ByteLevel", PRE_BYTES, pre_bytes},
        {"Split", PRE_SPLIT, pre_split},
        {"Digits", PRE_DIGITS, pre_digits},
        {"Whitespace", PRE_WORDS, NULL},
        {"WhitespaceSplit", PRE_SPACES, pre_spaces},
        {"Metaspace", PRE_META, pre_meta},
        {"Punctuation", PRE_PUNCT, pre_punct},
        {"CharDelimiterSplit", PRE_SPLIT, pre_delimiter},
    };
    const char *type;
    struct pre *p;
    TRY(component_type(o, "pre-tokenizer", &type));
    if (strcmp(type, "Sequence") == 0) return load_list(t, o, "pretokenizers", depth, load_pre);
    for (size_t k = 0; k < countof(known); k++) {
        if (strcmp(known[k].type, type) != 0) continue;
        TRY(tok_add_pre(t, &p));
        p->kind = known[k].kind;
        return known[k].load ? known[k].load(p, o) : 0;
    }
    return ERR(UNSUPPORTED, FILE_NAME ": pre-tokenizer \"%s\" is not supported", type);
}

/* --- decoders */
static int dec_bytes(struct dec *d, const json_t *o)
{
    (void)d;
    (void)o;
    return 0;
}

static int dec_meta(struct dec *d, const json_t *o)
{
    enum pre_scheme scheme;
    TRY(need_char(o, "replacement", d->mark, &d->n_mark));
    TRY(get_scheme(o, &scheme));
    d->prefix = scheme != META_NEVER;
    return 0;
}

static int dec_strip(struct dec *d, const json_t *o)
{
    TRY(need_char(o, "content", d->mark, &d->n_mark));
    TRY(json_get_u32(o, FILE_NAME, "start", 0, 65536, &d->start));
    TRY(json_get_u32(o, FILE_NAME, "stop", 0, 65536, &d->stop));
    return 0;
}

static int dec_text(struct dec *d, const char *s, size_t n)
{
    if (n > 256) return ERR(LIMIT, FILE_NAME ": a decoder's text of %zu bytes; at most 256", n);
    d->n_text = n;
    d->text = mem_strndup(s, n);
    return d->text ? 0 : ERR_NOMEM;
}

static int dec_replace(struct dec *d, const json_t *o)
{
    const char *s;
    size_t n;
    TRY(need_str(o, "content", &s, &n));
    TRY(dec_text(d, s, n));
    TRY(get_pattern(o, &d->pattern));
    if (pattern_literal(d->pattern, &n) && (n == 0 || n > 256))
        return ERR(UNSUPPORTED, FILE_NAME ": a Replace decoder for %zu bytes is not supported", n);
    return 0;
}

static int dec_suffix(struct dec *d, const json_t *o)
{
    const char *s;
    size_t n;
    TRY(need_str(o, "suffix", &s, &n));
    if (n == 0) return ERR(UNSUPPORTED, FILE_NAME ": a BPEDecoder with an empty suffix");
    return dec_text(d, s, n);
}

static int load_dec(struct tok *t, const json_t *o, uint32_t depth)
{
    static const struct {
        const char *type;
        enum dec_kind kind;
        int (*load)(struct dec *d, const json_t *o);
    } known[] = {
        {"ByteLevel", DEC_BYTES, dec_bytes},    {"ByteFallback", DEC_FALLBACK, dec_bytes},
        {"Fuse", DEC_FUSE, dec_bytes},          {"Metaspace", DEC_META, dec_meta},
        {"Strip", DEC_STRIP, dec_strip},        {"Replace", DEC_REPLACE, dec_replace},
        {"BPEDecoder", DEC_SUFFIX, dec_suffix},
    };
    const char *type;
    struct dec *d;
    TRY(component_type(o, "decoder", &type));
    if (strcmp(type, "Sequence") == 0) return load_list(t, o, "decoders", depth, load_dec);
    for (size_t k = 0; k < countof(known); k++) {
        if (strcmp(known[k].type, type) != 0) continue;
        TRY(tok_add_dec(t, &d));
        d->kind = known[k].kind;
        return known[k].load(d, o);
    }
    return ERR(UNSUPPORTED, FILE_NAME ": decoder \"%s\" is not supported", type);
}

/* --- post-processors (tok_layout.c) */
static int load_post(struct tok *t, const json_t *o, uint32_t depth)
{
    const char *type;
    TRY(component_type(o, "post-processor", &type));
    if (strcmp(type, "Sequence") == 0) return load_list(t, o, "processors", depth, load_post);
    if (strcmp(type, "ByteLevel") == 0) return 0; /* this step changes only offsets */
    return layout_load(t, type, o);
}

/* --- the model */
static int affix(const json_t *model, const char *key, char **out, size_t *n)
{
    const char *s = NULL;
    TRY(json_get_str(model, FILE_NAME, key, &s));
    if (!s || !*s) return 0;
    if (strlen(s) > 64)
        return ERR(LIMIT, FILE_NAME ": \"%s\" has %zu bytes, the limit is 64", key, strlen(s));
    *n = strlen(s);
    *out = mem_strdup(s);
    return *out ? 0 : ERR_NOMEM;
}

static int load_unigram(struct tok *t, const json_t *m, const struct tok_lists *lists)
{
    const json_t *unk = json_object_get(m, "unk_id");
    t->uni.on = true;
    if (lists) TRY(tok_lists_pieces(t, lists));
    TRY(get_flag(m, "byte_fallback", &t->uni.byte_fallback));
    if (!unk || json_is_null(unk)) return 0;
    json_int_t id = json_is_integer(unk) ? json_integer_value(unk) : -1;
    if (id < 0 || id >= t->vocab.size)
        return ERR(FORMAT, FILE_NAME ": \"unk_id\" is not an id of the vocabulary");
    t->uni.unk = (int32_t)id;
    return 0;
}

static int load_model(struct tok *t, const json_t *root, const struct tok_lists *lists)
{
    const json_t *m = json_object_get(root, "model");
    const char *type = NULL, *unk = NULL;
    struct bpe *b = &t->bpe;
    if (!json_is_object(m)) return ERR(FORMAT, FILE_NAME ": \"model\" must be an object");
    TRY(json_get_str(m, FILE_NAME, "type", &type));
    if (!type && json_object_get(m, "merges")) type = "BPE"; /* older files have no "type" */
    if (!type && json_object_get(m, "unk_id")) type = "Unigram";
    if (type && strcmp(type, "Unigram") == 0) return load_unigram(t, m, lists);
    if (!type || strcmp(type, "BPE") != 0)
        return ERR(UNSUPPORTED,
                   FILE_NAME ": model type \"%s\" is not supported; BPE and Unigram are",
                   type ? type : "(none)");
    TRY(affix(m, "continuing_subword_prefix", &b->prefix, &b->n_prefix));
    TRY(affix(m, "end_of_word_suffix", &b->suffix, &b->n_suffix));
    if (lists) TRY(tok_lists_vocab(t, lists));
    if (lists) TRY(tok_lists_merges(t, lists));
    TRY(get_flag(m, "fuse_unk", &b->fuse_unk));
    TRY(get_flag(m, "byte_fallback", &b->byte_fallback));
    TRY(get_flag(m, "ignore_merges", &b->ignore_merges));
    TRY(json_get_str(m, FILE_NAME, "unk_token", &unk)); /* "dropout" is for training only */
    if (unk && *unk && (b->unk = vocab_find_model(&t->vocab, unk, strlen(unk))) < 0)
        return ERR(FORMAT, FILE_NAME ": unk_token \"%.60s\" is not in the vocabulary", unk);
    return 0;
}

static int load_added(struct tok *t, const json_t *o)
{
    struct added a = {0};
    const char *s;
    size_t n;
    TRY(need_str(o, "content", &s, &n));
    TRY(get_flag(o, "special", &a.special));
    a.normalized = !a.special;
    TRY(get_flag(o, "single_word", &a.single_word));
    TRY(get_flag(o, "lstrip", &a.lstrip));
    TRY(get_flag(o, "rstrip", &a.rstrip));
    TRY(get_flag(o, "normalized", &a.normalized));
    return tok_add_token(t, s, n, a);
}

static int load_step(struct tok *t, const json_t *root, const char *key, load_fn load)
{
    const json_t *o = json_object_get(root, key);
    return o && !json_is_null(o) ? load(t, o, 0) : 0;
}

int tok_load_json(struct tok *t, const json_t *root, const struct tok_lists *lists)
{
    struct dec *d;
    if (!json_is_object(root)) return ERR(FORMAT, FILE_NAME " is not an object");
    TRY(load_model(t, root, lists));
    TRY(load_step(t, root, "normalizer", load_norm));
    TRY(load_step(t, root, "pre_tokenizer", load_pre));
    TRY(load_step(t, root, "decoder", load_dec));
    if (lists) TRY(tok_lists_added(t, lists, load_added));
    TRY(load_step(t, root, "post_processor", load_post));
    /* without a decoder tokens are words */
    if (!json_is_object(json_object_get(root, "decoder"))) {
        TRY(tok_add_dec(t, &d));
        d->kind = DEC_JOIN;
    }
    bool bytes = false;
    for (uint32_t i = 0; i < t->n_pre; i++)
        bytes |= t->pre[i].kind == PRE_BYTES;
    if (t->uni.on)
        snprintf(t->kind, sizeof t->kind, "Unigram%s",
                 t->uni.byte_fallback ? " (byte fallback)" : "");
    else
        snprintf(t->kind, sizeof t->kind, "BPE (%s)",
                 bytes                  ? "byte-level"
                 : t->bpe.byte_fallback ? "byte fallback"
                                        : "characters");
    return 0;
}
