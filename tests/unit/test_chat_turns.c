/* test_chat_turns.c - whole chats of 20 turns through templates and a real tokenizer. The history
 * loses its <think> text, has its spaces tidied, or is split into other tokens than were generated.
 * Every reply must have the logits of a run without a cache on the same text. The model is tiny:
 * its vocabulary is the beginning of the tokenizer's, and larger ids are folded into it. */
#include "kvik.h"
#include "render_request.h"
#include "test_tok.h"

#define MODELS "tests/golden/models/"

static struct tok *tok;

static const struct style {
    const char *name, *text;
} style[] = {
    {"thoughts dropped",
     "{% for m in messages %}[{{ m.role }}] {% if m.role == 'assistant' %}{{ m.content.split('</think>')[-1] }}"
     "{% else %}{{ m.content }}{% endif %}\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"},
    {"spaces tidied",
     "{% for m in messages %}[{{ m.role }}] {{ m.content | trim | replace('  ', ' ') }}\n{% endfor %}"
     "{% if add_generation_prompt %}[assistant] {% endif %}"},
    {"thoughts of old turns dropped",
     "{% for m in messages %}[{{ m.role }}] {% if m.role == 'assistant' and loop.index < messages | length - 3 %}"
     "{{ m.content.split('</think>')[-1] | trim }}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
     "{% if add_generation_prompt %}[assistant]{% endif %}"},
};
static const struct strategy {
    const char *model, *name, *config;
    uint32_t snapshots;
} strategy[] = {
    {"llama-bf16-long", "dynamic", NULL, 0},
    {"llama-bf16-long", "static", NULL, 0},
    {"llama-bf16-long", "offloaded", NULL, 0},
    {"llama-bf16-long", "sliding_window", "{\"sliding_window\": 64}", 0},
    {"llama-bf16-long", "dynamic", "{\"sliding_window\": 64}", KVIK_TURN_ENDS},
    {"llama-bf16-long", "sink", "{\"window_length\": 80, \"num_sink_tokens\": 4}", KVIK_TURN_ENDS},
    {"gemma3", "dynamic", NULL, KVIK_TURN_ENDS},
    {"mistral", "hybrid", NULL, 50},
};

struct chat {
    kvik_model *m;
    kvik_cache *c;
    kvik_seq s;
    kvik_generation g;
    json_t *messages;
    int32_t ids[2048];
    size_t n;
    uint64_t reused, again, diverged;
};

static void add(struct chat *c, const char *role, const char *content)
{
    json_array_append_new(c->messages, json_pack("{s:s, s:s}", "role", role, "content", content));
}

/* Renders the conversation with the template, in the model's ids. */
static void render(struct chat *c, const struct style *t)
{
    struct ids v = {0};
    char *request, *text;
    json_t *o = json_pack("{s:O, s:{s:b}}", "messages", c->messages, "kwargs",
                          "add_generation_prompt", true);
    assert_int_equal(json_text(o, &request), 0);
    if (render_request(t->text, request, &text) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(tok_encode(tok, text, strlen(text), TOK_SPECIAL, NULL, 0, &v), 0);
    assert_true(v.n < countof(c->ids));
    for (size_t i = 0; i < v.n; i++)
        c->ids[i] = v.id[i] % (int32_t)kvik_model_vocab(c->m);
    c->n = v.n;
    ids_done(&v);
    kvik_free(text);
    mem_free(request);
    json_decref(o);
}

static kvik_result *speak(struct chat *c, kvik_seq s)
{
    kvik_result *r;
    kvik_prompt p = {.size = sizeof p, .ids = c->ids, .n = c->n, .seq = s};
    if (kvik_generate(c->c, &c->g, &p, 1, NULL, &r) < 0) fail_msg("%s", kvik_last_error());
    return r;
}

static void turn(struct chat *c, const struct style *t, int i)
{
    static const char *const said[] = {"Hello  there!", "And   then?", "Why is that so?",
                                       "One more  time, please. ", "No."};
    struct buf b;
    char content[512];
    add(c, "user", said[i % 5]);
    render(c, t);
    kvik_result *a = speak(c, c->s), *f = speak(c, 0);
    assert_int_equal(a->row[0]->n, f->row[0]->n);
    assert_memory_equal(a->row[0]->ids, f->row[0]->ids, f->row[0]->n * sizeof(int32_t));
    assert_memory_equal(a->logits, f->logits, (size_t)f->steps * f->vocab * sizeof(float));
    const kvik_sync *y = a->row[0]->sync;
    c->reused += y->reused;
    c->again += y->recomputed;
    c->diverged += y->divergence >= 0;
    buf_init(&b, 1 << 16);
    assert_int_equal(tok_decode(tok, a->row[0]->ids + c->n, a->row[0]->n - c->n, true, &b), 0);
    snprintf(content, sizeof content, "<think> so  %d </think> %.300s ", i, b.data ? b.data : "");
    if (!utf8_valid(content, strlen(content)))
        snprintf(content, sizeof content, "<think></think>Hm.");
    add(c, "assistant", content);
    buf_done(&b);
    kvik_result_free(a);
    kvik_result_free(f);
}

static void chat(const struct strategy *y, const struct style *t)
{
    struct chat c = {.messages = json_array()};
    char path[256];
    kvik_cache_config config = {.size = sizeof config,
                                .cache_implementation = y->name,
                                .cache_config = y->config,
                                .max_sequences = 2,
                                .threads = 1,
                                .no_prefix_cache = true,
                                .snapshots = y->snapshots};
    snprintf(path, sizeof path, MODELS "%s", y->model);
    if (kvik_model_open(path, &c.m) < 0 || kvik_cache_open(c.m, &config, &c.c) < 0 ||
        kvik_cache_new(c.c, &c.s) < 0 || kvik_generation_init(&c.g, NULL) < 0)
        fail_msg("%s: %s", y->model, kvik_last_error());
    c.g.max_new_tokens = 7;
    c.g.output_logits = true;
    int i = 0;
    for (; i < 20 && c.n + 100 < kvik_model_context(c.m); i++)
        turn(&c, t, i);
    assert_true(c.reused && c.diverged);
    print_message(
        "  %-15s %-14s %-30s %2d turns: %4llu reused, %4llu computed again, %2llu diverged\n",
        y->model, y->name, t->name, i, (unsigned long long)c.reused, (unsigned long long)c.again,
        (unsigned long long)c.diverged);
    kvik_generation_done(&c.g);
    json_decref(c.messages);
    kvik_cache_close(c.c);
    kvik_model_close(c.m);
}

static void twenty_turns(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(strategy); k++)
        for (size_t t = 0; t < countof(style); t++)
            if (t == 0 || k % 3 == t) chat(&strategy[k], &style[t]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(twenty_turns)};
    tok = open_golden("llama2");
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    tok_close(tok);
    return e;
}
