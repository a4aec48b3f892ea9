/*
 * shim apply LOCKFILE...       carries out, recovers and cleans apply plans, one at a time; a lock file for each root
 * shim apply --remove DIR      removes a directory of ours and all beneath it, whatever its modes; absent is fine
 *
 * The kernel's lock on each LOCKFILE is held until the process ends; {"event":"busy"} and exit 3 when another one holds it.
 * Then lines on stdin, each answered by one line of JSON on stdout:
 *   run PLAN       everything or nothing          recover PLAN   finishes or rolls back what a crash left
 *   clean PLAN     removes the staging directories
 *   tell PLAN      of a run that is committed: what it brought, as it is now
 *   keep PLAN, then a line with a directory: moves what was there before to it, `ID.ROOT` for each root, for a later undo
 *   pause STEP     before a run: announces STEP when it is reached and waits for a line (for tests of crashes)
 *
 * How a run works: all new content is written to a staging directory on the same mount, then a manifest of the new
 * inodes, then one syncfs. Only then paths change, each by one renameat2: NOREPLACE brings what is new and takes away
 * what goes, EXCHANGE replaces. What was there lands in the staging directory, where it is compared with the plan (identity,
 * attributes, content); if it isn't what the plan knew, it and everything before is put back. A second syncfs and the
 * rename of the manifest to "committed" end the run. Parents are opened beneath the root without following any link and
 * must be the directories that the plan names.
 *
 * PLAN, little endian; a string is u32 length, bytes, NUL:
 *   "PRPLAN2\0", string id, u32 roots, {string path, string upper, string staging parent (may be empty), string kept, u64 dev,
 *   u64 ino},
 *   u32 operations, {u8 kind, u8 flags, u16 root, string path, u32 operation that makes the parent (~0: none),
 *     u64 parent dev, u64 parent ino, state before, state after, u8 source, u32 link, string source path}, "END!"
 *   state: u8 d_type (0: absent), u8 hash known, u32 mode, u32 uid, u32 gid, u64 dev, u64 ino, u64 size, i64 mtime s,
 *     u32 ns, i64 ctime s, u32 ns, 32 bytes sha256, string symlink target, u16 count, {string name, string value}
 */
#define _GNU_SOURCE
#include "apply.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>

#include "removal.h"
#include "shim.h"

#define EXIT_BUSY 3

static void answer_failure(struct plan *plan) {
  uint32_t stuck = roll_back(plan);
  answer(plan, stuck > 0 ? "stuck" : trouble.conflict ? "conflict" : "failed", stuck, true, stuck == 0 && plan->roots[plan->root_count - 1].fd >= 0);
}

bool opens_directory(const struct operation *o) {
  return o->kind == OP_ATTRIBUTES && o->before.type == DT_DIR && (o->after.mode & ~o->before.mode & 0700) != 0;
}

static void run_plan(struct plan *plan) {
  bool good = open_roots(plan);
  for (uint32_t i = 0; good && i < plan->root_count; i++) {
    plan->roots[i].upper_fd = open(plan->roots[i].upper.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (plan->roots[i].upper_fd < 0 && plan->roots[i].upper.length > 0) good = failed_call(NO_OPERATION, "open");
    if (good && plan->roots[i].kept.length > 0) {
      plan->roots[i].kept_fd = open(plan->roots[i].kept.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (plan->roots[i].kept_fd < 0) good = failed_call(NO_OPERATION, "open");
    }
  }
  step("opened", NO_OPERATION);
  for (uint32_t i = 0; good && i < plan->root_count; i++) good = make_staging(plan, i);
  step("staging", NO_OPERATION);
  for (uint32_t i = 0; good && i < plan->operation_count; i++) {
    good = stage_operation(plan, i);
    progress("staging", i + 1, plan->operation_count);
  }
  step("staged", NO_OPERATION);
  good = good && write_manifest(plan);
  step("manifest", NO_OPERATION);
  good = good && sync_roots(plan);
  step("synced", NO_OPERATION);
  /* Directories that their owner can't go through are opened first; nothing below them could be looked at. */
  uint32_t opened = 0;
  for (; good && opened < plan->operation_count && opens_directory(&plan->operations[opened]); opened++) good = swap_operation(plan, opened);
  forget_parent();
  for (uint32_t i = opened; good && i < plan->operation_count; i++) {
    /* What an earlier operation of the batch makes way for can't be checked before. */
    if (plan->operations[i].kind == OP_ADD) continue;
    good = check_before(plan, i, false);
  }
  step("checked", NO_OPERATION);
  for (uint32_t i = opened; good && i < plan->operation_count; i++) {
    /* The rest are attributes, and may close a directory to us in which a new one lies. */
    if (plan->operations[i].kind == OP_ATTRIBUTES && !plan->finished) good = finish_directories(plan);
    good = good && swap_operation(plan, i);
    progress("applying", i + 1, plan->operation_count);
  }
  step("swapped", NO_OPERATION);
  forget_parent();
  good = good && commit_plan(plan);
  if (good) answer(plan, "applied", 0, false, false);
  else answer_failure(plan);
}

static void tell_plan(struct plan *plan) {
  bool good = open_roots(plan);
  for (uint32_t i = 0; good && i < plan->root_count; i++) good = find_staging(plan, i);
  if (good && (plan->roots[0].staging_fd < 0 || !read_manifest(plan, "committed"))) good = conflicts(NO_OPERATION, "it is not committed");
  answer(plan, good ? "told" : trouble.conflict ? "conflict" : "failed", 0, !good, false);
}

static void take_lock(const char *path, long holder) {
  int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) tree_fail("open", path);
  char text[64];
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) tree_fail("flock", path);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    char line[128];
    int length = snprintf(line, sizeof line, "{\"event\":\"busy\",\"holder\":%ld}\n", strtol(text, NULL, 10));
    say(line, (size_t)length);
    exit(EXIT_BUSY);
  }
  int length = snprintf(text, sizeof text, "%ld\n", holder);
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length) tree_fail("write", path);
  /* The descriptor stays open: the lock ends with the process. */
}

int cmd_apply(int argc, char **argv) {
  tree_command = "apply";
  if (argc == 3 && strcmp(argv[1], "--remove") == 0) return remove_directory(argv[2]);
  if (argc < 2 || argv[1][0] != '/') tree_stop(TREE_EXIT_USAGE, "expected LOCKFILE..., or --remove DIR");
  umask(0);
  limit_kept_parents(raise_descriptor_limit());
  /* A key pressed on the terminal must not stop a run half way. */
  sigset_t ignored;
  sigemptyset(&ignored);
  const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) sigaddset(&ignored, numbers[i]);
  if (sigprocmask(SIG_BLOCK, &ignored, NULL) != 0) tree_fail("sigprocmask", "");
  for (int i = 1; i < argc; i++) take_lock(argv[i], (long)getppid());
  say("{\"event\":\"locked\"}\n", 19);
  static char line[PATH_MAX + 16];
  while (read_line(line, sizeof line)) {
    if (strncmp(line, "pause ", 6) == 0) {
      pause_at(line + 6);
      continue;
    }
    void (*action)(struct plan *) = NULL;
    const char *path = NULL;
    if (strncmp(line, "run ", 4) == 0) action = run_plan, path = line + 4;
    else if (strncmp(line, "recover ", 8) == 0) action = recover_plan, path = line + 8;
    else if (strncmp(line, "clean ", 6) == 0) action = clean_plan, path = line + 6;
    else if (strncmp(line, "tell ", 5) == 0) action = tell_plan, path = line + 5;
    else if (strncmp(line, "keep ", 5) == 0) path = line + 5;
    else tree_stop(TREE_EXIT_USAGE, "unknown request");
    struct plan plan;
    read_plan(path, &plan);
    static char directory[PATH_MAX + 16];
    if (action != NULL) action(&plan);
    else if (read_line(directory, sizeof directory)) keep_plan(&plan, directory);
    close_parents(&plan);
    free_plan(&plan);
  }
  return 0;
}
