/* alias.c - options and commands of llama.cpp, whisper.cpp and Ollama, and their names in kvik.  A person who
 * knows those programs types these names.  Suggesting the nearest spelling of a kvik name would mislead. */
#include "cli/cli.h"

#include <string.h>

#define NO_EMBEDDINGS                                                                               \
    "the command prints no embeddings; a program gets hidden states from libkvik, and Python from " \
    "model(..., output_hidden_states=True)"

/* Names as typed, separated by '|'.  One letter, and llama.cpp's short forms, have one dash; other names have no
 * dashes here. */
struct alias {
    const char *names, *say;
};
static const struct alias options[] = {
    {"-m|model", "MODEL is the first argument: kvik generate MODEL PROMPT"},
    {"-hf|-hfr|-mu|hf_repo|hf_file|model_url",
     "MODEL is the first argument, a name of the hub too: kvik run ORG/NAME:Q4_K_M --pull"},
    {"-p|prompt", "PROMPT is an argument after MODEL: kvik generate MODEL PROMPT"},
    {"-f|file|-bf|binary_file",
     "kvik reads the prompt from standard input: kvik generate MODEL < FILE"},
    {"-e|escape|no_escape", "kvik takes the prompt as it is; leave the option out"},
    {"-n|n_predict|predict|num_predict|max_tokens", "give --max-new-tokens N"},
    {"-c|ctx_size|num_ctx|n_ctx|context_size",
     "a cache grows as the text does, up to the model's context; --cache-memory BYTES limits its bytes, "
     "--cache-config '{\"max_cache_len\": N}' its tokens"},
    {"-t|-tb|threads_batch|num_thread|n_threads", "give --threads N"},
    {"-b|-ub|batch_size|ubatch_size|num_batch",
     "give --prefill-chunk-size N; the result does not change"},
    {"-ngl|gpu_layers|n_gpu_layers|num_gpu|main_gpu|-mg|-sm|split_mode|-ts|tensor_split|-dev",
     "a GPU computes a whole model or nothing: --device cuda (compiled and emulated, not yet run on a GPU); leave the "
     "option out for the CPU"},
    {"-ctk|cache_type_k",
     "give --cache-implementation quantized --cache-config '{\"backend\": \"hqq\", \"axis\": 1, "
     "\"nbits_key\": 4, \"nbits_value\": 8}' with bits of your choice"},
    {"-ctv|cache_type_v",
     "give --cache-implementation quantized --cache-config '{\"backend\": \"hqq\", \"axis\": 1, "
     "\"nbits_key\": 8, \"nbits_value\": 4}' with bits of your choice"},
    {"temp", "give --do-sample --temperature X"},
    {"typical", "give --do-sample --typical-p X"},
    {"top_nsigma", "give --do-sample --top-n-sigma X"},
    {"mirostat|mirostat_lr|mirostat_ent|mirostat_tau|mirostat_eta|tfs_z",
     "kvik does not have this method of sampling; --typical-p X is the nearest"},
    {"repeat_penalty", "give --repetition-penalty X"},
    {"repeat_last_n", "--repetition-penalty looks at the whole text; leave the option out"},
    {"presence_penalty|frequency_penalty",
     "kvik has --repetition-penalty X, which multiplies where these add"},
    {"-s", "give --do-sample --seed N"},
    {"-l|logit_bias", "give --sequence-bias '[[[TOKEN_ID], X]]'"},
    {"ignore_eos", "give --eos-token-id -1"},
    {"-r|reverse_prompt|stop", "give --stop-strings TEXT; repeat the option for several"},
    {"-sys|system_prompt|-sysf|system_prompt_file",
     "give --system TEXT; with kvik generate also --chat"},
    {"-i|-cnv|interactive|conversation|-if|interactive_first",
     "the conversation is kvik chat MODEL"},
    {"chat_template|chat_template_file", "give --template FILE or --template NAME"},
    {"jinja|no_jinja|chat_template_kwargs", "kvik runs every chat template; leave the option out"},
    {"prompt_cache|prompt_cache_all|prompt_cache_ro|slot_save_path",
     "give --prefix-cache DIR, or kvik chat --session FILE"},
    {"keep|num_keep|context_shift|no_context_shift",
     "give --cache-implementation sink --cache-config '{\"window_length\": 1024, \"num_sink_tokens\": 4}'"},
    {"-md|model_draft", "give --assistant-model MODEL"},
    {"draft|draft_max|draft_n|draft_min", "give --num-assistant-tokens N, or without a draft model "
                                          "--prompt-lookup-num-tokens N"},
    {"draft_p_min", "give --assistant-confidence-threshold X"},
    {"-fa|flash_attn", "attention in kvik never stores its whole matrix; leave the option out"},
    {"mlock|mmap|no_mmap|use_mmap|use_mlock|no_kv_offload|-nkvo|numa",
     "kvik maps the files of a model into memory; leave the option out"},
    {"rope_freq_base|rope_freq_scale|rope_scaling|rope_scale|yarn_orig_ctx",
     "kvik takes the positions from the model's own configuration; leave the option out"},
    {"-j|grammar|grammar_file|format",
     "give --json-schema FILE; other grammars are not in this version"},
    {"load_in_4bit", "give --quantize q4_0 or --quantize q4_k"},
    {"load_in_8bit", "give --quantize q8_0"},
    {"lora|lora_scaled|control_vector", "kvik reads no adapters; merge it into the model first"},
    {"host|port|-np|parallel|-cb|cont_batching|keepalive",
     "kvik serve MODEL answers over HTTP; kvik serve --help lists its options"},
    {"-v|log_verbose", "give --verbose"},
    {"session",
     "kvik chat MODEL --session FILE continues a chat; with other commands leave the option out"},
    {"-o|-of|output|output_file|output_dir|out",
     "kvik prints the text to standard output; add > FILE"},
    {"-osrt|output_srt|-ovtt|output_vtt|-oj|output_json|output_format|response_format",
     "kvik transcribe has --format srt, vtt or json; kvik generate --json"},
    {"-tr|translate", "give --task translate to kvik transcribe"},
    {"initial_prompt", "give --prompt TEXT to kvik transcribe"},
    {"tools|tool|tool_choice|functions|mcp",
     "tools are a variable of the chat template: kvik render MODEL TEXT --kwargs '{\"tools\": [...]}' prints the prompt "
     "that kvik generate MODEL - continues; a call in the reply is yours to run"},
    {"image|images|mmproj|-mm|mmproj_url|video|audio",
     "kvik chats about text alone, also with a model that sees or hears; recordings become text with kvik "
     "transcribe MODEL FILE"},
    {"embedding|embeddings|pooling|embd_normalize", NO_EMBEDDINGS},
    {"stream|no_stream", "kvik generate prints the text as it comes; leave the option out"},
};

/* Names that have another meaning in whisper.cpp and OpenAI's whisper; they apply where a command takes
 * recordings. */
static const struct alias of_transcribe[] = {
    {"-m|model", "MODEL is the first argument: kvik transcribe MODEL FILE"},
    {"-f|file", "FILE is an argument after MODEL: kvik transcribe MODEL FILE"},
    {"-l|lang", "give --language NAME, such as de"},
    {"-bs|beam_size", "give --num-beams N"},
    {"-otxt|output_txt|-nt|no_timestamps",
     "kvik transcribe prints the text without times; add > FILE"},
    {"-np|no_prints", "standard output has the text alone; leave the option out"},
    {"-p|processors", "give --threads N"},
    {"-c|capture|step|stream",
     "pipe a microphone into it: arecord -f S16_LE -r 16000 | kvik transcribe MODEL -"},
    {"-sow|split_on_word|-ml|max_len", "--word-timestamps finds the times of words"},
};

static const struct alias of_chat[] = {
    {"-m|model", "MODEL is the first argument: kvik run MODEL PROMPT"},
    {"-p|prompt", "PROMPT is an argument after MODEL: kvik run MODEL PROMPT"},
    {"-f|file|-bf|binary_file", "the PROMPT - is standard input: kvik run MODEL - < FILE"},
    {"-i|-cnv|interactive|conversation|-if|interactive_first",
     "kvik run MODEL without a PROMPT is the conversation; leave the option out"},
};

static const struct alias commands[] = {
    {"embed|embedding|embeddings", NO_EMBEDDINGS},
    {"tools|tool",
     "tools are a variable of the chat template: kvik render MODEL TEXT --kwargs '{\"tools\": [...]}'"},
    {"list|ls|ps",
     "kvik models lists the models of this machine; a model is loaded only while a command runs"},
    {"show|info", "kvik inspect MODEL describes a model"},
    {"download|fetch|get", "kvik pull ORG/NAME downloads a model"},
    {"push|upload", "kvik uploads nothing"},
    {"server|start|stop", "kvik serve MODEL serves a model, and Ctrl-C ends it"},
    {"version|-v|-V", "kvik --version prints the version"},
    {"remove|delete", "kvik rm ORG/NAME removes a model that was downloaded"},
    {"quantize",
     "give --quantize q8_0, q4_0 or q4_k to a command that opens a model: kvik generate "
     "MODEL PROMPT --quantize q4_0"},
    {"create|cp|copy|convert",
     "kvik makes no models; it reads Hugging Face directories and .gguf files as they are"},
    {"complete|completions|predict|text", "kvik generate MODEL PROMPT completes a text"},
    {"perplexity|benchmark", "kvik bench MODEL measures a model"},
};

static const struct alias slashes[] = {
    {"/show|/info", "/set shows the options, /system the system message, /cache the cache"},
    {"/history", "the cursor keys recall messages; /branches lists conversations"},
    {"/regen|/regenerate|/again", "/retry draws the last reply again"},
    {"/new", "/clear starts a new conversation"},
    {"/model", "a chat has one model; /bye leaves, and kvik chat MODEL starts another"},
};

/* True if a typed word is this name: after the dashes at the beginning, '-' equals '_'. */
static bool is(const char *word, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!word[i] || (i && word[i] == '-' ? '_' : word[i]) != name[i]) return false;
    return !word[n];
}

static const char *find_alias(const struct alias *a, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        for (const char *s = a[i].names; *s; s += strcspn(s, "|"), s += *s == '|')
            if (is(word, s, strcspn(s, "|"))) return a[i].say;
    return NULL;
}

const char *alias_find(const struct command *c, const char *word)
{
    const char *say = NULL;
    if (c == &command_transcribe) say = find_alias(of_transcribe, countof(of_transcribe), word);
    if (c == &command_chat || c == &command_run) say = find_alias(of_chat, countof(of_chat), word);
    return say ? say : find_alias(options, countof(options), word);
}

const char *alias_command(const char *word)
{
    return find_alias(commands, countof(commands), word);
}

const char *alias_slash(const char *word)
{
    return find_alias(slashes, countof(slashes), word);
}
