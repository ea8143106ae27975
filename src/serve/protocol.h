/* protocol.h - the differences between the protocols: the shape of errors, of whole answers and of streams.
 *
 * A route of a protocol reads its body into a struct ask, and ask_run does the rest.  It makes the jobs, collects their texts in a struct
 * answer, and calls the functions of the protocol. */
#pragma once
#include "base/buf.h"
#include "base/digest.h"
#include "serve/crew.h"
#include "serve/documents.h"
#include "serve/keys.h"
#include "serve/route.h"
#include "serve/spoken.h"

/* An error before a protocol gives it a shape. */
struct fault {
    int status;
    const char *sentence;
    /* Only if a prompt is too long; else 0. */
    uint64_t n_prompt, n_ctx;
};

/* A call of a function by the model. */
struct call {
    char id[64];          /* from the model, else made of the answer's id */
    char *name;           /* owned */
    struct buf arguments; /* the text of a JSON object, as the model wrote it */
};
static inline const char *call_arguments(const struct call *k)
{
    return k->arguments.len ? k->arguments.data : "{}";
}

/* One text of an answer. */
struct choice {
    uint32_t index;
    struct buf text;   /* the whole text so far */
    struct buf reason; /* the whole reasoning so far */
    struct call *call; /* [n_calls] owned */
    uint32_t n_calls;
    bool deaf;  /* true: memory was short for the newest call, which is left out */
    char *stop; /* owned: the stop string that ended the text, or NULL */
    /* Only for protocols whose answers have parts: how many parts have begun, and the kind of the open one. */
    uint32_t parts;
    int part;
    size_t part_from;      /* where the text of that part begins */
    json_t *items;         /* owned: the parts that have ended, or NULL */
    struct spoken *spoken; /* divides the text of a chat; NULL: all of it is content */
    struct answer *answer;
    json_t *logprobs; /* owned array of {"token", "logprob", "bytes", "top_logprobs"}, or NULL */
    size_t told;      /* number of entries of logprobs that a stream has sent */
    json_t *ids;      /* owned array of the new tokens, if asked for */
    size_t told_ids;  /* number of these ids that the answer has sent */
    enum kvik_finish finish;
    uint64_t new_tokens, reasoning_tokens; /* new tokens, and how many of them are reasoning */
    bool over;
    bool counted; /* the rows that its prompt reused are in the sum */
};

/* Limits of one request: its texts, the likeliest tokens of a step, and the tokens of logit_bias. */
enum { MOST_CHOICES = 64, MOST_TOP = 20, MOST_BIASES = 4096 };
/* Most probabilities in one answer.  Each takes a kilobyte as JSON.  A stream holds the probabilities of one part
 * only. */
enum { MOST_PROBABILITIES = 1 << 18 };

struct ask_text {
    int32_t *ids; /* [n] owned */
    size_t n;
};

/* The request of any protocol, in kvik's own words. */
struct ask {
    json_t *options;  /* owned: generation options, over the server's */
    json_t *messages; /* owned, of chats; else NULL */
    /* Owned: variables of the chat template; "tools" among them are the tools whose calls are looked for. */
    json_t *kwargs;
    int32_t *ids; /* [n] owned: the prompt */
    size_t n;
    struct ask_text *more; /* [n_more] owned: prompts of the same request beside the first */
    uint32_t n_more;
    /* How many of these tokens come from an earlier answer that the messages spell otherwise. */
    size_t replayed;
    struct digest history; /* only for chats: a digest of the messages */
    struct documents documents;
    uint32_t choices;     /* texts to generate, for all prompts together */
    uint32_t cache;       /* the cache that computes it */
    char salt[KEYS_SALT]; /* decides whose rows it may reuse; see keys_salt */
    int32_t priority;
    int slot; /* the slot that remembers the first text; -1: any slot */
    bool stream, include_usage, logprobs, seeded;
    bool timings, progress; /* parts of a stream have timings, or the progress of the prompt */
    bool verbose;           /* the answer shows the prompt and the options */
    bool return_ids;        /* the answer has token ids, as with vLLM's return_token_ids */
    bool ignores_eos;
    json_t *fields;             /* owned: the only fields that the answer shall have; NULL: all */
    bool reasoning;             /* the prompt ends inside a reasoning */
    bool constrained, demanded; /* the text is JSON of a schema; and this JSON is a call */
    uint32_t seed;              /* a random seed of this request, used unless it brings its own */
    uint32_t top_logprobs;
    double presence_penalty, frequency_penalty;
};
/* Appends ids to a prompt.  With n 0 it only makes sure that the prompt has an array. */
int ask_text_add(struct ask_text *t, const int32_t *ids, size_t n);
/* Returns the prompt of text i of the answer; its ids still belong to k. */
struct ask_text ask_text_of(const struct ask *k, uint32_t i);
/* Merges the options of text i: those of the model, the server and the request, without the cache's limits.  The
 * caller frees them with kvik_generation_done. */
int ask_options(const struct server *s, const struct ask *k, uint32_t i, kvik_generation *g);

struct answer {
    /* Of the desk, which completes an answer that takes long; the first member. */
    struct crew_work work;
    struct server *server;
    struct exchange *x; /* held */
    const struct protocol *protocol;
    struct ask ask;
    char id[40];           /* "chatcmpl-..." */
    int64_t created;       /* Unix time */
    struct choice *choice; /* [ask.choices] */
    uint32_t left;         /* choices that are not over */
    struct job *over;      /* owned: the jobs of the others */
    int slot;              /* the slot that remembers the first text, or -1 */
    bool begun, failed;
    bool progressed;        /* set once a stream was sent the progress of its prompt */
    uint64_t processed;     /* tokens of the prompt that were in the cache at that time */
    uint32_t events;        /* only for streams with numbered events */
    uint64_t probabilities; /* how many probabilities all choices hold */
    /* Sums over all choices; a prompt counts once. */
    uint64_t prompt_tokens, reused, fetched, moved, computed, new_tokens;
    double waited, first, seconds; /* seconds: before the first step, to the first token, in all */
    double decoding;               /* seconds from the first token to the last */
    const char *miss;
};

struct protocol {
    const char *name;
    const char *prefix;      /* prefix of the ids of answers, such as "chatcmpl-" */
    const char *call_prefix; /* prefix of the ids of calls, such as "call_" */
    const char *stream;      /* content type of a stream */
    bool calls;              /* calls and reasoning are separated from the text */
    bool comments;           /* an idle stream may have lines that begin with a colon */
    json_t *(*error)(const struct fault *f);
    /* For streams.  begin, ending and done may be NULL. */
    void (*begin)(struct answer *a);
    void (*piece)(struct answer *a, struct choice *c, enum piece kind, const char *text);
    /* The newest call of c begins, gets more arguments, and ends.  Each of the three may be NULL. */
    void (*call)(struct answer *a, struct choice *c);
    void (*arguments)(struct answer *a, struct choice *c, const char *text);
    void (*called)(struct answer *a, struct choice *c);
    void (*ending)(struct answer *a, struct choice *c);
    void (*done)(struct answer *a);
    /* Tells how far the prompt is, and releases both values.  times may be NULL, and so may the function. */
    void (*progress)(struct answer *a, json_t *progress, json_t *times);
    /* Sends an error inside a stream. */
    void (*broken)(struct answer *a, const struct fault *f);
    /* For whole answers. */
    json_t *(*whole)(struct answer *a);
};

/* --- ask.c */
void ask_init(struct ask *k);
void ask_done(struct ask *k);
/* Sets a generation option; `value` becomes the ask's, NULL is an error. */
int ask_set(struct ask *k, const char *option, json_t *value);
/* Reads the fields that OpenAI's protocols and others share: sampling, lengths, stop strings, seed, penalties, bias. */
int ask_sampling(struct ask *k, const struct server *s, const json_t *body);
/* --- conversation_fields.c: reads the messages of a chat, and the variables of its template. */
int ask_messages(struct ask *k, const struct server *s, const json_t *given);
/* Joins the texts of a message's content: a string, or an array of parts that are texts.  Errors name it by `list`
 * and `at`. */
int ask_join(const json_t *content, const char *list, size_t at, json_t **out);
int ask_kwargs(struct ask *k, const struct server *s, const json_t *body);
/* --- field_types.c */
enum { FIELD_BOOL = 1, FIELD_TEXT = 2, FIELD_LIST = 4, FIELD_OBJECT = 8 };
struct field_type {
    const char *name;
    unsigned types; /* one or several FIELD_* */
};
/* Refuses a body in which one of n fields has a value of another type; null is as good as no field. */
int ask_types(const json_t *body, const struct field_type *t, size_t n);
/* Reads "moved_chunks": {"recompute": tokens, "fraction": part} of a body. */
int ask_moved_chunks(struct documents *d, const json_t *body);
/* --- nul_fields.c */
/* Refuses a body with a NUL in a text that a NUL would cut.  field: looks at this field only; NULL: at all known
 * fields. */
int ask_refuse_nul(const json_t *body, const char *field);
/* --- structure_fields.c: demands JSON or calls. */
/* Demands JSON of a schema, or "json_object"; takes the schema. */
int ask_schema(struct ask *k, json_t *schema);
/* Reads {"type": "json_schema", ..} of OpenAI's protocols; NULL: demands nothing.  Errors name it by `field`. */
int ask_format(struct ask *k, const json_t *format, const char *field);
/* Reads tool_choice, which may demand a call. */
int ask_choice(struct ask *k, const struct server *s, const json_t *body);
/* Renders messages and encodes them; free *ids with kvik_free. */
int ask_encode(const struct server *s, const json_t *messages, const json_t *kwargs, int32_t **ids,
               size_t *n);
/* Returns the tools whose calls are looked for, borrowed; NULL: none. */
const json_t *ask_tools(const struct ask *k);
/* Renders k->messages with k->kwargs and encodes them as k->ids. */
int ask_render(struct ask *k, const struct server *s);
/* Encodes a text, or takes an array of ids, as k->ids. */
int ask_prompt(struct ask *k, const struct server *s, const json_t *prompt);
/* Does the same for an array whose items are prompts, texts or arrays of ids.  `choices` texts are generated for
 * each prompt. */
int ask_prompts(struct ask *k, const struct server *s, const json_t *prompts);
/* Reads a body into an ask.  Returns 0 or an error code.  1: the reader has answered, or there is nothing to
 * generate. */
typedef int (*ask_reader)(struct server *s, struct exchange *x, struct ask *k, json_t *body);
/* Makes the salt of a request, from its key if the server has keys, and from the field cache_salt of its body, which may
 * be NULL. */
int ask_salt(const struct server *s, const struct exchange *x, const json_t *body,
             char out[KEYS_SALT]);
/* Parses the body of a request and calls the reader.  The caller calls ask_done(k), after an error too. */
int ask_read(struct server *s, struct exchange *x, ask_reader read, struct ask *k);
/* Does the same, and starts the generations. */
int ask_serve(struct server *s, struct exchange *x, const struct protocol *p, ask_reader read);
/* Starts the generations of an ask, whose contents it takes over.  Returns an error code if it started none. */
int ask_run(struct server *s, struct exchange *x, const struct protocol *p, struct ask *k);

/* --- answer_parts.c */
/* Sends a part of a stream.  b NULL: there was no memory for the part; the stream ends then, because a stream with a
 * hole would be another text. */
void answer_send(struct answer *a, const struct buf *b);
/* Sends one server-sent event, "data: JSON", with a name unless that is NULL; releases o. */
void answer_event(struct answer *a, const char *name, json_t *o);
/* Returns the usage in the shape of OpenAI's protocols, with kvik's own field. */
json_t *answer_usage(const struct answer *a);
json_t *answer_kvik(const struct answer *a);
/* Returns the times of a request in the shape of llama-server. */
json_t *answer_timings(const struct answer *a);
/* Adds these times to a part of a stream if the request asks for them, or if this part ends the text; c may be NULL. */
void answer_add_timings(const struct answer *a, const struct choice *c, json_t *o);
/* Sends the progress of a job's prompt to a stream that has begun, if the request asks for it: `have` tokens have
 * rows. */
void answer_progress(struct answer *a, const struct job *j, uint64_t have);
/* Returns the first text in the shape of POST /completion, with the prompt and the options. */
json_t *answer_verbose(const struct answer *a);
/* Returns a call in OpenAI's shape, with these arguments. */
json_t *answer_call(const struct call *k, const char *arguments);
/* Returns the message of an answer: role, content, tool calls, reasoning. */
json_t *answer_message(const struct choice *c);
/* Returns how a text ended, in OpenAI's words: "stop", "length" or "tool_calls"; NULL while it runs. */
const char *answer_finish(const struct choice *c);
/* Returns an array of the tokens that earlier parts have not told. */
json_t *answer_new_ids(struct choice *c);
/* Adds the same array as token_ids to a choice or its part, if the request asks for it; returns o. */
json_t *answer_ids(struct choice *c, json_t *o);
/* Returns a text as JSON; NULL if memory is short. */
json_t *answer_text(const char *s, size_t n);
/* Returns the entries of logprobs that the stream has not sent; NULL: the request asks for none. */
json_t *answer_probabilities(struct choice *c);
/* Returns the same logprobs in OpenAI's shape, or null. */
json_t *answer_logprobs(struct choice *c);
/* Reads the body of a request as an object. */
int body_read(const struct exchange *x, json_t **out);
extern const struct protocol protocol_openai;
