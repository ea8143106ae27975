/* expand.c - the alternatives of a node.  References are followed, and allOf is joined to the conjunction.  Each
 * branch of anyOf, oneOf and enum becomes a choice of its own.  When only atoms are left in a choice, each type
 * that they allow makes a basic. */
#include "schema/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2000, CHOICES = 4096 };

struct node_choice {
    struct items todo, atoms;
    uint32_t steps;
};

static int expand(struct compiler *c, struct node_choice *x);

static int copy_items(const struct items *from, struct items *to)
{
    *to = (struct items){0};
    if (!from->n) return 0;
    if (!(to->v = mem_array(from->n, sizeof *to->v))) return ERR_NOMEM;
    memcpy(to->v, from->v, from->n * sizeof *to->v);
    to->n = to->cap = from->n;
    return 0;
}

/* Makes a choice of its own from a copy of this one and more items, and expands it. */
static int branch_all(struct compiler *c, const void *choice, const struct item *it, size_t n)
{
    const struct node_choice *x = choice;
    struct node_choice y = {.steps = x->steps};
    int e = copy_items(&x->todo, &y.todo);
    if (e >= 0) e = copy_items(&x->atoms, &y.atoms);
    for (size_t i = 0; e >= 0 && i < n; i++)
        e = items_put(&y.todo, it[i]);
    if (e >= 0) e = expand(c, &y);
    items_done(&y.todo);
    items_done(&y.atoms);
    return e;
}

static int branch(struct compiler *c, const struct node_choice *x, struct item it)
{
    return branch_all(c, x, &it, 1);
}

/* --- $ref */

static bool hex_pair(const char *s)
{
    return strspn(s, "0123456789abcdefABCDEF") >= 2;
}

/* Copies one step of a pointer without its escapes. */
static void unescape(const char *s, size_t n, char *out)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        char ch = s[i];
        if (ch == '%' && i + 2 < n + 0 && hex_pair(s + i + 1)) {
            char two[3] = {s[i + 1], s[i + 2], 0};
            ch = (char)strtoul(two, NULL, 16);
            i += 2;
        }
        if (ch == '~' && i + 1 < n && (s[i + 1] == '0' || s[i + 1] == '1'))
            ch = s[++i] == '0' ? '~' : '/';
        out[k++] = ch;
    }
    out[k] = 0;
}

static const json_t *step_into(const json_t *at, const char *key)
{
    char *end;
    if (json_is_object(at)) return json_object_get(at, key);
    size_t i = strtoul(key, &end, 10);
    return json_is_array(at) && *key && !*end ? json_array_get(at, i) : NULL;
}

int resolve_ref(struct compiler *c, const struct item *it, const char *ref, struct item *out)
{
    const json_t *id = json_object_get(c->root, "$id"), *at = c->root;
    const char *base = json_is_string(id) ? json_string_value(id) : "", *p = ref;
    char key[512];
    if (*base && !strncmp(ref, base, strlen(base)) &&
        (ref[strlen(base)] == '#' || !ref[strlen(base)]))
        p = ref + strlen(base);
    if (*p == '#')
        p++;
    else if (*p || p == ref)
        return bad_keyword(c, ERR_UNSUPPORTED, it->path, "$ref",
                           "to another document is not supported");
    if (*p && *p != '/')
        return bad_keyword(c, ERR_UNSUPPORTED, it->path, "$ref",
                           "to an anchor is not supported; use #/$defs/NAME");
    while (at && *p == '/') {
        size_t n = strcspn(++p, "/");
        if (n >= sizeof key)
            return bad_keyword(c, ERR_LIMIT, it->path, "$ref",
                               "has a name of %zu bytes; the limit is %zu", n, sizeof key - 1);
        unescape(p, n, key);
        at = step_into(at, key);
        p += n;
        if (at != c->root && json_object_get(at, "$id"))
            return bad_keyword(c, ERR_UNSUPPORTED, it->path, "$id",
                               "below the root is not supported");
    }
    if (!at) {
        char name[300];
        snprintf(name, sizeof name, "$ref %.250s", ref);
        return bad_keyword(c, ERR_FORMAT, it->path, name, "leads nowhere");
    }
    if (!json_is_object(at) && !json_is_boolean(at))
        return bad_keyword(c, ERR_FORMAT, it->path, "$ref",
                           "leads to something that is not a schema");
    *out = (struct item){.v = at, .path = ref, .role = ROLE_SCHEMA};
    return 0;
}

/* --- one item */

/* Notes for each pair of branches of a oneOf that no value may be valid under both, within the schema around them. */
static int note_apart(struct compiler *c, const struct item *it, const json_t *list)
{
    size_t n = json_array_size(list);
    if (n > 64)
        return bad_keyword(c, ERR_LIMIT, it->path, "oneOf",
                           "has %zu branches; at most 64 are possible, or use anyOf", n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            struct items both = {0};
            uint32_t node;
            const char *path = path_at(c, it->path, "oneOf", i),
                       *other = path_at(c, it->path, "oneOf", k);
            if (!path || !other) return ERR_NOMEM;
            TRY(items_put(
                &both,
                (struct item){.v = json_array_get(list, k), .path = other, .role = ROLE_SCHEMA}));
            int e = items_put(
                &both,
                (struct item){.v = json_array_get(list, i), .path = path, .role = ROLE_SCHEMA});
            if (e < 0) {
                items_done(&both);
                return e;
            }
            TRY(node_of(c, &both, &node));
            if (c->n_apart == c->cap_apart) {
                uint32_t cap = c->cap_apart ? c->cap_apart * 2 : 16;
                void *more = mem_grow(c->apart, cap, sizeof *c->apart);
                if (!more) return ERR_NOMEM;
                c->apart = more;
                c->cap_apart = cap;
            }
            c->apart[c->n_apart].node = node;
            c->apart[c->n_apart++].path = path;
        }
    return 0;
}

/* Puts everything that a schema's keywords refer to on the list of items.  Returns 1 if no value can be valid. */
static int open_schema(struct compiler *c, struct node_choice *x, const struct item *it)
{
    const json_t *v;
    struct item target;
    if (json_is_false(it->v)) return 1;
    if (json_is_true(it->v)) return 0;
    if (!json_is_object(it->v))
        return ERR(FORMAT, "%s: %s: a schema must be an object, true or false", c->what, it->path);
    if ((v = json_object_get(it->v, "$ref"))) {
        if (!json_is_string(v))
            return bad_keyword(c, ERR_FORMAT, it->path, "$ref", "must be a string");
        TRY(resolve_ref(c, it, json_string_value(v), &target));
        TRY(items_put(&x->todo, target));
        if (c->old) return 0;
    }
    TRY(check_keywords(c, it));
    v = json_object_get(it->v, "allOf");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *path = path_at(c, it->path, "allOf", i);
        if (!path) return ERR_NOMEM;
        TRY(items_put(&x->todo,
                      (struct item){.v = json_array_get(v, i), .path = path, .role = ROLE_SCHEMA}));
    }
    static const char *const any[] = {"anyOf", "oneOf"};
    for (size_t i = 0; i < countof(any); i++) {
        if (!(v = json_object_get(it->v, any[i]))) continue;
        const char *path = path_below(c, it->path, any[i]);
        if (!path) return ERR_NOMEM;
        if (i == 1 && !c->exact) TRY(note_apart(c, it, v));
        enum role role = i == 1 && c->exact ? ROLE_ONE : ROLE_ANY;
        TRY(items_put(&x->todo, (struct item){.v = v, .path = path, .role = role}));
    }
    if ((v = json_object_get(it->v, "enum")))
        TRY(items_put(&x->todo, (struct item){.v = v, .path = it->path, .role = ROLE_ENUM}));
    if ((v = json_object_get(it->v, "const")))
        TRY(items_put(&x->todo, (struct item){.v = v, .path = it->path, .role = ROLE_VALUE}));
    if ((v = json_object_get(it->v, "not")))
        TRY(items_put(&x->todo, (struct item){.v = v, .path = it->path, .role = ROLE_NOT}));
    if (json_object_get(it->v, "if"))
        TRY(items_put(&x->todo, (struct item){.v = it->v, .path = it->path, .role = ROLE_IF}));
    static const char *const depends[] = {"dependencies", "dependentRequired", "dependentSchemas"};
    for (size_t i = 0; i < countof(depends); i++) {
        const char *key;
        json_t *e;
        json_object_foreach(json_object_get(it->v, depends[i]), key, e) TRY(items_put(
            &x->todo, (struct item){.v = e, .path = it->path, .role = ROLE_DEPENDS, .key = key}));
    }
    return items_put(&x->atoms, *it);
}

static int branches(struct compiler *c, const struct node_choice *x, const struct item *it)
{
    for (size_t i = 0; i < json_array_size(it->v); i++) {
        const char *path = path_at(c, it->path, "", i);
        if (!path) return ERR_NOMEM;
        TRY(branch(
            c, x, (struct item){.v = json_array_get(it->v, i), .path = path, .role = ROLE_SCHEMA}));
    }
    return 0;
}

/* Makes a choice for each branch of a oneOf: this branch, and all others negated. */
static int one_of(struct compiler *c, const struct node_choice *x, const struct item *it)
{
    size_t n = json_array_size(it->v);
    struct item part[64];
    if (n > countof(part))
        return bad_keyword(c, ERR_LIMIT, it->path, "oneOf",
                           "has %zu branches; at most 64 are possible, or use anyOf", n);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++)
            part[k] = (struct item){.v = json_array_get(it->v, k),
                                    .path = it->path,
                                    .role = k == i ? ROLE_SCHEMA : ROLE_NOT};
        TRY(branch_all(c, x, part, n));
    }
    return 0;
}

static int if_else(struct compiler *c, const struct node_choice *x, const struct item *it)
{
    struct item part[2] = {
        {.v = json_object_get(it->v, "if"), .path = it->path, .role = ROLE_SCHEMA},
        {.v = json_object_get(it->v, "then"), .path = it->path, .role = ROLE_SCHEMA}};
    const json_t *other = json_object_get(it->v, "else");
    if (!part[1].v && !other) return branch_all(c, x, part, 0);
    TRY(branch_all(c, x, part, part[1].v ? 2 : 1));
    part[0].role = ROLE_NOT;
    part[1].v = other;
    return branch_all(c, x, part, other ? 2 : 1);
}

static int depends(struct compiler *c, const struct node_choice *x, const struct item *it)
{
    struct item is = *it;
    is.role = ROLE_ABSENT;
    TRY(branch(c, x, is));
    struct item part[2] = {
        {.v = it->v, .path = it->path, .role = json_is_array(it->v) ? ROLE_NEEDS : ROLE_SCHEMA}};
    return branch(c, x, part[0]);
}

/* Makes the choices of an enum: one for all its scalars, one for each array and object. */
static int values(struct compiler *c, const struct node_choice *x, const struct item *it)
{
    bool scalars = false;
    for (size_t i = 0; i < json_array_size(it->v); i++) {
        const json_t *v = json_array_get(it->v, i);
        if (json_is_array(v) || json_is_object(v))
            TRY(branch(c, x, (struct item){.v = v, .path = it->path, .role = ROLE_VALUE}));
        else
            scalars = true;
    }
    return scalars ? branch(c, x, (struct item){.v = it->v, .path = it->path, .role = ROLE_SCALARS})
                   : 0;
}

/* --- a choice */

static int new_basic(struct compiler *c, enum basic_kind kind, struct basic **out)
{
    struct schema *s = c->s;
    if (s->n_basic == s->cap_basic) {
        uint32_t cap = s->cap_basic ? s->cap_basic * 2 : 64;
        struct basic *b = mem_grow(s->basic, cap, sizeof *b);
        if (!b) return ERR_NOMEM;
        s->basic = b;
        s->cap_basic = cap;
    }
    *out = &s->basic[s->n_basic++];
    **out = (struct basic){.kind = kind, .max = SCHEMA_MANY};
    return 0;
}

/* Finds the types that all atoms allow, and which of true and false they allow. */
static int types_of(const struct compiler *c, const struct items *atoms, unsigned *types,
                    bool truth[2])
{
    *types = T_ALL;
    truth[0] = truth[1] = true;
    for (uint32_t i = 0; i < atoms->n; i++) {
        const struct item *it = &atoms->v[i];
        unsigned named = 0;
        bool has[2] = {false, false};
        struct item out;
        if (forbidden(it, &out)) {
            for (size_t k = 0; k < n_scalars(&out); k++) {
                truth[0] &= !json_is_false(scalar(&out, k));
                truth[1] &= !json_is_true(scalar(&out, k));
                if (json_is_null(scalar(&out, k))) *types &= ~(unsigned)T_NULL;
            }
            continue;
        }
        if (it->role >= ROLE_AGAINST && it->role <= ROLE_NEEDS) {
            *types &= types_against(c, it);
            continue;
        }
        if (!lists_values(it)) {
            TRY(types_named(c, it, &named));
            *types &= named;
            continue;
        }
        for (size_t k = 0; k < n_scalars(it); k++) {
            const json_t *v = scalar(it, k);
            named |= type_of(v);
            has[0] |= json_is_false(v);
            has[1] |= json_is_true(v);
        }
        if (it->role == ROLE_SCALARS) named &= ~(unsigned)(T_ARRAY | T_OBJECT);
        truth[0] &= has[0];
        truth[1] &= has[1];
        *types &= named;
    }
    return 0;
}

static int make_basics(struct compiler *c, const struct items *atoms)
{
    unsigned types;
    bool truth[2];
    struct basic *b;
    TRY(types_of(c, atoms, &types, truth));
    if (types & T_NULL) TRY(new_basic(c, BASIC_NULL, &b));
    for (int i = 0; i < 2; i++)
        if (types & T_BOOL && truth[i]) TRY(new_basic(c, i ? BASIC_TRUE : BASIC_FALSE, &b));
    if (types & (T_INT | T_FRACTION)) {
        TRY(new_basic(c, BASIC_NUMBER, &b));
        TRY(make_number(c, atoms, types, b));
    }
    if (types & T_STRING) {
        TRY(new_basic(c, BASIC_STRING, &b));
        TRY(make_string(c, atoms, b));
    }
    if (types & T_ARRAY) {
        TRY(new_basic(c, BASIC_ARRAY, &b));
        TRY(make_array(c, atoms, b));
    }
    if (types & T_OBJECT) {
        TRY(new_basic(c, BASIC_OBJECT, &b));
        TRY(make_object(c, atoms, b));
    }
    return 0;
}

static int expand(struct compiler *c, struct node_choice *x)
{
    while (x->todo.n > 0) {
        struct item it = x->todo.v[--x->todo.n];
        if (++x->steps > STEPS)
            return bad_keyword(c, ERR_UNSUPPORTED, it.path, "$ref",
                               "leads back to itself without a value in between");
        if (it.role == ROLE_ANY) return branches(c, x, &it);
        if (it.role == ROLE_ENUM) return values(c, x, &it);
        if (it.role == ROLE_ONE) return one_of(c, x, &it);
        if (it.role == ROLE_IF) return if_else(c, x, &it);
        if (it.role == ROLE_DEPENDS) return depends(c, x, &it);
        if (it.role == ROLE_NOT && json_is_object(it.v)) return expand_not(c, &it, branch_all, x);
        if (it.role == ROLE_NOT) {
            if (json_is_true(it.v)) return 0;
            continue;
        }
        if (it.role != ROLE_SCHEMA) {
            TRY(items_put(&x->atoms, it));
            continue;
        }
        int nothing = open_schema(c, x, &it);
        if (nothing) return nothing < 0 ? nothing : 0;
    }
    if (++c->choices > CHOICES)
        return ERR(LIMIT, "%s: a part of the schema has more than %d alternatives", c->what,
                   CHOICES);
    TRY(dfa_pay(1000 + 100 * (uint64_t)x->atoms.n));
    return make_basics(c, &x->atoms);
}

int expand_node(struct compiler *c, uint32_t node)
{
    struct node_choice x = {0};
    uint32_t first = c->s->n_basic;
    c->choices = 0;
    int e = copy_items(&c->conj[node], &x.todo);
    if (e >= 0) e = expand(c, &x);
    items_done(&x.todo);
    items_done(&x.atoms);
    c->s->node[node].first = first;
    c->s->node[node].n = c->s->n_basic - first;
    return e;
}
