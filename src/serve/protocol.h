/* protocol.h - what differs between the protocols: the shape of errors, of whole answers and of streams.
 *
 * A route of a protocol reads its body into a struct ask, and ask_run does the rest: it makes the jobs, collects what
 * they say in a struct answer, and calls the functions below. */
#pragma once
#include "base/buf.h"
#include "base/digest.h"
#include "serve/keys.h"
#include "serve/route.h"
#include "serve/spoken.h"

/* An error as a protocol shows it. */
struct fault {
    int status;
    const char *sentence;
    /* Of a prompt that is too long; else 0. */
    uint64_t n_prompt, n_ctx;
};

/* A call of a function that the model has made. */
struct call {
    char id[64];          /* as the model named it, else made of the answer's id */
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
    struct buf reason; /* the same of the reasoning */
    struct call *call; /* [n_calls] owned */
    uint32_t n_calls;
    bool deaf;  /* the newest call is left out, since memory was short */
    char *stop; /* owned: the stop string that ended the text, or NULL */
    /* Of a protocol whose answers have parts: how many have begun, and which kind is open. */
    uint32_t parts;
    int part;
    size_t part_from;      /* where its text begins */
    json_t *items;         /* owned: the parts that are over, or NULL */
    struct spoken *spoken; /* parts the text of a chat; NULL: all of it is content */
    struct answer *answer;
    json_t *logprobs; /* owned array of {"token", "logprob", "bytes", "top_logprobs"}, or NULL */
    size_t told;      /* entries of logprobs that a stream has sent */
    json_t *ids;      /* owned array of the new tokens, if asked for */
    size_t told_ids;  /* of them, those that the answer has */
    enum kvik_finish finish;
    uint64_t new_tokens, reasoning_tokens; /* the second are among the first */
    bool over;
    bool counted; /* what its prompt reused is in the sum */
};

/* Limits of one request: texts that it may ask for, likeliest tokens of each step, and tokens of logit_bias. */
enum { MOST_CHOICES = 64, MOST_TOP = 20, MOST_BIASES = 4096 };
/* Probabilities that an answer holds at most.  Each takes a kilobyte, as JSON of its own; a stream holds those of one part. */
enum { MOST_PROBABILITIES = 1 << 18 };

struct ask_text {
    int32_t *ids; /* [n] owned */
    size_t n;
};

/* What all protocols ask for, in kvik's own words. */
struct ask {
    json_t *options;  /* owned: generation options, over the server's */
    json_t *messages; /* owned, of chats; else NULL */
    json_t *kwargs;   /* owned: of the chat template; its "tools" are what calls are looked for */
    int32_t *ids;     /* [n] owned: the prompt */
    size_t n;
    struct ask_text *more; /* [n_more] owned: prompts of the same request beside the first */
    uint32_t n_more;
    size_t replayed; /* of these, tokens of an earlier answer that the messages spell otherwise */
    struct digest history; /* of chats: the messages */
    uint32_t choices;      /* texts that are generated, of all prompts */
    uint32_t cache;        /* that it is computed with */
    char salt[KEYS_SALT];  /* whose rows it may reuse; see keys_salt */
    int32_t priority;
    int slot; /* in which the first text is remembered; -1: any */
    bool stream, include_usage, logprobs, seeded;
    bool timings, progress; /* parts of a stream tell them */
    bool verbose;           /* the answer shows the prompt and the options */
    bool return_ids;        /* the tokens, as vLLM's return_token_ids */
    bool ignores_eos;
    json_t *fields;             /* owned: of the answer, those that are wanted; NULL: all */
    bool reasoning;             /* the prompt ends inside a reasoning */
    bool constrained, demanded; /* the text is JSON of a schema; and it is that of a call */
    uint32_t seed;              /* drawn for this request; used where it is not seeded */
    uint32_t top_logprobs;
    double presence_penalty, frequency_penalty;
};
/* Appends ids to a prompt; n 0 makes sure that it has an array. */
int ask_text_add(struct ask_text *t, const int32_t *ids, size_t n);
/* The prompt of text i of the answer; its ids are those of k. */
struct ask_text ask_text_of(const struct ask *k, uint32_t i);
/* The options of that text: those of the model, the server and the request; not what the cache limits.  The caller frees
 * them with kvik_generation_done. */
int ask_options(const struct server *s, const struct ask *k, uint32_t i, kvik_generation *g);

struct answer {
    struct server *server;
    struct exchange *x; /* held */
    const struct protocol *protocol;
    struct ask ask;
    char id[40];           /* "chatcmpl-..." */
    int64_t created;       /* Unix time */
    struct choice *choice; /* [ask.choices] */
    uint32_t left;         /* choices that are not over */
    int slot;              /* in which the first text is remembered, or -1 */
    bool begun, failed;
    bool progressed;        /* a stream was told how far its prompt is: */
    uint64_t processed;     /* its tokens that are there */
    uint32_t events;        /* of a stream whose events are numbered */
    uint64_t probabilities; /* that all choices hold */
    /* Sums of all choices, the prompt once. */
    uint64_t prompt_tokens, reused, fetched, computed, new_tokens;
    double waited, first, seconds; /* seconds: before the first step, to the first token, in all */
    double decoding;               /* seconds from the first token to the last */
    const char *miss;
};

struct protocol {
    const char *name;
    const char *prefix;      /* of the ids of answers: "chatcmpl-" */
    const char *call_prefix; /* of the ids of calls: "call_" */
    const char *stream;      /* content type of a stream */
    bool calls;              /* calls and reasoning are parted from the text */
    bool comments;           /* an idle stream may have lines that begin with a colon */
    json_t *(*error)(const struct fault *f);
    /* Of streams.  begin, ending and done may be NULL. */
    void (*begin)(struct answer *a);
    void (*piece)(struct answer *a, struct choice *c, enum piece kind, const char *text);
    /* The newest call of c begins, has more arguments, and is over.  Each may be NULL. */
    void (*call)(struct answer *a, struct choice *c);
    void (*arguments)(struct answer *a, struct choice *c, const char *text);
    void (*called)(struct answer *a, struct choice *c);
    void (*ending)(struct answer *a, struct choice *c);
    void (*done)(struct answer *a);
    /* Tells how far the prompt is; takes both.  times may be NULL, as the function. */
    void (*progress)(struct answer *a, json_t *progress, json_t *times);
    /* Sends an error inside a stream. */
    void (*broken)(struct answer *a, const struct fault *f);
    /* Of whole answers. */
    json_t *(*whole)(struct answer *a);
};

/* --- ask.c */
void ask_init(struct ask *k);
void ask_done(struct ask *k);
/* Sets a generation option; `value` becomes the ask's, NULL is an error. */
int ask_set(struct ask *k, const char *option, json_t *value);
/* Reads the fields that OpenAI's protocols share: sampling, lengths, stop strings, seed, penalties, bias. */
int ask_sampling(struct ask *k, const struct server *s, const json_t *body);
/* --- conversation_fields.c: read the messages of a chat, and what its template is told. */
int ask_messages(struct ask *k, const struct server *s, const json_t *given);
/* Joins the texts of a content: a string, or parts, each of which is a text; `list` and `at` name it in errors. */
int ask_join(const json_t *content, const char *list, size_t at, json_t **out);
int ask_kwargs(struct ask *k, const struct server *s, const json_t *body);
/* --- nul_fields.c */
/* Refuses a body with a NUL in a text that would be cut there; field: in that field alone, NULL: in those that are known. */
int ask_refuse_nul(const json_t *body, const char *field);
/* --- structure_fields.c: what an answer must be. */
/* Demands JSON of a schema, or "json_object"; takes the schema. */
int ask_schema(struct ask *k, json_t *schema);
/* Reads {"type": "json_schema", ..}, as OpenAI's protocols have it; NULL: nothing is demanded.  `field` names it in errors. */
int ask_format(struct ask *k, const json_t *format, const char *field);
/* Reads tool_choice where it demands a call. */
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
/* The same of an array of texts and arrays of ids, each of which is a prompt: `choices` texts are generated for each. */
int ask_prompts(struct ask *k, const struct server *s, const json_t *prompts);
/* Reads a body into an ask.  Returns 0, an error code, or 1: it has answered, or there is nothing to generate. */
typedef int (*ask_reader)(struct server *s, struct exchange *x, struct ask *k, json_t *body);
/* Parses the body of a request and has it read.  ask_done(k) is the caller's, after an error too. */
int ask_read(struct server *s, struct exchange *x, ask_reader read, struct ask *k);
/* The same, and starts what is to be generated. */
int ask_serve(struct server *s, struct exchange *x, const struct protocol *p, ask_reader read);
/* Starts the generation of an ask, whose contents it takes.  Returns an error code if nothing was started. */
int ask_run(struct server *s, struct exchange *x, const struct protocol *p, struct ask *k);

/* --- answer.c */
/* Sends a part of a stream; NULL: memory was short for it.  A stream with a hole would be another text, so it then ends. */
void answer_send(struct answer *a, const struct buf *b);
/* Sends one event of server-sent events, "data: JSON", with a name where it is not NULL; releases o. */
void answer_event(struct answer *a, const char *name, json_t *o);
/* The usage as OpenAI's protocols show it, and kvik's own field. */
json_t *answer_usage(const struct answer *a);
json_t *answer_kvik(const struct answer *a);
/* How long the parts took, as llama-server says it. */
json_t *answer_timings(const struct answer *a);
/* Adds them to a part of a stream, if asked for, or if the text of the part is over; c may be NULL. */
void answer_add_timings(const struct answer *a, const struct choice *c, json_t *o);
/* Tells a stream that `have` tokens of the prompt of a job are there, if asked for; the stream has begun. */
void answer_progress(struct answer *a, const struct job *j, uint64_t have);
/* The first text as POST /completion shows it: with the prompt and the options. */
json_t *answer_verbose(const struct answer *a);
/* A call as OpenAI shows it, with these arguments. */
json_t *answer_call(const struct call *k, const char *arguments);
/* The message that an answer is: role, content, tool calls, reasoning. */
json_t *answer_message(const struct choice *c);
/* "stop", "length" or "tool_calls", as OpenAI names how a text ended; NULL while it runs. */
const char *answer_finish(const struct choice *c);
/* The tokens that the parts before have not told, as an array. */
json_t *answer_new_ids(struct choice *c);
/* The same as token_ids of a choice or of its part, if asked for. */
json_t *answer_ids(struct choice *c, json_t *o);
/* A text as JSON; NULL if memory is short. */
json_t *answer_text(const char *s, size_t n);
/* The entries of logprobs that the stream has not sent yet; NULL: none were asked for. */
json_t *answer_probabilities(struct choice *c);
/* The logprobs that the stream has not sent yet, as OpenAI shows them, or null. */
json_t *answer_logprobs(struct choice *c);
/* Reads the body of a request as an object. */
int body_read(const struct exchange *x, json_t **out);
extern const struct protocol protocol_openai;
