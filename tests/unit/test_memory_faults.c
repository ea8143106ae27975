/* test_memory_faults.c - the system has no memory: each allocation and each mapping of a whole run fails once, or fails
 * together with all later ones. The allocations of jansson, PCRE2 and the C library count too. A step that fails says
 * KVIK_NOMEM. Without KVIK_TEST_LONG the test tries a sample. */
#include "fault_runs.h"

static bool no_memory(int e)
{
    return e == KVIK_NOMEM;
}

static void sweep(void **state)
{
    static const struct sweep once = {"once", SHIM_MEMORY, ENOMEM, false, no_memory},
                              stays = {"for good", SHIM_MEMORY, ENOMEM, true, no_memory};
    sweep_scene(*state, &once);
    sweep_scene(*state, &stays);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[countof(scenes)];
    size_t n = 0;
    for (size_t i = 0; i < countof(scenes); i++)
        if (argc < 2 || strcmp(argv[1], scenes[i].name) == 0)
            tests[n++] = (struct CMUnitTest){scenes[i].name, sweep, NULL, NULL, &scenes[i]};
    return _cmocka_run_group_tests("memory_faults", tests, n, setup, teardown);
}
