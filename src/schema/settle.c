/* settle.c - finds which nodes of a schema have values at all, and what can still follow at each point: the least
 * fixed point over nodes that may refer to each other.  Nodes without values are removed, so a text never enters
 * one. */
#include "schema/schema_int.h"

#include <string.h>

static bool bit(const uint64_t *v, uint32_t i)
{
    return v[i / 64] >> (i % 64) & 1;
}

static uint32_t count_bits(const uint64_t *v, uint32_t words)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < words; i++)
        n += (uint32_t)__builtin_popcountll(v[i]);
    return n;
}

static bool array_lives(const struct schema *s, const struct basic *b)
{
    if (b->min > b->max) return false;
    for (uint32_t i = 0; i < b->min && i < b->n_prefix; i++)
        if (!s->node[b->prefix[i]].live) return false;
    return b->min <= b->n_prefix || s->node[b->items].live;
}

static bool class_lives(const struct schema *s, const struct basic *b, uint32_t c)
{
    return s->node[b->value[c]].live && (c >= b->n_names || bit(b->usable, c));
}

static bool object_lives(const struct schema *s, const struct basic *b)
{
    uint64_t names = 0;
    if (b->min > b->max || b->n_required > b->max) return false;
    for (uint32_t c = 0; c < b->n_class; c++) {
        bool lives = class_lives(s, b, c);
        if (c < b->n_names && bit(b->required, c) && !lives) return false;
        if (lives) names += c < b->n_names ? 1 : (uint64_t)1 << 32;
    }
    return names >= b->min;
}

static bool basic_lives(const struct schema *s, const struct basic *b)
{
    switch (b->kind) {
    case BASIC_NULL:
    case BASIC_FALSE:
    case BASIC_TRUE:
        return true;
    case BASIC_NUMBER:
        return b->dfa->start != DFA_DEAD;
    case BASIC_STRING:
        return b->dfa->start != DFA_DEAD && b->min <= b->max;
    case BASIC_ARRAY:
        return array_lives(s, b);
    case BASIC_OBJECT:
        return object_lives(s, b);
    }
    return false;
}

static void find_live(struct schema *s)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = s->n_node; i-- > 0;) {
            struct value_node *n = &s->node[i];
            for (uint32_t k = 0; k < n->n; k++) {
                struct basic *b = &s->basic[n->first + k];
                if (b->live || !basic_lives(s, b)) continue;
                b->live = n->live = changed = true;
            }
        }
    }
}

static void settle_array(const struct schema *s, struct basic *b)
{
    uint32_t most = b->n_prefix;
    for (uint32_t i = 0; i < b->n_prefix && most == b->n_prefix; i++)
        if (!s->node[b->prefix[i]].live) most = i;
    if (most < b->n_prefix || !s->node[b->items].live) b->max = MIN(b->max, most);
    b->count = MAX(b->n_prefix, MAX(b->min, b->max == SCHEMA_MANY ? 0 : b->max));
}

/* Finds for each state of the names which names can still be completed.  States mostly lead to later ones, so one
 * pass from the last state to the first finds nearly all. */
static void find_reach(struct basic *b)
{
    const struct dfa *d = b->dfa;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t q = d->n_state; q-- > 0;) {
            uint64_t *to = b->reach + (size_t)q * b->words;
            uint32_t c = d->accept[q];
            uint8_t open = b->open[q] | (c > b->n_names);
            if (c && c <= b->n_names && !bit(to, c - 1)) {
                to[(c - 1) / 64] |= (uint64_t)1 << ((c - 1) % 64);
                changed = true;
            }
            for (uint32_t k = 0; k < d->n_class; k++) {
                uint32_t next = d->next[(size_t)q * d->n_class + k];
                if (next == DFA_DEAD) continue;
                open |= b->open[next];
                for (uint32_t w = 0; w < b->words; w++) {
                    uint64_t more = b->reach[(size_t)next * b->words + w] & ~to[w];
                    to[w] |= more;
                    changed |= more != 0;
                }
            }
            changed |= open != b->open[q];
            b->open[q] = open;
        }
    }
}

static int settle_object(const struct schema *s, struct basic *b)
{
    bool open = false;
    for (uint32_t c = 0; c < b->n_class; c++) {
        bool lives = class_lives(s, b, c);
        if (c < b->n_names && !lives) b->usable[c / 64] &= ~((uint64_t)1 << (c % 64));
        open |= c >= b->n_names && lives;
    }
    for (uint32_t q = 0; q < b->dfa->n_state; q++) {
        uint32_t c = b->dfa->accept[q];
        if (c && !class_lives(s, b, c - 1)) b->dfa->accept[q] = 0;
    }
    TRY(dfa_trim(b->dfa));
    /* A pass of find_reach takes this many steps, and the arrays that stay have a size in proportion. */
    TRY(dfa_pay((uint64_t)b->dfa->n_state * b->words * (4 + b->dfa->n_class / 4)));
    b->reach = mem_array((size_t)b->dfa->n_state * b->words + 1, sizeof *b->reach);
    b->open = mem_array((size_t)b->dfa->n_state + 1, sizeof *b->open);
    if (!b->reach || !b->open) return ERR_NOMEM;
    find_reach(b);
    uint32_t names = count_bits(b->usable, b->words);
    /* each name comes at most once, so this limit cannot be reached */
    if (!open && b->max >= names) b->max = SCHEMA_MANY;
    if (b->min <= b->n_required) b->min = 0;
    b->count = MAX(b->min, b->max == SCHEMA_MANY ? 0 : b->max);
    return open && b->min > b->n_required + 1 ? ERR_UNSUPPORTED : 0;
}

int schema_settle(struct schema *s, uint32_t *bad)
{
    find_live(s);
    for (uint32_t i = 0; i < s->n_basic; i++) {
        struct basic *b = &s->basic[i];
        if (!b->live) continue;
        *bad = i;
        if (b->kind == BASIC_ARRAY) settle_array(s, b);
        if (b->kind == BASIC_OBJECT) TRY(settle_object(s, b));
        if (b->kind == BASIC_STRING)
            b->count = b->any ? MAX(b->min, b->max == SCHEMA_MANY ? 0 : b->max) : 0;
    }
    return 0;
}
