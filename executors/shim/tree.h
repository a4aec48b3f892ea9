/*
 * What walk, scan and apply share: failure text, a growable byte string, a buffered writer, reading a directory, opening
 * beneath a directory, clocks. Everything is relative to a descriptor; no link is followed.
 */
#ifndef PROOFRUN_TREE_H
#define PROOFRUN_TREE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define TREE_EXIT_FAILED 1
#define TREE_EXIT_USAGE 2
#define TREE_EXIT_LIMIT 4

/* Which sub-command speaks; set first. */
extern const char *tree_command;
/* What has to be put right before the process ends by itself, or NULL. */
extern void (*tree_at_exit)(void);

/* Ends the program with the line that the host parses: `proofrun-shim COMMAND: CALL SUBJECT: TEXT [ERRNO]`. */
__attribute__((noreturn)) void tree_fail(const char *call, const char *subject);
__attribute__((noreturn, format(printf, 2, 3))) void tree_stop(int code, const char *format, ...);

struct bytes {
  char *at;
  size_t used, room;
};

void bytes_need(struct bytes *b, size_t more);
void bytes_add(struct bytes *b, const void *from, size_t length);
/* A relative path that grows and shrinks by components and always ends with NUL; push returns what pop wants. */
size_t path_push(struct bytes *path, const char *name, size_t length);
void path_pop(struct bytes *path, size_t before);

/* Buffered output. */
struct sink {
  int fd;
  size_t used;
  uint64_t written;
  unsigned char buffer[1 << 18];
};

void sink_flush(struct sink *s);
void sink_put(struct sink *s, const void *from, size_t length);

/* Numbers are written in the machine's order; the two machines that are supported are little endian. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the formats are little endian");
static inline void sink_u8(struct sink *s, uint8_t v) { sink_put(s, &v, sizeof v); }
static inline void sink_u16(struct sink *s, uint16_t v) { sink_put(s, &v, sizeof v); }
static inline void sink_u32(struct sink *s, uint32_t v) { sink_put(s, &v, sizeof v); }
static inline void sink_u64(struct sink *s, uint64_t v) { sink_put(s, &v, sizeof v); }

struct dirent64_raw {
  uint64_t d_ino;
  int64_t d_off;
  uint16_t d_reclen;
  uint8_t d_type;
  char d_name[];
};

ssize_t read_entries(int fd, void *buffer, size_t room); /* getdents64 */
int is_dot(const char *name);
int open_directory(int parent, const char *name); /* by one name; never through a link */
/* Opens a relative path of any length beneath `root`: no link, no mount, no way out. "" is the root itself. */
int open_beneath(int root, const char *path, int flags);
/* A name for calls that take only a path: the directory is reached through its descriptor. */
void proc_name(char *out, size_t room, int fd, const char *name);
uint64_t raise_descriptor_limit(void); /* as many as the hard limit allows; returns how many */

int64_t clock_ns(clockid_t clock);
int64_t real_minus_boot(void); /* CLOCK_REALTIME less CLOCK_BOOTTIME, ns */
void read_boot_id(char out[40]); /* zeros when it can't be read */

uint64_t parse_count(const char *flag, const char *text);

#endif
