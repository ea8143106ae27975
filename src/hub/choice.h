/* choice.h - which files of a repository kvik reads, and so downloads. */
#pragma once
#include "hub/listing.h"

/* Marks the files that a name wants.  `pick` names a .gguf file or quantization, or any other file.  Without a pick
 * these are the configuration, the tokenizer, templates and the weights in safetensors; in a repository without such
 * weights the only .gguf file, or that with the quantization Q4_K_M.  All parts of a .gguf file are marked.  If
 * there are several .gguf files to choose from, an error lists them. */
int choice_make(struct listing *l, const struct hub_name *name);
/* Marks the files of weights that an index names, and unmarks all other files of weights. */
int choice_shards(struct listing *l, const char *text, size_t n);
/* True if a file is a model in the format GGUF, in one piece or the first of several. */
bool choice_is_gguf(const char *path);
/* Returns 3 for "NAME-00002-of-00003.gguf", and *part is 2; 1 for a file in one piece. */
unsigned choice_parts(const char *path, unsigned *part);
/* Makes a path of that form name another part. */
void choice_set_part(char *path, unsigned part);
/* Writes the word that names a .gguf file behind "ORG/NAME:": its quantization if no other file has it, else its path. */
void choice_word(const struct listing *l, const char *path, char out[HUB_PICK]);

/* Returns the bytes of a .gguf file, with those of its other parts. */
uint64_t choice_bytes(const struct listing *l, const struct listed *first);

#define CHOICE_INDEX "model.safetensors.index.json"
