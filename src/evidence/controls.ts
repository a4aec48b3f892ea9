import type { ControlId } from '../core/plan.ts';
import type { ReceiptPhase } from '../core/receipt.ts';

/** A receipt that a control always owes. The lowering says what it has to hold, and may add receipts of its own to the control. */
export interface OwedReceipt {
  readonly id: string;
  readonly phase: ReceiptPhase;
}

const gate = (...ids: readonly string[]): readonly OwedReceipt[] => ids.map((id) => ({ id, phase: 'gate' }));
const end = (...ids: readonly string[]): readonly OwedReceipt[] => ids.map((id) => ({ id, phase: 'end' }));

/**
 * Which receipts each control owes, whatever the executor. A control without its receipts is not installed: a backend that
 * can't take one of them doesn't list the control among its capabilities. Where the host sees the job's processes, the lowering adds what is
 * read of them from outside (`outside.*`): on an engine of another machine nobody here can.
 */
export const OWED: Readonly<Record<ControlId, readonly OwedReceipt[]>> = {
  mount_namespace: [...gate('ns.mnt', 'mount.table', 'mount.propagation'), ...end('end.mount.table')],
  projected_root: gate('probe.read.outside'),
  hidden_paths: gate('probe.hidden.state'),
  staged_workspace: gate('mount.stage', 'probe.stage.create', 'stage.landed'),
  read_only_host: gate('mount.writable', 'probe.write.root', 'probe.write.etc', 'probe.write.usr'),
  private_home: gate('probe.home.create', 'home.landed'),
  kernel_files: gate('probe.kernel.core_pattern', 'probe.kernel.sysrq', 'probe.kernel.sysctl'),
  network_namespace: gate('ns.net', 'net.interfaces', 'net.routes', 'probe.net.tcp4', 'probe.net.udp4', 'probe.net.dns'),
  network_public: gate('ns.net.shared'),
  overlay_network: [
    ...gate('net.addresses', 'net.local', 'net.listeners', 'resolver.file'),
    ...gate('probe.net.name', 'probe.net.metadata', 'probe.net.dns_tcp', 'probe.net.vsock'),
    ...end('end.net.listeners'),
  ],
  published_ports: [...gate('net.published'), ...end('end.net.published')],
  proxy_offered: gate('proxy.listener'),
  host_sockets: gate('probe.net.host_abstract', 'probe.net.host_path', 'probe.net.host_loopback'),
  pid_namespace: [...gate('ns.pid', 'proc.pids', 'probe.kill.host'), ...end('end.processes')],
  shim_is_init: gate('init.pid', 'init.dumpable', 'init.capabilities', 'probe.init.memory'),
  no_new_privs: gate('status.no_new_privs'),
  capabilities: gate('status.capabilities'),
  user_drop: gate('status.ids', 'status.groups'),
  seccomp: gate('status.seccomp', 'status.seccomp_filters'),
  descriptors: gate('fds'),
  no_program: gate('probe.fork', 'probe.seccomp.execve', 'probe.seccomp.execveat', 'probe.seccomp.clone_process'),
  listed_programs: gate('probe.exec.unlisted', 'probe.exec.memfd', 'mount.executable'),
  tree_killed: end('end.processes', 'end.init_gone'),
  environment: gate('environment'),
  agent_sockets: gate('probe.socket.agents'),
  session_keyring: gate('keyring.session', 'probe.seccomp.keyctl'),
  secret_injection: [...gate('environment.placeholders', 'net.listeners'), ...end('end.net.listeners')],
  rlimits: gate('rlimits'),
  process_limit: gate('limit.processes'),
  memory_limit: gate('limit.memory'),
  cpu_limit: gate('limit.cpus'),
  wall_time: gate('wall.armed_ms'),
  tmp_size: gate('mount.tmp_size'),
  stage_size: [...gate('watch.stage_bytes'), ...end('end.watch')],
};
