/* generate_c DIR: continues "hello" by 20 tokens, with the C interface. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/tarn.h>

/* Takes the place of the error, which is not read before the call is done. */
static void check(tarn_status status, tarn_error** error) {
  if (status == TARN_OK) return;
  fprintf(stderr, "error %d: %s\n", (int)status, tarn_error_message(*error));
  tarn_error_free(*error);
  exit(1);
}

int main(int argc, char** argv) {
  const char* prompt = "hello";
  tarn_sampler_options options = TARN_SAMPLER_OPTIONS_INIT;
  tarn_model* model = NULL;
  tarn_state* state = NULL;
  tarn_error* error = NULL;
  int32_t tokens[5], token;
  uint64_t count, bytes;
  float* logits;
  char text[4];
  int i;

  if (argc != 2) return 2;
  /* A failing call first: the error tells what was wrong, nothing ends. */
  if (tarn_model_open("/nonexistent", NULL, &model, &error) == TARN_OK)
    return 1;
  if (strstr(tarn_error_message(error), "/nonexistent") == NULL) return 1;
  tarn_error_free(error);

  check(tarn_model_open(argv[1], NULL, &model, &error), &error);
  check(tarn_state_new(model, &state, &error), &error);
  check(tarn_encode(model, prompt, strlen(prompt), tokens, 5, &count, &error),
        &error);
  logits = malloc(tarn_model_vocab_size(model) * sizeof(float));
  check(tarn_prefill(model, state, tokens, count, logits, &error), &error);
  options.seed = 7;
  for (i = 0; i < 20; ++i) {
    check(tarn_sample(logits, tarn_model_tokenizer_size(model), &options,
                      tarn_state_position(state), &token, &error),
          &error);
    check(tarn_decode(model, &token, 1, text, sizeof(text), &bytes, &error),
          &error);
    fwrite(text, 1, (size_t)bytes, stdout);
    check(tarn_step(model, state, token, logits, &error), &error);
  }
  if (tarn_state_bytes(state) != tarn_model_state_bytes(model)) return 1;
  free(logits);
  tarn_state_free(state);
  tarn_model_close(model);
  return 0;
}
