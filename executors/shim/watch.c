/*
 * shim watch LIMIT DIR...      measures what lies in the directories, over and over, until its standard input ends
 *
 * stdout, one line of JSON each: {"event":"watching","limit":L,"used":U} once the first measure is made, {"event":"over","used":U} the
 * first time that there is more than LIMIT, {"event":"ended","peak":P} at the end. A byte on standard input asks for one more measure
 * before the end.
 *
 * What counts is the space that is taken (st_blocks), and 512 bytes more for each name, so that empty files count too. Between two measures
 * there are 20 ms, or four times what the last one took. What was deleted and is still open is not seen.
 */
#define _GNU_SOURCE
#include "shim.h"
#include "tree.h"

#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define PAUSE_MS 20
#define WATCH_DEPTH 4000
#define NAME_BYTES 512u

static void write_file(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!write(fd, text, strlen(text));
  close(fd);
}

/* Directories that the job closed are its owner's: in a namespace of our own we may look into them without touching their mode. */
static void gain_sight(void) {
  uid_t uid = geteuid();
  gid_t gid = getegid();
  char map[64];
  if (uid == 0 || unshare(CLONE_NEWUSER) != 0) return;
  write_file("/proc/self/setgroups", "deny");
  snprintf(map, sizeof map, "%u %u 1", (unsigned)uid, (unsigned)uid);
  write_file("/proc/self/uid_map", map);
  snprintf(map, sizeof map, "%u %u 1", (unsigned)gid, (unsigned)gid);
  write_file("/proc/self/gid_map", map);
}

/* Takes over `fd`. Counting stops once there is more than `limit`: nothing depends on how much more. */
static void measure(int fd, int depth, uint64_t limit, uint64_t *used) {
  char buffer[1 << 12] __attribute__((aligned(8)));
  for (ssize_t n; *used <= limit && (n = read_entries(fd, buffer, sizeof buffer)) > 0;) {
    for (ssize_t at = 0; at < n && *used <= limit;) {
      struct dirent64_raw *e = (struct dirent64_raw *)(buffer + at);
      at += e->d_reclen;
      struct stat st;
      if (is_dot(e->d_name) || fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
      *used += NAME_BYTES + (uint64_t)st.st_blocks * 512 / (S_ISDIR(st.st_mode) || st.st_nlink == 0 ? 1 : st.st_nlink);
      if (!S_ISDIR(st.st_mode)) continue;
      int child = depth < WATCH_DEPTH ? open_directory(fd, e->d_name) : -1;
      if (child >= 0) measure(child, depth + 1, limit, used);
    }
  }
  close(fd);
}

static uint64_t measure_all(char **directories, uint64_t limit) {
  uint64_t used = 0;
  for (; *directories != NULL; directories++) {
    int fd = open(*directories, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) tree_fail("open", *directories);
    measure(fd, 0, limit, &used);
  }
  return used;
}

static void report(const char *format, uint64_t a, uint64_t b) {
  printf(format, (unsigned long long)a, (unsigned long long)b);
  fflush(stdout);
}

int cmd_watch(int argc, char **argv) {
  tree_command = "watch";
  if (argc < 3) tree_stop(TREE_EXIT_USAGE, "expected LIMIT DIR...");
  uint64_t limit = parse_count("LIMIT", argv[1]);
  raise_descriptor_limit();
  gain_sight();
  uint64_t used = measure_all(argv + 2, limit), peak = used;
  report("{\"event\":\"watching\",\"limit\":%llu,\"used\":%llu}\n", limit, used);
  bool over = false, last = false;
  for (int64_t took = 0; !last;) {
    int pause = took / 1000000 * 4 > PAUSE_MS ? (int)(took / 1000000 * 4) : PAUSE_MS;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, pause) > 0) last = true;
    int64_t began = clock_ns(CLOCK_MONOTONIC);
    used = measure_all(argv + 2, limit);
    took = clock_ns(CLOCK_MONOTONIC) - began;
    if (used > peak) peak = used;
    if (used > limit && !over) report("{\"event\":\"over\",\"used\":%llu}\n", used, 0);
    over = over || used > limit;
  }
  report("{\"event\":\"ended\",\"peak\":%llu}\n", peak, 0);
  return 0;
}
