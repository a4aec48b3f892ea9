/*
 * PID 1 of the sandbox. It owns the control channel and the gate, starts one process for the command, reaps, and ends the
 * tree. Signals from inside the namespace don't reach it (pid_namespaces(7)); it is non-dumpable, so the job can't read or
 * write it through /proc/1/mem.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define FD_HANDOVER 4
/* Leftover processes that are named in the account; all of them are killed. */
#define NAMED_LEFTOVERS 32

/* Where commands are read, and whether the streams are relayed here (entry) or by outer. */
static int commands_fd = FD_CONTROL;
static int relaying;

static void add_probe(struct command *command, struct cursor *cursor) {
  if (command->probe_count == command->probe_room) {
    command->probe_room = command->probe_room > 0 ? command->probe_room * 2 : 64;
    command->probes = realloc(command->probes, command->probe_room * sizeof *command->probes);
    if (command->probes == NULL) fail("realloc", "probes");
  }
  struct probe_entry *probe = &command->probes[command->probe_count++];
  probe->id = copy_string(take_string(cursor));
  probe->kind = take_number(cursor);
  probe->subject = copy_string(take_string(cursor));
  for (int i = 0; i < 6; i++) probe->args[i] = take_number(cursor);
}

static void take_ids(struct command *command, struct cursor *cursor) {
  command->change_ids = (int)take_number(cursor);
  command->uid = (uid_t)take_number(cursor);
  command->gid = (gid_t)take_number(cursor);
  while (!cursor_empty(cursor)) {
    if (command->group_count == sizeof command->groups / sizeof command->groups[0]) fail_with("parse", "too many groups", E2BIG);
    command->groups[command->group_count++] = (gid_t)take_number(cursor);
  }
}

/* Reads the configuration up to CFG_END. */
static void configure(struct command *command) {
  struct frame frame;
  while (frame_read(commands_fd, &frame)) {
    if (relaying && streams_obey(&frame)) continue;
    struct cursor cursor = cursor_of(&frame);
    switch (frame.type) {
      case CFG_ARGV: command->argv = take_strings(&cursor); break;
      case CFG_ENV: command->env = take_strings(&cursor); break;
      case CFG_CWD: command->cwd = copy_string(take_string(&cursor)); break;
      case CFG_EXE: command->exe = copy_string(take_string(&cursor)); break;
      case CFG_IDS: take_ids(command, &cursor); break;
      case CFG_RLIMIT: {
        if (command->rlimit_count == sizeof command->rlimits / sizeof command->rlimits[0]) fail_with("parse", "too many rlimits", E2BIG);
        struct rlimit_entry *entry = &command->rlimits[command->rlimit_count++];
        entry->resource = (int)take_number(&cursor);
        entry->soft = take_number(&cursor);
        entry->hard = take_number(&cursor);
        break;
      }
      case CFG_SECCOMP: {
        if (command->filter_count == sizeof command->filters / sizeof command->filters[0]) fail_with("parse", "too many filters", E2BIG);
        command->filters[command->filter_count++] = (struct filter_entry){copy_bytes(frame.data, frame.length), frame.length};
        break;
      }
      case CFG_RIGHTS: command->rights = (unsigned)take_number(&cursor); break;
      case CFG_PROGRAMS: command->programs = take_strings(&cursor); break;
      case CFG_EXEC_AT:
        command->exec_path = take_number(&cursor);
        command->exec_argv = take_number(&cursor);
        break;
      case CFG_WALL: command->wall_ms = take_number(&cursor); break;
      case CFG_PROBE: add_probe(command, &cursor); break;
      case CFG_TERMINAL:
        command->terminal = 1;
        command->rows = take_number(&cursor);
        command->columns = take_number(&cursor);
        break;
      case CFG_END:
        if (command->argv == NULL || command->argv[0] == NULL || command->env == NULL || command->cwd == NULL) {
          fail_with("parse", "configuration without argv, environment or cwd", EPROTO);
        }
        return;
      case DO_QUIT: _exit(0);
      default: fail_with("parse", "unknown configuration", EPROTO);
    }
  }
  _exit(0); /* the host went away */
}

/* Ids and capabilities of this process; what it forks inherits them. capabilities(7), credentials(7). */
static void drop_rights(const struct command *command) {
  if (command->rights & RIGHT_DROP_CAPS) {
    for (int number = 0; prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; number++) {
      if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0 && errno != EPERM) fail("prctl", "PR_CAPBSET_DROP");
    }
  }
  if (command->change_ids) {
    if (setgroups(command->group_count, command->groups) != 0) fail("setgroups", "workspace owner");
    if (setresgid(command->gid, command->gid, command->gid) != 0) fail("setresgid", "workspace owner");
    if (setresuid(command->uid, command->uid, command->uid) != 0) fail("setresuid", "workspace owner");
  }
  if (command->rights & RIGHT_DROP_CAPS) {
    /* EINVAL: a kernel without ambient sets has none to clear; the receipt says what is there. */
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL) fail("prctl", "PR_CAP_AMBIENT_CLEAR_ALL");
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    if (syscall(SYS_capset, &head, none) != 0) fail("capset", "");
  }
  if ((command->rights & RIGHT_NO_NEW_PRIVS) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("prctl", "PR_SET_NO_NEW_PRIVS");
  if ((command->rights & RIGHT_NONDUMPABLE) && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) fail("prctl", "PR_SET_DUMPABLE");
}

static void send_descriptor(int socket, int fd) {
  char byte = 'M', room[CMSG_SPACE(sizeof(int))];
  memset(room, 0, sizeof room);
  struct iovec vector = {&byte, 1};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) fail("sendmsg", "pty handover");
}

/* Makes a pty in the sandbox's own devpts, gives its master to outer, takes the session. Returns the slave. */
static int make_terminal(const struct command *command) {
  int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0) fail("open", "/dev/ptmx");
  if (unlockpt(master) != 0) fail("unlockpt", "");
  char name[64];
  if (ptsname_r(master, name, sizeof name) != 0) fail("ptsname_r", "");
  int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) fail("open", name);
  if (command->change_ids && fchown(slave, command->uid, (gid_t)-1) != 0) fail("fchown", name);
  struct winsize size = {.ws_row = (unsigned short)command->rows, .ws_col = (unsigned short)command->columns};
  if (ioctl(slave, TIOCSWINSZ, &size) != 0) fail("ioctl TIOCSWINSZ", name);
  /* A runtime may have made the first process of a container a session's leader already. */
  if (setsid() < 0 && getsid(0) != getpid()) fail("setsid", "");
  if (ioctl(slave, TIOCSCTTY, 0) != 0) fail("ioctl TIOCSCTTY", name);
  if (relaying) streams_open_terminal(master);
  else send_descriptor(FD_HANDOVER, master);
  close(master);
  return slave;
}

static void report_self(void) {
  char text[32];
  snprintf(text, sizeof text, "%d", (int)getpid());
  say_fact_text(FD_CONTROL, "init.pid", "getpid(2) of the shim", text);
  snprintf(text, sizeof text, "%d", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
  say_fact_text(FD_CONTROL, "init.dumpable", "prctl(PR_GET_DUMPABLE) of the shim", text);
  char *status;
  ssize_t length = read_file("/proc/self/status", &status);
  if (length < 0) fail("read", "/proc/self/status");
  say_fact(FD_CONTROL, "init.status", "/proc/self/status of the shim (pid 1)", status, (size_t)length);
  free(status);
}

/* Where nobody but this process sees the container's control groups: what limits it, what it used and which limits it met. */
static void report_groups(void) {
  static const char *const files[] = {
      "memory/memory.limit_in_bytes", "memory/memory.memsw.limit_in_bytes", "memory/memory.max_usage_in_bytes", "memory/memory.oom_control",
      "pids/pids.max",                "pids/pids.events",                   "pids/pids.peak",                   "cpu/cpu.cfs_quota_us",
      "cpu/cpu.cfs_period_us",        "cpuacct/cpuacct.usage",              "memory.max",                       "memory.swap.max",
      "memory.peak",                  "memory.events",                      "pids.max",                         "pids.events",
      "pids.peak",                    "cpu.max",                            "cpu.stat",
  };
  if (!relaying || commands_fd == FD_CONTROL) return;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    char path[96];
    char *text;
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s", files[i]);
    ssize_t length = read_file(path, &text);
    if (length < 0) continue; /* the other version's, or a controller that isn't there */
    say_fact(FD_CONTROL, path, path, text, (size_t)length);
    free(text);
  }
}

struct watch {
  pid_t command;
  int ended, quitting, deserted;
  int gate, signals, timer, slave;
};

static void name_leftovers(void) {
  DIR *directory = opendir("/proc");
  if (directory == NULL) return;
  int named = 0;
  for (struct dirent *entry; (entry = readdir(directory)) != NULL && named < NAMED_LEFTOVERS;) {
    char *end;
    unsigned long pid = strtoul(entry->d_name, &end, 10);
    if (*end != 0 || pid <= 1) continue;
    char path[64], *comm;
    snprintf(path, sizeof path, "/proc/%lu/comm", pid);
    ssize_t length = read_file(path, &comm);
    if (length <= 0) continue;
    comm[length - 1] = 0;
    uint64_t number = pid;
    const void *parts[] = {&number, comm};
    size_t lengths[] = {sizeof number, strlen(comm) + 1};
    frame_say(FD_CONTROL, SAY_OUTLIVED, parts, lengths, 2);
    free(comm);
    named++;
  }
  closedir(directory);
}

/*
 * Kills and reaps until nothing is left. A fork that races with one kill(-1) is met by the next. A shim that isn't the
 * init of a namespace must not do so: there kill(-1) means every process that the caller may signal.
 */
static void end_tree(pid_t command) {
  for (;;) {
    kill(getpid() == 1 ? -1 : -command, SIGKILL);
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == ECHILD) return;
  }
}

/* Reaps what is there. Leftovers of the tree are reaped silently; the command's own end is reported once. */
static void reap(struct watch *watch) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG | (watch->slave >= 0 ? WUNTRACED : 0))) > 0) {
    if (pid != watch->command) continue;
    if (WIFSTOPPED(status)) {
      if (relaying) say_simple(FD_CONTROL, SAY_STOPPED);
      else if (send(FD_HANDOVER, "Z", 1, MSG_NOSIGNAL) < 0) kill(-pid, SIGCONT);
      continue;
    }
    watch->ended = 1;
    report_groups();
    say_number(FD_CONTROL, SAY_ENDED, (uint64_t)(unsigned)status);
  }
}

/* The stopped command gets the terminal back. */
static void go_on(const struct watch *watch) {
  if (watch->slave < 0) return;
  tcsetpgrp(watch->slave, watch->command);
  kill(-watch->command, SIGCONT);
}

static void obey(struct watch *watch) {
  struct frame frame;
  if (!frame_read(commands_fd, &frame)) {
    watch->quitting = 1; /* the host is gone: so is the job */
    watch->deserted = 1;
    return;
  }
  if (relaying && streams_obey(&frame)) return;
  struct cursor cursor = cursor_of(&frame);
  switch (frame.type) {
    case DO_RELEASE:
      if (write(watch->gate, "G", 1) != 1) fail("write", "gate");
      break;
    case DO_SIGNAL: {
      int number = (int)take_number(&cursor);
      if (!watch->ended) kill(-watch->command, number);
      break;
    }
    case DO_QUIT: watch->quitting = 1; break;
    case DO_CONTINUE: go_on(watch); break;
    default: fail_with("parse", "unknown command", EPROTO);
  }
}

/* The gate speaks twice: 'R' when the command's process waits, then its end: EOF after execve, or an errno. */
static void hear_gate(struct watch *watch) {
  uint32_t word;
  ssize_t got = read(watch->gate, &word, sizeof word);
  if (got == sizeof word && word == 'R') {
    say_simple(FD_CONTROL, SAY_READY);
    return;
  }
  if (got == sizeof word) say_number(FD_CONTROL, SAY_NO_EXEC, word);
  else if (got == 0) say_simple(FD_CONTROL, SAY_STARTED);
  close(watch->gate);
  watch->gate = -1;
}

static int wall_timer(uint64_t milliseconds) {
  if (milliseconds == 0) return -1;
  int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  if (fd < 0) fail("timerfd_create", "");
  struct itimerspec set = {.it_value = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000}};
  if (timerfd_settime(fd, 0, &set, NULL) != 0) fail("timerfd_settime", "");
  struct itimerspec armed;
  if (timerfd_gettime(fd, &armed) != 0) fail("timerfd_gettime", "");
  char text[32];
  /* Rounded up: the clock already runs. 0 is a timer that isn't armed. */
  unsigned long long left = (unsigned long long)armed.it_value.tv_sec * 1000 + ((unsigned long long)armed.it_value.tv_nsec + 999999) / 1000000;
  snprintf(text, sizeof text, "%llu", left);
  say_fact_text(FD_CONTROL, "wall.armed_ms", "timerfd_gettime(2) of the shim", text);
  return fd;
}

/* Everything that the command wrote goes out before this process ends, as fast as the host makes room for it. */
static void drain(struct watch *watch) {
  if (watch->slave >= 0) {
    close(watch->slave);
    close(0); /* the pty's last slave */
  }
  while (!streams_dry()) {
    struct pollfd polled[4] = {{commands_fd, POLLIN, 0}};
    streams_poll(polled + 1);
    if (poll(polled, 4, -1) < 0 && errno != EINTR) fail("poll", "drain");
    struct frame frame;
    if (polled[0].revents != 0) {
      if (!frame_read(commands_fd, &frame)) _exit(0);
      streams_obey(&frame); /* whatever else it is comes too late */
    }
    streams_move(polled + 1);
  }
}

/*
 * The host reads what only a living container shows, then says that it has. A quit from before SAY_DONE doesn't count: what is on its
 * way to the host would be lost with this process, since the host's next write to a closed socket fails first.
 */
static void wait_for_leave(void) {
  struct frame frame;
  while (frame_read(commands_fd, &frame)) {
    if (frame.type == DO_LEAVE) return;
  }
}

static void finish(struct watch *watch) {
  if (!watch->quitting && getpid() == 1) name_leftovers();
  end_tree(watch->command);
  char *table;
  ssize_t length = read_file("/proc/self/mountinfo", &table);
  if (length >= 0) say_fact(FD_CONTROL, "end.mountinfo", "/proc/self/mountinfo of the shim, after the command", table, (size_t)length);
  char *counted;
  length = read_file("/proc/self/net/snmp", &counted);
  if (length >= 0) say_fact(FD_CONTROL, "end.net.snmp", "/proc/self/net/snmp of the shim, after the command", counted, (size_t)length);
  char text[32];
  int left = kill(-1, 0) != 0 && errno == ESRCH ? 0 : 1;
  snprintf(text, sizeof text, "%d", left);
  say_fact_text(FD_CONTROL, "end.processes", "kill(-1, 0) of the shim: 0 when the namespace is empty", text);
  if (relaying) {
    if (watch->deserted) _exit(0);
    drain(watch);
  }
  report_groups();
  struct rusage used;
  getrusage(RUSAGE_CHILDREN, &used);
  say_numbers(FD_CONTROL, SAY_DONE, (uint64_t)used.ru_utime.tv_sec * 1000000 + (uint64_t)used.ru_utime.tv_usec,
              (uint64_t)used.ru_stime.tv_sec * 1000000 + (uint64_t)used.ru_stime.tv_usec);
  if (relaying) wait_for_leave();
  _exit(0);
}

int cmd_inner(int argc, char **argv) {
  (void)argc;
  (void)argv;
  return run_inner(FD_CONTROL, 0);
}

/* Engines older than close_range(2) refuse it with their own filter. */
static void close_above(int first) {
  if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0) return;
  DIR *directory = opendir("/proc/self/fd");
  if (directory == NULL) fail("close_range", "");
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    int fd = atoi(entry->d_name);
    if (fd >= first && fd != dirfd(directory)) close(fd);
  }
  closedir(directory);
}

int run_inner(int commands, int relays) {
  commands_fd = commands;
  relaying = relays;
  fail_control = FD_CONTROL;
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) fail("prctl", "PR_SET_DUMPABLE");
  /* A container's PID 1 is handed from parent to parent, any of whose threads may end: its hang-up is the channel's alone. */
  if (!relays && prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail("prctl", "PR_SET_PDEATHSIG");
  say_hello(FD_CONTROL, relays ? "entry" : "inner");
  static struct command command;
  configure(&command);

  int extra = relays ? commands != FD_CONTROL : command.terminal;
  int first = extra ? FD_HANDOVER + 1 : FD_CONTROL + 1;
  if (command.rights & RIGHT_CLOSE_FDS) close_above(first);
  fcntl(FD_CONTROL, F_SETFD, FD_CLOEXEC);
  if (extra) fcntl(FD_HANDOVER, F_SETFD, FD_CLOEXEC);
  if (relays && !command.terminal) streams_open_pipes();
  if (!(command.rights & RIGHT_NONDUMPABLE) && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) fail("prctl", "PR_SET_DUMPABLE");

  sigset_t all, chld;
  sigfillset(&all);
  sigemptyset(&chld);
  sigaddset(&chld, SIGCHLD);
  if (sigprocmask(SIG_SETMASK, &all, NULL) != 0) fail("sigprocmask", "");
  struct watch watch = {.slave = -1};
  watch.signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
  if (watch.signals < 0) fail("signalfd", "");
  if (command.terminal) watch.slave = make_terminal(&command);
  drop_rights(&command);
  report_self();
  report_groups();

  int gate[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, gate) != 0) fail("socketpair", "gate");
  watch.timer = -1;
  watch.command = fork();
  if (watch.command < 0) fail("fork", "command");
  if (watch.command == 0) {
    close(gate[0]);
    command_process(&command, FD_CONTROL, gate[1], watch.slave);
  }
  close(gate[1]);
  watch.gate = gate[0];
  setpgid(watch.command, watch.command);
  if (watch.slave >= 0) {
    tcsetpgrp(watch.slave, watch.command); /* SIGTTOU is blocked here */
    /* Nothing of ours may hold the command's streams open. */
    dup2(watch.slave, 0);
    close(1);
    close(2);
  } else {
    close(0);
    close(1);
    close(2);
  }
  watch.timer = wall_timer(command.wall_ms);

  while (!watch.ended && !watch.quitting) {
    struct pollfd polled[8] = {
        {commands_fd, POLLIN, 0}, {watch.signals, POLLIN, 0}, {watch.gate, POLLIN, 0}, {watch.timer, POLLIN, 0},
        {watch.slave >= 0 && !relaying ? FD_HANDOVER : -1, POLLIN, 0},
    };
    if (relaying) streams_poll(polled + 5);
    if (poll(polled, relaying ? 8 : 5, -1) < 0) {
      if (errno == EINTR) continue;
      fail("poll", "inner");
    }
    if (polled[2].revents != 0) hear_gate(&watch);
    if (polled[0].revents != 0) obey(&watch);
    if (relaying) streams_move(polled + 5);
    if (polled[1].revents != 0) {
      struct signalfd_siginfo info;
      while (read(watch.signals, &info, sizeof info) > 0) continue;
      if (watch.gate >= 0) {
        struct pollfd again = {watch.gate, POLLIN, 0};
        if (poll(&again, 1, 0) > 0) hear_gate(&watch); /* an execve that failed is said before the end */
      }
      reap(&watch);
    }
    if (polled[3].revents != 0) {
      say_simple(FD_CONTROL, SAY_TIMEOUT);
      watch.quitting = 1;
    }
    if (polled[4].revents != 0) {
      char byte;
      if (recv(FD_HANDOVER, &byte, 1, MSG_DONTWAIT) == 1) {
        go_on(&watch);
      } else {
        watch.quitting = 1; /* the relay is gone */
      }
    }
  }
  finish(&watch);
  return 0;
}
