/* replay.c - runs a fuzz target over files: every file of the directories given as arguments (one
 * level deep), and every file given directly.
 * So the corpus is a regression test in any build, without libFuzzer. Each input lies in a block of
 * exactly its size, so that a sanitizer sees a read of the first byte past the end. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static long n_inputs;

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) < 0) {
        fprintf(stderr, "replay: cannot read %s\n", path);
        if (f) fclose(f);
        return 1;
    }
    size_t n = (size_t)st.st_size;
    uint8_t *data = malloc(n ? n : 1);
    int failed = !data || fread(data, 1, n, f) != n;
    fclose(f);
    if (failed)
        fprintf(stderr, "replay: cannot read %s\n", path);
    else
        LLVMFuzzerTestOneInput(data, n);
    free(data);
    n_inputs++;
    return failed;
}

static int run_dir(const char *path)
{
    struct dirent **e = NULL;
    struct stat st;
    int failed = 0, inputs = 0;
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) return run_file(path);
    int n = scandir(path, &e, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, e[i]->d_name);
        if (e[i]->d_name[0] != '.') inputs++, failed |= run_file(file);
        free(e[i]);
    }
    free(e);
    if (inputs == 0) fprintf(stderr, "replay: no input can be read in %s\n", path);
    return failed || inputs == 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++)
        failed |= run_dir(argv[i]);
    printf("replay: %ld inputs\n", n_inputs);
    return failed || n_inputs == 0;
}
