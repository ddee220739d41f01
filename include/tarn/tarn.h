/* libtarn: linear-attention models that run as RNNs: language models,
 * sequence-to-sequence models, classifiers. C interface.
 *
 * Conventions, for every function:
 * - Calls that can fail return a tarn_status and take a tarn_error** as their
 *   last argument. On failure an error object is stored there (free it with
 *   tarn_error_free) and nothing else is written; on success NULL is stored.
 *   The argument itself may be NULL when the details are not wanted.
 * - A failure always leaves a message where `error` is not NULL, also when
 *   memory has run out. Read it in a statement after the call: in
 *   check(tarn_step(..., &error), error) a compiler may take the second
 *   argument before the first.
 * - Bad arguments, NULL included, are TARN_ERROR_ARGUMENT unless said
 *   otherwise. No call prints, aborts, exits or throws.
 * - Threads: a model may be used by any number of threads at once; a state, a
 *   session and a prefix cache by one at a time. Different ones are
 *   independent.
 * - Stack: a thread that calls the library needs a stack of 128 KiB or more;
 * the calls take up to 51 KiB of it (measured on x86-64). With less, such as 32
 * KiB, the process ends with a segmentation fault.
 * - Sizes are uint64_t, tokens int32_t, logits float[n_outputs].
 * - Structs that begin with struct_size may grow in later versions: set it to
 *   sizeof the struct (the _INIT macros do).
 */
#ifndef TARN_TARN_H_
#define TARN_TARN_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TARN_API __attribute__((visibility("default")))
#else
#define TARN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tarn_status {
  TARN_OK = 0,
  TARN_ERROR_ARGUMENT = 1,    /* a value outside its range */
  TARN_ERROR_SHAPE = 2,       /* sizes that do not fit each other */
  TARN_ERROR_DTYPE = 3,       /* an element type that is not supported */
  TARN_ERROR_DEVICE = 4,      /* a SIMD target this machine lacks */
  TARN_ERROR_FORMAT = 5,      /* a file whose contents are wrong */
  TARN_ERROR_IO = 6,          /* a file that cannot be read */
  TARN_ERROR_NUMERIC = 7,     /* NaN or infinity where a number must be */
  TARN_ERROR_INTERRUPTED = 8, /* a run that was asked to stop */
  TARN_ERROR_INTERNAL = 9     /* out of memory, or a fault of tarn itself */
} tarn_status;

typedef struct tarn_error tarn_error;
typedef struct tarn_model tarn_model;
typedef struct tarn_state tarn_state;
typedef struct tarn_decoder tarn_decoder;
typedef struct tarn_session tarn_session;
typedef struct tarn_prefix_cache tarn_prefix_cache;

/* "0.1.0". Static; never NULL. */
TARN_API const char* tarn_version(void);

/* --- Errors ------------------------------------------------------------- */

TARN_API tarn_status tarn_error_code(const tarn_error* error);
/* One line that names the place, what was wanted and what was given. Lives as
 * long as the error. "no error" for NULL, which no failing call stores. */
TARN_API const char* tarn_error_message(const tarn_error* error);
TARN_API void tarn_error_free(tarn_error* error); /* NULL: no effect */

/* --- Models ------------------------------------------------------------- */

/* How weights are held in memory. AUTO: as they are stored in groups or as
 * BF16, or else as F32. BF16 and the groups of INT8 and INT4 round what is
 * stored as numbers; what must be finer stays so. */
enum {
  TARN_WEIGHTS_AUTO = -1,
  TARN_WEIGHTS_F32 = 0,
  TARN_WEIGHTS_BF16 = 1,
  TARN_WEIGHTS_INT8 = 2,
  TARN_WEIGHTS_INT4 = 3
};
/* How layers of softmax attention hold keys and values of earlier tokens. */
enum { TARN_CACHE_F32 = 0, TARN_CACHE_BF16 = 1, TARN_CACHE_INT8 = 2 };

typedef struct tarn_model_options {
  size_t struct_size;
  int32_t weights;  /* TARN_WEIGHTS_* */
  int32_t threads;  /* 0: as many as the process may use */
  int32_t use_mmap; /* 1: weight file mapped; 0: read into memory */
  int32_t exact;    /* 1: products of weights in groups in float32, slower */
  int32_t cache;    /* TARN_CACHE_F32; others round, and need such layers */
} tarn_model_options;
#define TARN_MODEL_OPTIONS_INIT \
  { sizeof(tarn_model_options), TARN_WEIGHTS_AUTO, 0, 1, 0, TARN_CACHE_F32 }

/* Opens a model directory (config.json, model.safetensors, tokenizer.json and,
 * for a classifier, labels.json) or a GGUF file. All of it is checked before
 * use (TARN_ERROR_FORMAT, also for a kind of model that is not supported;
 * TARN_ERROR_IO). options: NULL gives the defaults. Costs one pass over the
 * weights. */
TARN_API tarn_status tarn_model_open(const char* path,
                                     const tarn_model_options* options,
                                     tarn_model** model, tarn_error** error);
/* Releases the caller's reference. The model lives on, and its pointer may be
 * used, while a state, a session or a prefix cache of it exists. NULL: no
 * effect. */
TARN_API void tarn_model_close(tarn_model* model);

/* Facts; 0 for NULL. Thread-safe, O(1). */
TARN_API uint64_t tarn_model_vocab_size(const tarn_model* model);
/* Floats in a row of logits: vocab_size or, for image models, 3 n_mixtures
 * parameters of the next byte's distribution. */
TARN_API uint64_t tarn_model_n_outputs(const tarn_model* model);
/* Ids below this number stand for text; a model may have more rows than that,
 * whose logits are not candidates (pass this as the count to tarn_sample). */
TARN_API uint64_t tarn_model_tokenizer_size(const tarn_model* model);
TARN_API uint64_t tarn_model_parameters(const tarn_model* model);
/* Floats in the vector of a text. */
TARN_API uint64_t tarn_model_d_model(const tarn_model* model);
TARN_API int32_t tarn_model_threads(const tarn_model* model);
/* Bytes of a new state; for linear models, of a state at any position. */
TARN_API uint64_t tarn_model_state_bytes(const tarn_model* model);
/* Bytes a state grows by with each token: 0 for linear models. */
TARN_API uint64_t tarn_model_state_bytes_per_token(const tarn_model* model);

/* What the model does: continue text (decoder), put texts into classes
 * (encoder), or write a target for a source (seq2seq). DECODER for NULL. */
enum { TARN_ARCH_DECODER = 0, TARN_ARCH_ENCODER = 1, TARN_ARCH_SEQ2SEQ = 2 };
TARN_API int32_t tarn_model_arch(const tarn_model* model);
/* The number of classes of a classifier, 0 for other models; the name of one
 * class, NULL when there is no such class. Names live as long as the model. */
TARN_API uint64_t tarn_model_n_classes(const tarn_model* model);
TARN_API const char* tarn_model_label(const tarn_model* model, uint64_t index);

/* --- States: the past of one sequence, as a value ------------------------ */

/* A state before the first token. For a sequence-to-sequence model it has no
 * source and can only be copied to. TARN_ERROR_ARGUMENT for a classifier. */
TARN_API tarn_status tarn_state_new(const tarn_model* model, tarn_state** state,
                                    tarn_error** error);
/* A copy, another value: it and its source may belong to different threads.
 * O(1); its bytes are copied when one of them is next changed. */
TARN_API tarn_status tarn_state_clone(const tarn_state* state,
                                      tarn_state** clone, tarn_error** error);
/* Overwrites `to` with `from`; both of one model. O(1), as tarn_state_clone. */
TARN_API tarn_status tarn_state_copy(tarn_state* to, const tarn_state* from,
                                     tarn_error** error);
/* Returns to before the first token; the source is kept. */
TARN_API tarn_status tarn_state_reset(tarn_state* state, tarn_error** error);
/* Writes a state as one file that appears whole or not at all: position, past,
 * source and last logits. TARN_ERROR_NUMERIC for NaN or infinity in it,
 * TARN_ERROR_IO. O(bytes). */
TARN_API tarn_status tarn_state_save(const tarn_state* state, const char* path,
                                     tarn_error** error);
/* A new state from such a file, equal to the saved one bit for bit. The file
 * must be of this model: the same configuration, weights and type of weights.
 * Sizes, numbers and a hash of the contents are checked (TARN_ERROR_FORMAT);
 * TARN_ERROR_IO when it cannot be read. */
TARN_API tarn_status tarn_state_load(const tarn_model* model, const char* path,
                                     tarn_state** state, tarn_error** error);
/* The same file as bytes in memory, for a caller that keeps it elsewhere. Into
 * `bytes`, at most `capacity` of them; *size is their number, also when the
 * call fails with TARN_ERROR_SHAPE because capacity is smaller. bytes NULL:
 * only counts. tarn_state_deserialize checks bytes as tarn_state_load checks a
 * file and keeps no pointer to them. */
TARN_API tarn_status tarn_state_serialize(const tarn_state* state, void* bytes,
                                          uint64_t capacity, uint64_t* size,
                                          tarn_error** error);
TARN_API tarn_status tarn_state_deserialize(const tarn_model* model,
                                            const void* bytes, uint64_t size,
                                            tarn_state** state,
                                            tarn_error** error);
TARN_API void tarn_state_free(tarn_state* state); /* NULL: no effect */
/* Facts; 0 for NULL. Position: tokens consumed. */
TARN_API uint64_t tarn_state_bytes(const tarn_state* state);
TARN_API uint64_t tarn_state_position(const tarn_state* state);
/* Bytes of what tarn_encode_source made, shared by all copies of the state. */
TARN_API uint64_t tarn_state_memory_bytes(const tarn_state* state);
/* 1 if both hold the same bits, else 0 (also when one is NULL). O(bytes). */
TARN_API int32_t tarn_state_equal(const tarn_state* a, const tarn_state* b);
TARN_API uint64_t tarn_state_hash(const tarn_state* state);
/* Logits after the last consumed token, kept with the state: `count` floats,
 * valid until the state changes. NULL and 0 when there are none: before the
 * first token, and after a call that asked for no logits. count may be NULL. */
TARN_API const float* tarn_state_last_logits(const tarn_state* state,
                                             uint64_t* count);

/* --- Running ------------------------------------------------------------ */

/* Consumes `count` tokens (0 is allowed). logits: n_outputs floats for the
 * last token, or NULL to skip the head. Any split of a prompt over prefill,
 * step and batch calls and any number of threads give the same bits. */
TARN_API tarn_status tarn_prefill(const tarn_model* model, tarn_state* state,
                                  const int32_t* tokens, uint64_t count,
                                  float* logits, tarn_error** error);
/* Consumes one token. Constant time and memory for linear models. */
TARN_API tarn_status tarn_step(const tarn_model* model, tarn_state* state,
                               int32_t token, float* logits,
                               tarn_error** error);

typedef struct tarn_job {
  tarn_state* state; /* the states of one call are distinct */
  const int32_t* tokens;
  uint64_t count;
  float* logits;      /* may be NULL */
  int32_t all_logits; /* 0: last token; 1: all, [count, n_outputs] */
} tarn_job;
/* Several sequences at once; counts may differ. Weights are read once for all.
 * No bit of one job depends on the others. */
TARN_API tarn_status tarn_step_batch(const tarn_model* model,
                                     const tarn_job* jobs, uint64_t count,
                                     tarn_error** error);

/* --- Sources, classes, beams --------------------------------------------- */

/* Sequence-to-sequence models: reads a source of `count` tokens (0 is allowed)
 * and makes the state before the first token of its target. tarn_prefill,
 * tarn_step and tarn_step_batch then run the decoder. A target begins and ends
 * with the token of "\n". */
TARN_API tarn_status tarn_encode_source(const tarn_model* model,
                                        const int32_t* tokens, uint64_t count,
                                        tarn_state** state, tarn_error** error);
/* Classifiers: writes logits[n_classes] for `count` >= 1 tokens. The largest is
 * the class; their softmax gives the probabilities. */
TARN_API tarn_status tarn_classify(const tarn_model* model,
                                   const int32_t* tokens, uint64_t count,
                                   float* logits, tarn_error** error);

/* What makes the vector of a text: the rows of all its tokens after the last
 * layer and its norm, their mean, or the row of the last token. */
enum { TARN_POOLING_MEAN = 0, TARN_POOLING_LAST = 1 };
typedef struct tarn_text {
  const int32_t* tokens;
  uint64_t count; /* 1 or more */
} tarn_text;
/* Language models: writes vectors[count, d_model], each of length 1, so that
 * the product of two is their cosine. Texts share the reading of the weights;
 * no bit of a vector depends on the others, nor on the number of threads.
 * Memory: for texts of any length one row each, and the states of as many as
 * run at one time (256, or 256 MiB). TARN_ERROR_NUMERIC for a vector that is
 * not finite; `vectors` is then undefined. */
TARN_API tarn_status tarn_embed(const tarn_model* model, const tarn_text* texts,
                                uint64_t count, int32_t pooling, float* vectors,
                                tarn_error** error);

typedef struct tarn_beam_options {
  size_t struct_size;
  int32_t start, end;    /* tokens before the first and after the last */
  uint64_t beam;         /* hypotheses kept, 1 (greedy) to 1024 */
  uint64_t max_tokens;   /* per hypothesis, its end included */
  double length_penalty; /* score = log p / length^length_penalty, >= 0 */
} tarn_beam_options;
#define TARN_BEAM_OPTIONS_INIT \
  { sizeof(tarn_beam_options), 0, 0, 1, 256, 1.0 }

/* Finds the best continuation of a state, which is left as it is: token after
 * token, or with `beam` hypotheses side by side. options: NULL gives the
 * defaults. Writes at most `capacity` tokens, without start and end; *count is
 * the length of the continuation, also when the call fails with
 * TARN_ERROR_SHAPE because capacity is smaller. score may be NULL.
 * Deterministic. TARN_ERROR_NUMERIC when logits are not finite. */
TARN_API tarn_status tarn_beam_search(const tarn_model* model,
                                      const tarn_state* state,
                                      const tarn_beam_options* options,
                                      int32_t* tokens, uint64_t capacity,
                                      uint64_t* count, double* score,
                                      tarn_error** error);

/* --- Text and tokens ---------------------------------------------------- */

/* Encodes `bytes` bytes of text (no terminator needed) as tokens. Writes at
 * most `capacity` tokens; *count is the number of all tokens, also when the
 * call fails with TARN_ERROR_SHAPE because capacity is smaller. tokens NULL:
 * only counts. TARN_ERROR_FORMAT names the byte of a character the model does
 * not know. */
TARN_API tarn_status tarn_encode(const tarn_model* model, const char* text,
                                 uint64_t bytes, int32_t* tokens,
                                 uint64_t capacity, uint64_t* count,
                                 tarn_error** error);
/* The same with the tokens that the tokenizer puts before and after a text,
 * such as <bos>: for a prompt at position 0. Most tokenizers put none. */
TARN_API tarn_status tarn_encode_prompt(const tarn_model* model,
                                        const char* text, uint64_t bytes,
                                        int32_t* tokens, uint64_t capacity,
                                        uint64_t* count, tarn_error** error);
/* Decodes tokens to text, by the same rules; no terminator is written. They are
 * a text as a whole: a space that the tokenizer puts before a text is taken
 * away. The text of a byte model may end inside a UTF-8 sequence. */
TARN_API tarn_status tarn_decode(const tarn_model* model, const int32_t* tokens,
                                 uint64_t count, char* text, uint64_t capacity,
                                 uint64_t* bytes, tarn_error** error);

/* Decodes a text whose tokens come one by one; all together they give what
 * tarn_decode gives. continues: 0 where they begin a text, else 1 where they
 * continue one, such as a prompt. Keeps the model alive. Close it with
 * tarn_decoder_free. */
TARN_API tarn_status tarn_decoder_new(const tarn_model* model,
                                      int32_t continues, tarn_decoder** decoder,
                                      tarn_error** error);
/* The bytes that one more token adds, by the rules of tarn_decode. The token
 * counts as decoded only where they were written: not where the call fails, nor
 * with text NULL. */
TARN_API tarn_status tarn_decoder_next(tarn_decoder* decoder, int32_t token,
                                       char* text, uint64_t capacity,
                                       uint64_t* bytes, tarn_error** error);
TARN_API void tarn_decoder_free(tarn_decoder* decoder); /* NULL: no effect */

typedef struct tarn_logit_bias {
  int32_t token;
  float bias; /* -100 to 100, added to the logit; -infinity: never */
} tarn_logit_bias;

/* Names, defaults and order are llama.cpp's; docs/sampling.md has all ranges.
 */
typedef struct tarn_sampler_options {
  size_t struct_size;
  int32_t reserved;   /* 0 */
  double temperature; /* <= 0: the best token, ties to the lowest id; <= 100 */
  int64_t top_k;      /* 0: off */
  double top_p;       /* (0, 1]; 1: off */
  double min_p;       /* [0, 1]; 0: off */
  uint64_t seed, stream;
  double typical_p;                         /* (0, 1]; 1: off */
  double top_n_sigma;                       /* <= 0: off */
  double xtc_probability, xtc_threshold;    /* probability 0: off */
  double dynatemp_range, dynatemp_exponent; /* range 0: off */
  int64_t min_keep;                         /* no stage leaves fewer tokens */
  /* The last tokens that count for the three penalties; 0: off, -1: all. */
  int64_t repeat_last_n;
  double repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
  double dry_multiplier, dry_base; /* multiplier 0: off */
  int64_t dry_allowed_length, dry_penalty_last_n;
  /* At most 16 texts of 1 to 40 bytes. NULL and 0: newline, colon, quotation
   * mark and asterisk; for none give a pointer and 0. */
  const char* const* dry_sequence_breakers;
  uint64_t dry_sequence_breaker_count;
  int64_t mirostat; /* 0: off, 1, 2 */
  double mirostat_tau, mirostat_eta;
  const tarn_logit_bias* logit_bias; /* at most 1024 */
  uint64_t logit_bias_count;
  /* Names of stages with ; between them, which run in this order; what is left
   * out does not run. NULL: "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;
   * xtc;temperature" (one line, without the space). */
  const char* samplers;
} tarn_sampler_options;
#define TARN_SAMPLER_OPTIONS_INIT                                            \
  {                                                                          \
    sizeof(tarn_sampler_options), 0, 0.8, 40, 0.95, 0.05, 0, 0, 1.0, -1.0,   \
        0.0, 0.1, 0.0, 1.0, 0, 64, 1.0, 0.0, 0.0, 0.0, 1.75, 2, 64, NULL, 0, \
        0, 5.0, 0.1, NULL, 0, NULL                                           \
  }

/* Fills in what the model's directory says (generation_config.json with
 * do_sample), else the defaults above; seed, stream and pointers stay.
 * struct_size must be set; a smaller one of an earlier version fills in what
 * that has. No effect for NULL. */
TARN_API void tarn_model_sampler(const tarn_model* model,
                                 tarn_sampler_options* options);
/* Tokens with which the model's texts end, as its directory says; valid as long
 * as the model. count may not be NULL. */
TARN_API const int32_t* tarn_model_stop_tokens(const tarn_model* model,
                                               uint64_t* count);

/* Draws a token from `count` logits: the stages of sampling, then a draw. A
 * pure function of its arguments; `position` counts the draws (the position of
 * the state will do). It knows no earlier tokens: penalties and DRY change
 * nothing, Mirostat begins, and tarn_generate has them all. options: NULL gives
 * the defaults. TARN_ERROR_NUMERIC for NaN or +inf. O(count). */
TARN_API tarn_status tarn_sample(const float* logits, uint64_t count,
                                 const tarn_sampler_options* options,
                                 uint64_t position, int32_t* token,
                                 tarn_error** error);

/* --- Writing text ------------------------------------------------------- */

/* Receives every token with its `bytes` bytes of text (no terminator; not
 * always whole characters), which are valid during the call. With stop texts
 * the bytes are those that no stop text can reach any more; bytes held back
 * before a stop token come with token -1. A result other than 0 ends the run,
 * which is not an error. Must not throw. `user` is the pointer of the
 * options. */
typedef int32_t (*tarn_token_callback)(void* user, int32_t token,
                                       const char* text, uint64_t bytes);

/* JSON: any JSON document. */
enum {
  TARN_GRAMMAR_NONE = 0,
  TARN_GRAMMAR_GBNF = 1,
  TARN_GRAMMAR_JSON_SCHEMA = 2,
  TARN_GRAMMAR_REGEX = 3,
  TARN_GRAMMAR_JSON = 4
};

typedef struct tarn_generate_options {
  size_t struct_size;
  /* To generate. A model with learned positions refuses more than its table of
   * max_positions has room for after the prompt, before any work. */
  uint64_t max_tokens;
  const tarn_sampler_options* sampler; /* NULL: those of tarn_model_sampler */
  tarn_token_callback callback;        /* may be NULL */
  /* Called between steps and between blocks of the prompt; may be NULL. A
   * result other than 0 ends the call with TARN_ERROR_INTERRUPTED; the state
   * then holds what was consumed. */
  int32_t (*cancel)(void* user);
  void* user;
  /* Texts that end the run, `stop_count` (at most 64) strings of 1 to 4096
   * bytes: neither the text that is complete first nor what follows it is
   * passed on; the state holds its tokens. NULL: none. */
  const char* const* stop;
  uint64_t stop_count;
  /* Tokens that end the run; they are neither passed on nor consumed. NULL:
   * those of tarn_model_stop_tokens; for none give a pointer and count 0. */
  const int32_t* stop_tokens;
  uint64_t stop_token_count;
  /* What the text must be (docs/grammars.md): TARN_GRAMMAR_*, and its source,
   * which is NULL for NONE and JSON. */
  const char* grammar;
  int32_t grammar_kind;
} tarn_generate_options;
#define TARN_GENERATE_OPTIONS_INIT                                             \
  {                                                                            \
    sizeof(tarn_generate_options), 256, NULL, NULL, NULL, NULL, NULL, 0, NULL, \
        0, NULL, TARN_GRAMMAR_NONE                                             \
  }

/* Consumes a prompt and generates text: draws a token as tarn_sample does with
 * the state's position, consumes it, passes it to the callback, and repeats.
 * The state continues from where it is and in the end holds all tokens passed
 * on. An empty prompt at position 0 begins from a newline (token 0 where there
 * is none); later on the state must have its last logits. options: NULL gives
 * the defaults. generated (may be NULL): the number of tokens.
 * TARN_ERROR_ARGUMENT for a model that does not write text; TARN_ERROR_NUMERIC
 * when logits are not finite. */
TARN_API tarn_status tarn_generate(const tarn_model* model, tarn_state* state,
                                   const int32_t* prompt, uint64_t count,
                                   const tarn_generate_options* options,
                                   uint64_t* generated, tarn_error** error);

/* --- Sessions: a sequence with its whole past ---------------------------- */

/* A session is a state together with the tokens that it has read, the text that
 * is being drawn, states at earlier positions, and named marks. Everything is
 * exact: after any of the calls below state and logits have the bits of a
 * session that has read the same tokens and nothing else. */
typedef struct tarn_session_options {
  size_t struct_size;
  uint64_t snapshot_bytes; /* of earlier states; the earliest go first */
  /* States kept after each of as many last tokens, at most 1,024: going back by
   * fewer reads nothing again, and each token costs a copy of a state. */
  uint64_t every_token;
} tarn_session_options;
#define TARN_SESSION_OPTIONS_INIT \
  { sizeof(tarn_session_options), 268435456, 0 }

/* A session before the first token, which keeps the model alive. options: NULL
 * gives the defaults. TARN_ERROR_ARGUMENT for a model other than a language
 * model that is a decoder. */
TARN_API tarn_status tarn_session_new(const tarn_model* model,
                                      const tarn_session_options* options,
                                      tarn_session** session,
                                      tarn_error** error);
TARN_API void tarn_session_free(tarn_session* session); /* NULL: no effect */

/* Consumes what is pending, then `count` tokens, and keeps the logits of the
 * last. A text that is being drawn ends. Nothing changes for a token outside
 * the vocabulary and for more tokens than a model has learned positions
 * (TARN_ERROR_ARGUMENT). */
TARN_API tarn_status tarn_session_append(tarn_session* session,
                                         const int32_t* tokens, uint64_t count,
                                         tarn_error** error);
/* Begins a text, which tarn_session_next draws: after what is pending and a
 * prompt of `count` tokens, at most max_tokens tokens. With an empty prompt it
 * continues where the session stands, which needs a token before. Consumes
 * nothing yet; a text that has begun is dropped. options: NULL gives the
 * defaults. Its callback must be NULL; cancel and user must be valid while the
 * text is drawn, also by forks, and everything else is copied. On failure
 * nothing changes: TARN_ERROR_ARGUMENT, and TARN_ERROR_FORMAT for a grammar
 * that is not valid. */
TARN_API tarn_status tarn_session_begin(tarn_session* session,
                                        const int32_t* prompt, uint64_t count,
                                        const tarn_generate_options* options,
                                        tarn_error** error);

/* How a text stands. */
enum {
  TARN_END_NONE = 0,   /* it continues */
  TARN_END_BUDGET = 1, /* it has max_tokens tokens */
  TARN_END_STOP_TOKEN = 2,
  TARN_END_STOP_TEXT = 3,
  TARN_END_GRAMMAR = 4 /* nothing may follow what is there */
};
typedef struct tarn_session_token {
  size_t struct_size;
  int32_t token; /* -1: none, with the text at its end */
  int32_t end;   /* TARN_END_* */
  /* The text that the token settles (tarn_token_callback), valid until the next
   * call that changes the session. */
  const char* text;
  uint64_t bytes;
} tarn_session_token;
#define TARN_SESSION_TOKEN_INIT \
  { sizeof(tarn_session_token), -1, TARN_END_NONE, NULL, 0 }

/* Consumes what is pending and draws a token of the text, which is pending
 * then. A stop token is neither given nor pending, and what was held back
 * before it comes with token -1. Once the text has ended it only consumes, and
 * gives -1: a loop up to -1 leaves nothing pending. TARN_ERROR_ARGUMENT without
 * a text (tarn_session_begin), TARN_ERROR_INTERRUPTED where `cancel` of the
 * options says so, TARN_ERROR_NUMERIC when logits are not finite; what was
 * consumed stays so, and the next call goes on. */
TARN_API tarn_status tarn_session_next(tarn_session* session,
                                       tarn_session_token* token,
                                       tarn_error** error);

/* Where the draft tokens of speculative decoding come from. */
enum {
  TARN_DRAFT_NONE = 0,
  TARN_DRAFT_NGRAM = 1, /* from what the text repeats of itself */
  TARN_DRAFT_MODEL = 2, /* from a small model with the same tokenizer */
  TARN_DRAFT_MTP = 3    /* from the model's own extra prediction head */
};
/* From now on draft tokens, at most `most` (1 to 64; 0: 12) at once, are read
 * in one pass together with the token that was drawn, as far as that is
 * measured to pay. Texts, states and logits stay the same bit for bit; where a
 * draft token is accepted, tarn_session_next gives it without running the
 * model. Meanwhile the position may stand at an earlier token than without
 * drafts, with several tokens pending. Marks, rollback and a new text are as
 * without. draft: for TARN_DRAFT_MODEL, kept alive; else unused. The head of
 * TARN_DRAFT_MTP is read from the model's directory when a session first asks
 * for it, and drafts from what the model reads from then on.
 * TARN_ERROR_ARGUMENT for another tokenizer and for a model without such a
 * head, TARN_ERROR_FORMAT or TARN_ERROR_IO where its files can no longer be
 * read, with nothing changed. */
TARN_API tarn_status tarn_session_speculate(tarn_session* session,
                                            int32_t source,
                                            const tarn_model* draft,
                                            uint32_t most, tarn_error** error);
/* Tokens that were drafted since then, and how many of them were accepted (each
 * may be NULL). */
TARN_API void tarn_session_draft_counts(const tarn_session* session,
                                        uint64_t* drafted, uint64_t* accepted);

/* A session that continues by itself from the same value: state, tokens, text
 * and marks. stream: of the random numbers that its text draws with; NULL: as
 * this one. O(tokens); the state is copied when one of them next moves, and
 * earlier states are shared. */
TARN_API tarn_status tarn_session_fork(const tarn_session* session,
                                       const uint64_t* stream,
                                       tarn_session** fork, tarn_error** error);

/* Gives the present position a name of 1 to 64 letters, digits, - and _, or
 * moves the name here; at most 64 names. */
TARN_API tarn_status tarn_session_mark(tarn_session* session, const char* name,
                                       tarn_error** error);
/* Takes a mark away. 1 if there was one, else 0 (also for NULL). */
TARN_API int32_t tarn_session_unmark(tarn_session* session, const char* name);
/* Where a mark stands. TARN_ERROR_ARGUMENT where there is no such mark. */
TARN_API tarn_status tarn_session_mark_position(const tarn_session* session,
                                                const char* name,
                                                uint64_t* position,
                                                tarn_error** error);
/* Goes back to a position, at most the present one, from the nearest state that
 * is kept; *replayed (may be NULL): how many tokens were read again. What is
 * pending is dropped, and later marks are. A text continues from there if it
 * had begun by then. On failure nothing changes. */
TARN_API tarn_status tarn_session_rollback(tarn_session* session,
                                           uint64_t position,
                                           uint64_t* replayed,
                                           tarn_error** error);
/* The same to a mark, which stays. */
TARN_API tarn_status tarn_session_rollback_to(tarn_session* session,
                                              const char* mark,
                                              uint64_t* replayed,
                                              tarn_error** error);

/* Writes a session as one file that appears whole or not at all. O(bytes).
 * TARN_ERROR_NUMERIC for NaN or infinity in it, TARN_ERROR_IO. */
TARN_API tarn_status tarn_session_save(const tarn_session* session,
                                       const char* path, tarn_error** error);
/* A new session from such a file, equal to the saved one bit for bit, whose
 * text draws the same tokens. The file must be of this model, as for
 * tarn_state_load; everything in it is checked (TARN_ERROR_FORMAT,
 * TARN_ERROR_IO). */
TARN_API tarn_status tarn_session_load(const tarn_model* model,
                                       const char* path,
                                       const tarn_session_options* options,
                                       tarn_session** session,
                                       tarn_error** error);

/* The same file as bytes in memory, by the rules of tarn_state_serialize.
 * O(bytes) also where it only counts. */
TARN_API tarn_status tarn_session_serialize(const tarn_session* session,
                                            void* bytes, uint64_t capacity,
                                            uint64_t* size, tarn_error** error);
TARN_API tarn_status
tarn_session_deserialize(const tarn_model* model, const void* bytes,
                         uint64_t size, const tarn_session_options* options,
                         tarn_session** session, tarn_error** error);

/* Facts; 0 for NULL. Position: tokens consumed, without those pending. Snapshot
 * bytes: of earlier states and marks. */
TARN_API uint64_t tarn_session_position(const tarn_session* session);
TARN_API uint64_t tarn_session_state_bytes(const tarn_session* session);
TARN_API uint64_t tarn_session_snapshot_bytes(const tarn_session* session);
/* The tokens consumed, oldest first, by the rules of tarn_encode. */
TARN_API tarn_status tarn_session_tokens(const tarn_session* session,
                                         int32_t* tokens, uint64_t capacity,
                                         uint64_t* count, tarn_error** error);
/* Those to consume next, in the same way: a prompt, or the token drawn last,
 * with drafts several of these. */
TARN_API tarn_status tarn_session_pending(const tarn_session* session,
                                          int32_t* tokens, uint64_t capacity,
                                          uint64_t* count, tarn_error** error);
/* Logits after the last consumed token, by the rules of
 * tarn_state_last_logits. */
TARN_API const float* tarn_session_logits(const tarn_session* session,
                                          uint64_t* count);
/* 1 if both have the same state, tokens and pending tokens bit for bit, else 0
 * (also when one is NULL). O(bytes). */
TARN_API int32_t tarn_session_equal(const tarn_session* a,
                                    const tarn_session* b);

/* States after the beginnings that sessions of one model share, so that a
 * prompt which was read once is not read again. At most max_bytes bytes; what
 * goes first is large and has not been used for long. Keeps the model alive. */
TARN_API tarn_status tarn_prefix_cache_new(const tarn_model* model,
                                           uint64_t max_bytes,
                                           tarn_prefix_cache** cache,
                                           tarn_error** error);
TARN_API void tarn_prefix_cache_free(tarn_prefix_cache* cache); /* or NULL */
/* Brings a session, whose past and marks are dropped, to the longest beginning
 * of `tokens` that is known; *length (may be NULL) is how many these are, and
 * the caller appends the rest. space: what one space has read is not found in
 * another; NULL: "". O(count + state). */
TARN_API tarn_status tarn_prefix_cache_restore(
    tarn_prefix_cache* cache, const char* space, const int32_t* tokens,
    uint64_t count, tarn_session* session, uint64_t* length,
    tarn_error** error);
/* Adds the states that a session keeps, and its present one. */
TARN_API tarn_status tarn_prefix_cache_insert(tarn_prefix_cache* cache,
                                              const char* space,
                                              tarn_session* session,
                                              tarn_error** error);
TARN_API uint64_t tarn_prefix_cache_bytes(const tarn_prefix_cache* cache);

#ifdef __cplusplus
}
#endif

#endif /* TARN_TARN_H_ */
