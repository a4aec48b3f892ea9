export { createNativeExecutor, type NativeExecutorOptions } from './executor.host.ts';
