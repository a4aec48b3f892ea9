/*
 * proofrun-shim: one static program that finishes a sandbox from inside.
 *
 *   outer   joins cgroups, makes the namespaces, builds the whole root on a tmpfs of its own, starts bubblewrap,
 *           relays the three streams, waits.
 *   entry   is inner as the entrypoint of a container: it makes the command's streams itself and relays them in frames.
 *   inner   is PID 1 of the sandbox: forks the command's process, holds the gate, reaps, ends the tree.
 *   walk    records the preimage of a workspace.      scan   lists an upper layer.      apply   applies a plan.
 *   landlock  prints the version of Landlock that the kernel has.
 *   layer   merges, copies and lists layers.   upper   builds an upper layer from steps (executors/docker/transfer).
 *
 * The control channel is a stream socket. A frame is: u32 little endian length of what follows, one type byte, payload.
 * Strings in payloads end with NUL; numbers are u64 little endian. executors/shim/protocol.ts is the other side.
 */
#ifndef PROOFRUN_SHIM_H
#define PROOFRUN_SHIM_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROTOCOL_VERSION 1
#define MAX_FRAME (8u << 20)

/* Descriptors of outer when the host starts it. */
#define FD_CONTROL 3
/* Where entry reads when its channel is the container's own input and output. */
#define FD_COMMANDS 4
/* Node's channel of messages, when the job's rules name hosts: listening sockets go over it. Closed before bubblewrap starts. */
#define FD_HANDLES 4

/* Frames from the shim. */
enum {
  SAY_HELLO = 'H',   /* string stage, u64 version */
  SAY_FACT = 'F',    /* string id, string read-from, bytes */
  SAY_PROBE = 'P',   /* string id, string attempt, u64 errno (0: the attempt succeeded) */
  SAY_ERROR = 'E',   /* string call, string subject, u64 errno: the sandbox can't be built */
  SAY_READY = 'R',   /* everything is installed, the command's process waits */
  SAY_STARTED = 'S', /* execve succeeded */
  SAY_NO_EXEC = 'X', /* u64 errno of execve */
  SAY_ENDED = 'T',   /* u64 wait status of the command */
  SAY_TIMEOUT = 'W', /* the wall time is over; the tree is being killed */
  SAY_OUTLIVED = 'O',/* u64 pid, string comm: killed after the command ended */
  SAY_DONE = 'D',    /* the tree is dead; u64 user microseconds, u64 system microseconds of all reaped */
  SAY_OUTPUT = '1',  /* entry: bytes of standard output, or of the terminal */
  SAY_ERROR_OUTPUT = '2', /* entry: bytes of standard error */
  SAY_EOF = 'e',     /* entry: u64 stream (1 or 2): it has ended */
  SAY_CREDIT = '+',  /* entry: u64 bytes of input that left the window; 0: nobody reads it any more */
  SAY_STOPPED = 'Z', /* entry: the command stopped (Ctrl-Z); DO_CONTINUE goes on */
};

/* Frames to outer: operations, in order. */
enum {
  OP_LISTEN = 'L',   /* string abstract name, string path: probe targets in the caller's network, TCP on 127.0.0.1 too */
  OP_UNSHARE = 'U',  /* u64 flags, u64 map (0 or 1), u64 uid, u64 gid */
  OP_BASE = 'B',     /* string directory: mount the private tmpfs there */
  OP_DIR = 'd',      /* string path, u64 mode, u64 uid, u64 gid */
  OP_LIKE = 'k',     /* string path, string model: copy mode, owner, times of a directory */
  OP_SYMLINK = 'l',  /* string target, string path */
  OP_FILE = 'f',     /* string path, u64 mode, bytes */
  OP_COPY = 'y',     /* string source, string path, u64 mode, u64 uid, u64 gid: copy a small host file */
  OP_WHITEOUT = 'w', /* string path */
  OP_OVERLAY = 'o',  /* string target, u64 flags, string upper, string work, strings lowers */
  OP_BIND = 'b',     /* string source, string target, u64 flags */
  OP_TMPFS = 't',    /* string target, u64 mode, u64 bytes (0: none), u64 uid, u64 gid, u64 flags (MOUNT_NOEXEC) */
  OP_AGENT = 'g',    /* string guest directory, string host directory, string client, u64 uid, u64 gid: the sockets of AgentCtl */
  OP_LOOPBACK = 'n', /* bring lo up */
  OP_ADDRESS = 'i',  /* string address, u64 prefix: give it to lo */
  OP_ALL_LOCAL = 'a',/* string source address: every address of its family is local */
  OP_LISTENER = 'p', /* u64 kind, string address, u64 port: open it and hand it to the host on FD_HANDLES */
  OP_DIALER = 'D',   /* start the process that connects to published ports */
  OP_START = 'x',    /* u64 terminal (0 or 1), strings argv: run it and relay; its last arguments name inner */
};

#define LISTEN_TCP 1u
#define LISTEN_UDP 2u

#define MOUNT_READONLY 1u
#define MOUNT_RECURSIVE 2u
#define MOUNT_NOEXEC 4u
#define MOUNT_USERXATTR 8u
#define MOUNT_OPTIONAL 16u
/* An overlay follows redirects of its lower layers and makes none. */
#define MOUNT_FOLLOW 32u
/* An overlay keeps files with several names together: links.c. */
#define MOUNT_INDEX 64u

/* Frames to inner: its configuration, then commands. */
enum {
  CFG_ARGV = 'A',    /* strings */
  CFG_ENV = 'V',     /* strings NAME=value */
  CFG_CWD = 'C',     /* string */
  CFG_EXE = 'e',     /* string: resolved path to execute, or empty: search PATH of the environment */
  CFG_IDS = 'I',     /* u64 change (0 or 1), u64 uid, u64 gid, u64... groups */
  CFG_RLIMIT = 'r',  /* u64 resource, u64 soft, u64 hard */
  CFG_SECCOMP = 's', /* bytes: struct sock_filter[] */
  CFG_RIGHTS = 'a',  /* u64 bits: 1 no_new_privs, 2 drop capabilities, 4 new session keyring, 8 close descriptors,
                        16 non-dumpable */
  CFG_WALL = 'w',    /* u64 milliseconds */
  CFG_EXEC_AT = 'E', /* u64, u64: where the pathname and the arguments lie that execve gets; a filter admits no others */
  CFG_PROGRAMS = 'P',/* strings: files and directories; nothing else may be executed */
  CFG_PROBE = 'p',   /* string id, u64 kind, string subject, u64[6] */
  CFG_TERMINAL = 'y',/* u64 rows, u64 columns */
  CFG_END = 'z',     /* configuration is complete */
  DO_RELEASE = 'G',
  DO_SIGNAL = 'K',   /* u64 signal */
  DO_QUIT = 'Q',     /* kill the tree */
  DO_LEAVE = 'L',    /* entry: the host has read SAY_DONE and all before it */
  DO_CREDIT = '+',   /* entry: u64 stream (1 or 2), u64 bytes that the host has room for */
  DO_INPUT = 'i',    /* entry: bytes for the command's input, at most what fits in the window */
  DO_INPUT_END = 'j',
  DO_RESIZE = 'Y',   /* entry: u64 rows, u64 columns */
  DO_CONTINUE = 'g', /* entry: the stopped command goes on */
};

#define RIGHT_NO_NEW_PRIVS 1u
#define RIGHT_DROP_CAPS 2u
#define RIGHT_KEYRING 4u
#define RIGHT_CLOSE_FDS 8u
#define RIGHT_NONDUMPABLE 16u

/* Kinds of probe. */
enum {
  PROBE_OPEN = 1,     /* subject path; a0 flags */
  PROBE_CREATE = 2,   /* subject path: O_CREAT|O_EXCL|O_WRONLY, removed at once */
  PROBE_TCP = 3,      /* subject address; a0 port */
  PROBE_UDP = 4,      /* subject address; a0 port: one byte sent */
  PROBE_UNIX = 5,     /* subject path, or @name for abstract */
  PROBE_SYSCALL = 6,  /* a0 number, a1..a5 the first five arguments */
  PROBE_KILL = 7,     /* a0 pid: kill(pid, 0) */
  PROBE_STAGE = 8,    /* subject path: created and kept until release, then removed */
  PROBE_FORK = 9,     /* fork and wait */
  PROBE_ANSWER = 10,  /* subject address; a0 port: TCP, a request is sent, and somebody has to answer it */
  PROBE_NAME = 11,    /* subject `server name`: an A query over UDP; NXDOMAIN is ENOENT */
  PROBE_EXEC = 12,    /* subject path: executed in a process of its own */
};

/* One frame as read. `data` is owned by the reader and valid until the next read. */
struct frame {
  uint8_t type;
  uint8_t *data;
  size_t length;
};

/* Cursor over a payload. A read past the end ends the program through fail(). */
struct cursor {
  const uint8_t *at;
  const uint8_t *end;
};

/* frame.c */
int frame_read(int fd, struct frame *frame); /* 1: read, 0: peer closed */
void frame_say(int fd, uint8_t type, const void *parts[], const size_t lengths[], int count);
void say_simple(int fd, uint8_t type);
void say_number(int fd, uint8_t type, uint64_t a);
void say_numbers(int fd, uint8_t type, uint64_t a, uint64_t b);
void say_hello(int fd, const char *stage);
void say_fact(int fd, const char *id, const char *from, const void *bytes, size_t length);
void say_fact_text(int fd, const char *id, const char *from, const char *text);
void say_probe(int fd, const char *id, const char *attempt, int error);
struct cursor cursor_of(const struct frame *frame);
const char *take_string(struct cursor *cursor);
uint64_t take_number(struct cursor *cursor);
int cursor_empty(const struct cursor *cursor);
/* Collects the remaining strings of a payload; the array is NULL-terminated and allocated, the strings point into copy. */
char **take_strings(struct cursor *cursor);
void *copy_bytes(const void *bytes, size_t length);
char *copy_string(const char *text);

/* fail.c: where fail() reports: the control descriptor, or stderr when it is negative. */
extern int fail_control;
__attribute__((noreturn)) void fail(const char *call, const char *subject);
__attribute__((noreturn)) void fail_with(const char *call, const char *subject, int error);
void reset_process(void); /* umask, signal mask and dispositions */
ssize_t read_file(const char *path, char **out); /* whole small file, NUL added; -1 with errno */

/* mounts.c */
void make_overlay(const char *target, unsigned flags, const char *upper, const char *work, char **lowers);
void make_bind(const char *source, const char *target, unsigned flags);
void make_tmpfs(const char *target, unsigned mode, uint64_t bytes, uid_t uid, gid_t gid, unsigned flags);

/* net.c */
void loopback_up(void);
void add_address(const char *text, unsigned prefix);
void all_addresses_local(const char *source);
void open_listener(uint64_t kind, const char *text, uint64_t port);
void start_dialer(void);
void close_handles(void);
void report_network(int control);

/* relay.c */
struct relay_pipes {
  int terminal;    /* 1: a pty, made by inner; its master arrives on `handover` */
  int child[3];    /* the sandbox's ends of 0, 1, 2 */
  int ours[3];     /* our ends */
  int handover;    /* our end of the socket on which inner hands the pty's master over */
  int child_handover;
};
void relay_open(struct relay_pipes *pipes, int terminal);
int relay_run(struct relay_pipes *pipes, pid_t child); /* until the child is dead and the pipes are dry; its wait status */

/* child.c: the command's process, up to execve. */
struct command;
struct rlimit_entry { int resource; uint64_t soft, hard; };
struct filter_entry { void *bytes; size_t length; };
struct probe_entry { char *id; uint64_t kind; char *subject; uint64_t args[6]; };
struct command {
  char **argv, **env;
  char *cwd, *exe;
  int change_ids;
  uid_t uid;
  gid_t gid;
  gid_t groups[64];
  size_t group_count;
  struct rlimit_entry rlimits[16];
  size_t rlimit_count;
  struct filter_entry filters[4];
  size_t filter_count;
  struct probe_entry *probes;
  size_t probe_count, probe_room;
  unsigned rights;
  char **programs; /* NULL: any */
  uint64_t exec_path, exec_argv; /* 0: anywhere */
  uint64_t wall_ms;
  int terminal;
  uint64_t rows, columns;
};
__attribute__((noreturn)) void command_process(struct command *command, int control, int gate, int slave);

/* probe.c */
int run_probe(const struct probe_entry *probe, char *attempt, size_t room);
void remove_stage_probes(const struct command *command);

/* landlock.c */
void restrict_programs(char **paths);

/* links.c: of an overlay that was mounted with MOUNT_INDEX, and after the job what its index knows and its upper directory doesn't. */
void links_of(const char *target, const char *upper, const char *work);
void links_settle(void);

/* agent.c */
void agent_listen(const char *guest_directory, const char *host_directory, const char *client, uid_t uid, gid_t gid);
/* For the relay's loop: what it waits for on behalf of AgentCtl, and what comes of it. */
void agent_poll(struct pollfd polled[3]);
void agent_move(const struct pollfd polled[3]);
void agent_wait(void);

int cmd_agentctl(int argc, char **argv);
/* inner.c: the life of PID 1; commands arrive on `commands`. relays: the streams are this process's own business (entry). */
int run_inner(int commands, int relays);

/* entry.c: the command's streams, as frames. */
void streams_open_pipes(void);
void streams_open_terminal(int master);
void streams_poll(struct pollfd polled[3]);
void streams_move(const struct pollfd polled[3]);
int streams_dry(void);
int streams_obey(const struct frame *frame);

int cmd_entry(int argc, char **argv);
int cmd_outer(int argc, char **argv);
int cmd_inner(int argc, char **argv);
int cmd_walk(int argc, char **argv);
int cmd_scan(int argc, char **argv);
int cmd_apply(int argc, char **argv);
int cmd_layer(int argc, char **argv);
int cmd_upper(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_landlock(int argc, char **argv);

#endif
