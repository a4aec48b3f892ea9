#define _GNU_SOURCE
#include "apply.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_PAUSES 8

struct trouble trouble;
static char pauses[MAX_PAUSES][64];
static size_t pause_count;

bool failed_call(uint32_t operation, const char *call) {
  trouble = (struct trouble){.conflict = false, .operation = operation, .what = call, .error = errno};
  return false;
}

bool conflicts(uint32_t operation, const char *what) {
  trouble = (struct trouble){.conflict = true, .operation = operation, .what = what, .error = 0};
  return false;
}

/* ---- talking ---- */

bool read_line(char *line, size_t room) {
  size_t length = 0;
  for (;;) {
    char c;
    ssize_t n = read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    if (c == '\n') break;
    if (length + 1 >= room) tree_stop(TREE_EXIT_USAGE, "a line is too long");
    line[length++] = c;
  }
  line[length] = 0;
  return true;
}

/* A host that is gone must not stop a run half way: what can't be said is left unsaid. */
void say(const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t n = write(STDOUT_FILENO, bytes, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes += n;
    length -= (size_t)n;
  }
}

void step(const char *name, uint32_t operation) {
  if (pause_count == 0) return;
  char full[96];
  if (operation == NO_OPERATION) snprintf(full, sizeof full, "%s", name);
  else snprintf(full, sizeof full, "%s:%u", name, operation);
  for (size_t i = 0; i < pause_count; i++) {
    if (strcmp(pauses[i], full) != 0) continue;
    char line[160];
    int n = snprintf(line, sizeof line, "{\"event\":\"pause\",\"step\":\"%s\"}\n", full);
    say(line, (size_t)n);
    (void)!read_line(line, sizeof line);
  }
}

void progress(const char *stage, uint32_t done, uint32_t total) {
  static int64_t last;
  if (total < 2000 || (done != total && done % 64 != 0)) return;
  int64_t now = clock_ns(CLOCK_MONOTONIC);
  if (done != total && now - last < 100000000) return;
  last = now;
  char line[96];
  int n = snprintf(line, sizeof line, "{\"event\":\"progress\",\"stage\":\"%s\",\"done\":%u,\"total\":%u}\n", stage, done, total);
  say(line, (size_t)n);
}

void pause_at(const char *step_name) {
  if (pause_count == MAX_PAUSES) tree_stop(TREE_EXIT_USAGE, "more than %d pauses", MAX_PAUSES);
  snprintf(pauses[pause_count++], sizeof pauses[0], "%.63s", step_name);
}

/*
 * Our own renames moved the ctime of what was put back. Told to the host, so that it isn't taken for somebody's change:
 * [operation, seconds, nanoseconds] of everything that is the preimage in all but its ctime.
 */
static void add_restored(struct plan *plan, struct bytes *out) {
  struct trouble first = trouble;
  char part[96];
  const char *comma = "";
  bytes_add(out, ",\"restored\":[", 13);
  forget_parent();
  for (uint32_t i = 0; i < plan->operation_count; i++) {
    struct operation *o = &plan->operations[i];
    struct stat st, after;
    if (o->kind == OP_ADD || o->before.type == DT_DIR) continue;
    int parent = open_parent(plan, i);
    const char *name = last_name(o->path);
    if (parent < 0 || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (same_time(st.st_ctim, o->before.ctime) || !same_facts(&o->before, &st, true) || !is_preimage(parent, name, &o->before)) continue;
    if (fstatat(parent, name, &after, AT_SYMLINK_NOFOLLOW) != 0 || !same_time(st.st_ctim, after.st_ctim)) continue;
    int n = snprintf(part, sizeof part, "%s[%u,%lld,%ld]", comma, i, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    bytes_add(out, part, (size_t)n);
    comma = ",";
  }
  forget_parent();
  bytes_add(out, "]", 1);
  trouble = first;
}

/* What was brought into the tree and is to be known again: [operation, seconds, nanoseconds, inode, device] of those that ask for it. */
static void add_told(struct plan *plan, struct bytes *out) {
  struct trouble first = trouble;
  char part[160];
  const char *comma = "";
  bytes_add(out, ",\"told\":[", 9);
  forget_parent();
  for (uint32_t i = 0; i < plan->operation_count; i++) {
    struct operation *o = &plan->operations[i];
    struct stat st;
    if ((o->flags & FLAG_TELL) == 0 || o->kind == OP_DELETE) continue;
    int parent = open_parent(plan, i);
    if (parent < 0 || fstatat(parent, last_name(o->path), &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (o->kind != OP_ATTRIBUTES && st.st_ino != o->new_ino) continue;
    int n = snprintf(part, sizeof part, "%s[%u,%lld,%ld,\"%llu\",\"%llu\"]", comma, i, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec,
                     (unsigned long long)st.st_ino, (unsigned long long)dev_of(&st));
    bytes_add(out, part, (size_t)n);
    comma = ",";
  }
  forget_parent();
  bytes_add(out, "]", 1);
  trouble = first;
}

void answer(struct plan *plan, const char *result, uint32_t stuck, bool with_trouble, bool settled_back) {
  struct bytes out = {0};
  char part[256];
  int n = snprintf(part, sizeof part, "{\"result\":\"%s\"", result);
  bytes_add(&out, part, (size_t)n);
  if (with_trouble) {
    n = snprintf(part, sizeof part, ",\"what\":\"%s\",\"errno\":%d", trouble.what, trouble.error);
    bytes_add(&out, part, (size_t)n);
    if (trouble.operation != NO_OPERATION) {
      n = snprintf(part, sizeof part, ",\"operation\":%u", trouble.operation);
      bytes_add(&out, part, (size_t)n);
    }
  }
  if (stuck > 0) {
    bytes_add(&out, ",\"stuck\":[", 10);
    const char *comma = "";
    for (uint32_t i = 0; i < plan->operation_count; i++) {
      if (!plan->operations[i].done) continue;
      n = snprintf(part, sizeof part, "%s%u", comma, i);
      bytes_add(&out, part, (size_t)n);
      comma = ",";
    }
    bytes_add(&out, "]", 1);
  }
  if (settled_back) add_restored(plan, &out);
  bytes_add(&out, ",\"inside\":[", 11);
  for (uint32_t i = 0; i < plan->root_count; i++) bytes_add(&out, plan->roots[i].staging_inside ? (i ? ",1" : "1") : (i ? ",0" : "0"), i ? 2 : 1);
  bytes_add(&out, "],\"inodes\":[", 12);
  for (uint32_t i = 0; i < plan->operation_count; i++) {
    struct operation *o = &plan->operations[i];
    uint64_t ino = o->kind == OP_ATTRIBUTES ? o->before.ino : o->new_ino;
    n = snprintf(part, sizeof part, "%s\"%llu\"", i ? "," : "", (unsigned long long)ino);
    bytes_add(&out, part, (size_t)n);
  }
  bytes_add(&out, "]", 1);
  if (!with_trouble && !settled_back && plan->roots[plan->root_count - 1].fd >= 0) add_told(plan, &out);
  bytes_add(&out, "}\n", 2);
  say(out.at, out.used);
  free(out.at);
}
