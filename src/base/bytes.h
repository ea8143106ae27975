/* bytes.h - byte counts as text for messages. */
#pragma once
#include "base/base.h"

char *bytes_text(uint64_t n, char out[16]); /* "64.0 MiB"; out */
