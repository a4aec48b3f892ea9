#ifndef PROOFRUN_REMOVAL_H
#define PROOFRUN_REMOVAL_H

/*
 * Removes `name` beneath `parent` with all in it, whatever the modes and however deep; no link is followed, no mount is
 * entered. Absent is fine. NULL, or the call that failed, with errno.
 */
const char *remove_tree(int parent, const char *name);
int remove_directory(const char *path); /* the same for an absolute path; ends the program when it fails */

#endif
