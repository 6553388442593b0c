/* Asks NCCL's example tuner plugin what it takes: a query a line, "ranks hosts collective bytes",
 * an answer a line, "algorithm protocol" by NCCL's numbers, -1 -1 if it leaves the choice. */
#include <stdio.h>
#include "tuner.h"

extern const ncclTuner_t PLUGIN;

static void silent(ncclDebugLogLevel level, unsigned long flags, const char* file, int line,
                   const char* format, ...) {
  (void)level; (void)flags; (void)file; (void)line; (void)format;
}

int main(void) {
  size_t ranks, hosts, bytes, of_ranks = 0, of_hosts = 0;
  int collective;
  void* context = NULL;
  while (scanf("%zu %zu %d %zu", &ranks, &hosts, &collective, &bytes) == 4) {
    if (ranks != of_ranks || hosts != of_hosts) {
      if (context) PLUGIN.finalize(context);
      if (PLUGIN.init(&context, 0, ranks, hosts, silent, NULL, NULL) != ncclSuccess) return 1;
      of_ranks = ranks; of_hosts = hosts;
    }
    float costs[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS];
    for (int a = 0; a < NCCL_NUM_ALGORITHMS; a++)
      for (int p = 0; p < NCCL_NUM_PROTOCOLS; p++) costs[a][p] = 1;
    int channels = 0, algorithm = -1, protocol = -1;
    if (PLUGIN.getCollInfo(context, (ncclFunc_t)collective, bytes, 1, (float**)costs,
                           NCCL_NUM_ALGORITHMS, NCCL_NUM_PROTOCOLS, 0, &channels) != ncclSuccess)
      return 2;
    for (int a = 0; a < NCCL_NUM_ALGORITHMS; a++)
      for (int p = 0; p < NCCL_NUM_PROTOCOLS; p++)
        if (costs[a][p] == 0) { algorithm = a; protocol = p; }
    printf("%d %d\n", algorithm, protocol);
  }
  return 0;
}
