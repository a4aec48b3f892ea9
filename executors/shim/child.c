/* The process that becomes the command: gives up its rights, reports what it sees, probes, waits at the gate, executes. */
#define _GNU_SOURCE
#include "shim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SESSION_KEYRING ((unsigned long)-3)
enum { KEYCTL_GET_KEYRING_ID_ = 0, KEYCTL_JOIN_SESSION_KEYRING_ = 1 };

static void report_file(int control, const char *id, const char *path) {
  char *text;
  ssize_t length = read_file(path, &text);
  if (length < 0) {
    char missing[64];
    snprintf(missing, sizeof missing, "!%d", errno);
    say_fact_text(control, id, path, missing);
    return;
  }
  say_fact(control, id, path, text, (size_t)length);
  free(text);
}

static void report_namespaces(int control) {
  static const char *const names[] = {"mnt", "pid", "net", "user", "ipc", "uts", "cgroup"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char path[64], id[32], text[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
    snprintf(id, sizeof id, "ns.%s", names[i]);
    ssize_t length = readlink(path, text, sizeof text - 1);
    if (length < 0) length = snprintf(text, sizeof text, "!%d", errno);
    say_fact(control, id, path, text, (size_t)length);
  }
}

static void report_pids(int control) {
  char text[4096];
  size_t used = 0;
  DIR *directory = opendir("/proc");
  if (directory == NULL) fail("opendir", "/proc");
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    int wrote = snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? " " : "", entry->d_name);
    if (wrote < 0 || (size_t)wrote >= sizeof text - used) break;
    used += (size_t)wrote;
  }
  closedir(directory);
  say_fact(control, "proc.pids", "readdir(3) of /proc", text, used);
}

/* Descriptors that execve will not close, each with its kind and identity. */
static int one_descriptor(int fd, char *text, size_t room) {
  int flags = fcntl(fd, F_GETFD);
  if (flags < 0 || (flags & FD_CLOEXEC)) return 0;
  struct stat facts;
  if (fstat(fd, &facts) != 0) fail("fstat", "descriptor");
  const char *kind = S_ISFIFO(facts.st_mode)   ? "pipe"
                     : S_ISSOCK(facts.st_mode) ? "socket"
                     : S_ISREG(facts.st_mode)  ? "file"
                     : S_ISDIR(facts.st_mode)  ? "directory"
                     : S_ISBLK(facts.st_mode)  ? "block"
                     : isatty(fd)              ? "terminal"
                     : S_ISCHR(facts.st_mode)  ? "character"
                                               : "other";
  int wrote = snprintf(text, room, "%d:%s:%llu:%llu ", fd, kind, (unsigned long long)facts.st_dev, (unsigned long long)facts.st_ino);
  if (wrote < 0 || (size_t)wrote >= room) fail_with("report", "descriptors", E2BIG);
  return wrote;
}

/* 0 to 2 first, the rest in the order of /proc/self/fd, which names them all, whatever their number. */
static void report_descriptors(int control) {
  char text[4096] = "";
  size_t used = 0;
  for (int fd = 0; fd < 3; fd++) used += (size_t)one_descriptor(fd, text + used, sizeof text - used);
  DIR *directory = opendir("/proc/self/fd");
  if (directory == NULL) fail("opendir", "/proc/self/fd");
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    int fd = atoi(entry->d_name); /* 0 for `.` and `..` */
    if (fd > 2 && fd != dirfd(directory)) used += (size_t)one_descriptor(fd, text + used, sizeof text - used);
  }
  closedir(directory);
  if (used > 0) used--; /* the last space */
  say_fact(control, "fds", "fcntl(F_GETFD) and fstat(2) of every descriptor of /proc/self/fd", text, used);
}

static void report_rlimits(int control, const struct command *command) {
  char text[1024];
  size_t used = 0;
  for (size_t i = 0; i < command->rlimit_count; i++) {
    struct rlimit now;
    if (getrlimit((__rlimit_resource_t)command->rlimits[i].resource, &now) != 0) fail("getrlimit", "");
    int wrote = snprintf(text + used, sizeof text - used, "%s%d=%llu:%llu", used > 0 ? " " : "", command->rlimits[i].resource,
                         (unsigned long long)now.rlim_cur, (unsigned long long)now.rlim_max);
    if (wrote < 0 || (size_t)wrote >= sizeof text - used) break;
    used += (size_t)wrote;
  }
  say_fact(control, "rlimits", "getrlimit(2) of the command's process", text, used);
}

/* The very bytes that execve gets as its environment. */
static void report_environment(int control, char **env) {
  size_t length = 0;
  for (size_t i = 0; env[i] != NULL; i++) length += strlen(env[i]) + 1;
  char *block = malloc(length > 0 ? length : 1);
  if (block == NULL) fail("malloc", "environment");
  size_t at = 0;
  for (size_t i = 0; env[i] != NULL; i++) {
    size_t size = strlen(env[i]) + 1;
    memcpy(block + at, env[i], size);
    at += size;
  }
  say_fact(control, "environment", "the environment argument of execve(2)", block, length);
  free(block);
}

static void report_keyring(int control, const char *id) {
  char text[32];
  long serial = syscall(SYS_keyctl, (unsigned long)KEYCTL_GET_KEYRING_ID_, SESSION_KEYRING, 0UL);
  snprintf(text, sizeof text, "%ld", serial < 0 ? (long)-errno : serial);
  say_fact_text(control, id, "keyctl(KEYCTL_GET_KEYRING_ID)", text);
}

static void set_rlimits(const struct command *command) {
  for (size_t i = 0; i < command->rlimit_count; i++) {
    struct rlimit wanted = {command->rlimits[i].soft, command->rlimits[i].hard};
    struct rlimit now;
    __rlimit_resource_t resource = (__rlimit_resource_t)command->rlimits[i].resource;
    if (getrlimit(resource, &now) != 0) fail("getrlimit", "");
    if (wanted.rlim_max > now.rlim_max) wanted.rlim_max = now.rlim_max; /* raising needs CAP_SYS_RESOURCE */
    if (wanted.rlim_cur > wanted.rlim_max) wanted.rlim_cur = wanted.rlim_max;
    if (setrlimit(resource, &wanted) != 0) fail("setrlimit", "");
  }
}

static void install_filters(const struct command *command) {
  for (size_t i = 0; i < command->filter_count; i++) {
    struct sock_fprog program = {(unsigned short)(command->filters[i].length / sizeof(struct sock_filter)), command->filters[i].bytes};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0u, &program) != 0) fail("seccomp", "SECCOMP_SET_MODE_FILTER");
  }
}

#define LONGEST_PATH 4096

/* Memory of its own for `length` bytes at an address that is not the start of a page. */
static void map_at(uint64_t address, size_t length) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = address & ~(page - 1);
  void *wanted = (void *)(uintptr_t)start;
  void *at = mmap(wanted, (size_t)(address - start) + length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (at == MAP_FAILED) fail("mmap", "the arguments of execve");
  if (at != wanted) fail_with("mmap", "the arguments of execve", EEXIST); /* a kernel before 4.17 */
}

/*
 * Pathname and arguments at the two addresses that the filter admits. They exist in this process alone and go with its execve; the
 * addresses are random, and nothing that the command can read holds them.
 */
static void map_exec(struct command *command) {
  if (command->exec_path == 0) return;
  size_t count = 1;
  while (command->argv[count - 1] != NULL) count++;
  map_at(command->exec_path, LONGEST_PATH);
  map_at(command->exec_argv, count * sizeof *command->argv);
  command->argv = memcpy((void *)(uintptr_t)command->exec_argv, command->argv, count * sizeof *command->argv);
}

static void try_execute(const struct command *command, const char *path) {
  if (command->exec_path != 0) {
    if (strlen(path) >= LONGEST_PATH) {
      errno = ENAMETOOLONG;
      return;
    }
    path = strcpy((char *)(uintptr_t)command->exec_path, path);
  }
  execve(path, command->argv, command->env);
}

/* execvpe(3) over the job's own PATH. Returns the errno to report: EACCES wins over ENOENT, as in a shell. */
static int execute(const struct command *command) {
  const char *name = command->exe != NULL && command->exe[0] != 0 ? command->exe : command->argv[0];
  if (strchr(name, '/') != NULL) {
    try_execute(command, name);
    return errno;
  }
  const char *path = NULL;
  for (size_t i = 0; command->env[i] != NULL; i++) {
    if (strncmp(command->env[i], "PATH=", 5) == 0) path = command->env[i] + 5;
  }
  int error = ENOENT;
  for (const char *at = path; at != NULL;) {
    const char *end = strchrnul(at, ':');
    char full[LONGEST_PATH];
    int wrote = snprintf(full, sizeof full, "%.*s%s%s", (int)(end - at), at, end > at ? "/" : "", name);
    if (wrote > 0 && (size_t)wrote < sizeof full) {
      try_execute(command, full);
      if (errno != ENOENT && errno != ENOTDIR) {
        if (errno != EACCES) return errno;
        error = EACCES;
      }
    }
    at = *end != 0 ? end + 1 : NULL;
  }
  return error;
}

static void say_word(int gate, uint32_t word) {
  if (send(gate, &word, sizeof word, MSG_NOSIGNAL) != sizeof word) _exit(125);
}

void command_process(struct command *command, int control, int gate, int slave) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail("prctl", "PR_SET_PDEATHSIG");
  setpgid(0, 0);
  if (slave >= 0) {
    for (int i = 0; i < 3; i++) {
      if (dup2(slave, i) < 0) fail("dup2", "pty");
    }
  }
  report_keyring(control, "keyring.before");
  if (command->rights & RIGHT_KEYRING) {
    /* ENOSYS and EPERM (no keyrings here) are told apart by the receipt. */
    if (syscall(SYS_keyctl, (unsigned long)KEYCTL_JOIN_SESSION_KEYRING_, 0UL) < 0) errno = 0;
  }
  report_keyring(control, "keyring.after");
  if (chdir(command->cwd) != 0) fail("chdir", command->cwd);
  set_rlimits(command);
  map_exec(command);
  if (command->programs != NULL) restrict_programs(command->programs);
  install_filters(command);

  report_namespaces(control);
  report_file(control, "status", "/proc/self/status");
  report_file(control, "mountinfo", "/proc/self/mountinfo");
  report_file(control, "cgroup", "/proc/self/cgroup");
  report_file(control, "net.dev", "/proc/net/dev");
  report_file(control, "net.route", "/proc/net/route");
  report_file(control, "net.ipv6_route", "/proc/net/ipv6_route");
  report_network(control);
  report_file(control, "resolver.file", "/etc/resolv.conf");
  report_pids(control);
  char self[32];
  snprintf(self, sizeof self, "%d", (int)getpid());
  say_fact_text(control, "command.pid", "getpid(2) of the command's process", self);
  report_rlimits(control, command);
  report_environment(control, command->env);
  for (size_t i = 0; i < command->probe_count; i++) {
    char attempt[512];
    int error = run_probe(&command->probes[i], attempt, sizeof attempt);
    say_probe(control, command->probes[i].id, attempt, error);
  }
  report_file(control, "net.snmp", "/proc/net/snmp"); /* what the probes met is no doing of the command */
  report_descriptors(control);
  close(control);
  fail_control = -1;

  say_word(gate, 'R');
  char answer;
  ssize_t got;
  do got = read(gate, &answer, 1);
  while (got < 0 && errno == EINTR);
  if (got != 1 || answer != 'G') _exit(0);
  remove_stage_probes(command);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  /* PDEATHSIG stays: it survives execve for programs that gain no rights, and none can here. */
  int error = execute(command);
  say_word(gate, (uint32_t)error);
  _exit(error == ENOENT || error == ENOTDIR ? 127 : 126);
}
