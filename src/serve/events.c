/* events.c - publishes which blocks the cache holds; see events.h.
 *
 * The thread that computes notes each block, and packs the notes of one of its turns as one message.  A thread of its own owns the
 * sockets.  It sends the messages, keeps the newest ones, and answers subscribers who ask for them again.  Publishing never waits for
 * a subscriber.  A subscriber that is too slow misses messages, notices that by the numbers of the messages, and asks for them. */
#include "serve/events.h"
#include "base/base.h"

#ifdef KVIK_EVENTS
#include "base/built.h"
#include "base/thread.h"

#include <errno.h>
#include <msgpack.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

enum {
    BLOCK = 16,   /* tokens */
    KEPT = 10000, /* messages that can be asked for again */
    KEPT_BYTES = 64 << 20,
    ASKED = 1024,    /* largest message from outside: a number, or a topic */
    LINGER_MS = 500, /* how long the last messages may take when the server ends */
    /* At most this many askers at once, each with a limit of messages that it has not read.  Without these limits a
     * question of a few bytes could take as much memory as all kept messages. */
    ASKERS = 16,
    UNREAD = 64,
    PACE_MS = 2,
    WHO = 255 /* largest name that a socket gives to an asker */
};
/* Seconds after which an asker that does not read is forgotten, and after which another asker may have its place. */
#define STALL_SECONDS 10.0
#define PLACE_SECONDS 0.1

struct message {
    struct message *next;
    uint64_t number;
    size_t n;
    char data[];
};
/* A block that was stored or removed. */
struct note {
    uint64_t hash, before;
    bool stored, first;
    int32_t ids[BLOCK];
};
/* An asker: a subscriber that wants the messages from `next` on, before `end`. */
struct asker {
    unsigned char who[WHO];
    size_t n_who;
    uint64_t next, end;
    double moved; /* when it last had room for a message */
};
struct events {
    void *zmq, *pub, *replay; /* replay may be NULL */
    char *topic;              /* owned */
    int bell;
    pthread_t thread;
    bool runs;
    /* Only the thread that computes uses these fields. */
    kvik_cache *cache;
    struct note *note; /* [n_notes] owned */
    size_t n_notes, cap;
    bool clears; /* the message begins with AllBlocksCleared */
    bool lost;   /* memory was short for a note, so all blocks are told again */
    uint64_t number;
    /* The lock guards these fields. */
    pthread_mutex_t lock;
    struct message *first, **last;
    bool closing;
    /* Only the thread of the sockets uses these fields.  `kept` is a ring. */
    struct message **kept; /* [KEPT] owned */
    uint32_t oldest, n_kept;
    size_t kept_bytes;
    struct asker asker[ASKERS];
    uint32_t n_askers;
};

/* --- What the cache tells. */

static uint64_t hash_of(const uint8_t *key)
{
    uint64_t h = 0;
    for (int i = 0; key && i < 8; i++)
        h = h << 8 | key[i];
    return h;
}

static void on_block(void *ctx, const kvik_block *b)
{
    struct events *e = ctx;
    if (e->n_notes == e->cap) {
        size_t cap = MAX(64, 2 * e->cap);
        struct note *more = mem_grow(e->note, cap, sizeof *more);
        if (!more) {
            e->lost = true;
            return;
        }
        e->note = more;
        e->cap = cap;
    }
    struct note *n = &e->note[e->n_notes++];
    *n = (struct note){.hash = hash_of(b->key),
                       .before = hash_of(b->before),
                       .stored = b->stored,
                       .first = !b->before};
    memcpy(n->ids, b->ids, sizeof n->ids);
}

int events_watch(struct events *e, kvik_cache *c)
{
    kvik_cache *old = e->cache;
    int err = old && old != c ? kvik_cache_observe(old, NULL, NULL) : 0;
    e->cache = c;
    e->n_notes = 0;
    e->clears = true;
    e->lost = false;
    if (err >= 0 && c) err = kvik_cache_observe(c, on_block, e);
    e->lost |= err < 0;
    return err;
}

/* --- Messages. */

struct packed {
    msgpack_sbuffer b;
    bool failed; /* some bytes are missing, though later ones may have had room */
};
static int pack_bytes(void *packed, const char *data, size_t n)
{
    struct packed *to = packed;
    to->failed |= msgpack_sbuffer_write(&to->b, data, n) < 0;
    return to->failed ? -1 : 0;
}

static void pack_text(msgpack_packer *p, const char *s)
{
    msgpack_pack_str_with_body(p, s, strlen(s));
}

/* Returns how many notes from n on make one event: stored blocks that follow one another, or removed blocks. */
static size_t run_of(const struct note *n, size_t most)
{
    size_t k = 1;
    while (k < most && n[k].stored == n->stored &&
           (!n->stored || (!n[k].first && n[k].before == n[k - 1].hash)))
        k++;
    return k;
}

static void pack_run(msgpack_packer *p, const struct note *n, size_t len)
{
    msgpack_pack_array(p, n->stored ? 7 : 3);
    pack_text(p, n->stored ? "BlockStored" : "BlockRemoved");
    msgpack_pack_array(p, len);
    for (size_t i = 0; i < len; i++)
        msgpack_pack_uint64(p, n[i].hash);
    if (n->stored) {
        if (n->first)
            msgpack_pack_nil(p);
        else
            msgpack_pack_uint64(p, n->before);
        msgpack_pack_array(p, len * BLOCK);
        for (size_t i = 0; i < len * BLOCK; i++)
            msgpack_pack_int32(p, n[i / BLOCK].ids[i % BLOCK]);
        msgpack_pack_int(p, BLOCK);
        msgpack_pack_nil(p); /* lora_id: there are no adapters */
    }
    pack_text(p, "GPU");
}

static struct message *pack(const struct events *e)
{
    struct timespec now;
    struct packed to = {.failed = false};
    msgpack_packer p;
    size_t runs = e->clears;
    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < e->n_notes; i += run_of(e->note + i, e->n_notes - i))
        runs++;
    msgpack_sbuffer_init(&to.b);
    msgpack_packer_init(&p, &to, pack_bytes);
    msgpack_pack_array(&p, 3);
    msgpack_pack_double(&p, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    msgpack_pack_array(&p, runs);
    if (e->clears) {
        msgpack_pack_array(&p, 1);
        pack_text(&p, "AllBlocksCleared");
    }
    for (size_t i = 0, n; i < e->n_notes; i += n) {
        n = run_of(e->note + i, e->n_notes - i);
        pack_run(&p, e->note + i, n);
    }
    msgpack_pack_int(&p, 0);
    struct message *m = to.failed ? NULL : mem_alloc(sizeof *m + to.b.size);
    if (m) {
        m->n = to.b.size;
        memcpy(m->data, to.b.data, to.b.size);
    }
    msgpack_sbuffer_destroy(&to.b);
    return m;
}

static void ring(const struct events *e)
{
    uint64_t one = 1;
    ssize_t w;
    do
        w = write(e->bell, &one, sizeof one);
    while (w < 0 && errno == EINTR);
}

void events_flush(struct events *e)
{
    if (!e || (!e->n_notes && !e->clears && !e->lost)) return;
    if (e->lost && events_watch(e, e->cache) < 0) return;
    struct message *m = pack(e);
    e->n_notes = 0;
    e->clears = false;
    e->lost |= !m;
    if (!m) return;
    m->number = e->number++;
    pthread_mutex_lock(&e->lock);
    *e->last = m;
    e->last = &m->next;
    pthread_mutex_unlock(&e->lock);
    ring(e);
}

/* --- The thread of the sockets. */

static void number_text(uint64_t number, unsigned char out[8])
{
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(number >> (56 - 8 * i));
}

static void forget_oldest(struct events *e)
{
    struct message *m = e->kept[e->oldest];
    e->kept_bytes -= m->n;
    e->kept[e->oldest] = NULL;
    e->oldest = (e->oldest + 1) % KEPT;
    e->n_kept--;
    mem_free(m);
}

static void keep(struct events *e, struct message *m)
{
    while (e->n_kept && (e->n_kept == KEPT || e->kept_bytes + m->n > KEPT_BYTES))
        forget_oldest(e);
    e->kept[(e->oldest + e->n_kept++) % KEPT] = m;
    e->kept_bytes += m->n;
}

static void publish(struct events *e)
{
    pthread_mutex_lock(&e->lock);
    struct message *m = e->first, *next;
    e->first = NULL;
    e->last = &e->first;
    pthread_mutex_unlock(&e->lock);
    for (; m; m = next) {
        unsigned char number[8];
        next = m->next;
        number_text(m->number, number);
        zmq_send(e->pub, e->topic, strlen(e->topic), ZMQ_SNDMORE | ZMQ_DONTWAIT);
        zmq_send(e->pub, number, sizeof number, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        zmq_send(e->pub, m->data, m->n, ZMQ_DONTWAIT);
        keep(e, m);
    }
}

/* Reads a question: who asks, an empty frame, and the number to begin with.  False: the message is not a question. */
static bool read_question(struct events *e, zmq_msg_t *who, uint64_t *from)
{
    bool good = zmq_msg_recv(who, e->replay, ZMQ_DONTWAIT) >= 0, more = zmq_msg_more(who);
    for (int frame = 1; more; frame++) {
        zmq_msg_t m;
        zmq_msg_init(&m);
        if (zmq_msg_recv(&m, e->replay, ZMQ_DONTWAIT) < 0) return false;
        const unsigned char *data = zmq_msg_data(&m);
        more = zmq_msg_more(&m);
        good &= zmq_msg_size(&m) == (frame == 1 ? 0 : 8) && frame <= 2 && more == (frame == 1);
        *from = 0;
        for (int i = 0; good && frame == 2 && i < 8; i++)
            *from = *from << 8 | data[i];
        zmq_msg_close(&m);
    }
    return good;
}

/* Sends an asker a message.  Returns 1 if it was sent, 0 if as many wait for the asker as may, -1 if the asker is
 * gone. */
static int give(struct events *e, const struct asker *a, uint64_t number, const char *data,
                size_t n)
{
    unsigned char text[8];
    number_text(number, text);
    if (zmq_send(e->replay, a->who, a->n_who, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
        return errno == EAGAIN ? 0 : -1;
    bool good = zmq_send(e->replay, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
                zmq_send(e->replay, text, sizeof text, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
                zmq_send(e->replay, data, n, ZMQ_DONTWAIT) >= 0;
    return good ? 1 : -1;
}

/* Sends an asker as many messages as there is room for.  Returns as `give` does; 1: the asker has all messages. */
static int go_on(struct events *e, struct asker *a)
{
    int sent = 1;
    while (sent > 0 && a->next < a->end && e->n_kept) {
        uint64_t oldest = e->kept[e->oldest]->number;
        a->next = MAX(a->next, oldest);
        if (a->next >= MIN(a->end, oldest + e->n_kept)) break;
        const struct message *m = e->kept[(e->oldest + (a->next - oldest)) % KEPT];
        if ((sent = give(e, a, m->number, m->data, m->n)) > 0) {
            a->next++;
            a->moved = now_seconds();
        }
    }
    return sent > 0 ? give(e, a, UINT64_MAX, "", 0) : sent;
}

/* Continues with all askers.  Forgets those that do not read. */
static void go_on_all(struct events *e)
{
    for (uint32_t i = 0; i < e->n_askers;) {
        struct asker *a = &e->asker[i];
        int sent = go_on(e, a);
        if (sent != 0 || now_seconds() > a->moved + STALL_SECONDS)
            *a = e->asker[--e->n_askers];
        else
            i++;
    }
}

/* Returns the asker that has had no room for longest. */
static uint32_t slowest(const struct events *e)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < e->n_askers; i++)
        if (e->asker[i].moved < e->asker[at].moved) at = i;
    return at;
}

static bool has_place(const struct events *e)
{
    return e->n_askers < ASKERS || now_seconds() > e->asker[slowest(e)].moved + PLACE_SECONDS;
}

/* Takes a question.  A newer question replaces the earlier one of the same asker. */
static void replay(struct events *e)
{
    zmq_msg_t who;
    uint64_t from = 0;
    zmq_msg_init(&who);
    if (read_question(e, &who, &from) && zmq_msg_size(&who) <= WHO) {
        struct asker a = {.n_who = zmq_msg_size(&who), .next = from, .moved = now_seconds()};
        uint32_t i = 0;
        memcpy(a.who, zmq_msg_data(&who), a.n_who);
        if (e->n_kept) a.end = e->kept[e->oldest]->number + e->n_kept;
        while (i < e->n_askers &&
               (e->asker[i].n_who != a.n_who || memcmp(e->asker[i].who, a.who, a.n_who) != 0))
            i++;
        if (i == ASKERS) i = slowest(e);
        e->asker[i] = a;
        e->n_askers = MAX(e->n_askers, i + 1);
    }
    zmq_msg_close(&who);
}

static void *thread_main(void *arg)
{
    struct events *e = arg;
    bool ends = false;
    while (!ends) {
        bool asks = e->replay && has_place(e);
        zmq_pollitem_t item[] = {{.fd = e->bell, .events = ZMQ_POLLIN},
                                 {.socket = e->replay, .events = ZMQ_POLLIN}};
        if (zmq_poll(item, 1 + asks, e->n_askers ? PACE_MS : -1) < 0 && errno != EINTR) break;
        if (item[0].revents) {
            uint64_t rung;
            if (read(e->bell, &rung, sizeof rung) < 0 && errno != EAGAIN && errno != EINTR) break;
            pthread_mutex_lock(&e->lock);
            ends = e->closing;
            pthread_mutex_unlock(&e->lock);
            publish(e);
        }
        if (asks && item[1].revents) replay(e);
        go_on_all(e);
    }
    return NULL;
}

/* --- Opening and closing. */

/* Binds a socket to an endpoint.  A port alone means loopback. */
static int bind_to(struct events *e, int type, const char *where, const char *option, void **out)
{
    char endpoint[300];
    int most = ASKED, linger = LINGER_MS, waiting = type == ZMQ_PUB ? KEPT + 2 : UNREAD, one = 1;
    bool port = *where && where[strspn(where, "0123456789")] == 0;
    snprintf(endpoint, sizeof endpoint, "%s%s", port ? "tcp://127.0.0.1:" : "", where);
    if (!(*out = zmq_socket(e->zmq, type)))
        return ERR(NOMEM, "--%s: no socket: %s", option, zmq_strerror(errno));
    zmq_setsockopt(*out, ZMQ_IPV6, &one, sizeof one);
    zmq_setsockopt(*out, ZMQ_MAXMSGSIZE, &(int64_t){most}, sizeof(int64_t));
    zmq_setsockopt(*out, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(*out, ZMQ_SNDHWM, &waiting, sizeof waiting);
    /* Sending then fails if there is no room, instead of dropping the message. */
    if (type == ZMQ_ROUTER) zmq_setsockopt(*out, ZMQ_ROUTER_MANDATORY, &one, sizeof one);
    if (zmq_bind(*out, endpoint) == 0) return 0;
    return ERR(IO, "--%s: %s cannot be bound: %s (tcp://127.0.0.1:5557, or a port alone)", option,
               endpoint, zmq_strerror(errno));
}

static int open_sockets(struct events *e, const struct serve_options *o)
{
    if (!(e->zmq = zmq_ctx_new())) return ERR(NOMEM, "--kv-events: %s", zmq_strerror(errno));
    TRY(bind_to(e, ZMQ_PUB, o->events, "kv-events", &e->pub));
    if (o->events_replay)
        TRY(bind_to(e, ZMQ_ROUTER, o->events_replay, "kv-events-replay", &e->replay));
    if ((e->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return ERR(IO, "--kv-events: no eventfd");
    if (thread_start(&e->thread, NULL, thread_main, e) != 0)
        return ERR(NOMEM, "a thread for --kv-events cannot be started");
    e->runs = true;
    return 0;
}

int events_open(const struct serve_options *o, struct events **out)
{
    char topic[512];
    if (!o->events) return 0;
    struct events *e = mem_alloc(sizeof *e);
    if (!e) return ERR_NOMEM;
    *e = (struct events){.bell = -1, .last = &e->first};
    pthread_mutex_init(&e->lock, NULL);
    snprintf(topic, sizeof topic, "kv@%s:%u@%s", o->host, o->port, o->name);
    e->topic = mem_strdup(o->events_topic ? o->events_topic : topic);
    e->kept = mem_array(KEPT, sizeof *e->kept);
    int err = e->topic && e->kept ? open_sockets(e, o) : ERR_NOMEM;
    if (err < 0)
        events_close(e);
    else
        *out = e;
    return err;
}

void events_close(struct events *e)
{
    if (!e) return;
    if (e->cache) {
        (void)events_watch(e, NULL);
        events_flush(e);
    }
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    pthread_mutex_unlock(&e->lock);
    if (e->runs) {
        ring(e);
        pthread_join(e->thread, NULL);
    }
    while (e->n_kept)
        forget_oldest(e);
    if (e->pub) zmq_close(e->pub);
    if (e->replay) zmq_close(e->replay);
    if (e->zmq) zmq_ctx_term(e->zmq);
    if (e->bell >= 0) close(e->bell);
    pthread_mutex_destroy(&e->lock);
    mem_free(e->kept);
    mem_free(e->note);
    mem_free(e->topic);
    mem_free(e);
}

static int name(struct buf *b)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    return buf_printf(b, "libzmq %d.%d.%d", major, minor, patch);
}
BUILT(zmq, BUILT_LIBRARIES, name);
#else

int events_open(const struct serve_options *o, struct events **out)
{
    (void)out;
    return o->events ? ERR(UNSUPPORTED, "--kv-events: this build has no libzmq or no msgpack") : 0;
}
int events_watch(struct events *e, kvik_cache *c)
{
    (void)e, (void)c;
    return 0;
}
void events_flush(struct events *e)
{
    (void)e;
}
void events_close(struct events *e)
{
    (void)e;
}

#endif
