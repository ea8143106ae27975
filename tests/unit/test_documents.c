/* test_documents.c - where the documents of a request are in the tokens of its prompt, with a tokenizer whose tokens cross the
 * ends of documents: the tokens of a document are all that have characters of it alone. */
#include "serve/documents.c"
#include "unpacked.h"

enum { MOST = 6, ROUNDS = 400, TEXT = 4096 };
static uint32_t x = 5;

static uint32_t draw(uint32_t n)
{
    x = x * 1664525u + 1013904223u;
    return (x >> 8) % n;
}

/* Words that the tokenizer joins with their neighbours, without spaces at their ends. */
static void add_words(char *text, uint32_t n)
{
    static const char *const word[] = {"the", " harbour", "ing", " un", "able", " 1864", ".",
                                       "  ",  "\n",       "A",   "-",   " (x",  "e",     " t"};
    for (uint32_t i = 0; i < n; i++)
        strcat(text, word[draw(countof(word))]);
}

/* A prompt of documents and texts between them; first[i] and last[i] are the bytes of document i. */
struct made {
    char text[TEXT];
    size_t first[MOST], last[MOST];
    struct documents d;
};

static void make(struct made *m, uint32_t n, bool ends)
{
    char one[256];
    *m = (struct made){.d = {.texts = json_array()}};
    add_words(m->text, draw(3));
    for (uint32_t i = 0; i < n; i++) {
        snprintf(one, sizeof one, "able %u", 100000 + draw(800000)); /* no two are alike */
        add_words(one, 1 + draw(12));
        strcat(one, "k");
        m->first[i] = strlen(m->text);
        strcat(m->text, one);
        m->last[i] = strlen(m->text);
        json_array_append_new(m->d.texts, json_string(one));
        if (!ends || i + 1 < n) add_words(m->text, draw(3));
    }
    if (!ends) strcat(m->text, "?");
}

/* Returns the bytes of the first n tokens. */
static size_t bytes_of(const kvik_tokenizer *t, const int32_t *ids, size_t n)
{
    char *text;
    size_t bytes;
    need(kvik_tokenizer_decode(t, ids, n, false, &text, &bytes));
    kvik_free(text);
    return bytes;
}

static void judge(const struct made *m, const kvik_tokenizer *t, const int32_t *ids, size_t n,
                  uint32_t documents)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < documents; i++) {
        size_t from = 0, to;
        while (bytes_of(t, ids, from) < m->first[i])
            from++;
        to = from;
        while (to + 1 < n && bytes_of(t, ids, to + 1) <= m->last[i])
            to++;
        if (from >= to) continue;
        if (k >= m->d.n || m->d.span[k].from != from || m->d.span[k].to != to)
            fail_msg("document %u of \"%s\": tokens %zu to %zu, and not %zu to %zu", i, m->text,
                     from, to, k < m->d.n ? m->d.span[k].from : 0,
                     k < m->d.n ? m->d.span[k].to : 0);
        k++;
    }
    assert_int_equal(k, m->d.n);
}

static void test_places(void **state)
{
    (void)state;
    static struct made m;
    kvik_tokenizer *t = open_one("qwen3");
    uint32_t begins = 0, ends = 0;
    for (int round = 0; round < (getenv("KVIK_TEST_SHORT") ? ROUNDS / 4 : ROUNDS); round++) {
        uint32_t documents = 1 + draw(MOST);
        int32_t *ids;
        size_t n;
        make(&m, documents, draw(4) == 0);
        need(kvik_tokenizer_encode(t, m.text, strlen(m.text), false, &ids, &n));
        assert_int_equal(bytes_of(t, ids, n), strlen(m.text));
        need(documents_find(&m.d, t, ids, n));
        judge(&m, t, ids, n, documents);
        for (uint32_t i = 0; i < m.d.n && m.d.n == documents; i++) {
            begins += bytes_of(t, ids, m.d.span[i].from) > m.first[i];
            ends += bytes_of(t, ids, m.d.span[i].to) < m.last[i];
        }
        kvik_free(ids);
        documents_done(&m.d);
    }
    assert_true(begins > 0 && ends > 0); /* tokens do cross */
    kvik_tokenizer_close(t);
}

/* What a template has changed or left out is not found, and does not hide what comes later. */
static void test_absent(void **state)
{
    (void)state;
    static const char text[] = "one thing and another thing \xf0\x9f\x98\x80 and a third thing, "
                               "and once more the third thing.";
    static const struct {
        const char *part, *tokens;
    } line[] = {{" another thing ", "another thing"}, /* templates trim texts */
                {"a fourth", NULL},
                {"", NULL},
                {"one thing", NULL}, /* it stands before what was found last */
                {"third thing", "third thing"},
                {"third thing", "third thing"}}; /* the second one */
    kvik_tokenizer *t = open_one("qwen3");
    struct documents d = {.texts = json_array()};
    int32_t *ids;
    size_t n, bytes;
    uint32_t k = 0;
    char *said;
    for (size_t i = 0; i < countof(line); i++)
        json_array_append_new(d.texts, json_string(line[i].part));
    need(kvik_tokenizer_encode(t, text, strlen(text), false, &ids, &n));
    need(documents_find(&d, t, ids, n));
    for (size_t i = 0; i < countof(line); i++) {
        if (!line[i].tokens) continue;
        assert_true(k < d.n);
        const struct document_span *p = &d.span[k++];
        need(kvik_tokenizer_decode(t, ids + p->from, p->to - p->from, false, &said, &bytes));
        /* the first word's token begins with the space before it, which is not of the document */
        if (!*said || strlen(said) < 6 || !strstr(line[i].tokens, said))
            fail_msg("the tokens of \"%s\" are \"%s\"", line[i].part, said);
        kvik_free(said);
    }
    assert_int_equal(k, d.n);
    kvik_free(ids);
    documents_done(&d);
    assert_int_equal(documents_find(&d, t, NULL, 0), 0); /* a request that moves nothing */
    kvik_tokenizer_close(t);
}

static void test_limit(void **state)
{
    (void)state;
    struct documents d = {.texts = json_array()};
    json_t *content = json_array();
    for (int i = 0; i < MOST_DOCUMENTS; i++)
        json_array_append_new(
            content, json_pack("{s:s, s:s, s:b}", "type", "text", "text", "x", "movable", 1));
    need(documents_note(&d, content));
    assert_int_equal(documents_note(&d, content), ERR_LIMIT);
    json_decref(content);
    documents_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places), cmocka_unit_test(test_absent),
                                       cmocka_unit_test(test_limit)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
