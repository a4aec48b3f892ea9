export { createHostExecutor, type HostExecutorOptions } from './executor.host.ts';
export { HOST_SCOPES, hostCapabilities } from './capabilities.ts';
