/* test_spoken.c - content, reasoning and tool calls in the text of a model, in every dialect.  Texts come in pieces of
 * every size, and what is said must not depend on the pieces. */
#include "serve/dialect.c"
#include "serve/spoken.c"
#include "serve/spoken_call.c"
#include "serve/spoken_live.c"
#include "serve/spoken_words.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}}}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"now\"}}]";

/* What was said: C<content> R<reasoning> T<name arguments id>, neighbours of one kind joined. */
struct said_all {
    char text[4096], call[1024], id[128];
    char last;
    bool calling;
    unsigned parts; /* of arguments */
};

static void put(struct said_all *a, char kind, const char *text, size_t n)
{
    size_t len = strlen(a->text);
    bool joins = a->last == kind && kind != 'T';
    if (joins) len--;
    if (!joins) len += (size_t)snprintf(a->text + len, sizeof a->text - len, "%c<", kind);
    snprintf(a->text + len, sizeof a->text - len, "%.*s>", (int)n, text);
    a->last = kind;
}

static void on_text(void *ctx, enum piece kind, const char *text, size_t n)
{
    assert_true(n > 0);
    put(ctx, kind == PIECE_REASONING ? 'R' : 'C', text, n);
}

static void on_call(void *ctx, const char *id, const char *name)
{
    struct said_all *a = ctx;
    assert_false(a->calling);
    a->calling = true;
    snprintf(a->id, sizeof a->id, "%s", id ? id : "");
    snprintf(a->call, sizeof a->call, "%s ", name);
}

static void on_arguments(void *ctx, const char *text, size_t n)
{
    struct said_all *a = ctx;
    size_t len = strlen(a->call);
    assert_true(a->calling && n > 0);
    a->parts++;
    snprintf(a->call + len, sizeof a->call - len, "%.*s", (int)n, text);
}

static void on_called(void *ctx)
{
    struct said_all *a = ctx;
    size_t len = strlen(a->call);
    assert_true(a->calling);
    a->calling = false;
    if (*a->id) snprintf(a->call + len, sizeof a->call - len, " %s", a->id);
    put(a, 'T', a->call, strlen(a->call));
}

static const struct spoken_calls calls = {
    .text = on_text, .call = on_call, .arguments = on_arguments, .called = on_called};

static const struct dialect *named(const char *name)
{
    for (size_t i = 0; i < countof(table); i++)
        if (!strcmp(table[i].name, name)) return &table[i];
    fail_msg("no dialect %s", name);
    return NULL;
}

/* Tools are given; the prompt has opened a reasoning; calls are told while they come. */
enum with { TOOLS = 1, OPEN = 2, LIVE = 4 };

/* Says a text in pieces of `step` bytes. */
static void say_all(const char *dialect, unsigned with, const char *text, size_t step,
                    struct said_all *out)
{
    json_t *tools = json_loads(tools_text, 0, NULL);
    struct spoken *s;
    struct spoken_options o = {.dialect = named(dialect),
                               .tools = with & TOOLS ? tools : NULL,
                               .reasoning = with & OPEN,
                               .live = with & LIVE,
                               .calls = &calls,
                               .ctx = out};
    *out = (struct said_all){0};
    assert_int_equal(spoken_open(&o, &s), 0);
    for (size_t i = 0, n = strlen(text); i < n; i += step)
        assert_int_equal(spoken_put(s, text + i, MIN(step, n - i)), 0);
    assert_int_equal(spoken_end(s), 0);
    spoken_free(s);
    json_decref(tools);
}

#define PARIS "get_weather {\"city\": \"Paris\"}"
#define HERMES                                                                                     \
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>"

static const struct {
    const char *dialect;
    unsigned with;
    const char *text, *said;
} cases[] = {
    /* Reasoning. */
    {"thinking", 0, "<think>\nHm.\n</think>\n\nYes. ", "R<Hm.>C<Yes. >"},
    {"thinking", OPEN, "\nHm.\n\nOr so.\n</think>\n\nYes.", "R<Hm.\n\nOr so.>C<Yes.>"},
    {"thinking", 0, "<think>\n\n</think>\n\nYes.", "C<Yes.>"},
    {"thinking", 0, " Write <think> before </think>.\n", "C< Write <think> before </think>.\n>"},
    {"thinking", 0, "<think>never closed ", "R<never closed>"},
    {"thinking", 0, "<thin", "C<<thin>"},
    {"thinking", 0, "  \n", "C<  \n>"},
    {"thinking", 0, "", ""},
    /* Hermes and Qwen. */
    {"hermes", TOOLS, HERMES, "T<" PARIS ">"},
    {"hermes", TOOLS, "I look.\n" HERMES "\n" HERMES "\n", "C<I look.>T<" PARIS ">T<" PARIS ">"},
    {"hermes", TOOLS, "<think>a</think>\n" HERMES, "R<a>T<" PARIS ">"},
    {"hermes", TOOLS, HERMES "then more", "T<" PARIS ">C<then more>"},
    {"hermes", 0, HERMES, "C<" HERMES ">"},
    {"hermes", TOOLS, "<tool_call>{\"name\": \"now\"}</tool_call>", "T<now {}>"},
    {"hermes", TOOLS,
     "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
     "T<now {\"a\": 1}>"},
    {"hermes", TOOLS,
     "<tool_call>{\"arguments\": {\"name\": \"}]\\\"\"}, \"name\": \"now\"}</tool_call>",
     "T<now {\"name\": \"}]\\\"\"}>"},
    {"hermes", TOOLS, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1.0}}",
     "T<now {\"a\": 1.0}>"}, /* not closed */
    {"hermes", TOOLS,
     "<tool_call>[{\"name\": \"a\", \"arguments\": {}}, {\"name\": \"b\", \"arguments\": {}}]</tool_call>",
     "T<a {}>T<b {}>"},
    {"hermes", TOOLS, "<tool_call>\n{\"name\": \"now\", \"arg\n</tool_call> end",
     "C<<tool_call>\n{\"name\": \"now\", \"arg\n</tool_call> end>"},
    {"hermes", TOOLS, "<tool_call>\n{\"name\": 3}</tool_call>",
     "C<<tool_call>\n{\"name\": 3}</tool_call>>"},
    {"hermes", TOOLS, "<tool_call>{\"name\": \"now\", \"arguments\": [1]}",
     "C<<tool_call>{\"name\": \"now\", \"arguments\": [1]}>"},
    {"hermes", TOOLS, "a <tool_ca", "C<a <tool_ca>"},
    {"hermes", TOOLS, "<tool_call>", "C<<tool_call>>"},
    /* Qwen3-Coder and Nemotron. */
    {"hermes", TOOLS,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     "T<get_weather {\"city\":\"12\",\"days\":3}>"},
    {"hermes", TOOLS, "Now.\n<function=now>\n</function>\n</tool_call>", "C<Now.>T<now {}>"},
    {"hermes", TOOLS,
     "<tool_call><function=get_weather><parameter=city>\na\n\nb</parameter></function></tool_call>",
     "T<get_weather {\"city\":\"a\\n\\nb\"}>"},
    {"hermes", TOOLS, "<tool_call><function=get_weather><parameter=city></function></tool_call>",
     "C<<tool_call><function=get_weather><parameter=city></function></tool_call>>"},
    /* GLM. */
    {"hermes", TOOLS,
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key><arg_value>2</arg_value>\n</tool_call>",
     "T<get_weather {\"city\":\"Paris\",\"days\":2}>"},
    {"hermes", TOOLS, "<tool_call>now</tool_call>", "T<now {}>"},
    {"hermes", TOOLS, "<tool_call>then</tool_call>", "C<<tool_call>then</tool_call>>"},
    /* Functionary. */
    {"function", TOOLS,
     "<function=get_weather>{\"city\": \"Paris\"}</function><function=now>{}</function>",
     "T<" PARIS ">T<now {}>"},
    /* Llama 3. */
    {"llama", TOOLS, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}",
     "T<" PARIS ">"},
    {"llama", TOOLS,
     "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": null}",
     "T<now {}>T<now {}>"},
    {"llama", TOOLS,
     "{\"type\": \"function\", \"function\": {\"name\": \"now\", \"parameters\": {\"a\": 1}}}",
     "T<now {\"a\": 1}>"},
    {"llama", TOOLS, "<|python_tag|>{\"name\": \"other\", \"parameters\": {}}", "T<other {}>"},
    {"llama", TOOLS, "{\"name\": \"Ann\", \"parameters\": {}} \n",
     "C<{\"name\": \"Ann\", \"parameters\": {}} \n>"},
    {"llama", TOOLS, " {no JSON", "C< {no JSON>"},
    {"llama", TOOLS, "Text {\"name\": \"now\"}", "C<Text {\"name\": \"now\"}>"},
    {"llama", 0, "{\"name\": \"now\", \"parameters\": {}}",
     "C<{\"name\": \"now\", \"parameters\": {}}>"},
    /* Mistral, the older and the newer form. */
    {"mistral", TOOLS,
     "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", \"arguments\": {}}]",
     "T<" PARIS ">T<now {}>"},
    {"mistral", TOOLS,
     "Hm.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}",
     "C<Hm.>T<" PARIS ">T<now {} abcdefghi>"},
    {"mistral", TOOLS, "[THINK]a[/THINK]b", "R<a>C<b>"},
    {"mistral", TOOLS, "[TOOL_CALLS]broken", "C<[TOOL_CALLS]broken>"},
    {"mistral", TOOLS, "[TOOL_CALLS][[{\"name\": \"now\"}]]",
     "C<[TOOL_CALLS][[{\"name\": \"now\"}]]>"},
    /* DeepSeek V3.1 and R1. */
    {"deepseek", TOOLS | OPEN,
     "a</think>b<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "R<a>C<b>T<" PARIS ">T<now {}>"},
    {"deepseek", TOOLS,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "T<" PARIS ">"},
    /* Kimi. */
    {"kimi", TOOLS,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_calls_section_end|>",
     "T<" PARIS " functions.get_weather:0>"},
    /* Cohere. */
    {"cohere", TOOLS,
     "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}\n]<|END_ACTION|>",
     "R<a>T<" PARIS " 0>"},
    {"cohere", 0, "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", "C<Yes.>"},
    /* Apertus. */
    {"apertus", TOOLS, "<|tools_prefix|>[{\"get_weather\": {\"city\": \"Paris\"}}]<|tools_suffix|>",
     "T<" PARIS ">"},
    /* Gemma 4. */
    {"gemma", TOOLS,
     "<|channel>thought\nHm.\n<channel|>I look.<|tool_call>call:get_weather{city:<|\"|>Pa,r}is<|\"|>,days:2}<tool_call|>",
     "R<Hm.>C<I look.>T<get_weather {\"city\": \"Pa,r}is\", \"days\": 2}>"},
    {"gemma", TOOLS,
     "<|tool_call>call:now{}<tool_call|><|tool_call>call:now{a:[1,true,{b:<|\"|><|\"|>}],<|\"|>c d<|\"|>:null}<tool_call|>",
     "T<now {}>T<now {\"a\": [1, true, {\"b\": \"\"}], \"c d\": null}>"},
    {"gemma", TOOLS, "<|tool_call>call:now{a:<tool_call|>",
     "C<<|tool_call>call:now{a:<tool_call|>>"},
    /* LFM2. */
    {"lfm", TOOLS,
     "<|tool_call_start|>[get_weather(city=\"Pa\\\"ris\", days=2), now(a=[1, 'b'], c={'d': None}, e=True)]<|tool_call_end|>Wait.",
     "T<get_weather {\"city\": \"Pa\\\"ris\", \"days\": 2}>T<now {\"a\": [1, \"b\"], \"c\": {\"d\": null}, \"e\": true}>C<Wait.>"},
    {"lfm", TOOLS, "<|tool_call_start|>[now()]<|tool_call_end|>", "T<now {}>"},
    {"lfm", TOOLS, "<|tool_call_start|>[{\"name\": \"now\", \"arguments\": {}}]<|tool_call_end|>",
     "T<now {}>"},
    {"lfm", TOOLS, "<|tool_call_start|>[now(a=<|tool_call_end|>",
     "C<<|tool_call_start|>[now(a=<|tool_call_end|>>"},
    {"lfm", TOOLS, "<|tool_call_start|>[now(a='b<|tool_call_end|>",
     "C<<|tool_call_start|>[now(a='b<|tool_call_end|>>"},
    /* GigaChat. */
    {"gigachat", TOOLS,
     "I look.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"now\", \"arguments\": {}}<|message_sep|>\n\n",
     "C<I look.>T<now {}>"},
    /* gpt-oss. */
    {"harmony", TOOLS,
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>",
     "R<Hm.>T<" PARIS ">"},
    {"harmony", TOOLS,
     "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.now<|channel|>commentary<|message|>{}",
     "C<I look.>T<now {}>"},
    {"harmony", 0,
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
     "R<Hm.>C<Yes.>"},
    {"harmony", TOOLS, "<|channel|>commentary to=functions.now<|message|>{broken<|call|>",
     "C<{broken<|call|>>"},
    /* Calls that are not whole, and text behind them. */
    {"hermes", TOOLS, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b",
     "C<<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b>"},
    {"hermes", TOOLS,
     "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"}\\\"{\"}, \"id\": \"x\"}</tool_call>",
     "T<now {\"a\": \"}\\\"{\"}>"},
    {"hermes", TOOLS, "<tool_call>{\"name\": \"now\", \"arguments\": {}} and more</tool_call>",
     "C<<tool_call>{\"name\": \"now\", \"arguments\": {}} and more</tool_call>>"},
    {"hermes", TOOLS,
     "<tool_call>{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>",
     "T<now {}>T<" PARIS ">"},
};

/* What is said otherwise if calls are told while they come, since it cannot be taken back. */
static const struct {
    const char *text, *said;
} told[] = {
    {"<|channel|>commentary to=functions.now<|message|>{broken<|call|>", "T<now {broken>"},
    {"<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b", "T<now {\"a\": \"b>"},
    {"<tool_call>{\"name\": \"now\", \"arguments\": {}} and more</tool_call>",
     "T<now {}>C<and more>"},
};

static const char *wanted(const char *text, const char *said, bool live)
{
    for (size_t i = 0; live && i < countof(told); i++)
        if (!strcmp(told[i].text, text)) return told[i].said;
    return said;
}

static void dialects(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(cases); i++)
        for (size_t step = 1; step <= strlen(cases[i].text) + 1; step++) {
            struct said_all all;
            for (unsigned live = 0; live <= LIVE; live += LIVE) {
                const char *want = wanted(cases[i].text, cases[i].said, live);
                say_all(cases[i].dialect, cases[i].with | live, cases[i].text, step, &all);
                if (strcmp(all.text, want) != 0)
                    fail_msg("%s: %s\nin pieces of %zu is\n%s, not\n%s", cases[i].dialect,
                             cases[i].text, step, all.text, want);
            }
        }
}

/* Arguments come while they are written. */
static void in_parts(void **state)
{
    (void)state;
    struct said_all all;
    say_all("hermes", TOOLS | LIVE, HERMES, 1, &all);
    assert_true(all.parts > 10);
    say_all("mistral", TOOLS | LIVE, "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}", 3, &all);
    assert_true(all.parts > 3);
    say_all("hermes", TOOLS, HERMES, 1, &all);
    assert_int_equal(all.parts, 1);
}

/* Content comes as soon as it cannot be a mark any more. */
static void at_once(void **state)
{
    (void)state;
    struct said_all all = {0};
    struct spoken *s;
    struct spoken_options o = {.dialect = named("hermes"), .calls = &calls, .ctx = &all};
    o.tools = json_loads(tools_text, 0, NULL);
    assert_int_equal(spoken_open(&o, &s), 0);
    spoken_put(s, "Good <to", 8);
    assert_string_equal(all.text, "C<Good>");
    spoken_put(s, "p ", 2);
    assert_string_equal(all.text, "C<Good <top>");
    spoken_free(s);
    json_decref((json_t *)(uintptr_t)o.tools);
}

/* Pieces of all texts in any order: nothing crashes, nothing is lost where there are no tools and no marks. */
static void mixtures(void **state)
{
    (void)state;
    uint32_t seed = 7;
    const char *env = getenv("KVIK_TEST_LONG");
    for (int round = 0; round < (env ? 200000 : 4000); round++) {
        char text[1024] = "";
        struct said_all all;
        while (strlen(text) < 500) {
            seed = seed * 1664525 + 1013904223;
            const char *from = cases[(seed >> 8) % countof(cases)].text;
            size_t n = strlen(from), at = (seed >> 4) % (n + 1), len = (seed >> 16) % 40;
            strncat(text, from + at, MIN(len, n - at));
        }
        say_all(table[(seed >> 9) % countof(table)].name, (seed >> 20) & 7, text,
                1 + (seed >> 12) % 9, &all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dialects),
        cmocka_unit_test(in_parts),
        cmocka_unit_test(at_once),
        cmocka_unit_test(mixtures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
