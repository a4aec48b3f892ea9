/* What the files of apply share. apply.c says how a run works and what a plan looks like. */
#ifndef PROOFRUN_APPLY_H
#define PROOFRUN_APPLY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "tree.h"

#define NO_OPERATION UINT32_MAX
#define MAX_ROOTS 16

enum { OP_ADD = 1, OP_REPLACE = 2, OP_DELETE = 3, OP_ATTRIBUTES = 4 };
/* OWNER: set the owner too. BY_CONTENT: `before` is what an apply of ours left, told by its content and not by its ctime. TELL: the answer has its ctime. */
enum { FLAG_OWNER = 1, FLAG_BY_CONTENT = 2, FLAG_TELL = 4 };
/*
 * Where the new entry comes from. LINK: another name of what an earlier operation stages. TREE_LINK: another name of a file of
 * the tree. KEPT: the very file that an earlier apply kept. GIVEN: content that the host wrote for this apply.
 */
enum { FROM_NOWHERE = 0, FROM_LAYER = 1, FROM_TREE = 2, FROM_LINK = 3, FROM_TREE_LINK = 4, FROM_KEPT = 5, FROM_GIVEN = 6 };

struct text {
  const char *at;
  uint32_t length;
};

struct state {
  uint8_t type, hash_known;
  uint32_t mode, uid, gid;
  uint64_t dev, ino, size;
  struct timespec mtime, ctime;
  const unsigned char *sha256;
  struct text target;
  uint16_t xattr_count;
  const unsigned char *xattrs; /* first of xattr_count pairs of strings */
};

struct operation {
  uint8_t kind, flags, source;
  uint16_t root;
  struct text path, source_path;
  uint32_t parent_operation, link;
  uint64_t parent_dev, parent_ino;
  struct state before, after;
  uint64_t new_ino; /* of what was staged */
  int parent_fd;    /* of the directory in which it was done, while it is kept open; else -1 */
  bool done;
};

struct root {
  struct text path, upper, staging_parent;
  struct text kept; /* directory that KEPT and GIVEN name files of; may be empty */
  uint64_t dev, ino, mount;
  int fd, upper_fd, kept_fd, staging_fd;
  bool staging_inside; /* in the root itself, else in staging_parent */
};

struct plan {
  unsigned char *bytes;
  size_t length;
  struct text id;
  uint32_t root_count, operation_count;
  bool finished; /* new directories have their own mode and time */
  struct root roots[MAX_ROOTS];
  struct operation *operations;
};

/* Why a run stopped: set by the function that returns false. */
struct trouble {
  bool conflict;
  uint32_t operation; /* NO_OPERATION: none in particular */
  const char *what;   /* the call, or what differs */
  int error;
};

extern struct trouble trouble;
/* Both set `trouble` and return false. */
bool failed_call(uint32_t operation, const char *call);
bool conflicts(uint32_t operation, const char *what);

/* apply-plan.c */
struct reader {
  const unsigned char *at, *end;
};
struct text take_text(struct reader *r);
void read_plan(const char *path, struct plan *plan); /* ends the program when the plan makes no sense */
void free_plan(struct plan *plan);

/* apply-entry.c: one entry, compared and changed. */
uint64_t dev_of(const struct stat *st);
uint64_t inode_at(int fd, const char *name); /* 0: nothing is there */
const char *last_name(struct text path);
int rename_two(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
bool same_time(struct timespec a, struct timespec b);
/* `moved`: the ctime may have changed by a rename of ours. */
bool same_facts(const struct state *s, const struct stat *st, bool moved);
bool directory_empty(int parent, const char *name);
bool is_preimage(int fd, const char *name, const struct state *s); /* identity, attributes, content */
uint32_t writable_mode(const struct state *s, uint32_t mode); /* the mode that an entry has for a moment while its attributes are set */
/* Gives the entry that `fd` (O_PATH) names the attributes of `to`; `from` (or NULL) is what it has. NULL, or the call that failed. */
const char *set_attributes(int fd, const struct state *from, const struct state *to, bool owner, uint32_t mode);

/* apply-staging.c: everything before the tree is touched. */
bool open_roots(struct plan *plan);
void inside_name(const struct plan *plan, char out[96]);
void outside_name(const struct plan *plan, uint32_t root, char out[96]);
void staged_name(char out[16], char kind, uint32_t operation);
bool make_staging(struct plan *plan, uint32_t root);
bool find_staging(struct plan *plan, uint32_t root); /* staging_fd stays -1 when there is none */
bool stage_operation(struct plan *plan, uint32_t index);
/* Copies content, keeping holes, and checks that it is what the plan says. */
bool copy_content(uint32_t index, int from, int to, const struct state *after);
bool write_all(int fd, const unsigned char *bytes, size_t length, off_t at);

/* apply-manifest.c */
bool write_manifest(struct plan *plan);
int read_manifest(struct plan *plan, const char *name); /* 1: read; 0: there is none, or it is torn */
bool sync_roots(struct plan *plan);

/* apply-parent.c: the directories in which operations are done. */
int open_parent(struct plan *plan, uint32_t index);
void keep_parent(struct operation *o);
void forget_parent(void);
void close_parents(struct plan *plan);
void limit_kept_parents(uint64_t descriptors);

/* apply-swap.c */
bool check_before(struct plan *plan, uint32_t index, bool moved);
int open_target(struct plan *plan, uint32_t index, uint64_t dev, uint64_t ino);
bool change_attributes(struct plan *plan, uint32_t index, const struct state *from, const struct state *to);
bool swap_operation(struct plan *plan, uint32_t index);
uint32_t roll_back(struct plan *plan); /* the count of operations that couldn't be put back; their `done` stays set */
bool finish_directories(struct plan *plan); /* before anything closes the way to them; once is enough */
bool commit_plan(struct plan *plan);

bool opens_directory(const struct operation *o); /* apply.c: an attribute step that gives a directory's owner rights back */

/* apply-recover.c: after a crash. */
void recover_plan(struct plan *plan);
void clean_plan(struct plan *plan);

/* apply-keep.c: what was there before, for a later undo. */
void keep_plan(struct plan *plan, const char *directory);

/* apply-answer.c: the other side of stdin and stdout. */
bool read_line(char *line, size_t room);
void say(const char *bytes, size_t length);
void pause_at(const char *step);
void step(const char *name, uint32_t operation);
/* Tells how far a long run is, at most ten times a second. */
void progress(const char *stage, uint32_t done, uint32_t total);
/* `settled_back`: the tree is as before. */
void answer(struct plan *plan, const char *result, uint32_t stuck, bool with_trouble, bool settled_back);

#endif
