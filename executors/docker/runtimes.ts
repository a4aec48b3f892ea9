import type { ControlId, RuntimeCapabilities } from '../../src/core/plan.ts';

/**
 * A runtime with a kernel of its own in user space (gVisor): what that kernel says of itself is no receipt of this machine's. It shows no
 * no_new_privs, no filters, no overlay and no sizes, and the host sees one process for all of the job's.
 */
const WITHOUT_RECEIPTS: readonly ControlId[] = [
  ...(['mount_namespace', 'staged_workspace', 'read_only_host', 'no_new_privs', 'capabilities', 'user_drop', 'seccomp'] as const),
  ...(['no_program', 'session_keyring', 'process_limit', 'tmp_size'] as const),
];

/** Told by name: it only lowers what is planned, and receipts decide. */
export function isUserSpaceKernel(runtime: string): boolean {
  return /runsc|gvisor/i.test(runtime);
}

/** What each runtime that the engine knows lets this executor prove. */
export function runtimesOf(names: readonly string[], controls: readonly ControlId[]): readonly RuntimeCapabilities[] {
  return names.map((name) =>
    isUserSpaceKernel(name)
      ? {
          name,
          controls: controls.filter((control) => !WITHOUT_RECEIPTS.includes(control)),
          note: `${name} has a kernel of its own in user space, which shows no receipt of them`,
        }
      : { name, controls },
  );
}
