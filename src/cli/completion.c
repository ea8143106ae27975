/* completion.c - kvik completion bash|zsh: prints a script that completes commands, options, their values and models.  Both
 * scripts are made from the tables that read the command line, so they never lag behind. */
#include "cli/cli.h"

#include <string.h>

struct options {
    struct common common;
};

/* What may stand behind an option. */
enum kind {
    NOTHING, /* no value */
    ANY,     /* a value that cannot be completed */
    WORDS,   /* some words */
    FILES,   /* a file, or one of the words if there are some */
    FOLDERS,
    MODELS,
};
/* An option of either table. */
struct option_item {
    char name[64];
    const char *help, *placeholder;
    char words[256]; /* separated by spaces */
    enum kind kind;
    bool repeats;
};

static void spaced(const char *choices, char out[256])
{
    snprintf(out, 256, "%s", choices);
    for (char *c = out; *c; c++)
        if (*c == '|') *c = ' ';
}

static void formats(char out[256])
{
    const char *name;
    size_t n = 0;
    for (uint32_t i = 0; (name = kvik_format_name(i)) && n < 256; i++)
        n += (size_t)snprintf(out + n, 256 - n, "%s%s", i ? " " : "", name);
}

static void own_item(const struct arg_option *o, struct option_item *out)
{
    const char *v = o->value ? o->value : "";
    *out = (struct option_item){.help = o->help, .placeholder = v, .kind = ANY};
    args_dashed(o->name, out->name);
    out->repeats = o->kind == ARG_LIST;
    if (o->choices) spaced(o->choices, out->words);
    if (strstr(v, "NAME") && !o->choices) formats(out->words);
    if (o->kind == ARG_FLAG || o->kind == ARG_BOOL)
        out->kind = NOTHING;
    else if (strstr(v, "FILE"))
        out->kind = FILES;
    else if (strstr(v, "DIR"))
        out->kind = FOLDERS;
    else if (!strcmp(v, "MODEL"))
        out->kind = MODELS;
    else if (out->words[0])
        out->kind = WORDS;
}

static void generation(const kvik_option *o, struct option_item *out)
{
    static const char *const list[] = {"strings", "ids", "lists", "biases"};
    *out = (struct option_item){.help = o->help, .placeholder = o->type, .kind = ANY};
    args_dashed(o->name, out->name);
    if (o->choices) spaced(o->choices, out->words);
    if (out->words[0]) out->kind = WORDS;
    if (!strcmp(o->type, "bool")) out->kind = NOTHING;
    if (!strcmp(o->type, "schema")) out->kind = FILES;
    for (size_t i = 0; i < countof(list); i++)
        out->repeats |= !strcmp(o->type, list[i]);
}

/* Calls fn for every option of a command. */
static void each_option(const struct command *c, void (*fn)(const struct option_item *))
{
    struct option_item it;
    size_t n;
    const kvik_option *g;
    const struct arg_option *shared = args_shared(c, &n);
    for (size_t i = 0; i < c->n_options; i++)
        own_item(&c->option[i], &it), fn(&it);
    for (size_t i = 0; i < n; i++)
        own_item(&shared[i], &it), fn(&it);
    for (uint32_t i = 0; c->generation && (g = kvik_option_at(i)); i++)
        generation(g, &it), fn(&it);
    it = (struct option_item){.name = "help", .help = "print the options that matter"};
    fn(&it);
    it = (struct option_item){.name = "help-all", .help = "print every option"};
    fn(&it);
}

static bool takes_model(const struct command *c)
{
    return strstr(c->usage, "MODEL") || !strcmp(c->name, "pull") || !strcmp(c->name, "rm");
}

static void put_name(const struct option_item *it)
{
    printf(" --%s", it->name);
}

/* For bash: prints how the value of an option is completed. */
static void bash_value(const struct option_item *it)
{
    static const char *const action[] = {
        [FILES] = " files=1", [FOLDERS] = " folders=1", [MODELS] = " models=1"};
    if (it->kind == NOTHING || it->kind == ANY) return;
    printf("        --%s)", it->name);
    if (it->words[0]) printf(" words='%s'", it->words);
    if (it->kind != WORDS) fputs(action[it->kind], stdout);
    puts(" ;;");
}

/* For bash: prints the options whose values cannot be completed. */
static void bash_any(const struct option_item *it)
{
    if (it->kind == ANY) printf(" | --%s", it->name);
}

static void bash_command(const struct command *c, const char *name)
{
    printf("    %s)\n        options='", name);
    each_option(c, put_name);
    fputs("'\n        case $before in\n", stdout);
    each_option(c, bash_value);
    /* a pattern that matches nothing, so that every name can follow with a bar */
    fputs("        =", stdout);
    each_option(c, bash_any);
    fputs(") return ;;\n", stdout);
    printf("        *) [[ $current == -* ]] && words=$options || %s ;;\n        esac ;;\n",
           takes_model(c)                   ? "models=1"
           : !strcmp(c->name, "completion") ? "words='bash zsh'"
                                            : ":");
}

static const char bash_head[] =
    "# Completion of kvik for bash, made by: kvik completion bash\n"
    "_kvik()\n"
    "{\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local options= words= files= folders= models= model= IFS=$' \\t\\n'\n"
    "    # the program as it was typed, since ./kvik need not be in PATH; an alias is none\n"
    "    local program=${COMP_WORDS[0]/#\\~\\//\"$HOME\"/}\n"
    "    type -P -- \"$program\" >/dev/null || program=kvik\n"
    "    COMPREPLY=()\n"
    "    # bash splits --name=value into three words\n"
    "    if [[ $current == = ]]; then\n"
    "        current=\n"
    "    elif [[ $before == = ]]; then\n"
    "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    fi\n"
    "    if ((COMP_CWORD == 1)) || [[ ${COMP_WORDS[1]} == help ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$_kvik_commands\" -- \"$current\"))\n"
    "        return\n"
    "    fi\n"
    "    case ${COMP_WORDS[1]} in\n";
static const char bash_tail[] =
    "    *) return ;;\n"
    "    esac\n"
    "    [[ -n $words ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
    "    # a name is data: compgen -W would run what it holds\n"
    "    [[ -n $models ]] && while IFS= read -r model; do\n"
    "        [[ $model == \"$current\"* ]] && COMPREPLY+=(\"$(printf %q \"$model\")\")\n"
    "    done < <(command \"$program\" models --names 2>/dev/null)\n"
    "    ((${#COMPREPLY[@]})) && return\n"
    "    IFS=$'\\n'\n"
    "    [[ -n $files ]] && COMPREPLY=($(compgen -f -- \"$current\"))\n"
    "    [[ -n $folders ]] && COMPREPLY=($(compgen -d -- \"$current\"))\n"
    "    [[ -n $models ]] && COMPREPLY=($(compgen -d -- \"$current\") $(compgen -f -X '!*.gguf' -- \"$current\"))\n"
    "    [[ -n $files$folders$models ]] && compopt -o filenames 2>/dev/null\n"
    "    return 0\n"
    "}\n"
    "complete -F _kvik kvik\n";

static void put_bash(void)
{
    const struct command *c;
    fputs("_kvik_commands='", stdout);
    for (size_t i = 0; (c = command_at(i)); i++)
        printf("%s ", c->name);
    fputs("run help --help --version'\n", stdout);
    fputs(bash_head, stdout);
    for (size_t i = 0; (c = command_at(i)); i++)
        bash_command(c, !strcmp(c->name, "chat") ? "chat | run" : c->name);
    fputs(bash_tail, stdout);
}

/* Prints a text inside single quotes of zsh, where brackets and colons of a specification are escaped. */
static void put_quoted(const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *s))
            printf("\\%c", *s);
        else
            putchar(*s);
    }
}

/* For zsh: prints the specification of an option for _arguments. */
static void zsh_option(const struct option_item *it)
{
    printf("            '%s--%s%s[", it->repeats ? "*" : "", it->name,
           it->kind == NOTHING ? "" : "=");
    put_quoted(it->help);
    putchar(']');
    if (it->kind != NOTHING) {
        putchar(':');
        put_quoted(*it->placeholder ? it->placeholder : "value");
        putchar(':');
    }
    if (it->kind == FILES && it->words[0])
        fputs("_kvik_formats", stdout); /* --template */
    else if (it->kind == FILES)
        fputs("_files", stdout);
    else if (it->kind == FOLDERS)
        fputs("_files -/", stdout);
    else if (it->kind == MODELS)
        fputs("_kvik_models", stdout);
    else if (it->words[0])
        printf("(%s)", it->words);
    puts("' \\");
}

#define ZSH_FIRST                                                                                  \
    "#compdef kvik\n"                                                                              \
    "# Completion of kvik for zsh, made by: kvik completion zsh\n"                                 \
    "_kvik_formats()\n"                                                                            \
    "{\n"                                                                                          \
    "    _alternative 'formats:format:(%s)' 'files:file:_files'\n"                                 \
    "}\n"
static const char zsh_head[] =
    "_kvik_models()\n"
    "{\n"
    "    local -a names\n"
    "    whence -p -- ${~kvik_program} >/dev/null || kvik_program=kvik\n"
    "    names=(${(f)\"$(command ${~kvik_program} models --names 2>/dev/null)\"})\n"
    "    _alternative 'models:model:compadd -a names' 'files:file:_files -g \"*.gguf(-.)\"' "
    "'folders:directory:_files -/'\n"
    "}\n"
    "_kvik()\n"
    "{\n"
    "    local -a commands\n"
    "    commands=(\n";
static const char zsh_middle[] = "    )\n"
                                 "    if ((CURRENT == 2)); then\n"
                                 "        _describe command commands\n"
                                 "        return\n"
                                 "    fi\n"
                                 "    local command=$words[2] kvik_program=$words[1]\n"
                                 "    shift words\n"
                                 "    ((CURRENT--))\n"
                                 "    case $command in\n"
                                 "    help) _describe command commands ;;\n";
static const char zsh_tail[] = "    esac\n"
                               "}\n"
                               "if [[ $funcstack[1] == _kvik ]]; then\n"
                               "    _kvik \"$@\"\n"
                               "else\n"
                               "    compdef _kvik kvik\n"
                               "fi\n";

static void put_zsh(void)
{
    const struct command *c;
    char names[256] = "";
    formats(names);
    printf(ZSH_FIRST, names);
    fputs(zsh_head, stdout);
    for (size_t i = 0; (c = command_at(i)); i++) {
        printf("        '%s:", c->name);
        put_quoted(c->summary);
        puts("'");
    }
    puts("        'run:the same as chat'\n        'help:help of a command'");
    fputs(zsh_middle, stdout);
    for (size_t i = 0; (c = command_at(i)); i++) {
        printf("    %s)\n        _arguments \\\n",
               !strcmp(c->name, "chat") ? "chat | run" : c->name);
        each_option(c, zsh_option);
        puts(takes_model(c)                   ? "            '1:model:_kvik_models' '*:text:' ;;"
             : !strcmp(c->name, "completion") ? "            '1:shell:(bash zsh)' ;;"
                                              : "            && return ;;");
    }
    fputs(zsh_tail, stdout);
}

static int run_completion(const struct command *self, int argc, char **argv)
{
    struct options o = {0};
    struct args a;
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0 && a.n == 1 && !strcmp(a.word[0], "bash"))
        put_bash();
    else if (status == 0 && a.n == 1 && !strcmp(a.word[0], "zsh"))
        put_zsh();
    else if (status == 0)
        status = say_usage("kvik completion takes the name of a shell: bash or zsh");
    args_done(&a);
    return MAX(status, 0);
}

const struct command command_completion = {
    .name = "completion",
    .usage = "bash|zsh",
    .summary = "print a completion script for a shell",
    .about =
        "Prints a script that completes commands, options, values and models, also for ./kvik. make install installs it. By hand:\n"
        "eval \"$(kvik completion bash)\" in ~/.bashrc, or with zsh in ~/.zshrc after compinit.",
    .run = run_completion,
};
