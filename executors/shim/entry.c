/*
 * The shim as the entrypoint of a container: PID 1 from the start, and the only process between the command and the host.
 * Its control channel is a unix socket that the host listens on until the first accept, or the container's own input and
 * output (a remote engine's attach stream). The command's three streams are pipes or a pty made here; what passes through
 * them goes over the control channel in frames, only as far as the host gave credit, so that a reader who stops never
 * holds up what the shim has to say.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

/* How much of the command's input may wait here; protocol.ts INPUT_WINDOW. */
#define INPUT_WINDOW 65536
#define BUFFER 65536

struct output {
  int from; /* -1: it has ended */
  uint64_t credit;
};

static struct {
  int terminal;
  struct output out[2]; /* standard output (or the pty), standard error */
  int to;               /* where the command reads; -1: closed */
  int ending;           /* the host sent the end of the input */
  char *waiting;
  size_t start, end;
} streams = {.out = {{-1, 0}, {-1, 0}}, .to = -1};

static void nonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) fail("fcntl O_NONBLOCK", "streams");
}

static void place(int fd, int number) {
  if (dup2(fd, number) < 0) fail("dup2", "stream");
  close(fd);
}

/* The command's ends become 0 to 2 of this process until it has forked. */
void streams_open_pipes(void) {
  int ends[3];
  for (int i = 0; i < 3; i++) {
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) != 0) fail("pipe2", "streams");
    int ours = fcntl(pair[i == 0 ? 1 : 0], F_DUPFD_CLOEXEC, FD_CONTROL + 8);
    int theirs = fcntl(pair[i == 0 ? 0 : 1], F_DUPFD_CLOEXEC, FD_CONTROL + 8);
    if (ours < 0 || theirs < 0) fail("fcntl F_DUPFD_CLOEXEC", "streams");
    close(pair[0]);
    close(pair[1]);
    nonblocking(ours);
    ends[i] = theirs;
    if (i == 0) streams.to = ours;
    else streams.out[i - 1].from = ours;
  }
  for (int i = 0; i < 3; i++) place(ends[i], i);
  streams.waiting = malloc(INPUT_WINDOW);
  if (streams.waiting == NULL) fail("malloc", "input");
}

void streams_open_terminal(int master) {
  int high = fcntl(master, F_DUPFD_CLOEXEC, FD_CONTROL + 8);
  int input = fcntl(master, F_DUPFD_CLOEXEC, FD_CONTROL + 8);
  if (high < 0 || input < 0) fail("fcntl F_DUPFD_CLOEXEC", "pty");
  nonblocking(high);
  streams.terminal = 1;
  streams.out[0].from = high;
  streams.to = input;
  streams.waiting = malloc(INPUT_WINDOW);
  if (streams.waiting == NULL) fail("malloc", "input");
}

void streams_poll(struct pollfd polled[3]) {
  polled[0] = (struct pollfd){streams.start < streams.end ? streams.to : -1, POLLOUT, 0};
  /* A command that closed its input ends the reading of the caller's: POLLERR is always reported. */
  if (polled[0].fd < 0 && streams.to >= 0 && !streams.terminal) polled[0] = (struct pollfd){streams.to, 0, 0};
  for (int i = 0; i < 2; i++) polled[i + 1] = (struct pollfd){streams.out[i].credit > 0 ? streams.out[i].from : -1, POLLIN, 0};
}

static void end_input(void) {
  if (streams.to < 0) return;
  close(streams.to);
  streams.to = -1;
}

static void move_input(short events) {
  if (streams.to < 0) return;
  if (events & POLLERR) {
    end_input();
    say_number(FD_CONTROL, SAY_CREDIT, 0); /* nobody reads: the host may stop */
    return;
  }
  if (streams.start < streams.end && (events & POLLOUT)) {
    ssize_t wrote = write(streams.to, streams.waiting + streams.start, streams.end - streams.start);
    if (wrote > 0) {
      streams.start += (size_t)wrote;
      if (streams.start == streams.end) streams.start = streams.end = 0;
      say_number(FD_CONTROL, SAY_CREDIT, (uint64_t)wrote);
    } else if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
      end_input();
      say_number(FD_CONTROL, SAY_CREDIT, 0);
    }
  }
  if (streams.ending && streams.start == streams.end) {
    if (streams.terminal) {
      static const char end_of_file = 4; /* VEOF of a new pty */
      (void)!write(streams.to, &end_of_file, 1);
    }
    end_input();
  }
}

static void end_output(int index) {
  close(streams.out[index].from);
  streams.out[index].from = -1;
  say_number(FD_CONTROL, SAY_EOF, (uint64_t)index + 1);
}

/* Returns whether something was read. */
static int move_output(int index) {
  static char buffer[BUFFER];
  struct output *out = &streams.out[index];
  if (out->from < 0 || out->credit == 0) return 0;
  size_t room = out->credit < BUFFER ? (size_t)out->credit : BUFFER;
  ssize_t got = read(out->from, buffer, room);
  if (got > 0) {
    out->credit -= (uint64_t)got;
    const void *parts[] = {buffer};
    size_t lengths[] = {(size_t)got};
    frame_say(FD_CONTROL, index == 0 ? SAY_OUTPUT : SAY_ERROR_OUTPUT, parts, lengths, 1);
    return 1;
  }
  if (got == 0 || (errno != EINTR && errno != EAGAIN)) end_output(index); /* EIO: no slave of the pty is open any more */
  return 0;
}

void streams_move(const struct pollfd polled[3]) {
  move_input(polled[0].revents);
  for (int i = 0; i < 2; i++) {
    if (polled[i + 1].revents != 0) move_output(i);
  }
}

/* The tree is dead: nobody writes any more, so an empty pipe has ended. */
int streams_dry(void) {
  end_input();
  return streams.out[0].from < 0 && streams.out[1].from < 0;
}

/* What the host sends for the streams; 0: the frame is none of these. */
int streams_obey(const struct frame *frame) {
  struct cursor cursor = cursor_of(frame);
  switch (frame->type) {
    case DO_CREDIT: {
      uint64_t index = take_number(&cursor), bytes = take_number(&cursor);
      if (index < 1 || index > 2) fail_with("parse", "credit for no stream", EPROTO);
      streams.out[index - 1].credit += bytes;
      return 1;
    }
    case DO_INPUT:
      if (streams.to < 0) return 1;
      if (streams.start > 0) {
        memmove(streams.waiting, streams.waiting + streams.start, streams.end - streams.start);
        streams.end -= streams.start;
        streams.start = 0;
      }
      if (frame->length > INPUT_WINDOW - streams.end) fail_with("parse", "more input than there is room for", EPROTO);
      memcpy(streams.waiting + streams.end, frame->data, frame->length);
      streams.end += frame->length;
      return 1;
    case DO_INPUT_END:
      streams.ending = 1;
      move_input(0);
      return 1;
    case DO_RESIZE: {
      struct winsize size = {.ws_row = (unsigned short)take_number(&cursor), .ws_col = (unsigned short)take_number(&cursor)};
      if (streams.terminal && streams.out[0].from >= 0) ioctl(streams.out[0].from, TIOCSWINSZ, &size);
      return 1;
    }
    default: return 0;
  }
}

static void connect_control(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) fail_with("connect", path, ENAMETOOLONG);
  memcpy(address.sun_path, path, strlen(path));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket", "AF_UNIX");
  if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail("connect", path);
  if (fd != FD_CONTROL) {
    if (dup2(fd, FD_CONTROL) < 0) fail("dup2", "control channel");
    close(fd);
  }
}

/* `-`: frames over the container's own input and output. The command never gets either. */
static void adopt_stdio(void) {
  int in = fcntl(0, F_DUPFD_CLOEXEC, FD_COMMANDS), out = fcntl(1, F_DUPFD_CLOEXEC, FD_COMMANDS);
  if (in < 0 || out < 0) fail("fcntl F_DUPFD_CLOEXEC", "control channel");
  if (dup2(out, FD_CONTROL) < 0) fail("dup2", "control channel");
  int high = fcntl(in, F_DUPFD_CLOEXEC, FD_CONTROL + 8);
  if (high < 0 || dup2(high, FD_COMMANDS) < 0) fail("dup2", "control channel");
  close(high);
  if (in != FD_COMMANDS) close(in);
  if (out != FD_COMMANDS) close(out);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) fail("open", "/dev/null");
  for (int i = 0; i < 3; i++) {
    if (dup2(null, i) < 0) fail("dup2", "/dev/null");
  }
  close(null);
}

int cmd_entry(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "proofrun-shim: entry expects a socket or -\n");
    return 2;
  }
  reset_process();
  signal(SIGPIPE, SIG_IGN);
  int stdio = strcmp(argv[1], "-") == 0;
  if (stdio) adopt_stdio();
  else connect_control(argv[1]);
  return run_inner(stdio ? FD_COMMANDS : FD_CONTROL, 1);
}
