import type { Dimension } from '../../src/core/dimension.ts';
import type { ControlId } from '../../src/core/plan.ts';
import type { NativeJob } from './native-job.ts';

/** A shim that installs something else than it was told: one place of a copy of its sources is changed, and nothing of what it reports. */
export interface ShimVariant {
  readonly control: ControlId;
  readonly how: string;
  readonly file: string;
  /** Text of the source, which has to be there once, and what stands there instead. */
  readonly edits: readonly (readonly [from: string, to: string])[];
  readonly lost: readonly Dimension[];
  readonly only?: 'root' | 'user';
  readonly ownedByUser?: true;
  readonly atEnd?: true;
  /** Which programs the job may start; default: any, contained. */
  readonly programs?: NativeJob['programs'];
  readonly cgroup?: 'processes';
  /** Mounts are shared with the caller's namespace there. */
  readonly sharedMounts?: true;
}

const FILES: readonly Dimension[] = ['file_read', 'file_write'];

export const SHIM_VARIANTS: readonly ShimVariant[] = [
  {
    control: 'mount_namespace',
    how: 'mounts stay shared with those of the caller',
    file: 'outer.c',
    edits: [['if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) fail("mount private", "/");', '']],
    sharedMounts: true,
    lost: FILES,
  },
  {
    control: 'hidden_paths',
    how: 'whiteouts are not made',
    file: 'outer.c',
    edits: [['if (mknod(path, S_IFCHR, makedev(0, 0)) != 0 && errno != EEXIST) fail("mknod whiteout", path);', '(void)path;']],
    lost: ['file_read'],
  },
  {
    control: 'read_only_host',
    how: 'mounts of the host are not made read-only',
    file: 'mounts.c',
    edits: [['((flags & MOUNT_READONLY) ? 0x1u : 0)', '0u']],
    lost: FILES,
  },
  {
    control: 'shim_is_init',
    how: 'PID 1 makes itself dumpable',
    file: 'inner.c',
    edits: [['if ((command->rights & RIGHT_NONDUMPABLE) && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)', 'if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)']],
    lost: ['subprocess'],
  },
  {
    control: 'capabilities',
    how: 'the permitted set is kept',
    file: 'inner.c',
    edits: [['if (syscall(SYS_capset, &head, none) != 0) fail("capset", "");', '(void)head, (void)none;']],
    lost: ['subprocess'],
  },
  {
    control: 'capabilities',
    how: 'the bounding set is kept',
    file: 'inner.c',
    edits: [['if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0 && errno != EPERM) fail("prctl", "PR_CAPBSET_DROP");', 'continue;']],
    lost: ['subprocess'],
  },
  {
    control: 'user_drop',
    how: "root's groups are kept",
    file: 'inner.c',
    edits: [
      [
        'if (setgroups(command->group_count, command->groups) != 0) fail("setgroups", "workspace owner");',
        'gid_t kept = 0; if (setgroups(1, &kept) != 0) fail("setgroups", "");',
      ],
    ],
    only: 'root',
    ownedByUser: true,
    lost: ['subprocess'],
  },
  {
    control: 'user_drop',
    how: 'the saved uid stays root',
    file: 'inner.c',
    edits: [['setresuid(command->uid, command->uid, command->uid)', 'setresuid(command->uid, command->uid, 0)']],
    only: 'root',
    ownedByUser: true,
    lost: ['subprocess'],
  },
  {
    control: 'seccomp',
    how: 'the filter is not installed',
    file: 'child.c',
    edits: [['i < command->filter_count; i++) {\n    struct sock_fprog', 'i < 0 * command->filter_count; i++) {\n    struct sock_fprog']],
    lost: ['subprocess', 'credentials'],
  },
  {
    control: 'seccomp',
    how: 'a filter that allows everything is installed',
    file: 'child.c',
    edits: [
      [
        '{(unsigned short)(command->filters[i].length / sizeof(struct sock_filter)), command->filters[i].bytes};',
        '{1, &(struct sock_filter){BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};',
      ],
    ],
    lost: ['subprocess', 'credentials'],
  },
  {
    control: 'listed_programs',
    how: 'the list is not installed',
    file: 'child.c',
    edits: [['if (command->programs != NULL) restrict_programs(command->programs);', '']],
    programs: ['sh'],
    lost: ['subprocess'],
  },
  {
    control: 'descriptors',
    how: 'inherited descriptors stay open',
    file: 'inner.c',
    edits: [['if (command.rights & RIGHT_CLOSE_FDS) close_above(first);', '(void)first;']],
    lost: ['subprocess'],
  },
  {
    control: 'descriptors',
    how: 'a descriptor with a high number stays open',
    file: 'child.c',
    edits: [
      ['  report_keyring(control, "keyring.before");', '  if (dup2(1, 1500) != 1500) fail("dup2", "high");\n  report_keyring(control, "keyring.before");'],
    ],
    lost: ['subprocess'],
  },
  {
    control: 'descriptors',
    how: "the caller's own streams are handed on",
    file: 'outer.c',
    edits: [['for (int i = 0; i < 3; i++) place(pipes.child[i], i);', '']],
    lost: ['subprocess'],
  },
  {
    control: 'tree_killed',
    how: 'what the command left behind is not killed',
    file: 'inner.c',
    edits: [['  end_tree(watch->command);', '  if (watch->command < 0) end_tree(watch->command);']],
    atEnd: true,
    lost: ['subprocess'],
  },
  {
    control: 'session_keyring',
    how: 'no session keyring is joined',
    file: 'child.c',
    edits: [['if (syscall(SYS_keyctl, (unsigned long)KEYCTL_JOIN_SESSION_KEYRING_, 0UL) < 0) errno = 0;', '']],
    lost: ['credentials'],
  },
  {
    control: 'rlimits',
    how: 'limits are not set',
    file: 'child.c',
    edits: [['if (setrlimit(resource, &wanted) != 0) fail("setrlimit", "");', '(void)resource;']],
    lost: ['resources'],
  },
  {
    control: 'process_limit',
    how: 'the control group that the host put it into is left again',
    file: 'outer.c',
    edits: [
      [
        '  int shim = sealed_self();',
        `  int shim = sealed_self();
  static const char *const tops[] = {"/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"};
  for (unsigned i = 0; i < 2; i++) {
    int fd = open(tops[i], O_WRONLY | O_CLOEXEC);
    if (fd < 0) continue;
    if (write(fd, "0", 1) != 1) fail("write", tops[i]);
    close(fd);
  }`,
      ],
    ],
    only: 'root',
    cgroup: 'processes',
    lost: ['resources'],
  },
  {
    control: 'wall_time',
    how: 'the timer is not started',
    file: 'inner.c',
    edits: [['if (timerfd_settime(fd, 0, &set, NULL) != 0) fail("timerfd_settime", "");', '(void)set;']],
    lost: ['resources'],
  },
  {
    control: 'tmp_size',
    how: 'sizes of temporary places are ignored',
    file: 'mounts.c',
    edits: [['if (bytes > 0) snprintf(options + used, sizeof options - (size_t)used, ",size=%llu", (unsigned long long)bytes);', '(void)used, (void)bytes;']],
    lost: ['resources'],
  },
];

/** Leaves out a step that bubblewrap repeats: what is read back decides, so nothing is lost. */
export const HARMLESS_VARIANT: Omit<ShimVariant, 'control' | 'lost'> = {
  how: 'no_new_privs is left to bubblewrap',
  file: 'inner.c',
  edits: [['if ((command->rights & RIGHT_NO_NEW_PRIVS) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("prctl", "PR_SET_NO_NEW_PRIVS");', '']],
};
