/* test_tok_parts.c - every component of a tokenizer.json by itself, on texts chosen to be
 * difficult, against the tokenizers package (tests/fixtures/tok/make-cases.py); and which
 * components are refused by name. */
#include "test_tok.h"

#define CASES "tests/fixtures/tok/cases.jsonl"

/* True if the text gives the same ids and places with ends and words: ends are behind the places, except of ids without
 * characters, and words ascend. */
static bool worded(const struct tok *t, const json_t *one, const struct ids *want,
                   const struct tok_places *places)
{
    const json_t *text = json_array_get(one, 0);
    size_t n = json_string_length(text);
    struct ids got = {0};
    struct tok_places at = {0}, end = {0}, word = {0};
    uint32_t next = 0;
    int e = tok_encode_words(t, json_string_value(text), n,
                             (unsigned)json_integer_value(json_array_get(one, 1)), &got, &at, &end,
                             &word);
    bool same = e == 0 && got.n == want->n && at.n == got.n && end.n == got.n && word.n == got.n;
    for (size_t i = 0; same && i < got.n; i++) {
        bool none = word.v[i] == TOK_NO_WORD;
        same = got.id[i] == want->id[i] && at.v[i] == places->v[i] && end.v[i] <= n &&
               (none ? end.v[i] == at.v[i] : end.v[i] > at.v[i]) && (none || word.v[i] >= next);
        if (!none) next = word.v[i];
    }
    if (!same) fprintf(stderr, "words: %s\n", e < 0 ? err_last() : "differ");
    ids_done(&got);
    tok_places_done(&at);
    tok_places_done(&end);
    tok_places_done(&word);
    return same;
}

/* True if the text gives the same ids with their places inside the text, in ascending order. */
static bool placed(const struct tok *t, const json_t *one, const struct ids *want)
{
    const json_t *text = json_array_get(one, 0);
    size_t n = json_string_length(text);
    struct ids got = {0};
    struct tok_places at = {0};
    int e =
        tok_encode_placed(t, json_string_value(text), n,
                          (unsigned)json_integer_value(json_array_get(one, 1)), NULL, 0, &got, &at);
    bool same = e == 0 && got.n == want->n && at.n == got.n;
    for (size_t i = 0; same && i < got.n; i++)
        same = got.id[i] == want->id[i] && at.v[i] <= n && (!i || at.v[i] >= at.v[i - 1]);
    if (!same) fprintf(stderr, "places: %s\n", e < 0 ? err_last() : "differ");
    same &= worded(t, one, &got, &at);
    tok_places_done(&at);
    ids_done(&got);
    return same;
}

static int compare_encode(const struct tok *t, const char *name, const json_t *one)
{
    const json_t *text = json_array_get(one, 0), *want = json_array_get(one, 2);
    struct ids got = {0};
    int e = tok_encode(t, json_string_value(text), json_string_length(text),
                       (unsigned)json_integer_value(json_array_get(one, 1)), NULL, 0, &got);
    bool same = e == 0 && got.n == json_array_size(want);
    for (size_t i = 0; same && i < got.n; i++)
        same = got.id[i] == json_integer_value(json_array_get(want, i));
    if (!same) {
        char *s = json_dumps(want, JSON_COMPACT);
        fprintf(stderr, "%s: \"%s\"\n  want %s\n  got [", name, json_string_value(text), s);
        for (size_t i = 0; i < got.n; i++)
            fprintf(stderr, "%s%d", i ? "," : "", got.id[i]);
        fprintf(stderr, "] %s\n", e < 0 ? err_last() : "");
        free(s);
    }
    same = same && placed(t, one, &got);
    ids_done(&got);
    return !same;
}

static int compare_decode(const struct tok *t, const char *name, const json_t *one)
{
    const json_t *list = json_array_get(one, 0), *want = json_array_get(one, 2), *id;
    bool skip = json_is_true(json_array_get(one, 1));
    struct ids v = {0};
    struct buf got, flow;
    size_t i;
    buf_init(&got, 1 << 20);
    buf_init(&flow, 1 << 20);
    json_array_foreach(list, i, id)
        assert_int_equal(ids_push(&v, (int32_t)json_integer_value(id)), 0);
    int e = tok_decode(t, v.id, v.n, skip, &got);
    bool same = e == 0 && got.len == json_string_length(want) &&
                (got.len == 0 || memcmp(got.data, json_string_value(want), got.len) == 0);
    stream(t, &v, skip, &flow);
    same =
        same && flow.len == got.len && (got.len == 0 || memcmp(got.data, flow.data, got.len) == 0);
    if (!same)
        fprintf(stderr, "%s: decode: want \"%s\", got \"%s\", as a stream \"%s\"\n", name,
                json_string_value(want), got.data ? got.data : "", flow.data ? flow.data : "");
    buf_done(&got);
    buf_done(&flow);
    ids_done(&v);
    return !same;
}

static int run_case(const json_t *o, const json_t *models)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    json_t *tok = json_object_get(o, "tokenizer"), *one;
    json_t *model = json_object_get(models, json_string_value(json_object_get(o, "model")));
    size_t i;
    int bad = 0;
    assert_non_null(model);
    json_object_set(tok, "model", model);
    char *text = json_dumps(tok, 0);
    struct tok *t = open_text(text);
    free(text);
    json_array_foreach(json_object_get(o, "encode"), i, one) bad += compare_encode(t, name, one);
    json_array_foreach(json_object_get(o, "decode"), i, one) bad += compare_decode(t, name, one);
    tok_close(t);
    return bad;
}

static void test_cases(void **state)
{
    (void)state;
    json_t *models = NULL, *o;
    char *line = NULL;
    size_t cap = 0, n_cases = 0;
    int bad = 0;
    FILE *f = fopen(CASES, "r");
    assert_non_null(f);
    for (ssize_t n; (n = getline(&line, &cap, f)) > 0;) {
        assert_int_equal(json_parse(line, (size_t)n, CASES, &o), 0);
        if (!models) {
            models = json_incref(json_object_get(o, "models"));
        } else {
            bad += run_case(o, models);
            n_cases++;
        }
        json_decref(o);
    }
    free(line);
    fclose(f);
    json_decref(models);
    assert_true(n_cases >= 140);
    assert_int_equal(bad, 0);
}

#define MODEL                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define WITH(x) "{" x "," MODEL "}"
#define SPLIT(x)                                                                                      \
    WITH(                                                                                             \
        "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"" x \
        "\"}}")

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *names; /* a word that the message must contain */
        int code;
    } rows[] = {
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", "WordLevel", ERR_UNSUPPORTED},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "empty", ERR_FORMAT},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "WordPiece", ERR_UNSUPPORTED},
        {WITH("\"normalizer\":{\"type\":\"Precompiled\"}"), "precompiled_charsmap", ERR_FORMAT},
        {WITH("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Nmt\"}]}"), "Nmt",
         ERR_UNSUPPORTED},
        {WITH("\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"), "UnicodeScripts",
         ERR_UNSUPPORTED},
        {WITH("\"post_processor\":{\"type\":\"Fancy\"}"), "Fancy", ERR_UNSUPPORTED},
        {WITH("\"decoder\":{\"type\":\"CTC\"}"), "CTC", ERR_UNSUPPORTED},
        {WITH("\"decoder\":{\"type\":\"WordPiece\"}"), "WordPiece", ERR_UNSUPPORTED},
        {WITH("\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Sideways\"}"), "Sideways",
         ERR_UNSUPPORTED},
        {WITH(
             "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"twice\"}"),
         "twice", ERR_UNSUPPORTED},
        {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}"), "replacement",
         ERR_FORMAT},
        {SPLIT("[a&&b]"), "&&", ERR_UNSUPPORTED},
        {SPLIT("[a[^b]]"), "set", ERR_UNSUPPORTED},
        {SPLIT("[[:alpha:]]"), "set", ERR_UNSUPPORTED},
        {SPLIT("(*LIMIT_MATCH=9)a"), "(*", ERR_UNSUPPORTED},
        {SPLIT("a(?R)"), "group", ERR_UNSUPPORTED},
        {SPLIT("(?x) a b"), "group", ERR_UNSUPPORTED},
        {SPLIT("b(?i)a|c"), "group", ERR_UNSUPPORTED},
        {SPLIT("\\\\X"), "\\X", ERR_UNSUPPORTED},
        {SPLIT("(a)\\\\1"), "\\1", ERR_UNSUPPORTED},
        {SPLIT("[\\\\W]"), "\\W", ERR_UNSUPPORTED},
        {SPLIT("[a-\\\\s]"), "range", ERR_UNSUPPORTED},
        {SPLIT("a{2}?"), "repeat", ERR_UNSUPPORTED},
        {SPLIT("(a"), "group", ERR_UNSUPPORTED},
        {SPLIT("a)"), ")", ERR_UNSUPPORTED},
        {SPLIT("[a"), "set", ERR_UNSUPPORTED},
        {SPLIT("*a"), "quantifier", ERR_FORMAT},
        {SPLIT("\\\\p{Nonsense}"), "property", ERR_FORMAT},
        {"[]", "object", ERR_FORMAT},
        {"{", "line", ERR_FORMAT},
        {"{\"model\":null}", "model", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "empty", ERR_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}}",
         "unk_token", ERR_FORMAT},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct tok *t = NULL;
        int e = tok_open_json(rows[i].json, strlen(rows[i].json), NULL, 0, &t);
        if (e != rows[i].code || !strstr(err_last(), rows[i].names))
            fail_msg("row %zu: code %d, \"%s\" should name \"%s\"", i, e, err_last(),
                     rows[i].names);
        assert_null(t);
    }
}

/* Encodes a text with the tokenizer of `json`, and compares n ids and the places where they begin. */
static void same_places(const char *json, const char *text, const int32_t *id,
                        const uint32_t *place, size_t n)
{
    struct tok *t = open_text(json);
    struct ids got = {0};
    struct tok_places at = {0};
    assert_int_equal(tok_encode_placed(t, text, strlen(text), 0, NULL, 0, &got, &at), 0);
    assert_int_equal(got.n, n);
    assert_memory_equal(got.id, id, n * sizeof *id);
    assert_int_equal(at.n, n);
    assert_memory_equal(at.v, place, n * sizeof *place);
    tok_places_done(&at);
    ids_done(&got);
    tok_close(t);
}

/* As in the reference, an unknown character comes behind the bytes of characters that follow it.  Places ascend all the same:
 * z is unknown, b and c are bytes. */
static void test_late_unknown(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,"
        "\"vocab\":{\"a\":0,\"<unk>\":1,\"<0x62>\":2,\"<0x63>\":3},\"merges\":[]}}";
    static const int32_t id[] = {0, 2, 3, 1, 0};
    static const uint32_t place[] = {0, 2, 3, 3, 4};
    _Static_assert(countof(id) == countof(place), "places of all ids");
    same_places(json, "azbca", id, place, countof(id));
}

/* A normalizer joins e and an accent.  The second accent is a token of its own and keeps its place, as in the reference. */
static void test_joined(void **state)
{
    (void)state;
    static const char json[] = "{\"normalizer\":{\"type\":\"NFC\"},\"model\":{\"type\":\"BPE\","
                               "\"vocab\":{\"a\":0,\"\xC3\xA9\":1,\"\xCC\x81\":2},\"merges\":[]}}";
    static const int32_t id[] = {0, 1, 2, 0};
    static const uint32_t place[] = {0, 1, 4, 6};
    _Static_assert(countof(id) == countof(place), "places of all ids");
    same_places(json,
                "ae\xCC\x81\xCC\x81"
                "a",
                id, place, countof(id));
}

/* What stands around one text, and around and between two, by each kind of post-processor. */
static void test_layouts(void **state)
{
    (void)state;
#define SPECIAL(id, type) "{\"SpecialToken\":{\"id\":\"" id "\",\"type_id\":" type "}}"
#define TEXT(id, type)    "{\"Sequence\":{\"id\":\"" id "\",\"type_id\":" type "}}"
#define TEMPLATE(single, pair)                                                                         \
    "{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"s\":{\"ids\":[1,0]},\"e\":{\"ids\":[2]}}," \
    "\"single\":[" single "]" pair "}"
    static const struct {
        const char *post;
        uint32_t n[2];
        struct tok_part part[2][7];
    } rows[] = {
        {"null", {1, 2}, {{{TOK_FIRST, 0}}, {{TOK_FIRST, 0}, {TOK_SECOND, 1}}}},
        {"{\"type\":\"ByteLevel\"}", {1, 2}, {{{TOK_FIRST, 0}}, {{TOK_FIRST, 0}, {TOK_SECOND, 1}}}},
        {"{\"type\":\"BertProcessing\",\"cls\":[\"b\",1],\"sep\":[\"c\",2]}",
         {3, 5},
         {{{1, 0}, {TOK_FIRST, 0}, {2, 0}},
          {{1, 0}, {TOK_FIRST, 0}, {2, 0}, {TOK_SECOND, 1}, {2, 1}}}},
        {"{\"type\":\"RobertaProcessing\",\"cls\":[\"b\",1],\"sep\":[\"c\",2]}",
         {3, 6},
         {{{1, 0}, {TOK_FIRST, 0}, {2, 0}},
          {{1, 0}, {TOK_FIRST, 0}, {2, 0}, {2, 0}, {TOK_SECOND, 0}, {2, 0}}}},
        {TEMPLATE(SPECIAL("s", "0") "," TEXT("A", "3"),
                  ",\"pair\":[" TEXT("B", "4") "," SPECIAL("e", "2") "," TEXT("A", "0") "]"),
         {3, 3},
         {{{1, 0}, {0, 0}, {TOK_FIRST, 3}}, {{TOK_SECOND, 4}, {2, 2}, {TOK_FIRST, 0}}}},
        {TEMPLATE(TEXT("A", "0"), ""), {1, 0}, {{{TOK_FIRST, 0}}}},
        {TEMPLATE(TEXT("A", "0"), ",\"pair\":[" TEXT("A", "0") "]"), {1, 0}, {{{TOK_FIRST, 0}}}},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        char json[2048];
        struct tok *t;
        snprintf(json, sizeof json,
                 "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2},\"merges\":[]},"
                 "\"post_processor\":%s}",
                 rows[i].post);
        if (tok_open_json(json, strlen(json), NULL, 0, &t) < 0) fail_msg("%s", err_last());
        for (int pair = 0; pair < 2; pair++) {
            uint32_t n;
            const struct tok_part *part = tok_layout(t, pair, &n);
            assert_int_equal(n, rows[i].n[pair]);
            if (n) assert_memory_equal(part, rows[i].part[pair], n * sizeof *part);
        }
        tok_close(t);
    }
}

/* clean_up_tokenization_spaces is ignored for BPE unless it is forced, as in Transformers. */
static void test_clean_up(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"do\":0,\" n't\":1,\" .\":2,\" ' \":3,\"x\":4,\" \":5,\" 'm\":6,\".\":7},"
        "\"merges\":[]},\"decoder\":{\"type\":\"Fuse\"}}";
    static const char plain[] = "{\"clean_up_tokenization_spaces\":true}";
    static const char forced[] =
        "{\"clean_up_tokenization_spaces\":true,"
        "\"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output\":true}";
    static const int32_t id[] = {0, 1, 2, 4, 3, 4, 5, 6, 5, 7, 5};
    struct ids v = {.id = (int32_t *)id, .n = countof(id), .cap = countof(id)};
    for (int k = 0; k < 2; k++) {
        struct tok *t;
        struct buf b, flow;
        const char *config = k ? forced : plain;
        assert_int_equal(tok_open_json(json, strlen(json), config, strlen(config), &t), 0);
        buf_init(&b, 1000);
        buf_init(&flow, 1000);
        assert_int_equal(tok_decode(t, v.id, v.n, false, &b), 0);
        assert_string_equal(b.data, k ? "don't.x'x 'm. " : "do n't .x ' x  'm . ");
        stream(t, &v, false, &flow);
        assert_string_equal(flow.data, b.data);
        buf_done(&b);
        buf_done(&flow);
        tok_close(t);
    }
}

static void test_config(void **state)
{
    (void)state;
    static const char json[] =
        "{\"added_tokens\":[{\"content\":\"<s>\",\"special\":true}]," MODEL "}";
    static const char config[] =
        "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"b\",\"lstrip\":false},\"pad_token\":null,"
        "\"unk_token\":\"<none>\",\"add_bos_token\":true,\"image_token\":\"ab\","
        "\"model_max_length\":1000000000000000019884624838656,"
        "\"chat_template\":[{\"name\":\"tool\",\"template\":\"T\"},{\"name\":\"default\",\"template\":\"D\"}]}";
    struct tok *t;
    assert_int_equal(tok_open_json(json, strlen(json), config, strlen(config), &t), 0);
    assert_int_equal(tok_special_id(t, "bos_token"), 3);
    assert_int_equal(tok_special_id(t, "eos_token"), 1);
    assert_int_equal(tok_special_id(t, "image_token"), 2);
    assert_int_equal(tok_special_id(t, "pad_token"), -1);
    assert_null(tok_special_text(t, "pad_token"));
    assert_int_equal(tok_special_id(t, "unk_token"), -1);
    assert_string_equal(tok_special_text(t, "unk_token"), "<none>");
    assert_null(tok_special_text(t, "add_bos_token"));
    assert_string_equal(tok_chat_template(t), "D");
    assert_int_equal(tok_size(t), 4);
    size_t n;
    int32_t id;
    bool special;
    assert_int_equal(tok_n_added(t), 1);
    assert_memory_equal(tok_added(t, 0, &n, &id, &special), "<s>", 3);
    assert_true(id == 3 && special && n == 3 && tok_is_special(t, 3) && !tok_is_special(t, 0));
    assert_null(tok_added(t, 1, &n, &id, &special));
    assert_null(tok_piece(t, 4, &n));
    assert_null(tok_piece(t, -1, &n));
    assert_int_equal(tok_find(t, "ab", 2), 2);
    assert_int_equal(tok_find(t, "abc", 3), -1);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_late_unknown), cmocka_unit_test(test_clean_up),
        cmocka_unit_test(test_config),       cmocka_unit_test(test_joined),
        cmocka_unit_test(test_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
