#define _GNU_SOURCE
#include "apply.h"

#include <stdio.h>

#include "closed.h"
#include "removal.h"

/* Without all rights of its owner nothing below it can be looked at or moved. */
static bool closes(const struct state *s) { return s->type == DT_DIR && (s->mode & 0700) != 0700; }

/*
 * Directories that the plan opens to their owner may be closed still, and those that it closes may be closed already; then nothing below them
 * could be looked at. They are opened, by identity and only where they have the very mode that the plan knows; the rest of the recovery
 * gives them the mode from before or from after. A recovery that ends half way leaves the opened mode, which the next one takes for half set.
 */
static void open_what_is_closed(struct plan *plan) {
  if (geteuid() == 0) return;
  for (bool progress = true; progress;) {
    progress = false;
    for (uint32_t i = 0; i < plan->operation_count; i++) {
      struct operation *o = &plan->operations[i];
      bool attributes = o->kind == OP_ATTRIBUTES, before = attributes && closes(&o->before), after = o->kind != OP_DELETE && closes(&o->after);
      if (!before && !after) continue;
      int fd = open_target(plan, i, attributes ? o->before.dev : 0, attributes ? o->before.ino : o->new_ino);
      struct stat st;
      if (fd >= 0 && fstat(fd, &st) == 0) {
        uint32_t mode = st.st_mode & 07777;
        if (((before && mode == o->before.mode) || (after && mode == o->after.mode)) && chmod_handle(fd, mode | 0700) == 0) progress = true;
      }
      if (fd >= 0) close(fd);
    }
    forget_parent();
  }
}

/* Reads from the two places of each operation whether it was done. False: one could not be looked at. */
static bool inspect(struct plan *plan, uint32_t *undone) {
  open_what_is_closed(plan);
  *undone = 0;
  for (uint32_t i = 0; i < plan->operation_count; i++) {
    struct operation *o = &plan->operations[i];
    int staging = plan->roots[o->root].staging_fd;
    char name[16];
    staged_name(name, o->kind == OP_DELETE ? 'd' : 'n', i);
    uint64_t ino = inode_at(staging, name);
    switch (o->kind) {
      case OP_DELETE:
        o->done = ino != 0;
        break;
      case OP_ADD:
        o->done = ino == 0;
        break;
      case OP_REPLACE:
        o->done = ino != 0 && ino != o->new_ino; /* 0: somebody has taken what was kept here */
        break;
      default: {
        /* Attributes may be half set: they count as done, and are set again or put back whole, unless somebody else set them. */
        int fd = open_target(plan, i, o->before.dev, o->before.ino);
        if (fd < 0 && !trouble.conflict) return false;
        struct stat st;
        uint32_t mode = fd >= 0 && fstat(fd, &st) == 0 ? st.st_mode & 07777 : UINT32_MAX;
        o->done = mode == o->before.mode || mode == o->after.mode || mode == writable_mode(&o->after, o->after.mode) || mode == writable_mode(&o->before, o->before.mode);
        if (fd >= 0) close(fd);
        break;
      }
    }
    if (!o->done && o->kind != OP_ATTRIBUTES) (*undone)++;
  }
  forget_parent();
  return true;
}

void recover_plan(struct plan *plan) {
  if (!open_roots(plan)) {
    answer(plan, trouble.conflict ? "conflict" : "failed", 0, true, false);
    return;
  }
  bool any = false;
  for (uint32_t i = 0; i < plan->root_count; i++) {
    if (!find_staging(plan, i)) {
      answer(plan, "failed", 0, true, false);
      return;
    }
    any = any || plan->roots[i].staging_fd >= 0;
  }
  if (plan->roots[0].staging_fd >= 0 && read_manifest(plan, "committed")) {
    answer(plan, "committed", 0, false, false);
    return;
  }
  bool whole = any;
  for (uint32_t i = 0; i < plan->root_count; i++) whole = whole && plan->roots[i].staging_fd >= 0;
  if (!whole || !read_manifest(plan, "manifest")) {
    answer(plan, any ? "rolled_back" : "nothing", 0, false, any);
    return;
  }
  uint32_t undone;
  if (!inspect(plan, &undone)) {
    /* Somebody has closed the way since. Nothing is guessed: it all stays as it is until the way is open. */
    answer(plan, "failed", 0, true, false);
    return;
  }
  if (undone == 0) {
    /* Every path was swapped; what an interrupted verification hadn't looked at yet is looked at now. */
    bool good = true;
    for (uint32_t i = 0; good && i < plan->operation_count; i++) {
      struct operation *o = &plan->operations[i];
      char name[16];
      staged_name(name, o->kind == OP_DELETE ? 'd' : 'n', i);
      if (o->kind == OP_DELETE || o->kind == OP_REPLACE) good = is_preimage(plan->roots[o->root].staging_fd, name, &o->before) || conflicts(i, "it was changed at the moment of the swap");
      else if (o->kind == OP_ATTRIBUTES) {
        if (!opens_directory(o) && !plan->finished) {
          good = finish_directories(plan);
        }
        if (good && o->done) good = change_attributes(plan, i, &o->before, &o->after);
      }
    }
    forget_parent();
    if (good && commit_plan(plan)) {
      answer(plan, "finished", 0, false, false);
      return;
    }
  }
  uint32_t stuck = roll_back(plan);
  answer(plan, stuck > 0 ? "stuck" : "rolled_back", stuck, false, stuck == 0);
}

static bool removed(int parent, const char *name) {
  const char *call = remove_tree(parent, name);
  return call == NULL || failed_call(NO_OPERATION, call);
}

void clean_plan(struct plan *plan) {
  char name[96];
  for (uint32_t i = 0; i < plan->root_count; i++) {
    struct root *root = &plan->roots[i];
    bool good = true;
    if (root->staging_parent.length > 0) {
      int parent = open(root->staging_parent.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      outside_name(plan, i, name);
      good = parent < 0 ? errno == ENOENT || failed_call(NO_OPERATION, "open") : removed(parent, name);
      if (parent >= 0) close(parent);
    }
    int fd = open(root->path.at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    inside_name(plan, name);
    if (good) good = fd < 0 ? errno == ENOENT || failed_call(NO_OPERATION, "open") : removed(fd, name);
    if (fd >= 0) close(fd);
    if (!good) {
      answer(plan, "failed", 0, true, false);
      return;
    }
  }
  answer(plan, "cleaned", 0, false, false);
}
