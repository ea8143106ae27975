/* test_schema.c - schemas that are compiled to automata: which texts are values, which beginnings can be completed, and what is
 * refused by name. */
#include "base/buf.h"
#include "schema/schema_int.h"
#include "testing.h"

#include <pthread.h>

/* A vocabulary of the 256 bytes. */
static int one_byte(void *ctx, int32_t id, const char **s, size_t *n)
{
    static char byte;
    (void)ctx;
    byte = (char)id;
    *s = &byte;
    *n = 1;
    return 0;
}

struct bench {
    struct schema *s;
    struct lexicon *l;
    struct matcher *m;
};

static void begin(struct bench *b, const char *schema)
{
    *b = (struct bench){0};
    if (schema_compile_text(schema, "json_schema", &b->s) < 0)
        fail_msg("%s: %s", schema, err_last());
    assert_int_equal(lexicon_new(256, one_byte, NULL, &b->l), 0);
    assert_int_equal(matcher_new(b->s, b->l, &b->m), 0);
}

static void end(struct bench *b)
{
    matcher_drop(b->m);
    lexicon_drop(b->l);
    schema_drop(b->s);
}

/* True if the text is a whole value.  At each byte the mask must agree with the step. */
static bool accepts(struct bench *b, const char *text)
{
    uint32_t state = matcher_start(b->m), next;
    const uint64_t *bits;
    for (const char *p = text; *p; p++) {
        uint8_t byte = (uint8_t)*p;
        assert_int_equal(matcher_mask(b->m, state, &bits), 0);
        bool may = bits[byte / 64] >> (byte % 64) & 1;
        assert_int_equal(matcher_token(b->m, state, byte, &next), 0);
        if (may != (next != 0)) fail_msg("%s: the mask is wrong at %s", text, p);
        if (!(state = next)) return false;
    }
    return matcher_accepts(b->m, state);
}

struct sample {
    const char *schema;
    const char *good[12], *bad[12];
};

static const struct sample samples[] = {
    {"true",
     {"null", "true", "false", "0", "-1.5e+10", "\"a\\n\\u00e9\\ud83d\\ude00\xc3\xa9\"", "[]",
      "[1,[2], {}]", "{\"a\": {\"b\": []}, \"c\":1}"},
     {"", "nul", "01", "1.", "\"a", "\"\n\"", "\"\\ud83d\"", "\"\xff\"", "[1,]", "{\"a\"}", "[1",
      "1 "}},
    {"json_object", {"{}", "{\"a\":[1]}", " {}"}, {"[]", "1", "{} ", "{\"a\":1,}"}},
    {"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"}},"
     "\"required\":[\"name\",\"age\"],\"additionalProperties\":false}",
     {"{\"name\":\"x\",\"age\":3}", "{\"age\":3,\"name\":\"\"}",
      "{\n  \"age\": 3,\n  \"name\": \"a\"\n}", "{\"age\":3, \"name\":\"\\u0041\" }"},
     {"{}", "{\"name\":\"x\"}", "{\"name\":1,\"age\":3}", "{\"age\":3,\"age\":3,\"name\":\"a\"}",
      "{\"name\":\"x\",\"age\":3,\"b\":1}", "{\"name\":\"x\",\"age\":3.5}", "{\"nome\"",
      "{\"\\u006eame\"", "{ \n", "{\"age\" :", "{\"age\":\n", "{\"age\":3 "}},
    {"{\"enum\":[\"red\",\"green\",null,1,[1,{\"a\":2}]]}",
     {"\"red\"", "\"green\"", "null", "1", "[1,{\"a\":2}]"},
     {"\"re\"", "\"blue\"", "2", "[1]", "[1,{\"a\":3}]", "[1,{}]", "true"}},
    {"{\"type\":[\"string\",\"null\"],\"minLength\":2,\"maxLength\":3}",
     {"null", "\"ab\"", "\"a\\n\xf0\x9f\x98\x80\""},
     {"\"a\"", "\"abcd\"", "1"}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c]+(x|yy)?$\"}",
     {"\"a\"", "\"abcx\"", "\"cyy\""},
     {"\"\"", "\"d\"", "\"ay\"", "\"\\u0061", "\"\xc3"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":2}",
     {"[true]", "[true, false]"},
     {"[]", "[true,true,true]", "[1]"}},
    {"{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":105}",
     {"-12", "0", "-0", "9", "99", "104", "-3"},
     {"-13", "105", "1000", "-100", "1.5", "99999"}},
    {"{\"type\":\"number\",\"minimum\":0.25,\"maximum\":1.5}",
     {"0.25", "1", "1.5", "1.50", "0.999", "0.3"},
     {"0.2", "0.24999", "1.51", "2", "-1", "0"}},
    {"{\"type\":\"integer\",\"multipleOf\":3}", {"0", "3", "-12", "111"}, {"1", "10"}},
    {"{\"type\":\"number\",\"multipleOf\":0.05}", {"0", "3", "-1.15", "1.5"}, {"1.01", "0.125"}},
    {"{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"null\"},"
     "\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}},\"required\":[\"n\"],"
     "\"additionalProperties\":false}}}",
     {"{\"n\":null}", "{\"kids\":[{\"n\":null},{\"n\":null,\"kids\":[]}],\"n\":null}"},
     {"{\"kids\":[]}", "{\"n\":null,\"kids\":[{}]}"}},
    {"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},"
     "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":2},\"b\":{\"const\":3}},\"required\":[\"a\",\"b\"]}]}",
     {"{\"a\":1}", "{\"a\":2,\"b\":3}", "{\"b\":3,\"a\":2}", "{\"b\":4,\"a\":1}"},
     {"{\"a\":2}", "{\"b\":4,\"a\":2", "{\"a\":3"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":3}}},{\"properties\":{\"a\":{\"type\":\"integer\"}}}],"
     "\"type\":\"object\",\"required\":[\"a\"]}",
     {"{\"a\":3}", "{\"b\":null,\"a\":10}"},
     {"{\"a\":2}", "{\"a\":\"x\"", "{}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},\"additionalProperties\":"
     "{\"type\":\"string\"}}",
     {"{\"x1\":1,\"y\":\"a\"}", "{}"},
     {"{\"x1\":\"a\"", "{\"y\":1"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"additionalProperties\":false,"
     "\"minProperties\":1,\"maxProperties\":2,\"required\":[\"c\"]}",
     {"{\"c\":1}", "{\"a\":1,\"c\":2}"},
     {"{}", "{\"a\":1,\"b\"", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":\"a\"},{\"type\":\"integer\"}],\"items\":false}",
     {"[]", "[\"a\"]", "[\"a\",1]"},
     {"[1]", "[\"a\",1,1]", "[\"a\",\"b\"]"}},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", {"\"\"", "1"}, {"null", "1.5"}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"2023-04-30\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\"", "\"2023-1-01\"",
      "\"2023-01-00\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2024-02-29T23:59:59.25Z\"", "\"1999-12-31t00:00:00+05:30\"", "\"2016-12-31T23:59:60Z\""},
     {"\"2024-02-29T24:00:00Z\"", "\"2024-02-29T12:00:00\"", "\"2024-02-29\"",
      "\"2024-01-01T12:00:60Z\""}},
    {"{\"type\":\"string\",\"format\":\"duration\"}",
     {"\"P1Y2M3DT4H5M6S\"", "\"P4W\"", "\"PT36H\"", "\"P1M\""},
     {"\"P\"", "\"PT\"", "\"P1Y3D\"", "\"P1S\"", "\"1D\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"127.0.0.1\"", "\"255.255.255.255\""},
     {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\"", "\"1.2.3.4.5\""}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"integer\",\"minimum\":3,\"exclusiveMinimum\":true,"
     "\"maximum\":5,\"exclusiveMaximum\":false,\"uniqueItems\":false}",
     {"4", "5"},
     {"3", "6"}},
    {"{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}", {"1.5", "-0.25"}, {"1", "\"\""}},
    {"{\"not\":{\"type\":[\"object\",\"array\",\"string\"]}}",
     {"1", "null", "true"},
     {"{", "[", "\""}},
    {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"bb\"]},\"maxLength\":2}",
     {"\"\"", "\"b\"", "\"ab\""},
     {"\"a\"", "\"bb\"", "\"abc\""}},
    {"{\"type\":\"integer\",\"not\":{\"const\":7},\"minimum\":6,\"maximum\":8}",
     {"6", "8"},
     {"7", "5"}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"a\",\"b\"]},\"x\":{\"type\":\"integer\"}},\"required\":[\"k\"],"
     "\"additionalProperties\":false,\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}}},\"then\":{\"required\":[\"x\"]},"
     "\"else\":{\"not\":{\"required\":[\"x\"]}}}",
     {"{\"k\":\"a\",\"x\":1}", "{\"x\":1,\"k\":\"a\"}", "{\"k\":\"b\"}"},
     {"{\"k\":\"a\"}", "{\"x\":1,\"k\":\"b\"", "{\"k\":\"b\",\"x\""}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"additionalProperties\":false,\"dependentRequired\":"
     "{\"a\":[\"b\"]}}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", "{\"c\":1}"},
     {"{\"a\":1}", "{\"c\":1,\"a\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[ab]+$\",\"maxLength\":3}}",
     {"{}", "{\"ab\":1,\"b\":2}"},
     {"{\"c\"", "{\"\":", "{\"aaaa\""}},
    {"{\"type\":\"string\",\"format\":\"uuid\"}",
     {"\"01234567-89ab-cdef-0123-456789ABCDEF\""},
     {"\"0\""}},
};

static void texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(samples); i++) {
        struct bench b;
        begin(&b, samples[i].schema);
        for (int k = 0; k < 12 && samples[i].good[k]; k++)
            if (!accepts(&b, samples[i].good[k]))
                fail_msg("%s refuses %s", samples[i].schema, samples[i].good[k]);
        for (int k = 0; k < 12 && samples[i].bad[k]; k++)
            if (accepts(&b, samples[i].bad[k]))
                fail_msg("%s accepts %s", samples[i].schema, samples[i].bad[k]);
        end(&b);
    }
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *says;
        int code;
    } bad[] = {
        {"{\"properties\":{\"a\":{\"type\":\"object\",\"minProperties\":3}}}",
         "json_schema: #/properties/a: minProperties", ERR_UNSUPPORTED},
        {"{\"properties\":{\"a\":{\"uniqueItems\":true}}}",
         "json_schema: #/properties/a: the keyword \"uniqueItems\" is not supported",
         ERR_UNSUPPORTED},
        {"{\"type\":\"text\"}", "json_schema: #: type must be null,", ERR_FORMAT},
        {"{\"oneOf\":[{\"type\":\"array\",\"items\":{\"type\":\"number\"}},{\"items\":{\"type\":\"integer\"}}]}",
         "json_schema: #/oneOf/1: oneOf", ERR_UNSUPPORTED},
        {"{\"$ref\":\"#\"}", "json_schema: #: $ref leads back to itself", ERR_UNSUPPORTED},
        {"{\"$ref\":\"http://x/y\"}", "json_schema: #: $ref to another document", ERR_UNSUPPORTED},
        {"{\"$ref\":\"#/$defs/x\"}", "json_schema: #: $ref #/$defs/x leads nowhere", ERR_FORMAT},
        {"{\"pattern\":\"(?=a)\"}", "#: pattern: lookahead is not supported", ERR_UNSUPPORTED},
        {"{\"pattern\":\"^(a|b|[^c,40}?*x]{203}?,)(0[^1]{0,99}){99}\"}", "too much work",
         ERR_LIMIT},
        {"{\"type\":\"string\",\"format\":\"email\"}", "json_schema: #: format \"email\" is not",
         ERR_UNSUPPORTED},
        {"false", "json_schema: no value is valid", ERR_ARG},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "json_schema: no value is valid",
         ERR_ARG},
        {"{", "json_schema: line 1", ERR_FORMAT},
        {"[1]", "json_schema: #: a schema must be", ERR_FORMAT},
    };
    for (size_t i = 0; i < countof(bad); i++) {
        struct schema *s;
        assert_int_equal(schema_compile_text(bad[i].schema, "json_schema", &s), bad[i].code);
        if (!strstr(err_last(), bad[i].says)) fail_msg("%s says %s", bad[i].schema, err_last());
    }
}

/* Compiles head, then n times `part`, `middle`, n times `tail`, and the end; whatever is said is an error. */
static void nested(const char *head, const char *part, const char *middle, const char *tail,
                   const char *end_text, size_t n)
{
    struct schema *s = NULL;
    struct buf b;
    buf_init(&b, (size_t)1 << 26);
    buf_puts(&b, head);
    for (size_t i = 0; i < n; i++)
        buf_puts(&b, part);
    buf_puts(&b, middle);
    for (size_t i = 0; i < n; i++)
        buf_puts(&b, tail);
    assert_true(buf_puts(&b, end_text) >= 0);
    int e = schema_compile_text(b.data, "json_schema", &s);
    if (e >= 0) fail_msg("%s%s... %zu times is accepted", head, part, n);
    assert_true(e != ERR_NOMEM);
    buf_done(&b);
}

/* Deep nesting and bad patterns are errors.
 * class: #26600, #26602, #25283, #25308, #22606, #22234, CVE-2025-48944, vllm#17313 */
static void hostile(void **state)
{
    (void)state;
    static const char *const patterns[] = {"*a", "+",     "?",      "(",  ")",
                                           "[",  "[z-a]", "a{2,1}", "\\", "(?<n>a)\\k<n>"};
    nested("{\"pattern\":\"", "(", "a", ")", "\"}", 30000);
    nested("{\"pattern\":\"", "(a|", "b", ")*", "\"}", 30000);
    nested("", "{\"items\":", "{}", "}", "", 30000);
    nested("", "{\"allOf\":[", "{}", "]}", "", 30000);
    nested("{\"properties\":{\"a\":", "{\"not\":", "{}", "}", "}}", 30000);
    nested("{\"const\":", "[", "1", "]", "}", 30000);
    for (size_t i = 0; i < countof(patterns); i++) {
        char text[96];
        struct schema *s;
        snprintf(text, sizeof text, "{\"type\":\"string\",\"pattern\":\"%s\"}", patterns[i]);
        int e = schema_compile_text(text, "json_schema", &s);
        if (e != ERR_FORMAT && e != ERR_UNSUPPORTED) fail_msg("%s gives %d", text, e);
    }
}

/* A short schema with many divisors meets the limit of work in a second; automata of numbers that search their states
 * one by one take minutes. */
static void divisors(void **state)
{
    (void)state;
    struct schema *s;
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"properties\":{");
    for (int i = 0; i < 300; i++)
        buf_printf(&b, "%s\"p%d\":{\"type\":\"integer\",\"multipleOf\":%d}", i ? "," : "", i,
                   19000 + i);
    assert_true(buf_puts(&b, "}}") >= 0);
    assert_int_equal(schema_compile_text(b.data, "json_schema", &s), ERR_LIMIT);
    assert_non_null(strstr(err_last(), "too much work"));
    buf_done(&b);
}

/* So do objects of many alternatives, each of which has many names. */
static void alternatives(void **state)
{
    (void)state;
    struct schema *s;
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"allOf\":[");
    for (int i = 0; i < 20; i++)
        buf_printf(&b, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
                   i ? "," : "", i, i);
    assert_true(buf_puts(&b, "]}") >= 0);
    assert_int_equal(schema_compile_text(b.data, "json_schema", &s), ERR_LIMIT);
    assert_non_null(strstr(err_last(), "too much work"));
    buf_done(&b);
}

/* Whatever allocation fails, the error says so and nothing is lost. */
static void memory(void **state)
{
    (void)state;
    static const char *const schema[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":4},"
        "\"b\":{\"type\":\"integer\",\"minimum\":3},\"c\":{\"enum\":[\"x\",1.5,[1]]}},\"required\":[\"a\"],"
        "\"dependentRequired\":{\"b\":[\"c\"]}}",
        "{\"oneOf\":[{\"type\":\"integer\"},{\"not\":{\"multipleOf\":3}},{\"type\":\"object\",\"required\":[\"z\"],\"properties\":{\"z\":{\"maxLength\":2}}}],"
        "\"not\":{\"properties\":{\"q\":{\"const\":7}}}}"};
    for (size_t i = 0; i < countof(schema); i++)
        for (int64_t k = 0;; k++) {
            struct bench b = {0};
            mem_fail_at(k, false);
            int e = schema_compile_text(schema[i], "json_schema", &b.s);
            if (e >= 0) e = lexicon_new(256, one_byte, NULL, &b.l);
            if (e >= 0) e = matcher_new(b.s, b.l, &b.m);
            mem_fail_at(-1, false);
            end(&b);
            if (e >= 0) break;
            if (e != ERR_NOMEM) fail_msg("allocation %d: %s", (int)k, err_last());
        }
}

static struct schema *numbered(unsigned i)
{
    struct schema *s;
    char text[64];
    snprintf(text, sizeof text, "{\"type\":\"string\",\"minLength\":%u}", i);
    assert_int_equal(schema_of(text, "json_schema", &s), 0);
    return s;
}

static void *take_turns(void *seed)
{
    for (unsigned i = 0, x = *(unsigned *)seed; i < 400; i++, x = x * 1103515245 + 12345)
        schema_drop(numbered(x >> 16 & 15));
    return NULL;
}

/* A text is compiled once while it is used, by any thread, however many others are used meanwhile; what nobody holds and was
 * used long ago is forgotten. */
static void kept(void **state)
{
    (void)state;
    struct schema *first = numbered(1000), *bad;
    schema_drop(first);
    uint64_t before = mem_calls();
    for (int i = 0; i < 20; i++) {
        struct schema *again = numbered(1000);
        assert_ptr_equal(again, first);
        schema_drop(again);
    }
    assert_int_equal(mem_calls(), before);
    struct bench b = {.s = numbered(1000)};
    for (unsigned i = 0; i < 100; i++)
        schema_drop(numbered(3000 + i));
    struct schema *again = numbered(1000); /* other requests have not pushed it out */
    assert_ptr_equal(again, b.s);
    schema_drop(again);
    before = mem_calls();
    schema_drop(numbered(3099)); /* used lately */
    assert_int_equal(mem_calls(), before);
    schema_drop(numbered(3000)); /* forgotten, so it is compiled again */
    assert_true(mem_calls() > before);
    assert_int_equal(lexicon_new(256, one_byte, NULL, &b.l), 0);
    assert_int_equal(matcher_new(b.s, b.l, &b.m), 0);
    assert_false(accepts(&b, "\"short\""));
    end(&b);
    assert_int_equal(schema_of("{\"type\":7}", "json_schema", &bad), ERR_FORMAT);
    assert_null(bad);
    pthread_t thread[4];
    unsigned seed[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_turns, &seed[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

/* All that is held together has a limit; a text that is held already is always found. */
static void limits(void **state)
{
    enum { LONG = 8 << 20 };
    struct schema *s[16], *more;
    uint32_t n = 0;
    char *text = mem_alloc(LONG + 2), one[64];
    (void)state;
    memset(text, ' ', LONG + 1);
    assert_int_equal(schema_of(text, "json_schema", &more), ERR_LIMIT);
    mem_free(text);
    for (unsigned i = 0; i < 64; i++)
        schema_drop(numbered(5000 + i)); /* those that other tests have used are forgotten */
    schema_drop(numbered(1));
    size_t before = schema_limit((size_t)1 << 20);
    for (int e = 0; e >= 0; n += e >= 0) {
        snprintf(one, sizeof one, "{\"pattern\":\"^[ab]*%c$\",\"maxLength\":9999}", 'a' + (char)n);
        e = schema_of(one, "json_schema", &s[n]);
        if (e < 0) assert_int_equal(e, ERR_BUSY);
    }
    assert_in_range(n, 2, 10);
    assert_null(s[n]);
    assert_int_equal(
        schema_of("{\"pattern\":\"^[ab]*a$\",\"maxLength\":9999}", "json_schema", &more), 0);
    assert_ptr_equal(more, s[0]);
    schema_drop(more);
    while (n > 0)
        schema_drop(s[--n]);
    (void)schema_limit(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts),        cmocka_unit_test(refusals),
                                       cmocka_unit_test(hostile),      cmocka_unit_test(divisors),
                                       cmocka_unit_test(alternatives), cmocka_unit_test(memory),
                                       cmocka_unit_test(kept),         cmocka_unit_test(limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
