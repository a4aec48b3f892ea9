/* Which programs may be executed: landlock(7). The numbers are stated here, because kernel headers of the build may be older. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NR_CREATE_RULESET = 444, NR_ADD_RULE = 445, NR_RESTRICT_SELF = 446 };
#define CREATE_VERSION 1u
#define RULE_PATH_BENEATH 1
#define ACCESS_EXECUTE (1ull << 0)
/* Renaming and linking across directories; from version 2 on it is denied unless a rule allows it. */
#define ACCESS_REFER (1ull << 13)
#define VERSION_WITH_REFER 2

struct ruleset { uint64_t handled_access_fs; };
struct path_beneath { uint64_t allowed_access; int32_t parent_fd; } __attribute__((packed));

static long version(void) { return syscall(NR_CREATE_RULESET, NULL, 0ul, CREATE_VERSION); }

static void allow(int ruleset, const char *path, uint64_t access) {
  int fd = open(path, O_PATH | O_CLOEXEC);
  if (fd < 0) {
    /* Not there for the command either. */
    if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) return;
    fail("open", path);
  }
  struct path_beneath rule = {access, fd};
  if (syscall(NR_ADD_RULE, ruleset, RULE_PATH_BENEATH, &rule, 0u) != 0) fail("landlock_add_rule", path);
  close(fd);
}

/* From here on this process and its descendants execute the files at `paths`, and those below them, and no others. */
void restrict_programs(char **paths) {
  if (version() < VERSION_WITH_REFER) fail_with("landlock_create_ruleset", "version 2", ENOSYS);
  struct ruleset handled = {ACCESS_EXECUTE | ACCESS_REFER};
  int ruleset = (int)syscall(NR_CREATE_RULESET, &handled, sizeof handled, 0u);
  if (ruleset < 0) fail("landlock_create_ruleset", "");
  allow(ruleset, "/", ACCESS_REFER);
  for (size_t i = 0; paths[i] != NULL; i++) allow(ruleset, paths[i], ACCESS_EXECUTE);
  if (syscall(NR_RESTRICT_SELF, ruleset, 0u) != 0) fail("landlock_restrict_self", "");
  close(ruleset);
}

/* The version of Landlock that this kernel has, 0 for none: one number on standard output. */
int cmd_landlock(int argc, char **argv) {
  (void)argc;
  (void)argv;
  long found = version();
  printf("%ld\n", found > 0 ? found : 0);
  return 0;
}
