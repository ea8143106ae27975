/* object.c - makes the basic of an object.  One automaton accepts all its names: declared names, names that
 * patterns match, and others.  The value of an accepting state says which schemas the value of that name must
 * satisfy. */
#include "base/utf8.h"
#include "schema/compile.h"

#include <string.h>

enum { NAMES = 4096 };

struct object {
    struct compiler *c;
    const struct items *atoms;
    struct basic *b;
    json_t *names;     /* owned: name to its number */
    const char **name; /* owned, [b->n_names]: borrowed from names */
    struct {           /* owned: a regular expression of patternProperties */
        uint32_t atom;
        const char *text;
        const json_t *schema;
    } * pattern;
    uint32_t n_pattern;
    struct mark_sets sets;
};

static int add_name(struct object *o, const char *name)
{
    size_t n = json_object_size(o->names);
    if (json_object_get(o->names, name)) return 0;
    if (n == NAMES) return ERR(LIMIT, "%s: an object of more than %d names", o->c->what, NAMES);
    return json_object_set_new(o->names, name, json_integer((json_int_t)n)) < 0
               ? ERR(NOMEM, "out of memory")
               : 0;
}

static int add_names(struct object *o, const json_t *of)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)of, key, v) TRY(add_name(o, key));
    return 0;
}

/* Returns the names that an atom requires, or NULL. */
static const json_t *needed(const struct item *it)
{
    return it->role == ROLE_NEEDS ? it->v : keyword(it, "required");
}

static int find_names(struct object *o)
{
    const char *key;
    json_t *v;
    for (uint32_t i = 0; i < o->atoms->n; i++) {
        const struct item *it = &o->atoms->v[i];
        if (it->role == ROLE_VALUE) TRY(add_names(o, it->v));
        TRY(add_names(o, keyword(it, "properties")));
        const json_t *required = needed(it);
        if (it->key && it->role >= ROLE_ABSENT && it->role <= ROLE_HAS_NOT)
            TRY(add_name(o, it->key));
        for (size_t k = 0; k < json_array_size(required); k++)
            TRY(add_name(o, json_string_value(json_array_get(required, k))));
        o->n_pattern += (uint32_t)json_object_size(keyword(it, "patternProperties"));
    }
    struct basic *b = o->b;
    b->n_names = (uint32_t)json_object_size(o->names);
    b->words = b->n_names / 64 + 1;
    o->name = mem_array(b->n_names + 1, sizeof *o->name);
    o->pattern = mem_array(o->n_pattern + 1, sizeof *o->pattern);
    b->required = mem_array(b->words, sizeof *b->required);
    b->usable = mem_array(b->words, sizeof *b->usable);
    if (!o->name || !o->pattern || !b->required || !b->usable) return ERR_NOMEM;
    uint32_t n = 0;
    json_object_foreach(o->names, key, v) o->name[json_integer_value(v)] = key;
    for (uint32_t i = 0; i < o->atoms->n; i++)
        json_object_foreach((json_t *)(uintptr_t)keyword(&o->atoms->v[i], "patternProperties"), key,
                            v)
        {
            o->pattern[n].atom = i;
            o->pattern[n].text = key;
            o->pattern[n++].schema = v;
        }
    return 0;
}

/* Makes the automaton of all names.  It accepts with sets of marks: one mark for each declared name and each
 * pattern, and one that every name has. */
static int names_dfa(struct object *o)
{
    struct nfa a = {0};
    uint32_t end, n = o->b->n_names;
    int e = nfa_state(&a, &a.start);
    for (uint32_t i = 0; e >= 0 && i < n; i++)
        e = nfa_text(&a, o->name[i], strlen(o->name[i]), i);
    for (uint32_t i = 0; e >= 0 && i < o->n_pattern; i++)
        e = nfa_regex(&a, o->pattern[i].text, strlen(o->pattern[i].text), n + i,
                      o->atoms->v[o->pattern[i].atom].path);
    if (e >= 0) e = nfa_state(&a, &end);
    if (e >= 0) e = nfa_edge(&a, a.start, NFA_EMPTY, 0, 0, end);
    if (e >= 0) e = nfa_edge(&a, end, NFA_RANGE, 0, CP_LAST, end);
    if (e >= 0) a.accept[end] = n + o->n_pattern + 1;
    if (e >= 0) e = nfa_determine(&a, &o->sets, &o->b->dfa);
    nfa_done(&a);
    return e;
}

/* Adds what atom i demands of the value of a name.  set: the marks of that name. */
static int add_value(struct object *o, uint32_t i, uint32_t set, const char *name,
                     struct items *list)
{
    const struct item *it = &o->atoms->v[i];
    struct compiler *c = o->c;
    const char *path;
    bool known = false;
    const json_t *v;
    if (it->role == ROLE_VALUE) {
        v = name ? json_object_get(it->v, name) : NULL;
        return items_put(
            list, v ? (struct item){.v = v, .path = it->path, .role = ROLE_VALUE}
                    : (struct item){.v = json_false(), .path = it->path, .role = ROLE_SCHEMA});
    }
    if (name && it->key && it->role >= ROLE_ABSENT && it->role <= ROLE_HAS_NOT &&
        !strcmp(it->key, name)) {
        bool lacks = it->role != ROLE_HAS_NOT;
        return items_put(list, (struct item){.v = lacks ? json_false() : it->v,
                                             .path = it->path,
                                             .role = lacks ? ROLE_SCHEMA : ROLE_NOT});
    }
    if (name && (v = json_object_get(keyword(it, "properties"), name))) {
        known = true;
        if (!(path = path_below(c, it->path, "properties")) || !(path = path_below(c, path, name)))
            return ERR_NOMEM;
        TRY(items_put(list, (struct item){.v = v, .path = path, .role = ROLE_SCHEMA}));
    }
    for (uint32_t k = o->sets.at[set]; k < o->sets.at[set + 1]; k++) {
        uint32_t p = o->sets.mark[k] - o->b->n_names;
        if (o->sets.mark[k] < o->b->n_names || p >= o->n_pattern || o->pattern[p].atom != i)
            continue;
        known = true;
        if (!(path = path_below(c, it->path, "patternProperties"))) return ERR_NOMEM;
        TRY(items_put(list,
                      (struct item){.v = o->pattern[p].schema, .path = path, .role = ROLE_SCHEMA}));
    }
    if (known || !(v = keyword(it, "additionalProperties"))) return 0;
    if (!(path = path_below(c, it->path, "additionalProperties"))) return ERR_NOMEM;
    return items_put(list, (struct item){.v = v, .path = path, .role = ROLE_SCHEMA});
}

/* Gives each set of marks a class, and each class the node of its values. */
static int make_classes(struct object *o)
{
    struct basic *b = o->b;
    uint32_t *class = mem_array(o->sets.n + 1, sizeof *class);
    b->value = mem_array((size_t)b->n_names + o->sets.n + 1, sizeof *b->value);
    int e = class && b->value ? 0 : ERR_NOMEM;
    b->n_class = b->n_names;
    for (uint32_t s = 0; e >= 0 && s < o->sets.n; s++) {
        struct items list = {0};
        uint32_t mark = o->sets.mark[o->sets.at[s]];
        bool declared = mark < b->n_names;
        class[s] = declared ? mark : b->n_class++;
        for (uint32_t i = 0; e >= 0 && i < o->atoms->n; i++)
            e = add_value(o, i, s, declared ? o->name[mark] : NULL, &list);
        if (e >= 0)
            e = node_of(o->c, &list, &b->value[class[s]]);
        else
            items_done(&list);
    }
    for (uint32_t q = 0; e >= 0 && q < b->dfa->n_state; q++)
        if (b->dfa->accept[q]) b->dfa->accept[q] = class[b->dfa->accept[q] - 1] + 1;
    mem_free(class);
    return e;
}

/* Narrows the names to those that are valid under propertyNames, whose keywords must be those of strings. */
static int narrow_by(struct object *o, const struct item *it, const json_t *v)
{
    static const char *const known[] = {"pattern", "minLength", "maxLength", "enum",
                                        "const",   "format",    "type"};
    struct item one = {.v = v, .path = it->path},
                list = {.v = json_object_get(v, "enum"), .role = ROLE_SCALARS};
    struct items atoms = {.v = &one, .n = 1};
    struct basic b = {.max = SCHEMA_MANY};
    struct dfa *length = NULL, *both;
    unsigned types = json_is_false(v) ? 0 : T_STRING;
    const char *key;
    json_t *e;
    json_object_foreach((json_t *)(uintptr_t)v, key, e)
    {
        bool good = false;
        for (size_t i = 0; i < countof(known); i++)
            good |= !strcmp(key, known[i]);
        if (!good)
            return bad_keyword(o->c, ERR_UNSUPPORTED, it->path, key,
                               "is not supported in propertyNames");
    }
    if (json_is_object(v)) {
        TRY(check_keywords(o->c, &one));
        TRY(types_named(o->c, &one, &types));
    }
    struct item two[3] = {one};
    atoms.v = two;
    if (list.v) two[atoms.n++] = list;
    if (json_object_get(v, "const"))
        two[atoms.n++] =
            (struct item){.v = json_object_get(v, "const"), .path = it->path, .role = ROLE_VALUE};
    if (!(types & T_STRING)) b.min = 1, b.max = 0;
    int err = make_string(o->c, &atoms, &b);
    if (err >= 0 && b.any)
        err = dfa_length(b.min, b.max == SCHEMA_MANY ? UINT64_MAX : b.max, &length);
    if (err >= 0 && length) err = narrow(&b.dfa, length);
    if (err >= 0) err = dfa_both(o->b->dfa, b.dfa, false, &both);
    dfa_drop(b.dfa);
    if (err < 0) return err;
    dfa_drop(o->b->dfa);
    o->b->dfa = both;
    return 0;
}

static int narrow_names(struct object *o)
{
    for (uint32_t i = 0; i < o->atoms->n; i++) {
        const json_t *v = keyword(&o->atoms->v[i], "propertyNames");
        if (v && !json_is_true(v)) TRY(narrow_by(o, &o->atoms->v[i], v));
    }
    return 0;
}

static void use(struct basic *b, uint32_t i, const char *name)
{
    uint32_t q = b->dfa->start;
    size_t n = strlen(name), k;
    for (size_t at = 0; at < n && q != DFA_DEAD; at += k)
        q = dfa_next(b->dfa, q, utf8_decode(name + at, n - at, &k));
    if (q != DFA_DEAD && b->dfa->accept[q] == i + 1) b->usable[i / 64] |= (uint64_t)1 << (i % 64);
}

static int find_required(struct object *o)
{
    struct basic *b = o->b;
    for (uint32_t i = 0; i < o->atoms->n; i++) {
        const struct item *it = &o->atoms->v[i];
        const json_t *required = needed(it);
        TRY(narrow_counts(o->c, it, "minProperties", "maxProperties", &b->min, &b->max));
        for (uint32_t k = 0; k < b->n_names; k++) {
            bool needs = (it->role == ROLE_VALUE && json_object_get(it->v, o->name[k])) ||
                         (it->role == ROLE_HAS_NOT && !strcmp(it->key, o->name[k]));
            for (size_t r = 0; !needs && r < json_array_size(required); r++)
                needs = !strcmp(json_string_value(json_array_get(required, r)), o->name[k]);
            if (needs) b->required[k / 64] |= (uint64_t)1 << (k % 64);
        }
    }
    for (uint32_t w = 0; w < b->words; w++)
        b->n_required += (uint32_t)__builtin_popcountll(b->required[w]);
    for (uint32_t k = 0; k < b->n_names; k++)
        use(b, k, o->name[k]);
    return 0;
}

int make_object(struct compiler *c, const struct items *atoms, struct basic *b)
{
    struct object o = {.c = c, .atoms = atoms, .b = b, .names = json_object()};
    int e = o.names ? find_names(&o) : ERR(NOMEM, "out of memory");
    /* what follows looks up each name in each atom */
    if (e >= 0) e = dfa_pay(100 * (uint64_t)json_object_size(o.names) * atoms->n);
    if (e >= 0) e = names_dfa(&o);
    if (e >= 0) e = make_classes(&o);
    if (e >= 0) e = narrow_names(&o);
    if (e >= 0) e = find_required(&o);
    mark_sets_done(&o.sets);
    json_decref(o.names);
    mem_free(o.name);
    mem_free(o.pattern);
    return e;
}
