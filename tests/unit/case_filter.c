/* case_filter.c - linked into every unit test: CMOCKA_TEST_FILTER='*turns*' runs only the cases whose names match.  cmocka
 * itself takes a pattern from the program alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void choose_cases(void)
{
    cmocka_set_test_filter(getenv("CMOCKA_TEST_FILTER"));
}
