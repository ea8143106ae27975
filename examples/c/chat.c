/* chat.c - a conversation in one sequence of the cache.  Each turn gives the whole conversation; the library
 * reuses the cached prefix and reports its length.
 *     chat MODEL [MESSAGE...] */
#include <kvik.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static void die(const char *what)
{
    fprintf(stderr, "chat: %s: %s\n", what, kvik_last_error());
    exit(1);
}

static bool print_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    (void)ctx, (void)row, (void)id;
    fputs(text, stdout);
    fflush(stdout);
    return true; /* return false to stop the reply */
}

int main(int argc, char **argv)
{
    kvik_message chat[MOST];
    size_t messages = 0;
    kvik_result *said[MOST / 2] = {0}; /* their texts are messages */
    const char *script[] = {"Hello! My name is Ada.", "What is my name?"};
    int n = argc > 2 ? argc - 2 : 2;
    kvik_model *model;
    kvik_cache *cache;
    kvik_generation settings;
    kvik_cache_config config = {.size = sizeof config,
                                .max_sequences = 2,
                                .max_cache_len = 2048,
                                /* Templates may rewrite the history. */
                                .snapshots = KVIK_TURN_ENDS};
    kvik_hooks hooks = {.size = sizeof hooks, .on_token = print_token};
    kvik_seq conversation;

    if (argc < 2) return fprintf(stderr, "usage: chat MODEL [MESSAGE...]\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0) die(argv[1]);
    if (kvik_cache_open(model, &config, &cache) < 0) die("cache");
    if (kvik_cache_new(cache, &conversation) < 0) die("sequence");
    if (kvik_generation_init(&settings, model) < 0) die("settings");
    if (kvik_generation_set(&settings, "{\"max_new_tokens\": 32}") < 0) die("settings");

    for (int i = 0; i < n && messages + 2 <= MOST; i++) {
        kvik_result *reply;
        int32_t *ids;
        size_t count;
        chat[messages++] = (kvik_message){
            .size = sizeof *chat, .role = "user", .content = argc > 2 ? argv[i + 2] : script[i]};
        const kvik_chat talk = {.size = sizeof talk,
                                .message = chat,
                                .n = messages,
                                .kwargs = "{\"add_generation_prompt\": true}"};
        if (kvik_chat_encode(kvik_model_tokenizer(model), &talk, &ids, &count, NULL) < 0)
            die("template");
        kvik_prompt prompt = {.size = sizeof prompt, .ids = ids, .n = count, .seq = conversation};
        if (kvik_generate(cache, &settings, &prompt, 1, &hooks, &reply) < 0) die("generate");
        const kvik_sync *sync = reply->row[0]->sync;
        printf("\n(%zu of %zu tokens were in the cache)\n", reply->row[0]->reused, count);
        if (sync->divergence >= 0) /* the template or the tokenizer changed the history */
            printf("(from token %lld on it is \"%s\", it was \"%s\")\n",
                   (long long)sync->divergence, sync->given, sync->cached);
        said[i] = reply;
        chat[messages++] = (kvik_message){
            .size = sizeof *chat, .role = "assistant", .content = reply->row[0]->text};
        kvik_free(ids);
    }
    for (int i = 0; i < MOST / 2; i++)
        kvik_result_free(said[i]);
    kvik_generation_done(&settings);
    kvik_cache_close(cache);
    kvik_model_close(model);
    return 0;
}
