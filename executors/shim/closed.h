#ifndef PROOFRUN_CLOSED_H
#define PROOFRUN_CLOSED_H

#include <stddef.h>
#include <sys/stat.h>

/*
 * Entries of the layer that its owner closed with a mode such as 0000. The layer is ours: a file is opened up for the
 * moment of its opening, a directory (whose search right is asked for at every look-up) until close_again(). Signals from
 * the terminal wait meanwhile; a failure of ours closes them first. Only a SIGKILL in between leaves a mode changed, in the
 * layer, never in the tree.
 */
int open_closed(int parent, const char *name, int flags, const struct stat *st);
size_t opened_up_now(void);
void close_again(size_t keep); /* closes what was opened up after opened_up_now() was `keep` */

/*
 * Opens a file of the tree that its owner, the caller, closed, without touching it: in a user namespace of a process of its
 * own. -1 with EACCES where the machine has no such namespaces, and for root, whom no mode keeps out.
 */
int open_untouched(int parent, const char *name, int flags, const struct stat *st);

int chmod_handle(int handle, mode_t mode); /* of an O_PATH descriptor */

#endif
