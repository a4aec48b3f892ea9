/* The three streams between the caller and the sandbox: pipes, or a pty that inner made inside. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define BUFFER 65536

/* One direction. `from` or `to` is -1 when that side is closed. */
struct lane {
  int from, to;
  size_t start, end;
  char *buffer;
};

static struct lane lane_of(int from, int to) {
  struct lane lane = {from, to, 0, 0, malloc(BUFFER)};
  if (lane.buffer == NULL) fail("malloc", "relay");
  return lane;
}

static void close_side(int *fd) {
  if (*fd < 0) return;
  shutdown(*fd, SHUT_WR); /* a socket to the host sees the end; ENOTSOCK for pipes */
  close(*fd);
  *fd = -1;
}

/* Moves what can be moved without waiting. Ends a side when the other one has ended and the buffer is empty. */
static void lane_move(struct lane *lane, short from_events, short to_events) {
  if (lane->from >= 0 && lane->start == lane->end && (from_events & (POLLIN | POLLHUP | POLLERR))) {
    ssize_t got = read(lane->from, lane->buffer, BUFFER);
    if (got > 0) {
      lane->start = 0;
      lane->end = (size_t)got;
      to_events |= POLLOUT;
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) { /* EIO: the pty's other side is gone */
      close(lane->from);
      lane->from = -1;
    }
  }
  if (lane->to >= 0 && lane->start < lane->end && (to_events & (POLLOUT | POLLHUP | POLLERR))) {
    ssize_t wrote = write(lane->to, lane->buffer + lane->start, lane->end - lane->start);
    if (wrote > 0) lane->start += (size_t)wrote;
    else if (wrote < 0 && errno != EINTR && errno != EAGAIN) { /* nobody reads any more: go on draining the source */
      close(lane->to);
      lane->to = -1;
    }
  }
  if (lane->to < 0) lane->start = lane->end = 0;
  if (lane->from < 0 && lane->start == lane->end) close_side(&lane->to);
}

static void lane_poll(const struct lane *lane, struct pollfd *from, struct pollfd *to) {
  int empty = lane->start == lane->end;
  *from = (struct pollfd){empty ? lane->from : -1, POLLIN, 0};
  *to = (struct pollfd){!empty ? lane->to : -1, POLLOUT, 0};
}

static void nonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) fail("fcntl O_NONBLOCK", "relay");
}

void relay_open(struct relay_pipes *pipes, int terminal) {
  pipes->terminal = terminal;
  pipes->handover = pipes->child_handover = -1;
  if (terminal) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) fail("open", "/dev/null");
    for (int i = 0; i < 3; i++) {
      pipes->child[i] = null; /* inner puts the pty there */
      pipes->ours[i] = -1;
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) fail("socketpair", "handover");
    pipes->handover = pair[0];
    pipes->child_handover = pair[1];
    return;
  }
  for (int i = 0; i < 3; i++) {
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) != 0) fail("pipe2", "stdio");
    pipes->child[i] = pair[i == 0 ? 0 : 1];
    pipes->ours[i] = pair[i == 0 ? 1 : 0];
    nonblocking(pipes->ours[i]);
  }
}

static int watch_signals(void) {
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  sigaddset(&watched, SIGWINCH);
  if (sigprocmask(SIG_BLOCK, &watched, NULL) != 0) fail("sigprocmask", "relay");
  /* The host decides what these mean for the command. */
  static const int ignored[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP, SIGTTOU, SIGTTIN, SIGPIPE};
  for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) signal(ignored[i], SIG_IGN);
  int fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) fail("signalfd", "relay");
  return fd;
}

static struct termios saved_terminal;

static void raw_terminal(void) {
  struct termios raw = saved_terminal;
  cfmakeraw(&raw);
  tcsetattr(0, TCSANOW, &raw);
}

static void restore_terminal(void) {
  tcsetattr(0, TCSANOW, &saved_terminal);
}

static void copy_size(int master) {
  struct winsize size;
  if (ioctl(0, TIOCGWINSZ, &size) == 0) ioctl(master, TIOCSWINSZ, &size);
}

/* Receives the pty's master from inner; -1 when inner ended before it made one. */
static int receive_master(int socket) {
  char byte, room[CMSG_SPACE(sizeof(int))];
  struct iovec vector = {&byte, 1};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  ssize_t got;
  do got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  struct cmsghdr *head = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
  if (head == NULL || head->cmsg_type != SCM_RIGHTS) return -1;
  int fd;
  memcpy(&fd, CMSG_DATA(head), sizeof fd);
  nonblocking(fd);
  return fd;
}

/* Ctrl-Z: the command stopped. Give the terminal back, stop our whole job, and go on when the shell says so. */
static void stop_with_command(int handover, int master) {
  restore_terminal();
  kill(0, SIGSTOP);
  raw_terminal();
  copy_size(master);
  if (send(handover, "C", 1, MSG_NOSIGNAL) < 0) return;
}

static int reap(pid_t child, int *status) {
  return waitpid(child, status, WNOHANG) == child;
}

static int relay_pipes(struct relay_pipes *pipes, pid_t child, int signals) {
  struct lane lanes[3] = {lane_of(0, pipes->ours[0]), lane_of(pipes->ours[1], 1), lane_of(pipes->ours[2], 2)};
  nonblocking(1);
  nonblocking(2);
  int status = 0, dead = 0;
  while (!dead || lanes[1].from >= 0 || lanes[2].from >= 0 || lanes[1].start < lanes[1].end || lanes[2].start < lanes[2].end) {
    struct pollfd polled[10] = {{signals, POLLIN, 0}};
    for (int i = 0; i < 3; i++) lane_poll(&lanes[i], &polled[1 + 2 * i], &polled[2 + 2 * i]);
    /* A command that has closed its input ends the reading of ours. */
    if (polled[2].fd < 0 && lanes[0].to >= 0) polled[2] = (struct pollfd){lanes[0].to, 0, 0};
    agent_poll(&polled[7]);
    if (poll(polled, 10, -1) < 0 && errno != EINTR) fail("poll", "relay");
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) > 0) continue;
    if (!dead) dead = reap(child, &status);
    if (dead || (polled[2].revents & POLLERR)) {
      if (lanes[0].from >= 0) lanes[0].from = -1;
      lanes[0].start = lanes[0].end = 0;
      close_side(&lanes[0].to);
    }
    for (int i = dead ? 1 : 0; i < 3; i++) lane_move(&lanes[i], polled[1 + 2 * i].revents, polled[2 + 2 * i].revents);
    agent_move(&polled[7]);
  }
  return status;
}

static int relay_terminal(struct relay_pipes *pipes, pid_t child, int signals) {
  int status = 0, dead = 0, master = receive_master(pipes->handover);
  if (master < 0) {
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return status;
  }
  if (tcgetattr(0, &saved_terminal) != 0) fail("tcgetattr", "terminal");
  copy_size(master);
  raw_terminal();
  int master_in = fcntl(master, F_DUPFD_CLOEXEC, 3);
  if (master_in < 0) fail("fcntl F_DUPFD_CLOEXEC", "pty");
  struct lane in = lane_of(0, master_in), out = lane_of(master, 1);
  while (!dead || (out.from >= 0) || out.start < out.end) {
    struct pollfd polled[9] = {{signals, POLLIN, 0}, {pipes->handover, POLLIN, 0}};
    lane_poll(&in, &polled[2], &polled[3]);
    lane_poll(&out, &polled[4], &polled[5]);
    agent_poll(&polled[6]);
    if (poll(polled, 9, -1) < 0 && errno != EINTR) fail("poll", "relay");
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) > 0) {
      if (info.ssi_signo == SIGWINCH) copy_size(master);
    }
    if (polled[1].revents != 0) {
      char byte;
      if (recv(pipes->handover, &byte, 1, MSG_DONTWAIT) == 1) stop_with_command(pipes->handover, master);
      else {
        close(pipes->handover);
        pipes->handover = -1;
      }
    }
    if (!dead) dead = reap(child, &status);
    if (dead) in.from = -1;
    lane_move(&in, polled[2].revents, polled[3].revents);
    lane_move(&out, polled[4].revents, polled[5].revents);
    agent_move(&polled[6]);
  }
  /* Input that nobody read, answers to escape sequences among it, must not reach the caller's shell. */
  tcflush(0, TCIFLUSH);
  restore_terminal();
  return status;
}

int relay_run(struct relay_pipes *pipes, pid_t child) {
  int signals = watch_signals();
  int status = pipes->terminal ? relay_terminal(pipes, child, signals) : relay_pipes(pipes, child, signals);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 125;
}
