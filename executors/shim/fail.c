#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int fail_control = -1;

void fail_with(const char *call, const char *subject, int error) {
  if (fail_control >= 0) {
    uint64_t number = (uint64_t)error;
    const void *parts[] = {call, subject, &number};
    size_t lengths[] = {strlen(call) + 1, strlen(subject) + 1, sizeof number};
    int control = fail_control;
    fail_control = -1; /* a failure while saying so must not recurse */
    frame_say(control, SAY_ERROR, parts, lengths, 3);
  } else {
    fprintf(stderr, "proofrun-shim: %s %s: %s\n", call, subject, strerror(error));
  }
  _exit(125);
}

void fail(const char *call, const char *subject) { fail_with(call, subject, errno); }

void reset_process(void) {
  umask(022);
  /* A real-time policy of the caller's keeps the process out of a cpu control group (sched(7)). Lowering it needs no right. */
  struct sched_param ordinary = {.sched_priority = 0};
  if (sched_getscheduler(0) != SCHED_OTHER && sched_setscheduler(0, SCHED_OTHER, &ordinary) != 0) fail("sched_setscheduler", "SCHED_OTHER");
  for (int number = 1; number < NSIG; number++) {
    if (number == SIGKILL || number == SIGSTOP) continue;
    signal(number, SIG_DFL); /* EINVAL for the two that libc keeps */
  }
  sigset_t none;
  sigemptyset(&none);
  if (sigprocmask(SIG_SETMASK, &none, NULL) != 0) fail("sigprocmask", "");
}

ssize_t read_file(const char *path, char **out) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  size_t room = 16384, length = 0;
  char *text = malloc(room);
  if (text == NULL) fail("malloc", path);
  for (;;) {
    if (length + 1 >= room) {
      room *= 2;
      text = realloc(text, room);
      if (text == NULL) fail("realloc", path);
    }
    ssize_t got = read(fd, text + length, room - length - 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      int error = errno;
      free(text);
      close(fd);
      errno = error;
      return -1;
    }
    if (got == 0) break;
    length += (size_t)got;
  }
  close(fd);
  text[length] = 0;
  *out = text;
  return (ssize_t)length;
}
