/* args.c - reads the command line by three tables: the command's own options, the options that every model run shares,
 * and the library's generation options.  Generation options become one JSON object by their names in Transformers.  help.c
 * and completion.c print the same tables.  "--name value" and "--name=value" are the same, '-' equals '_', and "--" ends
 * the options. */
#include "base/near.h"
#include "cli/cli.h"
#include "cli/screen.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct arg_option shared[] = {
    {"threads", ARG_UINT, offsetof(struct common, threads), "N", NULL,
     "threads to compute with (default: $KVIK_THREADS, else all CPUs that the process may use)"},
    {"compute", ARG_TEXT, offsetof(struct common, compute), "MODE", "exact|fast",
     "precision. exact: float32 throughout; fast: rounded activations, rows in 16 bits "
     "(default: exact for float32 weights, else fast)"},
    {"cache-memory", ARG_BYTES, offsetof(struct common, cache_memory), "BYTES", NULL,
     "memory limit of the cache, such as 512M or 4G (default: what the command needs, at most half of "
     "the machine's memory)"},
    {"on-full", ARG_TEXT, offsetof(struct common, on_full), "WHAT", "error|encode|offload",
     "what to do at the limit. error: fail, nothing is lost; encode: quantize rows to 8 bits, then to 4, and "
     "continue; offload: move old blocks to a file on disk and continue with the same tokens (default: error)"},
    {"spill-dir", ARG_TEXT, offsetof(struct common, spill_dir), "DIR", NULL,
     "directory of the spill file, which is unlinked as soon as it is open (default: $KVIK_SPILL_DIR, "
     "$TMPDIR, /var/tmp)"},
    {"trace", ARG_OUT, offsetof(struct common, trace), "FILE", NULL,
     "write what the cache did when, as JSON in Chrome's trace format, for chrome://tracing or "
     "ui.perfetto.dev: forwards, layers, reads of the spill file, evictions and waits; the newest 65536 events"},
    {"isa", ARG_TEXT, offsetof(struct common, isa), "NAME",
     "ref|avx2|avx512|avx512bf16|neon|neondot|neoni8mm",
     "instruction set (default: $KVIK_ISA, else the best of this machine)"},
    {"device", ARG_TEXT, offsetof(struct common, device), "NAME", "cpu|cuda",
     "device that computes. cuda: libkvik-cuda.so, compiled and emulated, not yet run on a GPU (default: "
     "$KVIK_DEVICE, else cpu)"},
    ARG_QUANTIZE,
    ARG_VERIFY,
    {"pull", ARG_FLAG, offsetof(struct common, pull), NULL, NULL,
     "if MODEL is a name such as ORG/NAME:Q4_K_M and is not here, download it first, as kvik pull does"},
    {"verbose", ARG_FLAG, offsetof(struct common, verbose), NULL, NULL,
     "print more on standard error"},
    {"raw", ARG_FLAG, offsetof(struct common, raw), NULL, NULL,
     "on a terminal, print control characters of texts and names as they are; without it they are replaced, "
     "since a terminal would obey them"},
};

const struct arg_option *args_shared(const struct command *c, size_t *n)
{
    /* the last shared option belongs to every command */
    size_t from = c->runs_model ? 0 : countof(shared) - 1;
    *n = countof(shared) - from;
    return shared + from;
}

struct args_parser {
    const struct command *c;
    void *into;
    struct args *out;
    int argc, at;
    char **argv;
    bool set; /* the option comes from /set in a chat, so messages spell names without dashes */
};

static bool same_name(const char *a, size_t n, const char *b)
{
    for (size_t i = 0; i < n; i++)
        if (!b[i] || (a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i])) return false;
    return b[n] == 0;
}

void args_dashed(const char *name, char out[64])
{
    snprintf(out, 64, "%s", name);
    for (char *c = out; *c; c++)
        if (*c == '_') *c = '-';
}

void args_plain(const char *name, char out[64])
{
    snprintf(out, 64, "%s", name + strspn(name, "-"));
    for (char *c = out; *c; c++)
        if (*c == '-') *c = '_';
}

/* Writes the name of an option as it is typed here: with dashes, or as /set takes it. */
static void spell_option(const struct args_parser *p, const char *name, char out[64])
{
    if (p->set) {
        args_plain(name, out);
        return;
    }
    memcpy(out, "--", 3);
    char dashed[64];
    args_dashed(name, dashed);
    snprintf(out + 2, 62, "%.61s", dashed);
}

static const struct arg_option *find_option(const struct command *c, const char *name, size_t n)
{
    for (size_t i = 0; i < c->n_options; i++)
        if (same_name(name, n, c->option[i].name)) return &c->option[i];
    for (size_t i = 0; i < countof(shared); i++)
        if (same_name(name, n, shared[i].name)) return &shared[i];
    return NULL;
}

static const kvik_option *find_generation(const struct command *c, const char *name, size_t n)
{
    const kvik_option *o;
    for (uint32_t i = 0; c->generation && (o = kvik_option_at(i)); i++)
        if (same_name(name, n, o->name)) return o;
    return NULL;
}

/* Returns the value after '=' or the next word; NULL after printing an error. */
static const char *value_of(struct args_parser *p, const char *name, const char *inline_value,
                            const char *what)
{
    if (inline_value) return inline_value;
    if (p->at < p->argc) return p->argv[p->at++];
    say_usage("%s needs a value: %s", name, what ? what : "VALUE");
    return NULL;
}

static int check_choice(const char *name, const char *choices, const char *value)
{
    struct near near;
    char list[256], *save = NULL;
    snprintf(list, sizeof list, "%s", choices);
    near_begin(&near, value);
    for (char *w = strtok_r(list, "|", &save); w; w = strtok_r(NULL, "|", &save)) {
        if (!strcmp(w, value)) return 0;
        near_try(&near, w);
    }
    if (near.best)
        return say_usage("--%s: unknown value \"%.60s\"; did you mean \"%s\"?", name, value,
                         near.best);
    return say_usage("--%s: unknown value \"%.60s\"; one of %s", name, value, choices);
}

static int take_uint(const char *name, const char *value, uint32_t *out)
{
    char *end;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (!*value || *end || errno || n < 0 || n > UINT32_MAX)
        return say_usage("--%s: \"%.60s\" is not an integer from 0 to 4294967295", name, value);
    *out = (uint32_t)n;
    return 0;
}

static int take_bytes(const char *name, const char *value, uint64_t *out)
{
    char *end;
    errno = 0;
    double v = strtod(value, &end);
    static const char units[] = "KMGT";
    const char *u = *end ? strchr(units, *end >= 'a' ? *end - 32 : *end) : NULL;
    if (u && *end) {
        for (const char *k = units; k <= u; k++)
            v *= 1024;
        end++;
        if (*end == 'i') end++;
        if (*end == 'B' || *end == 'b') end++;
    }
    if (end == value || *end || errno || !(v >= 1 && v < 9e18))
        return say_usage("--%s: \"%.60s\" is not a number of bytes such as 512M or 4G", name,
                         value);
    *out = (uint64_t)v;
    return 0;
}

/* Returns 1 for "true", 0 for "false", else -1.  Python's True and False count, as people copy them from Python. */
static int truth(const char *v)
{
    if (!strcmp(v, "true") || !strcmp(v, "True")) return 1;
    return !strcmp(v, "false") || !strcmp(v, "False") ? 0 : -1;
}

/* Reads a boolean: the inline value, or the next word if it is true or false, else true. */
static int take_bool(struct args_parser *p, const char *name, const char *inline_value, bool *out)
{
    const char *v = inline_value;
    *out = true;
    if (!v && p->at < p->argc && truth(p->argv[p->at]) >= 0) v = p->argv[p->at++];
    if (!v) return 0;
    if (truth(v) < 0) return say_usage("%s: \"%.60s\" is neither true nor false", name, v);
    *out = truth(v) == 1;
    return 0;
}

/* Returns, in words, what the value of an option of a command's own table is. */
static const char *own_words(const struct arg_option *o, char out[96])
{
    static const char *const words[][2] = {
        {"TEXT", "a text"},
        {"FILE", "the name of a file"},
        {"DIR", "the name of a directory"},
        {"N", "an integer"},
        {"MODEL", "a model, as the command's own MODEL"},
        {"BYTES", "a number of bytes such as 512M or 4G"},
        {"JSON", "JSON, in single quotes for the shell"},
        {"FILE|NAME", "the name of a file or of a built-in format"},
        {"JSON|FILE",
         "a JSON object, in single quotes for the shell, or the name of a file with one"},
    };
    if (o->choices) {
        snprintf(out, 96, "one of %s", o->choices);
        return out;
    }
    for (size_t i = 0; o->value && i < countof(words); i++)
        if (!strcmp(o->value, words[i][0])) return words[i][1];
    return o->value;
}

static int take_own(struct args_parser *p, const struct arg_option *o, const char *inline_value)
{
    void *at = (char *)p->into + o->offset;
    char name[64], words[96];
    const char *v;
    spell_option(p, o->name, name);
    if (o->kind == ARG_FLAG && inline_value) return say_usage("--%s takes no value", o->name);
    if (o->kind == ARG_FLAG || o->kind == ARG_BOOL)
        return o->kind == ARG_BOOL ? take_bool(p, name, inline_value, at) : (*(bool *)at = true, 0);
    if (!(v = value_of(p, name, inline_value, own_words(o, words)))) return EXIT_USAGE;
    if (o->choices && check_choice(o->name, o->choices, v)) return EXIT_USAGE;
    if (o->kind == ARG_UINT) return take_uint(o->name, v, at);
    if (o->kind == ARG_BYTES) return take_bytes(o->name, v, at);
    if (o->kind == ARG_OUT && !*v)
        return say_usage("%s needs the name of a file, and the name given is empty", name);
    if (o->kind == ARG_OUT && !strcmp(v, "-"))
        return say_usage("--%s -: standard output has the answers; give a file, such as "
                         "/dev/stderr, or ./- for one of that name",
                         o->name);
    if (o->kind == ARG_TEXT || o->kind == ARG_OUT) {
        *(const char **)at = v;
        return 0;
    }
    struct arg_list *l = at;
    const char **grown = mem_grow(l->item, l->n + 1, sizeof *grown);
    if (!grown) return say_error(ERR_NOMEM);
    l->item = grown;
    l->item[l->n++] = v;
    return 0;
}

/* Returns the JSON value of a word by a type of the option table; NULL: the word is no value of that type. */
static json_t *value_json(const char *name, const char *type, const char *v)
{
    json_t *j = NULL;
    char *end;
    if (!strcmp(type, "choice") && (!strcmp(v, "true") || !strcmp(v, "false")))
        return json_boolean(!strcmp(v, "true"));
    if (!strcmp(type, "string") || !strcmp(type, "choice")) return say_json(v, strlen(v));
    if (!strcmp(type, "schema")) return schema_read(name, v);
    if (!strcmp(type, "strings")) {
        if (*v == '[' && json_parse(v, strlen(v), name, &j) == 0 && json_is_array(j)) return j;
        json_decref(j);
        return say_json(v, strlen(v));
    }
    if (!strcmp(type, "float")) {
        double d = strtod(v, &end);
        return *v && !*end && isfinite(d) ? json_real(d) : NULL;
    }
    if (!strcmp(type, "pair") && *v != '[') {
        char list[64];
        int n = snprintf(list, sizeof list, "[%.60s]", v);
        return json_parse(list, (size_t)n, name, &j) == 0 ? j : NULL;
    }
    if ((!strcmp(type, "ids") || !strcmp(type, "lists")) && *v != '[') {
        j = json_array();
        for (const char *s = v; *v; s = end + 1) {
            json_array_append_new(j, json_integer(strtoll(s, &end, 10)));
            if (end == s || (*end && *end != ',')) {
                json_decref(j);
                return NULL;
            }
            if (!*end) break;
        }
        return strcmp(type, "lists") ? j : json_pack("[o]", j);
    }
    return json_parse(v, strlen(v), name, &j) == 0 ? j : NULL;
}

static int put_value(struct args_parser *p, const char *key, json_t *v, bool append)
{
    json_t *old = append ? json_object_get(p->out->generation, key) : NULL;
    if (old) { /* a repeated list option adds to the list */
        json_t *list = json_is_array(old) ? json_copy(old) : json_pack("[O]", old);
        if (json_is_array(v))
            json_array_extend(list, v);
        else
            json_array_append(list, v);
        json_decref(v);
        v = list;
    }
    if (json_object_set_new(p->out->generation, key, v) < 0) return say_failed("out of memory");
    return 0;
}

/* Returns, in words, what the value of an option is: its type and range in the table. */
static const char *value_words(const kvik_option *o, char out[256])
{
    static const char *const by_type[][2] = {
        {"string", "a text"},
        {"strings", "a text, or a JSON list of texts; repeat the option for several"},
        {"schema", "a file with a JSON schema, or json_object"},
        {"json", "a JSON object, in single quotes for the shell: '{...}'"},
        {"ids", "a list of token ids such as 1,2"},
        {"lists", "a list of token ids such as 1,2, or of lists as [[1,2],[3]]"},
        {"biases", "token sequences with a number each, as [[[5],-2.0]]"},
        {"pair", "START,FACTOR such as 8,1.1"},
    };
    for (size_t i = 0; i < countof(by_type); i++)
        if (!strcmp(o->type, by_type[i][0])) return by_type[i][1];
    if (o->choices)
        snprintf(out, 256, "one of %s", o->choices);
    else if (o->max > 1e18)
        snprintf(out, 256, "an integer from %.0f to 2^63-1", o->min);
    else if (!strcmp(o->type, "float"))
        snprintf(out, 256, "a number from %g to %g", o->min, o->max);
    else
        snprintf(out, 256, "an integer from %.0f to %.0f", o->min, o->max);
    return out;
}

/* Says why a value was refused. */
static int bad_value(const char *name, const kvik_option *o, const char *v)
{
    char words[256];
    if (!strcmp(o->type, "schema") || (!strcmp(o->type, "json") && *v == '{'))
        return say_usage("%s", err_last());
    if (!strcmp(o->name, "max_new_tokens") && !strcmp(v, "-1"))
        return say_usage(
            "%s must be at least 1, not -1; for no limit give a large number: the end of "
            "the text and the model's context end the reply",
            name);
    return say_usage("%s must be %s, not \"%.60s\"", name, value_words(o, words), v);
}

static bool in_range(const kvik_option *o, const json_t *j)
{
    if (!strcmp(o->type, "float"))
        return json_number_value(j) >= o->min && json_number_value(j) <= o->max;
    if (strcmp(o->type, "uint") != 0 && strcmp(o->type, "int") != 0) return true;
    return json_is_integer(j) && json_number_value(j) >= o->min && json_number_value(j) <= o->max;
}

static int take_generation(struct args_parser *p, const kvik_option *o, const char *inline_value)
{
    char name[64], words[256];
    spell_option(p, o->name, name);
    if (!strcmp(o->type, "bool")) {
        bool on;
        int e = take_bool(p, name, inline_value, &on);
        return e ? e : put_value(p, o->name, json_boolean(on), false);
    }
    const char *v = value_of(p, name, inline_value, value_words(o, words));
    if (!v) return EXIT_USAGE;
    json_t *j = value_json(name, o->type, v);
    if (!j || !in_range(o, j)) {
        json_decref(j);
        return bad_value(name, o, v);
    }
    bool list = !strcmp(o->type, "strings") || !strcmp(o->type, "ids") ||
                !strcmp(o->type, "lists") || !strcmp(o->type, "biases");
    return put_value(p, o->name, j, list);
}

/* Takes an option of Transformers that the table does not have.  The library says whether the value is acceptable. */
static int take_known(struct args_parser *p, const char *key, const char *inline_value)
{
    json_t *j = NULL;
    const char *v = inline_value;
    if (!v && p->at < p->argc && p->argv[p->at][0] != '-') v = p->argv[p->at++];
    if (!v)
        j = json_true();
    else if (json_parse(v, strlen(v), "value", &j) < 0)
        j = say_json(v, strlen(v));
    return put_value(p, key, j, false);
}

/* True if the library knows the name.  It accepts null for the names that it knows, and only for these. */
static bool known(const char *key)
{
    kvik_generation g;
    char json[96];
    if (kvik_generation_init(&g, NULL) < 0) return false;
    snprintf(json, sizeof json, "{\"%s\": null}", key);
    bool yes = kvik_generation_set(&g, json) == 0;
    kvik_generation_done(&g);
    return yes;
}

/* In a chat: changes the advice "give --NAME VALUE" to "/set NAME VALUE".  Other sentences stay as they are. */
static const char *set_instead(const struct command *c, const char *say, char out[96])
{
    const char *last = say, *at;
    char typed[64], name[64];
    if (strncmp(say, "give --", 7) != 0) return say;
    while ((at = strstr(last + 1, "--")))
        last = at;
    size_t n = strcspn(last + 2, " ;");
    if (!find_generation(c, last + 2, n) || strstr(say, "cache")) return say;
    snprintf(typed, sizeof typed, "%.*s", (int)MIN(n, 63), last + 2);
    args_plain(typed, name);
    snprintf(out, 96, "/set %s%.*s", name, (int)strcspn(last + 2 + n, ";"), last + 2 + n);
    return out;
}

static int unknown_option(const struct args_parser *p, const char *word)
{
    const struct command *c = p->c;
    struct near near;
    char name[64], shown[72], best[64], instead[96];
    const kvik_option *o;
    snprintf(name, sizeof name, "%.*s", (int)MIN(strcspn(word, "="), 63), word);
    snprintf(shown, sizeof shown, "%s%s", p->set ? "" : "--", name);
    const char *known_as = c->runs_model ? alias_find(c, name) : NULL;
    if (known_as && p->set) known_as = set_instead(c, known_as, instead);
    if (known_as) return say_usage("unknown option %s; %s", shown, known_as);
    near_begin(&near, name);
    for (size_t i = 0; !p->set && i < c->n_options; i++)
        near_try(&near, c->option[i].name);
    for (size_t i = 0; !p->set && i < countof(shared); i++)
        near_try(&near, shared[i].name);
    for (uint32_t i = 0; c->generation && (o = kvik_option_at(i)); i++)
        near_try(&near, o->name);
    if (!near.best)
        return say_usage("unknown option %s; kvik %s --help-all lists all options", shown, c->name);
    spell_option(p, near.best, best);
    return say_usage("unknown option %s; did you mean %s?", shown, best);
}

/* Refuses a word with one dash, which may be an option of another program. */
static int unknown_short(const struct command *c, const char *word)
{
    const char *known_as = c->runs_model ? alias_find(c, word) : NULL;
    if (known_as) return say_usage("unknown option %s; %s", word, known_as);
    return say_usage("unknown option %.60s; options begin with two dashes, and \"--\" ends them",
                     word);
}

static int take_option(struct args_parser *p, const char *word)
{
    size_t n = strcspn(word, "=");
    const char *inline_value = word[n] ? word + n + 1 : NULL;
    const struct arg_option *own = find_option(p->c, word, n);
    if (own) return take_own(p, own, inline_value);
    const kvik_option *g = find_generation(p->c, word, n);
    if (g) return take_generation(p, g, inline_value);
    char key[64];
    size_t plain = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    if (p->c->generation && plain == n && n < sizeof key) {
        for (size_t i = 0; i <= n; i++)
            key[i] = i == n ? 0 : word[i] == '-' ? '_' : word[i];
        if (known(key)) return take_known(p, key, inline_value);
    }
    return unknown_option(p, word);
}

int args_set(const struct command *c, const char *name, const char *value, json_t *into)
{
    char word[160], *argv[] = {(char *)(uintptr_t)value};
    struct args out = {.generation = into};
    struct args_parser p = {.c = c, .out = &out, .argc = 1, .argv = argv, .set = true};
    snprintf(word, sizeof word, "%s", name);
    if (strchr(word, '=') || find_option(c, word, strlen(word)))
        return say_usage("%.60s is no generation option; it is given when kvik %s starts", word,
                         c->name);
    return take_option(&p, word);
}

/* Takes an option from the environment: KVIK_PORT sets --port. */
static int take_variable(struct args_parser *p, const struct arg_option *o)
{
    /* The library reads the variables of these options itself, unless the options are given. */
    static const char *const own[] = {"threads", "isa", "spill-dir", "device"};
    char name[64];
    snprintf(name, sizeof name, "KVIK_%s", o->name);
    for (char *s = name; *s; s++)
        *s = *s == '-' ? '_' : (char)toupper((unsigned char)*s);
    const char *v = getenv(name);
    for (size_t i = 0; i < countof(own); i++)
        if (!strcmp(o->name, own[i])) return 0;
    if (!v || !*v) return 0;
    int e;
    if (o->kind == ARG_FLAG)
        e = take_bool(p, o->name, v, (bool *)((char *)p->into + o->offset));
    else
        e = take_own(p, o, v);
    if (e) say_line("%s has this value", name);
    return e;
}

/* Takes all options that the environment sets.  The command line is read after that, so its options win. */
static int take_environment(struct args_parser *p)
{
    const struct command *c = p->c;
    size_t n;
    int e;
    const struct arg_option *common = args_shared(c, &n);
    for (size_t i = 0; i < c->n_options; i++)
        if ((e = take_variable(p, &c->option[i]))) return e;
    for (size_t i = 0; i < n; i++)
        if ((e = take_variable(p, &common[i]))) return e;
    return 0;
}

int args_parse(const struct command *c, int argc, char **argv, void *into, struct args *out)
{
    struct args_parser p = {.c = c, .into = into, .out = out, .argc = argc, .argv = argv};
    bool options = true;
    *out = (struct args){.plain = SIZE_MAX,
                         .word = mem_array((size_t)argc + 1, sizeof *out->word),
                         .generation = json_object()};
    if (!out->word || !out->generation) return say_failed("out of memory");
    int status = c->environment ? take_environment(&p) : 0;
    if (status) return status;
    while (p.at < argc) {
        const char *w = argv[p.at++];
        int e = 0;
        if (!options || w[0] != '-' || !w[1])
            out->word[out->n++] = w;
        else if (!strcmp(w, "--")) {
            options = false;
            out->plain = out->n;
        } else if (!strcmp(w, "--help") || !strcmp(w, "-h") || !strcmp(w, "--help-all"))
            return help_command(c, !strcmp(w, "--help-all"), stdout), -1;
        else if (w[1] != '-')
            e = unknown_short(c, w);
        else
            e = take_option(&p, w + 2);
        if (e) return e;
    }
    if (((const struct common *)into)->raw) screen_raw();
    return 0;
}

void args_done(struct args *a)
{
    mem_free(a->word);
    json_decref(a->generation);
    *a = (struct args){0};
}

void args_list_done(struct arg_list *l)
{
    mem_free(l->item);
    *l = (struct arg_list){0};
}
