/* share.h - which part of its cases a test runs. */
#pragma once
#include <stdlib.h>
#include <string.h>

/* Returns by how much a test is shortened: 1 in the release build; 4 with KVIK_TEST_SHORT=1 (ASan); 24 with
 * KVIK_TEST_SHORT=2 (TSan).  Short forms only look for memory errors and races.  The release build looks for wrong
 * results. */
static inline unsigned test_share(void)
{
    const char *v = getenv("KVIK_TEST_SHORT");
    return !v ? 1 : strcmp(v, "2") == 0 ? 24 : 4;
}
