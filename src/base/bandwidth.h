/* bandwidth.h - how fast this machine reads memory: the floor that decoding is measured against. */
#pragma once
#include "base/base.h"

/* Returns the bytes per second of a plain read of a large buffer with n threads (0: all CPUs), the median of five
 * runs; 0 if there is no memory for the buffer.  Takes about a second and 512 MiB. */
double bandwidth_read(uint32_t n_threads);
