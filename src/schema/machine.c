/* machine.c - one step of the automaton: from a thread and a byte to the threads that follow.  A step never leads
 * to a state from which no valid value can be completed.  So every token that a mask allows leaves a text that can
 * be completed.
 *
 * White space is limited to what JSON writers produce, so that a model cannot go on with blanks for ever.  Behind
 * a colon: one blank.  Behind a bracket or a comma, before a closing bracket, and before the whole value: one
 * blank, or one end of line and up to INDENT blanks or tabs. */
#include "schema/schema_int.h"

#include <string.h>

enum { SPACE_NONE, SPACE_CLOSED, SPACE_CR, SPACE_LINE, INDENT = 64 };
enum { FRAMES = 1 << 15, SETS = 1 << 15, SCRATCHES = 1 << 14, POOL = 1 << 14 };
enum { MOST_WORDS = 64 }; /* 4096 declared names */

struct name_set {
    uint64_t left[MOST_WORDS];
    bool open, some;
};
static const char *const literal[] = {"null", "false", "true"};

int machine_init(struct machine *m, const struct schema *s)
{
    *m = (struct machine){.s = s,
                          .cap_frame = FRAMES,
                          .cap_scratch = SCRATCHES,
                          .cap_set = SETS,
                          .cap_scratch_set = SETS,
                          .cap_pool = POOL,
                          .n_frame = 1};
    /* room for 256 sets of names of the object with the most names */
    for (uint32_t i = 0; i < s->n_basic; i++) {
        m->cap_set = MAX(m->cap_set, s->basic[i].words * 256);
        m->cap_scratch_set = m->cap_set;
    }
    m->frame = mem_array(m->cap_frame, sizeof *m->frame);
    m->scratch = mem_array(m->cap_scratch, sizeof *m->scratch);
    m->set = mem_array(m->cap_set, sizeof *m->set);
    m->scratch_set = mem_array(m->cap_scratch_set, sizeof *m->scratch_set);
    m->pool = mem_array(m->cap_pool, sizeof *m->pool);
    m->names = mem_alloc(sizeof *m->names);
    return m->names && m->frame && m->scratch && m->set && m->scratch_set && m->pool ? 0
                                                                                     : ERR_NOMEM;
}

void machine_done(struct machine *m)
{
    void *own[] = {m->frame, m->scratch, m->set, m->scratch_set, m->pool, m->names};
    for (size_t i = 0; i < countof(own); i++)
        mem_free(own[i]);
    *m = (struct machine){0};
}

static void emit(struct machine *m, const struct thread *t)
{
    if (m->n_pool == m->cap_pool)
        m->full = true;
    else
        m->pool[m->n_pool++] = *t;
}

/* Opens or changes a frame.  Returns 0 if there is no room. */
static uint32_t push_frame(struct machine *m, const struct frame *f)
{
    if (f->depth > DEPTH_MOST)
        /* The thread ends here, as if the text could not go on.  An error is raised when no other thread is left. */
        return 0;
    if (m->n_scratch == m->cap_scratch) {
        m->full = true;
        return 0;
    }
    m->scratch[m->n_scratch] = *f;
    return m->n_scratch++ | SCRATCH;
}

static const struct basic *basic_of(const struct machine *m, uint32_t i)
{
    return &m->s->basic[i];
}

/* --- white space */

static bool is_space(uint8_t b)
{
    return b == ' ' || b == '\t' || b == '\n' || b == '\r';
}

static void space(struct machine *m, const struct thread *t, uint8_t b)
{
    struct thread n = *t;
    bool blank = b == ' ' || b == '\t';
    if (t->space == SPACE_NONE && b == ' ')
        n.space = SPACE_CLOSED;
    else if (t->space == SPACE_NONE && !blank && !t->tight)
        n.space = b == '\r' ? SPACE_CR : SPACE_LINE;
    else if (t->space == SPACE_CR && b == '\n')
        n.space = SPACE_LINE;
    else if (t->space >= SPACE_LINE && blank && t->space < SPACE_LINE + INDENT)
        n.space++;
    else
        return;
    emit(m, &n);
}

/* --- names of an object */

/* Writes the declared names that may come next.  *open: names that are not declared may come, too.  Returns true
 * if any name may come. */
static bool names_left(const struct machine *m, const struct frame *f, uint64_t *left, bool *open)
{
    const struct basic *b = basic_of(m, f->basic);
    const uint64_t *seen = machine_set(m, f, b->words);
    uint32_t missing = 0;
    uint64_t any = 0;
    for (uint32_t i = 0; i < b->words; i++)
        missing += (uint32_t)__builtin_popcountll(b->required[i] & ~seen[i]);
    bool room = b->max == SCHEMA_MANY || f->count < b->max;
    bool forced = b->max != SCHEMA_MANY && b->max - MIN(f->count, b->max) == missing;
    for (uint32_t i = 0; i < b->words; i++) {
        left[i] = room ? (forced ? b->required[i] : b->usable[i]) & ~seen[i] : 0;
        any |= left[i];
    }
    *open = room && !forced && b->dfa->start != DFA_DEAD && b->open[b->dfa->start];
    return any || *open;
}

/* Returns the names that may come next in a frame; valid until the next call. */
static const struct name_set *names_of(struct machine *m, uint32_t frame)
{
    if (frame & SCRATCH || frame != m->named) {
        struct name_set *n = m->names;
        n->some = names_left(m, machine_frame(m, frame), n->left, &n->open);
        m->named = frame & SCRATCH ? 0 : frame;
    }
    return m->names;
}

/* True if a name that may come next begins with the text that led to state q of the automaton of names. */
static bool name_alive(const struct basic *b, const struct name_set *n, uint32_t q)
{
    if (q == DFA_DEAD) return false;
    if (n->open && b->open[q]) return true;
    for (uint32_t i = 0; i < b->words; i++)
        if (b->reach[(size_t)q * b->words + i] & n->left[i]) return true;
    return false;
}

/* --- characters of strings and names */

struct reader { /* the string or name that a character belongs to */
    const struct basic *b;
    const struct name_set *names; /* NULL: a string */
    bool plain;                   /* \\u may not write printable ASCII (can_code) */
};

static bool alive(const struct reader *r, const struct thread *t, uint32_t q)
{
    if (r->names) return name_alive(r->b, r->names, q);
    return q != DFA_DEAD && (!r->b->any || r->b->max == SCHEMA_MANY || t->count < r->b->max);
}

/* True if a character in [lo, hi] may follow. */
static bool can(const struct reader *r, const struct thread *t, uint32_t lo, uint32_t hi)
{
    const struct dfa *d = r->b->dfa;
    if (lo > hi) return false;
    for (uint32_t i = dfa_span(d, lo); i < d->n_span && d->from[i] <= hi; i++) {
        uint32_t last = i + 1 < d->n_span ? d->from[i + 1] - 1 : CP_LAST;
        if (MAX(lo, d->from[i]) >= 0xD800 && MIN(hi, last) <= 0xDFFF)
            continue; /* surrogates alone */
        if (alive(r, t, d->next[(size_t)t->q * d->n_class + d->of[i]])) return true;
    }
    return false;
}

/* True if \\u may write a character in [lo, hi].  In names, and where keywords limit a string, \\u may not write
 * printable ASCII: otherwise each such text would have a thousand spellings that no program writes. */
static bool can_code(const struct reader *r, const struct thread *t, uint32_t lo, uint32_t hi)
{
    if (!r->plain) return can(r, t, lo, hi);
    return can(r, t, lo, MIN(hi, 0x1F)) || can(r, t, MAX(lo, 0x7F), hi);
}

static bool can_escape(const struct reader *r, const struct thread *t)
{
    return can_code(r, t, 0, CP_LAST) || can(r, t, '"', '"') || can(r, t, '\\', '\\');
}

/* Takes a whole character. */
static void character(struct machine *m, const struct reader *r, const struct thread *t,
                      uint32_t cp)
{
    uint32_t q = dfa_next(r->b->dfa, t->q, cp);
    if ((cp >= 0xD800 && cp <= 0xDFFF) || !alive(r, t, q)) return;
    struct thread n = *t;
    n.q = q;
    n.stage = STAGE_CHAR;
    n.part = 0;
    n.high = 0;
    n.left = n.size = 0;
    if (!r->names && t->count < r->b->count) n.count++;
    emit(m, &n);
}

static void utf8(struct machine *m, const struct reader *r, const struct thread *t, uint8_t b)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    struct thread n = *t;
    if (t->stage == STAGE_CHAR) {
        n.size = b >= 0xF0 ? 4 : b >= 0xE0 ? 3 : 2;
        if (b < 0xC2 || b > 0xF4) return;
        n.stage = STAGE_UTF8;
        n.left = n.size - 1;
        n.part = b & (0x7Fu >> n.size);
    } else {
        if ((b & 0xC0) != 0x80) return;
        n.part = t->part << 6 | (b & 0x3F);
        n.left--;
    }
    uint32_t lo = n.part << (6 * n.left), hi = lo | ((1u << (6 * n.left)) - 1);
    lo = MAX(lo, least[n.size]);
    hi = MIN(hi, CP_LAST);
    if (lo > hi) return;
    if (!n.left)
        character(m, r, t, n.part);
    else if (can(r, t, lo, hi))
        emit(m, &n);
}

static uint32_t digit_of(uint8_t b)
{
    uint8_t c = b | 0x20;
    return b >= '0' && b <= '9'   ? (uint32_t)b - '0'
           : c >= 'a' && c <= 'f' ? (uint32_t)c - 'a' + 10
                                  : 16;
}

static uint32_t joined(uint32_t high, uint32_t low)
{
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/* Takes a hexadecimal digit of \uXXXX. */
static void hex(struct machine *m, const struct reader *r, const struct thread *t, uint8_t b)
{
    struct thread n = *t;
    uint32_t d = digit_of(b), low = t->stage == STAGE_LOW_HEX;
    if (d == 16) return;
    n.part = t->part << 4 | d;
    n.left--;
    uint32_t lo = n.part << (4 * n.left), hi = lo | ((1u << (4 * n.left)) - 1);
    if (low) {
        lo = MAX(lo, 0xDC00);
        hi = MIN(hi, 0xDFFF);
        if (lo > hi) return;
        if (!n.left)
            character(m, r, t, joined(t->high, lo));
        else if (can(r, t, joined(t->high, lo), joined(t->high, hi)))
            emit(m, &n);
        return;
    }
    uint32_t first = MAX(lo, 0xD800), last = MIN(hi, 0xDBFF);
    bool pair = first <= last && can(r, t, joined(first, 0xDC00), joined(last, 0xDFFF));
    if (n.left) {
        if (pair || can_code(r, t, lo, hi)) emit(m, &n);
    } else if (first <= last) {
        n.stage = STAGE_LOW_SLASH;
        n.high = (uint16_t)n.part;
        n.part = 0;
        if (pair) emit(m, &n);
    } else if (!r->plain || lo < 0x20 || lo > 0x7E) {
        character(m, r, t, n.part);
    }
}

static void escape(struct machine *m, const struct reader *r, const struct thread *t, uint8_t b)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = b ? strchr(from, b) : NULL;
    if (at) {
        if (b != '/' || !r->plain) character(m, r, t, (uint8_t)to[at - from]);
    } else if (b == 'u') {
        struct thread n = *t;
        n.stage = STAGE_HEX;
        n.left = 4;
        n.part = 0;
        if (can_code(r, t, 0, CP_LAST)) emit(m, &n);
    }
}

/* Takes a byte inside a string, other than its closing quote. */
static void inside(struct machine *m, const struct reader *r, const struct thread *t, uint8_t b)
{
    struct thread n = *t;
    switch (t->stage) {
    case STAGE_CHAR:
        if (b >= 0x80) {
            utf8(m, r, t, b);
        } else if (b == '\\') {
            n.stage = STAGE_ESCAPE;
            if (can_escape(r, t)) emit(m, &n);
        } else if (b >= 0x20) {
            character(m, r, t, b);
        }
        return;
    case STAGE_UTF8:
        utf8(m, r, t, b);
        return;
    case STAGE_ESCAPE:
        escape(m, r, t, b);
        return;
    case STAGE_HEX:
    case STAGE_LOW_HEX:
        hex(m, r, t, b);
        return;
    case STAGE_LOW_SLASH:
        n.stage = STAGE_LOW_U;
        if (b == '\\') emit(m, &n);
        return;
    case STAGE_LOW_U:
        n.stage = STAGE_LOW_HEX;
        n.left = 4;
        if (b == 'u') emit(m, &n);
    }
}

/* --- values */

static void after(struct machine *m, uint32_t frame)
{
    emit(m, &(struct thread){.frame = frame, .mode = MODE_AFTER});
}

static void string(struct machine *m, const struct thread *t, uint8_t b)
{
    const struct basic *k = basic_of(m, t->what);
    if (b == '"' && t->stage == STAGE_CHAR) {
        if (k->dfa->accept[t->q] && (!k->any || t->count >= k->min)) after(m, t->frame);
        return;
    }
    inside(m, &(struct reader){.b = k, .plain = !k->any}, t, b);
}

/* Takes the closing quote of a name, and notes the name in the frame. */
static void named(struct machine *m, const struct thread *t, const struct name_set *names)
{
    const struct frame *f = machine_frame(m, t->frame);
    const struct basic *b = basic_of(m, f->basic);
    struct frame n = *f;
    uint32_t c = b->dfa->accept[t->q];
    if (!c--) return;
    if (c < b->n_names ? !(names->left[c / 64] >> (c % 64) & 1) : !names->open) return;
    if (f->count < b->count) n.count++;
    if (c < b->n_names && b->words == 1) {
        n.seen |= (uint64_t)1 << c;
    } else if (c < b->n_names) {
        if (m->cap_scratch_set - m->n_scratch_set < b->words) {
            m->full = true;
            return;
        }
        uint64_t *to = m->scratch_set + m->n_scratch_set;
        memcpy(to, machine_set(m, f, b->words), b->words * sizeof *to);
        to[c / 64] |= (uint64_t)1 << (c % 64);
        n.seen = m->n_scratch_set | SCRATCH;
        m->n_scratch_set += b->words;
    }
    uint32_t frame = push_frame(m, &n);
    if (frame) emit(m, &(struct thread){.frame = frame, .what = b->value[c], .mode = MODE_COLON});
}

static void name_byte(struct machine *m, const struct thread *t, uint8_t b)
{
    const struct frame *f = machine_frame(m, t->frame);
    const struct name_set *names = names_of(m, t->frame);
    if (b == '"' && t->stage == STAGE_CHAR)
        named(m, t, names);
    else
        inside(m, &(struct reader){.b = basic_of(m, f->basic), .names = names, .plain = true}, t,
               b);
}

static void open_frame(struct machine *m, const struct thread *t, uint32_t basic)
{
    const struct basic *b = basic_of(m, basic);
    struct frame n = {
        .parent = t->frame, .basic = basic, .depth = machine_frame(m, t->frame)->depth + 1};
    if (b->kind == BASIC_OBJECT && b->words > 1) {
        if (m->cap_scratch_set - m->n_scratch_set < b->words) {
            m->full = true;
            return;
        }
        memset(m->scratch_set + m->n_scratch_set, 0, b->words * sizeof *m->scratch_set);
        n.seen = m->n_scratch_set | SCRATCH;
        m->n_scratch_set += b->words;
    }
    uint32_t frame = push_frame(m, &n);
    if (frame) emit(m, &(struct thread){.frame = frame, .mode = MODE_FIRST});
}

/* Takes the first byte of a value, for one type. */
static void begin_value(struct machine *m, const struct thread *t, uint32_t basic, uint8_t byte)
{
    const struct basic *b = basic_of(m, basic);
    struct thread n = {.frame = t->frame, .what = basic};
    switch (b->kind) {
    case BASIC_NULL:
    case BASIC_FALSE:
    case BASIC_TRUE:
        n.mode = MODE_LITERAL;
        n.q = 1;
        if (byte == (uint8_t)literal[b->kind][0]) emit(m, &n);
        return;
    case BASIC_NUMBER:
        n.mode = MODE_NUMBER;
        n.q = byte < 128 ? dfa_next(b->dfa, b->dfa->start, byte) : DFA_DEAD;
        if (n.q != DFA_DEAD) emit(m, &n);
        return;
    case BASIC_STRING:
        n.mode = MODE_STRING;
        n.q = b->dfa->start;
        if (byte == '"') emit(m, &n);
        return;
    case BASIC_ARRAY:
        if (byte == '[') open_frame(m, t, basic);
        return;
    case BASIC_OBJECT:
        if (byte == '{') open_frame(m, t, basic);
    }
}

static void value(struct machine *m, const struct thread *t, uint8_t byte)
{
    const struct value_node *n = &m->s->node[t->what];
    if (is_space(byte)) {
        space(m, t, byte);
        return;
    }
    for (uint32_t i = 0; i < n->n; i++)
        if (m->s->basic[n->first + i].live) begin_value(m, t, n->first + i, byte);
}

/* --- arrays and objects */

/* Makes a frame with one more item, and a thread that stands before the item.  False: the array may have no more
 * items. */
static bool item(struct machine *m, uint32_t frame, struct thread *out)
{
    struct frame f = *machine_frame(m, frame);
    const struct basic *b = basic_of(m, f.basic);
    if (b->max != SCHEMA_MANY && f.count >= b->max) return false;
    *out = (struct thread){.what = f.count < b->n_prefix ? b->prefix[f.count] : b->items,
                           .mode = MODE_VALUE};
    if (f.count == b->count) {
        out->frame = frame;
        return true;
    }
    f.count++;
    return (out->frame = push_frame(m, &f)) != 0;
}

static bool closes(const struct machine *m, const struct frame *f, uint8_t byte)
{
    const struct basic *b = basic_of(m, f->basic);
    if (byte != (b->kind == BASIC_ARRAY ? ']' : '}') || f->count < b->min) return false;
    if (b->kind == BASIC_ARRAY) return true;
    const uint64_t *seen = machine_set(m, f, b->words);
    for (uint32_t i = 0; i < b->words; i++)
        if (b->required[i] & ~seen[i]) return false;
    return true;
}

/* Takes a quote where the name of a property may begin. */
static void begin_name(struct machine *m, const struct thread *t, uint8_t byte)
{
    const struct frame *f = machine_frame(m, t->frame);
    if (byte != '"') return;
    if (names_of(m, t->frame)->some)
        emit(m, &(struct thread){
                    .frame = t->frame, .q = basic_of(m, f->basic)->dfa->start, .mode = MODE_NAME});
}

static void first(struct machine *m, const struct thread *t, uint8_t byte)
{
    const struct frame *f = machine_frame(m, t->frame);
    struct thread n;
    if (closes(m, f, byte))
        after(m, f->parent);
    else if (basic_of(m, f->basic)->kind == BASIC_OBJECT)
        begin_name(m, t, byte);
    else if (byte != ']' && item(m, t->frame, &n))
        value(m, &n, byte);
}

static void behind(struct machine *m, const struct thread *t, uint8_t byte)
{
    const struct frame *f = machine_frame(m, t->frame);
    struct thread n;
    if (!t->frame) return;
    if (closes(m, f, byte)) {
        after(m, f->parent);
    } else if (t->space != SPACE_NONE) {
        return;
    } else if (byte == ',' && basic_of(m, f->basic)->kind == BASIC_ARRAY) {
        if (item(m, t->frame, &n)) emit(m, &n);
    } else if (byte == ',') {
        if (names_of(m, t->frame)->some)
            emit(m, &(struct thread){.frame = t->frame, .mode = MODE_NEXT});
    }
}

static void number_byte(struct machine *m, const struct thread *t, uint8_t byte)
{
    const struct basic *b = basic_of(m, t->what);
    struct thread n = *t;
    n.q = byte < 128 ? dfa_next(b->dfa, t->q, byte) : DFA_DEAD;
    if (n.q != DFA_DEAD) {
        emit(m, &n);
    } else if (b->dfa->accept[t->q] && t->frame) {
        n = (struct thread){.frame = t->frame, .mode = MODE_AFTER};
        machine_step(m, &n, byte);
    }
}

static void word(struct machine *m, const struct thread *t, uint8_t byte)
{
    const char *s = literal[basic_of(m, t->what)->kind];
    struct thread n = *t;
    if (byte != (uint8_t)s[t->q]) return;
    n.q++;
    if (s[n.q])
        emit(m, &n);
    else
        after(m, t->frame);
}

/* True if a value has just ended and the array or object around it may end. */
static bool may_close(const struct machine *m, const struct thread *t)
{
    if (t->mode != MODE_AFTER || !t->frame) return false;
    const struct frame *f = machine_frame(m, t->frame);
    return closes(m, f, basic_of(m, f->basic)->kind == BASIC_ARRAY ? ']' : '}');
}

void machine_step(struct machine *m, const struct thread *t, uint8_t byte)
{
    if (is_space(byte) && (t->mode == MODE_FIRST || t->mode == MODE_NEXT || may_close(m, t))) {
        space(m, t, byte);
        return;
    }
    if (t->space == SPACE_CR && !is_space(byte)) return;
    switch (t->mode) {
    case MODE_VALUE:
        value(m, t, byte);
        return;
    case MODE_LITERAL:
        word(m, t, byte);
        return;
    case MODE_NUMBER:
        number_byte(m, t, byte);
        return;
    case MODE_STRING:
        string(m, t, byte);
        return;
    case MODE_NAME:
        name_byte(m, t, byte);
        return;
    case MODE_COLON:
        if (byte == ':')
            emit(m, &(struct thread){
                        .frame = t->frame, .what = t->what, .mode = MODE_VALUE, .tight = 1});
        return;
    case MODE_FIRST:
        first(m, t, byte);
        return;
    case MODE_NEXT:
        begin_name(m, t, byte);
        return;
    case MODE_AFTER:
        behind(m, t, byte);
    }
}

bool machine_accepts(const struct machine *m, const struct thread *t)
{
    if (t->frame) return false;
    return t->mode == MODE_AFTER ||
           (t->mode == MODE_NUMBER && basic_of(m, t->what)->dfa->accept[t->q] != 0);
}
