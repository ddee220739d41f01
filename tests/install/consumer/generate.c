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

/* Writes the text of each token as it comes. */
static int32_t tell(void* user, int32_t token, const char* text,
                    uint64_t bytes) {
  (void)token;
  return fwrite(text, 1, (size_t)bytes, (FILE*)user) == bytes ? 0 : 1;
}

int main(int argc, char** argv) {
  const char* prompt = "hello";
  tarn_sampler_options sampler = TARN_SAMPLER_OPTIONS_INIT;
  tarn_generate_options options = TARN_GENERATE_OPTIONS_INIT;
  tarn_model* model = NULL;
  tarn_state* state = NULL;
  tarn_error* error = NULL;
  int32_t* tokens;
  uint64_t count;

  if (argc != 2) return 2;
  /* A failing call first: the error tells what was wrong, nothing ends. */
  if (tarn_model_open("/nonexistent", NULL, &model, &error) == TARN_OK)
    return 1;
  if (strstr(tarn_error_message(error), "/nonexistent") == NULL) return 1;
  tarn_error_free(error);

  check(tarn_model_open(argv[1], NULL, &model, &error), &error);
  check(tarn_state_new(model, &state, &error), &error);
  /* The number of tokens first, then the tokens. */
  check(tarn_encode(model, prompt, strlen(prompt), NULL, 0, &count, &error),
        &error);
  tokens = malloc(count * sizeof(int32_t));
  check(
      tarn_encode(model, prompt, strlen(prompt), tokens, count, &count, &error),
      &error);
  sampler.seed = 7;
  options.sampler = &sampler;
  options.max_tokens = 20;
  options.callback = tell;
  options.user = stdout;
  check(tarn_generate(model, state, tokens, count, &options, &count, &error),
        &error);
  if (count != 20) return 1;
  if (tarn_state_bytes(state) != tarn_model_state_bytes(model)) return 1;
  free(tokens);
  tarn_state_free(state);
  tarn_model_close(model);
  return 0;
}
