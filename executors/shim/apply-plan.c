#define _GNU_SOURCE
#include "apply.h"

#include <stdio.h>
#include <stdlib.h>

static const unsigned char *take(struct reader *r, size_t length) {
  if ((size_t)(r->end - r->at) < length) tree_stop(TREE_EXIT_USAGE, "the plan ends too early");
  const unsigned char *at = r->at;
  r->at += length;
  return at;
}

#define DEFINE_TAKE(name, type)                    \
  static type name(struct reader *r) {             \
    type value;                                    \
    memcpy(&value, take(r, sizeof value), sizeof value); \
    return value;                                  \
  }
DEFINE_TAKE(take_u8, uint8_t)
DEFINE_TAKE(take_u16, uint16_t)
DEFINE_TAKE(take_u32, uint32_t)
DEFINE_TAKE(take_u64, uint64_t)

struct text take_text(struct reader *r) {
  struct text t;
  t.length = take_u32(r);
  if (t.length == UINT32_MAX) tree_stop(TREE_EXIT_USAGE, "the plan has a string that is too long");
  t.at = (const char *)take(r, (size_t)t.length + 1);
  if (t.at[t.length] != 0) tree_stop(TREE_EXIT_USAGE, "the plan has a string without its end");
  return t;
}

static struct timespec take_time(struct reader *r) {
  struct timespec t;
  t.tv_sec = (time_t)take_u64(r);
  t.tv_nsec = (long)take_u32(r);
  return t;
}

static void take_state(struct reader *r, struct state *s) {
  s->type = take_u8(r);
  s->hash_known = take_u8(r);
  s->mode = take_u32(r);
  s->uid = take_u32(r);
  s->gid = take_u32(r);
  s->dev = take_u64(r);
  s->ino = take_u64(r);
  s->size = take_u64(r);
  s->mtime = take_time(r);
  s->ctime = take_time(r);
  s->sha256 = take(r, 32);
  s->target = take_text(r);
  s->xattr_count = take_u16(r);
  s->xattrs = r->at;
  for (uint16_t i = 0; i < s->xattr_count; i++) {
    take_text(r);
    take_text(r);
  }
}

/* A relative path of plain names: no empty one, no dot, no dot-dot. */
static bool plain_path(struct text path) {
  if (path.length == 0 || strlen(path.at) != path.length) return false;
  for (const char *at = path.at;;) {
    size_t length = strcspn(at, "/");
    if (length == 0 || (at[0] == '.' && (length == 1 || (length == 2 && at[1] == '.')))) return false;
    if (at[length] == 0) return true;
    at += length + 1;
  }
}

void read_plan(const char *path, struct plan *plan) {
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) tree_fail("open", path);
  struct stat st;
  if (fstat(fd, &st) != 0) tree_fail("fstat", path);
  if (!S_ISREG(st.st_mode)) tree_stop(TREE_EXIT_USAGE, "%s is no regular file", path);
  memset(plan, 0, sizeof *plan);
  plan->length = (size_t)st.st_size;
  plan->bytes = malloc(plan->length + 1);
  if (plan->bytes == NULL) tree_fail("malloc", path);
  for (size_t done = 0; done < plan->length;) {
    ssize_t n = read(fd, plan->bytes + done, plan->length - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) tree_fail("read", path);
    done += (size_t)n;
  }
  close(fd);
  struct reader r = {plan->bytes, plan->bytes + plan->length};
  if (memcmp(take(&r, 8), "PRPLAN2", 8) != 0) tree_stop(TREE_EXIT_USAGE, "%s is no plan", path);
  plan->id = take_text(&r);
  if (!plain_path(plan->id) || strchr(plan->id.at, '/') != NULL || plan->id.length > 64) tree_stop(TREE_EXIT_USAGE, "the plan's id is no name");
  plan->root_count = take_u32(&r);
  if (plan->root_count == 0 || plan->root_count > MAX_ROOTS) tree_stop(TREE_EXIT_USAGE, "the plan has %u roots", plan->root_count);
  for (uint32_t i = 0; i < plan->root_count; i++) {
    struct root *root = &plan->roots[i];
    root->path = take_text(&r);
    root->upper = take_text(&r);
    root->staging_parent = take_text(&r);
    root->kept = take_text(&r);
    root->dev = take_u64(&r);
    root->ino = take_u64(&r);
    root->fd = root->upper_fd = root->kept_fd = root->staging_fd = -1;
  }
  plan->operation_count = take_u32(&r);
  if (plan->operation_count > plan->length / 64) tree_stop(TREE_EXIT_USAGE, "the plan's count of operations can't be true");
  plan->operations = calloc(plan->operation_count ? plan->operation_count : 1, sizeof *plan->operations);
  if (plan->operations == NULL) tree_fail("calloc", path);
  for (uint32_t i = 0; i < plan->operation_count; i++) {
    struct operation *o = &plan->operations[i];
    o->parent_fd = -1;
    o->kind = take_u8(&r);
    o->flags = take_u8(&r);
    o->root = take_u16(&r);
    o->path = take_text(&r);
    o->parent_operation = take_u32(&r);
    o->parent_dev = take_u64(&r);
    o->parent_ino = take_u64(&r);
    take_state(&r, &o->before);
    take_state(&r, &o->after);
    o->source = take_u8(&r);
    o->link = take_u32(&r);
    o->source_path = take_text(&r);
    bool itself = o->kind == OP_ATTRIBUTES && strcmp(o->path.at, ".") == 0; /* the root's own attributes */
    bool good = o->kind >= OP_ADD && o->kind <= OP_ATTRIBUTES && o->root < plan->root_count && (itself || plain_path(o->path)) &&
                (o->parent_operation == NO_OPERATION || o->parent_operation < plan->operation_count) && o->source <= FROM_GIVEN &&
                (o->source != FROM_LINK || o->link < i) && (o->source == FROM_NOWHERE || o->source == FROM_LINK || plain_path(o->source_path)) &&
                (o->source < FROM_KEPT || plan->roots[o->root].kept.length > 0);
    bool wants_before = o->kind != OP_ADD, wants_after = o->kind != OP_DELETE;
    if (!good || (o->before.type != 0) != wants_before || (o->after.type != 0) != wants_after) tree_stop(TREE_EXIT_USAGE, "operation %u of the plan makes no sense", i);
    /* What must never be made, whatever the plan says. */
    bool restores = (o->flags & FLAG_BY_CONTENT) != 0; /* an undo brings back what was there */
    if (wants_after && !restores && (o->after.type == DT_CHR || o->after.type == DT_BLK || o->after.type == DT_SOCK || (o->after.type == DT_REG && (o->after.mode & 06000) != 0)))
      tree_stop(TREE_EXIT_USAGE, "operation %u would make a device, a socket or a setuid file", i);
  }
  if (memcmp(take(&r, 4), "END!", 4) != 0 || r.at != r.end) tree_stop(TREE_EXIT_USAGE, "the plan doesn't end where it should");
}

void free_plan(struct plan *plan) {
  for (uint32_t i = 0; i < plan->root_count; i++) {
    if (plan->roots[i].fd >= 0) close(plan->roots[i].fd);
    if (plan->roots[i].upper_fd >= 0) close(plan->roots[i].upper_fd);
    if (plan->roots[i].kept_fd >= 0) close(plan->roots[i].kept_fd);
    if (plan->roots[i].staging_fd >= 0) close(plan->roots[i].staging_fd);
  }
  free(plan->operations);
  free(plan->bytes);
}
