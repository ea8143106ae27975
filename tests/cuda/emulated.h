/* emulated.h - what tests ask of the emulated device (rt_emulated.c), which exports it as "kvik_emulated_counts". */
#pragma once
#include <stdint.h>

struct emulated_counts {
    _Atomic uint64_t given;     /* operations that a stream was given one by one */
    _Atomic uint64_t graphs;    /* that were made */
    _Atomic uint64_t sets;      /* operations of graphs that were set */
    _Atomic uint64_t runs;      /* of graphs */
    _Atomic uint64_t in_graphs; /* operations of those runs */
    _Atomic uint64_t pageable;  /* bytes of copies of memory of the host that is not pinned */
    _Atomic uint64_t pinned;    /* bytes of the others */
    _Atomic uint64_t held;      /* bytes of memory of callers that is pinned now */
    _Atomic uint64_t waits;     /* of the host, for a stream */
    _Atomic uint64_t beside;    /* kernels given while another stream copies */
    _Atomic uint64_t refuse; /* set by a test: the event after so many is not recorded; 0: none */
};
