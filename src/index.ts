/** The public library. */
import { join } from 'node:path';
import { locateShim } from '../executors/shim/locate.host.ts';
import { VERSION } from './core/version.ts';
import { createRegistry, type ExecutorEntry } from './executor/registry.ts';
import { openProofrun, type Proofrun } from './runner/proofrun.host.ts';
import { ownUser } from './runner/own-user.host.ts';
import { stateDirectoryOf } from './runner/state-directory.ts';

export { DIMENSIONS, type Dimension, type Mode, type ObservedLevel, type PlanLevel } from './core/dimension.ts';
export { ProofrunError, EXIT_CODES } from './core/errors.ts';
export type { ErrorCode } from './core/error-codes.ts';
export type { RunBundle } from './core/bundle.ts';
export type { Change, ChangeSet } from './core/change.ts';
export type { RunId } from './core/ids.ts';
export type { EffectiveJob } from './core/job.ts';
export type { Admission, ExecutorCapabilities, ExecutorPlan, Refusal } from './core/plan.ts';
export type { Ending, RunState, StageState } from './core/run.ts';
export { VERSION } from './core/version.ts';
export type { Executor, LaunchRequest, Session, SessionClosing } from './executor/executor.ts';
export type { ExecutorEntry } from './executor/registry.ts';
export type { JobRequest } from './policy/request.ts';
export type { Selection } from './stage/index.ts';
export type { StoredRun } from './store/index.ts';
export { joinAgentCtl, type AgentGuest, type AgentGuestOptions } from './runner/agent-guest.host.ts';
export type { StartingPoint } from './runner/starting-point.host.ts';
export type { StoredCheckpoint } from './store/index.ts';
export {
  openRuntime,
  type ControlDefinition,
  type ControlRuntime,
  type ControlRuntimeOptions,
  type NewControl,
  type OpenControl,
} from './runtime/runtime.host.ts';
export type { Agent, ControlLimits, Decision, ModelAccess, ProposedCall, Reconciliation, Tool, ToolAnswer, ToolCall, ToolSpec } from './runtime/contract.ts';
export type { Gate, GateAnswer, GateCall, Permit } from './runtime/gate.host.ts';
export type { Model, ModelDispatch, ModelMessage, ModelOutcome, ModelPrice, ModelReply, ModelRequest, ModelUsage } from './runtime/model.ts';
export { functionPolicy, type Policy, type PolicyAnswer, type PolicyQuestion } from './runtime/policy.ts';
export type { RunView } from './runtime/record.ts';
export { modelAgent } from './runtime/model-agent.ts';
export { scriptModel } from './runtime/script-model.ts';
export { sendKeyed, type KeyedRequest } from './runtime/keyed-request.host.ts';
export { redaction } from './runtime/redact.ts';
export { openStore, type Store } from './store/index.ts';
export type { Proofrun, StartOptions } from './runner/proofrun.host.ts';
export type { RecordedRun, RunHandle, RunIo, RunNotice, RunResult } from './runner/runner.ts';

export interface ProofrunOptions {
  /** Absolute. Default: `$XDG_STATE_HOME/proofrun`, else `~/.local/state/proofrun`, which the command line uses. */
  readonly stateDirectory?: string;
  /** Where policy.yaml, policies/ and profiles/ of the person lie. Default: `$XDG_CONFIG_HOME/proofrun`, else `~/.config/proofrun`. */
  readonly configDirectory?: string;
  /** What relative paths of a request are relative to, and where a workspace is looked for. Default: the process's. */
  readonly currentDirectory?: string;
  /** What a job's environment is projected from. Default: the process's. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Executors to choose from. Default: native, docker and host. */
  readonly executors?: readonly ExecutorEntry[];
  /** Absolute path of proofrun-shim. Default: the one of this package. */
  readonly shim?: string;
  /** Servers that resolve the names that jobs may reach: `address` or `address:port`. Default: as this machine resolves names. */
  readonly nameservers?: readonly string[];
  /** Milliseconds since the epoch. Default: Date.now. */
  readonly clock?: () => number;
}

/**
 * Opens Proofrun in this process: the same store, policies and executors as the command line. Close it. ERR_STORE_UNREADABLE, ERR_DISK_FULL.
 *
 *   const proofrun = await createProofrun();
 *   const result = await proofrun.run({ argv: ['npm', 'test'], mode: 'safe' });
 *   await proofrun.close();
 */
export async function createProofrun(options: ProofrunOptions = {}): Promise<Proofrun> {
  const env = options.env ?? process.env;
  const user = ownUser();
  const home = env['HOME'] ?? user.homedir;
  const stateDirectory = options.stateDirectory ?? stateDirectoryOf({ env, home: user.homedir });
  return await openProofrun({
    stateDirectory,
    executors: createRegistry(options.executors ?? defaultExecutors(), user.uid === 0 ? 'root' : 'user'),
    shim: () => locateShim(options.shim),
    upstream: { env, ...(options.nameservers === undefined ? {} : { nameservers: options.nameservers }) },
    clock: options.clock ?? Date.now,
    caller: {
      currentDirectory: options.currentDirectory ?? process.cwd(),
      env,
      uid: user.uid,
      home,
      platform: process.platform,
      configDirectory: options.configDirectory ?? join(env['XDG_CONFIG_HOME'] ?? join(home, '.config'), 'proofrun'),
      stateDirectory,
    },
  });
}

function defaultExecutors(): readonly ExecutorEntry[] {
  return [
    { id: 'native', load: async () => (await import('../executors/native/index.ts')).createNativeExecutor({ version: VERSION }) },
    { id: 'docker', costly: true, load: async () => (await import('../executors/docker/index.ts')).createDockerExecutor({ version: VERSION }) },
    { id: 'host', load: async () => (await import('../executors/host/index.ts')).createHostExecutor({ version: VERSION }) },
  ];
}
