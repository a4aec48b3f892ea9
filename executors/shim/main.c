#include "shim.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int (*run)(int, char **);
  } commands[] = {
      {"outer", cmd_outer}, {"inner", cmd_inner}, {"entry", cmd_entry}, {"walk", cmd_walk},         {"scan", cmd_scan},
      {"apply", cmd_apply}, {"watch", cmd_watch}, {"layer", cmd_layer}, {"upper", cmd_upper},       {"agentctl", cmd_agentctl},
      {"landlock", cmd_landlock},
  };
  const char *slash = argc >= 1 ? strrchr(argv[0], '/') : NULL;
  if (argc >= 1 && strcmp(slash == NULL ? argv[0] : slash + 1, "agentctl") == 0) return cmd_agentctl(argc, argv);
  if (argc >= 2 && strcmp(argv[1], "version") == 0) {
    printf("proofrun-shim protocol %d\n", PROTOCOL_VERSION);
    return 0;
  }
  for (size_t i = 0; argc >= 2 && i < sizeof commands / sizeof commands[0]; i++) {
    if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
  }
  fprintf(stderr, "proofrun-shim: expected outer, inner, entry, walk, scan, apply, watch, layer, upper, landlock or version; it is started by job, not by hand\n");
  return 2;
}
