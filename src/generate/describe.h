/* describe.h - descriptions of a model and of its caches, as JSON objects that the caller owns. */
#pragma once
#include "base/json.h"
#include "generate/handle.h"

int describe_model(const kvik_model *k, json_t **out);
/* Describes each cache strategy for one model. */
int describe_caches(const struct model *m, json_t **out);
/* Lists the codecs of this build, each with each number of bits, as configurations: name, backend, cache_config. */
int describe_codecs(json_t **out);
/* Adds what a file states about itself: its name, and the types of its weights. */
int describe_file(const struct checkpoint *ck, json_t *o);
