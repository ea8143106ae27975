/* test_jinja_limits.c - templates are untrusted input. Template bombs end in an error soon and with
 * bounded memory, and templates reach only their own data. Each bomb would run for minutes without a
 * limit, and the program may use ten seconds of CPU time. */
#include "cpu_limit.h"
#include "testing.h"

#include "base/utf8.h"
#include "chat/prompt.h"

static json_t *empty;

static int render_vars(const char *src, size_t n, const json_t *vars, struct buf *out)
{
    struct jinja *j;
    TRY(jinja_compile(src, n, &j));
    struct rendered marks = {0};
    int e = jinja_run(j, vars, NULL, NULL, out, &marks);
    rendered_done(&marks);
    jinja_drop(j);
    return e;
}

/* Checks that the template fails with a message and leaves nothing in the output. */
static void must_fail_vars(const char *src, size_t n, const json_t *vars)
{
    struct buf out;
    buf_init(&out, (size_t)64 << 20);
    int e = render_vars(src, n, vars, &out);
    if (e >= 0) fail_msg("%.80s: rendered %zu bytes", src, out.len);
    assert_int_equal(out.len, 0);
    assert_true(err_last()[0] != 0);
    buf_done(&out);
}

static void must_fail(const char *src)
{
    must_fail_vars(src, strlen(src), empty);
}

/* Returns a text of `times` copies of `unit` between head and tail. */
static char *repeated(const char *head, const char *unit, size_t times, const char *tail)
{
    struct buf b;
    buf_init(&b, (size_t)64 << 20);
    assert_int_equal(buf_puts(&b, head), 0);
    for (size_t i = 0; i < times; i++)
        assert_int_equal(buf_puts(&b, unit), 0);
    assert_int_equal(buf_puts(&b, tail), 0);
    return buf_take(&b);
}

/* class: #24140 */
static void ranges(void **state)
{
    (void)state;
    static const char *const bomb[] = {
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{{ range(1000000000) | list }}",
        "{{ range(-9223372036854775807, 9223372036854775807) | length }}",
        "{{ range(100001) }}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = range(99999) | list %}{% endfor %}",
        "{% for i in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
        "{% for i in range(99999) %}{{ range(99999) | join }}{% endfor %}",
        "{% for i in range(99999) %}{{ 5 in range(9999) | list }}{% endfor %}",
    };
    for (size_t i = 0; i < countof(bomb); i++)
        must_fail(bomb[i]);
}

/* class: #26387 */
static void nesting(void **state)
{
    (void)state;
    static const struct {
        const char *head, *unit, *tail;
        size_t times;
    } row[] = {
        {"{{ ", "(", " }}", 60000},          {"{{ ", "[", " }}", 60000},
        {"{{ ", "{'a':", " }}", 60000},      {"{{ ", "- ", "1 }}", 60000},
        {"{{ ", "not ", "1 }}", 60000},      {"{{ 1", " if 1 else 1", " }}", 60000},
        {"{{ ", "f(", " }}", 60000},         {"{{ x", "[x", " }}", 60000},
        {"{{ x", "|f(x", " }}", 60000},      {"{{ 1", " + 1", " }}", 60000},
        {"{{ x", ".a", " }}", 60000},        {"{{ 1", "|abs", " }}", 60000},
        {"{{ f", "()", " }}", 60000},        {"{{ 1", " is not defined and 1", " }}", 60000},
        {"", "{% if 1 %}", "", 60000},       {"", "{% for i in x %}", "", 60000},
        {"", "{% macro f() %}", "", 60000},  {"", "{% call f() %}", "", 60000},
        {"", "{% set x %}", "", 60000},      {"", "{% filter upper %}", "", 60000},
        {"", "{% with %}", "", 60000},       {"", "{% generation %}", "", 60000},
        {"{% set ", "(", "a = 1 %}", 60000}, {"{% for ", "(a,", " in x %}", 60000},
    };
    for (size_t i = 0; i < countof(row); i++) {
        char *src = repeated(row[i].head, row[i].unit, row[i].times, row[i].tail);
        must_fail(src);
        mem_free(src);
    }
    /* 100 levels are fine */
    struct buf out;
    buf_init(&out, 1 << 20);
    char *head = repeated("{{ ", "(", 60, "1"), *src = repeated(head, ")", 60, " }}");
    assert_int_equal(render_vars(src, strlen(src), empty, &out), 0);
    assert_string_equal(out.data, "1");
    mem_free(head);
    mem_free(src);
    buf_done(&out);
}

/* class: #26387 */
static void recursion(void **state)
{
    (void)state;
    static const char *const bomb[] = {
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% macro g() %}{{ f() }}{% endmacro %}{% macro f() %}{{ g() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}"
        "{% endmacro %}{{ g() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% macro f(a=f()) %}{% endmacro %}{% macro g() %}{{ f(f(f(g()))) }}{% endmacro %}{{ g() }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"
        "{{ ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"
        "{{ ns.x | tojson }}",
        "{% set ns = namespace(x=[], y=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}"
        "{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
        "{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(9999) %}{% set ns.x = (ns.x,) %}"
        "{% set ns.y = (ns.y,) %}{% endfor %}{{ ns.x < ns.y }}{{ {ns.x: 1} }}",
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
        "{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
        "{{ ns.x | tojson | length }}",
    };
    for (size_t i = 0; i < countof(bomb); i++)
        must_fail(bomb[i]);
}

/* class: #8149 */
static void sizes(void **state)
{
    (void)state;
    static const char *const bomb[] = {
        "{{ 'x' * 1000000000 }}",
        "{{ 'x' * 9223372036854775807 }}",
        "{{ 'ab' * 9223372036854775807 }}",
        "{{ [1] * 1000000000 }}",
        "{{ ('x' * 60000000) * 60 }}",
        "{{ 'x' * 5000000 }}",
        "{{ '%1000000000d' % 1 }}{{ '%1000000000d' % 1 }}{{ 'x'.center(1000000000) }}",
        "{{ '%.1000000000f' % 1 }}",
        "{{ '%*d' % (1000000000, 1) * 90 }}",
        "{{ '{:1000000000}'.format(1) * 90 }}",
        "{{ '{:.999999999f}'.format(1.5) }}",
        "{{ 'x'.center(1000000000) }}",
        "{{ 'x'.ljust(99999999999) }}",
        "{{ 'x'.zfill(99999999999) }}",
        "{{ '\\t'.expandtabs(999999999) }}",
        "{{ 'a' | center(999999999) }}",
        "{{ 'a\nb' | indent(999999999) }}",
        "{{ [1] | batch(999999999, 0) | list }}",
        "{{ [1] | slice(999999999) | list }}",
        "{{ [1, [2, [3]]] | tojson(indent=999999999) }}",
        "{{ ('a' * 100000).replace('', 'b' * 1000) }}",
        "{{ (('a' * 100000) | list) | join('b' * 1000) }}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% set x = 'x' * 4000000 %}{{ x }}{{ x }}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='x' * 1000000) %}{% for i in range(9999) %}"
        "{% set ns.s = 'y' ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{{ s.find('y') }}{% endfor %}",
        "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{{ s.upper() is string }}{% endfor %}",
        "{% set s = 'a' * 2000000 %}{{ s.rfind('b' ~ s[:1000000]) }}{{ s.rsplit('b' ~ s[:1000000]) }}"
        "{% for i in range(99) %}{{ s.rfind(s[:1000000] ~ 'b') }}{% endfor %}",
        "{% set s = 'a' * 2000000 %}{% for i in range(999) %}{{ s.count(s[:9999]) }}{% endfor %}",
        "{% set s = 'é' * 2000000 %}{% for i in range(9999) %}{{ s[1999999] }}{% endfor %}",
        "{% set s = 'ab' * 400000 %}{% for i in range(99) %}{{ s | list | sort | first }}{% endfor %}",
        "{% set l = range(99999) | list %}{% for i in l %}{{ i in l }}{% endfor %}",
        "{{ 'x' | truncate(-9223372036854775807, true, '') }}{{ 'x' * 99999999 }}",
        "{{ 2 ** 63 }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ -9223372036854775807 * 2 }}",
        "{{ 10 ** 1000000000 }}",
        "{{ 1.0 ** 1e308 }}{{ 10.0 ** 400 }}",
        "{{ 99999999999999999999 }}",
        "{{ 'a'.split('a', -9223372036854775808) }}{{ x.y }}",
        "{{ [][9223372036854775807:-9223372036854775807:-9223372036854775807] }}{{ x.y }}",
        "{{ range(0, 9223372036854775807, 9223372036854775807) }}{{ range(9223372036854775807,"
        "-9223372036854775807, -1) }}",
        "{{ 'abc' | round(9223372036854775807) }}",
        "{% for i in range(99999) %}{{ {'a': i, 'b': i, 'c': i, 'd': i, i: i} }}{% endfor %}",
    };
    for (size_t i = 0; i < countof(bomb); i++)
        must_fail(bomb[i]);
}

static void must_count(const char *src)
{
    struct buf out;
    buf_init(&out, (size_t)64 << 20);
    if (render_vars(src, strlen(src), empty, &out) != ERR_LIMIT ||
        !strstr(err_last(), "takes more than 1000000 steps"))
        fail_msg("%.200s: %s", src, err_last());
    buf_done(&out);
}

/* Work on a long text or a long list of names counts as steps, also in operations whose result is short. */
static void charges(void **state)
{
    (void)state;
    static const char *const each[] = {
        "s.startswith(s)",
        "s.endswith(s)",
        "s.endswith(('y', s))",
        "s.removeprefix(s)",
        "s.removesuffix(s)",
        "blank | int",
        "blank | float",
        "(' ' ~ s) | truncate(3999990, false, '')",
        "s | truncate(3999990, false, '') == ''",
        "s | escape == ''",
        "s == s[1:] ~ 'x'",
        "s in s",
        "s.replace('y', 'z') == ''",
        "s.split('y') | length",
        "s.splitlines() | length",
        "s | wordcount",
        "s.isalpha()",
        "s | reverse == ''",
        "{s: 1}[s]",
        "s.strip('xyz')",
        "s | format == ''",
        "(s | tojson) == ''",
        "[1] | tojson(indent=1000000) | length",
    };
    for (size_t i = 0; i < countof(each); i++) {
        char src[512];
        snprintf(src, sizeof src,
                 "{%% set s = 'x' * 4000000 %%}{%% set blank = ' ' * 4000000 %%}"
                 "{%% for i in range(9999) %%}{%% set x = %s %%}{%% endfor %%}",
                 each[i]);
        must_count(src);
    }
    struct buf b; /* a name that is found behind a thousand others; a thousand parameters by name */
    buf_init(&b, 1 << 20);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buf_printf(&b, "{%% set a%d = 1 %%}", i), 0);
    assert_int_equal(buf_puts(&b, "{% for i in range(99999) %}{% if a0 %}{% endif %}{% endfor %}"),
                     0);
    must_count(b.data);
    buf_clear(&b);
    assert_int_equal(buf_puts(&b, "{% macro f(a0"), 0);
    for (int i = 1; i < 500; i++)
        assert_int_equal(buf_printf(&b, ", a%d", i), 0);
    assert_int_equal(buf_puts(&b, ") %}{% endmacro %}{% for i in range(300) %}{{ f(a0=1"), 0);
    for (int i = 1; i < 500; i++)
        assert_int_equal(buf_printf(&b, ", a%d=1", i), 0);
    assert_int_equal(buf_puts(&b, ") }}{% endfor %}"), 0);
    must_count(b.data);
    buf_done(&b);
}

/* Variables may be large or deep, too: the result is an error or an answer, quickly. */
static void data(void **state)
{
    (void)state;
    json_t *deep = json_array();
    for (int i = 0; i < 2000; i++)
        deep = json_pack("[o]", deep);
    json_t *vars = json_pack("{s:o}", "x", deep);
    must_fail_vars("{{ x }}", 7, vars);
    must_fail_vars("{{ x | tojson }}", 16, vars);
    json_decref(vars);
    json_t *wide = json_object();
    for (int i = 0; i < 20000; i++) {
        char key[32];
        snprintf(key, sizeof key, "key%d", i);
        json_object_set_new(wide, key, json_integer(i));
    }
    vars = json_pack("{s:o}", "x", wide);
    struct buf out;
    buf_init(&out, 1 << 20);
    assert_int_equal(
        render_vars("{{ x.key777 }}{{ x['key19999'] }}{{ 'nokey' in x }}", 51, vars, &out), 0);
    assert_string_equal(out.data, "77719999False");
    /* A lookup that copied all keys would copy 2 000 million of them here. */
    static const char often[] = "{% for i in range(100000) %}{{ x.key777 }}{% endfor %}";
    out.len = 0;
    assert_int_equal(render_vars(often, sizeof often - 1, vars, &out), 0);
    assert_int_equal(out.len, 300000);
    buf_done(&out);
    json_decref(vars);
}

/* A long text built piece by piece takes time in proportion to its length, not to the square. */
static void accumulating(void **state)
{
    (void)state;
    static const char src[] =
        "{% set ns = namespace(s='') %}{% for i in range(40000) %}"
        "{% set ns.s = ns.s ~ 'some ninety characters of a message that somebody wrote to somebody, and the answer too too ' %}{% endfor %}{{ ns.s | length }}";
    struct buf out;
    buf_init(&out, 1 << 20);
    if (render_vars(src, sizeof src - 1, empty, &out) < 0) fail_msg("%s", err_last());
    assert_string_equal(out.data, "3680000"); /* 74 GB, were the text copied each time */
    buf_done(&out);
}

/* Templates that look at the rest of the messages in every turn: long chats stay within the limits. */
static void long_chat(void **state)
{
    (void)state;
    static const char src[] =
        "{% for m in messages %}{% set rest = messages[loop.index:] %}{{ rest | length }}"
        "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|end|>{% endif %}{% endfor %}";
    json_t *list = json_array();
    struct buf out;
    for (int i = 0; i < 5000; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", "hello"));
    json_t *vars = json_pack("{s:o}", "messages", list);
    buf_init(&out, 1 << 20);
    if (render_vars(src, sizeof src - 1, vars, &out) < 0) fail_msg("%s", err_last());
    assert_memory_equal(out.data, "4999<|end|>4998", 15);
    buf_done(&out);
    json_decref(vars);
}

/* class: CVE-2024-34359, CVE-2024-56326, CVE-2026-5760 */
static void sandbox(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "{{ ''.__class__.__mro__ }}",
        "{{ ''.__class__() }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ ('' | attr('__class__')).__mro__ }}",
        "{{ x.__init__.__globals__ }}",
        "{{ [].append(1) }}",
        "{{ {}.update({}) }}",
        "{{ {}.pop('a') }}",
        "{{ {}.setdefault('a', 1) }}",
        "{{ [].sort() }}",
        "{{ [1].__class__.__base__.__subclasses__() }}",
        "{{ range.__globals__['os'] }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ '{0.__class__}'.format_map({'0': 1}) }}",
        "{{ ['{0.__class__.__mro__}'] | map('format', '') | first }}{{ x.y }}",
        "{% set f = '{0.__class__.__mro__}'.format %}{{ f('') }}",
        "{{ '%(__class__)s' % {} }}",
        "{{ cycler.__init__ }}{{ cycler.__init__.__globals__.os }}",
        "{{ self._TemplateReference__context }}",
        "{{ lipsum.__globals__ }}",
        "{{ config.items() }}",
        "{{ get_flashed_messages.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% from 'os' import system %}",
        "{% extends 'base' %}",
        "{% block x %}{% endblock %}",
        "{% do x %}",
        "{{ open('/etc/passwd').read() }}",
        "{{ __import__('os').system('id') }}",
        "{{ eval('1') }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{% macro m() %}{% endmacro %}{{ m.__globals__ }}{{ m._func.x }}",
        "{% for i in [1] %}{{ loop.__init__.x }}{% endfor %}",
        "{{ joiner.__call__.x }}",
        "{{ strftime_now.__globals__.x }}",
    };
    for (size_t i = 0; i < countof(refused); i++)
        must_fail(refused[i]);
    struct buf out;
    buf_init(&out, 1 << 20);
    static const char silent[] =
        "{{ ''.__class__ }}{{ (x.__class__ is defined) if x else 'none' }}";
    assert_int_equal(render_vars(silent, sizeof silent - 1, empty, &out), 0);
    assert_string_equal(out.data, "none");
    buf_done(&out);
}

/* Sources that are not text, or too long. */
static void sources(void **state)
{
    (void)state;
    struct jinja *j = NULL;
    assert_int_equal(jinja_compile("a\n\xFF", 3, &j), ERR_FORMAT);
    assert_string_equal(err_last(), "line 2: the template is not UTF-8");
    char *big = repeated("", "x", (1 << 20) + 1, "");
    assert_int_equal(jinja_compile(big, strlen(big), &j), ERR_LIMIT);
    mem_free(big);
    assert_null(j);
    must_fail_vars("{{ '\\ud800' }}", 14, empty);
    must_fail_vars("{{ '\\N{BULLET}' }}", 18, empty);
    must_fail_vars("{{ \0 }}", 7, empty);
}

/* Finds two texts of BLOCK letters after which FNV-1a, begun at *h, has one state; sets *h to that state. */
enum { BLOCK = 6, STAGES = 13, SEEN = 1 << 19 };

static void collide(uint32_t *h, char pair[2][BLOCK + 1])
{
    static uint32_t state[SEEN], text[SEEN];
    const uint32_t begun = *h;
    memset(text, 0, sizeof text);
    for (uint32_t n = 1;; n++) {
        uint32_t s = begun, at;
        char now[BLOCK + 1] = "";
        for (uint32_t i = 0, k = n * 2654435761u; i < BLOCK; i++, k /= 26) {
            now[i] = (char)('a' + k % 26);
            s = (s ^ (uint8_t)now[i]) * 16777619u;
        }
        for (at = s % SEEN; text[at] && state[at] != s; at = (at + 1) % SEEN)
            ;
        if (!text[at]) {
            assert_true(n < SEEN / 2);
            state[at] = s;
            text[at] = n;
            continue;
        }
        memcpy(pair[0], now, sizeof now);
        for (uint32_t i = 0, k = text[at] * 2654435761u; i < BLOCK; i++, k /= 26)
            pair[1][i] = (char)('a' + k % 26);
        *h = s;
        return;
    }
}

/* 8192 keys with one hash of a well-known kind take no more steps than others: a message must not be able to choose them. */
static void colliding_keys(void **state)
{
    (void)state;
    static const char src[] = "{{ x | length }} {{ x[last] }}";
    char pair[STAGES][2][BLOCK + 1] = {{""}}, key[STAGES * BLOCK + 1];
    json_t *x = json_object(), *vars = json_object();
    uint32_t h = 2166136261u;
    struct buf out;
    for (int i = 0; i < STAGES; i++)
        collide(&h, pair[i]);
    for (uint32_t n = 0; n < 1u << STAGES; n++) {
        for (int i = 0; i < STAGES; i++)
            memcpy(key + i * BLOCK, pair[i][n >> i & 1], BLOCK + 1);
        json_object_set_new(x, key, json_integer(n));
    }
    json_object_set_new(vars, "x", x);
    json_object_set_new(vars, "last", json_string(key));
    buf_init(&out, 1 << 20);
    if (render_vars(src, sizeof src - 1, vars, &out) < 0) fail_msg("%s", err_last());
    assert_int_equal(buf_puts(&out, ""), 0);
    assert_int_equal(out.len, 9);
    assert_memory_equal(out.data, "8192 8191", 9);
    buf_done(&out);
    json_decref(vars);
}

/* Every allocation of a compilation and a rendering fails once; each time all memory is freed. */
static void out_of_memory(void **state)
{
    (void)state;
    static const char src[] =
        "{% macro f(a, b=[1]) %}{{ a }}{{ b | tojson }}{% endmacro %}"
        "{% for i in range(40) %}{{ f(i) }}{% set x | trim %}{{ 'x' * 99 }}{% endset %}{{ loop.last }}"
        "{% endfor %}"
        "{% set s %}{{ 'a,b' | upper | replace('A', 'c') }}{% endset %}{{ s.split(',') | sort }}"
        "{{ '%s' % s }}{{ '{}'.format(s) }}{{ [s] | map('title') | join }}"
        "{% generation %}{{ s }}{% endgeneration %}{{ namespace(a=1).a }}{{ s | indent }}";
    for (int64_t k = 0;; k++) {
        struct buf out;
        buf_init(&out, 1 << 20);
        mem_fail_at(k, false);
        int e = render_vars(src, sizeof src - 1, empty, &out);
        mem_fail_at(-1, false);
        buf_done(&out);
        if (e == 0) {
            assert_true(k > 10);
            break;
        }
        assert_int_equal(e, ERR_NOMEM);
    }
}

int main(void)
{
    cpu_limit(10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),    cmocka_unit_test(nesting),
        cmocka_unit_test(recursion), cmocka_unit_test(sizes),
        cmocka_unit_test(data),      cmocka_unit_test(accumulating),
        cmocka_unit_test(long_chat), cmocka_unit_test(sandbox),
        cmocka_unit_test(sources),   cmocka_unit_test(out_of_memory),
        cmocka_unit_test(charges),   cmocka_unit_test(colliding_keys),
    };
    empty = json_object();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(empty);
    return failed;
}
