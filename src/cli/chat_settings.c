/* chat_settings.c - the generation options of a chat.  A chat samples by default, because greedy replies repeat
 * themselves.  Options come from these places; later ones win:
 *
 *     the model's own sampling values, or those of kvik for chats if the model has none (chat_defaults.c);
 *     --generation-config and the options of the command line;
 *     /set and /seed. */
#include "cli/cmd_chat.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The cache was opened with these options, so a change would have no effect. */
static const char *const fixed[] = {"cache_implementation", "cache_config", "max_cache_len",
                                    "use_cache", "num_return_sequences"};

/* An option of a chat that is one number. */
struct number {
    const kvik_option *option;
    double value, off; /* off: the value that has no effect */
    bool draws;        /* the option has an effect only when tokens are sampled */
};

/* Reads the next option that shapes a draw or changes scores.  *i: where the table goes on, 0 at first. */
static bool next_number(const kvik_generation *g, uint32_t *i, struct number *n)
{
    const kvik_option *o;
    while ((o = kvik_option_at((*i)++))) {
        n->draws = !strcmp(o->group, "sampling");
        if (!n->draws && strcmp(o->group, "scores")) continue;
        if (strcmp(o->type, "uint") && strcmp(o->type, "float")) continue;
        if (!strcmp(o->name, "seed") || kvik_generation_number(g, o->name, &n->value) < 0) continue;
        n->option = o;
        n->off =
            !strcmp(o->name, "top_k") ? 0 : strtod(o->fallback, NULL); /* its default is not 0 */
        return true;
    }
    return false;
}

bool chat_samples(const kvik_generation *own)
{
    struct number n;
    bool yes = own->do_sample;
    for (uint32_t i = 0; next_number(own, &i, &n);)
        yes |= n.draws && n.value != strtod(n.option->fallback, NULL);
    return yes;
}

/* True if the user asks for another way of decoding than sampling. */
static bool unsampled(const struct chat *c, const kvik_generation *own, const json_t *user,
                      const json_t *set)
{
    const json_t *wish = json_object_get(user, "do_sample"), *t, *beams, *alpha;
    if (json_is_boolean(wish)) return json_is_false(wish);
    if (c->o->greedy) return true;
    t = json_object_get(user, "temperature");
    beams = json_object_get(user, "num_beams");
    alpha = json_object_get(user, "penalty_alpha");
    if (json_object_get(set, "temperature") || json_is_number(t)) return json_number_value(t) == 0;
    return (beams ? json_integer_value(beams) : own->num_beams) > 1 ||
           (alpha ? json_number_value(alpha) : own->penalty_alpha) > 0;
}

/* Sets c->s.g from the defaults of the model, the command line and `set`. */
static int settle_options(struct chat *c, const json_t *set)
{
    kvik_generation own;
    TRY(kvik_generation_init(&own, c->s.model));
    json_t *user = json_copy(c->given), *all = NULL;
    int e = !user || json_object_update(user, (json_t *)(uintptr_t)set) < 0 ? ERR_NOMEM : 0;
    if (e >= 0 && unsampled(c, &own, user, set)) {
        const json_t *t = json_object_get(user, "temperature");
        if (t && json_number_value(t) == 0) json_object_del(user, "temperature");
        all = json_object();
        c->source = NULL;
        if (all) json_object_set_new(all, "do_sample", json_false());
    } else if (e >= 0) {
        e = chat_defaults(c->s.model, chat_samples(&own), &all, &c->source);
    }
    kvik_generation_done(&own);
    if (all) json_object_set_new(all, "seed", json_integer((json_int_t)c->seed));
    if (e >= 0 && (!all || json_object_update(all, user) < 0)) e = ERR(NOMEM, "out of memory");
    if (e >= 0) e = engine_settle(&c->s, all);
    if (e >= 0 && !c->s.g.do_sample) c->source = NULL;
    json_decref(all);
    json_decref(user);
    if (e < 0) return e;
    c->open_ended = !c->s.g.max_new_tokens && !c->s.g.max_length;
    return 0;
}

/* Returns a number that people can type again. */
static uint64_t draw_seed(void)
{
    uint32_t n = 0;
    if (getrandom(&n, sizeof n, 0) != sizeof n) n = (uint32_t)(now_seconds() * 1e6);
    return n % 1000000;
}

/* Warns of options that have no effect.  Temperature 0 has an effect: it means greedy decoding. */
static void advise(const struct chat *c, const json_t *options, bool set)
{
    json_t *o = json_copy((json_t *)(uintptr_t)options);
    const json_t *t = json_object_get(o, "temperature");
    if (t && json_number_value(t) == 0) json_object_del(o, "temperature");
    /* this option limits the conversation, so it always has an effect */
    json_object_del(o, "max_cache_len");
    if (o)
        advice_tell(&c->s.g, o, set ? ADVICE_SET : c->o->greedy ? ADVICE_GREEDY : ADVICE_COMMAND);
    json_decref(o);
}

int chat_settings_open(struct chat *c, const json_t *options)
{
    const char *key;
    c->seed = draw_seed();
    c->set = json_object();
    if (!c->set) return ERR(NOMEM, "out of memory");
    void *next;
    json_t *v;
    json_object_foreach_safe(c->given, next, key, v)
    {
        /* null: as if the option was not given */
        if (json_is_null(v)) json_object_del(c->given, key);
    }
    const json_t *wish = json_object_get(c->given, "do_sample");
    if (c->o->greedy && json_is_true(wish))
        return ERR(ARG,
                   "--greedy switches sampling off and do_sample switches it on; leave one out");
    TRY(settle_options(c, c->set));
    advise(c, options, false);
    return 0;
}

void chat_settings_done(struct chat *c)
{
    json_decref(c->given);
    json_decref(c->set);
    c->given = c->set = NULL;
}

/* Appends to a line, which is cut where its array ends. */
__attribute__((format(printf, 2, 3))) static void add(char line[512], const char *fmt, ...)
{
    va_list ap;
    size_t n = strlen(line);
    va_start(ap, fmt);
    vsnprintf(line + n, 512 - n, fmt, ap);
    va_end(ap);
}

/* Prints how replies are decoded: the options that have an effect. */
static void print_decoding(const struct chat *c)
{
    const kvik_generation *g = &c->s.g;
    char line[512] = "";
    if (!g->do_sample && g->num_beams <= 1) {
        add(line, "%s decoding: a message always has the same reply",
            g->penalty_alpha > 0 ? "contrastive" : "greedy");
    } else {
        add(line, "%s", g->num_beams > 1 ? "beam search" : "sampling");
        if (g->num_beams > 1) add(line, " with %u beams", g->num_beams);
        const char *before = ": ";
        struct number n;
        for (uint32_t i = 0; g->do_sample && next_number(g, &i, &n);) {
            if (n.value == n.off && strcmp(n.option->name, "temperature")) continue;
            add(line, "%s%s %g", before, n.option->name, n.value);
            before = ", ";
        }
        if (g->do_sample) add(line, "%sseed %llu", before, (unsigned long long)g->seed);
    }
    wrap_line(stderr, line);
}

void chat_banner(const struct chat *c, const char *model)
{
    const char *slash = strrchr(model, '/');
    const struct chat_limit limit = chat_limit(c);
    uint32_t context = kvik_model_context(c->s.model);
    char line[512] = "";
    add(line, "%.200s, context of %u tokens", slash && slash[1] ? slash + 1 : model,
        MIN(limit.tokens, context));
    if (limit.tokens < context) add(line, " (%s; the model has %u)", limit.name, context);
    wrap_line(stderr, line);
    print_decoding(c);
    if (!c->source) return;
    line[0] = 0;
    add(line, "(%s; /set changes them, --greedy switches sampling off)", c->source);
    wrap_line(stderr, line);
}

/* Prints an option that is not one of the numbers above. */
static void print_other(const kvik_generation *g, const char *name, const json_t *v)
{
    char *text;
    struct number n;
    for (uint32_t i = 0; next_number(g, &i, &n);)
        if (!strcmp(name, n.option->name)) return;
    if (!strcmp(name, "do_sample") || !strcmp(name, "seed") || !strcmp(name, "max_new_tokens"))
        return;
    if (json_text(v, &text) < 0) return;
    fprintf(stderr, "  %-28s %s\n", name, text);
    mem_free(text);
}

static int show_all(const struct chat *c)
{
    const kvik_generation *g = &c->s.g;
    const char *key;
    json_t *v, *all = json_copy(c->given);
    if (!all || json_object_update(all, c->set) < 0) {
        json_decref(all);
        return ERR(NOMEM, "out of memory");
    }
    fprintf(stderr, "  %-28s %s\n", "do_sample", g->do_sample ? "true" : "false");
    struct number n;
    for (uint32_t i = 0; next_number(g, &i, &n);)
        fprintf(stderr, "  %-28s %g%s\n", n.option->name, n.value,
                n.value == n.off ? " (off)" : "");
    fprintf(stderr, "  %-28s %llu\n", "seed", (unsigned long long)g->seed);
    if (g->max_new_tokens)
        fprintf(stderr, "  %-28s %u\n", "max_new_tokens", g->max_new_tokens);
    else
        fprintf(stderr, "  %-28s no limit\n", "max_new_tokens");
    json_object_foreach(all, key, v) print_other(g, key, v);
    json_decref(all);
    fputs("/set NAME VALUE changes an option, /set NAME - takes the change back; Tab lists the "
          "names\n",
          stderr);
    return 0;
}

/* Takes `next` as the options of /set, if all of them together are acceptable. */
static int change(struct chat *c, json_t *next)
{
    int e = settle_options(c, next);
    uint32_t width = e < 0 ? 0 : engine_width(&c->s);
    if (width > c->s.sequences) {
        (void)settle_options(c, c->set);
        e = ERR(
            LIMIT,
            "a reply would need %u sequences of the cache, which was opened for %u; set a smaller top_k or "
            "num_beams first, or give the option when kvik chat starts",
            width, c->s.sequences);
    }
    if (e < 0) {
        json_decref(next);
        return e;
    }
    json_decref(c->set);
    c->set = next;
    return 0;
}

bool chat_fixed(const char *name)
{
    for (size_t i = 0; i < countof(fixed); i++)
        if (!strcmp(name, fixed[i])) return true;
    return false;
}

/* Prints the option that /set has changed, with its value. */
static void print_change(const json_t *one)
{
    const char *key;
    json_t *v;
    char *text;
    json_object_foreach((json_t *)(uintptr_t)one, key, v)
    {
        if (!strcmp(key, "seed")) continue; /* seed has a line of its own below */
        if (json_is_real(v)) fprintf(stderr, "%s %g\n", key, json_real_value(v));
        if (json_is_real(v) || json_text(v, &text) < 0) continue;
        fprintf(stderr, "%s %s\n", key, text);
        mem_free(text);
    }
}

static int set_one(struct chat *c, char *name, const char *value)
{
    for (char *k = name; *k; k++)
        if (*k == '-') *k = '_';
    if (chat_fixed(name))
        return ERR(ARG, "%s cannot change during a chat; it is given when kvik %s starts", name,
                   c->command->name);
    json_t *next = json_copy(c->set), *one = json_object();
    if (!next || !one) {
        json_decref(next);
        json_decref(one);
        return ERR(NOMEM, "out of memory");
    }
    if (!strcmp(value, "-")) {
        json_decref(one);
        if (json_object_del(next, name) == 0) {
            int e = change(c, next);
            if (e >= 0) fprintf(stderr, "%s as before /set\n", name);
            return e;
        }
        json_decref(next);
        return ERR(ARG, "/set has not changed %s", name);
    }
    int e = args_set(c->command, name, value, one);
    if (!e) json_object_update(next, one);
    if (!e && (e = change(c, next)) >= 0) {
        print_change(one);
        advise(c, one, true);
    } else if (e > 0)
        json_decref(next);
    json_decref(one);
    return e;
}

int chat_set(struct chat *c, const char *text)
{
    char name[64];
    text += strspn(text, "-");
    size_t n = strcspn(text, " \t=");
    if (!*text) return show_all(c);
    snprintf(name, sizeof name, "%.*s", (int)n, text);
    const char *value = text + n + strspn(text + n, " \t=");
    if (!strcmp(name, "parameter")) /* as Ollama has it */
        return ERR(ARG, "/set takes the name of the option itself: /set %s",
                   *value ? value : "NAME VALUE");
    if (!strcmp(name, "system"))
        return ERR(ARG, "/system TEXT sets the system message, and /set sets generation options");
    if (!*value) return ERR(ARG, "/set %s needs a value; /set alone shows the options", name);
    int e = set_one(c, name, value);
    if (e) return e;
    print_decoding(c);
    return 0;
}

int chat_seed(struct chat *c, const char *text)
{
    char name[] = "seed", number[24];
    if (!*text) {
        fprintf(stderr, "seed %llu; /seed N sets another, /seed random draws one\n",
                (unsigned long long)c->s.g.seed);
        return 0;
    }
    snprintf(number, sizeof number, "%llu", (unsigned long long)draw_seed());
    int e = set_one(c, name, strcmp(text, "random") ? text : number);
    if (e) return e;
    c->draws = 0;
    fprintf(stderr, "seed %llu\n", (unsigned long long)c->s.g.seed);
    return 0;
}
